//! Streams received by the program, end to end: the kernel's TCP sends, and every byte is compared.
//!
//! - `ports`: over each way in, IPv4 and IPv6, several streams, more than 4 GiB;
//! - `clients`: programs that people send with;
//! - `faults`: over a wire that loses, repeats, reorders and damages; senders and destinations that go away;
//! - `stage`: the hosts.

#[path = "receive/clients.rs"]
mod clients;
#[path = "receive/faults.rs"]
mod faults;
#[path = "receive/ports.rs"]
mod ports;
#[path = "receive/stage.rs"]
mod stage;
