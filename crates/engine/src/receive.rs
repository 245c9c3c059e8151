//! Receive loop: ports -> lanes -> order -> consumers.
//!
//! ```text
//! fill ──> order ──> take ──> consume ──> wait
//! lanes    merge     each     lanes       until frames arrive, time passes, or the run ends
//! return   picks     consumer release
//! ```
//!
//! `hand`: calls of consumers, any of which may panic; `pace`: when to stop, and when to read counters; `wait`: waiting
//! while nothing is ready.

mod hand;
pub(crate) mod pace;
pub(crate) mod wait;

use self::hand::{account_for_rest, offer, serve};
use self::pace::{Pace, Polled};
use self::wait::Waiting;
use crate::clock::{Clock, System};
use crate::consumer::{Consumer, Demand, End, Look, Order, Round, Start};
use crate::control::Stop;
use crate::died::{Died, survive};
use crate::error::ReceiveError;
use crate::lanes::{Lanes, Shown, recycle};
use crate::metrics::Metrics;
use linerate_burst::{Burst, Interface, Ledger, Nanos, Pick};
use linerate_merge::{Input, Merge};
use linerate_port::{Held, RxPort};
use linerate_wire::Link;
use std::time::Duration;

/// Ports to receive from, and limits.
pub struct Receive {
    /// Ports to receive from; their queues are the lanes of the run.
    pub ports: Vec<RxPort>,
    /// How to wait for frames.
    pub waiting: Waiting,
    /// Duration of the run, if limited.
    pub duration: Option<Duration>,
    /// Stops the run when requested.
    pub stop: Stop,
}

/// Result of a run.
#[derive(Debug, Default)]
pub struct Received {
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
        Receive { ports, waiting: Waiting::default(), duration: None, stop: Stop::new() }
    }

    /// Receives until every port has ended, all consumers have enough, or stopping is requested. Each consumer holds
    /// its own result afterwards.
    pub fn run(self, consumers: &mut [&mut dyn Consumer]) -> Received {
        let mut receiver = Receiver::new(self, consumers);
        let died = survive(|| while receiver.round(consumers) {}).err();
        receiver.finish(consumers, died)
    }
}

pub(crate) struct Receiver {
    lanes: Lanes,
    /// Present if a consumer needs an order.
    merge: Option<Merge>,
    pace: Pace,
    failure: Option<ReceiveError>,
    /// Panic of each consumer, if any.
    died: Vec<Option<Died>>,
    /// Number of frames given to each of them.
    given: u64,
    picks: Vec<Pick>,
    /// Number of frames of each lane taken in the round.
    taken: Vec<usize>,
    left: Vec<usize>,
    /// Frames of each lane that a consumer requested to hold, and those it received.
    wanted: Vec<Vec<u32>>,
    held: Vec<Held>,
    /// True if there is one consumer, which may leave and hold frames.
    is_alone: bool,
    kept: Kept,
    metrics: Metrics,
}

/// Allocations kept between rounds.
#[derive(Default)]
struct Kept {
    shown: Vec<Shown<'static>>,
    inputs: Vec<Input<'static>>,
    bursts: Vec<Burst<'static>>,
    maps: Vec<&'static [u16]>,
    links: Vec<&'static [Option<Link>]>,
    filters: Vec<&'static str>,
}

impl Receiver {
    pub(crate) fn new(receive: Receive, consumers: &mut [&mut dyn Consumer]) -> Self {
        Receiver::with(receive, consumers, Box::new(System))
    }

    /// Creates a run with this clock.
    pub(crate) fn with(receive: Receive, consumers: &mut [&mut dyn Consumer], clock: Box<dyn Clock>) -> Self {
        let Receive { ports, waiting, duration, stop } = receive;
        let order = consumers.iter().map(|consumer| consumer.order()).max().unwrap_or(Order::Any);
        let count = ports.len();
        let mut lanes = Lanes::new(ports, order != Order::Any, clock);
        let mut failure = None;
        if order != Order::Any && lanes.len() > Pick::MAX_LANES {
            failure = Some(ReceiveError::Lanes { found: lanes.len() });
            lanes.keep(Pick::MAX_LANES);
        }
        let sole = consumers.iter().find(|consumer| consumer.is_alone());
        let is_alone = sole.is_some() && consumers.len() == 1;
        if let Some(name) = sole.filter(|_| !is_alone).map(|consumer| consumer.name()) {
            failure = Some(ReceiveError::Alone { name });
            lanes.keep(0);
        }
        let needy = consumers.iter().find(|consumer| !consumer.takes_tallies()).map(|consumer| consumer.name());
        if let Some((name, port)) = needy.zip(lanes.tallying()) {
            failure = Some(ReceiveError::Tallied { port, name });
            lanes.keep(0);
        }
        let is_prompt = consumers.iter().any(|consumer| consumer.is_prompt());
        let is_merged = order == Order::Checked || order == Order::Merged && lanes.len() > 1;
        let start = Start { ports: count, lanes: lanes.places(), stop: stop.clone(), duration };
        for consumer in consumers.iter_mut() {
            let began = survive(|| consumer.begin(&start)).unwrap_or_else(|died| Err(died.into()));
            failure = failure.or(began.err());
        }
        Receiver {
            merge: is_merged.then(|| Merge::new(lanes.len())),
            died: vec![None; consumers.len()],
            given: 0,
            taken: vec![0; lanes.len()],
            left: vec![0; lanes.len()],
            wanted: vec![Vec::new(); lanes.len()],
            held: Vec::new(),
            is_alone,
            lanes,
            pace: Pace::new(waiting, is_prompt, duration, stop),
            failure,
            picks: Vec::new(),
            kept: Kept::default(),
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
        let now = self.lanes.look_at_clock();
        let polled = self.take(now, consumers);
        if self.pace.is_time_to_look() {
            let look = Look { lanes: &self.lanes, elapsed: self.pace.elapsed() };
            for (consumer, _) in consumers.iter_mut().zip(&self.died).filter(|(_, died)| died.is_none()) {
                consumer.look(&look);
            }
            self.answer(consumers);
        }
        self.pace.go_on(polled, now, &self.lanes)
    }

    /// Reports the counters so far, if metrics are requested.
    fn answer(&mut self, consumers: &[&mut dyn Consumer]) {
        let Receiver { metrics, lanes, merge, died, .. } = self;
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
    fn take(&mut self, now: Nanos, consumers: &mut [&mut dyn Consumer]) -> Polled {
        let Receiver {
            lanes, merge, pace, failure, died, picks, taken, left, wanted, held, kept, given, is_alone, ..
        } = self;
        let mut shown = recycle(std::mem::take(&mut kept.shown));
        let mut inputs = recycle(std::mem::take(&mut kept.inputs));
        let mut bursts = recycle(std::mem::take(&mut kept.bursts));
        let mut maps = recycle(std::mem::take(&mut kept.maps));
        let mut links = recycle(std::mem::take(&mut kept.links));
        let mut filters = recycle(std::mem::take(&mut kept.filters));
        let mut table = lanes.fill(now, &mut shown);
        shown.iter().for_each(|lane| table.learn(lane));
        inputs.extend(shown.iter().map(Shown::input));
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
            is_alone: *is_alone,
        };
        offer(&mut round, consumers, died, failure);
        let mut is_busy = round.is_busy;
        let is_over = shown.iter().all(Shown::is_over);
        let is_held = shown.iter().any(|lane| !lane.burst.is_empty());
        (kept.inputs, kept.bursts) = (recycle(inputs), recycle(bursts));
        (kept.maps, kept.links, kept.filters) = (recycle(maps), recycle(links), recycle(filters));
        kept.shown = recycle(shown);
        let mut frames = 0;
        for (lane, (taken, left)) in taken.iter().zip(left).enumerate() {
            frames += lanes.give_back(lane, *taken - *left, &mut wanted[lane], held);
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
            () if frames > 0 => Polled::Frames,
            () if is_busy => Polled::Busy,
            () if is_over => Polled::End,
            () if is_held => Polled::Held,
            () => Polled::Nothing,
        }
    }

    pub(crate) fn finish(mut self, consumers: &mut [&mut dyn Consumer], died: Option<Died>) -> Received {
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
        let is_alone = consumers.len() == 1;
        let (mut events, mut failure) = (std::mem::take(&mut self.lanes.events), self.failure);
        for (consumer, own) in consumers.iter_mut().zip(self.died) {
            let own_died = own.is_some();
            let branch = if is_alone { "" } else { consumer.name() };
            ledger.set_branch(branch);
            let mut end = End {
                ledger: &mut ledger,
                interfaces: self.lanes.interfaces(),
                events: &mut events,
                has_failed: failure.is_some() || self.lanes.failure.is_some(),
                failure: &mut failure,
                died: own.or(died.clone()),
                given: self.given,
                started: self.pace.started(),
                look: Look { lanes: &self.lanes, elapsed },
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
        Received {
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
    picks: &mut Vec<Pick>,
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
        None => taken.extend(inputs.iter().map(|input| input.descs.len().min(Pick::MAX_FRAMES))),
    }
}

#[cfg(test)]
mod tests;
