//! Tests of the crate by its public interface, one executable.

mod destination;
mod follow;
mod speed;
mod tcp;
mod tcp_page;
