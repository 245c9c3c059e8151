//! Tests of the crate's public interface, in one executable.

mod bounded;
mod common;
mod compressed;
mod corpus;
mod disk_full;
mod recording;
mod rewritten;
mod round_trip;
mod said;
