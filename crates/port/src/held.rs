//! Frames that are held, changed, and sent on where they lie.
//!
//! A queue gives its frames back in order (`consume`), copied or not. Whoever needs single ones for longer, wants to change them, or
//! sends them on without a copy takes them out of that order: a held frame is owned, by one, until it is released or submitted.
//!
//! ```text
//!  RxQueue ── fill ──> frames shown ── consume ─────────────────────────────> given back
//!                          └── hold ──> Held ── release ───────────────────────^ ^
//!                                        └── submit ──> TxQueue ── completed ────┘
//! ```
//!
//! `mem` and `xdp` can do that. `packet` cannot: it gives memory back to the kernel by the block, of hundreds of frames, and the kernel
//! copies what is sent from there all the same, so whoever needs single frames copies those at once. Neither can rings of shared
//! memory (`shm`): others read the same bytes, which are mapped so that nobody changes them.
//!
//! A frame whose payload lies in the memory of a device is shown as one that was cut: `captured` bytes, the header part, lie on the
//! host, `wire` is how long it is. Whoever knows the [`Region`]'s type finds the rest by the frame's number. So filters, meters and
//! the merge need to know nothing of devices.

use crate::contract::PortError;
use linerate_burst::Desc;
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

/// A memory that frames lie in: one mapping, on the host or on a device. It belongs to a port, not to a queue: offsets in the descs
/// of all its queues count within it. What it is, only those backends know that have to do with it.
#[derive(Clone)]
pub struct Region(Arc<dyn Any + Send + Sync>);

impl Region {
    /// A region of this memory.
    pub fn new(memory: Arc<dyn Any + Send + Sync>) -> Self {
        Region(memory)
    }

    /// The memory, for whoever knows its type.
    pub fn memory<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        Arc::clone(&self.0).downcast().ok()
    }
}

impl PartialEq for Region {
    /// Whether both are the same memory.
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

/// A frame taken out of its queue's order. There is one of it, and it is to be given back to where it came from.
#[derive(Debug)]
#[must_use = "a held frame keeps its memory until it is given back"]
pub struct Held {
    /// Where it lies in its region, how long it is, when it was seen.
    pub desc: Desc,
    /// For whoever holds frames of several queues: which one this is from.
    pub lane: u32,
    number: u64,
    token: Option<Box<dyn Any + Send>>,
}

impl Held {
    /// A frame that its queue knows by a number; for backends.
    pub fn new(desc: Desc, number: u64) -> Self {
        Held { desc, lane: 0, number, token: None }
    }

    /// A frame that comes with the ownership of its memory; for backends.
    pub fn owning(desc: Desc, token: Box<dyn Any + Send>) -> Self {
        Held { desc, lane: 0, number: 0, token: Some(token) }
    }

    /// It lies elsewhere now, under another number; for backends.
    pub fn move_to(&mut self, desc: Desc, number: u64) {
        (self.desc, self.number) = (desc, number);
    }

    /// By which its queue knows it.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// What it owns, where that is of this type.
    pub fn token<T: Any>(&mut self) -> Option<&mut T> {
        self.token.as_mut()?.downcast_mut()
    }

    /// What it owned, where that is of this type.
    pub fn into_token<T: Any>(self) -> Option<T> {
        Some(*self.token?.downcast().ok()?)
    }
}

/// How much a frame can grow where it lies, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// In front of it.
    pub head: u32,
    /// Behind it.
    pub tail: u32,
}

/// A receiving queue whose frames can be held.
pub trait Holding {
    /// Where its frames lie.
    fn region(&self) -> Region;

    /// How many more frames it can spare now. Those held keep others from coming in, so there is a bound.
    fn spare(&self) -> usize;

    /// What every frame has around it.
    fn room(&self) -> Room;

    /// Consumes the first `frames` of what the last `fill` showed, but for those at `indices` (ascending): they are held. Stops before
    /// the first that cannot be spared. Returns how many were consumed or held: those behind are still shown.
    ///
    /// # Panics
    /// If that many were not shown, or an index is not below `frames`.
    fn hold(&mut self, frames: usize, indices: &[u32], held: &mut Vec<Held>) -> usize;

    /// Says that a frame will be held for longer than it takes to send it on. Where memory is used in turn, one frame that stays holds
    /// up all that come: such a queue moves it aside. False where there is no room for that: it stays where it is.
    fn keep(&mut self, held: &mut Held) -> bool;

    /// Gives held frames back, in any order; the list is empty then. One that is none of this queue's is passed over.
    fn release(&mut self, held: &mut Vec<Held>);

    /// The bytes of a held frame, to be changed. Empty where it is none of this queue's.
    fn bytes_mut<'a>(&'a mut self, held: &'a mut Held) -> &'a mut [u8];

    /// Moves beginning and end of a held frame outward by so many bytes (negative: inward), within its room; false, and nothing is
    /// changed, if there is not so much.
    fn resize(&mut self, held: &mut Held, head: i32, tail: i32) -> bool;
}

/// A sending queue that sends frames from where they lie.
pub trait Submitting {
    /// Gets ready to send from a region; false where it can not. Needs the privileges that opening needed.
    fn attach(&mut self, region: &Region) -> bool;

    /// Takes frames of an attached region from the front of the list, in order, and returns how many; fewer where the queue is full
    /// for now. A frame that cannot be sent is dropped with a reason, and completed as others are. They leave with the next `flush`.
    fn submit(&mut self, frames: &mut VecDeque<Held>) -> Result<usize, PortError>;

    /// Frames that were submitted and need their memory no more, to be released to where they came from.
    fn completed(&mut self, done: &mut Vec<Held>);
}
