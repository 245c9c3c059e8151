//! Ports -> select -> counts, in one thread.
//!
//! Nothing is ordered, and no frame is copied or, without a filter, looked at: one pass over the descs of each
//! burst as the port shows it.

mod mix;
mod traffic;

pub use self::mix::Mix;
pub use self::traffic::{Peak, Sizes, Traffic};

use self::traffic::Tally;
use crate::capture::{CaptureError, learn};
use crate::control::Stop;
use crate::died::survive;
use crate::lanes::{Lanes, Shown, Table, recycle};
use crate::rounds::{Round, Rounds};
use crate::select::{Selection, Selector};
use crate::wait::Waiting;
use linerate_burst::{Count, Desc, Kind, Ledger, Nanos, Stage};
use linerate_port::RxPort;
use linerate_wire::Layers;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

/// What to count.
pub struct Counting {
    /// Where frames come from.
    pub ports: Vec<RxPort>,
    /// Which frames to count; the slice means nothing here.
    pub selection: Selection,
    /// Whether to look into the frames for their protocols.
    pub protocols: bool,
    /// How to wait for frames.
    pub waiting: Waiting,
    /// After how long to stop.
    pub duration: Option<Duration>,
    /// Ends the run when requested.
    pub stop: Stop,
    /// What was counted so far.
    pub watch: Watch,
}

/// What a run has counted.
#[derive(Debug)]
pub struct CountReport {
    /// The counts.
    pub counts: Counts,
    /// Every frame accounted for.
    pub ledger: Ledger,
    /// Whether all queues ran dry, so that the ledger is exact.
    pub quiesced: bool,
    /// What was noteworthy, in order.
    pub events: Vec<String>,
    /// What went wrong, if anything; what was counted before is complete.
    pub failure: Option<CaptureError>,
}

/// Everything counted up to one moment.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// How long the run had taken then.
    pub elapsed: Duration,
    /// Of all ports together.
    pub all: Counted,
    /// Of each port.
    pub ports: Vec<Counted>,
    /// Of each queue of each port.
    pub queues: Vec<Counted>,
    /// Where each of `queues` belongs: its port, and which queue of the port it is.
    pub places: Vec<(usize, usize)>,
}

impl Counts {
    /// The same ports and queues before anything was counted.
    pub fn beginning(&self) -> Counts {
        Counts::of(self.ports.len(), self.places.clone())
    }

    fn of(ports: usize, places: Vec<(usize, usize)>) -> Self {
        let queues = vec![Counted::default(); places.len()];
        Counts { ports: vec![Counted::default(); ports], queues, places, ..Counts::default() }
    }
}

/// What was counted of one queue, of one port, or of all.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// The frames that were selected.
    pub traffic: Traffic,
    /// Their protocols, if these were asked for.
    pub mix: Mix,
    /// Frames that reached the queues, lost ones included.
    pub received: u64,
    /// Frames lost there, by cause; only causes that happened.
    pub lost: Vec<(Count, u64)>,
}

/// Lets another thread see the counts of a run, as they were at most about a tenth of a second ago. The run
/// never waits for a reader.
#[derive(Clone, Debug, Default)]
pub struct Watch(Arc<Mutex<Counts>>);

impl Watch {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The counts; protocols only of each queue, their sums come with the report.
    pub fn counts(&self) -> Counts {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows these counts, unless somebody is looking at the last ones right now.
    fn show(&self, counts: &Counts) {
        let mut shown = match self.0.try_lock() {
            Ok(shown) => shown,
            Err(TryLockError::Poisoned(shown)) => shown.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        shown.clone_from(counts);
    }
}

impl Counting {
    /// Counts until every port has ended, a limit is reached, or stopping is requested.
    pub fn run(self) -> CountReport {
        let mut session = Session::new(self);
        if let Err(died) = survive(|| while session.round() {}) {
            session.failure.get_or_insert(died.into());
        }
        session.finish()
    }
}

struct Session {
    lanes: Lanes,
    selector: Selector,
    rounds: Rounds,
    counts: Counts,
    /// For taking frames apart, if that is asked for.
    layers: Option<Layers>,
    watch: Watch,
    failure: Option<CaptureError>,
    /// The descs that were selected of a burst.
    chosen: Vec<Desc>,
    /// Frames of each lane that the round has taken.
    taken: Vec<usize>,
    /// Empty between rounds; its memory is kept.
    shown: Vec<Shown<'static>>,
}

impl Session {
    fn new(counting: Counting) -> Self {
        let ports = counting.ports.len();
        let lanes = Lanes::new(counting.ports);
        let counts = Counts::of(ports, lanes.places());
        counting.watch.show(&counts);
        Session {
            lanes,
            selector: Selector::new(Selection { slice: None, ..counting.selection }),
            rounds: Rounds::new(counting.waiting, counting.duration, counting.stop),
            counts,
            layers: counting.protocols.then(Layers::new),
            watch: counting.watch,
            failure: None,
            chosen: Vec::new(),
            taken: Vec::new(),
            shown: Vec::new(),
        }
    }

    /// Takes what is ready; false when there is nothing more to come.
    fn round(&mut self) -> bool {
        let enough = self.failure.is_some() || self.selector.is_full();
        self.rounds.detach_if(enough, &mut self.lanes);
        let now = self.lanes.look_at_clock();
        let round = self.count_frames(now);
        if self.rounds.is_time_to_look() {
            self.look_at_queues();
            self.watch.show(&self.counts);
        }
        self.rounds.go_on(round, now, &self.lanes)
    }

    /// One round of fill, select, count, consume.
    fn count_frames(&mut self, now: Nanos) -> Round {
        let mut shown = recycle(std::mem::take(&mut self.shown));
        let mut table = self.lanes.fill(now, &mut shown);
        if let Some(error) = learn(&mut table, &shown, &mut self.selector) {
            self.failure.get_or_insert(error);
        }
        self.taken.clear();
        for (lane, head) in shown.iter().enumerate() {
            self.taken.push(head.burst.len());
            if head.burst.is_empty() {
                continue;
            }
            let queue = &mut self.counts.queues[lane];
            let mix = self.layers.as_mut().map(|layers| (&mut queue.mix, layers));
            let descs = choose(&mut self.selector, &table, head, mix, &mut self.chosen);
            let tally = Tally::of(descs);
            queue.traffic.add(descs, &tally);
            self.counts.ports[self.counts.places[lane].0].traffic.add(descs, &tally);
            self.counts.all.traffic.add(descs, &tally);
        }
        let over = shown.iter().all(Shown::is_over);
        self.shown = recycle(shown);
        for (lane, frames) in self.taken.iter().enumerate() {
            self.lanes.consume(lane, *frames);
        }
        match (over, self.taken.iter().any(|frames| *frames > 0)) {
            (true, _) => Round::Over,
            (_, true) => Round::Moved,
            (_, false) => Round::Nothing,
        }
    }

    /// Brings what the queues themselves count up to date.
    fn look_at_queues(&mut self) {
        let Counts { elapsed, all, ports, queues, places } = &mut self.counts;
        *elapsed = self.rounds.elapsed();
        for sum in std::iter::once(&mut *all).chain(ports.iter_mut()) {
            sum.received = 0;
            sum.lost.clear();
        }
        for (lane, queue) in queues.iter_mut().enumerate() {
            let mut ledger = Ledger::new();
            self.lanes.lane_counters(lane, &mut ledger);
            queue.received = ledger.sum(Stage::Receive, Kind::Received);
            queue.lost = ledger.losses();
            for sum in [&mut *all, &mut ports[places[lane].0]] {
                sum.received += queue.received;
                queue.lost.iter().for_each(|(cause, frames)| add_loss(&mut sum.lost, *cause, *frames));
            }
        }
    }

    fn finish(mut self) -> CountReport {
        self.lanes.detach();
        self.look_at_queues();
        let Counts { all, ports, queues, places, .. } = &mut self.counts;
        for (queue, (port, _)) in queues.iter().zip(places) {
            all.mix.add(&queue.mix);
            ports[*port].mix.add(&queue.mix);
        }
        let mut ledger = Ledger::new();
        self.lanes.counters(&mut ledger);
        self.selector.counters(ledger.account(Stage::Select, ""));
        CountReport {
            counts: self.counts,
            ledger,
            quiesced: self.rounds.quiesced(),
            events: std::mem::take(&mut self.lanes.events),
            failure: self.failure.or(self.lanes.failure.take().map(CaptureError::Port)),
        }
    }
}

/// The descs of the frames that count, which `mix` gets to see.
fn choose<'a>(
    selector: &mut Selector,
    table: &Table<'_>,
    head: &Shown<'a>,
    mut mix: Option<(&mut Mix, &mut Layers)>,
    chosen: &'a mut Vec<Desc>,
) -> &'a [Desc] {
    let selects_all = selector.take_all(head.burst.len());
    if selects_all && mix.is_none() {
        return head.burst.descs();
    }
    let judged = table.is_filtered(head);
    chosen.clear();
    for (desc, frame) in head.burst.iter() {
        let mut desc = *desc;
        table.place(head, &mut desc);
        if selects_all || selector.select(&desc, frame, judged).is_some() {
            if let Some((mix, layers)) = &mut mix {
                mix.look_at(table.interfaces()[usize::from(desc.interface)].link, frame, layers);
            }
            chosen.push(desc);
        }
    }
    chosen
}

fn add_loss(losses: &mut Vec<(Count, u64)>, cause: Count, frames: u64) {
    match losses.iter_mut().find(|(known, _)| *known == cause) {
        Some((_, sum)) => *sum += frames,
        None => losses.push((cause, frames)),
    }
}
