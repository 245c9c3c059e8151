//! Sending by the kernel, as root between hosts of a network of each test's own.
//!
//! - `arrivals`: what arrives is what the plan says, whatever receivers do to it;
//! - `control`: rates, stopping, dying, refusals;
//! - `told`: what streams are told while they run;
//! - `program`: `generate` on such a port.

#[path = "live/arrivals.rs"]
mod arrivals;
#[path = "live/control.rs"]
mod control;
#[path = "live/program.rs"]
mod program;
#[path = "live/stage.rs"]
mod stage;
#[path = "live/told.rs"]
mod told;
