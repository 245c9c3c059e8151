//! One port -> another port: half of a wire.
//!
//! Nothing is copied or ordered here: frames of a queue are passed to the other port in place, queue after queue. So a
//! frame waits only for the burst before it. If one port's frames can be held and the other port sends in place, no
//! port copies them either:
//!
//!
//! ```text
//!  hold ──> verdicts ──> pending ── submit ──> port ── completed ──> release
//!              └── dropped ─────────────────────────────────────────────^
//! ```

use crate::consumer::{Consumer, Demand, FrameOrder, HeldFrames, Round, RunCounters, RunEnd};
use crate::control::Progress;
use crate::error::ReceiveError;
use crate::verdict::{Inspect, Outcome, Policy, Verdicts};
use linerate_burst::{Burst, Count, Ledger, Nanos};
use linerate_port::{HeldFrame, PortError, RxPort, Sent, TxPort, TxQueue};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Longest time at the end for which the other port may take nothing; the rest is dropped and counted.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// Maximum number of held frames, so that there is space for new ones.
const MOST_HELD: usize = 2048;

/// Forwards frames through the first queue of a port. It holds frames, so it must be the only consumer.
pub struct Forward {
    /// Names of both ports.
    name: String,
    to: TxPort,
    /// State for sending in place, if supported.
    in_place: Option<TransitFrames>,
    progress: Arc<Progress>,
    counts: ForwardCounts,
    /// Part of the counters that is in the progress.
    reported: ForwardCounts,
    errors: Errors,
}

/// Errors of the other port.
#[derive(Default)]
pub(crate) struct Errors {
    pub is_down: bool,
    pub events: Vec<String>,
    pub failure: Option<PortError>,
}

/// Frames in transit from one port to the other.
#[derive(Default)]
struct TransitFrames {
    verdicts: Option<Verdicts>,
    /// Frames of this round; empty between two.
    arrived: Vec<HeldFrame>,
    pending: VecDeque<HeldFrame>,
    done: Vec<HeldFrame>,
}

#[derive(Clone, Copy, Default)]
struct ForwardCounts {
    received: u64,
    handed: u64,
    truncated: u64,
    down: u64,
    unsent: u64,
    sent: Sent,
    lost: u64,
}

impl Forward {
    /// Forwards frames of a port; without a copy if both ports support it. Needs the privileges that opening needed.
    pub fn new(from: &mut RxPort, mut to: TxPort, progress: Arc<Progress>) -> Self {
        let name = format!("{} -> {}", from.name, to.name);
        let (counts, reported) = <(ForwardCounts, ForwardCounts)>::default();
        let in_place = joins(from, to.queues[0].as_mut()).then(TransitFrames::default);
        Forward { name, to, in_place, progress, counts, reported, errors: Errors::default() }
    }

    /// Does the same with verdicts on each frame.
    ///
    /// # Errors
    /// If the two ports cannot forward frames in place.
    pub fn inspected(
        from: &mut RxPort,
        to: TxPort,
        progress: Arc<Progress>,
        (inspector, policy): (Box<dyn Inspect>, Policy),
    ) -> Result<Self, PortError> {
        let mut forward = Forward::new(from, to, progress);
        let Some(in_place) = &mut forward.in_place else {
            let reason = format!("cannot hold, change and forward frames to {}", forward.to.name);
            return Err(PortError::broken(&from.name, reason));
        };
        in_place.verdicts = Some(Verdicts::new(inspector, policy));
        Ok(forward)
    }

    /// Returns whether frames are sent in place.
    pub fn is_in_place(&self) -> bool {
        self.in_place.is_some()
    }

    /// Returns the totals sent.
    pub fn sent(&self) -> Sent {
        self.counts.sent
    }

    /// Returns whether frames that the other port does not take are dropped: it failed, or is too slow at the end.
    fn drops_rest(&self, draining: Option<Duration>) -> bool {
        self.errors.failure.is_some() || draining.is_some_and(|since| since > STOP_LIMIT)
    }

    /// Passes on the frames of one lane; returns how many are done with.
    fn send(&mut self, burst: Burst<'_>, give_up: bool) -> usize {
        let mut done = 0;
        while done < burst.len() {
            let rest = burst.slice(done..burst.len());
            if give_up {
                self.counts.unsent += rest.len() as u64;
                return burst.len();
            }
            match forward_burst(self.to.queues[0].as_mut(), rest, &mut self.counts) {
                Ok(0) | Err(PortError::Again { .. }) => break,
                Ok(frames) => done += frames,
                Err(error) => {
                    if !self.errors.take(error) {
                        break;
                    }
                    self.counts.down += rest.len() as u64;
                    done += rest.len();
                }
            }
        }
        done
    }

    /// Passes frames with a positive verdict to the port.
    fn submit(&mut self, give_up: bool) {
        let Some(TransitFrames { pending, done, .. }) = &mut self.in_place else { return };
        let Some(queue) = self.to.queues[0].submitting() else { return };
        while !pending.is_empty() && !give_up {
            match queue.submit(pending) {
                Ok(0) | Err(PortError::Again { .. }) => return,
                Ok(frames) => self.counts.handed += frames as u64,
                Err(error) => {
                    if !self.errors.take(error) {
                        break;
                    }
                    self.counts.down += pending.len() as u64;
                    done.extend(pending.drain(..));
                }
            }
        }
        self.counts.unsent += pending.len() as u64;
        done.extend(pending.drain(..));
    }

    /// Flushes the port; returns whether it has frames queued.
    fn flush(&mut self, now: Nanos) -> bool {
        match self.to.queues[0].flush(now) {
            Ok(flushed) => !flushed,
            Err(PortError::Again { .. } | PortError::Down { .. }) => false,
            Err(error) => self.errors.take(error),
        }
    }

    /// Adds to the progress what was done since the last call.
    fn report_progress(&mut self) {
        let sent = self.to.queues[0].sent();
        self.errors.is_down &= sent == self.counts.sent;
        self.counts.sent = sent;
        let (frames, bytes) = (sent.frames - self.reported.sent.frames, sent.bytes - self.reported.sent.bytes);
        self.progress.add(frames, bytes, bytes);
        self.progress.lost.fetch_add(self.counts.lost.saturating_sub(self.reported.lost), Ordering::Relaxed);
        self.reported = ForwardCounts { lost: self.counts.lost.max(self.reported.lost), ..self.counts };
    }
}

impl Consumer for Forward {
    fn name(&self) -> &'static str {
        "forward"
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

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        let give_up = self.drops_rest(round.draining);
        if let Some(in_place) = self.in_place.as_ref().filter(|_| !give_up) {
            let mut room = MOST_HELD.saturating_sub(in_place.len());
            for lane in 0..round.bursts.len() {
                let (frames, wanted) = (round.bursts[lane].len(), round.bursts[lane].len().min(room));
                room -= wanted;
                round.hold(lane, 0..wanted as u32);
                round.leave(lane, frames - wanted);
            }
            return Ok(());
        }
        for lane in 0..round.bursts.len() {
            let burst = round.bursts[lane];
            let done = self.send(burst, give_up);
            self.counts.received += done as u64;
            round.leave(lane, burst.len() - done);
        }
        if self.flush(round.now) || round.has_left() {
            round.keep_busy();
        }
        self.report_progress();
        Ok(())
    }

    fn hold(&mut self, holds: &mut HeldFrames<'_>) {
        let give_up = self.drops_rest(holds.draining());
        let Some(in_place) = &mut self.in_place else { return };
        in_place.decide(holds, &mut self.counts, give_up);
        self.submit(give_up);
        let is_in_hand = self.flush(holds.now());
        let Some(in_place) = &mut self.in_place else { return };
        self.to.queues[0].submitting().into_iter().for_each(|queue| queue.completed(&mut in_place.done));
        holds.release(&mut in_place.done);
        if is_in_hand || in_place.len() > 0 {
            holds.keep_busy();
        }
        self.report_progress();
    }

    fn look(&mut self, look: &RunCounters<'_>) {
        let mut ledger = look.queues();
        self.counters(&mut ledger);
        self.counts.lost = ledger.lost();
    }

    fn counters(&self, ledger: &mut Ledger) {
        let ForwardCounts { received, handed, truncated, down, unsent, .. } = self.counts;
        if let Some(verdicts) = self.in_place.as_ref().and_then(|in_place| in_place.verdicts.as_ref()) {
            verdicts.counters(&self.name, ledger);
        }
        let account = ledger.account(linerate_burst::Stage::Forward, &self.name);
        account.add(Count::ForwardReceived, received).add(Count::Forwarded, handed);
        account.add(Count::ForwardTruncated, truncated).add(Count::ForwardDown, down);
        account.add(Count::ForwardUnsent, unsent);
        self.to.queues.iter().for_each(|queue| queue.counters(ledger));
    }

    fn demand(&self) -> Demand {
        if self.errors.failure.is_some() { Demand::Failed } else { Demand::More }
    }

    fn finish(&mut self, end: &mut RunEnd<'_>) {
        if let Some(monitor) = &self.to.monitor {
            monitor.counters(end.ledger);
        }
        if end.died.is_some() {
            // After a panic: frames in progress, and those not processed.
            let verdicts = self.in_place.as_mut().and_then(|in_place| in_place.verdicts.as_mut());
            let counts = &mut self.counts;
            counts.received = verdicts.map_or(end.given, |verdicts| verdicts.give_up(end.given));
            counts.unsent = counts.received - counts.handed - counts.truncated - counts.down;
        }
        self.counters(end.ledger);
        self.counts.sent = self.to.queues[0].sent();
        end.events.append(&mut self.errors.events);
        if let Some(failure) = self.errors.failure.take() {
            end.fail(failure);
        }
    }
}

impl Errors {
    /// Records an error of sending; returns whether frames are still passed to the port, which drops them like an
    /// unplugged cable.
    pub(crate) fn take(&mut self, error: PortError) -> bool {
        if !matches!(error, PortError::Down { .. }) {
            self.failure.get_or_insert(error);
            return false;
        }
        if !std::mem::replace(&mut self.is_down, true) {
            self.events.push(error.to_string());
        }
        true
    }
}

impl TransitFrames {
    /// Decides about the frames of this round, and those that waited for a verdict.
    fn decide(&mut self, holds: &mut HeldFrames<'_>, counts: &mut ForwardCounts, give_up: bool) {
        let TransitFrames { verdicts, arrived, pending, done } = self;
        arrived.extend(holds.take());
        let mut sort = |held: HeldFrame, outcome| {
            if outcome == Outcome::Dropped {
                return done.push(held);
            }
            counts.received += 1;
            counts.truncated += u64::from(held.desc.is_truncated());
            if held.desc.is_truncated() { done.push(held) } else { pending.push_back(held) }
        };
        let Some(verdicts) = verdicts else {
            return arrived.drain(..).for_each(|held| sort(held, Outcome::Passed));
        };
        let now = holds.now();
        for mut held in arrived.drain(..) {
            let desc = held.desc;
            let looked = verdicts.look(&desc, holds.bytes_mut(&mut held));
            if verdicts.waits(&looked) {
                holds.keep(&mut held);
            }
            verdicts.enter(now, held, looked, &mut sort);
        }
        verdicts.settle(now, give_up, &mut sort);
    }

    /// Returns the number of held frames.
    fn len(&self) -> usize {
        self.pending.len() + self.verdicts.as_ref().map_or(0, Verdicts::waiting)
    }
}

/// Returns whether a port can send from the memory of another.
fn joins(from: &mut RxPort, to: &mut dyn TxQueue) -> bool {
    let Some(to) = to.submitting() else { return false };
    let mut regions = from.queues.iter_mut().map(|queue| queue.holding().map(|queue| queue.region()));
    regions.all(|region| region.is_some_and(|region| to.attach(&region)))
}

/// Passes frames from the front of `burst` to a queue and returns how many are done with.
fn forward_burst(queue: &mut dyn TxQueue, burst: Burst<'_>, counts: &mut ForwardCounts) -> Result<usize, PortError> {
    let whole = burst.descs().iter().take_while(|desc| !desc.is_truncated()).count();
    if whole == 0 {
        counts.truncated += 1;
        return Ok(1);
    }
    let handed = queue.send(burst.slice(0..whole))?;
    counts.handed += handed as u64;
    Ok(handed)
}
