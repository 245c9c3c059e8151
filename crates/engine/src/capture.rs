//! Ports -> merge -> select -> block -> sinks, in one thread.
//!
//! The kernel fills the receive rings on its own; what is left for this thread is to order, judge and copy
//! each frame once. A round takes what every lane has ready; virtual calls are paid per round.

use crate::clock::{Clock, System};
use crate::complete::{Complete, Locator, Select};
use crate::control::{Progress, Stop};
use crate::copier::Copier;
use crate::died::{Died, survive};
use crate::lanes::{Lanes, Shown, Table, recycle};
use crate::output::Output;
use crate::rounds::{Round, Rounds};
use crate::select::{Selection, Selector};
use crate::share::{Shared, Sharing};
use crate::wait::Waiting;
use linerate_burst::{Burst, Interface, Ledger, Nanos, Pick, Sink, SinkError, Stage};
use linerate_merge::{Input, Merge};
use linerate_port::{PortError, RxPort};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What to capture, from where to where.
pub struct Capture {
    /// Where frames come from; their queues are the lanes of the merge.
    pub ports: Vec<RxPort>,
    /// Which frames to keep.
    pub selection: Selection,
    /// Where frames go, all of them to each.
    pub sinks: Vec<Box<dyn Sink>>,
    /// A ring in shared memory for other processes to read, if there is to be one.
    pub share: Option<Sharing>,
    /// Whether a second thread copies, where every frame is kept as it is: up to twice as fast, for a processor that
    /// does nothing else meanwhile.
    pub copy_by_two: bool,
    /// How to wait for frames.
    pub waiting: Waiting,
    /// After how long to stop.
    pub duration: Option<Duration>,
    /// Ends the run when requested.
    pub stop: Stop,
    /// What the run has done so far.
    pub progress: Arc<Progress>,
}

/// What a capture did.
#[derive(Debug)]
pub struct CaptureReport {
    /// Every frame accounted for.
    pub ledger: Ledger,
    /// Whether all lanes ran dry, so that the ledger is exact.
    pub quiesced: bool,
    /// The interfaces frames came from.
    pub interfaces: Vec<Interface>,
    /// Frames handed to the outputs.
    pub frames: u64,
    /// Their captured bytes.
    pub bytes: u64,
    /// The bytes they had on the wire, without FCS.
    pub wire_bytes: u64,
    /// Frames of each shard that the traffic was divided into, whichever of them was kept; none without a shard.
    pub shards: Vec<u64>,
    /// The least and the greatest time among the frames handed to the outputs.
    pub span: Option<(Nanos, Nanos)>,
    /// How long the run took.
    pub elapsed: Duration,
    /// What was noteworthy, in order.
    pub events: Vec<String>,
    /// What went wrong, if anything; what was captured before is complete in the outputs.
    pub failure: Option<CaptureError>,
}

/// Why a capture failed.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// An input.
    #[error(transparent)]
    Port(#[from] PortError),
    /// An output.
    #[error(transparent)]
    Sink(#[from] SinkError),
    /// More lanes than can be merged.
    #[error("{found} lanes: at most {most} can be merged; open fewer queues of each port (as in @0-3, or lanes=4)", most = Pick::MAX_LANES)]
    Lanes {
        /// How many there are.
        found: usize,
    },
    /// The ring.
    #[error("sharing: {0}")]
    Share(#[from] linerate_share::Error),
    /// The thread that lets readers in.
    #[error("sharing: no thread can be started: {0}")]
    Door(std::io::Error),
    /// A bug of this program.
    #[error(transparent)]
    Died(#[from] Died),
    /// A thread of a worker.
    #[error("no thread can be started for a worker: {0}; ask for fewer workers")]
    Worker(std::io::Error),
    /// The filter text does not fit the link type of an interface.
    #[error("interface {interface:?}: {reason}; none of its frames was selected")]
    Filter {
        /// Which interface.
        interface: String,
        /// What is wrong.
        reason: String,
    },
}

impl Capture {
    /// Captures until every port has ended, a limit is reached, or stopping is requested.
    pub fn run(self) -> CaptureReport {
        let mut session = Session::new(self);
        if let Err(died) = survive(|| while session.round() {}) {
            session.output.die(died);
        }
        session.finish()
    }
}

struct Session {
    lanes: Lanes,
    merge: Merge,
    picks: Vec<Pick>,
    selector: Selector,
    /// Finds headers and flows, for whoever reads the ring.
    locator: Option<Locator>,
    output: Output,
    copier: Option<Copier>,
    rounds: Rounds,
    progress: Arc<Progress>,
    /// Empty between rounds; their memory is kept.
    shown: Vec<Shown<'static>>,
    inputs: Vec<Input<'static>>,
    bursts: Vec<Burst<'static>>,
    maps: Vec<&'static [u16]>,
    filtered: Vec<bool>,
}

impl Session {
    fn new(capture: Capture) -> Self {
        Session::with(capture, Box::new(System))
    }

    /// A session that has its time from there.
    fn with(capture: Capture, clock: Box<dyn Clock>) -> Self {
        let mut lanes = Lanes::with(capture.ports, true, clock);
        let mut failure = None;
        if lanes.len() > Pick::MAX_LANES {
            let found = lanes.len();
            failure = Some(CaptureError::Lanes { found });
            lanes.keep(Pick::MAX_LANES);
        }
        let mut ring = None;
        if let Some(sharing) = capture.share {
            match Shared::open(sharing, capture.stop.clone(), capture.duration) {
                Ok(open) => ring = Some(open),
                Err(error) => failure = failure.or(Some(CaptureError::Door(error))),
            }
        }
        let mut output = Output::new(capture.sinks, ring, Arc::clone(&capture.progress));
        output.fail_if(failure.map_or(Ok(()), Err));
        let copier = capture.copy_by_two.then(Copier::start).transpose().unwrap_or_else(|error| {
            lanes.events.push(format!("one thread copies: no other can be started: {error}"));
            None
        });
        Session {
            merge: Merge::new(lanes.len()),
            lanes,
            picks: Vec::new(),
            selector: Selector::new(capture.selection),
            locator: output.is_shared().then(Locator::default),
            output,
            copier,
            progress: capture.progress,
            rounds: Rounds::new(capture.waiting, capture.duration, capture.stop),
            shown: Vec::new(),
            inputs: Vec::new(),
            bursts: Vec::new(),
            maps: Vec::new(),
            filtered: Vec::new(),
        }
    }

    /// Takes what is ready; false when there is nothing more to come.
    fn round(&mut self) -> bool {
        let enough = self.output.has_failed() || self.selector.is_full();
        self.rounds.detach_if(enough, &mut self.lanes);
        let now = self.lanes.look_at_clock();
        let round = self.move_frames(now);
        if matches!(round, Round::Nothing | Round::Held) {
            self.output.pass_on(self.lanes.interfaces(), true);
        }
        if self.rounds.is_time_to_look() {
            self.look_at_losses();
        }
        self.rounds.go_on(round, now, &self.lanes)
    }

    /// One round of fill, order, select, copy, consume.
    fn move_frames(&mut self, now: Nanos) -> Round {
        let Session { lanes, merge, picks, selector, locator, output, copier, filtered, .. } = self;
        let mut shown = recycle(std::mem::take(&mut self.shown));
        let mut inputs = recycle(std::mem::take(&mut self.inputs));
        let mut bursts = recycle(std::mem::take(&mut self.bursts));
        let mut maps = recycle(std::mem::take(&mut self.maps));
        let mut table = lanes.fill(now, &mut shown);
        output.fail_if(learn(&mut table, &shown, selector).map_or(Ok(()), Err));
        inputs.extend(shown.iter().map(Shown::input));
        bursts.extend(shown.iter().map(|lane| lane.burst));
        picks.clear();
        merge.set_ceiling(table.ceiling());
        merge.order(&inputs, picks);
        let all = table.interfaces();
        if let Some(locator) = locator {
            locator.learn(all);
        }
        maps.extend(shown.iter().map(|lane| table.map(lane)));
        let mut complete = Complete { maps: &maps, locator: locator.as_ref() };
        if selector.take_all(picks.len()) {
            match copier.as_mut().and_then(|copier| copier.for_frames(picks.len())) {
                Some(helper) => {
                    output.gather(picks, all, |to, picks| to.gather_beside(helper, &bursts, picks, &complete))
                }
                None => output.gather(picks, all, |to, picks| to.gather(&bursts, picks, &mut complete)),
            }
        } else {
            filtered.clear();
            filtered.extend(shown.iter().map(|lane| table.is_filtered(lane)));
            let before = selector.duplicates();
            let mut select = Select { complete, selector, filtered };
            output.gather(picks, all, |to, picks| to.gather(&bursts, picks, &mut select));
            output.leave_out(selector.duplicates() - before);
        }
        let horizon = shown.iter().enumerate().map(|(lane, shown)| shown.bound(merge.taken(lane))).min();
        output.commit(all, horizon.unwrap_or(Nanos::MAX));
        output.tick(now);
        let over = shown.iter().all(Shown::is_over);
        let held = shown.iter().any(|lane| !lane.burst.is_empty());
        self.inputs = recycle(inputs);
        self.shown = recycle(shown);
        self.bursts = recycle(bursts);
        self.maps = recycle(maps);
        for lane in 0..self.lanes.len() {
            self.lanes.consume(lane, self.merge.taken(lane));
        }
        self.progress.late.store(self.merge.late(), Ordering::Relaxed);
        match (over, self.picks.is_empty(), held) {
            (true, ..) => Round::Over,
            (_, false, _) => Round::Moved,
            (_, true, true) => Round::Held,
            (_, true, false) => Round::Nothing,
        }
    }

    fn look_at_losses(&mut self) {
        let mut ledger = Ledger::new();
        self.lanes.queue_counters(&mut ledger);
        self.progress.lost.store(ledger.lost(), Ordering::Relaxed);
        self.output.look_at_losses(ledger.lost());
    }

    fn finish(mut self) -> CaptureReport {
        self.lanes.detach();
        self.output.pass_on(self.lanes.interfaces(), true);
        let elapsed = self.rounds.elapsed();
        let mut ledger = Ledger::new();
        self.lanes.counters(&mut ledger);
        self.lanes.merge_counters(&self.merge, &mut ledger);
        self.selector.counters(ledger.account(Stage::Select, ""));
        let totals = self.output.totals();
        let (events, failure) = self.output.finish(&mut ledger);
        self.lanes.events.extend(events);
        self.progress.lost.store(ledger.lost(), Ordering::Relaxed);
        let failure = failure.or(self.lanes.failure.take().map(CaptureError::Port));
        CaptureReport {
            ledger,
            quiesced: self.rounds.quiesced(),
            interfaces: self.lanes.interfaces().to_vec(),
            frames: totals.frames,
            bytes: totals.bytes,
            wire_bytes: totals.wire_bytes,
            shards: self.selector.shards().to_vec(),
            span: totals.span(),
            elapsed,
            events: self.lanes.events,
            failure,
        }
    }
}

/// Takes up the interfaces that lanes show for the first time; the first that the filter text does not fit.
pub(crate) fn learn(table: &mut Table<'_>, shown: &[Shown<'_>], selector: &mut Selector) -> Option<CaptureError> {
    let mut failure = None;
    for lane in shown {
        for interface in table.learn(lane) {
            if let Err(error) = selector.add_interface(interface) {
                let (interface, reason) = (interface.name.clone(), error.to_string());
                failure.get_or_insert(CaptureError::Filter { interface, reason });
            }
        }
    }
    failure
}

#[cfg(test)]
mod tests;
