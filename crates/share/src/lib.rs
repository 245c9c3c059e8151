//! Blocks in shared memory: one writer, any number of reading processes. `docs/block-ring.md` specifies the format, and
//! what either side may rely on.
//!
//! In the order data takes:
//!
//! - [`Options`]: size and memory of the ring; [`Error`]: failures to create or attach;
//! - [`Writer`]: fills blocks; [`Acceptor`]: accepts readers, in a thread of its own;
//! - [`AttachOptions`]: attaches another process; [`Reader`]: presents the frames; [`Engine`]: a reader that gives verdicts;
//! - [`frame_ring`]: the same for frames of memory, with one reader at a time.
//!
//! Below them, one file each: `layout` (offsets), `mapping` and `pages` (memory), `arena` (blocks), `control` (what
//! writer and reader exchange), `index` (its rings), `slots` (holders of blocks), `frames` (frames that a reader
//! presents), `address`, `socket_file`, `credentials` and `handshake` (attaching).
//!
//! Nothing here reads a clock, starts a thread or prints.
//!
//! # Design
//!
//! - **The writer's state is private.** Only the writer knows the holders of each block (`slots`, pure, tested against
//!   a model that keeps every frame). Of the memory that a reader can write the writer reads three numbers, and checks
//!   each. So a reader may die at any instruction or write anything anywhere: its blocks are reclaimed, others are not
//!   affected. A reader in turn copies each number out once and checks it.
//! - **A free list, not a circle.** A block held for a second must not stop the others; eight free blocks are used in
//!   turn. The last block freed would be in the cache of its reader, which has to give up every line again; the oldest
//!   is in no cache any more (a ring of 4 MiB costs 8 ns per frame of 60 bytes, one of 64 MiB used as a circle 12).
//! - **Two rings of numbers for each reader**, each with one writer and one reader, counts stored last; tested under
//!   loom in every order, as is going to sleep. No queue is shared: a crashed peer leaves nothing half done that others
//!   need.
//! - **Only lossless readers can block the writer.** Each lossy reader has a quota, and all of them together hold at
//!   most half of the blocks, so that many stopped readers do no more harm than one. The owner permits lossless readers
//!   (`--lossless-readers`), which may block the writer for a second by default: after that the reader is evicted, and
//!   never made lossy without an error.
//! - **Eviction keeps frames intact.** The first block that an evicted reader has not returned is left untouched until
//!   it closes its socket; a fence on both sides determines which block that is. The number of lossless readers is
//!   limited by the blocks that can be left untouched besides the half for lossy readers and one to continue with.
//! - **Any process may connect.** A step of the acceptor ([`Acceptor`]) handles a bounded number of clients, checks
//!   credentials before anything else, and limits the connections of each user; the end of a run waits for no reader.
//! - **Frames are visible before their block is full**: a commit raises one number. The horizon is a word of the arena,
//!   stored after the frames before it; in the block it could be read ahead of the frames, and a reader that is skipped
//!   could not see it.
//! - **Sealed memory.** Only the writer can ever map the arena for writing, even against root, and no process can
//!   truncate it, which would be SIGBUS. Another user's ring must be fully present, in ordinary pages, and sealed
//!   against holes, and at most 256 MiB of it are populated.
//! - **The acceptor is separate from the writer**: memory and messages are slow, and happen in another thread. Admitted
//!   readers are ready to use. Every socket there has a deadline; descriptors that clients send are never received.
//! - **Waking** is one byte on the socket, sent without blocking, and only to a reader that is marked as sleeping. The
//!   end of the socket is the sign of death; the heartbeat in the arena is for observers.
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
    acceptor::{Acceptor, Client, ReaderIdentity},
    answers::{Answer, AnswerError, AnswerKind, Answers, Inject},
    arena::Options,
    attach::{AttachOptions, PendingAttach},
    credentials::Access,
    engine::{Engine, Ticket, UndecidedFrame, Verdict, VerdictReply},
    error::Error,
    reader::{End, Reader},
    slots::Tally,
    socket_file::{SocketFile, SocketFileError},
    verdicts::{SETTLED, UNDECIDED},
    writer::{Departure, EngineState, ReaderReport, Writer},
};

/// Atomics of `index` and `verdicts`; under loom its own replace them.
mod atomics {
    pub(crate) use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
}
