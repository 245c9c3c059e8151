//! Receive loop: ports -> lanes -> order -> consumers.
//!
//! ```text
//! fill ──> order ──> take ──> consume ──> wait
//! lanes    merge     each     lanes       until frames arrive, time passes, or the run ends
//! return   picks     consumer release
//! ```
//!
//! `consumer_calls`: calls of consumers, any of which may panic; `pace`: when to stop, and when to read counters; `wait`: waiting
//! while nothing is ready.

mod consumer_calls;
pub(crate) mod pace;
pub(crate) mod wait;

use self::consumer_calls::{account_for_rest, offer, serve};
use self::pace::{Pace, PollOutcome};
use self::wait::WaitStrategy;
use crate::clock::{Clock, SystemClock};
use crate::consumer::{Consumer, Demand, FrameOrder, Round, RunCounters, RunEnd, RunStart};
use crate::control::Stop;
use crate::error::ReceiveError;
use crate::lanes::{LaneFrames, Lanes, recycle};
use crate::metrics::Metrics;
use crate::thread_panic::{ThreadPanic, survive};
use linerate_burst::{Burst, FrameIndex, Interface, Ledger, Nanos};
use linerate_headers::Link;
use linerate_merge::{Input, Merge};
use linerate_port::{HeldFrame, RxPort};
use std::time::Duration;

/// Ports to receive from, and limits.
pub struct Receive {
    /// Ports to receive from; their queues are the lanes of the run.
    pub ports: Vec<RxPort>,
    /// Strategy of waiting for frames.
    pub waiting: WaitStrategy,
    /// Duration of the run, if limited.
    pub duration: Option<Duration>,
    /// Stops the run when requested.
    pub stop: Stop,
}

/// Result of a run.
#[derive(Debug, Default)]
pub struct RunReport {
    /// Packet accounting.
    pub ledger: Ledger,
    /// True if all lanes were drained, so that the ledger is exact.
    pub quiesced: bool,
    /// Interfaces that frames arrived from.
    pub interfaces: Vec<Interface>,
    /// Duration of the run, up to the last frame that it waited for.
    pub elapsed: Duration,
    /// Noteworthy events, in order.
    pub events: Vec<String>,
    /// Failure, if any; frames received before it are complete.
    pub failure: Option<ReceiveError>,
}

impl Receive {
    /// Creates a run that receives from these ports until they have ended.
    pub fn all(ports: Vec<RxPort>) -> Self {
        Receive { ports, waiting: WaitStrategy::default(), duration: None, stop: Stop::new() }
    }

    /// Receives until every port has ended, all consumers have enough, or stopping is requested. Each consumer holds
    /// its own result afterwards.
    pub fn run(self, consumers: &mut [&mut dyn Consumer]) -> RunReport {
        let mut receiver = ReceiveLoop::new(self, consumers);
        let died = survive(|| while receiver.round(consumers) {}).err();
        receiver.finish(consumers, died)
    }
}

pub(crate) struct ReceiveLoop {
    lanes: Lanes,
    /// Present if a consumer needs an order.
    merge: Option<Merge>,
    pace: Pace,
    failure: Option<ReceiveError>,
    /// Panic of each consumer, if any.
    died: Vec<Option<ThreadPanic>>,
    /// Number of frames given to each of them.
    given: u64,
    picks: Vec<FrameIndex>,
    /// Number of frames of each lane taken in the round.
    taken: Vec<usize>,
    left: Vec<usize>,
    /// Frames of each lane that a consumer requested to hold, and those it received.
    wanted: Vec<Vec<u32>>,
    held: Vec<HeldFrame>,
    /// True if there is one consumer, which may leave and hold frames.
    is_sole: bool,
    kept: RoundBuffers,
    metrics: Metrics,
}

/// Allocations kept between rounds.
#[derive(Default)]
struct RoundBuffers {
    shown: Vec<LaneFrames<'static>>,
    inputs: Vec<Input<'static>>,
    bursts: Vec<Burst<'static>>,
    maps: Vec<&'static [u16]>,
    links: Vec<&'static [Option<Link>]>,
    filters: Vec<&'static str>,
}

impl ReceiveLoop {
    pub(crate) fn new(receive: Receive, consumers: &mut [&mut dyn Consumer]) -> Self {
        ReceiveLoop::with(receive, consumers, Box::new(SystemClock))
    }

    /// Creates a run with this clock.
    pub(crate) fn with(receive: Receive, consumers: &mut [&mut dyn Consumer], clock: Box<dyn Clock>) -> Self {
        let Receive { ports, waiting, duration, stop } = receive;
        let order = consumers.iter().map(|consumer| consumer.order()).max().unwrap_or(FrameOrder::Any);
        let count = ports.len();
        let mut lanes = Lanes::new(ports, order != FrameOrder::Any, clock);
        let mut failure = None;
        if order != FrameOrder::Any && lanes.len() > FrameIndex::MAX_LANES {
            failure = Some(ReceiveError::Lanes { found: lanes.len() });
            lanes.keep(FrameIndex::MAX_LANES);
        }
        let sole = consumers.iter().find(|consumer| consumer.is_sole());
        let is_sole = sole.is_some() && consumers.len() == 1;
        if let Some(name) = sole.filter(|_| !is_sole).map(|consumer| consumer.name()) {
            failure = Some(ReceiveError::NotSole { name });
            lanes.keep(0);
        }
        let needy = consumers.iter().find(|consumer| !consumer.takes_tallies()).map(|consumer| consumer.name());
        if let Some((name, port)) = needy.zip(lanes.tallying()) {
            failure = Some(ReceiveError::Tallied { port, name });
            lanes.keep(0);
        }
        let is_prompt = consumers.iter().any(|consumer| consumer.is_prompt());
        let is_merged = order == FrameOrder::Checked || order == FrameOrder::Merged && lanes.len() > 1;
        let start = RunStart { ports: count, lanes: lanes.places(), stop: stop.clone(), duration };
        for consumer in consumers.iter_mut() {
            let began = survive(|| consumer.begin(&start)).unwrap_or_else(|died| Err(died.into()));
            failure = failure.or(began.err());
        }
        ReceiveLoop {
            merge: is_merged.then(|| Merge::new(lanes.len())),
            died: vec![None; consumers.len()],
            given: 0,
            taken: vec![0; lanes.len()],
            left: vec![0; lanes.len()],
            wanted: vec![Vec::new(); lanes.len()],
            held: Vec::new(),
            is_sole,
            lanes,
            pace: Pace::new(waiting, is_prompt, duration, stop),
            failure,
            picks: Vec::new(),
            kept: RoundBuffers::default(),
            metrics: Metrics::new(),
        }
    }

    /// Takes the frames that are ready; returns false at the end.
    pub(crate) fn round(&mut self, consumers: &mut [&mut dyn Consumer]) -> bool {
        let demands = || consumers.iter().map(|consumer| consumer.demand());
        // Consumers that have panicked are not asked.
        let is_enough = self.failure.is_some()
            || demands().all(|demand| demand != Demand::More)
            || demands().any(|demand| demand == Demand::Failed);
        self.pace.detach_if(is_enough, &mut self.lanes);
        let now = self.lanes.read_clock();
        let polled = self.take(now, consumers);
        if self.pace.is_loss_check_due() {
            let look = RunCounters { lanes: &self.lanes, elapsed: self.pace.elapsed() };
            for (consumer, _) in consumers.iter_mut().zip(&self.died).filter(|(_, died)| died.is_none()) {
                consumer.look(&look);
            }
            self.answer(consumers);
        }
        self.pace.go_on(polled, now, &self.lanes)
    }

    /// Reports the counters so far, if metrics are requested.
    fn answer(&mut self, consumers: &[&mut dyn Consumer]) {
        let ReceiveLoop { metrics, lanes, merge, died, .. } = self;
        metrics.answer(|ledger| {
            lanes.queue_counters(ledger);
            if let Some(merge) = merge {
                lanes.merge_counters(merge, ledger);
            }
            for (consumer, _) in consumers.iter().zip(died).filter(|(_, died)| died.is_none()) {
                ledger.set_branch(if consumers.len() == 1 { "" } else { consumer.name() });
                consumer.counters(ledger);
            }
        });
    }

    /// Returns the failure so far.
    pub(crate) fn take_failure(&mut self) -> Option<ReceiveError> {
        self.failure.take().or(self.lanes.failure.take().map(ReceiveError::Port))
    }

    /// Runs one round of fill, order, take, consume.
    fn take(&mut self, now: Nanos, consumers: &mut [&mut dyn Consumer]) -> PollOutcome {
        let ReceiveLoop {
            lanes,
            merge,
            pace,
            failure,
            died,
            picks,
            taken,
            left,
            wanted,
            held,
            kept,
            given,
            is_sole,
            ..
        } = self;
        let mut shown = recycle(std::mem::take(&mut kept.shown));
        let mut inputs = recycle(std::mem::take(&mut kept.inputs));
        let mut bursts = recycle(std::mem::take(&mut kept.bursts));
        let mut maps = recycle(std::mem::take(&mut kept.maps));
        let mut links = recycle(std::mem::take(&mut kept.links));
        let mut filters = recycle(std::mem::take(&mut kept.filters));
        let mut table = lanes.fill(now, &mut shown);
        shown.iter().for_each(|lane| table.learn(lane));
        inputs.extend(shown.iter().map(LaneFrames::input));
        order(merge.as_mut(), table.ceiling(), &inputs, picks, taken);
        let parts = shown.iter().zip(&*taken);
        bursts.extend(parts.clone().map(|(lane, taken)| lane.burst.slice(0..*taken)));
        maps.extend(shown.iter().map(|lane| table.map(lane)));
        links.extend(shown.iter().map(|lane| table.links(lane)));
        filters.extend(shown.iter().map(|lane| table.filter(lane)));
        left.fill(0);
        let mut round = Round {
            now,
            elapsed: pace.elapsed(),
            draining: pace.draining(),
            bursts: &bursts,
            picks,
            complete: parts.map(|(lane, taken)| lane.bound(*taken)).min().unwrap_or(Nanos::MAX),
            interfaces: table.interfaces(),
            maps: &maps,
            links: &links,
            filters: &filters,
            late: merge.as_ref().map_or(0, Merge::late),
            left,
            wanted,
            is_busy: false,
            is_sole: *is_sole,
        };
        offer(&mut round, consumers, died, failure);
        let mut is_busy = round.is_busy;
        let is_over = shown.iter().all(LaneFrames::is_over);
        let is_held = shown.iter().any(|lane| !lane.burst.is_empty());
        (kept.inputs, kept.bursts) = (recycle(inputs), recycle(bursts));
        (kept.maps, kept.links, kept.filters) = (recycle(maps), recycle(links), recycle(filters));
        kept.shown = recycle(shown);
        let mut frames = 0;
        for (lane, (taken, left)) in taken.iter().zip(left).enumerate() {
            frames += lanes.release_frames(lane, *taken - *left, &mut wanted[lane], held);
        }
        *given += frames as u64;
        if let ([consumer], [died @ None]) = (consumers, &mut died[..]) {
            let own = serve(&mut **consumer, lanes, held, now, pace.draining());
            frames += own.frames;
            is_busy |= own.is_busy;
            if let Err(error) = own.result {
                *died = error.died();
                failure.get_or_insert(error);
            }
        }
        match () {
            () if frames > 0 => PollOutcome::Frames,
            () if is_busy => PollOutcome::Busy,
            () if is_over => PollOutcome::End,
            () if is_held => PollOutcome::Held,
            () => PollOutcome::Nothing,
        }
    }

    pub(crate) fn finish(mut self, consumers: &mut [&mut dyn Consumer], died: Option<ThreadPanic>) -> RunReport {
        self.lanes.detach();
        let elapsed = self.pace.elapsed();
        let mut ledger = Ledger::new();
        self.lanes.counters(&mut ledger);
        if let Some(merge) = &self.merge {
            self.lanes.merge_counters(merge, &mut ledger);
        }
        if let Some(died) = &died {
            self.failure.get_or_insert(died.clone().into());
        }
        let is_sole = consumers.len() == 1;
        let (mut events, mut failure) = (std::mem::take(&mut self.lanes.events), self.failure);
        for (consumer, own) in consumers.iter_mut().zip(self.died) {
            let own_died = own.is_some();
            let branch = if is_sole { "" } else { consumer.name() };
            ledger.set_branch(branch);
            let mut end = RunEnd {
                ledger: &mut ledger,
                interfaces: self.lanes.interfaces(),
                events: &mut events,
                has_failed: failure.is_some() || self.lanes.failure.is_some(),
                failure: &mut failure,
                died: own.or(died.clone()),
                given: self.given,
                started: self.pace.started(),
                look: RunCounters { lanes: &self.lanes, elapsed },
            };
            let died = survive(|| consumer.finish(&mut end)).err();
            if died.is_some() || own_died {
                account_for_rest(&mut ledger, branch, self.given);
            }
            if let Some(died) = died {
                failure.get_or_insert(died.into());
            }
        }
        ledger.set_branch("");
        self.metrics.close(&ledger);
        RunReport {
            ledger,
            quiesced: self.pace.quiesced() && died.is_none(),
            interfaces: self.lanes.interfaces().to_vec(),
            elapsed,
            events,
            failure: failure.or(self.lanes.failure.take().map(ReceiveError::Port)),
        }
    }
}

/// Determines how many frames of each lane come next, and their order if there is a merge.
fn order(
    merge: Option<&mut Merge>,
    ceiling: Nanos,
    inputs: &[Input<'_>],
    picks: &mut Vec<FrameIndex>,
    taken: &mut Vec<usize>,
) {
    picks.clear();
    taken.clear();
    match merge {
        Some(merge) => {
            merge.set_ceiling(ceiling);
            merge.order(inputs, picks);
            taken.extend((0..inputs.len()).map(|lane| merge.taken(lane)));
        }
        None => taken.extend(inputs.iter().map(|input| input.descs.len().min(FrameIndex::MAX_FRAMES))),
    }
}

#[cfg(test)]
mod tests;
