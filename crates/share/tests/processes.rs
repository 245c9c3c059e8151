//! Tests that start processes: between fork and exec these hold sockets of other tests open, so that they have an executable of their own.

mod death;
mod leaks;
#[path = "support/raw.rs"]
mod raw;
mod support;
mod users;
