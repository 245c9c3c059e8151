//! The memory of a frame.

use linerate_burst::pool::Piece;
use linerate_burst::resident;

/// What direct writes to a disk want addresses to be multiples of.
const ALIGNMENT: usize = 4096;

/// Bytes from a multiple of 4096 on, in huge pages where the system has them, and there before they are needed.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    piece: Piece,
    /// Which of the pieces that the pool was given, if it was given any.
    pub place: Option<u32>,
    /// Bytes of it elsewhere: then there are none here.
    beyond: usize,
}

impl Memory {
    /// None if the system has not as much; it may still promise more than it has.
    pub(super) fn new(bytes: usize) -> Option<Self> {
        // To ask for what is not there would end the program.
        Vec::<u8>::new().try_reserve_exact(bytes + ALIGNMENT).ok()?;
        let mut room = resident(bytes + ALIGNMENT);
        room.resize(bytes + ALIGNMENT, 0);
        let start = room.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Some(Memory { piece: Piece::of(room, start..start + bytes), place: None, beyond: 0 })
    }

    /// Of somebody else.
    pub(super) fn over(piece: Piece, place: Option<u32>) -> Self {
        Memory { piece, place, beyond: 0 }
    }

    /// Elsewhere.
    pub(super) fn beyond(bytes: usize, place: u32) -> Self {
        Memory { piece: Piece::default(), place: Some(place), beyond: bytes }
    }

    /// Whether its bytes are here.
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
