//! Two ports joined while another process decides about each frame: it reads them from a block ring and says what becomes of them.
//!
//! ```text
//!  port ──copy──> block of the ring ──commit──> engine (another process)
//!                   │   bytes of frames            │ a byte a frame, two counts a block
//!                   └──> other port <── decide <───┘
//! ```
//!
//! A frame is copied once, and sent from its block, which the engine can only read. What was sent or dropped is known in private memory
//! alone (`decide`, pure), so that nothing that the engine writes has a frame sent twice. No block is filled again before each frame
//! of it has gone. A port that takes nothing holds blocks; where none is free frames wait in the receiving port, which counts what it
//! loses.

mod decide;
mod hear;
mod listed;
mod news;
mod onward;
mod outgoing;
mod policy;
mod tally;

pub use self::policy::{Fail, Policy, Release};

use self::decide::{Decisions, Fate, Place, Why};
use self::hear::fate;
use self::listed::Listed;
use self::news::News;
use self::onward::{Onward, Taken};
use self::outgoing::Outgoing;
use crate::capture::share::{Shared, Sharing};
use crate::consumer::{Consumer, Demand, End, Look, Order, Round, Start};
use crate::control::Progress;
use crate::error::ReceiveError;
use linerate_burst::{Burst, Count, Desc, Finish, Flags, Ledger, Nanos, Pick, Stage};
use linerate_port::{Sent, TxPort};
use linerate_share::Deciding;
use linerate_wire::Link;
use linerate_wire::flow::locate;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long ports may take nothing after the end, and the engine may say nothing; what is left then is given up, and counted.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// Sends on what comes at either of two ports, as a reader of the ring says. It takes frames in its own time, and so is to be alone;
/// the ports have one lane each.
pub struct Inline {
    sharing: Option<Sharing>,
    ring: Option<Shared>,
    onward: Onward,
    decisions: Decisions,
    listed: Listed,
    engines: u64,
    /// Whether an engine was there when this was last looked at.
    is_decided: bool,
    news: News,
    fresh: Vec<Fresh>,
    picks: Vec<Pick>,
    newest: Nanos,
    progress: Arc<Progress>,
}

/// A frame that was copied and is not committed.
struct Fresh {
    frame: u32,
    way: u8,
    hash: u32,
    known: Option<Fate>,
}

impl Inline {
    /// Joins these two ports, by the ring that the engine reads.
    pub fn new(from: [&str; 2], to: [TxPort; 2], sharing: Sharing, policy: Policy, progress: Arc<Progress>) -> Self {
        let [one, other] = to;
        Inline {
            sharing: Some(sharing),
            ring: None,
            onward: Onward::new([Outgoing::new(from[0], one), Outgoing::new(from[1], other)]),
            decisions: Decisions::new(policy),
            listed: Listed::default(),
            engines: 0,
            is_decided: false,
            news: News::default(),
            fresh: Vec::new(),
            picks: Vec::new(),
            newest: Nanos::ZERO,
            progress,
        }
    }

    /// What was sent on each way.
    pub fn sent(&self) -> [Sent; 2] {
        [self.onward.ways[0].sent(), self.onward.ways[1].sent()]
    }

    /// Copies what the lanes show into the ring, and says what is known of each frame before the engine is asked.
    fn copy(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        for lane in 0..round.bursts.len() {
            let burst = round.bursts[lane];
            let mut done = 0;
            while done < burst.len() {
                let Some(copied) = self.fill(round, lane, done) else { break };
                done += copied;
                if done < burst.len() {
                    self.commit(round)?;
                    self.turn();
                }
            }
            round.leave(lane, burst.len() - done);
        }
        self.commit(round)
    }

    /// Copies frames of a lane, from one on, into one block; how many before it was full. None where no block is free.
    fn fill(&mut self, round: &Round<'_>, lane: usize, from: usize) -> Option<usize> {
        let ring = self.ring.as_mut()?;
        let past = self.decisions.past();
        let (block, state) = ring.block()?;
        let before = block.len();
        let most = (round.bursts[lane].len() - from).min(Pick::MAX_FRAMES);
        self.picks.clear();
        self.picks.extend((from..from + most).map(|index| Pick::new(lane, index)));
        let mut complete = Complete { map: round.maps[lane], links: round.links[lane], newest: self.newest };
        let copied = block.gather(round.bursts, &self.picks, &mut complete);
        self.newest = complete.newest;
        let burst = block.burst().slice(before..block.len());
        for (frame, (desc, bytes)) in (before as u32..).zip(burst.iter()) {
            let is_unfit = desc.is_truncated() || desc.flags.contains(Flags::SUPER_FRAME);
            let listed = self.listed.fate(round.now, desc, bytes).filter(|_| !is_unfit);
            self.onward.tally[lane].listed += u64::from(listed.is_some());
            let known = if is_unfit { Some(Fate::Unfit) } else { listed.or(past) };
            state.late += u32::from(desc.flags.contains(Flags::LATE));
            self.fresh.push(Fresh { frame, way: lane as u8, hash: desc.hash, known });
        }
        state.last_time = state.last_time.max(self.newest);
        if copied > 0 && !std::mem::replace(&mut self.onward.blocks.is_open, true) {
            let slot = ring.writer().current_slot().unwrap_or_default();
            self.onward.blocks.all.push_back(Taken { slot, ..Taken::default() });
            self.decisions.turn();
        }
        self.onward.tally[lane].received += copied as u64;
        Some(copied)
    }

    /// The next frame goes to another block.
    fn turn(&mut self) {
        self.ring.iter_mut().for_each(Shared::turn);
        self.onward.blocks.is_open = false;
    }

    /// Shows the engine what was copied. What it is not shown, and what nobody is asked about, goes its way.
    fn commit(&mut self, round: &Round<'_>) -> Result<(), ReceiveError> {
        let Inline { ring: Some(ring), onward, decisions, fresh, .. } = self else { return Ok(()) };
        let Some(slot) = onward.blocks.all.back().map(|taken| taken.slot).filter(|_| !fresh.is_empty()) else {
            return ring.commit(round.interfaces, round.complete).map_err(ReceiveError::Share);
        };
        for one in fresh.iter().filter(|one| one.known.is_some()) {
            ring.writer().settle(slot, one.frame);
        }
        ring.commit(round.interfaces, round.complete)?;
        let writer = ring.writer();
        let from = writer.engine_from(slot);
        let unseen = match writer.deciding() {
            Deciding::Attached => decisions.fate_of_slow(Why::Overload),
            _ => decisions.fate_of_dead(),
        };
        let mut out = |place: Place, way: u8, fate: Fate| onward.route(place, way, fate);
        for Fresh { frame, way, hash, known } in fresh.drain(..) {
            let is_shown = from.is_some_and(|from| from <= frame);
            let known = known.or((!is_shown).then_some(unseen));
            decisions.arrive(round.now, (way, hash), known, &mut out);
        }
        Ok(())
    }

    /// Hands frames to the ports; whether something is in hand.
    fn send(&mut self, now: Nanos, give_up: bool) -> bool {
        let Inline { ring: Some(ring), onward, decisions, progress, .. } = self else { return false };
        let Onward { ways, blocks, .. } = onward;
        let mut is_busy = decisions.is_busy();
        for way in ways.iter_mut() {
            let writer = &*ring.writer();
            let (first, all) = (blocks.first, &blocks.all);
            let burst = |block: u64| {
                let taken = block.checked_sub(first).and_then(|at| all.get(at as usize));
                taken.map_or(Burst::EMPTY, |taken| writer.filled(taken.slot).burst())
            };
            let mut sent = Vec::new();
            way.send(now, burst, give_up || way.has_failed(), |block, frames| sent.push((block, frames)));
            for (block, frames) in sent {
                blocks.at(block).into_iter().for_each(|taken| taken.unsent -= frames);
            }
            is_busy |= way.flush(now);
            way.tell(progress);
        }
        is_busy
    }

    /// Lets go of blocks of which every frame has gone.
    fn release(&mut self) {
        let Inline { ring: Some(ring), onward, decisions, .. } = self else { return };
        let Onward { blocks, tally, .. } = onward;
        let writer = ring.writer();
        for at in 0..blocks.all.len() {
            let is_open = blocks.is_open && at + 1 == blocks.all.len();
            let taken = &mut blocks.all[at];
            if is_open || taken.is_released || taken.unsent > 0 || !decisions.is_done(blocks.first + at as u64) {
                continue;
            }
            // Until the engine has given it back it may say too late what becomes of a frame.
            if taken.overdue.is_empty() || writer.engine_from(taken.slot).is_none() {
                for (frame, way) in taken.overdue.drain(..) {
                    tally[usize::from(way)].late += u64::from(fate(writer.verdict(taken.slot, frame)).is_some());
                }
                writer.release(taken.slot);
                taken.is_released = true;
            }
        }
        while blocks.all.front().is_some_and(|taken| taken.is_released) {
            blocks.all.pop_front();
            blocks.first += 1;
        }
    }
}

impl Consumer for Inline {
    fn name(&self) -> &'static str {
        "inline"
    }

    fn is_prompt(&self) -> bool {
        true
    }

    fn is_alone(&self) -> bool {
        true
    }

    fn order(&self) -> Order {
        Order::Any
    }

    fn begin(&mut self, start: &Start) -> Result<(), ReceiveError> {
        let Some(sharing) = self.sharing.take() else { return Ok(()) };
        let opened = Shared::open(sharing, start.stop.clone(), start.duration).map_err(ReceiveError::Acceptor);
        let mut ring = opened?;
        ring.writer().keep_blocks();
        self.ring = Some(ring);
        Ok(())
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        let give_up = round.draining.is_some_and(|since| since > STOP_LIMIT);
        self.ring.iter_mut().for_each(|ring| ring.tick(round.now));
        self.hear(round.now);
        self.settle(round.now, give_up);
        let copied = self.copy(round);
        if self.send(round.now, give_up) || round.has_left() {
            round.keep_busy();
        }
        self.release();
        copied
    }

    fn look(&mut self, look: &Look<'_>) {
        let mut ledger = look.queues();
        self.counters(&mut ledger);
        let lost = ledger.lost();
        self.progress.lost.store(lost, Ordering::Relaxed);
        self.ring.iter_mut().for_each(|ring| ring.look_at_losses(lost));
    }

    fn counters(&self, ledger: &mut Ledger) {
        for (tally, way) in self.onward.tally.iter().zip(&self.onward.ways) {
            tally.counters(way.name(), ledger);
            way.counters(ledger);
        }
    }

    fn demand(&self) -> Demand {
        if self.onward.ways.iter().any(Outgoing::has_failed) { Demand::Failed } else { Demand::More }
    }

    fn finish(&mut self, end: &mut End<'_>) {
        for (tally, way) in self.onward.tally.iter().zip(&mut self.onward.ways) {
            tally.counters(way.name(), end.ledger);
            tally.close(way.name(), end.ledger);
            if let Some(failure) = way.finish(end.ledger, end.events) {
                end.fail(failure);
            }
        }
        let account = end.ledger.account(Stage::Verdict, self.onward.ways[0].name());
        account.add(Count::InlineEngines, self.engines).add(Count::InlineUnlisted, self.listed.refused);
        account.add(Count::InlineUnused, self.onward.answers.unused);
        if let Some(ring) = self.ring.take() {
            let (events, failure) = ring.finish(end.ledger);
            end.events.extend(events);
            failure.into_iter().for_each(|failure| end.fail(failure));
        }
    }
}

/// Completes descs while their frames are copied.
struct Complete<'a> {
    /// The place of each of the lane's interfaces in the list of all, and what its frames begin with.
    map: &'a [u16],
    links: &'a [Option<Link>],
    newest: Nanos,
}

impl Finish for Complete<'_> {
    #[inline(always)]
    fn finish(&mut self, desc: &mut Desc, frame: &[u8], _: Pick) -> bool {
        let own = usize::from(desc.interface);
        if let Some(link) = self.links.get(own).copied().flatten() {
            let located = locate(link, frame);
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
