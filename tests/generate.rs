//! Streams as users send them, from the file to the last receiver.
//!
//! - `paths`: the same file gives the same frames on every path;
//! - `checked`: what a wire does to frames is what the receiver reports;
//! - `receivers`: sockets, bridges, routers and counters of the kernel agree;
//! - `counts`: as many frames as asked for, in the time they should take;
//! - `at_once`: files are not waited for;
//! - `options`: what options promise;
//! - `lost`: what is lost is told while a run lasts;
//! - `told`: what streams are told while they run;
//! - `endings`: what is refused, and what is told when a run ends early.

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
