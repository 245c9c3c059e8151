//! Ports -> select -> flow records, in one thread.
//!
//! Nothing is ordered and no frame is copied: each burst goes to the meter as its queue shows it.

use crate::capture::{CaptureError, learn};
use crate::clock;
use crate::control::{Progress, Stop};
use crate::lanes::{Lanes, Shown, Table, recycle};
use crate::rounds::{Round, Rounds};
use crate::select::{Selection, Selector};
use crate::wait::Waiting;
use linerate_burst::{Ledger, Nanos};
use linerate_meter::{Config, Counts, Meter, Records};
use linerate_port::RxPort;
use linerate_wire::Link;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What to meter.
pub struct Metering<'a> {
    /// Where frames come from.
    pub ports: Vec<RxPort>,
    /// Which frames to meter; the slice means nothing here.
    pub selection: Selection,
    /// Keys, timeouts, memory.
    pub config: Config,
    /// What takes finished flows, in the thread of the run.
    pub records: &'a mut dyn Records,
    /// How to wait for frames.
    pub waiting: Waiting,
    /// After how long to stop.
    pub duration: Option<Duration>,
    /// Ends the run when requested.
    pub stop: Stop,
    /// What was done so far.
    pub progress: Arc<Progress>,
}

/// What came of a run.
#[derive(Debug)]
pub struct FlowsReport {
    /// What was counted beside the flows.
    pub counts: Counts,
    /// Bytes of memory for each flow, plain and wide ([`Config::bytes_per_flow`]).
    pub bytes_per_flow: [usize; 2],
    /// How long it took.
    pub elapsed: Duration,
    /// Every frame accounted for.
    pub ledger: Ledger,
    /// Whether all queues ran dry, so that the ledger is exact.
    pub quiesced: bool,
    /// What was noteworthy, in order.
    pub events: Vec<String>,
    /// What went wrong, if anything; the records before that are complete.
    pub failure: Option<CaptureError>,
}

impl Metering<'_> {
    /// Meters until every port has ended, a limit is reached, or stopping is requested; then ends all flows.
    pub fn run(self) -> FlowsReport {
        let lanes = Lanes::new(self.ports);
        let mut session = Session {
            links: vec![Vec::new(); lanes.len()],
            lanes,
            selector: Selector::new(Selection { slice: None, ..self.selection }),
            rounds: Rounds::new(self.waiting, self.duration, self.stop),
            meter: Meter::new(&self.config),
            bytes_per_flow: self.config.bytes_per_flow(),
            records: self.records,
            progress: self.progress,
            failure: None,
            taken: Vec::new(),
            shown: Vec::new(),
        };
        while session.round() {}
        session.finish()
    }
}

struct Session<'a> {
    lanes: Lanes,
    selector: Selector,
    rounds: Rounds,
    meter: Meter,
    bytes_per_flow: [usize; 2],
    records: &'a mut dyn Records,
    progress: Arc<Progress>,
    failure: Option<CaptureError>,
    /// What frames of each interface of each lane begin with.
    links: Vec<Vec<Option<Link>>>,
    /// Frames of each lane that the round has taken.
    taken: Vec<usize>,
    /// Empty between rounds; its memory is kept.
    shown: Vec<Shown<'static>>,
}

impl Session<'_> {
    /// Takes what is ready; false when there is nothing more to come.
    fn round(&mut self) -> bool {
        let enough = self.failure.is_some() || self.selector.is_full();
        self.rounds.detach_if(enough, &mut self.lanes);
        let now = clock::now();
        let round = self.take_frames(now);
        if self.rounds.is_time_to_look() {
            let counts = self.meter.counts();
            self.progress.frames.store(counts.frames, Ordering::Relaxed);
            self.progress.bytes.store(counts.bytes, Ordering::Relaxed);
            self.progress.wire_bytes.store(counts.bytes, Ordering::Relaxed);
            let mut ledger = Ledger::new();
            self.lanes.queue_counters(&mut ledger);
            self.progress.lost.store(ledger.lost(), Ordering::Relaxed);
        }
        self.rounds.go_on(round, now, &self.lanes)
    }

    /// One round of fill, select, meter, consume.
    fn take_frames(&mut self, now: Nanos) -> Round {
        let mut shown = recycle(std::mem::take(&mut self.shown));
        let mut table = self.lanes.fill(now, &mut shown);
        if let Some(error) = learn(&mut table, &shown, &mut self.selector) {
            self.failure.get_or_insert(error);
        }
        self.taken.clear();
        let mut complete = Nanos::MAX;
        for (head, links) in shown.iter().zip(&mut self.links) {
            self.taken.push(head.burst.len());
            complete = complete.min(head.bound(head.burst.len()));
            if !head.burst.is_empty() {
                learn_links(links, &table, head);
                meter(&mut self.meter, &mut self.selector, &table, head, links, self.records);
            }
        }
        let over = shown.iter().all(Shown::is_over);
        self.shown = recycle(shown);
        for (lane, frames) in self.taken.iter().enumerate() {
            self.lanes.consume(lane, *frames);
        }
        match (over, self.taken.iter().any(|frames| *frames > 0)) {
            (true, _) => Round::Over,
            (_, true) => Round::Moved,
            (_, false) => {
                if complete != Nanos::MAX {
                    self.meter.expire(complete, self.records);
                }
                Round::Nothing
            }
        }
    }

    fn finish(mut self) -> FlowsReport {
        self.lanes.detach();
        self.meter.finish(self.meter.latest(), self.records);
        let mut ledger = Ledger::new();
        self.lanes.counters(&mut ledger);
        self.selector.counters(ledger.account(linerate_burst::Stage::Select, ""));
        FlowsReport {
            counts: *self.meter.counts(),
            bytes_per_flow: self.bytes_per_flow,
            elapsed: self.rounds.elapsed(),
            ledger,
            quiesced: self.rounds.quiesced(),
            events: std::mem::take(&mut self.lanes.events),
            failure: self.failure.or(self.lanes.failure.take().map(CaptureError::Port)),
        }
    }
}

/// Takes up interfaces of a lane that are new.
fn learn_links(links: &mut Vec<Option<Link>>, table: &Table<'_>, head: &Shown<'_>) {
    let map = table.map(head);
    let new = &map[links.len().min(map.len())..];
    links.extend(new.iter().map(|place| {
        let interface = table.interfaces().get(usize::from(*place))?;
        Link::from_linktype(interface.link.0)
    }));
}

/// Meters the frames that are selected, as many at a time as lie behind one another.
fn meter(
    meter: &mut Meter,
    selector: &mut Selector,
    table: &Table<'_>,
    head: &Shown<'_>,
    links: &[Option<Link>],
    records: &mut dyn Records,
) {
    if selector.take_all(head.burst.len()) {
        meter.take(head.burst, links, records);
        return;
    }
    let judged = table.is_filtered(head);
    let mut begin = 0;
    for (index, (desc, frame)) in head.burst.iter().enumerate() {
        let mut desc = *desc;
        table.place(head, &mut desc);
        if selector.select(&desc, frame, judged).is_none() {
            meter.take(head.burst.slice(begin..index), links, records);
            begin = index + 1;
        }
    }
    meter.take(head.burst.slice(begin..head.burst.len()), links, records);
}
