//! Frames of ours whose trailer was damaged: known by their wrong checksums, and by a length that ours have.

use linerate_burst::MAX_FRAME;
use std::collections::HashMap;

/// Different lengths of suspects that are kept apart.
const MOST_KINDS: usize = 4096;

/// Counts suspects; whether they were ours is known when the lengths of ours are.
#[derive(Debug)]
pub(super) struct Damage {
    /// A bit for each length that a frame of ours had.
    ours: Vec<u64>,
    /// The length that was noted last.
    noted: (usize, usize),
    /// How many there were of each length: that of the frame and that which its headers say.
    suspects: HashMap<(usize, usize), u64>,
    /// Frames that are known to be ours.
    certain: u64,
}

impl Damage {
    /// None yet.
    pub(super) fn new() -> Self {
        Damage { ours: vec![0; MAX_FRAME / 64 + 1], noted: (0, 0), suspects: HashMap::new(), certain: 0 }
    }

    /// A frame of ours had this length, and the end that its headers say.
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

    /// A frame with a wrong checksum and without a trailer had this length and this end.
    pub(super) fn suspect(&mut self, length: usize, end: usize) {
        let room = self.suspects.len() < MOST_KINDS;
        if let Some(count) = self.suspects.get_mut(&(length, end)) {
            *count += 1;
        } else if room {
            self.suspects.insert((length, end), 1);
        }
    }

    /// A frame was one of ours.
    pub(super) fn certain(&mut self) {
        self.certain += 1;
    }

    /// How many were ours, so far as is known by now.
    pub(super) fn count(&self) -> u64 {
        let is_ours = |length: usize| self.ours.get(length / 64).is_some_and(|word| word >> (length % 64) & 1 == 1);
        let suspects = self.suspects.iter().filter(|((length, end), _)| is_ours(*length) || is_ours(*end));
        self.certain + suspects.map(|(_, count)| count).sum::<u64>()
    }
}
