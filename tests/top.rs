//! The live views, seen and driven through a terminal of their own.

#[path = "top/attached.rs"]
mod attached;
#[path = "top/own.rs"]
mod own;
#[path = "top/pty.rs"]
mod pty;
#[path = "top/streams.rs"]
mod streams;
#[path = "top/traffic.rs"]
mod traffic;
