//! Where everything lies in shared memory and in the messages of the handshake: the format of `docs/block-ring.md`.
//!
//! The structs are never read as a whole: they name the offsets at which numbers lie, each of them read and written
//! by itself. All numbers are in the byte order of the machine.

use linerate_burst::Layout;

/// What an arena begins with.
pub(crate) const MAGIC: u64 = u64::from_ne_bytes(*b"LINERATE");
/// Reads as another number on a machine of another byte order.
pub(crate) const BYTE_ORDER: u32 = 0x0102_0304;
/// Version of the format: a reader of another major version cannot read it, a minor one only adds.
pub(crate) const MAJOR: u32 = 1;
/// See [`MAJOR`].
pub(crate) const MINOR: u32 = 1;

/// Most readers at a time.
pub(crate) const READERS: u32 = 64;
/// Fewest blocks: one being filled, and some for readers.
pub(crate) const LEAST_SLOTS: u32 = 4;
/// Most blocks.
pub(crate) const MOST_SLOTS: u32 = 1 << 16;
/// Most bytes of a block.
pub(crate) const MOST_SLOT_BYTES: usize = 64 << 20;
/// Most interfaces.
pub(crate) const INTERFACES: u32 = 1024;
/// In [`Arena::node`]: no node was asked for.
pub(crate) const ANY_NODE: u32 = u32::MAX;

/// Bytes in front of the verdicts on a block, and what their number is a multiple of.
pub(crate) const VERDICTS_LINE: usize = 64;
/// Answers that may be under way: a power of two.
pub(crate) const ANSWERS: u32 = 256;
/// Bytes of an answer: a line, then a frame of at most [`ANSWER_FRAME`].
pub(crate) const ANSWER_BYTES: usize = VERDICTS_LINE + ANSWER_FRAME;
/// Most bytes of a frame that a reader hands back.
pub(crate) const ANSWER_FRAME: usize = 16 << 10;
/// Most bytes of the control memory of a reader that decides.
pub(crate) const MOST_DECIDING: usize = 256 << 20;

/// Huge pages are this large, and blocks begin at a multiple of it.
pub(crate) const HUGE: usize = 2 << 20;
/// Ordinary pages.
pub(crate) const PAGE: usize = 4096;

/// The first page of an arena.
#[repr(C)]
pub(crate) struct Arena {
    pub magic: u64,
    pub byte_order: u32,
    pub major: u32,
    pub minor: u32,
    pub header_bytes: u32,
    pub interface_offset: u32,
    pub interface_bytes: u32,
    pub interface_room: u32,
    pub slots: u32,
    pub slots_offset: u64,
    pub slot_bytes: u64,
    pub arena_bytes: u64,
    pub frames: u32,
    pub body: u32,
    pub page_bytes: u32,
    pub node: u32,
    pub generation: u64,
    pub start: u64,
    pub writer: u32,
    pub reserved: [u32; 39],

    /// From here on numbers change while the ring lives.
    pub heartbeat: u64,
    pub horizon: u64,
    pub drops: u64,
    pub state: u32,
    pub interfaces: u32,
}

/// Values of [`Arena::state`].
pub(crate) mod state {
    /// Frames may still come.
    pub(crate) const RUNNING: u32 = 1;
    /// The writer has ended in order.
    pub(crate) const ENDED: u32 = 2;
}

/// One entry of the table of interfaces.
#[repr(C)]
pub(crate) struct InterfaceEntry {
    pub link: u32,
    pub stamp: u32,
    pub snap: u32,
    pub name_bytes: u32,
    pub description_bytes: u32,
    pub reserved: [u32; 3],
    pub name: [u8; 96],
    pub description: [u8; 384],
}

/// The beginning of the control memory of one reader; the rings follow.
#[repr(C)]
pub(crate) struct Control {
    pub magic: u64,
    pub major: u32,
    pub reader: u32,
    pub generation: u64,
    pub capacity: u32,
    pub published_offset: u32,
    pub returned_offset: u32,
    /// Of a reader that decides (version 1.1): where verdicts and answers lie; 0 for any other.
    pub verdicts_offset: u32,
    pub verdict_bytes: u32,
    pub answers_offset: u32,
    pub answers: u32,
    pub answer_bytes: u32,
    pub reserved: [u32; 18],

    /// The writer's line.
    pub published: u64,
    pub skipped_frames: u64,
    pub skipped_slots: u64,
    pub mode: u32,
    pub status: u32,
    /// Answers that the writer has taken.
    pub answered: u64,
    pub writer_reserved: [u32; 22],

    /// The reader's line.
    pub returned: u64,
    /// Answers ever given.
    pub answering: u64,
    pub reader_reserved: [u32; 28],

    /// A line by itself, which both write.
    pub sleeping: u32,
    pub sleeping_reserved: [u32; 31],
}

/// Values of [`Control::mode`].
pub(crate) mod mode {
    /// The writer waits for this reader.
    pub(crate) const LOSSLESS: u32 = 1;
    /// The writer goes on without this reader.
    pub(crate) const LOSSY: u32 = 2;
}

/// Values of [`Control::status`]; 0 while nothing has happened.
pub(crate) mod status {
    /// The writer has taken everything back.
    pub(crate) const PUT_OUT: u32 = 1;
    /// Of frames of memory: no more will be published.
    pub(crate) const ENDED: u32 = 2;
}

const _: () = {
    use std::mem::offset_of;
    assert!(offset_of!(Arena, slots_offset) == 40 && offset_of!(Arena, generation) == 80);
    assert!(offset_of!(Arena, writer) == 96 && offset_of!(Arena, reserved) == 100);
    assert!(offset_of!(Arena, heartbeat) == 256 && offset_of!(Arena, interfaces) == 284);
    assert!(PAGE + INTERFACES as usize * size_of::<InterfaceEntry>() <= Shape::SLOTS);
    assert!(size_of::<InterfaceEntry>() == 512 && offset_of!(InterfaceEntry, name) == 32);
    assert!(offset_of!(InterfaceEntry, description) == 128);
    assert!(offset_of!(Control, published) == 128 && offset_of!(Control, status) == 156);
    assert!(offset_of!(Control, returned) == 256 && offset_of!(Control, sleeping) == 384);
    assert!(offset_of!(Control, verdicts_offset) == 36 && offset_of!(Control, answer_bytes) == 52);
    assert!(offset_of!(Control, answered) == 160 && offset_of!(Control, answering) == 264);
    assert!(size_of::<Control>() == 512);
};

/// How large the parts of an arena are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Number of blocks.
    pub slots: u32,
    /// Each of them.
    pub layout: Layout,
}

impl Shape {
    /// Where the blocks begin.
    pub(crate) const SLOTS: usize = HUGE;

    /// Bytes of the whole arena.
    pub(crate) fn bytes(&self) -> usize {
        (Shape::SLOTS + self.slots as usize * self.layout.bytes()).next_multiple_of(HUGE)
    }

    /// Where a block begins.
    pub(crate) fn slot(&self, slot: u32) -> usize {
        Shape::SLOTS + slot as usize * self.layout.bytes()
    }

    /// Bytes of the verdicts on one block: a line of counts, then a byte a frame.
    pub(crate) fn verdict_bytes(&self) -> usize {
        VERDICTS_LINE + self.layout.frames().next_multiple_of(VERDICTS_LINE)
    }

    /// Where the verdicts on a block begin in the control memory of a reader that decides.
    pub(crate) fn verdicts(&self, slot: u32) -> usize {
        Rings(self.slots).control_bytes() + slot as usize * self.verdict_bytes()
    }

    /// Where its answers begin.
    pub(crate) fn answers_offset(&self) -> usize {
        self.verdicts(self.slots).next_multiple_of(PAGE)
    }

    /// Bytes of the control memory of a reader that decides.
    pub(crate) fn deciding_bytes(&self) -> usize {
        (self.answers_offset() + ANSWERS as usize * ANSWER_BYTES).next_multiple_of(PAGE)
    }
}

/// The index rings of one reader, for so many blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rings(pub u32);

impl Rings {
    /// Entries of each index ring.
    pub(crate) fn capacity(&self) -> u32 {
        self.0.next_power_of_two()
    }

    /// Bytes of the control memory of one reader.
    pub(crate) fn control_bytes(&self) -> usize {
        (self.returned_offset() + self.capacity() as usize * 8).next_multiple_of(PAGE)
    }

    /// Where the entries of the ring of published blocks lie in the control memory.
    pub(crate) fn published_offset(&self) -> usize {
        size_of::<Control>()
    }

    /// Where the entries of the ring of returned blocks lie in the control memory.
    pub(crate) fn returned_offset(&self) -> usize {
        self.published_offset() + self.capacity() as usize * 8
    }
}

/// Where an entry of the table of interfaces begins.
pub(crate) fn interface(index: u32) -> usize {
    PAGE + index as usize * size_of::<InterfaceEntry>()
}
