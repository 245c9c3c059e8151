//! The TCP endpoint against peers, faulty wires and attackers, in time that is made up.

#[path = "tcp/attacks.rs"]
mod attacks;
#[path = "tcp/clauses.rs"]
mod clauses;
#[path = "tcp/consumer.rs"]
mod consumer;
#[path = "tcp/data.rs"]
mod data;
#[path = "tcp/defects.rs"]
mod defects;
#[path = "tcp/memory.rs"]
mod memory;
#[path = "tcp/model.rs"]
mod model;
#[path = "tcp/peer.rs"]
mod peer;
#[path = "tcp/script.rs"]
mod script;
