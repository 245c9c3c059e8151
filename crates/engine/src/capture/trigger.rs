//! Ring buffer in memory that is written on a trigger: frames before it, and for a while after it.
//!
//! This is a sink in front of another one. Frames go into blocks of its own; the oldest are dropped once they exceed
//! the time limit, or memory is full. A trigger (a frame that passes a filter, a rate, a [`ManualTrigger`]) passes the
//! buffered frames to the other sink, and those that arrive for a while after the last trigger; then it is armed again.

use linerate_burst::block::{BLOCK_BYTES, BLOCK_FRAMES, View};
use linerate_burst::{Block, Burst, Count, Desc, Flags, Interface, Ledger, Nanos, Sink, SinkError, Stage};
use linerate_filter::Filter;
use linerate_generate::rate::Rate;
use std::collections::VecDeque;
use std::io::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Memory of a block.
const BLOCK_TAKES: usize = BLOCK_BYTES + BLOCK_FRAMES * size_of::<Desc>();
/// Window for rates in nanoseconds; windows start at full multiples.
const WINDOW: u64 = 100_000_000;

/// A manual trigger: by a signal, for example.
#[derive(Clone, Debug, Default)]
pub struct ManualTrigger(Arc<AtomicBool>);

impl ManualTrigger {
    /// Returns the flag that fires it.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    fn take(&self) -> bool {
        self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::Relaxed)
    }
}

/// Trigger conditions and limits.
#[derive(Clone, Debug, Default)]
pub struct Triggers {
    /// Time for which frames are kept before a trigger, by their time stamps.
    pub before: Duration,
    /// Maximum memory for that; at least two blocks.
    pub memory: usize,
    /// Time for which frames are written after the last trigger.
    pub after: Duration,
    /// Filter: a matching frame is a trigger; empty for none.
    pub filter: String,
    /// Rate: as many frames or bits within 100 ms are a trigger.
    pub rate: Option<Rate>,
    /// Manual trigger.
    pub manual: ManualTrigger,
}

/// Keeps frames until a trigger.
pub struct TriggerBuffer {
    triggers: Triggers,
    to: Box<dyn Sink>,
    /// Oldest first; the last one is being filled.
    blocks: VecDeque<Block>,
    spare: Vec<Block>,
    most: usize,
    /// Frames are written up to this time; `None` while armed.
    until: Option<Nanos>,
    newest: Nanos,
    /// Start, frames and bytes of the current window.
    window: (u64, u64, u64),
    interfaces: Vec<Interface>,
    /// Compiled filter of each interface; `None` if it cannot be compiled for its link type.
    filters: Vec<Option<Filter>>,
    run: Ledger,
    /// Frames dropped, those of them for lack of memory, and triggers.
    forgotten: u64,
    crowded: u64,
    fired: u64,
    /// First failure not yet returned; the other sink counts frames that it does not take.
    failure: Option<SinkError>,
}

impl TriggerBuffer {
    /// Creates the buffer in front of `to`, which starts new outputs with each trigger.
    pub fn new(triggers: Triggers, to: Box<dyn Sink>) -> Self {
        let most = (triggers.memory / BLOCK_TAKES).max(2);
        TriggerBuffer {
            triggers,
            to,
            blocks: VecDeque::new(),
            spare: Vec::new(),
            most,
            until: None,
            newest: Nanos::ZERO,
            window: (0, 0, 0),
            interfaces: Vec::new(),
            filters: Vec::new(),
            run: Ledger::new(),
            forgotten: 0,
            crowded: 0,
            fired: 0,
            failure: None,
        }
    }

    fn note(&mut self, result: Result<(), SinkError>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }

    fn take_failure(&mut self) -> Result<(), SinkError> {
        self.failure.take().map_or(Ok(()), Err)
    }

    fn learn(&mut self, interfaces: &[Interface]) {
        for interface in &interfaces[self.interfaces.len().min(interfaces.len())..] {
            let failed = |error: &dyn std::fmt::Display| SinkError {
                target: format!("--trigger, {}", interface.name),
                reason: Error::other(error.to_string()),
                advice: String::new(),
            };
            let compile = || Filter::compile(&self.triggers.filter, interface.link.0).map_err(|error| failed(&error));
            let filter = if self.triggers.filter.is_empty() { Ok(None) } else { compile().map(Some) };
            self.interfaces.push(interface.clone());
            self.filters.push(filter.unwrap_or_else(|error| {
                self.failure.get_or_insert(error);
                None
            }));
        }
    }

    /// Returns whether a frame is a trigger, and counts it.
    fn is_trigger(&mut self, desc: &Desc, frame: &[u8]) -> bool {
        let filter = self.filters.get(usize::from(desc.interface)).and_then(Option::as_ref);
        let passes = filter.is_some_and(|filter| filter.matches(frame, desc.wire));
        let Some(rate) = &self.triggers.rate else { return passes };
        if desc.flags.contains(Flags::LATE) {
            return passes;
        }
        let (begin, frames, bytes) = &mut self.window;
        if desc.time.0 / WINDOW != *begin {
            (*begin, *frames, *bytes) = (desc.time.0 / WINDOW, 0, 0);
        }
        *frames += 1;
        *bytes += u64::from(desc.wire);
        passes || rate.nanos(*frames, *bytes) >= WINDOW
    }

    /// Keeps a frame in memory.
    fn keep(&mut self, burst: Burst<'_>, index: usize) {
        let desc = &burst.descs()[index];
        if !self.blocks.back_mut().is_some_and(|block| block.push_stored(desc, burst, index)) {
            self.forget(false);
            if self.blocks.len() >= self.most {
                self.forget(true);
            }
            let mut block = self.spare.pop().unwrap_or_else(|| Block::new(BLOCK_BYTES, BLOCK_FRAMES));
            // An empty block takes any frame.
            block.push_stored(desc, burst, index);
            self.blocks.push_back(block);
        }
    }

    /// Drops blocks that are completely too old; with `must`, at least the oldest, to free memory.
    fn forget(&mut self, must: bool) {
        let oldest = self.newest.before(self.triggers.before);
        while let Some(block) = self.blocks.front() {
            let young = block.descs().iter().filter(|desc| desc.time >= oldest).count() as u64;
            if young > 0 && !must {
                return;
            }
            self.forgotten += block.len() as u64;
            self.crowded += young;
            self.spare.extend(self.blocks.pop_front().map(|mut block| {
                block.clear();
                block
            }));
            if must {
                return;
            }
        }
    }

    /// Handles a trigger: writes what is in memory and recent enough, and what arrives from now on.
    fn fire(&mut self, now: Nanos) {
        let was_open = self.until.is_some();
        self.until = Some(now.after(self.triggers.after).max(self.until.unwrap_or(Nanos::ZERO)));
        if was_open {
            return;
        }
        self.fired += 1;
        let oldest = now.before(self.triggers.before);
        while let Some(mut block) = self.blocks.pop_front() {
            let first = block.descs().iter().take_while(|desc| desc.time < oldest).count();
            self.forgotten += first as u64;
            let result = self.to.accept(block.view(first, &self.interfaces));
            self.note(result);
            block.clear();
            self.spare.push(block);
        }
    }

    /// Arms the trigger again after its time is over.
    fn arm(&mut self, now: Nanos) {
        if self.until.is_some_and(|until| now >= until) {
            self.until = None;
            let result = self.to.reopen(&self.run).map(drop);
            self.note(result);
        }
    }

    fn pass(&mut self, view: View<'_>) {
        if !view.burst().is_empty() {
            let result = self.to.accept(view);
            self.note(result);
        }
    }

    /// Writes or keeps frames from `at` on, up to where that changes; returns the index reached.
    fn take(&mut self, view: &View<'_>, at: usize) -> usize {
        let burst = view.burst();
        for index in at..burst.len() {
            let (desc, frame) = (burst.descs()[index], burst.frame(index));
            let is_late = desc.flags.contains(Flags::LATE);
            self.newest = if is_late { self.newest } else { self.newest.max(desc.time) };
            let is_trigger = self.is_trigger(&desc, frame) || self.triggers.manual.take();
            match self.until {
                Some(until) if is_trigger => {
                    self.until = Some(until.max(self.newest.after(self.triggers.after)));
                }
                Some(until) if self.newest >= until => {
                    self.pass(view.slice(at..index));
                    self.arm(self.newest);
                    self.keep(burst, index);
                    return index + 1;
                }
                None if is_trigger => {
                    self.fire(self.newest);
                    // This is the first frame to be written.
                    self.pass(view.slice(index..index + 1));
                    return index + 1;
                }
                None => self.keep(burst, index),
                Some(_) => {}
            }
        }
        if self.until.is_some() {
            self.pass(view.slice(at..burst.len()));
        }
        burst.len()
    }
}

impl Sink for TriggerBuffer {
    fn accept(&mut self, view: View<'_>) -> Result<(), SinkError> {
        let (mut at, frames) = (0, view.burst().len());
        self.learn(view.interfaces);
        while at < frames {
            at = self.take(&view, at);
        }
        self.take_failure()
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.to.flush()
    }

    fn reopen(&mut self, run: &Ledger) -> Result<Option<String>, SinkError> {
        self.to.reopen(run)
    }

    fn follows(&self) -> bool {
        true
    }

    fn look(&mut self, run: &Ledger, complete: Nanos) -> Result<(), SinkError> {
        self.run = run.clone();
        if self.triggers.manual.take() {
            self.fire(if complete == Nanos::MAX { self.newest } else { self.newest.max(complete) });
        }
        if complete < Nanos::MAX {
            self.arm(complete);
        }
        let result = self.to.look(run, complete);
        self.note(result);
        self.take_failure()
    }

    fn finish(&mut self, run: &Ledger) -> Result<(), SinkError> {
        // A trigger since the last look.
        if self.triggers.manual.take() {
            self.fire(self.newest);
        }
        self.forgotten += self.blocks.drain(..).map(|block| block.len() as u64).sum::<u64>();
        let failed = self.take_failure();
        self.to.finish(run).and(failed)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes =
            vec![format!("triggers: {}; {} packets far from one were not written", self.fired, self.forgotten)];
        if self.crowded > 0 {
            let text = "of these were newer than --before, but exceeded --before-memory";
            notes.push(format!("{} {text}", self.crowded));
        }
        notes.extend(self.to.notes());
        notes
    }

    fn counters(&self, ledger: &mut Ledger) {
        let mut own = Ledger::new();
        self.to.counters(&mut own);
        let name = own.accounts().iter().find(|account| account.stage == Stage::Write);
        let name = name.map_or_else(String::new, |account| account.subject.clone());
        let account = own.account(Stage::Write, &name);
        account.add(Count::WriteReceived, self.forgotten).add(Count::NotTriggered, self.forgotten);
        account.add(Count::BeforeCrowded, self.crowded).add(Count::Triggers, self.fired);
        ledger.add_all(&own);
    }
}

#[cfg(test)]
mod tests;
