//! TCP and UDP data streams put back together in memory, bit for bit.
//!
//! Segments and datagrams go in with the time, bytes come to their final place once, and what is to be sent back comes out. Nothing
//! here opens a socket, reads a clock or starts a thread.
//!
//! - [`place`]: the contract between who finds out where bytes belong and the memory that takes them;
//! - [`ranges`]: which bytes of a stream are there;
//! - [`follow`](mod@follow): streams of captured traffic, by looking on.
#![deny(unsafe_code)]

pub mod follow;
pub mod place;
pub mod ranges;
