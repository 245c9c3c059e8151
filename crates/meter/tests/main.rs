//! Tests of the crate by its public interface, one executable.

mod active_timeout;
mod community;
mod corpus;
mod definitions;
mod distributor;
mod encapsulation;
mod ends;
mod extensions;
mod flowtest;
mod ipfixprobe;
mod names;
mod oracle;
mod records;
mod snapshot;
mod stats;
mod support;
mod tcp;
mod tcp_oracle;
mod times;
