//! Blocks in shared memory: one writer, any number of reading processes. The format, and what either side may rely on, is
//! told in `docs/block-ring.md`.
//!
//! In the order data takes:
//!
//! - [`Options`]: how large the ring is; [`Error`]: why there is none;
//! - [`Writer`]: fills blocks; [`Acceptor`]: lets readers in, in a thread of its own;
//! - [`Attach`]: how another process comes in; [`Reader`]: what it sees; [`Engine`]: one that decides about each frame;
//! - [`frame_ring`]: the same for frames of memory, one reader at a time.
//!
//! Below them, each in a file: `layout` (offsets), `mapping` and `pages` (memory), `arena` (blocks), `control` (what writer and
//! reader tell each other), `index` (the rings in it), `slots` (who holds which block), `frames` (what a reader shows),
//! `address`, `socket_file`, `credentials` and `handshake` (how a reader comes in).
//!
//! Nothing here reads a clock, starts a thread or prints.
//!
//! # What it stands on
//!
//! - **The truth is private.** Who holds which block is known to the writer alone (`slots`, pure, tested beside a model that keeps
//!   every frame). Of what a reader can write the writer reads three numbers, and checks each. So a reader may die at any
//!   instruction or scribble over everything: its blocks come back, others notice nothing. A reader in turn copies each number
//!   out once and checks it.
//! - **A free list, not a circle.** One block held for a second must not stop the rest; eight free blocks are used in turn. The one
//!   freed last would be in the cache of its reader, which has to give every line up again; the oldest is in no cache any more (a
//!   ring of 4 MiB costs 8 ns a frame of 60 bytes, one of 64 MiB used as a circle 12).
//! - **Two rings of numbers for each reader**, one writer and one reader each, counts stored last; tried under loom in every order,
//!   as is going to sleep. There is no shared queue: a crashed peer leaves nothing half done that others need.
//! - **Lossless readers gate, lossy ones never.** Each has a quota, and all of them together hold at most half of the blocks, so
//!   that many stopped readers are no worse than one. To gate is the sharer's to allow (`--lossless-readers`), and lasts a second by
//!   default: a reader that blocks the writer for longer is evicted, and never made lossy without an error.
//! - **Evicted, not pulled away.** Of an evicted reader the first block that it has not given back is left alone until it hangs
//!   up; a fence on both sides tells which one that is. There are at most as many lossless readers as blocks can be left alone
//!   beside the half for lossy readers and one to go on with.
//! - **Anybody may connect.** A step of the acceptor ([`Acceptor`]) deals with so many clients and no more, looks at credentials before
//!   it does anything else, and a user has a share of the places; the end of a run waits for nobody.
//! - **Frames are seen before their block is full**: a commit raises one number. The horizon is a word of the arena, stored after
//!   what it speaks of; in the block it could be read ahead of the frames, and a reader that is skipped could not see it.
//! - **Sealed memory.** Nobody but the writer can ever map the arena to write, root included, nor cut it, which would be SIGBUS.
//!   Of another user's ring the memory must be there, in ordinary pages, and sealed against holes, and at most 256 MiB are populated.
//! - **The acceptor is apart from the writer**: memory and messages are slow, and happen in another thread. What is admitted is
//!   ready. Every socket there has a deadline; descriptors that strangers send are never taken in.
//! - **Waking** is one byte on the socket, sent only to a reader that says that it sleeps, never waiting for it. The end of the
//!   socket is the sign of death; the heartbeat in the arena is for those who look from outside.
#![deny(unsafe_code)]

mod acceptor;
mod address;
mod answers;
mod arena;
mod attach;
mod control;
mod credentials;
mod engine;
mod error;
pub mod frame_ring;
mod frames;
mod handshake;
mod index;
mod interfaces;
mod layout;
mod mapping;
mod pages;
mod reader;
mod registrations;
mod slots;
mod socket_file;
mod verdicts;
mod writer;

pub use {
    acceptor::{Acceptor, Client, Who},
    answers::{Answer, Answers, Inject, Kind, Unanswered},
    arena::Options,
    attach::{Attach, Attaching},
    credentials::Access,
    engine::{Decide, Engine, Seen, Ticket, Verdict},
    error::Error,
    reader::{End, Reader},
    slots::Tally,
    socket_file::{NoFile, SocketFile},
    verdicts::{SETTLED, UNDECIDED},
    writer::{Deciding, Departure, Report, Writer},
};

/// What `index` and `verdicts` are made of; under loom it is made of loom's.
mod atomics {
    pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
}
