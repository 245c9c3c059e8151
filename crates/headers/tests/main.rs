//! Tests of the crate by its public interface, one executable.

mod build;
mod depth;
mod etherparse;
mod flow;
mod headers;
mod packets;
mod properties;
mod samples;
mod tunnels;
mod views;
