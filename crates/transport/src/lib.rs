//! TCP and UDP reassembly in memory, bit-exact.
//!
//! Input is segments and datagrams with a timestamp; payload is copied once, to its final place; output is the
//! segments to send. Nothing here opens a socket, reads a clock or starts a thread.
//!
//! - [`frames`]: memory for streams, in frames of a fixed size from a pool; [`copy`]: the copy kernels;
//! - [`datagrams`]: sequenced datagrams in such frames; [`destination`]: sinks for finished frames;
//! - [`stream_memory`]: the contract between a protocol, which knows where bytes belong, and the memory that stores them;
//! - [`ranges`]: which bytes of a stream have been received;
//! - [`tcp`]: the receiving end of TCP connections;
//! - [`follow`](mod@follow): passive reassembly of streams in captured traffic;
//! - [`destination`]: sinks for finished frames;
//! - [`pattern`]: bytes that encode their own position, for tests.
#![deny(unsafe_code)]

pub mod copy;
pub mod datagrams;
pub mod destination;
pub mod follow;
pub mod frames;
pub mod pattern;
pub mod ranges;
pub mod stream_memory;
pub mod tcp;
