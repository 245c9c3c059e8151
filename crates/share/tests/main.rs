//! Tests of the crate by its public interface, one executable.

mod acceptor;
mod death;
mod deciding;
mod eviction;
mod frame_ring;
mod hostile;
mod leaks;
#[path = "support/raw.rs"]
mod raw;
mod ring;
mod support;
mod users;
