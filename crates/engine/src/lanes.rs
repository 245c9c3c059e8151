//! Lanes of a run: the queues of all its ports, and their interfaces.
//!
//! `feed`: the time that live ports wait for externally fed lanes; `table`: the interfaces as they become known.

mod feed;
mod port;
mod table;

use self::feed::{LaneClock, RoundTime};
use self::port::Port;
pub(crate) use self::table::Table;
use crate::clock::{Clock, STEP, Time, said};
use linerate_burst::{Burst, Count, Desc, Horizon, Interface, Ledger, Nanos, Stage};
use linerate_headers::Link;
use linerate_merge::{Input, Merge};
use linerate_port::{Feed, FrameTally, Head, HeldFrame, HoldQueue, PortError, RxPort, RxQueue, ScatteredFrame, events};
use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Maximum number of clock steps reported; all are counted.
const MOST_SAID: u64 = 100;

/// All queues of all ports, in the order of the merge.
pub(crate) struct Lanes {
    queues: Vec<Lane>,
    ports: Vec<Port>,
    /// Interfaces of all ports.
    interfaces: Vec<Interface>,
    time: Time,
    /// True if lanes are merged by time.
    is_merged: bool,
    /// True if they are merged and some frames are stamped by this machine's clock.
    is_live: bool,
    /// True if events at ports are reported during the run.
    has_news: bool,
    /// Maximum by which frames may be ahead of the clock, because of a positive `offset=`, in nanoseconds.
    above: u64,
    /// Noteworthy events in order: ports that went down, up, or failed.
    pub events: Vec<String>,
    /// First failure other than a regular end.
    pub failure: Option<PortError>,
}

struct Lane {
    queue: Box<dyn RxQueue>,
    port: usize,
    state: LaneState,
    /// Number of times it has reported that its port went down.
    downs: u64,
    source: LaneClock,
    /// Clock correction added to the times of its frames, in nanoseconds, and the buffer for the shifted descs.
    offset: i64,
    shifted: Vec<Desc>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LaneState {
    Open,
    /// No more frames will arrive.
    Ended,
}

/// Frames of one lane in a round.
#[derive(Clone, Copy)]
pub(crate) struct LaneFrames<'a> {
    pub burst: Burst<'a>,
    horizon: Horizon,
    interfaces: &'a [Interface],
    port: usize,
}

impl<'a> LaneFrames<'a> {
    pub(crate) fn input(&self) -> Input<'a> {
        Input { descs: self.burst.descs(), horizon: self.horizon }
    }

    /// Returns a lower bound of the times of frames after the first `taken`.
    pub(crate) fn bound(&self, taken: usize) -> Nanos {
        self.burst.descs().get(taken).map_or(self.horizon.time(), |desc| desc.time)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.burst.is_empty() && self.horizon == Horizon::Ended
    }
}

impl Lanes {
    pub(crate) fn new(ports: Vec<RxPort>, is_merged: bool, clock: Box<dyn Clock>) -> Self {
        let mut lanes = Lanes {
            queues: Vec::new(),
            ports: Vec::new(),
            interfaces: Vec::new(),
            time: Time::new(clock),
            is_merged,
            has_news: ports.iter().any(|port| port.feed == Feed::Clock),
            is_live: is_merged && ports.iter().any(|port| port.feed == Feed::Clock),
            above: ports.iter().map(|port| port.offset_ns.max(0) as u64).max().unwrap_or(0) + STEP.as_nanos() as u64,
            events: Vec::new(),
            failure: None,
        };
        for (index, port) in ports.into_iter().enumerate() {
            lanes.queues.extend(port.queues.into_iter().map(|queue| Lane {
                queue,
                port: index,
                state: LaneState::Open,
                downs: 0,
                source: LaneClock::new(port.feed),
                offset: port.offset_ns,
                shifted: Vec::new(),
            }));
            lanes.ports.push(Port::new(port.name, port.monitor, port.filter));
        }
        lanes
    }

    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    /// Drops all lanes but the first `most`.
    pub(crate) fn keep(&mut self, most: usize) {
        self.queues.truncate(most);
    }

    /// Returns the time for a round. A step of the clock is reported.
    pub(crate) fn read_clock(&mut self) -> Nanos {
        let (now, step) = self.time.look();
        if let Some(step) = step
            && self.time.steps() <= MOST_SAID
        {
            self.events.push(said(step));
        }
        now
    }

    /// Fills every lane. The result borrows only the queues, so that the rest stays usable.
    pub(crate) fn fill<'a>(&'a mut self, now: Nanos, shown: &mut Vec<LaneFrames<'a>>) -> Table<'a> {
        let Lanes { queues, ports, interfaces, time, is_merged, is_live, has_news, above, events, failure } = self;
        let present = RoundTime { now, above: *above, settled: time.settled(), is_live: *is_live };
        let mut happened = Vec::new();
        for lane in queues {
            let port = lane.port;
            let (Head { burst, horizon, interfaces }, event) = lane.fill(&mut ports[port], present, failure);
            happened.extend(event.map(|event| (port, event)));
            shown.push(LaneFrames { burst, horizon, interfaces, port });
        }
        for (port, event) in happened {
            // The failure of the last open port ends the run, which reports it.
            let goes_on = shown.iter().any(|one| one.port != port && one.horizon != Horizon::Ended);
            let is_news = goes_on || failure.as_ref().is_none_or(|failure| failure.to_string() != event);
            note(events, event, *has_news && is_news);
        }
        Table { ports, interfaces, failure, time, is_merged: *is_merged, is_live, above: *above }
    }

    /// Releases the first frames of a lane.
    fn consume(&mut self, lane: usize, frames: usize) {
        if frames > 0 {
            self.queues[lane].queue.consume(frames);
        }
    }

    /// Returns a lane's interface to hold frames.
    pub(crate) fn holding(&mut self, lane: usize) -> Option<&mut dyn HoldQueue> {
        self.queues.get_mut(lane)?.queue.holding()
    }

    /// Releases the first frames of a lane, but moves those in `wanted` to `held`, as far as its queue allows. Returns
    /// the number of frames done with.
    pub(crate) fn release_frames(
        &mut self,
        lane: usize,
        frames: usize,
        wanted: &mut Vec<u32>,
        held: &mut Vec<HeldFrame>,
    ) -> usize {
        if wanted.is_empty() {
            self.consume(lane, frames);
            return frames;
        }
        let before = held.len();
        let queue = self.holding(lane).expect("frames are only held of queues that support it");
        let done = queue.hold(frames, wanted, held);
        held[before..].iter_mut().for_each(|held| held.lane = lane as u32);
        wanted.clear();
        done
    }

    pub(crate) fn now(&self) -> Nanos {
        self.time.utc()
    }

    /// Returns the link type of a lane with one interface; unknown before its first fill.
    pub(crate) fn link(&self, lane: usize) -> Option<Link> {
        self.ports[self.queues[lane].port].links.first().copied().flatten()
    }

    /// Reads the next frame of a lane straight to its destination, if it supports that and has one.
    pub(crate) fn read(&mut self, lane: usize, pieces: &mut [IoSliceMut<'_>]) -> Option<ScatteredFrame> {
        let Lanes { queues, ports, events, failure, has_news, .. } = self;
        let lane = &mut queues[lane];
        if lane.state == LaneState::Ended {
            return None;
        }
        match lane.queue.scatter()?.read(pieces) {
            Ok(read) => {
                if let Some(event) = ports[lane.port].link_up_event(lane.downs, read.is_some()) {
                    note(events, event, *has_news);
                }
                read
            }
            Err(error) => {
                if let Some(event) = ports[lane.port].fail((&mut lane.state, &mut lane.downs), error, failure) {
                    note(events, event, *has_news);
                }
                None
            }
        }
    }

    /// Detaches all lanes.
    pub(crate) fn detach(&mut self) {
        for lane in &mut self.queues {
            lane.queue.detach();
        }
    }

    /// Returns the descriptors to poll; `None` if a lane has none.
    pub(crate) fn wakes(&self) -> Option<Vec<BorrowedFd<'_>>> {
        self.queues.iter().filter(|lane| lane.state != LaneState::Ended).map(|lane| lane.queue.wake()).collect()
    }

    /// Returns the shortest time to wait before the next poll that a lane asks for.
    pub(crate) fn poll_interval(&self) -> Option<Duration> {
        self.queues
            .iter()
            .filter(|lane| lane.state != LaneState::Ended)
            .filter_map(|lane| lane.queue.poll_interval())
            .min()
    }

    /// Returns whether a lane continues its work with the next fill, so that the caller must not wait.
    pub(crate) fn have_pending_work(&self) -> bool {
        self.queues.iter().any(|lane| lane.state != LaneState::Ended && lane.queue.has_pending_work())
    }

    pub(crate) fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Adds the counters of queues and network cards.
    pub(crate) fn counters(&self, ledger: &mut Ledger) {
        for port in &self.ports {
            if let Some(monitor) = &port.monitor {
                monitor.counters(ledger);
            }
        }
        self.queue_counters(ledger);
    }

    /// Adds the counters of a merge of these lanes.
    pub(crate) fn merge_counters(&self, merge: &Merge, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Merge, "");
        account.add(Count::MergeReceived, merge.frames()).add(Count::MergeDelivered, merge.frames());
        account.add(Count::Late, merge.late()).add(Count::Ahead, merge.ahead());
        account.add(Count::Stalls, self.queues.iter().map(|lane| lane.source.stalls()).sum());
        account.add(Count::ClockSteps, self.time.steps());
    }

    /// Returns the totals that a lane's queue counted itself, and the time now.
    pub(crate) fn tallied(&self, lane: usize) -> Option<(&FrameTally, Nanos)> {
        let Lane { queue, offset, .. } = &self.queues[lane];
        queue.tallied().map(|tallied| (tallied, self.time.utc().shifted(*offset)))
    }

    /// Returns the first port with a queue that counts frames without returning them.
    pub(crate) fn tallying(&self) -> Option<String> {
        let lane = self.queues.iter().find(|lane| lane.queue.tallied().is_some())?;
        Some(self.ports[lane.port].name.clone())
    }

    /// Adds the counters of one lane's queue.
    pub(crate) fn lane_counters(&self, lane: usize, ledger: &mut Ledger) {
        self.queues[lane].queue.counters(ledger);
    }

    /// Returns the port of each lane, and the index of the queue in that port.
    pub(crate) fn places(&self) -> Vec<(usize, usize)> {
        let mut places: Vec<(usize, usize)> = Vec::with_capacity(self.queues.len());
        for lane in &self.queues {
            let before = places.last().filter(|(port, _)| *port == lane.port);
            places.push((lane.port, before.map_or(0, |(_, queue)| queue + 1)));
        }
        places
    }

    /// Adds only the counters of the queues: reading a network card can take milliseconds.
    pub(crate) fn queue_counters(&self, ledger: &mut Ledger) {
        let mut downs = vec![0; self.ports.len()];
        for lane in &self.queues {
            let mut own = Ledger::new();
            lane.queue.counters(&mut own);
            own.count_once(Count::LinkDown, &mut downs[lane.port]);
            ledger.add_all(&own);
        }
    }
}

impl Lane {
    /// Returns the frames of the queue; a lane that is down or gone has none and delays no other.
    fn fill(
        &mut self,
        port: &mut Port,
        present: RoundTime,
        failure: &mut Option<PortError>,
    ) -> (Head<'_>, Option<String>) {
        let nothing = |horizon| Head { burst: Burst::EMPTY, horizon, interfaces: &[] };
        if self.state == LaneState::Ended {
            return (nothing(Horizon::Ended), None);
        }
        match self.queue.fill(present.now) {
            Ok(mut head) => {
                if self.offset != 0 {
                    head.burst = head.burst.shifted(self.offset, &mut self.shifted);
                    if let Horizon::At(time) = &mut head.horizon {
                        *time = time.shifted(self.offset);
                    }
                }
                let (horizon, said) = self.source.bound(head.horizon, present);
                head.horizon = horizon;
                let back = port.link_up_event(self.downs, !head.burst.is_empty());
                (head, said.map(|said| format!("{}: {said}", port.name)).or(back))
            }
            Err(error) => {
                let event = port.fail((&mut self.state, &mut self.downs), error, failure);
                let horizon = if self.state == LaneState::Ended { Horizon::Ended } else { Horizon::At(Nanos::ZERO) };
                (nothing(horizon), event)
            }
        }
    }
}

/// Records an event for the report at the end; those of live ports are shown at once too.
fn note(events: &mut Vec<String>, event: String, has_news: bool) {
    if has_news {
        events::report(event.clone());
    }
    events.push(event);
}

/// Reuses the allocation of a vector for another lifetime.
pub(crate) fn recycle<A, B>(mut used: Vec<A>) -> Vec<B> {
    used.clear();
    used.into_iter().map(|_| unreachable!("the vector is empty")).collect()
}
