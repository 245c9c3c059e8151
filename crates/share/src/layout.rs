//! Layout of shared memory and of the handshake's messages: the format of `docs/block-ring.md`.
//!
//! The structs are never read as a whole: they define the offsets of fields, each of which is read and written
//! separately. All numbers are in the byte order of the machine.

use linerate_burst::Layout;

/// Magic number of an arena.
pub(crate) const MAGIC: u64 = u64::from_ne_bytes(*b"LINERATE");
/// Detects a machine of another byte order.
pub(crate) const BYTE_ORDER: u32 = 0x0102_0304;
/// Version of the format: readers of another major version cannot read it, minor versions only add fields.
pub(crate) const MAJOR: u32 = 1;
/// Minor version, see [`MAJOR`].
pub(crate) const MINOR: u32 = 1;

/// Maximum number of readers at a time.
pub(crate) const READERS: u32 = 64;
/// Minimum number of blocks: one being filled, and some for readers.
pub(crate) const LEAST_SLOTS: u32 = 4;
/// Maximum number of blocks.
pub(crate) const MOST_SLOTS: u32 = 1 << 16;
/// Maximum bytes per block.
pub(crate) const MOST_SLOT_BYTES: usize = 64 << 20;
/// Maximum number of interfaces.
pub(crate) const INTERFACES: u32 = 1024;
/// Value of [`Arena::node`] if no node was requested.
pub(crate) const ANY_NODE: u32 = u32::MAX;

/// Bytes of the counts before the verdicts on a block; also the alignment of the verdicts.
pub(crate) const VERDICTS_LINE: usize = 64;
/// Maximum number of outstanding answers: a power of two.
pub(crate) const ANSWERS: u32 = 256;
/// Bytes of an answer: a line, then a frame of at most [`ANSWER_FRAME`].
pub(crate) const ANSWER_BYTES: usize = VERDICTS_LINE + ANSWER_FRAME;
/// Maximum bytes of a frame in an answer.
pub(crate) const ANSWER_FRAME: usize = 16 << 10;
/// Maximum bytes of the control memory of an engine.
pub(crate) const MOST_DECIDING: usize = 256 << 20;

/// Size of huge pages, and alignment of blocks.
pub(crate) const HUGE: usize = 2 << 20;
/// Size of ordinary pages.
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

    /// Fields from here on change while the ring exists.
    pub heartbeat: u64,
    pub horizon: u64,
    pub drops: u64,
    pub state: u32,
    pub interfaces: u32,
}

/// Values of [`Arena::state`].
pub(crate) mod state {
    /// More frames may follow.
    pub(crate) const RUNNING: u32 = 1;
    /// The writer has ended normally.
    pub(crate) const ENDED: u32 = 2;
}

/// An entry of the interface table.
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

/// The start of the control memory of one reader; the rings follow.
#[repr(C)]
pub(crate) struct Control {
    pub magic: u64,
    pub major: u32,
    pub reader: u32,
    pub generation: u64,
    pub capacity: u32,
    pub published_offset: u32,
    pub returned_offset: u32,
    /// Offset of verdicts, for an engine (version 1.1), followed by further offsets and sizes; 0 for other readers.
    pub verdicts_offset: u32,
    pub verdict_bytes: u32,
    pub answers_offset: u32,
    pub answers: u32,
    pub answer_bytes: u32,
    pub reserved: [u32; 18],

    /// Cache line of the writer.
    pub published: u64,
    pub skipped_frames: u64,
    pub skipped_slots: u64,
    pub mode: u32,
    pub status: u32,
    /// Answers handled by the writer.
    pub answered: u64,
    pub writer_reserved: [u32; 22],

    /// Cache line of the reader.
    pub returned: u64,
    /// Answers ever given.
    pub answering: u64,
    pub reader_reserved: [u32; 28],

    /// A separate cache line, written by both.
    pub sleeping: u32,
    pub sleeping_reserved: [u32; 31],
}

/// Values of [`Control::mode`].
pub(crate) mod mode {
    /// The writer waits for this reader.
    pub(crate) const LOSSLESS: u32 = 1;
    /// The writer skips frames for this reader.
    pub(crate) const LOSSY: u32 = 2;
}

/// Values of [`Control::status`]; 0 while attached.
pub(crate) mod status {
    /// The reader was evicted.
    pub(crate) const EVICTED: u32 = 1;
    /// For frames of memory: no more will be published.
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

/// Sizes of the parts of an arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    /// Number of blocks.
    pub slots: u32,
    /// Layout of each block.
    pub layout: Layout,
}

impl Shape {
    /// Offset of the blocks.
    pub(crate) const SLOTS: usize = HUGE;

    pub(crate) fn bytes(&self) -> usize {
        (Shape::SLOTS + self.slots as usize * self.layout.bytes()).next_multiple_of(HUGE)
    }

    /// Returns the offset of a block.
    pub(crate) fn slot(&self, slot: u32) -> usize {
        Shape::SLOTS + slot as usize * self.layout.bytes()
    }

    /// Returns the bytes of the verdicts on one block: a line of counts, then one byte per frame.
    pub(crate) fn verdict_bytes(&self) -> usize {
        VERDICTS_LINE + self.layout.frames().next_multiple_of(VERDICTS_LINE)
    }

    /// Returns the offset of the verdicts on a block in the control memory of an engine.
    pub(crate) fn verdicts(&self, slot: u32) -> usize {
        Rings(self.slots).control_bytes() + slot as usize * self.verdict_bytes()
    }

    /// Returns the offset of the answers.
    pub(crate) fn answers_offset(&self) -> usize {
        self.verdicts(self.slots).next_multiple_of(PAGE)
    }

    /// Returns the bytes of the control memory of an engine.
    pub(crate) fn deciding_bytes(&self) -> usize {
        (self.answers_offset() + ANSWERS as usize * ANSWER_BYTES).next_multiple_of(PAGE)
    }
}

/// The index rings of one reader, for this number of blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rings(pub u32);

impl Rings {
    /// Returns the entries of each index ring.
    pub(crate) fn capacity(&self) -> u32 {
        self.0.next_power_of_two()
    }

    /// Returns the bytes of the control memory of one reader.
    pub(crate) fn control_bytes(&self) -> usize {
        (self.returned_offset() + self.capacity() as usize * 8).next_multiple_of(PAGE)
    }

    /// Returns the offset of the ring of published blocks in the control memory.
    pub(crate) fn published_offset(&self) -> usize {
        size_of::<Control>()
    }

    /// Returns the offset of the ring of returned blocks in the control memory.
    pub(crate) fn returned_offset(&self) -> usize {
        self.published_offset() + self.capacity() as usize * 8
    }
}

/// Returns the offset of an entry of the interface table.
pub(crate) fn interface(index: u32) -> usize {
    PAGE + index as usize * size_of::<InterfaceEntry>()
}
