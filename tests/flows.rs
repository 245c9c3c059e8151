//! Flow records beside what others counted of the same frames.
//!
//! - `live`: two hosts with real clients; the records are what the hosts' kernels and the clients themselves say;
//! - `flood`: the same beside a SYN flood that the table cannot hold;
//! - `lossy`: connections over a path that loses frames (`sent`: one of them beside its sockets);
//! - `corpus`: every capture beside `capinfos`, and in parts beside the whole;
//! - `tshark`: level `tcp` beside tshark's analysis (`analysis`), also of a capture with what the others lack (`made`);
//! - `stage`, `clients`, `kernel`, `metered`: the hosts, what runs on them, what they count, what came out.

mod analysis;
mod clients;
mod corpus;
mod flood;
mod kernel;
mod live;
mod lossy;
mod made;
mod metered;
mod sent;
mod stage;
mod tshark;
