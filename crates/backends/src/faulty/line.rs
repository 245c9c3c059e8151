//! The line that frames of one queue take: judged, damaged, held back, paced, then on their way.

use super::checksum;
use super::damage::{Damage, damage};
use super::fifo::Fifo;
use super::pace::Pacer;
use super::plan::{FrameFaults, Plan};
use linerate_burst::{Burst, Desc, Flags, Nanos};
use linerate_wire::Layers;
use std::collections::VecDeque;
use std::time::Duration;

/// A step of the clock that counts, and how far back an arrival is of another time.
const STEP: Duration = Duration::from_millis(10);
const FAR: Duration = Duration::from_secs(1);

/// The latest of two times of arrival. Where they lie too far apart, the clock that stamps frames was set back, or one frame was
/// of a wrong time: what comes now does not wait for that, and counts from itself.
fn latest(before: Nanos, arrival: Nanos) -> Nanos {
    if before.since(arrival) > FAR { arrival } else { before.max(arrival) }
}

/// Copies frames; what leaves does so in the order it has to, with times moved by as much as it was held up.
pub(super) struct Line {
    plan: Plan,
    pacer: Pacer,
    fifo: Fifo,
    /// Frames that others are to pass, oldest first, and memory for such.
    held: VecDeque<Held>,
    spare: Vec<Vec<u8>>,
    /// Frames that went on to the pacer and were not held back.
    passed: u64,
    /// Frames that came in.
    number: u64,
    /// By the clock, when the line was looked at last.
    now: Nanos,
    /// The latest arrival, and the latest time given to a frame.
    latest: Nanos,
    newest: Nanos,
    /// The latest arrival of a frame that went on to the pacer.
    gone: Nanos,
    /// Where a frame is damaged.
    scratch: Vec<u8>,
    layers: Layers,
    pub counts: Counts,
}

/// What was done to frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub dropped: u64,
    pub queue: u64,
    pub repeated: u64,
    pub reordered: u64,
    pub corrupted: u64,
    pub truncated: u64,
    pub padded: u64,
    pub filled: u64,
}

/// A frame that others are to pass.
struct Held {
    one: One,
    bytes: Vec<u8>,
    /// How many frames had passed when it came, and how many are to have when it goes on.
    came: u64,
    goes: u64,
}

/// What is known of a frame beside its bytes.
#[derive(Clone, Copy)]
struct One {
    desc: Desc,
    number: u64,
    arrival: Nanos,
    repeated: bool,
}

impl Line {
    /// The subject of the accounts of a queue behind it.
    pub(super) fn subject(&self, inner: &str) -> String {
        self.plan.subject(inner)
    }

    pub(super) fn new(plan: Plan) -> Self {
        Line {
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
            counts: Counts::default(),
        }
    }

    /// Takes a frame that came at `arrival` and was handed in at `now`. The two differ where frames are shown a
    /// while after they came, or come out of a file.
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
        let (desc, frame) = self.treat(&faults, desc, frame, &mut scratch);
        let one = One { desc, number, arrival, repeated: faults.repeated };
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

    /// No frame still to come arrived before `arrival`: what was held back for as long as it may be goes on.
    pub(super) fn settle(&mut self, now: Nanos, arrival: Nanos) {
        self.keep_time(now);
        let hold = self.plan.faults().hold;
        self.release(now, Some(hold), |held, _| held.one.arrival.after(hold) < arrival);
    }

    /// No frame comes any more: nothing is held back for others to pass.
    pub(super) fn settle_all(&mut self, now: Nanos) {
        self.release(now, None, |_, _| true);
    }

    /// What is due at `now`; `all` where nothing is waited for any more.
    pub(super) fn show(&mut self, now: Nanos, all: bool) -> Burst<'_> {
        self.keep_time(now);
        self.fifo.show(now, all)
    }

    pub(super) fn consume(&mut self, frames: usize) {
        self.fifo.consume(frames);
    }

    /// Whether no more may be handed in before something leaves.
    pub(super) fn is_full(&self) -> bool {
        self.fifo.is_full(self.plan.faults().delays())
    }

    /// Frames, copies among them, that have not left.
    pub(super) fn len(&self) -> usize {
        self.fifo.len() + self.held.iter().map(|held| 1 + usize::from(held.one.repeated)).sum::<usize>()
    }

    /// Copies that will be made of frames held back.
    pub(super) fn copies_held(&self) -> u64 {
        self.held.iter().filter(|held| held.one.repeated).count() as u64
    }

    /// Whether something will leave without more coming in.
    pub(super) fn waits(&self) -> bool {
        self.fifo.has_unshown() || !self.held.is_empty()
    }

    /// The least time that a frame may have which is in the line and not shown.
    pub(super) fn oldest(&self) -> Option<Nanos> {
        let mut unshown = self.fifo.unshown();
        // Where frames wait they leave in order of time.
        let first = if self.plan.faults().delays() { unshown.next() } else { unshown.min() };
        let held = self.held.iter().map(|held| held.one.desc.time.after(self.least_delay())).min();
        first.into_iter().chain(held).min()
    }

    /// By how much the time of any frame is moved at least.
    pub(super) fn least_delay(&self) -> Duration {
        self.plan.faults().delay - self.plan.faults().jitter
    }

    /// Where the clock was set back, what waits does not wait until it is there again.
    fn keep_time(&mut self, now: Nanos) {
        let back = self.now.since(now);
        self.now = now;
        if back > STEP {
            self.fifo.set_back(back);
            self.latest = self.latest.before(back);
            self.held.iter_mut().for_each(|held| held.one.arrival = held.one.arrival.before(back));
        }
    }

    /// Fills the checksum in and does the damage, in `scratch` if anything changes.
    fn treat<'a>(
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
        // First of all: on a wire frames have their checksums, and damage shows in them.
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
            // What was found in the frame may no longer be there.
            let flags = desc.flags.without(Flags::CHECKSUM_VALID);
            desc = Desc { interface: desc.interface, flags, ..whole };
        }
        (desc, scratch)
    }

    fn hold(&mut self, one: One, frame: &[u8], distance: u32) {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(frame);
        self.held.push_back(Held { one, bytes, came: self.passed, goes: self.passed + u64::from(distance) });
    }

    /// Lets those go on, from the oldest, of which `may` holds, given how many frames have passed. They come as late
    /// as the last frame that passed, or after `wait`.
    fn release(&mut self, now: Nanos, wait: Option<Duration>, may: impl Fn(&Held, u64) -> bool) {
        while let Some(held) = self.held.pop_front_if(|held| may(held, self.passed)) {
            let mut one = held.one;
            let wait = wait.unwrap_or_else(|| self.latest.since(one.arrival));
            one.arrival = one.arrival.after(wait);
            one.desc.time = one.desc.time.after(wait);
            if self.passed > held.came {
                self.counts.reordered += 1;
                one.desc.time = one.desc.time.max(self.newest.before(self.least_delay()));
            }
            self.go_on(now, &one, &held.bytes);
            self.spare.push(held.bytes);
        }
    }

    /// To the pacer, a copy behind it, and on its way.
    fn go_on(&mut self, now: Nanos, one: &One, frame: &[u8]) {
        self.counts.repeated += u64::from(one.repeated);
        let before = self.gone;
        self.gone = latest(before, one.arrival);
        if self.gone < before {
            self.pacer.restart();
            self.newest = Nanos::ZERO;
        }
        for _ in 0..=usize::from(one.repeated) {
            let Some(departure) = self.pacer.depart(&self.plan, one.number, one.arrival, frame.len()) else {
                self.counts.queue += 1;
                continue;
            };
            let wait = departure.since(one.arrival);
            let mut desc = Desc { time: one.desc.time.after(wait), ..one.desc };
            if self.plan.faults().delays() {
                desc.time = desc.time.max(self.newest);
            }
            self.newest = self.newest.max(desc.time);
            // A file may bring frames of the future: they are held up by as much as others, not until then.
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

    /// A frame a millisecond for a second, through a line; after half of it the clock goes by `step`, and `wrong` frames are
    /// of that time before and behind. How long frames waited at most, by a clock that nobody sets.
    fn longest_wait(faults: &str, step: i64, wrong: bool) -> u64 {
        let mut line = Line::new(Plan::new(Faults::parse(faults).unwrap(), 0));
        let (mut came, mut longest, mut left) = (VecDeque::new(), 0, 0);
        for ms in 0..1500u64 {
            let utc = |ms: u64| (START + ms * MS).saturating_add_signed(if ms >= 500 && !wrong { step } else { 0 });
            let now = Nanos(utc(ms));
            if ms < 1000 {
                let stamp = if wrong && ms == 500 { now.shifted(step) } else { now };
                line.enter(now, stamp, &Desc::new(stamp, 0, 60), &[0; 60]);
                came.push_back(ms);
            }
            line.settle(now, now.before(Duration::from_millis(2)));
            let shown = line.show(now, false).len();
            line.consume(shown);
            for came in came.drain(..shown) {
                longest = longest.max(ms - came);
            }
            left += shown;
        }
        assert_eq!((left, line.counts.queue), (1000, 0), "{faults}, {step}: frames are held or lost");
        longest
    }

    #[test]
    fn nothing_waits_until_a_clock_is_there_again() {
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
