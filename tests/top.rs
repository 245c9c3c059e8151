//! The live views, seen and driven through a terminal of their own.

mod attached;
mod own;
mod pty;
mod streams;
mod traffic;
