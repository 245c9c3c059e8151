//! Flow records beside what others counted of the same frames.
//!
//! - `live`: two hosts with real clients; the records are what the hosts' kernels and the clients themselves say;
//! - `flood`: the same beside a SYN flood that the table cannot hold;
//! - `lossy`: connections over a path that loses frames (`sent`: one of them beside its sockets);
//! - `corpus`: every capture beside `capinfos`, and in parts beside the whole;
//! - `tshark`: level `tcp` beside tshark's analysis (`analysis`), also of a capture with what the others lack (`made`);
//! - `stage`, `clients`, `kernel`, `metered`: the hosts, what runs on them, what they count, what came out.

#[path = "flows/analysis.rs"]
mod analysis;
#[path = "flows/clients.rs"]
mod clients;
#[path = "flows/corpus.rs"]
mod corpus;
#[path = "flows/flood.rs"]
mod flood;
#[path = "flows/kernel.rs"]
mod kernel;
#[path = "flows/live.rs"]
mod live;
#[path = "flows/lossy.rs"]
mod lossy;
#[path = "flows/made.rs"]
mod made;
#[path = "flows/metered.rs"]
mod metered;
#[path = "flows/sent.rs"]
mod sent;
#[path = "flows/stage.rs"]
mod stage;
#[path = "flows/tshark.rs"]
mod tshark;
