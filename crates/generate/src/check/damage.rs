//! Frames of ours with a damaged trailer: recognised by wrong checksums and by a length of our frames.

use linerate_burst::MAX_FRAME;
use std::collections::HashMap;

/// Maximum number of different lengths of suspects.
const MOST_KINDS: usize = 4096;

/// Counts suspects; those with a length of our frames count as ours, once these lengths are known.
#[derive(Debug)]
pub(super) struct Damage {
    /// A bit for each length of our frames.
    ours: Vec<u64>,
    /// Length and end noted last.
    noted: (usize, usize),
    /// Number of suspects by frame length and by length in their headers.
    suspects: HashMap<(usize, usize), u64>,
    /// Frames known to be ours.
    certain: u64,
}

impl Damage {
    pub(super) fn new() -> Self {
        Damage { ours: vec![0; MAX_FRAME / 64 + 1], noted: (0, 0), suspects: HashMap::new(), certain: 0 }
    }

    /// Records the length of a frame of ours, and the end by its headers.
    #[inline(always)]
    pub(super) fn note(&mut self, length: usize, end: usize) {
        if self.noted != (length, end) {
            self.noted = (length, end);
            for length in [length, end] {
                if let Some(word) = self.ours.get_mut(length / 64) {
                    *word |= 1 << (length % 64);
                }
            }
        }
    }

    /// Records the length and end of a frame with a wrong checksum and without a trailer.
    pub(super) fn suspect(&mut self, length: usize, end: usize) {
        let room = self.suspects.len() < MOST_KINDS;
        if let Some(count) = self.suspects.get_mut(&(length, end)) {
            *count += 1;
        } else if room {
            self.suspects.insert((length, end), 1);
        }
    }

    /// Counts a frame that is certainly ours.
    pub(super) fn certain(&mut self) {
        self.certain += 1;
    }

    /// Returns the number of damaged frames of ours, as far as known.
    pub(super) fn count(&self) -> u64 {
        let is_ours = |length: usize| self.ours.get(length / 64).is_some_and(|word| word >> (length % 64) & 1 == 1);
        let suspects = self.suspects.iter().filter(|((length, end), _)| is_ours(*length) || is_ours(*end));
        self.certain + suspects.map(|(_, count)| count).sum::<u64>()
    }
}
