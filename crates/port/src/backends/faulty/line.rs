//! The line that frames of one queue take: judged, damaged, held back, paced, then on their way.

use super::checksum;
use super::damage::{Damage, damage};
use super::fate::{Fate, Plan};
use super::fifo::Fifo;
use super::pace::Pacer;
use linerate_burst::{Burst, Desc, Flags, Nanos};
use linerate_wire::Layers;
use std::collections::VecDeque;
use std::time::Duration;

/// Copies frames; what leaves does so in the order it has to, with times moved by as much as it was held up.
pub struct Line {
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
    /// The latest arrival, and the latest time given to a frame.
    latest: Nanos,
    newest: Nanos,
    /// Where a frame is damaged.
    scratch: Vec<u8>,
    layers: Layers,
    pub counts: Counts,
}

/// What was done to frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
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
    pub fn new(plan: Plan) -> Self {
        Line {
            pacer: Pacer::new(&plan),
            plan,
            fifo: Fifo::new(),
            held: VecDeque::new(),
            spare: Vec::new(),
            passed: 0,
            number: 0,
            latest: Nanos::ZERO,
            newest: Nanos::ZERO,
            scratch: Vec::new(),
            layers: Layers::new(),
            counts: Counts::default(),
        }
    }

    /// Takes a frame that came at `arrival` and was handed in at `now`. The two differ where frames are shown a
    /// while after they came, or come out of a file.
    pub fn enter(&mut self, now: Nanos, arrival: Nanos, desc: &Desc, frame: &[u8]) {
        self.settle(now, arrival);
        self.latest = self.latest.max(arrival);
        let number = self.number;
        self.number += 1;
        let fate = self.plan.fate(number);
        if fate.dropped {
            self.counts.dropped += 1;
            return;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        let (desc, frame) = self.treat(&fate, desc, frame, &mut scratch);
        let one = One { desc, number, arrival, repeated: fate.repeated };
        match fate.reordered {
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
    pub fn settle(&mut self, now: Nanos, arrival: Nanos) {
        let hold = self.plan.faults().hold;
        self.release(now, Some(hold), |held, _| held.one.arrival.after(hold) < arrival);
    }

    /// No frame comes any more: nothing is held back for others to pass.
    pub fn settle_all(&mut self, now: Nanos) {
        self.release(now, None, |_, _| true);
    }

    /// What is due at `now`; `all` where nothing is waited for any more.
    pub fn show(&mut self, now: Nanos, all: bool) -> Burst<'_> {
        self.fifo.show(now, all)
    }

    pub fn consume(&mut self, frames: usize) {
        self.fifo.consume(frames);
    }

    /// Whether no more may be handed in before something leaves.
    pub fn is_full(&self) -> bool {
        self.fifo.is_full(self.plan.faults().delays())
    }

    /// Frames, copies among them, that have not left.
    pub fn len(&self) -> usize {
        self.fifo.len() + self.held.iter().map(|held| 1 + usize::from(held.one.repeated)).sum::<usize>()
    }

    /// Copies that will be made of frames held back.
    pub fn copies_held(&self) -> u64 {
        self.held.iter().filter(|held| held.one.repeated).count() as u64
    }

    /// Whether something will leave without more coming in.
    pub fn waits(&self) -> bool {
        self.fifo.has_unshown() || !self.held.is_empty()
    }

    /// The least time that a frame may have which is in the line and not shown.
    pub fn oldest(&self) -> Option<Nanos> {
        let mut unshown = self.fifo.unshown();
        // Where frames wait they leave in order of time.
        let first = if self.plan.faults().delays() { unshown.next() } else { unshown.min() };
        let held = self.held.iter().map(|held| held.one.desc.time.after(self.least_delay())).min();
        first.into_iter().chain(held).min()
    }

    /// By how much the time of any frame is moved at least.
    pub fn least_delay(&self) -> Duration {
        self.plan.faults().delay - self.plan.faults().jitter
    }

    /// Fills the checksum in and does the damage, in `scratch` if anything changes.
    fn treat<'a>(&mut self, fate: &Fate, desc: &Desc, frame: &'a [u8], scratch: &'a mut Vec<u8>) -> (Desc, &'a [u8]) {
        let partial = desc.flags.contains(Flags::CHECKSUM_PARTIAL);
        let harmed = fate.corrupted.or(fate.truncated).or(fate.padded).is_some() && !desc.is_truncated();
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
        let done = if harmed { damage(scratch, fate, self.plan.faults()) } else { Damage::default() };
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
