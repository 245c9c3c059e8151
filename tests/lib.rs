//! Helpers shared by tests of several crates.

pub mod support;
