//! A fixed load for hours: seconds in, events of loss and unavailable time out.

/// Second by second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Soak {
    seconds: u64,
    lost: u64,
    worst: Option<(u64, u64)>,
    events: Vec<Event>,
    /// Events that there was no room for.
    more: u64,
    /// Seconds in a row that were severely errored, or were not while time was unavailable.
    row: u64,
    is_unavailable: bool,
    unavailable: u64,
}

/// Seconds in a row in which frames were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The first of them, from 0.
    pub second: u64,
    /// How many.
    pub seconds: u64,
    /// Frames that were lost.
    pub lost: u64,
}

/// More events are counted, and not kept.
const MOST_EVENTS: usize = 10_000;
/// A second that loses more than this part is severely errored.
const SEVERE: f64 = 0.5;
/// So many of these in a row make time unavailable from the first of them on, and so many others end it.
const IN_A_ROW: u64 = 10;

impl Soak {
    /// A second has passed.
    pub fn add(&mut self, sent: u64, lost: u64) {
        let second = self.seconds;
        self.seconds += 1;
        self.lost += lost;
        if lost > 0 {
            let is_kept = self.events.len() < MOST_EVENTS;
            match self.events.last_mut().filter(|event| event.second + event.seconds == second) {
                Some(event) => (event.seconds, event.lost) = (event.seconds + 1, event.lost + lost),
                None if is_kept => self.events.push(Event { second, seconds: 1, lost }),
                None => self.more += 1,
            }
            if self.worst.is_none_or(|(_, most)| lost > most) {
                self.worst = Some((second, lost));
            }
        }
        self.judge(sent > 0 && lost as f64 > SEVERE * sent as f64);
    }

    /// How many seconds have passed.
    pub fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Frames that were lost.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The second that lost most, and how much.
    pub fn worst(&self) -> Option<(u64, u64)> {
        self.worst
    }

    /// When frames were lost: the first 10,000 times; how many seconds more there were says [`Soak::more`].
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Seconds with loss beyond the events that are kept.
    pub fn more(&self) -> u64 {
        self.more
    }

    /// The part of time that was available.
    pub fn availability(&self) -> f64 {
        1.0 - self.unavailable as f64 / self.seconds.max(1) as f64
    }

    fn judge(&mut self, is_severe: bool) {
        self.unavailable += u64::from(self.is_unavailable);
        self.row = if is_severe != self.is_unavailable { self.row + 1 } else { 0 };
        if self.row == IN_A_ROW {
            // The seconds in a row belong to what begins with them.
            self.unavailable = if is_severe { self.unavailable + IN_A_ROW } else { self.unavailable - IN_A_ROW };
            (self.is_unavailable, self.row) = (is_severe, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        (0..100).for_each(|second| soak.add(1000, lost(second)));
        let events: Vec<(u64, u64, u64)> = soak.events().iter().map(|e| (e.second, e.seconds, e.lost)).collect();
        assert_eq!(events, [(5, 1, 1), (20, 3, 30), (40, 13, 11_700), (70, 9, 8_100)]);
        assert_eq!((soak.worst(), soak.lost(), soak.seconds(), soak.more()), (Some((40, 900)), 19_831, 100, 0));
        // Thirteen severe seconds in a row are unavailable, nine are not.
        assert!((soak.availability() - 0.87).abs() < 1e-9, "{}", soak.availability());
    }
}
