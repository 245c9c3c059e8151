//! Tests of the crate through its public interface, one executable.

mod gather;
mod two_threads;
