//! Tests of the crate by its public interface, one executable.

mod community;
mod continued;
mod corpus;
mod definitions;
mod encapsulation;
mod ends;
mod extensions;
mod flowtest;
mod glance;
mod ipfixprobe;
mod names;
mod oracle;
mod records;
mod spread;
mod stats;
mod support;
mod tcp;
mod tcp_oracle;
mod times;
