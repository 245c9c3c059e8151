//! The memory of a frame.

use linerate_burst::resident;
use std::fmt;

/// What direct writes to a disk want addresses to be multiples of.
const ALIGNMENT: usize = 4096;

/// Bytes from a multiple of 4096 on, in huge pages where the system has them, and there before they are needed.
#[derive(Default)]
pub(crate) struct Memory {
    room: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Memory {
    /// None if the system has not as much; it may still promise more than it has.
    pub fn new(bytes: usize) -> Option<Self> {
        // To ask for what is not there would end the program.
        Vec::<u8>::new().try_reserve_exact(bytes + ALIGNMENT).ok()?;
        let mut room = resident(bytes + ALIGNMENT);
        room.resize(bytes + ALIGNMENT, 0);
        let start = room.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Some(Memory { room, start, bytes })
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.room[self.start..self.start + self.bytes]
    }

    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.start..self.start + self.bytes]
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes)
    }
}
