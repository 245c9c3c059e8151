//! The arena: all blocks, and the state of the ring as a whole, in one memory.
//!
//! The writer allocates it, populates every page before the first frame, and seals it so that no other process can ever
//! write to it. Readers get a read-only descriptor.

use crate::error::Error;
use crate::interfaces;
use crate::layout::{self, ANY_NODE, BYTE_ORDER, HUGE, INTERFACES, InterfaceEntry, MAGIC, MAJOR, MINOR, PAGE, Shape};
use crate::layout::{LEAST_SLOTS, MOST_SLOT_BYTES, MOST_SLOTS, state};
use crate::mapping::Mapping;
use crate::pages::{self, Pages};
use linerate_burst::slot::Header;
use linerate_burst::{Block, Interface, Layout, Nanos};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::mem::offset_of;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Size and memory of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of blocks, 4 to 65,536.
    pub slots: u32,
    /// Bytes per block: a power of two, 512 KiB to 64 MiB.
    pub slot_bytes: usize,
    /// Use huge pages if available.
    pub huge: bool,
    /// NUMA node of the memory.
    pub node: Option<u32>,
    /// Lock the memory, so that it is never swapped out.
    pub lock: bool,
}

impl Default for Options {
    /// 64 blocks of 1 MiB.
    fn default() -> Self {
        Options { slots: 64, slot_bytes: 1 << 20, huge: true, node: None, lock: false }
    }
}

impl Options {
    /// Checks the limits.
    pub(crate) fn shape(&self) -> Result<Shape, Error> {
        let Options { slots, slot_bytes, .. } = *self;
        let layout = Layout::slot(slot_bytes).filter(|_| slot_bytes.is_power_of_two() && slot_bytes <= MOST_SLOT_BYTES);
        let layout = layout.ok_or_else(|| {
            Error::Invalid(format!("invalid block size {slot_bytes}; expected a power of two, 512 KiB to 64 MiB"))
        })?;
        if !(LEAST_SLOTS..=MOST_SLOTS).contains(&slots) {
            return Err(Error::Invalid(format!(
                "invalid number of blocks {slots}; expected {LEAST_SLOTS} to {MOST_SLOTS}"
            )));
        }
        Ok(Shape { slots, layout })
    }
}

/// Owner of the memory of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Root, or the user who reads.
    Trusted,
    /// Another user.
    Another,
}

/// Maximum size of another user's ring that is populated at once; larger ones are mapped page by page.
const MOST_POPULATED: usize = 256 << 20;

/// An arena, mapped by its writer or by a reader.
#[derive(Debug)]
pub(crate) struct Arena {
    mapping: Arc<Mapping>,
    shape: Shape,
    generation: u64,
}

/// A new arena, for the writer.
pub(crate) struct NewArena {
    pub arena: Arena,
    pub blocks: Vec<Block>,
    /// For readers.
    pub fd: OwnedFd,
    /// Choices of memory and their reasons, one line each, for users.
    pub notes: Vec<String>,
}

impl Arena {
    /// Creates an arena with empty blocks.
    pub(crate) fn create(options: &Options, now: Nanos) -> Result<NewArena, Error> {
        let shape = options.shape()?;
        let Pages { mapping, fd, page, notes } = pages::make(options, shape.bytes())?;
        let generation = RandomState::new().build_hasher().finish();
        let word = |at, value: u32| mapping.word(at).store(value, Relaxed);
        let long = |at, value: u64| mapping.long(at).store(value, Relaxed);
        long(offset_of!(layout::Arena, magic), MAGIC);
        word(offset_of!(layout::Arena, byte_order), BYTE_ORDER);
        word(offset_of!(layout::Arena, major), MAJOR);
        word(offset_of!(layout::Arena, minor), MINOR);
        word(offset_of!(layout::Arena, header_bytes), PAGE as u32);
        word(offset_of!(layout::Arena, interface_offset), layout::interface(0) as u32);
        word(offset_of!(layout::Arena, interface_bytes), size_of::<InterfaceEntry>() as u32);
        word(offset_of!(layout::Arena, interface_room), INTERFACES);
        word(offset_of!(layout::Arena, slots), shape.slots);
        long(offset_of!(layout::Arena, slots_offset), Shape::SLOTS as u64);
        long(offset_of!(layout::Arena, slot_bytes), shape.layout.bytes() as u64);
        long(offset_of!(layout::Arena, arena_bytes), shape.bytes() as u64);
        word(offset_of!(layout::Arena, frames), shape.layout.frames() as u32);
        word(offset_of!(layout::Arena, body), shape.layout.body() as u32);
        word(offset_of!(layout::Arena, page_bytes), page as u32);
        word(offset_of!(layout::Arena, node), options.node.unwrap_or(ANY_NODE));
        long(offset_of!(layout::Arena, generation), generation);
        long(offset_of!(layout::Arena, start), now.0);
        word(offset_of!(layout::Arena, writer), std::process::id());
        long(offset_of!(layout::Arena, heartbeat), now.0);
        word(offset_of!(layout::Arena, state), state::RUNNING);
        let (mapping, blocks) = mapping.into_blocks(Shape::SLOTS, shape.slots as usize, shape.layout);
        Ok(NewArena { arena: Arena { mapping, shape, generation }, blocks, fd, notes })
    }

    /// Maps the memory received from a writer. Every number in it is checked for consistency. For another user's
    /// memory, check first that all of it is present ([`pages::check_whole`]).
    pub(crate) fn open(fd: BorrowedFd<'_>, owner: Owner) -> Result<Arena, String> {
        let wrong = |error: rustix::io::Errno| format!("its memory is not usable: {error}");
        let size = fstat(fd).map_err(wrong)?.st_size;
        let bytes = usize::try_from(size).ok().filter(|bytes| *bytes >= 2 * HUGE && bytes.is_multiple_of(HUGE));
        let bytes = bytes.ok_or("its memory has an invalid size")?;
        if !fcntl_get_seals(fd).map_err(wrong)?.contains(SealFlags::SHRINK) {
            return Err("its memory may be truncated while it is read".into());
        }
        let mapping = Mapping::new(fd, bytes, false).map_err(|error| format!("mapping its memory failed: {error}"))?;
        let word = |at| mapping.load_word(at, Relaxed);
        let long = |at| mapping.load_long(at, Relaxed);
        if (long(offset_of!(layout::Arena, magic)), word(offset_of!(layout::Arena, byte_order))) != (MAGIC, BYTE_ORDER)
        {
            return Err("its memory has no ring header".into());
        }
        let major = word(offset_of!(layout::Arena, major));
        if major != MAJOR {
            return Err(format!("its memory has format version {major}; this program supports {MAJOR}"));
        }
        let slot_bytes = long(offset_of!(layout::Arena, slot_bytes)) as usize;
        let options = Options { slots: word(offset_of!(layout::Arena, slots)), slot_bytes, ..Options::default() };
        let Shape { slots, .. } = options.shape().map_err(|error| error.to_string())?;
        let frames = word(offset_of!(layout::Arena, frames)) as usize;
        let body = word(offset_of!(layout::Arena, body)) as usize;
        let said = (
            long(offset_of!(layout::Arena, slots_offset)) as usize,
            word(offset_of!(layout::Arena, interface_offset)) as usize,
            word(offset_of!(layout::Arena, interface_bytes)) as usize,
        );
        let own = (Shape::SLOTS, layout::interface(0), size_of::<InterfaceEntry>());
        let shape = Layout::declared(slot_bytes, frames, body).map(|layout| Shape { slots, layout });
        let Some(shape) = shape.filter(|shape| said == own && shape.bytes() == bytes) else {
            return Err("its memory does not have the layout of version 1".into());
        };
        let generation = long(offset_of!(layout::Arena, generation));
        // Pages that are not populated only cost time at their first access. The amount of another user's memory that
        // is populated at once must not be that user's choice.
        if owner == Owner::Trusted || bytes <= MOST_POPULATED {
            let _ = mapping.populate();
        }
        Ok(Arena { mapping: Arc::new(mapping), shape, generation })
    }

    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns a number that is unique to this arena.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the writer's process.
    pub(crate) fn writer(&self) -> u32 {
        self.mapping.load_word(offset_of!(layout::Arena, writer), Relaxed)
    }

    /// Returns the time at which the writer was last active, by its own clock.
    pub(crate) fn heartbeat(&self) -> Nanos {
        Nanos(self.mapping.load_long(offset_of!(layout::Arena, heartbeat), Relaxed))
    }

    /// Records that the writer is alive.
    pub(crate) fn update_heartbeat(&self, now: Nanos) {
        self.mapping.long(offset_of!(layout::Arena, heartbeat)).store(now.0, Relaxed);
    }

    /// Returns the horizon of the stream. Load it before looking for frames: then all frames before it are found.
    #[inline]
    pub(crate) fn horizon(&self) -> Nanos {
        Nanos(self.mapping.load_long(offset_of!(layout::Arena, horizon), Acquire))
    }

    /// Sets the horizon, after the frames before it were committed.
    pub(crate) fn set_horizon(&self, horizon: Nanos) {
        self.mapping.long(offset_of!(layout::Arena, horizon)).store(horizon.0, Release);
    }

    /// Returns the number of frames lost upstream of the ring since it was created.
    pub(crate) fn drops(&self) -> u64 {
        self.mapping.load_long(offset_of!(layout::Arena, drops), Relaxed)
    }

    /// Sets the number of frames lost upstream of the ring.
    pub(crate) fn set_drops(&self, drops: u64) {
        self.mapping.long(offset_of!(layout::Arena, drops)).store(drops, Relaxed);
    }

    /// Returns whether the writer has ended normally. Load it before looking for the last frames.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.mapping.load_word(offset_of!(layout::Arena, state), Acquire) == state::ENDED
    }

    /// Records that the writer has ended normally.
    pub(crate) fn end(&self) {
        self.mapping.word(offset_of!(layout::Arena, state)).store(state::ENDED, Release);
    }

    /// Appends interfaces after the first `known`, which are already present.
    pub(crate) fn add_interfaces(&self, known: usize, all: &[Interface]) {
        for (index, interface) in all.iter().enumerate().skip(known) {
            interfaces::write(&self.mapping, index as u32, interface);
        }
        self.mapping.word(offset_of!(layout::Arena, interfaces)).store(all.len() as u32, Release);
    }

    /// Reads the interfaces after those already known.
    pub(crate) fn read_interfaces(&self, known: &mut Vec<Interface>) {
        let count = self.mapping.load_word(offset_of!(layout::Arena, interfaces), Acquire).min(INTERFACES);
        for index in known.len() as u32..count {
            known.push(interfaces::read(&self.mapping, index));
        }
    }

    /// Returns whether a block is closed, then its number of frames. If the first is true the second is final.
    #[inline]
    pub(crate) fn progress(&self, slot: u32) -> (bool, u32) {
        let base = self.shape.slot(slot);
        let closed = self.mapping.load_word(base + offset_of!(Header, closed), Acquire) != 0;
        (closed, self.mapping.load_word(base + offset_of!(Header, committed), Acquire))
    }
}
