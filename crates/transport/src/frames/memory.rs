//! Memory of a frame.

use linerate_burst::pool::OwnedBytes;
use linerate_burst::resident;

/// Alignment for direct writes.
const ALIGNMENT: usize = 4096;

/// Bytes aligned to 4096, in huge pages if available, and populated in advance.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    piece: OwnedBytes,
    /// Index of the piece in an external pool.
    pub place: Option<u32>,
    /// Length if the bytes are elsewhere; 0 otherwise.
    beyond: usize,
}

impl Memory {
    /// Allocates; `None` if memory is insufficient. The system may still overcommit.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        // A failing allocation would abort the process.
        Vec::<u8>::new().try_reserve_exact(bytes + ALIGNMENT).ok()?;
        let mut room = resident(bytes + ALIGNMENT);
        room.resize(bytes + ALIGNMENT, 0);
        let start = room.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Some(Memory { piece: OwnedBytes::of(room, start..start + bytes), place: None, beyond: 0 })
    }

    /// Wraps external memory.
    pub(super) fn over(piece: OwnedBytes, place: Option<u32>) -> Self {
        Memory { piece, place, beyond: 0 }
    }

    /// Returns memory that is elsewhere.
    pub(super) fn beyond(bytes: usize, place: u32) -> Self {
        Memory { piece: OwnedBytes::default(), place: Some(place), beyond: bytes }
    }

    /// Returns whether its bytes are here.
    pub(super) fn is_here(&self) -> bool {
        self.beyond == 0
    }

    pub(super) fn len(&self) -> usize {
        self.piece.len() + self.beyond
    }

    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        self.piece.bytes()
    }

    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        self.piece.bytes_mut()
    }
}
