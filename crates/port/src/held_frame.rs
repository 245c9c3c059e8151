//! Frames that are held, changed, and sent in place.
//!
//! A queue releases its frames in order (`consume`), copied or not. A consumer that needs single frames for longer,
//! changes them, or sends them on without a copy takes them out of that order: a held frame has one owner until it is
//! released or submitted.
//!
//! ```text
//!  RxQueue ── fill ──> frames shown ── consume ─────────────────────────────> given back
//!                          └── hold ──> held ── release ───────────────────────^ ^
//!                                        └── submit ──> TxQueue ── completed ────┘
//! ```
//!
//! `mem` and `xdp` support this. `packet` does not: it releases memory to the kernel in blocks of hundreds of frames,
//! and the kernel copies what is sent from there anyway, so a consumer that needs single frames copies them at once.
//! Neither do rings of shared memory (`shm`): other readers map the same bytes, which are read-only.
//!
//! A frame whose payload lies in device memory is shown as a truncated one: `captured` bytes, the headers, lie on the
//! host, and `wire` is its full length. Code that knows the [`Region`]'s type finds the payload by the frame's number.
//! So filters, meters and the merge need not know about devices.

use crate::contract::PortError;
use linerate_burst::Desc;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// A memory region that contains frames: one mapping, on the host or on a device. It belongs to a port, not to a queue:
/// offsets in the descs of all its queues count within it. Its type is known only to the backends that use it.
#[derive(Clone)]
pub struct Region(Arc<dyn Any + Send + Sync>);

impl Region {
    /// Creates a region of this memory.
    pub fn new(memory: Arc<dyn Any + Send + Sync>) -> Self {
        Region(memory)
    }

    /// Returns the memory if it is of type `T`.
    pub fn memory<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(&self.0).downcast().ok()
    }
}

impl PartialEq for Region {
    /// Returns whether both are the same memory.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Region {}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:p})", Arc::as_ptr(&self.0))
    }
}

/// A frame taken out of its queue's order. It cannot be copied and must be returned to its queue.
#[derive(Debug)]
#[must_use = "a held frame keeps its memory until it is given back"]
pub struct HeldFrame {
    /// Position in its region, length and time stamp.
    pub desc: Desc,
    /// Index of the queue that it is from, for consumers of several queues.
    pub lane: u32,
    number: u64,
    token: Option<Box<dyn Any + Send>>,
}

impl HeldFrame {
    /// Creates a frame that its queue identifies by a number; for backends.
    pub fn new(desc: Desc, number: u64) -> Self {
        HeldFrame { desc, lane: 0, number, token: None }
    }

    /// Creates a frame that owns its memory; for backends.
    pub fn owning(desc: Desc, token: Box<dyn Any + Send>) -> Self {
        HeldFrame { desc, lane: 0, number: 0, token: Some(token) }
    }

    /// Moves the frame to another position and number; for backends.
    pub fn move_to(&mut self, desc: Desc, number: u64) {
        (self.desc, self.number) = (desc, number);
    }

    /// Returns the number by which its queue identifies it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns a reference to the owned memory, if it is of type `T`.
    pub fn token<T: Any>(&mut self) -> Option<&mut T> {
        self.token.as_mut()?.downcast_mut()
    }

    /// Returns the owned memory, if it is of type `T`.
    pub fn into_token<T: Any>(self) -> Option<T> {
        Some(*self.token?.downcast().ok()?)
    }
}

/// Space around a frame into which it can grow in place, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Space before it.
    pub head: u32,
    /// Space after it.
    pub tail: u32,
}

/// A receiving queue whose frames can be held.
pub trait HoldQueue {
    /// Returns the region that contains its frames.
    fn region(&self) -> Region;

    /// Returns the number of further frames that can be held now. It is bounded because held frames keep others from
    /// arriving.
    fn spare(&self) -> usize;

    /// Returns the space around every frame.
    fn room(&self) -> Room;

    /// Consumes the first `frames` of those that the last `fill` returned, except those at `indices` (ascending), which
    /// are held. Stops before the first that cannot be held. Returns the number consumed or held: the rest remains
    /// available.
    ///
    /// # Panics
    /// If `fill` returned fewer, or an index is not below `frames`.
    fn hold(&mut self, frames: usize, indices: &[u32], held: &mut Vec<HeldFrame>) -> usize;

    /// Announces that a frame will be held for longer than it takes to send it. In a ring, one frame that stays blocks
    /// all later ones: such a queue moves it to other memory. Returns false, without a move, if space is
    /// missing.
    fn keep(&mut self, held: &mut HeldFrame) -> bool;

    /// Releases held frames in any order and empties the list. A frame of another queue is skipped.
    fn release(&mut self, held: &mut Vec<HeldFrame>);

    /// Returns the bytes of a held frame for modification; empty if it is of another queue.
    fn bytes_mut<'a>(&'a mut self, held: &'a mut HeldFrame) -> &'a mut [u8];

    /// Moves the start and end of a held frame outward by that many bytes (negative: inward), within its room. Returns
    /// false and changes nothing if the room is too small.
    fn resize(&mut self, held: &mut HeldFrame, head: i32, tail: i32) -> bool;
}

/// A sending queue that sends frames in place.
pub trait SubmitQueue {
    /// Prepares to send from a region; returns false if it cannot. Needs the privileges that opening needed.
    fn attach(&mut self, region: &Region) -> bool;

    /// Takes frames of an attached region from the front of the list, in order, and returns their number; fewer if the
    /// queue is full for now. A frame that cannot be sent is dropped with a reason and completed like the others. They
    /// leave with the next `flush`.
    fn submit(&mut self, frames: &mut VecDeque<HeldFrame>) -> Result<usize, PortError>;

    /// Returns submitted frames whose memory is not needed any more, to be released to their queues.
    fn completed(&mut self, done: &mut Vec<HeldFrame>);
}
