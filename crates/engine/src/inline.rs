//! Two joined ports, with another process that decides about each frame: it reads frames from a block ring and returns
//! verdicts.
//!
//! ```text
//!  port ──copy──> block of the ring ──commit──> engine (another process)
//!                   │   bytes of frames            │ a byte per frame, two counts per block
//!                   └──> other port <── decide <───┘
//! ```
//!
//! A frame is copied once, and sent from its block, which the engine can only read. The state of each frame is kept
//! only in private memory (`decide`, pure), so that nothing the engine writes can cause a frame to be sent twice. No
//! block is reused before each frame of it was sent or dropped. A port that takes nothing keeps blocks in use; without
//! a free block frames wait in the receiving port, which counts its losses.

pub(crate) mod decide;
mod direction;
mod events;
mod flow_verdicts;
mod limit;
pub(crate) mod output;
mod policy;
mod tally;
pub(crate) mod verdict_ring;
mod verdicts;

pub use self::policy::{FailMode, Policy, ReleaseOrder};

use self::direction::InlineDirection;
use self::verdict_ring::VerdictRing;
use crate::capture::share::Sharing;
use crate::consumer::{Consumer, Demand, FrameOrder, Round, RunCounters, RunEnd, RunStart};
use crate::control::Progress;
use crate::egress::STOP_LIMIT;
use crate::error::ReceiveError;
use linerate_burst::{Desc, FinishDesc, Flags, FrameIndex, Ledger, Nanos};
use linerate_headers::Link;
use linerate_headers::flow::locate_inner;
use linerate_port::{Sent, TxPort};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Forwards frames between two ports, over any lane, as decided by a reader of the ring. It holds frames, so it must be
/// the only consumer.
pub struct Inline {
    asking: VerdictRing<[InlineDirection; 2]>,
    /// Port of each lane, which is the direction of its frames.
    ways: Vec<u16>,
    picks: Vec<FrameIndex>,
    progress: Arc<Progress>,
    /// True if a port has failed: then neither direction is served.
    is_apart: bool,
}

impl Inline {
    /// Joins these two ports by the ring that the engine reads.
    pub fn new(from: [&str; 2], to: [TxPort; 2], sharing: Sharing, policy: Policy, progress: Arc<Progress>) -> Self {
        let [one, other] = to;
        let ways = [InlineDirection::new(from[0], one), InlineDirection::new(from[1], other)];
        Inline {
            asking: VerdictRing::new(sharing, policy, ways, 2),
            ways: Vec::new(),
            picks: Vec::new(),
            progress,
            is_apart: false,
        }
    }

    /// Returns the totals sent in each direction.
    pub fn sent(&self) -> [Sent; 2] {
        [0, 1].map(|way| self.asking.onward.exits[way].sent())
    }

    /// Copies the frames of the lanes into the ring, and records decisions that need no engine.
    fn copy(&mut self, round: &mut Round<'_>) {
        for lane in 0..round.bursts.len() {
            let burst = round.bursts[lane];
            let mut done = 0;
            while done < burst.len() {
                let Some(copied) = self.fill(round, lane, done) else { break };
                done += copied;
                if done < burst.len() {
                    self.asking.commit(round.now);
                    self.asking.turn();
                }
            }
            round.leave(lane, burst.len() - done);
        }
        self.asking.commit(round.now);
    }

    /// Copies frames of a lane, from index `from` on, into one block; returns the number copied, or `None` without a
    /// free block.
    fn fill(&mut self, round: &Round<'_>, lane: usize, from: usize) -> Option<usize> {
        let newest = self.asking.newest;
        let (block, _) = self.asking.block()?;
        let before = block.len();
        let most = (round.bursts[lane].len() - from).min(FrameIndex::MAX_FRAMES);
        self.picks.clear();
        self.picks.extend((from..from + most).map(|index| FrameIndex::new(lane, index)));
        let mut complete = InlineFinisher { map: round.maps[lane], links: round.links[lane], newest };
        let copied = block.gather(round.bursts, &self.picks, &mut complete);
        self.asking.newest = complete.newest;
        self.asking.filled(round.now, self.ways[lane], before);
        Some(copied)
    }

    /// Passes frames to the ports; returns whether some are pending.
    fn send(&mut self, now: Nanos, give_up: bool) -> bool {
        let progress = &self.progress;
        let is_sending = self.asking.send(|ways, burst_of, done| {
            let mut is_sending = false;
            for way in ways {
                way.send(now, burst_of, give_up || way.has_failed(), |block, frames| done.push((block, frames)));
                is_sending |= way.flush(now);
                way.update_progress(progress);
            }
            is_sending
        });
        self.asking.is_busy() || is_sending.unwrap_or(false)
    }
}

impl Consumer for Inline {
    fn name(&self) -> &'static str {
        "inline"
    }

    fn is_prompt(&self) -> bool {
        true
    }

    fn is_sole(&self) -> bool {
        true
    }

    fn order(&self) -> FrameOrder {
        FrameOrder::Any
    }

    fn begin(&mut self, start: &RunStart) -> Result<(), ReceiveError> {
        if start.ports != 2 {
            return Err(ReceiveError::Ends { name: self.name(), found: start.ports });
        }
        self.ways = start.lanes.iter().map(|(port, _)| *port as u16).collect();
        self.asking.begin(start)
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        let give_up = round.draining.is_some_and(|since| since > STOP_LIMIT);
        let begun = self.asking.round(round, give_up);
        self.copy(round);
        if self.send(round.now, give_up) || round.has_left() {
            round.keep_busy();
        }
        self.asking.release();
        begun
    }

    fn look(&mut self, look: &RunCounters<'_>) {
        self.is_apart = look.has_failed();
        let mut ledger = look.queues();
        self.counters(&mut ledger);
        let lost = ledger.lost();
        self.progress.lost.store(lost, Ordering::Relaxed);
        self.asking.record_losses(lost);
    }

    fn counters(&self, ledger: &mut Ledger) {
        let onward = &self.asking.onward;
        for (tally, way) in onward.tallies().iter().zip(&onward.exits) {
            tally.counters(way.name(), ledger);
            way.counters(ledger);
        }
    }

    fn demand(&self) -> Demand {
        let is_over = self.is_apart || self.asking.onward.exits.iter().any(InlineDirection::has_failed);
        if is_over { Demand::Failed } else { Demand::More }
    }

    fn finish(&mut self, end: &mut RunEnd<'_>) {
        let tallies = self.asking.onward.tallies().to_vec();
        for (tally, way) in tallies.iter().zip(&mut self.asking.onward.exits) {
            tally.counters(way.name(), end.ledger);
            tally.close(way.name(), end.ledger);
            if let Some(failure) = way.finish(end.ledger, end.events) {
                end.fail(failure);
            }
        }
        let name = self.asking.onward.exits[0].name().to_owned();
        self.asking.finish(&name, end);
    }
}

/// Completes descs while their frames are copied.
struct InlineFinisher<'a> {
    /// Index of each of the lane's interfaces in the list of all, and their link types.
    map: &'a [u16],
    links: &'a [Option<Link>],
    newest: Nanos,
}

impl FinishDesc for InlineFinisher<'_> {
    #[inline(always)]
    fn finish(&mut self, desc: &mut Desc, frame: &[u8], _: FrameIndex) -> bool {
        let own = usize::from(desc.interface);
        if let Some(link) = self.links.get(own).copied().flatten() {
            let located = locate_inner(link, frame);
            (desc.l3, desc.l4, desc.hash) = (located.l3, located.l4, located.hash);
        }
        desc.interface = self.map.get(own).copied().unwrap_or_default();
        if desc.time < self.newest {
            desc.flags |= Flags::LATE;
        }
        self.newest = self.newest.max(desc.time);
        true
    }
}
