//! Memory that a disk can be written from without a copy.

use std::ops::{Deref, DerefMut};

/// What `O_DIRECT` wants addresses, lengths and places to be multiples of; disks of 512 bytes want less.
pub const ALIGNMENT: usize = 4096;

/// Bytes at an address that is a multiple of [`ALIGNMENT`].
pub struct Aligned {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl Aligned {
    /// So many of them, all 0.
    pub fn new(bytes: usize) -> Self {
        let memory = vec![0; bytes + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Aligned { memory, start, bytes }
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}
