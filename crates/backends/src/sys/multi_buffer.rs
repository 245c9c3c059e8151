//! A buffer for frames joined from several chunks: an area that is allocated and freed in order.

use std::collections::VecDeque;

/// Separates frames, and lets copy kernels run over a frame's end.
const ALIGN: usize = 64;

/// Allocated parts of the area.
#[derive(Debug)]
pub(crate) struct JoinedArea {
    start: usize,
    bytes: usize,
    /// Allocated parts, oldest first: offset in the area and length.
    parts: VecDeque<(usize, usize)>,
}

impl JoinedArea {
    /// Creates an area of `bytes` bytes from `start` of a memory.
    pub(crate) fn new(start: usize, bytes: usize) -> Self {
        JoinedArea { start, bytes, parts: VecDeque::new() }
    }

    /// Returns whether a frame of `length` bytes can ever fit.
    pub(crate) fn fits(&self, length: usize) -> bool {
        length.next_multiple_of(ALIGN) <= self.bytes
    }

    /// Allocates `length` bytes; returns their offset in the memory, or `None` until others are freed.
    pub(crate) fn take(&mut self, length: usize) -> Option<usize> {
        let length = length.next_multiple_of(ALIGN);
        let offset = match (self.parts.front(), self.parts.back()) {
            (Some((oldest, _)), Some((newest, size))) => {
                let end = newest + size;
                if oldest <= newest {
                    match (end + length <= self.bytes, length <= *oldest) {
                        (true, _) => end,
                        (false, true) => 0,
                        _ => return None,
                    }
                } else if end + length <= *oldest {
                    end
                } else {
                    return None;
                }
            }
            _ if length <= self.bytes => 0,
            _ => return None,
        };
        self.parts.push_back((offset, length));
        Some(self.start + offset)
    }

    /// Frees the oldest part.
    pub(crate) fn free_oldest(&mut self) {
        self.parts.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_do_not_overlap_and_stay_within_bounds(steps in prop::collection::vec((any::<bool>(), 1usize..3000), 1..400)) {
            let mut area = JoinedArea::new(1000, 8192);
            let mut held: VecDeque<(usize, usize)> = VecDeque::new();
            for (take, length) in steps {
                if take {
                    if let Some(offset) = area.take(length) {
                        prop_assert!(offset >= 1000 && offset + length <= 1000 + 8192);
                        prop_assert!(held.iter().all(|(other, size)| offset + length <= *other || other + size <= offset));
                        held.push_back((offset, length));
                    } else {
                        prop_assert!(!held.is_empty(), "an empty area has room for all that fits");
                    }
                } else if held.pop_front().is_some() {
                    area.free_oldest();
                }
            }
        }
    }
}
