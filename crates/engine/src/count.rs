//! Counters of frames, sizes and protocols.
//!
//! Nothing is ordered (unless the busiest windows of several lanes are requested), and no frame is copied or, without a
//! filter, read: one pass over the descs of each burst as the port returns it, or not even that, if a queue counts
//! itself ([`RxQueue::tallied`]).
//!
//! [`RxQueue::tallied`]: linerate_port::RxQueue::tallied

mod mix;
mod traffic;
mod windows;

pub use self::mix::Mix;
pub use self::traffic::{Peak, Traffic};
pub use self::windows::{Busiest, Windows};

use self::traffic::BurstTally;
use crate::consumer::{Consumer, Demand, FrameOrder, Round, RunCounters, RunEnd, RunStart};
use crate::control::{Progress, unwatched};
use crate::error::ReceiveError;
use crate::select::{Selection, Selector};
use linerate_burst::{Count, Desc, Kind, Ledger, Nanos, Stage};
use linerate_headers::Layers;
use linerate_port::FrameTally;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Adds up selected frames.
pub struct CountConsumer {
    selector: Selector,
    /// Dissector, if protocols are requested.
    layers: Option<Layers>,
    watch: CountWatch,
    counts: CountSnapshot,
    finds_bursts: bool,
    progress: Option<Arc<Progress>>,
    /// Totals of each queue that counts itself at the last look, and their time.
    tallied: Vec<(FrameTally, Nanos)>,
    /// The selected descs of a burst, and those of several lanes in order.
    chosen: Vec<Desc>,
    merged: Vec<Desc>,
}

/// Counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct CountSnapshot {
    /// Time since the start of the run.
    pub elapsed: Duration,
    /// Sum of all ports.
    pub all: TrafficCounts,
    /// Counters of each port.
    pub ports: Vec<TrafficCounts>,
    /// Counters of each queue of each port.
    pub queues: Vec<TrafficCounts>,
    /// Port of each of `queues`, and index of the queue in that port.
    pub places: Vec<(usize, usize)>,
    /// Busiest windows of all ports, if requested.
    pub windows: Option<Windows>,
}

impl CountSnapshot {
    /// Returns the same ports and queues with counters at zero.
    pub fn beginning(&self) -> CountSnapshot {
        CountSnapshot::of(self.ports.len(), self.places.clone())
    }

    /// Sums up the protocols, which are counted only by queue.
    pub fn sum_protocols(&mut self) {
        let CountSnapshot { all, ports, queues, places, .. } = self;
        for (queue, (port, _)) in queues.iter().zip(places) {
            all.mix.add(&queue.mix);
            ports[*port].mix.add(&queue.mix);
        }
    }

    fn of(ports: usize, places: Vec<(usize, usize)>) -> Self {
        let queues = vec![TrafficCounts::default(); places.len()];
        CountSnapshot { ports: vec![TrafficCounts::default(); ports], queues, places, ..CountSnapshot::default() }
    }
}

/// Counters of a queue, of a port, or of all.
#[derive(Clone, Debug, Default)]
pub struct TrafficCounts {
    /// The selected frames.
    pub traffic: Traffic,
    /// Their protocols, if requested.
    pub mix: Mix,
    /// Frames that reached the queues, including lost ones.
    pub received: u64,
    /// Frames lost there, by cause; only causes that occurred.
    pub lost: Vec<(Count, u64)>,
}

/// Lets another thread read the counters of a run, at most about a tenth of a second old. The run never waits for a
/// reader.
#[derive(Clone, Debug, Default)]
pub struct CountWatch(Arc<Mutex<CountSnapshot>>);

impl CountWatch {
    /// Creates a watch without counters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the counters; protocols only of each queue, see [`CountSnapshot::sum_protocols`].
    pub fn counts(&self) -> CountSnapshot {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Publishes counters, unless a reader holds the lock.
    fn show(&self, counts: &CountSnapshot) {
        if let Some(mut shown) = unwatched(&self.0) {
            shown.clone_from(counts);
        }
    }
}

impl CountConsumer {
    /// Adds up selected frames, without the slice, and dissects them if `protocols` are requested.
    pub fn new(selection: Selection, protocols: bool) -> Self {
        CountConsumer {
            selector: Selector::new(Selection { slice: None, ..selection }),
            layers: protocols.then(Layers::new),
            watch: CountWatch::new(),
            counts: CountSnapshot::default(),
            finds_bursts: false,
            progress: None,
            tallied: Vec::new(),
            merged: Vec::new(),
            chosen: Vec::new(),
        }
    }

    /// Finds the busiest windows too, for which several lanes are merged.
    pub fn find_bursts(mut self, find: bool) -> Self {
        self.finds_bursts = find;
        self
    }

    /// Publishes the counters in `watch`.
    pub fn watch(mut self, watch: CountWatch) -> Self {
        self.watch = watch;
        self
    }

    /// Publishes the totals in `progress`, as other consumers do.
    pub fn progress(mut self, progress: Arc<Progress>) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Returns the counters after the run.
    pub fn done(self) -> CountSnapshot {
        self.counts
    }

    /// Updates the totals of queues that count themselves.
    fn update_queue_totals(&mut self, look: &RunCounters<'_>, elapsed: Duration) {
        for (lane, before) in self.tallied.iter_mut().enumerate() {
            let Some((tallied, time)) = look.tallied(lane) else { continue };
            let (now, CountSnapshot { all, ports, queues, places, .. }) = ((*tallied, time), &mut self.counts);
            for sum in [all, &mut ports[places[lane].0], &mut queues[lane]] {
                sum.traffic.add_tallied(before, &now);
            }
            let all_are_wanted = self.selector.take_all((tallied.frames - before.0.frames) as usize);
            debug_assert!(all_are_wanted, "a selection needs the frames");
            *before = now;
        }
        let CountSnapshot { elapsed: known, all, ports, queues, places, .. } = &mut self.counts;
        *known = elapsed;
        for sum in std::iter::once(&mut *all).chain(ports.iter_mut()) {
            sum.received = 0;
            sum.lost.clear();
        }
        for (lane, queue) in queues.iter_mut().enumerate() {
            let ledger = look.queue(lane);
            queue.received = ledger.sum(Stage::Receive, Kind::Received);
            queue.lost = ledger.losses();
            for sum in [&mut *all, &mut ports[places[lane].0]] {
                sum.received += queue.received;
                queue.lost.iter().for_each(|(cause, frames)| add_loss(&mut sum.lost, *cause, *frames));
            }
        }
    }
}

impl Consumer for CountConsumer {
    fn name(&self) -> &'static str {
        "count"
    }

    fn order(&self) -> FrameOrder {
        if self.finds_bursts { FrameOrder::Merged } else { FrameOrder::Any }
    }

    fn takes_tallies(&self) -> bool {
        self.selector.is_everything() && self.layers.is_none() && !self.finds_bursts
    }

    fn begin(&mut self, start: &RunStart) -> Result<(), ReceiveError> {
        self.counts = CountSnapshot::of(start.ports, start.lanes.clone());
        self.counts.windows = self.finds_bursts.then(Windows::default);
        self.tallied = vec![(FrameTally::default(), Nanos::ZERO); start.lanes.len()];
        self.watch.show(&self.counts);
        Ok(())
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        let learned = self.selector.learn(round.interfaces);
        let CountConsumer { selector, layers, counts, chosen, merged, .. } = self;
        selector.start_round(round.filters);
        merged.clear();
        for lane in 0..round.bursts.len() {
            if round.bursts[lane].is_empty() {
                continue;
            }
            let queue = &mut counts.queues[lane];
            let mix = layers.as_mut().map(|layers| (&mut queue.mix, layers));
            let descs = choose(selector, round, lane, mix, chosen);
            let tally = BurstTally::of(descs);
            queue.traffic.add(descs, &tally);
            counts.ports[counts.places[lane].0].traffic.add(descs, &tally);
            counts.all.traffic.add(descs, &tally);
            match &mut counts.windows {
                Some(windows) if round.bursts.len() == 1 => windows.add(descs),
                Some(_) => merged.extend_from_slice(descs),
                None => {}
            }
        }
        if let Some(windows) = counts.windows.as_mut().filter(|_| !merged.is_empty()) {
            // All frames of a round precede those of later ones.
            merged.sort_by_key(|desc| desc.time);
            windows.add(&*merged);
        }
        learned
    }

    fn look(&mut self, look: &RunCounters<'_>) {
        self.update_queue_totals(look, look.elapsed);
        self.watch.show(&self.counts);
        if let Some(progress) = &self.progress {
            let TrafficCounts { traffic, lost, .. } = &self.counts.all;
            progress.frames.store(traffic.frames, Ordering::Relaxed);
            progress.bytes.store(traffic.bytes, Ordering::Relaxed);
            progress.wire_bytes.store(traffic.bytes, Ordering::Relaxed);
            progress.lost.store(lost.iter().map(|(_, frames)| frames).sum(), Ordering::Relaxed);
        }
    }

    fn counters(&self, ledger: &mut Ledger) {
        self.selector.counters(ledger.account(Stage::Select, ""));
    }

    fn demand(&self) -> Demand {
        if self.selector.is_full() { Demand::Enough } else { Demand::More }
    }

    fn finish(&mut self, end: &mut RunEnd<'_>) {
        self.update_queue_totals(end.look(), end.elapsed());
        self.counts.sum_protocols();
        self.selector.counters(end.ledger.account(Stage::Select, ""));
    }
}

/// Returns the descs of the selected frames of a lane, which are also added to `mix`.
fn choose<'a>(
    selector: &mut Selector,
    round: &Round<'a>,
    lane: usize,
    mut mix: Option<(&mut Mix, &mut Layers)>,
    chosen: &'a mut Vec<Desc>,
) -> &'a [Desc] {
    let burst = round.bursts[lane];
    let selects_all = selector.take_all(burst.len());
    if selects_all && mix.is_none() {
        return burst.descs();
    }
    chosen.clear();
    for (desc, frame) in burst.iter() {
        let desc = round.placed(lane, desc);
        if selects_all || selector.select(lane, &desc, frame).is_some() {
            if let Some((mix, layers)) = &mut mix {
                mix.count_frame(round.interfaces[usize::from(desc.interface)].link, frame, layers);
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
