//! Tests of the crate by its public interface, one executable.

mod devices;
mod mlrsearch;
