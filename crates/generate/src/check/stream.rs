//! The state of one stream: 2 KB at most, of which a frame in order touches two cache lines.

use super::histogram::Histogram;
use super::loss_timeout::{Ages, Gaps};

/// Window below the highest sequence number within which received frames are known, in frames.
pub const WINDOW: u64 = 1024;
const WORDS: usize = WINDOW as usize / 64;

/// One frame of a stream.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrival {
    /// Sequence number.
    pub sequence: u64,
    /// Receive time, nanoseconds of UTC.
    pub time: u64,
    /// Latency in nanoseconds.
    pub latency: i64,
    /// Histogram bucket of the latency.
    pub bucket: usize,
    /// Bytes on the wire.
    pub bytes: u32,
    /// True if a checksum over it is wrong.
    pub corrupted: bool,
}

/// Frames received of a stream, in order of arrival.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Stream {
    // Changed by every frame: one cache line.
    /// Next expected number: the highest sequence number plus one.
    pub next: u64,
    /// Bytes of all frames.
    pub bytes: u64,
    /// Latest receive time.
    pub last: u64,
    /// Latency of the frame with the highest number.
    latency: i64,
    /// Minimum and maximum latency.
    pub least: i64,
    pub most: i64,
    /// Sum over all pairs (see [`Stream::pairs`]) of their latency differences, and the maximum difference, limited to
    /// 4.29 s.
    pub variation: u64,
    pub variation_max: u32,
    /// Missing numbers within the window.
    holes: u32,

    // Changed only by frames out of order.
    /// First receive time.
    pub first: u64,
    /// Lowest sequence number.
    pub lowest: u64,
    /// Missing numbers below `next`.
    pub missing: u64,
    /// Number of times `next` was raised by a frame whose predecessor was not received right before it; the first frame
    /// counts.
    breaks: u64,
    /// Frames received after one with a greater number.
    pub reordered: u64,
    /// Maximum number of frames with greater numbers received before a reordered one.
    pub extent: u32,
    /// Turn of the last gap.
    turn: u32,
    /// Frames received before.
    pub duplicated: u64,
    /// Frames from before the window: whether they were received before is unknown.
    pub stale: u64,
    /// Frames with wrong checksums.
    pub corrupted: u64,
    /// Gaps that may be young.
    gaps: Gaps,
    /// A bit for each number of the window, by its lower bits: set if missing.
    window: [u64; WORDS],
    /// Latencies, duplicates and stale frames excluded.
    pub latencies: Histogram,
}

// An odd number of cache lines: with a power of two the first lines of all streams would share few cache sets.
const _: () = assert!(size_of::<Stream>() == 31 * 64);

/// Changes of the counts by one frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Change of the number of missing frames.
    pub missing: i64,
    /// The frame itself was reordered, duplicated or stale.
    pub reordered: bool,
    pub duplicated: bool,
    pub stale: bool,
}

impl Stream {
    pub(super) const NEW: Stream = Stream {
        next: 0,
        bytes: 0,
        last: 0,
        latency: 0,
        least: i64::MAX,
        most: i64::MIN,
        variation: 0,
        variation_max: 0,
        holes: 0,
        first: 0,
        lowest: u64::MAX,
        missing: 0,
        breaks: 0,
        reordered: 0,
        extent: 0,
        turn: 0,
        duplicated: 0,
        stale: 0,
        corrupted: 0,
        gaps: Gaps::NONE,
        window: [0; WORDS],
        latencies: Histogram::EMPTY,
    };

    /// Counts a frame; `Some` unless it was the next expected one.
    #[inline(always)]
    pub(super) fn take(&mut self, arrival: &Arrival, ages: &mut Ages) -> Option<Change> {
        self.bytes += u64::from(arrival.bytes);
        self.last = self.last.max(arrival.time);
        if arrival.sequence != self.next || self.holes > 0 || self.next == 0 || arrival.corrupted {
            return Some(self.add_out_of_order(arrival, ages));
        }
        self.next += 1;
        self.follow(arrival);
        self.note_latency(arrival);
        None
    }

    /// Returns the number of distinct frames received.
    pub(super) fn distinct(&self) -> u64 {
        self.next - self.missing
    }

    /// Returns the number of frames received.
    pub(super) fn received(&self) -> u64 {
        self.distinct() + self.duplicated + self.stale
    }

    /// Returns the number of pairs of frames with consecutive numbers received in direct succession: those of which the
    /// delay variation is known.
    pub(super) fn pairs(&self) -> u64 {
        self.distinct() - self.reordered - self.breaks
    }

    /// Returns the frames that are lost by now: those below the highest number, and those sent long enough ago.
    pub(super) fn lost(&self, ages: &Ages) -> u64 {
        self.missing - self.gaps.young(self.turn, ages) + self.gaps.lost_below.saturating_sub(self.next)
    }

    /// Records that `sent` frames had been sent [`AGE`](super::loss_timeout::AGE) ago.
    pub(super) fn judge(&mut self, sent: u64, ages: &mut Ages) {
        if sent >= self.next.max(1) {
            self.gaps.settle(self.turn, ages);
            self.gaps.lost_below = self.gaps.lost_below.max(sent);
        }
    }

    /// Closes the stream: frames missing now stay missing.
    pub(super) fn close(&mut self, ages: &mut Ages) {
        self.gaps.settle(self.turn, ages);
    }

    #[inline(never)]
    fn add_out_of_order(&mut self, arrival: &Arrival, ages: &mut Ages) -> Change {
        let sequence = arrival.sequence;
        self.corrupted += u64::from(arrival.corrupted);
        if self.lowest == u64::MAX {
            self.first = arrival.time;
        }
        self.lowest = self.lowest.min(sequence);
        if sequence >= self.next {
            return self.raise(arrival, ages);
        }
        if self.next - sequence > WINDOW {
            self.stale += 1;
            return Change { stale: true, ..Change::default() };
        }
        if !self.is_missing(sequence) {
            self.duplicated += 1;
            return Change { duplicated: true, ..Change::default() };
        }
        let still_missing = (sequence + 1..self.next).filter(|number| self.is_missing(*number)).count() as u64;
        // At most the window size.
        self.extent = self.extent.max((self.next - 1 - sequence - still_missing) as u32);
        self.gaps.close(sequence, self.turn, ages);
        self.window[word(sequence)] &= !bit(sequence);
        self.holes -= 1;
        self.missing -= 1;
        self.reordered += 1;
        self.note_latency(arrival);
        Change { missing: -1, reordered: true, ..Change::default() }
    }

    /// Counts a frame with a new highest number.
    fn raise(&mut self, arrival: &Arrival, ages: &mut Ages) -> Change {
        let gap = arrival.sequence - self.next;
        self.gaps.open(self.next, arrival.sequence, &mut self.turn, ages);
        if gap >= WINDOW {
            self.window = [u64::MAX; WORDS];
            self.holes = WINDOW as u32;
        } else {
            (self.next..arrival.sequence).for_each(|number| self.set(number, true));
        }
        self.set(arrival.sequence, false);
        self.missing += gap;
        if gap == 0 && self.next > 0 {
            self.follow(arrival);
        } else {
            self.breaks += 1;
        }
        self.next = arrival.sequence + 1;
        self.latency = arrival.latency;
        self.note_latency(arrival);
        Change { missing: gap as i64, ..Change::default() }
    }

    /// Counts a frame whose predecessor had the highest number.
    #[inline(always)]
    fn follow(&mut self, arrival: &Arrival) {
        let variation = arrival.latency.abs_diff(self.latency);
        self.variation += variation;
        self.variation_max = self.variation_max.max(variation.min(u32::MAX.into()) as u32);
        self.latency = arrival.latency;
    }

    #[inline(always)]
    fn note_latency(&mut self, arrival: &Arrival) {
        self.least = self.least.min(arrival.latency);
        self.most = self.most.max(arrival.latency);
        self.latencies.add(arrival.bucket);
    }

    fn is_missing(&self, sequence: u64) -> bool {
        self.window[word(sequence)] & bit(sequence) != 0
    }

    /// Puts a number into the window, in place of the one that leaves it.
    fn set(&mut self, sequence: u64, missing: bool) {
        let was_missing = self.is_missing(sequence);
        let place = &mut self.window[word(sequence)];
        *place = if missing { *place | bit(sequence) } else { *place & !bit(sequence) };
        self.holes = self.holes + u32::from(missing) - u32::from(was_missing);
    }
}

#[inline(always)]
fn word(sequence: u64) -> usize {
    (sequence / 64) as usize % WORDS
}

#[inline(always)]
fn bit(sequence: u64) -> u64 {
    1 << (sequence % 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::histogram::bucket;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Reference implementation over the list of all numbers, in order of arrival.
    #[derive(Debug, Default, PartialEq)]
    struct Naive {
        distinct: u64,
        missing: u64,
        duplicated: u64,
        reordered: u64,
        extent: u32,
        stale: u64,
        pairs: u64,
        variation: u64,
        latencies: usize,
    }

    fn naive(arrivals: &[Arrival]) -> Naive {
        let mut naive = Naive::default();
        let mut received: BTreeSet<u64> = BTreeSet::new();
        let mut highest: Option<Arrival> = None;
        for arrival in arrivals {
            let sequence = arrival.sequence;
            let next = highest.map_or(0, |one| one.sequence + 1);
            if sequence + WINDOW < next {
                naive.stale += 1;
            } else if !received.insert(sequence) {
                naive.duplicated += 1;
            } else if sequence < next {
                naive.reordered += 1;
                naive.extent = naive.extent.max(received.range(sequence + 1..).count() as u32);
            }
            if sequence >= next {
                if let Some(before) = highest.filter(|_| sequence == next) {
                    naive.pairs += 1;
                    naive.variation += arrival.latency.abs_diff(before.latency);
                }
                highest = Some(*arrival);
            }
        }
        naive.distinct = received.len() as u64;
        naive.missing = highest.map_or(0, |one| one.sequence + 1) - naive.distinct;
        naive.latencies = received.len();
        naive
    }

    fn arrival(sequence: u64, latency: i64) -> Arrival {
        Arrival { sequence, time: 5, latency, bucket: bucket(latency), bytes: 60, corrupted: false }
    }

    fn run(arrivals: &[Arrival]) -> (Stream, Naive) {
        let mut stream = Stream::NEW;
        let (mut missing, mut ages) = (0, Ages::new());
        for arrival in arrivals {
            missing += stream.take(arrival, &mut ages).unwrap_or_default().missing;
        }
        assert_eq!(missing, stream.missing as i64);
        let found = Naive {
            distinct: stream.distinct(),
            missing: stream.missing,
            duplicated: stream.duplicated,
            reordered: stream.reordered,
            extent: stream.extent,
            stale: stream.stale,
            pairs: stream.pairs(),
            variation: stream.variation,
            latencies: stream.latencies.total() as usize,
        };
        (stream, found)
    }

    #[test]
    fn irregular_frames_are_classified() {
        let sequences = [0, 1, 3, 2, 2, 5, 9, 4, 2000, 1999, 100, 2000, 977, 976];
        let arrivals: Vec<Arrival> = sequences.map(|sequence| arrival(sequence, 10)).into();
        let (stream, found) = run(&arrivals);
        assert_eq!(found, naive(&arrivals));
        assert_eq!((stream.received(), stream.lowest, stream.duplicated, stream.stale), (14, 0, 2, 2));
        assert_eq!((stream.reordered, stream.extent), (4, 2));
        assert_eq!(stream.missing, 2001 - 10);
    }

    #[test]
    fn joined_in_the_middle() {
        let (stream, found) = run(&[arrival(1 << 39, 7), arrival((1 << 39) - 2, 7)]);
        assert_eq!((found.missing, stream.lowest), ((1 << 39) - 1, (1 << 39) - 2));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        /// In order but for jumps, forwards and backwards, near and far.
        #[test]
        fn counts_match_the_definitions(
            steps in prop::collection::vec(
                (prop_oneof![20 => Just(1i64), 3 => -5i64..6, 2 => -1100i64..1100, 1 => -3000i64..3000], 0i64..5000), 0..600,
            ),
            start in prop_oneof![Just(0i64), Just(1), Just(5000)],
        ) {
            let mut at = start - 1;
            let arrivals: Vec<Arrival> = steps.iter().map(|(step, latency)| {
                at = (at + step).max(0);
                arrival(at as u64, *latency)
            }).collect();
            let (stream, found) = run(&arrivals);
            prop_assert_eq!(found, naive(&arrivals));
            prop_assert_eq!(stream.received(), arrivals.len() as u64);
            prop_assert_eq!(stream.bytes, 60 * arrivals.len() as u64);
        }
    }
}
