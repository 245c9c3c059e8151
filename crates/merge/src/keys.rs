//! Keys: the rank and the index of a frame in one number that sorts by the order rule.
//!
//! From the top: 32 bits of time since a base, 7 of lane, 24 of index, and the late flag. The low half is thus a
//! [`FrameIndex`] rotated left by one bit; it is below the time so that frames of equal time stay in the order of lanes, and
//! those of one lane in their own.
//!
//! This is the portable form of the vector code in `kernel`, and its oracle.

use linerate_burst::{Desc, FrameIndex};

/// Above every key.
pub(crate) const NONE: u64 = u64::MAX;
/// Greatest key of a frame that may be emitted: a span of 4.29 s. Later frames have greater keys, which may be equal.
pub(crate) const LAST: u64 = NONE - (1 << TIME_SHIFT);

const TIME_SHIFT: u32 = 32;
const LANE_SHIFT: u32 = 25;
const MAX_SPAN: u64 = (1 << TIME_SHIFT) - 1;

/// Returns the low half of the key of frame `index` of `lane`; the next frame's is greater by 2.
#[inline]
pub(crate) fn tag(lane: usize, index: usize) -> u64 {
    (lane as u64) << LANE_SHIFT | (index as u64) << 1
}

/// Returns the greatest key of `lane` at time `rank`, not below `base`; [`NONE`] if that is beyond the span of keys.
#[inline]
pub(crate) fn bound(rank: u64, base: u64, lane: usize) -> u64 {
    match rank - base {
        span if span < MAX_SPAN => (span << TIME_SHIFT) + tag(lane + 1, 0) - 1,
        _ => NONE,
    }
}

/// Returns the rank of the frame with `key`, which is not above [`LAST`].
#[inline]
pub(crate) fn rank(key: u64, base: u64) -> u64 {
    base + (key >> TIME_SHIFT)
}

/// Returns the pick in a key.
#[inline]
pub(crate) fn pick(key: u64) -> FrameIndex {
    let (lane, index) = (key as u32 >> LANE_SHIFT, key as u32 >> 1 & (FrameIndex::MAX_FRAMES as u32 - 1));
    let pick = FrameIndex::new(lane as usize, index as usize);
    if key & 1 == 1 { pick.late() } else { pick }
}

/// Makes keys of frames whose times do not go back from `floor`, the first with `tag`; returns false, and invalid keys,
/// if one does. `base` is not above `floor`.
#[inline]
pub(crate) fn ascending(descs: &[Desc], base: u64, floor: u64, tag: u64, keys: &mut [u64]) -> bool {
    let (mut latest, mut in_order) = (floor, true);
    for ((key, desc), tag) in keys.iter_mut().zip(descs).zip((tag..).step_by(2)) {
        in_order &= desc.time.0 >= latest;
        latest = desc.time.0;
        *key = latest.wrapping_sub(base).min(MAX_SPAN) << TIME_SHIFT | tag;
    }
    in_order
}

/// Makes keys of any frames up to the first above `ceiling`; returns their number. `newest` is the greatest time of the
/// lane so far, and is updated; frames below it or below `emitted` are late.
pub(crate) fn any(
    descs: &[Desc],
    base: u64,
    (emitted, ceiling): (u64, u64),
    newest: &mut u64,
    tag: u64,
    keys: &mut [u64],
) -> usize {
    for (made, ((key, desc), tag)) in keys.iter_mut().zip(descs).zip((tag..).step_by(2)).enumerate() {
        if desc.time.0 > ceiling {
            return made;
        }
        let late = desc.time.0 < emitted.max(*newest);
        *newest = desc.time.0.max(*newest);
        *key = (*newest - base).min(MAX_SPAN) << TIME_SHIFT | tag | u64::from(late);
    }
    descs.len()
}

/// Keys per merge step. Each row ends with this many of [`NONE`], or of keys above all that are wanted.
pub(crate) const PADDING: usize = 16;

/// Merges the lowest keys of two ascending rows, as many as `out` has room for: whole steps.
pub(crate) fn merge(a: &[u64], b: &[u64], out: &mut [u64]) {
    let (mut i, mut j) = (0, 0);
    for key in out {
        let (first, second) = (a.get(i).copied().unwrap_or(NONE), b.get(j).copied().unwrap_or(NONE));
        *key = first.min(second);
        i += usize::from(first <= second);
        j += usize::from(first > second);
    }
}

/// Appends the picks in keys.
#[inline]
pub(crate) fn append(keys: &[u64], picks: &mut Vec<FrameIndex>) {
    let start = picks.len();
    picks.resize(start + keys.len(), FrameIndex::new(0, 0));
    for (picked, key) in picks[start..].iter_mut().zip(keys) {
        *picked = pick(*key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_burst::Nanos;

    #[test]
    fn key_contains_rank_lane_index_and_late() {
        let descs = [20, 10, 30].map(|time| Desc::new(Nanos(time), 0, 0));
        let (mut keys, mut newest) = ([0; 3], 15);
        assert_eq!(any(&descs, 5, (12, 29), &mut newest, tag(127, FrameIndex::MAX_FRAMES - 3), &mut keys), 2);
        newest = 15;
        assert_eq!(any(&descs, 5, (12, 30), &mut newest, tag(127, FrameIndex::MAX_FRAMES - 3), &mut keys), 3);
        assert_eq!(newest, 30);
        let fields = keys.map(|key| (rank(key, 5), pick(key).lane(), pick(key).index(), pick(key).is_late()));
        let last = FrameIndex::MAX_FRAMES - 1;
        assert_eq!(fields, [(20, 127, last - 2, false), (20, 127, last - 1, true), (30, 127, last, false)]);
    }

    #[test]
    fn a_bound_is_after_its_own_lane_and_before_the_next() {
        let key = |time: u64, lane, index| (time - 5) << TIME_SHIFT | tag(lane, index);
        let bound = bound(9, 5, 3);
        assert!(key(9, 3, FrameIndex::MAX_FRAMES - 1) < bound && bound < key(9, 4, 0));
        assert_eq!(super::bound(5 + MAX_SPAN, 5, 3), NONE);
        assert!(super::bound(5 + MAX_SPAN - 1, 5, 127) <= LAST && LAST < MAX_SPAN << TIME_SHIFT);
    }
}
