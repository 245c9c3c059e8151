//! Frames of memory, as received streams fill them, for another process: one writer, one reader at a time. The format, and what
//! either side may rely on, is told in `docs/frame-ring.md`.
//!
//! - [`Options`]: how many frames there are, and of what memory; [`About`]: what is known of one;
//! - [`Writer`]: hands frames over, and sees them come back; readers come in by [`Acceptor`](crate::Acceptor);
//! - [`Reader`]: what the other process sees; a [`Taken`] frame goes back when it is dropped.
//!
//! # What it stands on
//! - **No copy.** The pieces of memory that [`Writer::create`] returns are where received bytes are placed, and what the reader maps.
//! - **The truth is private** (`slots`, pure): who has which frame. Of what a reader can write, its own control memory, the writer reads
//!   two things, how many frames it gave back and which, and checks both. A reader that gives back what it does not have is put out.
//! - **Nothing is lost by a reader**: what it had and did not give back when it left, died or was put out is offered to the next one,
//!   in the same order, and says so.
//! - **Nobody is waited for here**: a frame that a reader keeps is one less to receive into.

mod about;
mod arena;
mod layout;
mod reader;
mod slots;
mod writer;

pub use self::about::{About, Ending};
pub use self::arena::Options;
pub use self::reader::{End, Reader, Taken};
pub use self::writer::{Counts, Writer};
