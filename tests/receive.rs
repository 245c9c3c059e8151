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

#[path = "receive/attackers.rs"]
mod attackers;
#[path = "receive/clients.rs"]
mod clients;
#[path = "receive/device.rs"]
mod device;
#[path = "receive/faults.rs"]
mod faults;
#[path = "receive/many.rs"]
mod many;
#[path = "receive/ports.rs"]
mod ports;
#[path = "receive/ring.rs"]
mod ring;
#[path = "receive/stage.rs"]
mod stage;
