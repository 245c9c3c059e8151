//! Frames that come twice: from two taps, or from a mirror port that copies what comes in and what goes out.

use linerate_burst::Nanos;
use std::hash::{BuildHasher, RandomState};

/// How long a frame is remembered unless a span is given: 10 ms. Taps of one link differ by microseconds, a mirror port
/// by the time its buffer takes to drain, some milliseconds. What senders repeat on purpose mostly differs, in IP
/// identification or TCP time stamp; where nothing does, as in equal acknowledgements over IPv6, it comes a round trip
/// later, so that a longer span (packet brokers go up to 50 ms and more) would take more of it for copies.
pub const WINDOW: std::time::Duration = std::time::Duration::from_millis(10);

/// Remembers frames for some time.
///
/// A frame is a duplicate if one with the same bytes and lengths was kept within the window, before or (where it comes
/// late) after its own time. Frames are compared by 64 bits of a hash of 128; another part of it says which few frames
/// it is compared with. So two different frames are taken for the same with odds of 8 in 2^64: once in 700 years at
/// 100 M frames/s. The keys of the hash are drawn for each run, so that nobody can make frames that hide others.
///
/// Memory is bounded: 16 MiB for a million frames, the window at 100 M frames/s. Where there are more, the oldest of
/// eight is forgotten, and counted.
pub(super) struct Dedup {
    window: u64,
    keys: [u64; 6],
    buckets: Vec<Bucket>,
    forgotten: u64,
}

/// Frames that share a part of their hash: two cache lines.
#[derive(Clone)]
#[repr(align(64))]
struct Bucket {
    /// The other part of the hash; 0 where there is no frame.
    tags: [u64; WAYS],
    times: [u64; WAYS],
}

const WAYS: usize = 8;
const BUCKETS: usize = 1 << 17;

impl Dedup {
    pub fn new(window: std::time::Duration) -> Self {
        let random = RandomState::new();
        let keys = std::array::from_fn(|index| random.hash_one(index));
        Dedup::with(window, BUCKETS, keys)
    }

    /// With a power of two of buckets.
    fn with(window: std::time::Duration, buckets: usize, keys: [u64; 6]) -> Self {
        let window = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        let empty = Bucket { tags: [0; WAYS], times: [0; WAYS] };
        Dedup { window, keys, buckets: vec![empty; buckets], forgotten: 0 }
    }

    /// Whether this frame, of `wire` bytes on the wire, was kept before; if not, it is kept now.
    pub fn is_duplicate(&mut self, time: Nanos, frame: &[u8], wire: u32) -> bool {
        let [place, tag] = digest(&self.keys, frame, wire);
        let tag = tag.max(1);
        let last = self.buckets.len() - 1;
        let Some(bucket) = self.buckets.get_mut(place as usize & last) else { return false };
        let mut oldest = (true, u64::MAX, 0);
        for (way, (known, kept)) in bucket.tags.iter().zip(bucket.times).enumerate() {
            if *known == tag && time.0.abs_diff(kept) <= self.window {
                return true;
            }
            oldest = oldest.min((*known != 0, kept, way));
        }
        let (is_frame, kept, way) = oldest;
        self.forgotten += u64::from(is_frame && time.0.abs_diff(kept) <= self.window);
        (bucket.tags[way], bucket.times[way]) = (tag, time.0);
        false
    }

    /// Frames that made room for others before their time.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

/// 128 bits of hash: every 16 bytes go into two of four lanes, each by a multiplication with keys of its own.
fn digest(keys: &[u64; 6], frame: &[u8], wire: u32) -> [u64; 2] {
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

/// Both halves of the product.
#[inline(always)]
fn fold(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    /// Compares each frame with all that were kept.
    fn naive(window: u64, frames: &[(u64, Vec<u8>, u32)]) -> Vec<bool> {
        let mut kept: Vec<&(u64, Vec<u8>, u32)> = Vec::new();
        let is_duplicate = |frame: &(u64, Vec<u8>, u32), kept: &[&(u64, Vec<u8>, u32)]| {
            kept.iter().any(|one| one.1 == frame.1 && one.2 == frame.2 && one.0.abs_diff(frame.0) <= window)
        };
        let judge = |frame| {
            let duplicate = is_duplicate(frame, &kept);
            if !duplicate {
                kept.push(frame);
            }
            duplicate
        };
        frames.iter().map(judge).collect()
    }

    /// Frames of few kinds, so that many are equal, in about the order of their times.
    fn frames() -> impl Strategy<Value = Vec<(u64, Vec<u8>, u32)>> {
        let frame =
            (0..3u8, prop::sample::select(vec![0usize, 1, 31, 32, 33, 60, 100]), any::<prop::sample::Index>(), 0..2u32);
        let frame = frame.prop_map(|(kind, length, at, more)| {
            let mut bytes = vec![7; length];
            if let (Some(at), true) = ((length > 0).then(|| at.index(length)), kind > 0) {
                bytes[at / 30 * 30] = kind;
            }
            (bytes, length as u32 + more)
        });
        prop::collection::vec((0..40u64, 0..30u64, frame), 0..200).prop_map(|steps| {
            let mut now = 1000;
            let place = |(step, late, (bytes, wire))| {
                now += step;
                (now - late * u64::from(late > 20), bytes, wire)
            };
            steps.into_iter().map(place).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn what_is_taken_out_is_what_comparing_all_with_all_takes_out(frames in frames(), window in 0..300u64) {
            let mut dedup = Dedup::with(Duration::from_nanos(window), 1 << 10, [1, 2, 3, 4, 5, 6].map(|key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
            let found: Vec<bool> = frames.iter().map(|(time, frame, wire)| dedup.is_duplicate(Nanos(*time), frame, *wire)).collect();
            prop_assert_eq!((found, dedup.forgotten()), (naive(window, &frames), 0));
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
    fn memory_is_bounded_and_what_is_forgotten_early_is_counted() {
        let mut dedup = Dedup::with(Duration::from_nanos(1000), 1, [3, 5, 7, 11, 13, 17].map(|key| key << 40 | key));
        let mut show = |time: u64, kind: u8| dedup.is_duplicate(Nanos(time), &[kind; 60], 60);
        assert!((0..8).all(|kind| !show(u64::from(kind), kind)));
        assert!((0..8).all(|kind| show(10, kind)), "as many as there is room for are known");
        assert!(!show(11, 8) && !show(12, 0), "one more takes the place of the oldest");
        assert!(!show(5000, 9), "the places of those whose time is over are free");
        assert_eq!(dedup.forgotten(), 2);
    }
}
