//! The arena: all blocks, and what is known about the ring as a whole, in one memory.
//!
//! The writer makes it, has every page there before the first frame, and seals it so that nobody else can ever write
//! to it. Readers get a descriptor for reading alone.

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

/// How large a ring is, and of what memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of blocks, 4 to 65,536.
    pub slots: u32,
    /// Bytes of each: a power of two, 512 KiB to 64 MiB.
    pub slot_bytes: usize,
    /// Use huge pages where there are any.
    pub huge: bool,
    /// The NUMA node that the memory is to lie on.
    pub node: Option<u32>,
    /// Lock the memory, so that it is never paged out.
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
            Error::Invalid(format!("blocks of {slot_bytes} bytes: it is a power of two, 512 KiB to 64 MiB"))
        })?;
        if !(LEAST_SLOTS..=MOST_SLOTS).contains(&slots) {
            return Err(Error::Invalid(format!("{slots} blocks: a ring has {LEAST_SLOTS} to {MOST_SLOTS}")));
        }
        Ok(Shape { slots, layout })
    }
}

/// Whose memory a ring is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// Root's, or that of the user who reads.
    Trusted,
    /// Another user's.
    Another,
}

/// Of another user's ring, so much is mapped at once before it is read; more comes page by page.
const MOST_POPULATED: usize = 256 << 20;

/// An arena, mapped by its writer or by a reader.
#[derive(Debug)]
pub(crate) struct Arena {
    mapping: Arc<Mapping>,
    shape: Shape,
    generation: u64,
}

/// What the writer makes.
pub(crate) struct Created {
    pub arena: Arena,
    pub blocks: Vec<Block>,
    /// For readers.
    pub fd: OwnedFd,
    /// What was chosen and why, a line each, for people.
    pub notes: Vec<String>,
}

impl Arena {
    /// Makes an arena, its blocks empty.
    pub(crate) fn create(options: &Options, now: Nanos) -> Result<Created, Error> {
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
        Ok(Created { arena: Arena { mapping, shape, generation }, blocks, fd, notes })
    }

    /// Maps what a writer handed over. Nothing in it is believed but what fits together. That all of another user's is there
    /// is to be checked before ([`pages::check_whole`]).
    pub(crate) fn open(fd: BorrowedFd<'_>, owner: Owner) -> Result<Arena, String> {
        let wrong = |error: rustix::io::Errno| format!("its memory cannot be used: {error}");
        let size = fstat(fd).map_err(wrong)?.st_size;
        let bytes = usize::try_from(size).ok().filter(|bytes| *bytes >= 2 * HUGE && bytes.is_multiple_of(HUGE));
        let bytes = bytes.ok_or("its memory has a size that no ring has")?;
        if !fcntl_get_seals(fd).map_err(wrong)?.contains(SealFlags::SHRINK) {
            return Err("its memory may be cut while it is read".into());
        }
        let mapping =
            Mapping::new(fd, bytes, false).map_err(|error| format!("its memory cannot be mapped: {error}"))?;
        let word = |at| mapping.load_word(at, Relaxed);
        let long = |at| mapping.load_long(at, Relaxed);
        if (long(offset_of!(layout::Arena, magic)), word(offset_of!(layout::Arena, byte_order))) != (MAGIC, BYTE_ORDER)
        {
            return Err("its memory does not begin as a ring does".into());
        }
        let major = word(offset_of!(layout::Arena, major));
        if major != MAJOR {
            return Err(format!("its memory has version {major} of the format, and this program knows {MAJOR}"));
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
        let shape = Layout::told(slot_bytes, frames, body).map(|layout| Shape { slots, layout });
        let Some(shape) = shape.filter(|shape| said == own && shape.bytes() == bytes) else {
            return Err("its memory is laid out in another way than version 1 says".into());
        };
        let generation = long(offset_of!(layout::Arena, generation));
        // A page that is not mapped yet costs time when it is first read, and nothing else. How much of another user's memory
        // is brought in at once is not for that user to say.
        if owner == Owner::Trusted || bytes <= MOST_POPULATED {
            let _ = mapping.populate();
        }
        Ok(Arena { mapping: Arc::new(mapping), shape, generation })
    }

    /// The memory.
    pub(crate) fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// How large its parts are.
    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    /// A number that no other arena has.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The writer's process.
    pub(crate) fn writer(&self) -> u32 {
        self.mapping.load_word(offset_of!(layout::Arena, writer), Relaxed)
    }

    /// The time at which the writer was last seen, by its own clock.
    pub(crate) fn heartbeat(&self) -> Nanos {
        Nanos(self.mapping.load_long(offset_of!(layout::Arena, heartbeat), Relaxed))
    }

    /// Says that the writer lives.
    pub(crate) fn beat(&self, now: Nanos) {
        self.mapping.long(offset_of!(layout::Arena, heartbeat)).store(now.0, Relaxed);
    }

    /// How far the stream is complete. To be loaded before one looks for frames: those are there that it speaks of.
    #[inline]
    pub(crate) fn horizon(&self) -> Nanos {
        Nanos(self.mapping.load_long(offset_of!(layout::Arena, horizon), Acquire))
    }

    /// Says how far the stream is complete, after what it speaks of was committed.
    pub(crate) fn set_horizon(&self, horizon: Nanos) {
        self.mapping.long(offset_of!(layout::Arena, horizon)).store(horizon.0, Release);
    }

    /// Frames lost on the way to the ring since it began.
    pub(crate) fn drops(&self) -> u64 {
        self.mapping.load_long(offset_of!(layout::Arena, drops), Relaxed)
    }

    /// Says how many frames were lost on the way to the ring.
    pub(crate) fn set_drops(&self, drops: u64) {
        self.mapping.long(offset_of!(layout::Arena, drops)).store(drops, Relaxed);
    }

    /// Whether the writer has ended in order. To be loaded before one looks for the last frames.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.mapping.load_word(offset_of!(layout::Arena, state), Acquire) == state::ENDED
    }

    /// Says that the writer has ended in order.
    pub(crate) fn end(&self) {
        self.mapping.word(offset_of!(layout::Arena, state)).store(state::ENDED, Release);
    }

    /// Appends interfaces behind the first `known`, which are there already.
    pub(crate) fn add_interfaces(&self, known: usize, all: &[Interface]) {
        for (index, interface) in all.iter().enumerate().skip(known) {
            interfaces::write(&self.mapping, index as u32, interface);
        }
        self.mapping.word(offset_of!(layout::Arena, interfaces)).store(all.len() as u32, Release);
    }

    /// Reads the interfaces behind those that are known.
    pub(crate) fn read_interfaces(&self, known: &mut Vec<Interface>) {
        let count = self.mapping.load_word(offset_of!(layout::Arena, interfaces), Acquire).min(INTERFACES);
        for index in known.len() as u32..count {
            known.push(interfaces::read(&self.mapping, index));
        }
    }

    /// Of a block: whether no more frames will come, then how many there are. If the first is true the second is final.
    #[inline]
    pub(crate) fn progress(&self, slot: u32) -> (bool, u32) {
        let base = self.shape.slot(slot);
        let closed = self.mapping.load_word(base + offset_of!(Header, closed), Acquire) != 0;
        (closed, self.mapping.load_word(base + offset_of!(Header, committed), Acquire))
    }
}
