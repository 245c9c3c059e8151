//! Ports -> merge -> select -> block -> sinks, in one thread.
//!
//! The kernel fills the receive rings on its own; what is left for this thread is to order, judge and copy
//! each frame once. A round takes what every lane has ready; virtual calls are paid per round.

use crate::clock;
use crate::control::{Progress, Stop};
use crate::lanes::{Lanes, Shown};
use crate::select::{Selection, Selector};
use crate::wait::{Awaited, Idler, Waiting};
use linerate_burst::{Block, Count, Desc, Flags, Interface, Ledger, Nanos, Sink, SinkError, Stage};
use linerate_merge::{Input, Merge, Run};
use linerate_port::{PortError, RxPort};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Frames are gathered into blocks of this size before the sinks see them.
const BLOCK_BYTES: usize = 1 << 20;
const BLOCK_FRAMES: usize = 8192;
/// How often the loss counters are looked up while the run lasts.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long detached lanes may take to show the next frame, or that there is none: the backlog is finite, but a
/// slow output takes its time.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);
/// The longest wait for input, so that stop requests and time limits are seen.
const NAP_LIMIT: Duration = Duration::from_millis(10);

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
    /// The least and the greatest time among them.
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
    idler: Idler,
    duration: Option<Duration>,
    stop: Stop,
    started: Instant,
    looked: Instant,
    /// Since when detached lanes have shown nothing.
    detached: Option<Instant>,
    quiesced: bool,
    /// Empty between rounds; their memory is kept.
    shown: Vec<Shown<'static>>,
    inputs: Vec<Input<'static>>,
}

impl Session {
    fn new(capture: Capture) -> Self {
        let lanes = Lanes::new(capture.ports);
        let now = Instant::now();
        Session {
            merge: Merge::new(lanes.len()),
            lanes,
            runs: Vec::new(),
            selector: Selector::new(capture.selection),
            output: Output::new(capture.sinks, capture.progress),
            idler: Idler::new(capture.waiting),
            duration: capture.duration,
            stop: capture.stop,
            started: now,
            looked: now,
            detached: None,
            quiesced: false,
            shown: Vec::new(),
            inputs: Vec::new(),
        }
    }

    /// Takes what is ready; false when there is nothing more to come.
    fn round(&mut self) -> bool {
        self.detach_if_wanted();
        let now = clock::now();
        let (moved, held, over) = self.move_frames(now);
        if over {
            self.quiesced = true;
            return false;
        }
        if moved {
            self.idler.busy(now);
        } else {
            self.output.deliver(self.lanes.interfaces(), true);
            let lanes = &self.lanes;
            let awaited = if held { Awaited::Horizon } else { Awaited::Input };
            self.idler.idle(now, NAP_LIMIT, awaited, || lanes.wakes());
        }
        self.look_at_losses();
        if moved && self.detached.is_some() {
            self.detached = Some(Instant::now());
        }
        self.detached.is_none_or(|since| since.elapsed() <= DRAIN_LIMIT)
    }

    /// One round of fill, merge, select, copy, consume. Returns whether frames moved, whether any are held
    /// back, and whether all lanes are over.
    fn move_frames(&mut self, now: Nanos) -> (bool, bool, bool) {
        let Session { lanes, merge, runs, selector, output, .. } = self;
        let mut shown = recycle(std::mem::take(&mut self.shown));
        let mut inputs = recycle(std::mem::take(&mut self.inputs));
        let mut table = lanes.fill(now, &mut shown);
        for lane in &shown {
            for interface in table.learn(lane) {
                output.fail_if(selector.add_interface(interface).map_err(|error| CaptureError::Filter {
                    interface: interface.name.clone(),
                    reason: error.to_string(),
                }));
            }
        }
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
        let held = shown.iter().map(|lane| lane.burst.len()).sum::<usize>() > 0;
        self.inputs = recycle(inputs);
        self.shown = recycle(shown);
        for run in self.runs.iter() {
            self.lanes.consume(run.lane, run.count);
        }
        self.output.progress.late.store(self.merge.late(), Ordering::Relaxed);
        (!self.runs.is_empty(), held, over)
    }

    fn detach_if_wanted(&mut self) {
        let wanted = self.stop.is_requested()
            || self.output.failure.is_some()
            || self.selector.is_full()
            || self.duration.is_some_and(|limit| self.started.elapsed() >= limit);
        if wanted && self.detached.is_none() {
            self.lanes.detach();
            self.detached = Some(Instant::now());
        }
    }

    fn look_at_losses(&mut self) {
        if self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            let mut ledger = Ledger::new();
            self.lanes.queue_counters(&mut ledger);
            self.output.progress.lost.store(ledger.lost(), Ordering::Relaxed);
        }
    }

    fn finish(mut self) -> CaptureReport {
        self.lanes.detach();
        self.output.deliver(self.lanes.interfaces(), true);
        let elapsed = self.started.elapsed();
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
            quiesced: self.quiesced,
            interfaces: self.lanes.interfaces().to_vec(),
            frames: self.output.frames,
            bytes: self.output.bytes,
            wire_bytes: self.output.wire_bytes,
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
            let mut result = sink.accept(self.block.view(interfaces));
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

/// An empty vector of another lifetime in the memory of this one.
pub(crate) fn recycle<A, B>(mut used: Vec<A>) -> Vec<B> {
    used.clear();
    used.into_iter().map(|_| unreachable!("the vector is empty")).collect()
}
