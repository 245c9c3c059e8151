//! Streams received by the program end to end: the kernel's TCP sends, and every byte is compared.
//!
//! - `ports`: over every backend, IPv4 and IPv6, several streams, more than 4 GiB;
//! - `clients`: common client programs;
//! - `faults`: links that lose, duplicate, reorder and corrupt packets; senders and ports that fail;
//! - `attackers`: floods and forged segments during a legitimate flow;
//! - `many_connections`: a thousand connections at once;
//! - `ring`: frames in shared memory, and their readers;
//! - `device`: frames in device memory;
//! - `testbed`: the hosts.

mod attackers;
mod clients;
mod device;
mod faults;
mod many_connections;
mod ports;
mod ring;
mod testbed;
