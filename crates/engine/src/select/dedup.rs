//! Duplicate frames: of two taps, or of a mirror port that copies both ingress and egress.

use linerate_burst::Nanos;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Default window: 10 ms. Taps of one link differ by microseconds, a mirror port by the time its buffer takes to drain,
/// some milliseconds. Intended repetitions mostly differ, in IP identification or TCP timestamp; those that do not,
/// such as equal acknowledgements over IPv6, follow a round trip later, so that a longer window (packet brokers use 50
/// ms and more) would drop more of them as copies.
pub const WINDOW: Duration = Duration::from_millis(10);

/// Memory of recent frames.
///
/// A frame is a duplicate if one with the same bytes and lengths was kept within the window before its own time or, if
/// it is late, after it. Frames of the window up to the newest time are remembered, so later arrivals of older frames
/// are compared only with those.
///
/// Times that are far apart ([`FAR`]) are *stretches*, each with its own newest time and memory: so a frame with a
/// wrong time evicts nothing, and after a step of the clock, forward or back, frames of the new time are compared only
/// with each other. A few stretches are remembered; a new one replaces the least recently used one.
///
/// Frames are compared by 128 bits of hash: two different ones are considered equal with a probability of about 1 in
/// 10^32 for a million frames in the window. Its keys are random for each run, so that frames that hide others cannot
/// be crafted.
///
/// Memory is bounded: at most [`MOST`] frames, about 50 MiB. Above that the oldest is evicted, and counted.
pub(super) struct Dedup {
    window: u64,
    /// Time distance that separates two stretches.
    far: u64,
    most: usize,
    keys: [u64; 6],
    /// Most recently used first.
    stretches: Vec<Stretch>,
    evicted: u64,
}

/// Frames whose times are close together.
#[derive(Default)]
struct Stretch {
    /// Greatest time.
    newest: u64,
    /// Time at which each frame was kept.
    kept: HashMap<Digest, u64, Spread>,
    /// The same in order of arrival.
    order: VecDeque<(u64, Digest)>,
}

type Digest = [u64; 2];

/// Maximum number of frames remembered: 10 ms at 52 M frames/s.
const MOST: usize = 1 << 19;

/// Maximum distance of times in one stretch, or twice the window, if that is more: lanes lag less than that.
const FAR: Duration = Duration::from_millis(100);
/// Number of stretches: that of the live ports, and those of some lanes with clocks of their own.
const STRETCHES: usize = 4;

impl Dedup {
    pub(super) fn new(window: Duration) -> Self {
        let random = RandomState::new();
        Dedup::with(window, MOST, std::array::from_fn(|index| random.hash_one(index)))
    }

    fn with(window: Duration, most: usize, keys: [u64; 6]) -> Self {
        let window = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        let far = window.saturating_mul(2).max(FAR.as_nanos() as u64);
        Dedup { window, far, most, keys, stretches: Vec::new(), evicted: 0 }
    }

    /// Returns whether this frame, of `wire` bytes on the wire, was kept before; if not, keeps it now.
    pub(super) fn is_duplicate(&mut self, time: Nanos, frame: &[u8], wire: u32) -> bool {
        let digest = digest(&self.keys, frame, wire);
        self.find(time.0);
        let window = self.window;
        // A late frame may be close to frames of another stretch, if stretches have come close to each other.
        let (first, others) = self.stretches.split_at_mut(1);
        if others.iter().any(|one| one.newest.abs_diff(time.0) <= self.far && one.has(digest, time.0, window)) {
            return true;
        }
        if let Some(is_duplicate) = first[0].compare(digest, time.0, window) {
            return is_duplicate;
        }
        if self.stretches.iter().map(|one| one.order.len()).sum::<usize>() > self.most {
            self.make_room();
        }
        false
    }

    /// Returns the number of frames evicted before the end of their window.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Moves the stretch of a time to the front.
    fn find(&mut self, time: u64) {
        let is_near = |one: &Stretch| one.newest.abs_diff(time) <= self.far;
        if self.stretches.first().is_some_and(is_near) {
            return;
        }
        match self.stretches.iter().position(is_near) {
            Some(at) => self.stretches[..=at].rotate_right(1),
            None => {
                self.stretches.truncate(STRETCHES - 1);
                self.stretches.insert(0, Stretch::default());
            }
        }
    }

    /// Evicts the oldest frame of the least recently used stretch.
    fn make_room(&mut self) {
        if let Some(stretch) = self.stretches.iter_mut().rev().find(|one| !one.order.is_empty()) {
            stretch.forget();
            self.evicted += 1;
        }
    }
}

impl Stretch {
    /// Returns whether a frame was kept within `window` of `time`.
    fn has(&self, digest: Digest, time: u64, window: u64) -> bool {
        let is_copy = |kept: &u64| self.newest - kept <= window && kept.abs_diff(time) <= window;
        self.kept.get(&digest).is_some_and(is_copy)
    }

    /// Returns whether a frame is a duplicate of a remembered one; `None` if it is now kept.
    fn compare(&mut self, digest: Digest, time: u64, window: u64) -> Option<bool> {
        self.newest = self.newest.max(time);
        while let Some((kept, _)) = self.order.front()
            && self.newest - kept > window
        {
            self.forget();
        }
        match self.kept.entry(digest) {
            // Only a late frame can be farther from one in the window.
            Entry::Occupied(entry) if self.newest - entry.get() <= window => {
                return Some(entry.get().abs_diff(time) <= window);
            }
            entry => entry.insert_entry(time),
        };
        self.order.push_back((time, digest));
        None
    }

    /// Removes the oldest frame, unless it was kept again since.
    fn forget(&mut self) {
        if let Some((time, digest)) = self.order.pop_front()
            && let Entry::Occupied(entry) = self.kept.entry(digest)
            && *entry.get() == time
        {
            entry.remove();
        }
    }
}

/// Uses part of a digest unchanged, since it is a hash already.
#[derive(Default)]
struct Spread(u64);

impl BuildHasher for Spread {
    type Hasher = Spread;
    fn build_hasher(&self) -> Spread {
        Spread(0)
    }
}

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_ne_bytes(*first);
        }
    }

    fn write_usize(&mut self, _length: usize) {}
}

/// Returns 128 bits of hash: every 16 bytes go into two of four lanes, each by a multiplication with its own keys.
fn digest(keys: &[u64; 6], frame: &[u8], wire: u32) -> Digest {
    let [mut lanes @ .., even, odd] = *keys;
    let mut absorb = |chunk: &[u8; 32]| {
        let (words, _) = chunk.as_chunks();
        let [a, b, c, d] = std::array::from_fn(|index| u64::from_le_bytes(words[index]));
        lanes = [
            fold(lanes[0] ^ a, even ^ b),
            fold(lanes[1] ^ b, odd ^ a),
            fold(lanes[2] ^ c, even ^ d),
            fold(lanes[3] ^ d, odd ^ c),
        ];
    };
    let (chunks, rest) = frame.as_chunks();
    chunks.iter().for_each(&mut absorb);
    let mut last = [0; 32];
    last[..rest.len()].copy_from_slice(rest);
    absorb(&last);
    let lengths = u64::from(wire) << 32 | frame.len() as u64;
    [fold(lanes[0] ^ lengths, lanes[2] ^ odd), fold(lanes[1] ^ lengths, lanes[3] ^ even)]
}

/// Returns the product with both halves combined.
#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Compares each frame with all that were kept before, within the window.
    fn naive(window: u64, frames: &[(u64, Vec<u8>, u32)]) -> Vec<bool> {
        let mut kept: Vec<usize> = Vec::new();
        let mut newest = 0;
        let mut judge = |index: usize| {
            let (time, frame, wire) = &frames[index];
            newest = newest.max(*time);
            let is_copy = |(kept, other, length): &(u64, Vec<u8>, u32)| {
                newest - kept <= window && kept.abs_diff(*time) <= window && (other, length) == (frame, wire)
            };
            let found = kept.iter().any(|earlier| is_copy(&frames[*earlier]));
            kept.extend((!found).then_some(index));
            found
        };
        (0..frames.len()).map(&mut judge).collect()
    }

    /// Frames of few kinds, so that many are equal; some are up to `late` nanoseconds late.
    fn frames(late: u64) -> impl Strategy<Value = Vec<(u64, Vec<u8>, u32)>> {
        let length = prop::sample::select(vec![0usize, 1, 31, 32, 33, 60, 100]);
        let frame = (0..3u8, length, any::<prop::sample::Index>(), 0..2u32);
        let frame = frame.prop_map(|(kind, length, at, more)| {
            let mut bytes = vec![7; length];
            if length > 0 && kind > 0 {
                bytes[at.index(length) / 30 * 30] = kind;
            }
            (bytes, length as u32 + more)
        });
        prop::collection::vec((0..40u64, 0..=late, any::<bool>(), frame), 0..300).prop_map(|steps| {
            let mut now = 1_000;
            let place = |(step, late, is_late, (bytes, wire))| {
                now += step;
                (now - late * u64::from(is_late), bytes, wire)
            };
            steps.into_iter().map(place).collect()
        })
    }

    fn found(mut dedup: Dedup, frames: &[(u64, Vec<u8>, u32)]) -> Vec<bool> {
        frames.iter().map(|(time, frame, wire)| dedup.is_duplicate(Nanos(*time), frame, *wire)).collect()
    }

    const KEYS: [u64; 6] = [
        0x9e37_79b9_7f4a_7c15,
        0xbf58_476d_1ce4_e5b9,
        0x94d0_49bb_1331_11eb,
        0x2545_f491_4f6c_dd1d,
        0xd6e8_feb8_6659_fd93,
        0xa076_1d64_78bd_642f,
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn dedup_matches_pairwise_comparison(
            (in_order, disordered) in (frames(0), frames(400)),
            window in 0..2000u64,
        ) {
            let dedup = || Dedup::with(Duration::from_nanos(window), usize::MAX, KEYS);
            prop_assert_eq!(found(dedup(), &in_order), naive(window, &in_order));
            prop_assert_eq!(found(dedup(), &disordered), naive(window, &disordered));
        }
    }

    /// Frames, and the indices at which a frame with a wrong time is inserted, or all later times are shifted.
    fn jumps() -> impl Strategy<Value = Vec<(prop::sample::Index, i64)>> {
        let far =
            prop_oneof![Just(-1), Just(1)].prop_flat_map(|way| (1..40i64).prop_map(move |by| way * by * 1_000_000_000));
        prop::collection::vec((any::<prop::sample::Index>(), far), 1..STRETCHES)
    }

    /// Late enough after the epoch for any of them.
    const BASE: u64 = 1_700_000_000_000_000_000;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        /// The naive model sees the frames without those of a wrong time.
        #[test]
        fn frames_with_a_wrong_time_do_not_affect_others(
            frames in frames(400), jumps in jumps(), window in 0..2000u64,
        ) {
            let right: Vec<_> = frames.into_iter().map(|(time, frame, wire)| (BASE + time, frame, wire)).collect();
            let mut mixed: Vec<_> = right.iter().map(|one| (true, one.clone())).collect();
            for (at, by) in jumps {
                let at = at.index(mixed.len() + 1);
                // The same bytes as another frame.
                let like = mixed.get(at.saturating_sub(1)).map_or((BASE, vec![7; 60], 60), |(_, one)| one.clone());
                mixed.insert(at, (false, ((BASE + at as u64).saturating_add_signed(by), like.1, like.2)));
            }
            let shown: Vec<_> = mixed.iter().map(|(_, one)| one.clone()).collect();
            let all = found(Dedup::with(Duration::from_nanos(window), usize::MAX, KEYS), &shown);
            let of_right: Vec<bool> = mixed.iter().zip(all).filter(|((right, _), _)| *right).map(|(_, found)| found).collect();
            prop_assert_eq!(of_right, naive(window, &right));
        }

        /// The clock is set: frames are compared with those of their own time, and others make no difference.
        #[test]
        fn frames_after_a_clock_step_are_compared_with_each_other(
            parts in prop::collection::vec((frames(400), 1..40i64, any::<bool>()), 2..5), window in 0..2000u64,
        ) {
            let (mut base, mut all, mut expected) = (BASE, Vec::new(), Vec::new());
            for (number, (frames, by, back)) in parts.into_iter().enumerate() {
                // Parts do not overlap in time.
                let step = by * 100i64.pow(number as u32) * 1_000_000_000;
                base = base.saturating_add_signed(if back { -step } else { step });
                let part: Vec<_> = frames.into_iter().map(|(time, frame, wire)| (base + time, frame, wire)).collect();
                expected.extend(naive(window, &part));
                all.extend(part);
            }
            prop_assert_eq!(found(Dedup::with(Duration::from_nanos(window), usize::MAX, KEYS), &all), expected);
        }
    }

    #[test]
    fn one_wrong_time_hides_no_duplicate() {
        for wrong in [BASE + (400 * 86_400_000_000_000), 0] {
            let mut dedup = Dedup::with(WINDOW, MOST, KEYS);
            let mut show = |time: u64, kind: u8| dedup.is_duplicate(Nanos(time), &[kind; 60], 60);
            assert!(!show(BASE, 1) && !show(wrong, 2) && show(BASE + 1000, 1));
            for kind in 3..250 {
                let time = BASE + u64::from(kind) * 1_000_000;
                assert!(!show(time, kind) && show(time + 5000, kind), "{kind}");
            }
            assert!(show(wrong + 3, 2), "copies of it are found too");
        }
    }

    #[test]
    fn memory_is_bounded_across_time_steps() {
        let mut dedup = Dedup::with(Duration::from_nanos(1000), 8, KEYS);
        for round in 0..1000u64 {
            let time = BASE + round % 7 * 1_000_000_000 + round;
            assert!(!dedup.is_duplicate(Nanos(time), &round.to_ne_bytes(), 8));
            assert!(dedup.stretches.len() <= STRETCHES);
            assert!(dedup.stretches.iter().map(|one| one.kept.len().max(one.order.len())).sum::<usize>() <= 8);
        }
    }

    #[test]
    fn every_byte_and_both_lengths_count() {
        let keys = Dedup::new(WINDOW).keys;
        for length in [1, 15, 16, 31, 32, 33, 64, 65, 1514] {
            let frame = vec![0; length];
            let known = digest(&keys, &frame, length as u32);
            assert_ne!(digest(&keys, &frame, length as u32 + 1), known);
            assert_ne!(digest(&keys, &frame[1..], length as u32), known, "a byte less, of zeros");
            for at in 0..length {
                let mut other = frame.clone();
                other[at] = 1;
                let other = digest(&keys, &other, length as u32);
                assert!(other[0] != known[0] && other[1] != known[1], "byte {at} of {length}");
            }
        }
        assert_ne!(Dedup::new(WINDOW).keys, keys, "each run has keys of its own");
    }

    #[test]
    fn memory_is_bounded_and_early_evictions_are_counted() {
        let mut dedup = Dedup::with(Duration::from_nanos(1000), 8, KEYS);
        let mut show = |time: u64, kind: u8| dedup.is_duplicate(Nanos(time), &[kind; 60], 60);
        assert!((0..8).all(|kind| !show(u64::from(kind), kind)));
        assert!((0..8).all(|kind| show(10, kind)), "as many as there is room for are known");
        assert!(!show(11, 8) && !show(12, 0), "one more takes the place of the oldest");
        assert!(!show(5000, 9), "those whose time is over make room");
        let stretch = &dedup.stretches[0];
        assert_eq!((dedup.evicted(), stretch.kept.len(), stretch.order.len()), (2, 1, 1));
    }
}
