//! Busiest windows of time, far below a second: bursts that fill queues and do not show in a mean over a second.
//!
//! Windows are consecutive and start at full multiples of their span in UTC, by the frames' own times. Only the
//! shortest are counted frame by frame; their sums are added to the longer ones when they end.

use linerate_burst::{Desc, Nanos};
use linerate_generate::rate::L1_OVERHEAD;
use std::time::Duration;

/// Spans in nanoseconds, each a multiple of the previous one.
const SPANS: [u64; 3] = [10_000, 100_000, 1_000_000];

/// The busiest windows so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    open: [Window; SPANS.len()],
    busiest: [Busiest; SPANS.len()],
    late: u64,
}

/// Busiest window of a span, by frames and by bytes: these may be two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Busiest {
    /// Length of the window.
    pub span: Duration,
    /// Most frames in one window.
    pub frames: u64,
    /// Start of that window.
    pub frames_at: Nanos,
    /// Most bytes in one window at layer 1: with preamble, FCS and gap.
    pub l1_bytes: u64,
    /// Start of that window.
    pub l1_at: Nanos,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Window {
    /// Index since 1970.
    number: u64,
    frames: u64,
    l1_bytes: u64,
}

impl Windows {
    /// Adds frames, in order of time.
    pub(crate) fn add<'a>(&mut self, descs: impl IntoIterator<Item = &'a Desc>) {
        for desc in descs {
            let number = desc.time.0 / SPANS[0];
            if number != self.open[0].number {
                if number < self.open[0].number {
                    self.late += 1;
                    continue;
                }
                self.close(0, number);
            }
            self.open[0].frames += 1;
            self.open[0].l1_bytes += u64::from(desc.wire) + L1_OVERHEAD;
        }
    }

    /// Returns the busiest window of each span, the shortest first.
    pub fn busiest(&self) -> [Busiest; SPANS.len()] {
        let mut all = *self;
        all.close(0, u64::MAX);
        let mut busiest = all.busiest;
        busiest.iter_mut().zip(SPANS).for_each(|(one, span)| one.span = Duration::from_nanos(span));
        busiest
    }

    /// Returns the number of frames that arrived after later windows had started, which are in none.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Closes the open window, because there is a frame in a later one.
    fn close(&mut self, level: usize, next: u64) {
        let Window { number, frames, l1_bytes } =
            std::mem::replace(&mut self.open[level], Window { number: next, ..Window::default() });
        let (busiest, begin) = (&mut self.busiest[level], Nanos(number * SPANS[level]));
        if frames > busiest.frames {
            (busiest.frames, busiest.frames_at) = (frames, begin);
        }
        if l1_bytes > busiest.l1_bytes {
            (busiest.l1_bytes, busiest.l1_at) = (l1_bytes, begin);
        }
        let above = level + 1;
        if above == SPANS.len() {
            return;
        }
        let ratio = SPANS[above] / SPANS[level];
        let parent = &mut self.open[above];
        if parent.frames == 0 {
            parent.number = number / ratio;
        }
        parent.frames += frames;
        parent.l1_bytes += l1_bytes;
        if next / ratio != number / ratio {
            self.close(above, next / ratio);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn busiest_windows_match_exhaustive_counting(
            steps in prop::collection::vec((prop_oneof![0u64..3_000, 0u64..30_000, 0u64..300_000, 0u64..5_000_000], 60u32..1514), 0..300),
            start in prop_oneof![Just(0u64), Just(1_700_000_000_123_456_789)],
            pieces in 1usize..9,
        ) {
            let mut time = start;
            let descs: Vec<Desc> = steps
                .iter()
                .map(|(step, wire)| {
                    time += step;
                    Desc { wire: *wire, ..Desc::new(Nanos(time), 0, 0) }
                })
                .collect();
            let mut windows = Windows::default();
            for part in descs.chunks(pieces) {
                windows.add(part);
                // Reading the state so far changes nothing.
                windows.busiest();
            }
            for (busiest, span) in windows.busiest().iter().zip(SPANS) {
                let mut all = BTreeMap::<u64, (u64, u64)>::new();
                for desc in &descs {
                    let (frames, bytes) = all.entry(desc.time.0 / span).or_default();
                    *frames += 1;
                    *bytes += u64::from(desc.wire) + 24;
                }
                let most = (all.values().map(|one| one.0).max(), all.values().map(|one| one.1).max());
                prop_assert_eq!((busiest.frames, busiest.l1_bytes), (most.0.unwrap_or(0), most.1.unwrap_or(0)), "{}", span);
                let first = |value: u64, of: fn(&(u64, u64)) -> u64| {
                    all.iter().find(|(_, one)| of(one) == value).map_or(0, |(number, _)| number * span)
                };
                prop_assert_eq!(busiest.frames_at.0, first(busiest.frames, |one| one.0));
                prop_assert_eq!(busiest.l1_at.0, first(busiest.l1_bytes, |one| one.1));
            }
            prop_assert_eq!(windows.late(), 0);
        }
    }

    #[test]
    fn late_frames_are_in_no_window() {
        let desc = |time| Desc { wire: 60, ..Desc::new(Nanos(time), 0, 0) };
        let mut windows = Windows::default();
        windows.add(&[desc(5_000_000), desc(5_012_000), desc(5_009_999), desc(5_010_000)]);
        assert_eq!((windows.late(), windows.busiest()[0].frames, windows.busiest()[1].frames), (1, 2, 3));
    }
}
