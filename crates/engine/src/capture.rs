//! Ports -> merge -> select -> block -> sinks, in one thread.
//!
//! The kernel fills the receive rings on its own; what is left for this thread is to order, judge and copy
//! each frame once. A round takes what every lane has ready; virtual calls are paid per round.

use crate::clock;
use crate::control::{Progress, Stop};
use crate::lanes::{Lanes, Shown, Table, recycle};
use crate::rounds::{Round, Rounds};
use crate::select::{Selection, Selector};
use crate::wait::Waiting;
use linerate_burst::{Block, Count, Desc, Flags, Interface, Ledger, Nanos, Sink, SinkError, Stage};
use linerate_merge::{Input, Merge, Run};
use linerate_port::{PortError, RxPort};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Frames are gathered into blocks of this size before the sinks see them.
const BLOCK_BYTES: usize = 1 << 20;
const BLOCK_FRAMES: usize = 8192;

/// What to capture, from where to where.
pub struct Capture {
    /// Where frames come from; their queues are the lanes of the merge.
    pub ports: Vec<RxPort>,
    /// Which frames to keep.
    pub selection: Selection,
    /// Where frames go, all of them to each.
    pub sinks: Vec<Box<dyn Sink>>,
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
        while session.round() {}
        session.finish()
    }
}

struct Session {
    lanes: Lanes,
    merge: Merge,
    runs: Vec<Run>,
    selector: Selector,
    output: Output,
    rounds: Rounds,
    /// Empty between rounds; their memory is kept.
    shown: Vec<Shown<'static>>,
    inputs: Vec<Input<'static>>,
}

impl Session {
    fn new(capture: Capture) -> Self {
        let lanes = Lanes::new(capture.ports);
        Session {
            merge: Merge::new(lanes.len()),
            lanes,
            runs: Vec::new(),
            selector: Selector::new(capture.selection),
            output: Output::new(capture.sinks, capture.progress),
            rounds: Rounds::new(capture.waiting, capture.duration, capture.stop),
            shown: Vec::new(),
            inputs: Vec::new(),
        }
    }

    /// Takes what is ready; false when there is nothing more to come.
    fn round(&mut self) -> bool {
        let enough = self.output.failure.is_some() || self.selector.is_full();
        self.rounds.detach_if(enough, &mut self.lanes);
        let now = clock::now();
        let round = self.move_frames(now);
        if matches!(round, Round::Nothing | Round::Held) {
            self.output.deliver(self.lanes.interfaces(), true);
        }
        if self.rounds.is_time_to_look() {
            self.look_at_losses();
        }
        self.rounds.go_on(round, now, &self.lanes)
    }

    /// One round of fill, merge, select, copy, consume.
    fn move_frames(&mut self, now: Nanos) -> Round {
        let Session { lanes, merge, runs, selector, output, .. } = self;
        let mut shown = recycle(std::mem::take(&mut self.shown));
        let mut inputs = recycle(std::mem::take(&mut self.inputs));
        let mut table = lanes.fill(now, &mut shown);
        output.fail_if(learn(&mut table, &shown, selector).map_or(Ok(()), Err));
        inputs.extend(shown.iter().map(Shown::input));
        runs.clear();
        merge.round(&inputs, runs);
        for run in runs.iter() {
            let lane = &shown[run.lane];
            let judged = table.is_filtered(lane);
            for (desc, frame) in lane.burst.slice(run.first..run.first + run.count).iter() {
                let mut desc = table.place(lane, desc);
                if run.late {
                    desc.flags |= Flags::LATE;
                }
                if let Some((length, flags)) = selector.select(&desc, frame, judged) {
                    output.push(&Desc { flags, ..desc }, &frame[..length], table.interfaces());
                }
            }
        }
        let over = shown.iter().all(Shown::is_over);
        let held = shown.iter().any(|lane| !lane.burst.is_empty());
        self.inputs = recycle(inputs);
        self.shown = recycle(shown);
        for run in self.runs.iter() {
            self.lanes.consume(run.lane, run.count);
        }
        self.output.progress.late.store(self.merge.late(), Ordering::Relaxed);
        match (over, self.runs.is_empty(), held) {
            (true, ..) => Round::Over,
            (_, false, _) => Round::Moved,
            (_, true, true) => Round::Held,
            (_, true, false) => Round::Nothing,
        }
    }

    fn look_at_losses(&mut self) {
        let mut ledger = Ledger::new();
        self.lanes.queue_counters(&mut ledger);
        self.output.progress.lost.store(ledger.lost(), Ordering::Relaxed);
    }

    fn finish(mut self) -> CaptureReport {
        self.lanes.detach();
        self.output.deliver(self.lanes.interfaces(), true);
        let elapsed = self.rounds.elapsed();
        let mut ledger = Ledger::new();
        self.lanes.counters(&mut ledger);
        let merge = ledger.account(Stage::Merge, "");
        merge.add(Count::MergeReceived, self.merge.frames()).add(Count::MergeDelivered, self.merge.frames());
        merge.add(Count::Late, self.merge.late());
        self.selector.counters(ledger.account(Stage::Select, ""));
        self.output.finish(&mut ledger);
        self.output.progress.lost.store(ledger.lost(), Ordering::Relaxed);
        let failure = self.output.failure.or(self.lanes.failure.take().map(CaptureError::Port));
        CaptureReport {
            ledger,
            quiesced: self.rounds.quiesced(),
            interfaces: self.lanes.interfaces().to_vec(),
            frames: self.output.frames,
            bytes: self.output.bytes,
            wire_bytes: self.output.wire_bytes,
            shards: self.selector.shards().to_vec(),
            span: self.output.span,
            elapsed,
            events: self.lanes.events,
            failure,
        }
    }
}

/// The block being filled, and the sinks that get it.
struct Output {
    block: Block,
    sinks: Vec<Box<dyn Sink>>,
    progress: Arc<Progress>,
    frames: u64,
    bytes: u64,
    wire_bytes: u64,
    span: Option<(Nanos, Nanos)>,
    failure: Option<CaptureError>,
}

impl Output {
    fn new(sinks: Vec<Box<dyn Sink>>, progress: Arc<Progress>) -> Self {
        let block = Block::new(BLOCK_BYTES, BLOCK_FRAMES);
        Output { block, sinks, progress, frames: 0, bytes: 0, wire_bytes: 0, span: None, failure: None }
    }

    #[inline]
    fn push(&mut self, desc: &Desc, frame: &[u8], interfaces: &[Interface]) {
        if !self.block.push(desc, frame) {
            self.deliver(interfaces, false);
            let taken = self.block.push(desc, frame);
            debug_assert!(taken, "an empty block takes any frame");
        }
    }

    /// Hands the block to every sink and empties it; with `flush`, the sinks pass on what they hold.
    fn deliver(&mut self, interfaces: &[Interface], flush: bool) {
        if self.block.is_empty() {
            return;
        }
        let (mut bytes, mut wire_bytes) = (0, 0);
        let (mut first, mut last) = self.span.unwrap_or((Nanos::MAX, Nanos::ZERO));
        for desc in self.block.burst().descs() {
            bytes += u64::from(desc.captured);
            wire_bytes += u64::from(desc.wire);
            (first, last) = (first.min(desc.time), last.max(desc.time));
        }
        self.span = Some((first, last));
        for sink in &mut self.sinks {
            let mut result = sink.accept(self.block.view(0, interfaces));
            if flush {
                result = result.and_then(|()| sink.flush());
            }
            if let Err(error) = result {
                self.failure.get_or_insert(error.into());
            }
        }
        self.frames += self.block.len() as u64;
        self.bytes += bytes;
        self.wire_bytes += wire_bytes;
        self.progress.add(self.block.len() as u64, bytes, wire_bytes);
        self.block.clear();
    }

    fn finish(&mut self, ledger: &mut Ledger) {
        for index in 0..self.sinks.len() {
            let result = self.sinks[index].finish(ledger);
            self.fail_if(result.map_err(CaptureError::Sink));
        }
        for sink in &self.sinks {
            sink.counters(ledger);
        }
    }

    fn fail_if(&mut self, result: Result<(), CaptureError>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
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
