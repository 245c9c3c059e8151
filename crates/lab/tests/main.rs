//! Tests of the crate's public interface, in one executable.

mod common;
mod crash;
mod lab;
mod plan;
