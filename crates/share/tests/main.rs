//! Tests of the crate through its public interface, one executable.

mod acceptor;
mod deciding;
mod eviction;
mod frame_ring;
mod hostile;
#[path = "support/raw.rs"]
mod raw;
mod ring;
mod support;
