//! Frames that come twice: from two taps, or from a mirror port that copies what comes in and what goes out.

use linerate_burst::Nanos;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// How long a frame is remembered unless a span is given: 10 ms. Taps of one link differ by microseconds, a mirror port
/// by the time its buffer takes to drain, some milliseconds. What senders repeat on purpose mostly differs, in IP
/// identification or TCP time stamp; where nothing does, as in equal acknowledgements over IPv6, it comes a round trip
/// later, so that a longer span (packet brokers go up to 50 ms and more) would take more of it for copies.
pub const WINDOW: Duration = Duration::from_millis(10);

/// Remembers frames for some time.
///
/// A frame is a duplicate if one with the same bytes and lengths was kept within the window before or, where it comes
/// late, after its own time. Remembered are the frames of the window up to the newest time, so what comes later than
/// that is compared with those alone.
///
/// Frames are compared by 128 bits of hash: two different ones are taken for the same with odds of some 1 in 10^32 for a
/// million frames in the window. Its keys are drawn for each run, so that frames that hide others cannot be made beforehand.
///
/// Memory is bounded: at most [`MOST`] frames, some 50 MiB. Where there are more the oldest is forgotten, and counted.
pub(super) struct Dedup {
    window: u64,
    most: usize,
    keys: [u64; 6],
    /// The greatest time there was.
    newest: u64,
    /// When each frame was kept.
    kept: HashMap<Digest, u64, Spread>,
    /// The same in the order in which they came.
    order: VecDeque<(u64, Digest)>,
    forgotten: u64,
}

/// The hash of a frame.
type Digest = [u64; 2];

/// Frames remembered at most: 10 ms at 52 M frames/s.
const MOST: usize = 1 << 19;

impl Dedup {
    pub fn new(window: Duration) -> Self {
        let random = RandomState::new();
        Dedup::with(window, MOST, std::array::from_fn(|index| random.hash_one(index)))
    }

    fn with(window: Duration, most: usize, keys: [u64; 6]) -> Self {
        let window = u64::try_from(window.as_nanos()).unwrap_or(u64::MAX);
        let (kept, order) = (HashMap::default(), VecDeque::new());
        Dedup { window, most, keys, newest: 0, kept, order, forgotten: 0 }
    }

    /// Whether this frame, of `wire` bytes on the wire, was kept before; if not, it is kept now.
    pub fn is_duplicate(&mut self, time: Nanos, frame: &[u8], wire: u32) -> bool {
        self.newest = self.newest.max(time.0);
        while let Some((kept, _)) = self.order.front()
            && self.newest - kept > self.window
        {
            self.forget();
        }
        let digest = digest(&self.keys, frame, wire);
        match self.kept.entry(digest) {
            // Only a frame that is late can be farther from one of the window.
            Entry::Occupied(entry) if self.newest - entry.get() <= self.window => {
                return entry.get().abs_diff(time.0) <= self.window;
            }
            entry => entry.insert_entry(time.0),
        };
        self.order.push_back((time.0, digest));
        if self.order.len() > self.most {
            self.forget();
            self.forgotten += 1;
        }
        false
    }

    /// Frames that made room for others before their time.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Forgets the frame that came first, unless it was kept again since.
    fn forget(&mut self) {
        if let Some((time, digest)) = self.order.pop_front()
            && let Entry::Occupied(entry) = self.kept.entry(digest)
            && *entry.get() == time
        {
            entry.remove();
        }
    }
}

/// Takes a part of a digest as it is: it is a hash already.
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

/// 128 bits of hash: every 16 bytes go into two of four lanes, each by a multiplication with keys of its own.
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

    /// Compares each frame with all that were kept before, but for those that the window has left behind.
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

    /// Frames of few kinds, so that many are equal; some come up to `late` nanoseconds late.
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
        fn what_is_taken_out_is_what_comparing_all_with_all_takes_out(
            (in_order, disordered) in (frames(0), frames(400)),
            window in 0..2000u64,
        ) {
            let dedup = || Dedup::with(Duration::from_nanos(window), usize::MAX, KEYS);
            prop_assert_eq!(found(dedup(), &in_order), naive(window, &in_order));
            prop_assert_eq!(found(dedup(), &disordered), naive(window, &disordered));
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
        let mut dedup = Dedup::with(Duration::from_nanos(1000), 8, KEYS);
        let mut show = |time: u64, kind: u8| dedup.is_duplicate(Nanos(time), &[kind; 60], 60);
        assert!((0..8).all(|kind| !show(u64::from(kind), kind)));
        assert!((0..8).all(|kind| show(10, kind)), "as many as there is room for are known");
        assert!(!show(11, 8) && !show(12, 0), "one more takes the place of the oldest");
        assert!(!show(5000, 9), "those whose time is over make room");
        assert_eq!((dedup.forgotten(), dedup.kept.len(), dedup.order.len()), (2, 1, 1));
    }
}
