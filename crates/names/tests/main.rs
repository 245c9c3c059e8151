//! Tests of the crate's public interface, in one executable.

mod beginnings;
mod quic;
