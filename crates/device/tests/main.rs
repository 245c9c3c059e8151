//! Tests of the crate by its public interface, one executable.

mod contract;
mod ptx;
mod streams;
mod support;
