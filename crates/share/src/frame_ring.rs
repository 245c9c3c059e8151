//! Frames of memory, filled from received streams, shared with another process: one writer, one reader at a time.
//! `docs/frame-ring.md` specifies the format, and what either side may rely on.
//!
//! - [`Options`]: number of frames, and their memory; [`FrameMetadata`]: metadata of a frame;
//! - [`Writer`]: hands frames over, and gets them back; readers connect to [`Acceptor`](crate::Acceptor);
//! - [`Reader`]: the other process's side; a [`TakenFrame`] frame is returned when it is dropped.
//!
//! # Design
//! - **No copy.** The pieces of memory that [`Writer::create`] returns are both the receive buffers and the reader's
//!   mapping.
//! - **The writer's state is private** (`slots`, pure): it records the holder of each frame. Of the control memory,
//!   which a reader can write, the writer reads two things, the number of returned frames and their indices, and checks
//!   both. A reader that returns a frame that it does not hold is evicted.
//! - **A reader loses nothing**: frames that it held when it detached, died or was evicted are offered to the next
//!   reader, in the same order, and are marked as such.
//! - **No waiting**: a frame that a reader keeps is one less to receive into.

mod arena;
mod layout;
mod metadata;
mod reader;
mod slots;
mod writer;

pub use self::arena::Options;
pub use self::metadata::{Ending, FrameMetadata};
pub use self::reader::{End, Reader, TakenFrame};
pub use self::writer::{Writer, WriterCounts};
