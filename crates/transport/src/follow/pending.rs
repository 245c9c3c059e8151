//! Bytes that wait for earlier ones.

use super::Overlap;
use std::collections::BTreeMap;
use std::ops::Range;

/// Overhead of a piece in bytes.
const PIECE: usize = 128;

/// Received bytes of one stream that are not output yet, by offset.
#[derive(Debug, Default)]
pub(super) struct PendingBytes {
    pieces: BTreeMap<u64, PendingSegment>,
    charge: usize,
}

/// Contiguous bytes of one segment.
#[derive(Debug)]
pub(super) struct PendingSegment {
    /// `None` for bytes that were sent and not captured.
    bytes: Option<Box<[u8]>>,
    end: u64,
    /// Range of the segment that carried it.
    segment: Range<u64>,
}

/// Duplicates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct DuplicateBytes {
    /// Bytes received before.
    pub repeated: u64,
    /// Those of them that differ.
    pub differing: u64,
}

impl PendingBytes {
    /// Returns the memory used.
    pub(super) fn charge(&self) -> usize {
        self.charge
    }

    /// Stores the bytes of a segment where none are stored, or where the policy prefers them. The `cut` bytes after
    /// them were not captured.
    pub(super) fn lay(
        &mut self,
        segment: &Range<u64>,
        start: u64,
        bytes: &[u8],
        cut: u64,
        overlap: Overlap,
    ) -> DuplicateBytes {
        let end = start + bytes.len() as u64;
        let again = self.lay_part(segment, start..end, Some(bytes), overlap);
        if cut > 0 {
            self.lay_part(segment, end..end + cut, None, overlap);
        }
        again
    }

    /// Removes and returns the first piece if it starts at `at`.
    pub(super) fn take(&mut self, at: u64) -> Option<(u64, Option<Box<[u8]>>)> {
        let entry = self.pieces.first_entry().filter(|entry| *entry.key() == at)?;
        let piece = entry.remove();
        self.charge -= charge(&piece);
        Some((piece.end - at, piece.bytes))
    }

    fn lay_part(
        &mut self,
        segment: &Range<u64>,
        range: Range<u64>,
        bytes: Option<&[u8]>,
        overlap: Overlap,
    ) -> DuplicateBytes {
        let mut again = DuplicateBytes::default();
        let mut at = range.start;
        let part = |at: u64, until: u64| {
            bytes.map(|bytes| &bytes[(at - range.start) as usize..(until - range.start) as usize])
        };
        while at < range.end {
            let before = self.pieces.range(..=at).next_back();
            let Some((&first, old)) = before.filter(|(_, piece)| piece.end > at) else {
                let next = self.pieces.range(at..).next().map_or(range.end, |(next, _)| *next);
                let until = next.min(range.end);
                self.put(at, until, part(at, until), segment);
                at = until;
                continue;
            };
            let until = old.end.min(range.end);
            if let Some(new) = part(at, until) {
                if let Some(known) = &old.bytes {
                    let known = &known[(at - first) as usize..(until - first) as usize];
                    again.repeated += until - at;
                    again.differing += known.iter().zip(new).filter(|(one, other)| one != other).count() as u64;
                }
                if old.bytes.is_none() || overlap.prefers_new(segment, &old.segment) {
                    self.replace(first, at, until, new, segment);
                }
            }
            at = until;
        }
        again
    }

    fn put(&mut self, at: u64, end: u64, bytes: Option<&[u8]>, segment: &Range<u64>) {
        let piece = PendingSegment { bytes: bytes.map(Box::from), end, segment: segment.clone() };
        self.charge += charge(&piece);
        self.pieces.insert(at, piece);
    }

    /// Replaces a part of a piece.
    fn replace(&mut self, first: u64, at: u64, until: u64, new: &[u8], segment: &Range<u64>) {
        let Some(old) = self.pieces.remove(&first) else { return };
        self.charge -= charge(&old);
        let bytes = old.bytes.as_deref();
        let part = |from: u64, to: u64| bytes.map(|bytes| &bytes[(from - first) as usize..(to - first) as usize]);
        if first < at {
            self.put(first, at, part(first, at), &old.segment);
        }
        self.put(at, until, Some(new), segment);
        if until < old.end {
            self.put(until, old.end, part(until, old.end), &old.segment);
        }
    }
}

fn charge(piece: &PendingSegment) -> usize {
    PIECE + piece.bytes.as_ref().map_or(0, |bytes| bytes.len())
}
