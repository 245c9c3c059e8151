//! Blocks in shared memory: one writer, any number of reading processes. The format, and what either side may rely on, is
//! told in `docs/block-ring.md`.
//!
//! In the order data takes:
//!
//! - [`Options`]: how large the ring is; [`Error`]: why there is none;
//! - [`Writer`]: fills blocks; [`Acceptor`]: lets readers in, in a thread of its own;
//! - [`Attach`]: how another process comes in; [`Reader`]: what it sees.
//!
//! Below them, each in a file: `layout` (offsets), `mapping` and `pages` (memory), `arena` (blocks), `control` (what writer and
//! reader tell each other), `index` (the rings in it), `slots` (who holds which block), `frames` (what a reader shows),
//! `address`, `credentials` and `handshake` (how a reader comes in).
//!
//! Nothing here reads a clock, starts a thread or prints.
#![deny(unsafe_code)]

mod acceptor;
mod address;
mod arena;
mod attach;
mod control;
mod credentials;
mod error;
mod frames;
mod handshake;
mod index;
mod interfaces;
mod layout;
mod mapping;
mod pages;
mod reader;
mod slots;
mod writer;

pub use {
    acceptor::{Acceptor, Client, Who},
    arena::Options,
    attach::{Attach, Attaching},
    credentials::Access,
    error::Error,
    reader::{End, Reader},
    slots::Tally,
    writer::{Departure, Report, Writer},
};

/// What `index` is made of; under loom it is made of loom's.
mod atomics {
    pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
}
