//! Streams as users send them, from the stream file to the last receiver.
//!
//! - `paths`: the same file gives the same frames on every path;
//! - `checked`: the receiver reports every fault of a link;
//! - `receivers`: sockets, bridges, routers and counters of the kernel agree;
//! - `counts`: exact packet counts at the requested rate;
//! - `at_once`: files are written without waiting;
//! - `options`: documented effects of options;
//! - `lost`: loss is reported during a run;
//! - `told`: control commands to running streams;
//! - `endings`: rejected input, and reports of runs that end early.

mod at_once;
mod checked;
mod counts;
mod endings;
mod lost;
mod options;
mod paths;
mod receivers;
mod stage;
mod told;
