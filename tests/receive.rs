//! Streams received by the program, end to end: the kernel's TCP sends, and every byte is compared.
//!
//! - `ports`: over each way in, IPv4 and IPv6, several streams, more than 4 GiB;
//! - `clients`: programs that people send with;
//! - `faults`: over a wire that loses, repeats, reorders and damages; senders and destinations that go away;
//! - `attackers`: floods and forged segments beside a good flow;
//! - `many`: a thousand connections at once;
//! - `ring`: frames in shared memory, and what their readers do;
//! - `device`: frames in memory of a device;
//! - `stage`: the hosts.

mod attackers;
mod clients;
mod device;
mod faults;
mod many;
mod ports;
mod ring;
mod stage;
