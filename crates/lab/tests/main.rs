//! Tests of the crate by its public interface, one executable.

mod common;
mod crash;
mod lab;
mod plan;
