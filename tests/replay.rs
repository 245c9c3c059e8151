//! Recordings replayed: rewritten, over two ports, on time.

#[path = "replay/files.rs"]
mod files;
#[path = "replay/network.rs"]
mod network;
#[path = "replay/rewritten.rs"]
mod rewritten;
