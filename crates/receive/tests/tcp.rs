//! The TCP endpoint against peers, faulty wires and attackers, in time that is made up.

mod attacks;
mod clauses;
mod consumer;
mod data;
mod defects;
mod memory;
mod model;
mod peer;
mod script;
