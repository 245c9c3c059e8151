//! Which of the frames that did not come count as lost while a run still lasts.
//!
//! A number that is missing is lost once the gap it is in has shown for [`AGE`], by a later frame of its stream that came. Where
//! the sender says what it had sent that long ago, and no later frame has come since, all of that is lost. A frame that comes after
//! all is lost no more. At the end of a run nothing is young: what is lost then is what did not come.
//!
//! Time goes on in turns of a third of that age, so that a gap of any of the last four turns may be younger. Each stream knows what
//! opened in each of these, and where; nothing is done for a frame that comes in its place.

use std::time::Duration;

/// So long after a gap shows its frames are lost; told up to a [`TURN`] later.
pub const AGE: Duration = Duration::from_millis(500);
/// How often time is to go on.
pub const TURN: Duration = AGE.checked_div(3).expect("no zero");

/// Turns in which a gap may be young: this one, and so many that they are [`AGE`] without it.
const YOUNG: usize = 4;

/// How far time is, and what is young of all streams.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ages {
    /// The number of this turn.
    turn: u32,
    young: [u64; YOUNG],
}

impl Ages {
    /// The first turn.
    pub(super) fn new() -> Self {
        Ages { turn: YOUNG as u32, young: [0; YOUNG] }
    }

    /// So much time has passed that the next turn begins.
    pub(super) fn turn(&mut self) {
        self.turn += 1;
        *self.own() = 0;
    }

    /// Numbers of all streams that did not come, and may.
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
    /// The first number of each turn's gaps.
    starts: [u64; YOUNG],
    /// How many numbers of them are missing.
    missing: [u32; YOUNG],
    /// All below that did not come are lost.
    pub lost_below: u64,
}

impl Gaps {
    /// None.
    pub(super) const NONE: Gaps = Gaps { starts: [0; YOUNG], missing: [0; YOUNG], lost_below: 0 };

    /// Numbers from `next` to below `end` are missing; `last` is the turn of the gap before.
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
            // Nobody sends so much in a turn: the stream was joined in the middle.
            None => self.settle(*last, ages),
        }
    }

    /// A missing number came after all.
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

    /// All that is missing so far is lost.
    pub(super) fn settle(&mut self, last: u32, ages: &mut Ages) {
        for (place, missing) in self.young_places(last, ages.turn) {
            ages.young[place] -= missing;
        }
        self.missing = [0; YOUNG];
    }

    /// Numbers that are missing and may come.
    pub(super) fn young(&self, last: u32, ages: &Ages) -> u64 {
        self.young_places(last, ages.turn).map(|(_, missing)| missing).sum()
    }

    fn young_places(self, last: u32, now: u32) -> impl Iterator<Item = (usize, u64)> {
        let turns = (0..YOUNG as u32).filter_map(move |back| last.checked_sub(back));
        let young = turns.filter(move |turn| is_young(*turn, now)).map(|turn| turn as usize % YOUNG);
        young.map(move |place| (place, u64::from(self.missing[place])))
    }

    /// The places of turns since the last are of those now.
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

    /// What the first lines of this page say, over the list of all numbers.
    #[derive(Default)]
    struct Naive {
        /// One more than the highest.
        next: u64,
        /// Those below that did not come, and in which turn that showed; none of those that were lost before.
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
        /// A frame so far from the one to come next.
        Came(i64),
        /// So far from it had been sent.
        Sent(i64),
        Turn,
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            12 => Just(Event::Came(0)),
            6 => (-6i64..8).prop_map(Event::Came),
            2 => (-1100i64..1100).prop_map(Event::Came),
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
        fn lost_is_what_the_definition_says(events in prop::collection::vec((0usize..2, event()), 0..300)) {
            let (mut ages, mut turn) = (Ages::new(), 4);
            let mut streams = [Stream::NEW; 2];
            let mut models = [Naive::default(), Naive::default()];
            for (which, event) in events {
                let (stream, model) = (&mut streams[which], &mut models[which]);
                let number = |from: i64| model.next.saturating_add_signed(from);
                match event {
                    Event::Came(from) => {
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
    fn a_gap_is_lost_once_it_is_old_and_what_comes_late_is_not() {
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

    /// And stays so when a frame comes behind it.
    #[test]
    fn what_was_sent_long_ago_is_lost_though_nothing_came_since() {
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
    fn who_joins_in_the_middle_has_lost_all_before() {
        let (mut ages, mut stream) = (Ages::new(), Stream::NEW);
        stream.take(&arrival(1 << 39), &mut ages);
        assert_eq!((stream.lost(&ages), ages.young()), (1 << 39, 0));
    }
}
