//! Lengths and gaps of one direction, in one cache line.

use super::records::has_content;
use super::{StatsSide, SummaryStatistics, options};
use crate::facts::Facts;
use crate::flow::Side;

/// Line that every packet of its direction touches. Counters are narrow; overflow is carried to a [`LineOverflow`].
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(super) struct Line {
    lengths: [u16; BINS],
    /// Without the first bin, which is derived from the others: all packets that count in `lengths` but one have a gap.
    gaps: [u16; BINS - 1],
    longest: u16,
    /// Sum of squares of gaps, ns².
    gap_squares: f64,
    /// The millisecond of the latest packet that counts in `lengths`, and in the lowest bit whether the timestamp
    /// option was seen.
    last: u32,
    shortest: u16,
    length_squares: Word48,
    gap_least: Word48,
    gap_most: Word48,
}

const _: () = assert!(size_of::<Line>() == 64);

/// Bins of a histogram: the first to 15, the last from 1,024.
const BINS: usize = 8;
const MILLISECOND: u64 = 1_000_000;
/// Flag in `Line::last`.
const TIMESTAMPS: u32 = 1;

/// Overflow of a line.
#[derive(Clone, Copy, Default)]
pub(super) struct LineOverflow {
    lengths: [u64; BINS],
    gaps: [u64; BINS - 1],
    length_squares: u128,
}

/// Contribution of a packet.
struct PacketDelta {
    /// Bin of its payload, if it has any, and of its gap, if that is not in the first.
    length: Option<usize>,
    gap: Option<usize>,
    square: u64,
}

impl Line {
    pub(super) const NONE: Line = Line {
        lengths: [0; BINS],
        gaps: [0; BINS - 1],
        longest: 0,
        gap_squares: 0.0,
        last: 0,
        shortest: u16::MAX,
        length_squares: Word48::of(0),
        gap_least: Word48::of(Word48::MAX),
        gap_most: Word48::of(0),
    };

    /// Counts a packet that arrived `gap` ns after all earlier ones, if there were any. Overflow is carried to the
    /// result of `carried`.
    #[inline(always)]
    pub(super) fn count<'a>(
        &mut self,
        facts: &Facts,
        gap: Option<u64>,
        carried: impl FnOnce() -> &'a mut LineOverflow,
    ) {
        let length = u16::try_from(facts.packet).unwrap_or(u16::MAX);
        self.shortest = self.shortest.min(length);
        self.longest = self.longest.max(length);
        if let Some(gap) = gap {
            self.gap_squares += gap as f64 * gap as f64;
            if gap < self.gap_least.get() {
                self.gap_least = Word48::of(gap);
            }
            if gap > self.gap_most.get() {
                self.gap_most = Word48::of(gap);
            }
        }
        let added = self.added(facts);
        if !self.add(&added) {
            self.carry(carried(), &added);
        }
    }

    /// Returns the bins of a packet; updates `last`.
    #[inline(always)]
    fn added(&mut self, facts: &Facts) -> PacketDelta {
        let square = u64::from(facts.packet) * u64::from(facts.packet);
        if !has_content(facts) {
            return PacketDelta { length: None, gap: None, square };
        }
        let now = ((facts.time / MILLISECOND) as u32) << 1;
        let since = now.wrapping_sub(self.last & !TIMESTAMPS) as i32 / 2;
        let is_first = self.lengths == [0; BINS];
        self.last = now | self.last & TIMESTAMPS;
        let gap = if is_first { 0 } else { bin(since.max(0) as u32) };
        PacketDelta { length: Some(bin(facts.payload)), gap: gap.checked_sub(1), square }
    }

    /// Adds a packet; false, and nothing added, if it does not fit.
    #[inline(always)]
    fn add(&mut self, added: &PacketDelta) -> bool {
        let squares = self.length_squares.get() + added.square.min(Word48::MAX + 1);
        let is_full = |bins: &[u16], bin: Option<usize>| bin.is_some_and(|bin| bins[bin] == u16::MAX);
        if squares > Word48::MAX || is_full(&self.lengths, added.length) || is_full(&self.gaps, added.gap) {
            return false;
        }
        self.length_squares = Word48::of(squares);
        if let Some(bin) = added.length {
            self.lengths[bin] += 1;
        }
        if let Some(bin) = added.gap {
            self.gaps[bin] += 1;
        }
        true
    }

    /// Carries all but one packet, which shows that there were some.
    #[cold]
    #[inline(never)]
    fn carry(&mut self, carried: &mut LineOverflow, added: &PacketDelta) {
        let bins = |sums: &mut [u64], counts: &mut [u16], added: Option<usize>| {
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += u64::from(std::mem::take(count)));
            if let Some(bin) = added {
                sums[bin] += 1;
            }
        };
        bins(&mut carried.lengths, &mut self.lengths, added.length);
        bins(&mut carried.gaps, &mut self.gaps, added.gap);
        carried.length_squares += u128::from(self.length_squares.get()) + u128::from(added.square);
        self.length_squares = Word48::of(0);
        if let Some(bin) = carried.lengths.iter().position(|count| *count > 0) {
            carried.lengths[bin] -= 1;
            self.lengths[bin] = 1;
        }
    }

    /// Returns whether these kinds of options were seen before; the timestamp option is recorded here.
    #[inline(always)]
    pub(super) fn knows(&mut self, kinds: u64) -> bool {
        if kinds != options::TIMESTAMPS {
            return kinds == 0;
        }
        let before = self.last;
        self.last |= TIMESTAMPS;
        before & TIMESTAMPS != 0
    }

    /// Returns the statistics of a direction that is `side`.
    pub(super) fn side(&self, carried: &LineOverflow, side: &Side) -> StatsSide {
        if side.packets == 0 {
            return StatsSide::default();
        }
        let lengths: [u64; BINS] = std::array::from_fn(|bin| carried.lengths[bin] + u64::from(self.lengths[bin]));
        let mut gaps = [0; BINS];
        for (bin, sum) in gaps.iter_mut().enumerate().skip(1) {
            *sum = carried.gaps[bin - 1] + u64::from(self.gaps[bin - 1]);
        }
        gaps[0] = lengths.iter().sum::<u64>().saturating_sub(1 + gaps.iter().sum::<u64>());
        let squares = carried.length_squares + u128::from(self.length_squares.get());
        StatsSide {
            lengths: SummaryStatistics { min: self.shortest.into(), max: self.longest.into(), ..spread(side, squares) },
            gaps: self.gaps(side),
            length_histogram: lengths,
            gap_histogram: gaps,
            ..StatsSide::default()
        }
    }

    fn gaps(&self, side: &Side) -> SummaryStatistics {
        if side.packets < 2 {
            return SummaryStatistics::default();
        }
        let count = (side.packets - 1) as f64;
        let mean = side.last.0.saturating_sub(side.first.0) as f64 / count;
        let variance = (self.gap_squares / count - mean * mean).max(0.0);
        SummaryStatistics { min: self.gap_least.get(), max: self.gap_most.get(), mean, deviation: variance.sqrt() }
    }
}

/// Returns mean and deviation of lengths.
fn spread(side: &Side, squares: u128) -> SummaryStatistics {
    let (count, sum) = (u128::from(side.packets), u128::from(side.packet_bytes));
    let difference = squares.saturating_mul(count).saturating_sub(sum.saturating_mul(sum));
    let mean = side.packet_bytes as f64 / side.packets as f64;
    SummaryStatistics {
        mean,
        deviation: (difference as f64).sqrt() / side.packets as f64,
        ..SummaryStatistics::default()
    }
}

/// Returns the bin of a value: powers of 2 from 16 on.
#[inline(always)]
fn bin(value: u32) -> usize {
    (u32::BITS - value.leading_zeros()).saturating_sub(4).min(BINS as u32 - 1) as usize
}

/// A number of 48 bits; times are at most 16 hours apart, 46 bits of nanoseconds.
#[derive(Clone, Copy)]
#[repr(C, packed(2))]
struct Word48 {
    low: u32,
    high: u16,
}

impl Word48 {
    const MAX: u64 = (1 << 48) - 1;

    const fn of(value: u64) -> Self {
        Word48 { low: value as u32, high: (value >> 32) as u16 }
    }

    fn get(self) -> u64 {
        self.low as u64 | (self.high as u64) << 32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_match_ipfixprobe() {
        let limits = [0, 15, 16, 31, 32, 63, 64, 127, 128, 255, 256, 511, 512, 1023, 1024, u32::MAX];
        assert_eq!(limits.map(bin), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7]);
    }

    /// Frames longer than any real packet.
    #[test]
    fn squares_beyond_a_line_are_carried() {
        let (mut line, mut carried) = (Line::NONE, LineOverflow::default());
        let packets = [u32::MAX, 100, u32::MAX, 1 << 24, 16_777_215];
        for packet in packets {
            line.count(&Facts { packet, payload: 0, ..Facts::NONE }, None, || &mut carried);
        }
        let expected: u128 = packets.iter().map(|packet| u128::from(*packet).pow(2)).sum();
        assert_eq!(carried.length_squares + u128::from(line.length_squares.get()), expected);
        assert_eq!((line.shortest, line.longest), (100, u16::MAX));
    }
}
