//! Tests of the crate by its public interface, one executable.

mod copying;
mod flows;
mod frame_ring;
mod multiple_consumers;
mod panics;
mod print;
mod special_ports;
mod stream_control;
mod transmit;
