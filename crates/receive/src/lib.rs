//! TCP and UDP data streams put back together in memory, bit for bit.
//!
//! Segments and datagrams go in with the time, bytes come to their final place once, and what is to be sent back comes out. Nothing
//! here opens a socket, reads a clock or starts a thread.
//!
//! - [`frames`]: memory for streams, in pieces of one size from a pool; [`copy`]: how bytes come there;
//! - [`place`]: the contract between who finds out where bytes belong and the memory that takes them;
//! - [`ranges`]: which bytes of a stream are there;
//! - [`pattern`]: bytes that say where they belong, for tests.
#![deny(unsafe_code)]

pub mod copy;
pub mod frames;
pub mod pattern;
pub mod place;
pub mod ranges;
