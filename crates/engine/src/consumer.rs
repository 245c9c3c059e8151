//! Consumers of the frames of a receive loop: a file, a meter, another port.

use crate::control::Stop;
use crate::error::ReceiveError;
use crate::lanes::Lanes;
use crate::thread_panic::ThreadPanic;
use linerate_burst::{Burst, Desc, FrameIndex, Interface, Ledger, Nanos};
use linerate_headers::Link;
use linerate_port::{FrameTally, HeldFrame, ScatteredFrame};
use std::io::IoSliceMut;
use std::time::{Duration, Instant};

/// Takes the frames of a run, one round at a time, in the thread of the run. Several consumers take the same frames
/// independently.
///
/// Selection, copies and counting are up to the consumer; the loop itself reads only descs, and orders lanes only if a
/// consumer needs that.
pub trait Consumer {
    /// Returns the branch of its accounts in the ledger, used if there are several consumers.
    fn name(&self) -> &'static str;

    /// Returns the order that it needs.
    fn order(&self) -> FrameOrder;

    /// Starts the consumer, after the ports are open.
    ///
    /// # Errors
    /// Ends the run before any frame is taken.
    fn begin(&mut self, _start: &RunStart) -> Result<(), ReceiveError> {
        Ok(())
    }

    /// Takes the frames of a round. Called every round, even without frames: then the input pauses, and buffers must be
    /// flushed.
    ///
    /// Descs are as ports return them, without offsets of headers and without a flow hash ([`Round::bursts`]).
    ///
    /// # Errors
    /// Ends the run; until its lanes are drained there are further rounds, to be taken as before.
    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError>;

    /// Returns whether it must be the only consumer of a run: because it [leaves](Round::leave) frames for later, which
    /// others would receive again, or [holds](Round::hold) them.
    fn is_sole(&self) -> bool {
        false
    }

    /// Returns whether it needs only counts and sizes of frames, so that a queue may count them and return none
    /// ([`RxQueue::tallied`](linerate_port::RxQueue::tallied)).
    fn takes_tallies(&self) -> bool {
        false
    }

    /// Receives the frames that it requested ([`Round::hold`]), and releases those no longer needed. Called every round
    /// if the consumer [is sole](Consumer::is_sole).
    fn hold(&mut self, _holds: &mut HeldFrames<'_>) {}

    /// Polls queues that deliver frames straight to their destination. Called every round if the consumer [is
    /// sole](Consumer::is_sole); must return once the queues are drained, or after some time.
    ///
    /// # Errors
    /// Those of [`Consumer::take`].
    fn read(&mut self, _reads: &mut ScatterQueues<'_>) -> Result<(), ReceiveError> {
        Ok(())
    }

    /// Receives the counters of the ports, about ten times a second.
    fn look(&mut self, _look: &RunCounters<'_>) {}

    /// Adds its counters so far, as its accounts will be at the end, for metrics during the run; frames that it still
    /// buffers may be missing in all of them.
    fn counters(&self, _ledger: &mut Ledger) {}

    /// Returns whether each frame must be delivered at once, even if waiting for several would be more efficient.
    fn is_prompt(&self) -> bool {
        false
    }

    /// Returns whether it needs more frames. The run ends once no consumer does, or one has failed.
    fn demand(&self) -> Demand {
        Demand::More
    }

    /// Ends the consumer: flushes its buffers, and accounts for every frame that it was given.
    fn finish(&mut self, end: &mut RunEnd<'_>);
}

/// Frame order that a consumer needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FrameOrder {
    /// None: lane by lane.
    Any,
    /// Several lanes are merged by time.
    Merged,
    /// A single lane is checked too: frames older than earlier ones are flagged and counted as late.
    Checked,
}

/// Demand for frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// More frames are needed.
    More,
    /// The consumer is complete.
    Enough,
    /// The consumer has failed; the error is reported at the end.
    Failed,
}

/// Parameters of a run that starts.
#[derive(Clone, Debug)]
pub struct RunStart {
    /// Number of ports.
    pub ports: usize,
    /// Port of each lane, and index of the queue in that port.
    pub lanes: Vec<(usize, usize)>,
    /// Stops the run when requested.
    pub stop: Stop,
    /// Duration of the run, if limited.
    pub duration: Option<Duration>,
}

/// Frames of all lanes in one round, as far as they are in order.
#[derive(Debug)]
pub struct Round<'a> {
    /// Time of the round, UTC.
    pub now: Nanos,
    /// Time since the start of the run.
    pub elapsed: Duration,
    /// Time since frames last arrived from the detached lanes; `None` before the end.
    pub draining: Option<Duration>,
    /// Frames of each lane. Ports leave `l3`, `l4` and `hash` of a desc empty: [`locate`](linerate_headers::flow::locate)
    /// finds them, given the link type ([`links`](Round::links)).
    pub bursts: &'a [Burst<'a>],
    /// Frames of all bursts in order. Empty for a single lane if no consumer needs it [checked](FrameOrder::Checked),
    /// and if no consumer needs an order.
    pub picks: &'a [FrameIndex],
    /// Watermark: later frames are not older than this, except late ones.
    pub complete: Nanos,
    /// All interfaces so far.
    pub interfaces: &'a [Interface],
    /// For each lane, the index in `interfaces` of each interface in its descs.
    pub maps: &'a [&'a [u16]],
    /// For each lane, the link type of each interface in its descs.
    pub links: &'a [&'a [Option<Link>]],
    /// For each lane, the filter that its port has applied ([`RxPort::filter`](linerate_port::RxPort::filter)); empty
    /// if none.
    pub filters: &'a [&'a str],
    /// Number of late frames so far.
    pub late: u64,
    pub(crate) left: &'a mut [usize],
    /// For each lane, frames to hold.
    pub(crate) wanted: &'a mut [Vec<u32>],
    pub(crate) is_busy: bool,
    /// True if its consumer is the only one and [is sole](Consumer::is_sole).
    pub(crate) is_sole: bool,
}

impl Round<'_> {
    /// Returns the number of frames.
    pub fn frames(&self) -> usize {
        self.bursts.iter().map(|burst| burst.len()).sum()
    }

    /// Leaves the last `frames` of a lane for a later round. For a consumer that needs no order.
    ///
    /// # Panics
    /// If the consumer does not declare that it [is sole](Consumer::is_sole).
    pub fn leave(&mut self, lane: usize, frames: usize) {
        assert!(self.is_sole, "other consumers would receive the frames again");
        self.left[lane] = frames;
    }

    /// Requests frames of a lane, by ascending index and below those [left](Round::leave): they are not released, but
    /// passed to [`Consumer::hold`]. If the queue can hold no more, that frame and later ones are left for another
    /// round. Only for queues whose frames can be held.
    ///
    /// # Panics
    /// If the consumer does not declare that it [is sole](Consumer::is_sole).
    pub fn hold(&mut self, lane: usize, indices: impl IntoIterator<Item = u32>) {
        assert!(self.is_sole, "other consumers would miss the frames");
        self.wanted[lane].extend(indices);
    }

    /// Returns whether frames were left for a later round.
    pub fn has_left(&self) -> bool {
        self.left.iter().any(|frames| *frames > 0)
    }

    /// Declares that the consumer has pending work: the run is not over and continues soon.
    pub fn keep_busy(&mut self) {
        self.is_busy = true;
    }

    /// Returns a desc of a lane, with its interface's index in `interfaces`.
    #[inline]
    pub(crate) fn placed(&self, lane: usize, desc: &Desc) -> Desc {
        let interface = self.maps[lane].get(usize::from(desc.interface)).copied();
        Desc { interface: interface.unwrap_or_default(), ..*desc }
    }

    /// Returns the order of all frames, built in `own` if no consumer declared to need it.
    pub(crate) fn order<'p>(&'p self, own: &'p mut Vec<FrameIndex>) -> &'p [FrameIndex] {
        if !self.picks.is_empty() {
            return self.picks;
        }
        own.clear();
        for (lane, burst) in self.bursts.iter().enumerate() {
            own.extend((0..burst.len()).map(|index| FrameIndex::new(lane, index)));
        }
        own
    }
}

/// Frames held by a consumer.
pub struct HeldFrames<'a> {
    pub(crate) lanes: &'a mut Lanes,
    pub(crate) held: &'a mut Vec<HeldFrame>,
    pub(crate) now: Nanos,
    pub(crate) draining: Option<Duration>,
    pub(crate) is_busy: bool,
}

impl HeldFrames<'_> {
    /// Returns the time of the round, UTC.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// Returns [`Round::draining`].
    pub fn draining(&self) -> Option<Duration> {
        self.draining
    }

    /// Takes the frames requested in this round, in the order of each lane.
    pub fn take(&mut self) -> std::vec::Drain<'_, HeldFrame> {
        self.held.drain(..)
    }

    /// Returns the bytes of a frame for reading or modification.
    pub fn bytes_mut<'b>(&'b mut self, held: &'b mut HeldFrame) -> &'b mut [u8] {
        self.lanes.holding(held.lane as usize).map_or(&mut [], |queue| queue.bytes_mut(held))
    }

    /// Announces that a frame will be held for longer ([`keep`](linerate_port::HoldQueue::keep)).
    pub fn keep(&mut self, held: &mut HeldFrame) {
        if let Some(queue) = self.lanes.holding(held.lane as usize) {
            queue.keep(held);
        }
    }

    /// Releases frames to their queues and empties the list.
    pub fn release(&mut self, done: &mut Vec<HeldFrame>) {
        while let Some(lane) = done.last().map(|held| held.lane) {
            let run = done.iter().rev().take_while(|held| held.lane == lane).count();
            let mut part = if run == done.len() { std::mem::take(done) } else { done.split_off(done.len() - run) };
            if let Some(queue) = self.lanes.holding(lane as usize) {
                queue.release(&mut part);
            }
            if done.is_empty() {
                // Its allocation is reused.
                part.clear();
                *done = part;
                return;
            }
        }
    }

    /// Declares that the consumer has pending work: the run is not over and continues soon.
    pub fn keep_busy(&mut self) {
        self.is_busy = true;
    }
}

/// Queues that read frames straight to their destination ([`RxOptions::scatter`](linerate_port::RxOptions::scatter)).
pub struct ScatterQueues<'a> {
    pub(crate) lanes: &'a mut Lanes,
    pub(crate) frames: u64,
    pub(crate) draining: Option<Duration>,
    pub(crate) is_busy: bool,
}

impl ScatterQueues<'_> {
    /// Returns the number of lanes.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Returns the time now, UTC.
    pub fn now(&self) -> Nanos {
        self.lanes.now()
    }

    /// Returns [`Round::draining`].
    pub fn draining(&self) -> Option<Duration> {
        self.draining
    }

    /// Returns the link type of a lane, if it is known.
    pub fn link(&self, lane: usize) -> Option<Link> {
        self.lanes.link(lane)
    }

    /// Takes the next frame of a lane into these buffers, one after another; `None` if no frame is ready or the lane is
    /// down.
    pub fn read(&mut self, lane: usize, pieces: &mut [IoSliceMut<'_>]) -> Option<ScatteredFrame> {
        let read = self.lanes.read(lane, pieces);
        self.frames += u64::from(read.is_some());
        read
    }

    /// Declares that the consumer has pending work: the run is not over and continues soon.
    pub fn keep_busy(&mut self) {
        self.is_busy = true;
    }
}

/// Counters of the ports of a run so far.
pub struct RunCounters<'a> {
    pub(crate) lanes: &'a Lanes,
    /// Time since the start of the run.
    pub elapsed: Duration,
}

impl RunCounters<'_> {
    /// Returns the counters of all queues, without those of network cards, which take milliseconds to read and are
    /// added at the end.
    pub fn queues(&self) -> Ledger {
        let mut ledger = Ledger::new();
        self.lanes.queue_counters(&mut ledger);
        ledger
    }

    /// Returns the counters of ports and queues, including network cards.
    pub(crate) fn ports(&self) -> Ledger {
        let mut ledger = Ledger::new();
        self.lanes.counters(&mut ledger);
        ledger
    }

    pub(crate) fn interfaces(&self) -> &[Interface] {
        self.lanes.interfaces()
    }

    /// Returns whether a port has failed permanently.
    pub fn has_failed(&self) -> bool {
        self.lanes.failure.is_some()
    }

    /// Returns the totals of frames that one lane's queue counted without returning them, and their time, UTC.
    pub fn tallied(&self, lane: usize) -> Option<(&FrameTally, Nanos)> {
        self.lanes.tallied(lane)
    }

    /// Returns the counters of one lane's queue.
    pub fn queue(&self, lane: usize) -> Ledger {
        let mut ledger = Ledger::new();
        self.lanes.lane_counters(lane, &mut ledger);
        ledger
    }
}

/// State at the end of a run.
pub struct RunEnd<'a> {
    /// Counters of the stages before the consumer, which adds its own.
    pub ledger: &'a mut Ledger,
    /// All interfaces of the run.
    pub interfaces: &'a [Interface],
    /// Noteworthy events.
    pub events: &'a mut Vec<String>,
    /// First failure, if any.
    pub failure: &'a mut Option<ReceiveError>,
    /// True if the run or a port failed before the consumers ended.
    pub has_failed: bool,
    /// Panic of this consumer or of the thread of the run, if any: work in progress may be incomplete.
    pub died: Option<ThreadPanic>,
    /// Number of frames given to the consumer.
    pub given: u64,
    pub(crate) started: Instant,
    pub(crate) look: RunCounters<'a>,
}

impl RunEnd<'_> {
    /// Records a failure, unless there is an earlier one.
    pub fn fail(&mut self, error: impl Into<ReceiveError>) {
        self.failure.get_or_insert(error.into());
    }

    /// Returns the duration of the run.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the counters of the ports.
    pub fn look(&self) -> &RunCounters<'_> {
        &self.look
    }
}
