//! Departure times of frames: transmission at the rate, then the delay.

use super::plan::Plan;
use linerate_burst::Nanos;
use linerate_generate::Rate;
use std::collections::VecDeque;

/// Departure times depend only on arrival times and lengths, and never decrease except after [`Pacer::restart`].
pub(super) struct Pacer {
    rate: Option<Rate>,
    queue: usize,
    /// Time at which each waiting frame, and the one in transmission, is sent, oldest first.
    sending: VecDeque<Nanos>,
    /// Start of the current busy period, and the frames and bytes sent in it.
    busy_since: Nanos,
    frames: u64,
    bytes: u64,
    latest: Nanos,
}

impl Pacer {
    pub(super) fn new(plan: &Plan) -> Self {
        let faults = plan.faults();
        Pacer {
            rate: faults.rate,
            queue: faults.queue as usize,
            sending: VecDeque::new(),
            busy_since: Nanos::ZERO,
            frames: 0,
            bytes: 0,
            latest: Nanos::ZERO,
        }
    }

    /// Restarts after a step of the clock: earlier frames do not count.
    pub(super) fn restart(&mut self) {
        self.sending.clear();
        self.latest = Nanos::ZERO;
    }

    /// Returns the departure time of frame `number` that arrived at `arrival`; `None` if the queue is full.
    pub(super) fn departure_time(&mut self, plan: &Plan, number: u64, arrival: Nanos, length: usize) -> Option<Nanos> {
        if !plan.faults().delays() {
            return Some(arrival);
        }
        let sent = self.transmit(arrival, length)?;
        self.latest = self.latest.max(sent.after(plan.delay(number)));
        Some(self.latest)
    }

    /// Returns the time at which the last bit is sent.
    fn transmit(&mut self, arrival: Nanos, length: usize) -> Option<Nanos> {
        let Some(rate) = self.rate else { return Some(arrival) };
        while self.sending.front().is_some_and(|sent| *sent <= arrival) {
            self.sending.pop_front();
        }
        // The frame in transmission does not wait.
        if self.sending.len() > self.queue {
            return None;
        }
        if self.sending.is_empty() {
            (self.busy_since, self.frames, self.bytes) = (arrival, 0, 0);
        }
        // Computed from sums, so that no fraction of a nanosecond is lost per frame.
        self.frames += 1;
        self.bytes += length as u64;
        let sent = Nanos(self.busy_since.0.saturating_add(rate.nanos(self.frames, self.bytes)));
        self.sending.push_back(sent);
        Some(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faulty::Faults;
    use proptest::prelude::*;

    fn departures(faults: &str, frames: &[(u64, usize)]) -> Vec<Option<u64>> {
        let plan = Plan::new(Faults::parse(faults).unwrap(), 0);
        let mut pacer = Pacer::new(&plan);
        let mut departure_time = |(number, (at, length)): (usize, &(u64, usize))| {
            pacer.departure_time(&plan, number as u64, Nanos(*at), *length).map(|time| time.0)
        };
        frames.iter().enumerate().map(&mut departure_time).collect()
    }

    #[test]
    fn frames_leave_one_after_the_other() {
        // 121 captured bytes and 4 of FCS: 1000 bits, 1 us at 1 Gb/s.
        let frames = [(0, 121), (0, 121), (500, 121), (9_000, 121)];
        let wanted = [1_000, 2_000, 3_000, 10_000].map(Some);
        assert_eq!(departures("rate=1gbps", &frames), wanted);
        assert_eq!(departures("rate=1gbps&delay=1us", &frames), wanted.map(|time| time.map(|time| time + 1_000)));
        assert_eq!(departures("rate=1gbps&queue=1", &frames), [Some(1_000), Some(2_000), None, Some(10_000)]);
        assert_eq!(departures("delay=2us", &frames), [2_000, 2_000, 2_500, 11_000].map(Some));
        assert_eq!(departures("drop=1%", &frames), [0, 0, 500, 9_000].map(Some));
    }

    proptest! {
        #[test]
        fn the_queue_matches_a_list_of_waiting_frames(
            gaps in proptest::collection::vec((0u64..3_000, 10usize..1500), 1..200), queue in 1usize..8,
        ) {
            let mut at = 0;
            let frames: Vec<(u64, usize)> = gaps.into_iter().map(|(gap, length)| { at += gap; (at, length) }).collect();
            let got = departures(&format!("rate=8gbps&queue={queue}"), &frames);
            // One byte per nanosecond: the model uses integers.
            let (mut free, mut left) = (0, Vec::<u64>::new());
            for ((arrival, length), got) in frames.into_iter().zip(got) {
                let waiting = left.iter().filter(|time| **time > arrival).count();
                if waiting > queue {
                    prop_assert_eq!(got, None);
                    continue;
                }
                free = free.max(arrival) + length as u64 + 4;
                left.push(free);
                prop_assert_eq!(got, Some(free));
            }
        }
    }
}
