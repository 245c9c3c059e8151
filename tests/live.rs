//! Sending by the kernel, as root between hosts of a network of each test's own.
//!
//! - `arrivals`: what arrives is what the plan says, whatever receivers do to it;
//! - `control`: rates, stopping, dying, refusals;
//! - `told`: what streams are told while they run;
//! - `program`: `generate` on such a port.

mod arrivals;
mod control;
mod program;
mod stage;
mod told;
