//! Placement lists, checked on the host before a device gets them.
//!
//! A device writes wherever a list directs it. So entries that exceed their frame or their block are rejected, and no
//! byte of a frame is written twice: retransmitted or forged bytes never get this far.

use crate::contract::Shape;
use linerate_transport::frames::Entry;
use linerate_transport::ranges::Ranges;
use std::ops::Range;

/// The fault of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ListError {
    /// Bytes outside the block.
    #[error("entry {0} exceeds its block")]
    Block(usize),
    /// The frame does not exist.
    #[error("entry {0} is for an unknown frame")]
    Frame(usize),
    /// The place exceeds the frame.
    #[error("entry {0} exceeds its frame")]
    Place(usize),
    /// The bytes are already present.
    #[error("entry {0} places bytes a second time")]
    Twice(usize),
}

/// Checks that all places are in their frames, and all bytes among the first `used` of their block.
///
/// # Errors
/// The first invalid entry.
pub fn check(list: &[Entry], used: usize, shape: &Shape) -> Result<(), ListError> {
    for (index, entry) in list.iter().enumerate() {
        if u64::from(entry.from) + u64::from(entry.len) > used as u64 {
            return Err(ListError::Block(index));
        }
        if entry.frame >= shape.frames {
            return Err(ListError::Frame(index));
        }
        if entry.at.checked_add(entry.len.into()).is_none_or(|end| end > shape.bytes as u64) {
            return Err(ListError::Place(index));
        }
    }
    Ok(())
}

/// Checks that ranges are inside a frame.
///
/// # Errors
/// The first invalid range.
pub fn check_ranges(frame: u32, ranges: &[Range<u64>], shape: &Shape) -> Result<(), ListError> {
    if frame >= shape.frames {
        return Err(ListError::Frame(0));
    }
    let outside = |range: &Range<u64>| range.start > range.end || range.end > shape.bytes as u64;
    ranges.iter().position(outside).map_or(Ok(()), |index| Err(ListError::Place(index)))
}

/// Splits entries into ones of at most `most` bytes, with the same effect; longer ones are split where places are
/// multiples of that.
///
/// This balances the work of threads that handle one entry each: bytes that arrived in order are a single entry,
/// however long.
pub fn split(list: &[Entry], most: u32) -> Vec<Entry> {
    let most = most.max(1);
    let mut pieces = Vec::with_capacity(list.len());
    for entry in list {
        let mut rest = *entry;
        while rest.len > most {
            let len = most - (rest.at % u64::from(most)) as u32;
            pieces.push(Entry { len, ..rest });
            rest = Entry { at: rest.at + u64::from(len), from: rest.from + len, len: rest.len - len, ..rest };
        }
        pieces.push(rest);
    }
    pieces
}

/// Records the bytes placed in each frame, so that none is placed twice.
#[derive(Debug)]
pub struct Guard {
    shape: Shape,
    placed: Vec<Ranges>,
}

impl Guard {
    /// Returns the guard of a device's frames, all empty.
    pub fn new(shape: Shape) -> Guard {
        Guard { shape, placed: vec![Ranges::default(); shape.frames as usize] }
    }

    /// Accepts a list, or rejects all of it.
    ///
    /// # Errors
    /// The first invalid entry. Bytes before it count as placed: the frames are then lost.
    pub fn take(&mut self, list: &[Entry], used: usize) -> Result<(), ListError> {
        check(list, used, &self.shape)?;
        for (index, entry) in list.iter().enumerate() {
            let mut new = 0;
            let range = entry.at..entry.at + u64::from(entry.len);
            let insert =
                self.placed[entry.frame as usize].insert(range, usize::MAX, |piece| new += piece.end - piece.start);
            if insert.is_err() || new != u64::from(entry.len) {
                return Err(ListError::Twice(index));
            }
        }
        Ok(())
    }

    /// Clears the record of a frame, which is reused.
    pub fn release(&mut self, frame: u32) {
        if let Some(placed) = self.placed.get_mut(frame as usize) {
            *placed = Ranges::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::form::Form;
    use proptest::prelude::*;

    const SHAPE: Shape = Shape { frames: 3, bytes: 100, form: Form::Raw, granule: 10 };

    fn entry() -> impl Strategy<Value = Entry> {
        let at = prop_oneof![8 => 0_u64..120, 1 => Just(u64::MAX - 3), 1 => Just(1 << 32)];
        let len = prop_oneof![8 => 0_u32..40, 1 => Just(u32::MAX)];
        (0_u32..200, 0_u32..4, at, len).prop_map(|(from, frame, at, len)| Entry { from, frame, at, len })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        /// Pieces are in order, and together they are the entry.
        #[test]
        fn pieces_add_up_to_the_entry(at in 0_u64..1 << 40, from in 0_u32..1 << 30, len in 0_u32..100_000, most in 0_u32..5000) {
            let most = most.max(len / 1000);
            let whole = Entry { at, from, len, frame: 2 };
            let pieces = split(&[whole], most);
            let (mut then, most) = (Entry { len: 0, ..whole }, most.max(1));
            for (number, piece) in pieces.iter().enumerate() {
                prop_assert_eq!((piece.at, piece.from), (at + u64::from(then.len), from + then.len));
                prop_assert!(piece.len <= most && piece.frame == 2);
                prop_assert!(number == 0 || piece.at % u64::from(most) == 0);
                then.len += piece.len;
            }
            prop_assert_eq!(then, whole);
        }

        /// Compared with a map of bytes.
        #[test]
        fn no_byte_is_written_outside_a_frame_or_twice(
            lists in prop::collection::vec((prop::collection::vec(entry(), 0..6), 0_usize..260), 0..12), freed in 0_u32..4,
        ) {
            let mut guard = Guard::new(SHAPE);
            let mut there = [[false; 100]; 3];
            for (number, (list, used)) in lists.into_iter().enumerate() {
                let mut after = there;
                let mut wanted = Ok(());
                // Bounds are checked before duplicates.
                for (index, one) in list.iter().enumerate() {
                    let outside = match () {
                        () if one.from as usize + one.len as usize > used => Some(ListError::Block(index)),
                        () if one.frame > 2 => Some(ListError::Frame(index)),
                        () if u128::from(one.at) + u128::from(one.len) > 100 => Some(ListError::Place(index)),
                        () => None,
                    };
                    wanted = wanted.and(outside.map_or(Ok(()), Err));
                }
                let is_inside = wanted.is_ok();
                for (index, one) in list.iter().enumerate().filter(|_| is_inside) {
                    let bytes = &mut after[one.frame as usize][one.at as usize..one.at as usize + one.len as usize];
                    if bytes.contains(&true) {
                        wanted = wanted.and(Err(ListError::Twice(index)));
                    }
                    bytes.fill(true);
                }
                prop_assert_eq!(guard.take(&list, used), wanted);
                if wanted.is_err() && is_inside {
                    break;
                }
                if wanted.is_ok() {
                    there = after;
                }
                if number % 3 == 2 {
                    guard.release(freed);
                    there.get_mut(freed as usize).into_iter().for_each(|frame| frame.fill(false));
                }
            }
        }
    }
}
