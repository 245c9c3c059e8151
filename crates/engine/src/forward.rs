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
use crate::egress::{Egress, STOP_LIMIT};
use crate::error::ReceiveError;
use crate::verdict::{Inspect, Outcome, Policy, Verdicts};
use linerate_burst::{Burst, Count, Ledger, Stage};
use linerate_port::{HeldFrame, PortError, RxPort, Sent, TxPort, TxQueue};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Maximum number of held frames, so that there is space for new ones.
const MOST_HELD: usize = 2048;

/// Forwards frames through the first queue of a port. It holds frames, so it must be the only consumer.
pub struct Forward {
    /// Names of both ports.
    name: String,
    to: Egress,
    /// Frames dropped because they were truncated.
    truncated: u64,
    /// State for sending in place, if supported.
    in_place: Option<TransitFrames>,
    progress: Arc<Progress>,
    /// Lost frames that are in the progress.
    lost: u64,
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

impl Forward {
    /// Forwards frames of a port; without a copy if both ports support it. Needs the privileges that opening needed.
    pub fn new(from: &mut RxPort, to: TxPort, progress: Arc<Progress>) -> Self {
        let (name, mut to) = (format!("{} -> {}", from.name, to.name), Egress::new(to));
        let in_place = joins(from, to.queue()).then(TransitFrames::default);
        Forward { name, to, truncated: 0, in_place, progress, lost: 0 }
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
            let reason = format!("cannot hold, change and forward frames to {}", forward.to.name());
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
        self.to.sent()
    }

    /// Returns whether frames that the other port does not take are dropped: it failed, or is too slow at the end.
    fn drops_rest(&self, draining: Option<Duration>) -> bool {
        self.to.has_failed() || draining.is_some_and(|since| since > STOP_LIMIT)
    }

    /// Passes on the frames of one lane; returns how many are done with.
    fn send(&mut self, burst: Burst<'_>, give_up: bool) -> usize {
        let mut done = 0;
        while done < burst.len() {
            let rest = burst.slice(done..burst.len());
            if give_up {
                self.to.drop_rest(rest.len());
                return burst.len();
            }
            let whole = rest.descs().iter().take_while(|desc| !desc.is_truncated()).count();
            if whole == 0 {
                self.truncated += 1;
                done += 1;
                continue;
            }
            match self.to.offer(rest.slice(0..whole)) {
                0 => break,
                frames => done += frames,
            }
        }
        done
    }

    /// Passes frames with a positive verdict to the port.
    fn submit(&mut self, give_up: bool) {
        let Some(TransitFrames { pending, done, .. }) = &mut self.in_place else { return };
        if !give_up {
            self.to.submit(pending, done);
        }
        if give_up || self.to.has_failed() {
            self.to.drop_rest(pending.len());
            done.extend(pending.drain(..));
        }
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
            self.to.receive(done);
            round.leave(lane, burst.len() - done);
        }
        if self.to.flush(round.now) || round.has_left() {
            round.keep_busy();
        }
        self.to.update_progress(&self.progress);
        Ok(())
    }

    fn hold(&mut self, holds: &mut HeldFrames<'_>) {
        let give_up = self.drops_rest(holds.draining());
        let Some(in_place) = &mut self.in_place else { return };
        in_place.decide(holds, &mut self.to, &mut self.truncated, give_up);
        self.submit(give_up);
        let is_in_hand = self.to.flush(holds.now());
        let Some(in_place) = &mut self.in_place else { return };
        self.to.queue().submitting().into_iter().for_each(|queue| queue.completed(&mut in_place.done));
        holds.release(&mut in_place.done);
        if is_in_hand || in_place.len() > 0 {
            holds.keep_busy();
        }
        self.to.update_progress(&self.progress);
    }

    fn look(&mut self, look: &RunCounters<'_>) {
        let mut ledger = look.queues();
        self.counters(&mut ledger);
        let lost = ledger.lost().max(self.lost);
        self.progress.lost.fetch_add(lost - std::mem::replace(&mut self.lost, lost), Ordering::Relaxed);
    }

    fn counters(&self, ledger: &mut Ledger) {
        if let Some(verdicts) = self.in_place.as_ref().and_then(|in_place| in_place.verdicts.as_ref()) {
            verdicts.counters(&self.name, ledger);
        }
        ledger.account(Stage::Forward, &self.name).add(Count::ForwardTruncated, self.truncated);
        self.to.counters(&self.name, ledger);
    }

    fn demand(&self) -> Demand {
        if self.to.has_failed() { Demand::Failed } else { Demand::More }
    }

    fn finish(&mut self, end: &mut RunEnd<'_>) {
        if end.died.is_some() {
            // After a panic: frames in progress, and those not processed.
            let verdicts = self.in_place.as_mut().and_then(|in_place| in_place.verdicts.as_mut());
            let received = verdicts.map_or(end.given, |verdicts| verdicts.give_up(end.given));
            self.to.settle(received, self.truncated);
        }
        let failure = self.to.finish(end.ledger, end.events);
        self.counters(end.ledger);
        if let Some(failure) = failure {
            end.fail(failure);
        }
    }
}

impl TransitFrames {
    /// Decides about the frames of this round, and those that waited for a verdict.
    fn decide(&mut self, holds: &mut HeldFrames<'_>, to: &mut Egress, truncated: &mut u64, give_up: bool) {
        let TransitFrames { verdicts, arrived, pending, done } = self;
        arrived.extend(holds.take());
        let mut sort = |held: HeldFrame, outcome| {
            if outcome == Outcome::Dropped {
                return done.push(held);
            }
            to.receive(1);
            *truncated += u64::from(held.desc.is_truncated());
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
