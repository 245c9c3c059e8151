//! A fixed load for days: the input is seconds, the output loss events, sums of minutes and unavailable time. Seconds
//! without loss are not kept.

/// Accumulates results second by second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Soak {
    seconds: u64,
    all: PeriodCounts,
    /// The last second, and the state before it.
    last: PeriodCounts,
    before: AvailabilityState,
    now: AvailabilityState,
    lossy: Vec<(u64, PeriodCounts)>,
    minutes: Vec<PeriodCounts>,
    events: Vec<Event>,
    /// Number of seconds with loss beyond the limit.
    more: u64,
}

/// Counters of a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeriodCounts {
    /// Frames sent.
    pub sent: u64,
    /// Frames received.
    pub received: u64,
    /// Frames lost.
    pub lost: u64,
}

/// State derived from second to second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AvailabilityState {
    worst: Option<(u64, u64)>,
    /// Consecutive seconds that were severely errored, or, during unavailable time, were not.
    row: u64,
    is_unavailable: bool,
    unavailable: u64,
}

/// Consecutive seconds with frame loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The first of them, from 0.
    pub second: u64,
    /// Number of seconds.
    pub seconds: u64,
    /// Frames lost.
    pub lost: u64,
}

/// Maximum number of events, and of seconds with loss; more are only counted.
const MOST_EVENTS: usize = 10_000;
/// Maximum number of minutes, two years; later ones are added to the last.
const MOST_MINUTES: usize = 1_000_000;
const MINUTE: u64 = 60;
/// A second with a greater loss ratio is severely errored.
const SEVERE: f64 = 0.5;
/// Number of consecutive severely errored seconds that start unavailable time, from the first of them on, and of others
/// that end it.
const IN_A_ROW: u64 = 10;

impl PeriodCounts {
    /// Returns the sum of both.
    pub fn plus(self, other: PeriodCounts) -> PeriodCounts {
        PeriodCounts {
            sent: self.sent + other.sent,
            received: self.received + other.received,
            lost: self.lost + other.lost,
        }
    }
}

impl Soak {
    /// Adds a second.
    pub fn add(&mut self, passed: PeriodCounts) {
        if self.seconds.is_multiple_of(MINUTE) && self.minutes.len() < MOST_MINUTES {
            self.minutes.push(PeriodCounts::default());
        }
        self.seconds += 1;
        (self.last, self.before) = (PeriodCounts::default(), self.now);
        self.amend(passed);
    }

    /// Adds late counters to the last second.
    pub fn amend(&mut self, rest: PeriodCounts) {
        let Some(second) = self.seconds.checked_sub(1) else { return self.add(rest) };
        let was = self.last;
        self.last = was.plus(rest);
        self.all = self.all.plus(rest);
        if let Some(minute) = self.minutes.last_mut() {
            *minute = minute.plus(rest);
        }
        if self.last.lost > 0 {
            self.note_lossy(second, was.lost == 0);
            self.note_event(second, was.lost == 0, rest.lost);
        }
        self.now = self.before;
        self.now.evaluate(second, self.last);
    }

    /// Returns the number of seconds.
    pub fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Returns the counters of all seconds.
    pub fn all(&self) -> PeriodCounts {
        self.all
    }

    /// Returns the counters of the last second.
    pub fn last(&self) -> PeriodCounts {
        self.last
    }

    /// Returns the seconds with frame loss: the first 10,000, by their numbers from 0.
    pub fn lossy(&self) -> &[(u64, PeriodCounts)] {
        &self.lossy
    }

    /// Returns the counters of each minute, including the current one.
    pub fn minutes(&self) -> &[PeriodCounts] {
        &self.minutes
    }

    /// Returns the second with most loss, and its lost frames.
    pub fn worst(&self) -> Option<(u64, u64)> {
        self.now.worst
    }

    /// Returns the loss events: the first 10,000; [`Soak::more`] has the number of further seconds.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Returns the number of seconds with loss after the kept events.
    pub fn more(&self) -> u64 {
        self.more
    }

    /// Returns the share of available time.
    pub fn availability(&self) -> f64 {
        1.0 - self.now.unavailable as f64 / self.seconds.max(1) as f64
    }

    fn note_lossy(&mut self, second: u64, is_new: bool) {
        let has_room = self.lossy.len() < MOST_EVENTS;
        match self.lossy.last_mut().filter(|(last, _)| *last == second) {
            Some(last) => last.1 = self.last,
            None if is_new && has_room => self.lossy.push((second, self.last)),
            None => {}
        }
    }

    fn note_event(&mut self, second: u64, is_new: bool, lost: u64) {
        let is_kept = self.events.len() < MOST_EVENTS;
        match self.events.last_mut().filter(|event| event.second + event.seconds >= second + u64::from(!is_new)) {
            Some(event) => {
                event.seconds += u64::from(is_new);
                event.lost += lost;
            }
            None if !is_new => {}
            None if is_kept => self.events.push(Event { second, seconds: 1, lost }),
            None => self.more += 1,
        }
    }
}

impl AvailabilityState {
    fn evaluate(&mut self, second: u64, PeriodCounts { sent, lost, .. }: PeriodCounts) {
        if lost > 0 && self.worst.is_none_or(|(_, most)| lost > most) {
            self.worst = Some((second, lost));
        }
        let is_severe = sent > 0 && lost as f64 > SEVERE * sent as f64;
        self.unavailable += u64::from(self.is_unavailable);
        self.row = if is_severe != self.is_unavailable { self.row + 1 } else { 0 };
        if self.row == IN_A_ROW {
            // The consecutive seconds belong to the state that they start.
            self.unavailable = if is_severe { self.unavailable + IN_A_ROW } else { self.unavailable - IN_A_ROW };
            (self.is_unavailable, self.row) = (is_severe, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn events_and_unavailable_time_are_found() {
        let mut soak = Soak::default();
        let lost = |second: u64| match second {
            5 => 1,
            20..=22 => 10,
            40..=52 => 900,
            70..=78 => 900,
            _ => 0,
        };
        (0..100).for_each(|second| {
            soak.add(PeriodCounts { sent: 1000, received: 1000 - lost(second), lost: lost(second) })
        });
        let events: Vec<(u64, u64, u64)> = soak.events().iter().map(|e| (e.second, e.seconds, e.lost)).collect();
        assert_eq!(events, [(5, 1, 1), (20, 3, 30), (40, 13, 11_700), (70, 9, 8_100)]);
        assert_eq!((soak.worst(), soak.all().lost, soak.seconds(), soak.more()), (Some((40, 900)), 19_831, 100, 0));
        // Thirteen consecutive severely errored seconds are unavailable, nine are not.
        assert!((soak.availability() - 0.87).abs() < 1e-9, "{}", soak.availability());
    }

    /// A second, and the part of it that is known only later.
    fn second() -> impl Strategy<Value = (PeriodCounts, Option<PeriodCounts>)> {
        let lost = prop_oneof![3 => Just(0u64), 1 => 1u64..2000];
        let passed = |sent: u64, lost: u64| PeriodCounts { sent, received: sent.saturating_sub(lost), lost };
        let rest = prop::option::weighted(0.2, (0u64..1000, prop_oneof![Just(0u64), 1u64..900]));
        (0u64..2000, lost, rest)
            .prop_map(move |(sent, lost, rest)| (passed(sent, lost), rest.map(|(sent, lost)| passed(sent, lost))))
    }

    proptest! {
        #[test]
        fn amended_sums_equal_direct_sums(seconds in prop::collection::vec(second(), 0..400)) {
            let (mut soak, mut whole) = (Soak::default(), Soak::default());
            let mut plain = Vec::new();
            for (passed, rest) in &seconds {
                soak.add(*passed);
                rest.iter().for_each(|rest| soak.amend(*rest));
                plain.push(rest.map_or(*passed, |rest| passed.plus(rest)));
                whole.add(plain[plain.len() - 1]);
            }
            prop_assert_eq!(&soak, &whole, "amended or at once");
            let sum = |all: &[PeriodCounts]| all.iter().fold(PeriodCounts::default(), |all, one| all.plus(*one));
            prop_assert_eq!(soak.all(), sum(&plain));
            let minutes: Vec<PeriodCounts> = plain.chunks(60).map(sum).collect();
            prop_assert_eq!(soak.minutes(), &minutes[..]);
            let lossy: Vec<(u64, PeriodCounts)> = (0..).zip(plain).filter(|(_, passed)| passed.lost > 0).collect();
            prop_assert_eq!(soak.lossy(), &lossy[..]);
            prop_assert_eq!(soak.events().iter().map(|event| event.lost).sum::<u64>(), soak.all().lost);
            prop_assert_eq!(soak.events().iter().map(|event| event.seconds).sum::<u64>(), lossy.len() as u64);
        }
    }

    /// A week, in which every third second has loss.
    #[test]
    fn a_week_needs_little_memory() {
        let mut soak = Soak::default();
        (0..7 * 24 * 3600u64).for_each(|second| {
            soak.add(PeriodCounts { sent: 1000, received: 1000, lost: u64::from(second % 3 == 0) });
        });
        assert_eq!((soak.lossy().len(), soak.events().len(), soak.minutes().len()), (10_000, 10_000, 7 * 24 * 60));
        assert_eq!((soak.more(), soak.all().lost), (201_600 - 10_000, 201_600));
    }
}
