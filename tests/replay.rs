//! Recordings replayed: rewritten, over two ports, on time.

mod files;
mod network;
mod rewritten;
