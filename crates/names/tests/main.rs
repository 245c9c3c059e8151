//! Tests of the crate's public interface, in one executable.

mod quic;
mod stream_starts;
