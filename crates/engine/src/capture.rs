//! Frames in the order of time, copied once into blocks: for files, and for other processes.
//!
//! ```text
//!            ┌─ Block ──> sinks (a thread)      not shared
//!  picks ──> copy: complete, select
//!            └─ ring of blocks ──> readers      shared; sinks see the same memory
//! ```
//!
//! `complete`: completion of each desc while its frame is copied; `copier`: a second copying thread; `output`: the
//! block being filled; `sinks`: its consumers, such as files; [`share`]: the ring that other processes read;
//! [`trigger`]: a sink that keeps frames until an event.

mod complete;
mod copier;
mod output;
pub mod share;
mod sinks;
pub mod trigger;

use self::complete::{DescFinisher, Locator, Select};
use self::copier::Copier;
use self::output::Output;
use self::share::{SharedRing, Sharing};
use crate::consumer::{Consumer, Demand, FrameOrder, Round, RunCounters, RunEnd, RunStart};
use crate::control::{Progress, ReopenRequest};
use crate::error::ReceiveError;
use crate::select::{Selection, Selector};
use linerate_burst::{Ledger, Nanos, Sink, Stage};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Copies selected frames into blocks, in order, and passes these on.
pub struct Capture {
    name: &'static str,
    /// Requested ring, before the run.
    share: Option<Sharing>,
    copy_with_helper: bool,
    note: Option<String>,
    selector: Selector,
    /// Finds headers and flows for readers of the ring.
    locator: Option<Locator>,
    output: Output,
    copier: Option<Copier>,
    progress: Arc<Progress>,
    reopen: Option<ReopenRequest>,
    /// Watermark: later frames are not older than this, except late ones.
    complete: Nanos,
    done: CaptureTotals,
}

/// Totals of a capture.
#[derive(Clone, Debug, Default)]
pub struct CaptureTotals {
    /// Frames passed to the outputs.
    pub frames: u64,
    /// Bytes captured of those frames.
    pub bytes: u64,
    /// Bytes on the wire, without FCS.
    pub wire_bytes: u64,
    /// Frames of each shard of the traffic, including those not selected; empty without a shard.
    pub shards: Vec<u64>,
    /// Smallest and greatest time of the frames passed to the outputs.
    pub span: Option<(Nanos, Nanos)>,
}

impl Capture {
    /// Captures all selected frames to each of the sinks.
    pub fn new(selection: Selection, sinks: Vec<Box<dyn Sink>>) -> Self {
        let progress = Progress::new();
        Capture {
            name: "capture",
            share: None,
            copy_with_helper: false,
            note: None,
            selector: Selector::new(selection),
            locator: None,
            output: Output::new(sinks, Arc::clone(&progress)),
            copier: None,
            progress,
            reopen: None,
            complete: Nanos::ZERO,
            done: CaptureTotals::default(),
        }
    }

    /// Sets the branch of its accounts, if there is another capture in the run.
    pub fn name(mut self, name: &'static str) -> Self {
        self.name = name;
        self
    }

    /// Shares the frames with other processes in this ring.
    pub fn share(mut self, sharing: Option<Sharing>) -> Self {
        self.share = sharing;
        self
    }

    /// Copies with a second thread if every frame is kept unchanged: up to twice as fast, for the full time of a
    /// processor.
    pub fn copy_with_helper(mut self, by_two: bool) -> Self {
        self.copy_with_helper = by_two;
        self
    }

    /// Publishes the totals in `progress`.
    pub fn progress(mut self, progress: Arc<Progress>) -> Self {
        self.output.set_progress(Arc::clone(&progress));
        self.progress = progress;
        self
    }

    /// Starts new outputs when `reopen` is requested.
    pub fn reopen(mut self, reopen: ReopenRequest) -> Self {
        self.reopen = Some(reopen);
        self
    }

    /// Returns the totals after the run.
    pub fn done(self) -> CaptureTotals {
        self.done
    }

    /// Copies the selected frames of a round.
    fn copy(&mut self, round: &Round<'_>) {
        let Capture { selector, locator, output, copier, .. } = self;
        let Round { picks, bursts, maps, filters, .. } = *round;
        let all = round.interfaces;
        if let Some(locator) = locator {
            locator.learn(all);
        }
        let mut complete = DescFinisher { maps, locator: locator.as_ref() };
        if selector.take_all(picks.len()) {
            match copier.as_mut().and_then(|copier| copier.for_frames(picks.len())) {
                Some(helper) => {
                    output.gather(picks, all, |to, picks| to.gather_with_helper(helper, bursts, picks, &complete))
                }
                None => output.gather(picks, all, |to, picks| to.gather(bursts, picks, &mut complete)),
            }
        } else {
            selector.start_round(filters);
            let before = selector.duplicates();
            let mut select = Select { complete, selector };
            output.gather(picks, all, |to, picks| to.gather(bursts, picks, &mut select));
            output.count_duplicates(selector.duplicates() - before);
        }
    }
}

impl Consumer for Capture {
    fn name(&self) -> &'static str {
        self.name
    }

    fn order(&self) -> FrameOrder {
        FrameOrder::Checked
    }

    fn begin(&mut self, start: &RunStart) -> Result<(), ReceiveError> {
        if self.copy_with_helper {
            match Copier::start() {
                Ok(copier) => self.copier = Some(copier),
                Err(error) => self.note = Some(format!("copying with one thread: cannot start another: {error}")),
            }
        }
        let open =
            |sharing| SharedRing::open(sharing, start.stop.clone(), start.duration).map_err(ReceiveError::Acceptor);
        let (ring, result) = match self.share.take().map(open).transpose() {
            Ok(ring) => (ring, Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.locator = ring.is_some().then(Locator::default);
        self.output.begin(ring);
        result
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        let learned = self.selector.learn(round.interfaces);
        self.copy(round);
        self.output.commit(round.interfaces, round.complete);
        self.output.tick(round.now);
        self.complete = round.complete;
        if round.picks.is_empty() {
            self.output.flush_block(round.interfaces, true);
        }
        self.progress.late.store(round.late, Ordering::Relaxed);
        learned
    }

    fn look(&mut self, look: &RunCounters<'_>) {
        let lost = look.queues().lost();
        self.progress.lost.store(lost, Ordering::Relaxed);
        self.output.record_losses(lost);
        if let Some(reopen) = self.reopen.as_ref().filter(|reopen| reopen.take()) {
            let mut run = look.ports();
            self.selector.counters(run.account(Stage::Select, ""));
            self.output.reopen(look.interfaces(), run, reopen);
        }
        if self.output.follow() {
            let mut run = look.queues();
            self.selector.counters(run.account(Stage::Select, ""));
            self.output.look(look.interfaces(), run, self.complete);
        }
    }

    fn counters(&self, ledger: &mut Ledger) {
        self.selector.counters(ledger.account(Stage::Select, ""));
        self.output.share_counters(ledger);
    }

    fn demand(&self) -> Demand {
        match () {
            () if self.output.has_failed() => Demand::Failed,
            () if self.selector.is_full() => Demand::Enough,
            () => Demand::More,
        }
    }

    fn finish(&mut self, end: &mut RunEnd<'_>) {
        end.events.extend(self.note.take());
        if let Some(died) = end.died.take() {
            self.output.record_panic(died);
        }
        self.output.flush_block(end.interfaces, true);
        self.output.introduce(end.interfaces);
        self.selector.counters(end.ledger.account(Stage::Select, ""));
        let totals = self.output.totals();
        let (events, failure) = self.output.finish(end.has_failed, end.ledger);
        end.events.extend(events);
        if let Some(failure) = failure {
            end.fail(failure);
        }
        self.progress.lost.store(end.ledger.lost(), Ordering::Relaxed);
        self.done = CaptureTotals {
            frames: totals.frames,
            bytes: totals.bytes,
            wire_bytes: totals.wire_bytes,
            shards: self.selector.shards().to_vec(),
            span: totals.span(),
        };
    }
}
