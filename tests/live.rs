//! Sending by the kernel (`xdp-live`), as root between hosts of a network per test.
//!
//! - `arrivals`: received frames equal the streams, whatever receivers do to the pages;
//! - `control`: rates, stopping, failures, unsupported streams;
//! - `commands`: commands to running streams;
//! - `program`: `generate` and `replay` on such a port.

mod arrivals;
mod commands;
mod control;
mod program;
mod testbed;
