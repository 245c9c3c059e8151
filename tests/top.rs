//! The live views of `top` and `generate`, driven through a pseudo terminal.

mod attached;
mod own_ports;
mod pty;
mod streams;
mod traffic;
