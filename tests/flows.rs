//! Flow records compared with independent counts of the same frames.
//!
//! - `live`: two hosts with real clients; records match the counters of the kernels and of the clients;
//! - `flood`: the same during a SYN flood that overflows the flow table;
//! - `lossy`: connections over a lossy path (`socket_counters`: one of them compared with its sockets);
//! - `corpus`: every capture compared with `capinfos`, and captures in parts compared with the whole;
//! - `tshark`: level `tcp` compared with tshark (`analysis`), also for a hand-made capture of rare events (`synthetic`);
//! - `testbed`, `clients`, `kernel`, `metered`: the hosts, their clients, their counters, and the meter's output.

mod analysis;
mod clients;
mod corpus;
mod flood;
mod kernel;
mod live;
mod lossy;
mod metered;
mod socket_counters;
mod synthetic;
mod testbed;
mod tshark;
