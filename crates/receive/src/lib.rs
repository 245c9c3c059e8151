//! TCP and UDP data streams put back together in memory, bit for bit.
//!
//! Segments and datagrams go in with the time, bytes come to their final place once, and what is to be sent back comes out. Nothing
//! here opens a socket, reads a clock or starts a thread.
//!
//! - [`frames`]: memory for streams, in pieces of one size from a pool; [`copy`]: how bytes come there;
//! - [`datagrams`]: sequenced datagrams in such frames; [`destination`]: where finished frames go;
//! - [`place`]: the contract between who finds out where bytes belong and the memory that takes them;
//! - [`ranges`]: which bytes of a stream are there;
//! - [`tcp`]: the receiving end of TCP connections;
//! - [`follow`](mod@follow): streams of captured traffic, by looking on;
//! - [`destination`]: where finished frames go;
//! - [`pattern`]: bytes that say where they belong, for tests.
#![deny(unsafe_code)]

pub mod copy;
pub mod datagrams;
pub mod destination;
pub mod follow;
pub mod frames;
pub mod pattern;
pub mod place;
pub mod ranges;
pub mod tcp;
