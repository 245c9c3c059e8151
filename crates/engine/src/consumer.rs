//! Who takes the frames of a receive loop: a file, a meter, another port.

use crate::control::Stop;
use crate::died::Died;
use crate::error::ReceiveError;
use crate::lanes::Lanes;
use linerate_burst::{Burst, Desc, Interface, Ledger, Nanos, Pick};
use linerate_port::{Held, Scattered, Tallied};
use linerate_wire::Link;
use std::io::IoSliceMut;
use std::time::{Duration, Instant};

/// Takes the frames of a run, a round at a time, in the thread of the run. Several take the same frames, each for itself.
///
/// Whoever selects, copies or counts does it here; the loop itself looks at descs alone, and puts lanes in order only if a
/// consumer needs that.
pub trait Consumer {
    /// What its accounts in the ledger belong to, where it is not alone.
    fn name(&self) -> &'static str;

    /// How far frames have to be put in order for it.
    fn order(&self) -> Order;

    /// The ports are open, the run begins.
    ///
    /// # Errors
    /// The run ends before it takes a frame.
    fn begin(&mut self, _start: &Start) -> Result<(), ReceiveError> {
        Ok(())
    }

    /// Takes the frames of a round, once every round, also if there is none: then the input pauses, and what is held back in
    /// buffers is to be passed on.
    ///
    /// Descs are as ports show them, without offsets of headers and without a flow hash ([`Round::bursts`]).
    ///
    /// # Errors
    /// The run ends; until its lanes are dry there are further rounds, to be taken as before.
    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError>;

    /// Whether it is to be the only one of a run: because it [leaves](Round::leave) frames for later, which others would get again, or
    /// [holds](Round::hold) them.
    fn is_alone(&self) -> bool {
        false
    }

    /// Whether numbers and sizes are all that it needs of frames, so that a queue may count them and show none
    /// ([`RxQueue::tallied`](linerate_port::RxQueue::tallied)).
    fn takes_tallies(&self) -> bool {
        false
    }

    /// The frames that it asked for ([`Round::hold`]) are its own now, and those that it needs no more can be given back. Once every
    /// round, of a consumer that [is alone](Consumer::is_alone).
    fn hold(&mut self, _holds: &mut Holds<'_>) {}

    /// Reads what has come from queues that bring each frame straight to where it is wanted. Once every round, of a consumer that
    /// [is alone](Consumer::is_alone); to return once they are dry, or after some time.
    ///
    /// # Errors
    /// As those of [`Consumer::take`].
    fn read(&mut self, _reads: &mut Reads<'_>) -> Result<(), ReceiveError> {
        Ok(())
    }

    /// Some ten times a second: what the ports have counted.
    fn look(&mut self, _look: &Look<'_>) {}

    /// What it has counted so far, as its accounts will say at the end, for whoever asks while the run lasts; frames that it has in hand
    /// may be in none of them yet.
    fn counters(&self, _ledger: &mut Ledger) {}

    /// Whether each frame is to come at once, even where waiting for several would bring more of them.
    fn is_prompt(&self) -> bool {
        false
    }

    /// Whether it wants frames. The run ends once none does, or one has failed.
    fn demand(&self) -> Demand {
        Demand::More
    }

    /// The run is over: passes on what it holds, and accounts for every frame that it was given.
    fn finish(&mut self, end: &mut End<'_>);
}

/// How far frames have to be put in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// Not at all: lane by lane.
    Any,
    /// Where there are several lanes these are merged by time.
    Merged,
    /// Those of a single lane are looked at too: frames that are older than what was before them are flagged and counted as late.
    Checked,
}

/// Whether more frames are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// Yes.
    More,
    /// No: all that was asked for is there.
    Enough,
    /// They could go nowhere any more; why is told at the end.
    Failed,
}

/// How a run begins.
#[derive(Clone, Debug)]
pub struct Start {
    /// How many ports there are.
    pub ports: usize,
    /// Where each lane belongs: its port, and which queue of that port it is.
    pub lanes: Vec<(usize, usize)>,
    /// Ends the run when requested.
    pub stop: Stop,
    /// After how long the run ends.
    pub duration: Option<Duration>,
}

/// What the lanes show in one round, as far as its turn has come.
#[derive(Debug)]
pub struct Round<'a> {
    /// UTC.
    pub now: Nanos,
    /// How long the run has taken.
    pub elapsed: Duration,
    /// How long nothing has come from lanes that take in nothing any more; `None` before the end.
    pub draining: Option<Duration>,
    /// Frames of each lane. Ports leave `l3`, `l4` and `hash` of a desc empty: [`locate`](linerate_wire::flow::locate) finds them,
    /// given the link type ([`links`](Round::links)).
    pub bursts: &'a [Burst<'a>],
    /// Their order: all frames of all bursts. Empty of a single lane whose frames nobody wants [checked](Order::Checked), and where
    /// nobody needs an order.
    pub picks: &'a [Pick],
    /// No frame that comes later is older than this, but late ones.
    pub complete: Nanos,
    /// All interfaces so far.
    pub interfaces: &'a [Interface],
    /// For each lane, the place in `interfaces` of each interface that its descs name.
    pub maps: &'a [&'a [u16]],
    /// For each lane, what frames of each interface that its descs name begin with.
    pub links: &'a [&'a [Option<Link>]],
    /// For each lane, the filter that its port has applied ([`RxPort::filter`](linerate_port::RxPort::filter)); empty if none.
    pub filters: &'a [&'a str],
    /// Frames so far that came late.
    pub late: u64,
    pub(crate) left: &'a mut [usize],
    /// For each lane, frames to be held.
    pub(crate) wanted: &'a mut [Vec<u32>],
    pub(crate) is_busy: bool,
    /// Whether its consumer is the only one, and says so.
    pub(crate) is_alone: bool,
}

impl Round<'_> {
    /// How many frames there are.
    pub fn frames(&self) -> usize {
        self.bursts.iter().map(|burst| burst.len()).sum()
    }

    /// Leaves the last `frames` of a lane for a later round. For a consumer that needs no order.
    ///
    /// # Panics
    /// If it does not say that it [is alone](Consumer::is_alone).
    pub fn leave(&mut self, lane: usize, frames: usize) {
        assert!(self.is_alone, "others would get the frames again");
        self.left[lane] = frames;
    }

    /// Asks for frames of a lane, by ascending index and below what is [left](Round::leave): they are not given back, and come to
    /// [`Consumer::hold`]. Where the queue can spare no more, that one and those behind it are left for a later round. Of queues whose
    /// frames can be held.
    ///
    /// # Panics
    /// If the consumer does not say that it [is alone](Consumer::is_alone).
    pub fn hold(&mut self, lane: usize, indices: impl IntoIterator<Item = u32>) {
        assert!(self.is_alone, "others would not get the frames");
        self.wanted[lane].extend(indices);
    }

    /// Whether frames were left.
    pub fn has_left(&self) -> bool {
        self.left.iter().any(|frames| *frames > 0)
    }

    /// The consumer has something in hand: the run is not over yet, and goes on soon.
    pub fn keep_busy(&mut self) {
        self.is_busy = true;
    }

    /// A desc of a lane, with its interface's place in the list of all.
    #[inline]
    pub(crate) fn placed(&self, lane: usize, desc: &Desc) -> Desc {
        let interface = self.maps[lane].get(usize::from(desc.interface)).copied();
        Desc { interface: interface.unwrap_or_default(), ..*desc }
    }

    /// The order of all frames, made in `own` where nobody needed one so far.
    pub(crate) fn order<'p>(&'p self, own: &'p mut Vec<Pick>) -> &'p [Pick] {
        if !self.picks.is_empty() {
            return self.picks;
        }
        own.clear();
        for (lane, burst) in self.bursts.iter().enumerate() {
            own.extend((0..burst.len()).map(|index| Pick::new(lane, index)));
        }
        own
    }
}

/// Frames that a consumer holds.
pub struct Holds<'a> {
    pub(crate) lanes: &'a mut Lanes,
    pub(crate) held: &'a mut Vec<Held>,
    pub(crate) now: Nanos,
    pub(crate) draining: Option<Duration>,
    pub(crate) is_busy: bool,
}

impl Holds<'_> {
    /// UTC.
    pub fn now(&self) -> Nanos {
        self.now
    }

    /// As [`Round::draining`].
    pub fn draining(&self) -> Option<Duration> {
        self.draining
    }

    /// Takes those that were asked for in this round, in the order of each lane.
    pub fn take(&mut self) -> std::vec::Drain<'_, Held> {
        self.held.drain(..)
    }

    /// The bytes of a frame, to be looked at or changed.
    pub fn bytes_mut<'b>(&'b mut self, held: &'b mut Held) -> &'b mut [u8] {
        self.lanes.holding(held.lane as usize).map_or(&mut [], |queue| queue.bytes_mut(held))
    }

    /// Says that a frame will be held for longer ([`keep`](linerate_port::Holding::keep)).
    pub fn keep(&mut self, held: &mut Held) {
        if let Some(queue) = self.lanes.holding(held.lane as usize) {
            queue.keep(held);
        }
    }

    /// Gives frames back to where they came from; the list is empty then.
    pub fn release(&mut self, done: &mut Vec<Held>) {
        while let Some(lane) = done.last().map(|held| held.lane) {
            let run = done.iter().rev().take_while(|held| held.lane == lane).count();
            let mut part = if run == done.len() { std::mem::take(done) } else { done.split_off(done.len() - run) };
            if let Some(queue) = self.lanes.holding(lane as usize) {
                queue.release(&mut part);
            }
            if done.is_empty() {
                // Its memory is used again.
                part.clear();
                *done = part;
                return;
            }
        }
    }

    /// The consumer has something in hand: the run is not over yet, and goes on soon.
    pub fn keep_busy(&mut self) {
        self.is_busy = true;
    }
}

/// Queues that bring each frame straight to where it is wanted ([`RxOptions::scatter`](linerate_port::RxOptions::scatter)).
pub struct Reads<'a> {
    pub(crate) lanes: &'a mut Lanes,
    pub(crate) frames: u64,
    pub(crate) draining: Option<Duration>,
    pub(crate) is_busy: bool,
}

impl Reads<'_> {
    /// How many lanes there are.
    pub fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// What time it is, UTC.
    pub fn now(&self) -> Nanos {
        self.lanes.now()
    }

    /// As [`Round::draining`].
    pub fn draining(&self) -> Option<Duration> {
        self.draining
    }

    /// What frames of a lane begin with.
    pub fn link(&self, lane: usize) -> Option<Link> {
        self.lanes.link(lane)
    }

    /// Reads the next frame of a lane into these pieces, one after another; none where there is none now, or the lane is down.
    pub fn read(&mut self, lane: usize, pieces: &mut [IoSliceMut<'_>]) -> Option<Scattered> {
        let read = self.lanes.read(lane, pieces);
        self.frames += u64::from(read.is_some());
        read
    }

    /// The consumer has something in hand: the run is not over yet, and goes on soon.
    pub fn keep_busy(&mut self) {
        self.is_busy = true;
    }
}

/// What the ports of a run have counted so far.
pub struct Look<'a> {
    pub(crate) lanes: &'a Lanes,
    /// How long the run has taken.
    pub elapsed: Duration,
}

impl Look<'_> {
    /// Counters of all queues; those of network cards, which take milliseconds to ask, come at the end.
    pub fn queues(&self) -> Ledger {
        let mut ledger = Ledger::new();
        self.lanes.queue_counters(&mut ledger);
        ledger
    }

    /// Counters of ports and queues, those of network cards among them.
    pub(crate) fn ports(&self) -> Ledger {
        let mut ledger = Ledger::new();
        self.lanes.counters(&mut ledger);
        ledger
    }

    pub(crate) fn interfaces(&self) -> &[Interface] {
        self.lanes.interfaces()
    }

    /// Whether a port has failed for good: nothing comes from it any more.
    pub fn has_failed(&self) -> bool {
        self.lanes.failure.is_some()
    }

    /// What one lane's queue has counted itself, of frames that it does not show, and at which time of UTC.
    pub fn tallied(&self, lane: usize) -> Option<(&Tallied, Nanos)> {
        self.lanes.tallied(lane)
    }

    /// Counters of one lane's queue.
    pub fn queue(&self, lane: usize) -> Ledger {
        let mut ledger = Ledger::new();
        self.lanes.lane_counters(lane, &mut ledger);
        ledger
    }
}

/// The end of a run.
pub struct End<'a> {
    /// Counters of all before the consumer; its own go here.
    pub ledger: &'a mut Ledger,
    /// All interfaces there were.
    pub interfaces: &'a [Interface],
    /// What was noteworthy.
    pub events: &'a mut Vec<String>,
    /// What went wrong first, if anything.
    pub failure: &'a mut Option<ReceiveError>,
    /// Whether something went wrong before the consumers ended, in the run or at a port.
    pub has_failed: bool,
    /// Whether this consumer, or the thread of the run, panicked: what it had in hand may be half done.
    pub died: Option<Died>,
    /// Frames there were for it.
    pub given: u64,
    pub(crate) started: Instant,
    pub(crate) look: Look<'a>,
}

impl End<'_> {
    /// Something went wrong.
    pub fn fail(&mut self, error: impl Into<ReceiveError>) {
        self.failure.get_or_insert(error.into());
    }

    /// How long the run has taken by now.
    pub fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// What the ports have counted.
    pub fn look(&self) -> &Look<'_> {
        &self.look
    }
}
