//! Damage to the bytes of a frame.

use super::faults::{Corruption, Faults};
use super::plan::FrameFaults;
use super::probability::{draw, scale};
use linerate_burst::MAX_FRAME;

/// Minimum length of a truncated frame: an Ethernet header.
pub(super) const SHORTEST: usize = 14;
/// Maximum default padding: 1 to this many bytes.
const MOST_PADDING: u64 = 64;
/// Padding byte: not zero, which protocols tolerate too easily.
const PADDING: u8 = 0x5a;

/// Damage done to a frame; a fault that does not fit a short frame is skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Damage {
    /// Cut.
    pub truncated: bool,
    /// Longer.
    pub padded: bool,
    /// Bits turned over.
    pub corrupted: bool,
}

impl Damage {
    /// Returns whether the frame was damaged.
    pub(super) fn any(self) -> bool {
        self != Damage::default()
    }
}

/// Applies the planned damage to `frame`: truncation, then padding, then bit errors.
pub(super) fn damage(frame: &mut Vec<u8>, planned: &FrameFaults, faults: &Faults) -> Damage {
    Damage {
        truncated: planned.truncated.is_some_and(|draw| truncate(frame, draw, faults.truncate.1)),
        padded: planned.padded.is_some_and(|draw| pad(frame, draw, faults.pad.1)),
        corrupted: planned.corrupted.is_some_and(|key| corrupt(frame, key, &faults.corrupt)),
    }
}

fn truncate(frame: &mut Vec<u8>, draw: u64, length: Option<u32>) -> bool {
    let before = frame.len();
    let choice = || SHORTEST + scale(draw, before.saturating_sub(SHORTEST) as u64) as usize;
    frame.truncate(length.map_or_else(choice, |length| length as usize));
    frame.len() < before
}

fn pad(frame: &mut Vec<u8>, draw: u64, more: Option<u32>) -> bool {
    let before = frame.len();
    let more = more.map_or_else(|| 1 + scale(draw, MOST_PADDING) as usize, |more| more as usize);
    frame.resize((before + more).min(MAX_FRAME), PADDING);
    frame.len() > before
}

/// Flips distinct bits: if a draw hits a flipped one, the next is taken.
fn corrupt(frame: &mut [u8], key: u64, wanted: &Corruption) -> bool {
    let end = frame.len().min((wanted.last as usize).saturating_add(1));
    let Some(bytes) = frame.get_mut(wanted.first as usize..end).filter(|bytes| !bytes.is_empty()) else {
        return false;
    };
    let there = bytes.len() as u64 * 8;
    let mut turned = [u64::MAX; super::faults::MAX_BITS as usize];
    let wanted = (wanted.bits as usize).min(there as usize).min(turned.len());
    for index in 0..wanted {
        let mut bit = scale(draw(key, index as u64), there);
        while turned[..index].contains(&bit) {
            bit = (bit + 1) % there;
        }
        turned[index] = bit;
        bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn none() -> FrameFaults {
        FrameFaults { dropped: false, repeated: false, reordered: None, corrupted: None, truncated: None, padded: None }
    }

    proptest! {
        #[test]
        fn only_the_requested_bits_differ(
            length in 1usize..200, bits in 1u32..=64, first in 0u32..220, width in 0u32..60, key: u64,
        ) {
            let corrupt = Corruption { bits, first, last: first + width, ..Faults::default().corrupt };
            let faults = Faults { corrupt, ..Faults::default() };
            let before: Vec<u8> = (0..length).map(|at| at as u8).collect();
            let mut after = before.clone();
            let done = damage(&mut after, &FrameFaults { corrupted: Some(key), ..none() }, &faults);
            let flipped = |range: std::ops::Range<usize>| -> u32 {
                range.filter(|at| *at < length).map(|at| (before[at] ^ after[at]).count_ones()).sum()
            };
            let (first, last) = (first as usize, (first + width) as usize);
            let reachable = (last + 1).min(length).saturating_sub(first) as u32 * 8;
            prop_assert_eq!(flipped(0..length), bits.min(reachable));
            prop_assert_eq!(flipped(first..last + 1), bits.min(reachable));
            prop_assert_eq!(done.corrupted, reachable > 0);
        }

        #[test]
        fn lengths_stay_within_their_bounds(length in 0usize..300, draw: u64, to in proptest::option::of(14u32..400)) {
            let frame = vec![1; length];
            let faults = Faults { truncate: (Faults::default().drop, to), ..Faults::default() };
            let mut cut = frame.clone();
            let done = damage(&mut cut, &FrameFaults { truncated: Some(draw), ..none() }, &faults);
            prop_assert_eq!(done.truncated, cut.len() < length);
            match to {
                Some(to) => prop_assert_eq!(cut.len(), length.min(to as usize)),
                None => prop_assert!(cut.len() >= length.min(14) && (length <= 14 || cut.len() < length)),
            }
            let mut longer = frame;
            let done = damage(&mut longer, &FrameFaults { padded: Some(draw), ..none() }, &faults);
            prop_assert!(done.padded && (1..=64).contains(&(longer.len() - length)));
        }
    }

    #[test]
    fn frames_never_exceed_the_maximum_length() {
        let faults = Faults { pad: (Faults::default().drop, Some(9)), ..Faults::default() };
        let mut frame = vec![0; MAX_FRAME - 4];
        assert!(damage(&mut frame, &FrameFaults { padded: Some(0), ..none() }, &faults).padded);
        assert_eq!(frame.len(), MAX_FRAME);
        assert!(!damage(&mut frame, &FrameFaults { padded: Some(0), ..none() }, &faults).any());
    }
}
