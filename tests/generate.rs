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

#[path = "generate/at_once.rs"]
mod at_once;
#[path = "generate/checked.rs"]
mod checked;
#[path = "generate/counts.rs"]
mod counts;
#[path = "generate/endings.rs"]
mod endings;
#[path = "generate/lost.rs"]
mod lost;
#[path = "generate/options.rs"]
mod options;
#[path = "generate/paths.rs"]
mod paths;
#[path = "generate/receivers.rs"]
mod receivers;
#[path = "generate/stage.rs"]
mod stage;
#[path = "generate/told.rs"]
mod told;
