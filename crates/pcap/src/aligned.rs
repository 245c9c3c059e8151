//! Memory that can be written to a disk without a copy.

use std::ops::{Deref, DerefMut};

/// Alignment of addresses, lengths and offsets for `O_DIRECT`; disks with 512-byte sectors need less.
pub const ALIGNMENT: usize = 4096;

/// Bytes at an address aligned to [`ALIGNMENT`].
pub struct AlignedBytes {
    memory: Vec<u8>,
    start: usize,
    bytes: usize,
}

impl AlignedBytes {
    /// Returns `bytes` zeroed bytes.
    pub fn new(bytes: usize) -> Self {
        let memory = vec![0; bytes + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        AlignedBytes { memory, start, bytes }
    }
}

impl Deref for AlignedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.bytes]
    }
}

impl DerefMut for AlignedBytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.bytes]
    }
}
