//! Tests that start processes. They have an executable of their own: between fork and exec such processes hold sockets
//! of other tests open.

mod death;
mod leaks;
#[path = "support/raw.rs"]
mod raw;
mod support;
mod users;
