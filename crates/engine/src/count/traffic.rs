//! Counters of a stream of frames, from their descs only.

use linerate_burst::{Desc, Nanos, Sizes};
use linerate_generate::rate::L1_OVERHEAD;
use linerate_port::FrameTally;

/// Counters of some frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Number of frames.
    pub frames: u64,
    /// Bytes on the wire, without FCS.
    pub bytes: u64,
    /// Shortest and longest frame, in bytes on the wire without FCS.
    pub lengths: Option<(u32, u32)>,
    /// Number of frames per size class.
    pub sizes: Sizes,
    /// Smallest and greatest time stamp.
    pub span: Option<(Nanos, Nanos)>,
    /// Busiest second.
    pub peak: Peak,
}

impl Traffic {
    /// Adds frames that a queue counted itself, between `before` and `now`; they are spread evenly over that time.
    pub(crate) fn add_tallied(&mut self, before: &(FrameTally, Nanos), now: &(FrameTally, Nanos)) {
        let ((before, since), (now, until)) = (before, now);
        if now == before {
            return;
        }
        // The bytes of a frame may be counted after its number.
        let (frames, bytes) = (now.frames - before.frames, now.bytes - before.bytes);
        let join = |(a, b): (u32, u32), (c, d): (u32, u32)| (a.min(c), b.max(d));
        self.frames += frames;
        self.bytes += bytes;
        self.lengths = now.lengths.map(|new| self.lengths.map_or(new, |known| join(known, new))).or(self.lengths);
        let since = if *since == Nanos::ZERO { until } else { since.min(until) };
        let (first, last) = self.span.unwrap_or((*since, *until));
        self.span = Some((first.min(*since), last.max(*until)));
        for (sum, (now, before)) in self.sizes.0.iter_mut().zip(now.sizes.0.iter().zip(before.sizes.0)) {
            *sum += now - before;
        }
        let (mut from, mut given) = (*since, (0, 0));
        while from.seconds() < until.seconds() {
            let next = Nanos::from_parts(from.seconds() + 1, 0);
            let share = |all: u64| {
                (u128::from(all) * u128::from(next.since(*since).as_nanos() as u64) / until.since(*since).as_nanos())
                    as u64
            };
            let so_far = (share(frames), share(bytes));
            self.peak.add(from.seconds(), so_far.0 - given.0, so_far.1 - given.1);
            (from, given) = (next, so_far);
        }
        self.peak.add(until.seconds(), frames - given.0, bytes - given.1);
    }

    /// Adds frames, of which `tally` was taken.
    pub(crate) fn add(&mut self, descs: &[Desc], tally: &BurstTally) {
        if descs.is_empty() {
            return;
        }
        let (least, most) = self.lengths.unwrap_or((u32::MAX, 0));
        let (first, last) = self.span.unwrap_or((Nanos::MAX, Nanos::ZERO));
        self.frames += tally.frames;
        self.bytes += tally.bytes;
        self.lengths = Some((least.min(tally.least), most.max(tally.most)));
        self.span = Some((first.min(tally.first), last.max(tally.last)));
        for (sum, frames) in self.sizes.0.iter_mut().zip(tally.sizes) {
            *sum += u64::from(frames);
        }
        let second = tally.first.seconds();
        if second == tally.last.seconds() {
            self.peak.add(second, tally.frames, tally.bytes);
        } else {
            for part in descs.chunk_by(|one, next| one.time.seconds() == next.time.seconds()) {
                let bytes = part.iter().map(|desc| u64::from(desc.wire)).sum();
                self.peak.add(part[0].time.seconds(), part.len() as u64, bytes);
            }
        }
    }
}

/// Busiest second, by the frames' own times, from one full second of UTC to the next.
///
/// Two seconds are kept open, since lanes are not perfectly in order; in a file whose times jump to and fro
/// between more of them, each stay counts for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// Most frames in one second.
    pub frames: u64,
    /// Most bytes in one second at layer 1: with preamble, FCS and gap.
    pub l1_bytes: u64,
    open: [Second; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Second {
    number: u64,
    frames: u64,
    l1_bytes: u64,
}

impl Peak {
    fn add(&mut self, number: u64, frames: u64, bytes: u64) {
        if self.open[0].number != number {
            self.open.swap(0, 1);
            if self.open[0].number != number {
                self.open[0] = Second { number, ..Second::default() };
            }
        }
        let second = &mut self.open[0];
        second.frames += frames;
        second.l1_bytes += bytes + frames * L1_OVERHEAD;
        self.frames = self.frames.max(second.frames);
        self.l1_bytes = self.l1_bytes.max(second.l1_bytes);
    }
}

#[derive(Debug)]
pub(crate) struct BurstTally {
    frames: u64,
    bytes: u64,
    least: u32,
    most: u32,
    sizes: [u32; Sizes::BUCKETS],
    first: Nanos,
    last: Nanos,
}

impl BurstTally {
    /// Counts at most 2^32 descs.
    pub(crate) fn of(descs: &[Desc]) -> Self {
        let (mut bytes, mut least, mut most) = (0, u32::MAX, 0);
        let (mut first, mut last) = (Nanos::MAX, Nanos::ZERO);
        // In turn, so that an increment need not wait for the one before it.
        let mut sizes = [[0; Sizes::BUCKETS]; 2];
        for (index, desc) in descs.iter().enumerate() {
            bytes += u64::from(desc.wire);
            (least, most) = (least.min(desc.wire), most.max(desc.wire));
            (first, last) = (first.min(desc.time), last.max(desc.time));
            sizes[index % 2][Sizes::bucket(desc.wire) % Sizes::BUCKETS] += 1;
        }
        let sizes = std::array::from_fn(|bucket| sizes[0][bucket] + sizes[1][bucket]);
        BurstTally { frames: descs.len() as u64, bytes, least, most, sizes, first, last }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn desc(time: u64, wire: u32) -> Desc {
        Desc { wire, ..Desc::new(Nanos(time), 0, 0) }
    }

    fn count(bursts: &[&[Desc]]) -> Traffic {
        let mut traffic = Traffic::default();
        bursts.iter().for_each(|descs| traffic.add(descs, &BurstTally::of(descs)));
        traffic
    }

    /// RFC 2819, restated.
    fn bucket(wire: u32) -> (u32, Option<u32>) {
        match u64::from(wire) + 4 {
            0..=63 => (0, Some(63)),
            64 => (64, Some(64)),
            65..=127 => (65, Some(127)),
            128..=255 => (128, Some(255)),
            256..=511 => (256, Some(511)),
            512..=1023 => (512, Some(1023)),
            1024..=1518 => (1024, Some(1518)),
            _ => (1519, None),
        }
    }

    #[test]
    fn every_length_is_in_its_bucket() {
        for wire in (0..3000).chain([65_549, u32::MAX - 3, u32::MAX]) {
            let filled: Vec<_> = count(&[&[desc(0, wire)]]).sizes.buckets().filter(|bucket| bucket.2 > 0).collect();
            let (least, most) = bucket(wire);
            assert_eq!(filled, [(least, most, 1)], "{wire}");
        }
    }

    #[test]
    fn empty_input_has_zero_counts() {
        assert_eq!(count(&[&[], &[]]), Traffic::default());
        assert_eq!(Traffic::default().sizes.buckets().map(|bucket| bucket.2).sum::<u64>(), 0);
    }

    #[test]
    fn second_stays_open_when_the_next_one_starts() {
        let s = 1_000_000_000;
        let traffic =
            count(&[&[desc(s, 60), desc(2 * s, 60)], &[desc(s + 5, 60), desc(2 * s + 1, 60), desc(s + 9, 76)]]);
        assert_eq!((traffic.peak.frames, traffic.peak.l1_bytes), (3, 3 * 84 + 16));
    }

    #[test]
    fn queue_counters_are_spread_over_the_polling_interval() {
        let s = 1_000_000_000;
        let tallied = |frames: u64, late: u64| FrameTally {
            frames,
            bytes: 60 * (frames - late),
            lengths: Some((60, 60)),
            sizes: Sizes([0, frames - late, 0, 0, 0, 0, 0, 0]),
        };
        let mut traffic = Traffic::default();
        let looks = [(0, 0, 0), (10, 0, s), (40, 0, s + s / 2), (140, 1, 3 * s), (140, 0, 4 * s)];
        let looks = looks.map(|(frames, late, at)| (tallied(frames, late), Nanos(at)));
        looks.windows(2).for_each(|pair| traffic.add_tallied(&pair[0], &pair[1]));
        // Of 100 frames in one and a half seconds the first half second has a third, and 40 before.
        assert_eq!((traffic.frames, traffic.bytes, traffic.sizes.0[1]), (140, 60 * 140, 140));
        assert_eq!((traffic.peak.frames, traffic.span), (73, Some((Nanos(s), Nanos(4 * s)))));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn bulk_counts_match_single_frames(
            steps in prop::collection::vec((0u64..400_000_000, prop_oneof![0u32..2000, any::<u32>()]), 0..200),
            cuts in prop::collection::vec(0usize..200, 0..8),
        ) {
            let mut time = 1_700_000_000_000_000_000;
            let descs: Vec<Desc> = steps.iter().map(|(gap, wire)| { time += gap; desc(time, *wire) }).collect();
            let mut bursts: Vec<&[Desc]> = Vec::new();
            let mut rest = &descs[..];
            for cut in cuts {
                let (burst, behind) = rest.split_at(cut.min(rest.len()));
                bursts.push(burst);
                rest = behind;
            }
            bursts.push(rest);
            let traffic = count(&bursts);

            let mut sizes: BTreeMap<(u32, Option<u32>), u64> = BTreeMap::new();
            let mut seconds: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
            for desc in &descs {
                *sizes.entry(bucket(desc.wire)).or_default() += 1;
                let second = seconds.entry(desc.time.0 / 1_000_000_000).or_default();
                *second = (second.0 + 1, second.1 + u64::from(desc.wire) + 24);
            }
            let found: BTreeMap<_, _> =
                traffic.sizes.buckets().filter(|one| one.2 > 0).map(|(least, most, frames)| ((least, most), frames)).collect();
            prop_assert_eq!(found, sizes);
            prop_assert_eq!(traffic.frames, descs.len() as u64);
            prop_assert_eq!(traffic.bytes, descs.iter().map(|desc| u64::from(desc.wire)).sum::<u64>());
            let wires = || descs.iter().map(|desc| desc.wire);
            prop_assert_eq!(traffic.lengths, wires().min().zip(wires().max()));
            prop_assert_eq!(traffic.span, descs.first().map(|one| one.time).zip(descs.last().map(|one| one.time)));
            prop_assert_eq!(traffic.peak.frames, seconds.values().map(|one| one.0).max().unwrap_or(0));
            prop_assert_eq!(traffic.peak.l1_bytes, seconds.values().map(|one| one.1).max().unwrap_or(0));
        }
    }
}
