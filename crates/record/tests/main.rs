//! Tests of the crate by its public interface, one executable.

mod bounded;
mod common;
mod compressed;
mod corpus;
mod disk_full;
mod recording;
mod rewritten;
mod round_trip;
mod said;
