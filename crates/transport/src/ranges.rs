//! Received bytes of a stream: all below an edge, and ranges beyond it.
//!
//! Duplicates are ignored. Streams have 64-bit offsets; a protocol with shorter sequence numbers extends them.

use std::ops::Range;

/// Set of received bytes of a stream.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    edge: u64,
    /// Ascending, with gaps between them and before the first.
    beyond: Vec<Range<u64>>,
}

/// The maximum number of gaps would be exceeded: nothing was inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many gaps")]
pub struct TooManyGaps;

impl Ranges {
    /// Returns a set with all bytes below `edge`.
    pub fn from(edge: u64) -> Self {
        Ranges { edge, beyond: Vec::new() }
    }

    /// Returns the first missing byte.
    #[inline]
    pub fn edge(&self) -> u64 {
        self.edge
    }

    /// Returns the ranges beyond the edge, ascending; a gap precedes each.
    #[inline]
    pub fn beyond(&self) -> &[Range<u64>] {
        &self.beyond
    }

    /// Returns the end of the first gap; `None` without bytes beyond the edge.
    #[inline]
    pub fn gap_end(&self) -> Option<u64> {
        self.beyond.first().map(|range| range.start)
    }

    /// Returns the offset after the last byte received.
    pub fn end(&self) -> u64 {
        self.beyond.last().map_or(self.edge, |range| range.end)
    }

    /// Inserts bytes, and calls `new` for each piece that is new, ascending.
    ///
    /// # Errors
    /// If there would be more than `most` ranges beyond the edge.
    #[inline]
    pub fn insert(&mut self, range: Range<u64>, most: usize, new: impl FnMut(Range<u64>)) -> Result<(), TooManyGaps> {
        let mut new = new;
        if range.start <= self.edge && self.beyond.is_empty() {
            if range.end > self.edge {
                new(self.edge..range.end);
                self.edge = range.end;
            }
            return Ok(());
        }
        self.insert_beyond(range, most, &mut new)
    }

    /// Gives up missing bytes: all bytes below this offset count as received.
    pub fn skip_to(&mut self, edge: u64) {
        self.edge = self.edge.max(edge);
        self.absorb();
    }

    #[cold]
    fn insert_beyond(
        &mut self,
        range: Range<u64>,
        most: usize,
        new: &mut dyn FnMut(Range<u64>),
    ) -> Result<(), TooManyGaps> {
        let mut at = range.start.max(self.edge);
        if at >= range.end {
            return Ok(());
        }
        // Merge the ranges that it touches.
        let first = self.beyond.partition_point(|there| there.end < at);
        let last = self.beyond.partition_point(|there| there.start <= range.end);
        if first == last && at > self.edge && self.beyond.len() >= most {
            return Err(TooManyGaps);
        }
        let whole = match (self.beyond.get(first), last.checked_sub(1).and_then(|last| self.beyond.get(last))) {
            (Some(one), Some(other)) if first < last => at.min(one.start)..range.end.max(other.end),
            _ => at..range.end,
        };
        for there in &self.beyond[first..last] {
            if at < there.start {
                new(at..there.start.min(range.end));
            }
            at = at.max(there.end);
        }
        if at < range.end {
            new(at..range.end);
        }
        self.beyond.splice(first..last, [whole]);
        self.absorb();
        Ok(())
    }

    /// Merges ranges that the edge has reached.
    fn absorb(&mut self) {
        let reached = self.beyond.iter().take_while(|range| range.start <= self.edge).count();
        for range in self.beyond.drain(..reached) {
            self.edge = self.edge.max(range.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compared with a map of bytes.
        #[test]
        fn new_bytes_are_reported_once(
            start in 0_u64..20, steps in prop::collection::vec((0_u64..120, 0_u64..30, any::<bool>()), 0..60), most in 1_usize..6,
        ) {
            let mut ranges = Ranges::from(start);
            let mut there = [false; 200];
            there[..start as usize].fill(true);
            for (from, len, skip) in steps {
                if skip && len < 3 {
                    ranges.skip_to(from);
                    there[..from as usize].fill(true);
                } else {
                    let mut pieces = Vec::new();
                    let before = there;
                    let result = ranges.insert(from..from + len, most, |piece| pieces.push(piece));
                    if result.is_ok() {
                        there[from as usize..(from + len) as usize].fill(true);
                    } else {
                        prop_assert_eq!(ranges.beyond().len(), most);
                    }
                    let reported: Vec<u64> = pieces.into_iter().flatten().collect();
                    let wanted: Vec<u64> = (0..200).filter(|at| there[*at as usize] && !before[*at as usize]).collect();
                    prop_assert_eq!(reported, wanted);
                }
                let edge = there.iter().position(|there| !there).unwrap() as u64;
                prop_assert_eq!(ranges.edge(), edge);
                let listed: Vec<u64> = ranges.beyond().iter().flat_map(Clone::clone).collect();
                let wanted: Vec<u64> = (edge..200).filter(|at| there[*at as usize]).collect();
                prop_assert_eq!(listed, wanted);
                let is_separate = ranges.beyond().windows(2).all(|pair| pair[0].end < pair[1].start);
                prop_assert!(is_separate && ranges.gap_end().is_none_or(|gap| gap > edge), "{:?}", ranges);
                prop_assert!(ranges.beyond().len() <= most);
            }
        }
    }
}
