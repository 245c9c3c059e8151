//! The TCP endpoint against peers, faulty wires and attackers, in virtual time.

mod attacks;
mod clauses;
mod consumer;
mod data;
mod defects;
mod memory;
mod model;
mod peer;
mod script;
