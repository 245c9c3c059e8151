//! Recordings replayed: rewritten, split over two ports, and with exact timing.

mod files;
mod network;
mod rewritten;
