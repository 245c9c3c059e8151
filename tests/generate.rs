//! Streams as users send them, from the stream file to the last receiver.
//!
//! - `paths`: the same file gives the same frames on every path;
//! - `fault_reports`: the receiver reports every fault of a link;
//! - `receivers`: sockets, bridges, routers and counters of the kernel agree;
//! - `counts`: exact packet counts at the requested rate;
//! - `unpaced`: files are written without waiting;
//! - `options`: documented effects of options;
//! - `loss`: loss is reported during a run;
//! - `commands`: control commands to running streams;
//! - `failures`: rejected input, and reports of runs that end early.

mod commands;
mod counts;
mod failures;
mod fault_reports;
mod loss;
mod options;
mod paths;
mod receivers;
mod testbed;
mod unpaced;
