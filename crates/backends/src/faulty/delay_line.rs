//! The line that frames of one queue pass: plan, damage, reordering, pacing, transit.

use super::checksum;
use super::damage::{Damage, damage};
use super::fifo::Fifo;
use super::pace::Pacer;
use super::plan::{FrameFaults, Plan};
use linerate_burst::{Burst, Desc, Flags, Nanos};
use linerate_headers::Layers;
use std::collections::VecDeque;
use std::time::Duration;

/// Minimum step of the clock that is handled, and maximum difference between arrivals of one clock.
const STEP: Duration = Duration::from_millis(10);
const FAR: Duration = Duration::from_secs(1);

/// Returns the later of two arrival times. If they are too far apart, the clock that stamps frames was set back, or one
/// frame had a wrong time: the new arrival then counts from itself and does not wait.
fn latest(before: Nanos, arrival: Nanos) -> Nanos {
    if before.since(arrival) > FAR { arrival } else { before.max(arrival) }
}

/// Copies frames; they leave in the planned order, with times moved by their delay.
pub(super) struct DelayLine {
    plan: Plan,
    pacer: Pacer,
    fifo: Fifo,
    /// Frames that wait to be passed by others, oldest first, and spare buffers for them.
    held: VecDeque<ReorderedFrame>,
    spare: Vec<Vec<u8>>,
    /// Frames sent to the pacer without reordering.
    passed: u64,
    /// Frames received.
    number: u64,
    /// Clock at the last call.
    now: Nanos,
    /// Latest arrival, and latest time of a frame.
    latest: Nanos,
    newest: Nanos,
    /// Latest arrival of a frame sent to the pacer.
    gone: Nanos,
    /// Buffer for a damaged frame.
    scratch: Vec<u8>,
    layers: Layers,
    pub counts: FaultCounts,
}

/// Counters of faults.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FaultCounts {
    pub dropped: u64,
    pub queue: u64,
    pub repeated: u64,
    pub reordered: u64,
    pub corrupted: u64,
    pub truncated: u64,
    pub padded: u64,
    pub filled: u64,
}

/// A frame that waits to be passed by others.
struct ReorderedFrame {
    one: FrameInfo,
    bytes: Vec<u8>,
    /// Number of passed frames when it arrived, and when it may leave.
    entered: u64,
    goes: u64,
}

/// Metadata of a frame.
#[derive(Clone, Copy)]
struct FrameInfo {
    desc: Desc,
    number: u64,
    arrival: Nanos,
    repeated: bool,
}

impl DelayLine {
    /// Returns the subject of a queue's accounts behind the line.
    pub(super) fn subject(&self, inner: &str) -> String {
        self.plan.subject(inner)
    }

    pub(super) fn new(plan: Plan) -> Self {
        DelayLine {
            pacer: Pacer::new(&plan),
            plan,
            fifo: Fifo::new(),
            held: VecDeque::new(),
            spare: Vec::new(),
            passed: 0,
            number: 0,
            now: Nanos::ZERO,
            latest: Nanos::ZERO,
            newest: Nanos::ZERO,
            gone: Nanos::ZERO,
            scratch: Vec::new(),
            layers: Layers::new(),
            counts: FaultCounts::default(),
        }
    }

    /// Adds a frame that arrived at `arrival` and was handed in at `now`. The two differ if frames are shown some time
    /// after their arrival, or are read from a file.
    pub(super) fn enter(&mut self, now: Nanos, arrival: Nanos, desc: &Desc, frame: &[u8]) {
        self.settle(now, arrival);
        self.latest = latest(self.latest, arrival);
        let number = self.number;
        self.number += 1;
        let faults = self.plan.of_frame(number);
        if faults.dropped {
            self.counts.dropped += 1;
            return;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let (desc, frame) = self.apply_faults(&faults, desc, frame, &mut scratch);
        let one = FrameInfo { desc, number, arrival, repeated: faults.repeated };
        match faults.reordered {
            Some(distance) => self.hold(one, frame, distance),
            None => {
                self.go_on(now, &one, frame);
                self.passed += 1;
                self.release(now, None, |held, passed| held.goes <= passed);
            }
        }
        self.scratch = scratch;
    }

    /// Releases frames held for the maximum time: no later frame arrived before `arrival`.
    pub(super) fn settle(&mut self, now: Nanos, arrival: Nanos) {
        self.adjust_clock(now);
        let hold = self.plan.faults().hold;
        self.release(now, Some(hold), |held, _| held.one.arrival.after(hold) < arrival);
    }

    /// Releases all held frames: no more frames follow.
    pub(super) fn settle_all(&mut self, now: Nanos) {
        self.release(now, None, |_, _| true);
    }

    /// Returns the frames that are due at `now`; `all` after the end.
    pub(super) fn show(&mut self, now: Nanos, all: bool) -> Burst<'_> {
        self.adjust_clock(now);
        self.fifo.show(now, all)
    }

    pub(super) fn consume(&mut self, frames: usize) {
        self.fifo.consume(frames);
    }

    /// Returns whether the line accepts no more frames until some leave.
    pub(super) fn is_full(&self) -> bool {
        self.fifo.is_full(self.plan.faults().delays())
    }

    /// Returns the number of frames, including copies, that have not left.
    pub(super) fn len(&self) -> usize {
        self.fifo.len() + self.held.iter().map(|held| 1 + usize::from(held.one.repeated)).sum::<usize>()
    }

    /// Returns the number of copies that will be made of held frames.
    pub(super) fn held_copies(&self) -> u64 {
        self.held.iter().filter(|held| held.one.repeated).count() as u64
    }

    /// Returns whether frames will leave without more arriving.
    pub(super) fn waits(&self) -> bool {
        self.fifo.has_hidden() || !self.held.is_empty()
    }

    /// Returns the minimum time of the frames that are in the line and not shown.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        let mut hidden = self.fifo.hidden();
        // Delayed frames leave in order of time.
        let first = if self.plan.faults().delays() { hidden.next() } else { hidden.min() };
        let held = self.held.iter().map(|held| held.one.desc.time.after(self.least_delay())).min();
        first.into_iter().chain(held).min()
    }

    /// Returns the minimum shift of any frame's time.
    pub(super) fn least_delay(&self) -> Duration {
        self.plan.faults().delay - self.plan.faults().jitter
    }

    /// Adjusts times after the clock was set back, so that frames do not wait until it has caught up.
    fn adjust_clock(&mut self, now: Nanos) {
        let back = self.now.since(now);
        self.now = now;
        if back > STEP {
            self.fifo.set_back(back);
            self.latest = self.latest.before(back);
            self.held.iter_mut().for_each(|held| held.one.arrival = held.one.arrival.before(back));
        }
    }

    /// Completes the checksum and applies the damage, in `scratch` if anything changes.
    fn apply_faults<'a>(
        &mut self,
        faults: &FrameFaults,
        desc: &Desc,
        frame: &'a [u8],
        scratch: &'a mut Vec<u8>,
    ) -> (Desc, &'a [u8]) {
        let partial = desc.flags.contains(Flags::CHECKSUM_PARTIAL);
        let harmed = faults.corrupted.or(faults.truncated).or(faults.padded).is_some() && !desc.is_truncated();
        if !partial && !harmed {
            return (*desc, frame);
        }
        scratch.clear();
        scratch.extend_from_slice(frame);
        let mut desc = *desc;
        // First: on a wire frames have their checksums, and damage shows in them.
        if partial && !desc.is_truncated() && checksum::fill(scratch, &mut self.layers) {
            desc.flags = desc.flags.without(Flags::CHECKSUM_PARTIAL);
            self.counts.filled += 1;
        }
        let done = if harmed { damage(scratch, faults, self.plan.faults()) } else { Damage::default() };
        if done.any() {
            self.counts.truncated += u64::from(done.truncated);
            self.counts.padded += u64::from(done.padded);
            self.counts.corrupted += u64::from(done.corrupted);
            let whole = Desc::new(desc.time, 0, scratch.len() as u32);
            // Layers found in the frame may no longer exist.
            let flags = desc.flags.without(Flags::CHECKSUM_VALID);
            desc = Desc { interface: desc.interface, flags, ..whole };
        }
        (desc, scratch)
    }

    fn hold(&mut self, one: FrameInfo, frame: &[u8], distance: u32) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        self.held.push_back(ReorderedFrame {
            one,
            bytes,
            entered: self.passed,
            goes: self.passed + u64::from(distance),
        });
    }

    /// Releases held frames, from the oldest on, as long as `may` returns true for the number of passed frames. Their
    /// delay is that of the last frame that passed, or `wait`.
    fn release(&mut self, now: Nanos, wait: Option<Duration>, may: impl Fn(&ReorderedFrame, u64) -> bool) {
        while let Some(held) = self.held.pop_front_if(|held| may(held, self.passed)) {
            let mut one = held.one;
            let wait = wait.unwrap_or_else(|| self.latest.since(one.arrival));
            one.arrival = one.arrival.after(wait);
            one.desc.time = one.desc.time.after(wait);
            if self.passed > held.entered {
                self.counts.reordered += 1;
                one.desc.time = one.desc.time.max(self.newest.before(self.least_delay()));
            }
            self.go_on(now, &one, &held.bytes);
            self.spare.push(held.bytes);
        }
    }

    /// Sends a frame to the pacer, followed by its copy, if any.
    fn go_on(&mut self, now: Nanos, one: &FrameInfo, frame: &[u8]) {
        self.counts.repeated += u64::from(one.repeated);
        let before = self.gone;
        self.gone = latest(before, one.arrival);
        if self.gone < before {
            self.pacer.restart();
            self.newest = Nanos::ZERO;
        }
        for _ in 0..=usize::from(one.repeated) {
            let Some(departure) = self.pacer.departure_time(&self.plan, one.number, one.arrival, frame.len()) else {
                self.counts.queue += 1;
                continue;
            };
            let wait = departure.since(one.arrival);
            let mut desc = Desc { time: one.desc.time.after(wait), ..one.desc };
            if self.plan.faults().delays() {
                desc.time = desc.time.max(self.newest);
            }
            self.newest = self.newest.max(desc.time);
            // A file may contain future frames: they are delayed like others, not until their time.
            self.fifo.push(&desc, frame, departure.min(now.after(wait)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faulty::Faults;

    const MS: u64 = 1_000_000;
    const START: u64 = 1_700_000_000_000 * MS;

    /// Sends a frame per millisecond for a second through a line; halfway the clock steps by `step`, or with `wrong`
    /// one frame has such a time. Returns the maximum wait of a frame, by a steady clock.
    fn longest_wait(faults: &str, step: i64, wrong: bool) -> u64 {
        let mut line = DelayLine::new(Plan::new(Faults::parse(faults).unwrap(), 0));
        let (mut arrivals, mut longest, mut left) = (VecDeque::new(), 0, 0);
        for ms in 0..1500u64 {
            let utc = |ms: u64| (START + ms * MS).saturating_add_signed(if ms >= 500 && !wrong { step } else { 0 });
            let now = Nanos(utc(ms));
            if ms < 1000 {
                let stamp = if wrong && ms == 500 { now.shifted(step) } else { now };
                line.enter(now, stamp, &Desc::new(stamp, 0, 60), &[0; 60]);
                arrivals.push_back(ms);
            }
            line.settle(now, now.before(Duration::from_millis(2)));
            let shown = line.show(now, false).len();
            line.consume(shown);
            for arrival in arrivals.drain(..shown) {
                longest = longest.max(ms - arrival);
            }
            left += shown;
        }
        assert_eq!((left, line.counts.queue), (1000, 0), "{faults}, {step}: frames are held or lost");
        longest
    }

    #[test]
    fn clock_steps_delay_no_frame() {
        for faults in
            ["delay=20ms", "delay=20ms+-5ms&rate=1mbps", "reorder=5%x3", "reorder=5%x3&delay=20ms", "rate=10mbps"]
        {
            for seconds in [-100, 100, -3] {
                for wrong in [false, true] {
                    let longest = longest_wait(faults, seconds * 1000 * MS as i64, wrong);
                    assert!(longest <= 60, "{faults}, {seconds} s, {wrong}: a frame waited for {longest} ms");
                }
            }
        }
    }
}
