//! Decides which missing frames count as lost while a run still lasts.
//!
//! A missing number is lost [`AGE`] after a later frame of its stream revealed the gap. If the sender reports the
//! number of frames it had sent that long ago, and no later frame was received since, all of them are lost. A frame
//! received late is not lost any more. At the end of a run nothing is young: all that is missing is lost.
//!
//! Time advances in turns of a third of that age, so that a gap of any of the last four turns may be younger. Each
//! stream knows the gaps that opened in each of these turns, and their first numbers; a frame in order costs nothing.

use std::time::Duration;

/// Age at which a gap's frames count as lost; reported up to one [`TURN`] later.
pub const AGE: Duration = Duration::from_millis(500);
/// Interval at which the caller must advance time.
pub const TURN: Duration = AGE.checked_div(3).expect("divisor is not zero");

/// Turns in which a gap may be young: this one, and as many as cover [`AGE`] without it.
const YOUNG: usize = 4;

/// Current turn, and the young missing numbers of all streams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ages {
    /// Number of the current turn.
    turn: u32,
    young: [u64; YOUNG],
}

impl Ages {
    /// Starts with the first turn.
    pub(super) fn new() -> Self {
        Ages { turn: YOUNG as u32, young: [0; YOUNG] }
    }

    pub(super) fn turn(&mut self) {
        self.turn += 1;
        *self.own() = 0;
    }

    /// Returns the missing numbers of all streams that may still arrive.
    pub(super) fn young(&self) -> u64 {
        self.young.iter().sum()
    }

    fn own(&mut self) -> &mut u64 {
        &mut self.young[self.turn as usize % YOUNG]
    }
}

/// Gaps of a stream in the last turns in which it had any.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gaps {
    /// First number of each turn's gaps.
    starts: [u64; YOUNG],
    /// Missing numbers of each turn's gaps.
    missing: [u32; YOUNG],
    /// All missing numbers below this one are lost.
    pub lost_below: u64,
}

impl Gaps {
    pub(super) const NONE: Gaps = Gaps { starts: [0; YOUNG], missing: [0; YOUNG], lost_below: 0 };

    /// Opens a gap from `next` to below `end`; `last` is the turn of the gap before.
    pub(super) fn open(&mut self, next: u64, end: u64, last: &mut u32, ages: &mut Ages) {
        let start = next.max(self.lost_below);
        let Some(gap) = end.checked_sub(start).filter(|gap| *gap > 0) else { return };
        self.forget(*last, ages.turn);
        *last = ages.turn;
        let place = ages.turn as usize % YOUNG;
        match u32::try_from(gap).ok().and_then(|gap| self.missing[place].checked_add(gap)) {
            Some(missing) => {
                if self.missing[place] == 0 {
                    self.starts[place] = start;
                }
                self.missing[place] = missing;
                *ages.own() += gap;
            }
            // Too many for one turn: the stream was joined in the middle.
            None => self.settle(*last, ages),
        }
    }

    /// Records that a missing number was received.
    pub(super) fn close(&mut self, number: u64, last: u32, ages: &mut Ages) {
        for turn in (0..YOUNG as u32).filter_map(|back| last.checked_sub(back)) {
            let place = turn as usize % YOUNG;
            if self.missing[place] > 0 && self.starts[place] <= number {
                self.missing[place] -= 1;
                if is_young(turn, ages.turn) {
                    ages.young[place] -= 1;
                }
                return;
            }
        }
    }

    /// Declares all that is missing so far lost.
    pub(super) fn settle(&mut self, last: u32, ages: &mut Ages) {
        for (place, missing) in self.young_places(last, ages.turn) {
            ages.young[place] -= missing;
        }
        self.missing = [0; YOUNG];
    }

    /// Returns the missing numbers that may still arrive.
    pub(super) fn young(&self, last: u32, ages: &Ages) -> u64 {
        self.young_places(last, ages.turn).map(|(_, missing)| missing).sum()
    }

    fn young_places(self, last: u32, now: u32) -> impl Iterator<Item = (usize, u64)> {
        let turns = (0..YOUNG as u32).filter_map(move |back| last.checked_sub(back));
        let young = turns.filter(move |turn| is_young(*turn, now)).map(|turn| turn as usize % YOUNG);
        young.map(move |place| (place, u64::from(self.missing[place])))
    }

    /// Clears the slots of the turns after the last one.
    fn forget(&mut self, last: u32, now: u32) {
        for turn in (last + 1..=now).rev().take(YOUNG) {
            self.missing[turn as usize % YOUNG] = 0;
        }
    }
}

fn is_young(turn: u32, now: u32) -> bool {
    now - turn < YOUNG as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::stream::{Arrival, Stream, WINDOW};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Reference implementation of the module's definition, over the list of all numbers.
    #[derive(Default)]
    struct Naive {
        /// One more than the highest number.
        next: u64,
        /// Missing numbers below, with the turn that revealed them; `None` for those lost before.
        missing: BTreeMap<u64, Option<u32>>,
        lost_below: u64,
    }

    impl Naive {
        fn take(&mut self, number: u64, turn: u32) {
            if number < self.next {
                if self.next - number <= WINDOW {
                    self.missing.remove(&number);
                }
                return;
            }
            for gap in self.next..number {
                self.missing.insert(gap, (gap >= self.lost_below).then_some(turn));
            }
            self.next = number + 1;
        }

        fn judge(&mut self, sent: u64) {
            if sent >= self.next && sent > 0 {
                self.missing.values_mut().for_each(|turn| *turn = None);
                self.lost_below = self.lost_below.max(sent);
            }
        }

        fn lost(&self, now: u32) -> u64 {
            let is_lost = |turn: &&Option<u32>| turn.is_none_or(|turn| now - turn >= 4);
            let tail = self.lost_below.saturating_sub(self.next);
            self.missing.values().filter(is_lost).count() as u64 + tail
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        /// A frame at this distance from the next expected one.
        Received(i64),
        /// Frames up to this distance had been sent.
        Sent(i64),
        Turn,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            12 => Just(Event::Received(0)),
            6 => (-6i64..8).prop_map(Event::Received),
            2 => (-1100i64..1100).prop_map(Event::Received),
            2 => (-20i64..60).prop_map(Event::Sent),
            4 => Just(Event::Turn),
        ]
    }

    fn arrival(sequence: u64) -> Arrival {
        Arrival { sequence, ..Arrival::default() }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1024, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn losses_match_the_definition(events in prop::collection::vec((0usize..2, event()), 0..300)) {
            let (mut ages, mut turn) = (Ages::new(), 4);
            let mut streams = [Stream::NEW; 2];
            let mut models = [Naive::default(), Naive::default()];
            for (which, event) in events {
                let (stream, model) = (&mut streams[which], &mut models[which]);
                let number = |from: i64| model.next.saturating_add_signed(from);
                match event {
                    Event::Received(from) => {
                        let number = number(from);
                        stream.take(&arrival(number), &mut ages);
                        model.take(number, turn);
                    }
                    Event::Sent(from) => {
                        let number = number(from);
                        stream.judge(number, &mut ages);
                        model.judge(number);
                    }
                    Event::Turn => {
                        ages.turn();
                        turn += 1;
                    }
                }
                for (stream, model) in streams.iter().zip(&models) {
                    prop_assert_eq!(stream.lost(&ages), model.lost(turn));
                }
                let young = models.iter().flat_map(|model| model.missing.values());
                let young = young.filter(|opened| opened.is_some_and(|opened| turn - opened < 4)).count();
                prop_assert_eq!(ages.young(), young as u64);
            }
        }
    }

    #[test]
    fn old_gaps_are_lost_and_late_frames_are_not() {
        let (mut ages, mut stream) = (Ages::new(), Stream::NEW);
        for number in [0, 1, 5] {
            stream.take(&arrival(number), &mut ages);
        }
        for _ in 0..4 {
            assert_eq!((stream.lost(&ages), ages.young()), (0, 3));
            ages.turn();
        }
        assert_eq!((stream.lost(&ages), ages.young()), (3, 0));
        stream.take(&arrival(3), &mut ages);
        assert_eq!(stream.lost(&ages), 2);
    }

    /// And stays so when a later frame is received.
    #[test]
    fn frames_sent_long_ago_are_lost_without_later_frames() {
        let (mut ages, mut stream) = (Ages::new(), Stream::NEW);
        for number in [0, 1] {
            stream.take(&arrival(number), &mut ages);
        }
        stream.judge(1000, &mut ages);
        assert_eq!(stream.lost(&ages), 998);
        stream.take(&arrival(1100), &mut ages);
        assert_eq!((stream.lost(&ages), ages.young()), (998, 100));
        stream.take(&arrival(999), &mut ages);
        assert_eq!((stream.lost(&ages), ages.young()), (997, 100));
    }

    #[test]
    fn stream_joined_in_the_middle_counts_earlier_frames_as_lost() {
        let (mut ages, mut stream) = (Ages::new(), Stream::NEW);
        stream.take(&arrival(1 << 39), &mut ages);
        assert_eq!((stream.lost(&ages), ages.young()), (1 << 39, 0));
    }
}
