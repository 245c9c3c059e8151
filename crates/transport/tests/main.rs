//! Tests of the crate's public interface, in one executable.

mod destination;
mod follow;
mod speed;
mod tcp;
mod tcp_page;
