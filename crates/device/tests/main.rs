//! Tests of the crate through its public interface, one executable.

mod contract;
mod ptx;
mod streams;
mod support;
