//! One port -> another port: half of a wire.
//!
//! Nothing is copied or ordered here: what a queue shows is handed to the other port as it lies, queue after queue. So
//! a frame waits for no more than the burst in front of it.

use crate::consumer::{Consumer, Demand, End, Look, Order, Round};
use crate::control::Progress;
use crate::receive::ReceiveError;
use linerate_burst::{Burst, Count, Ledger};
use linerate_port::{PortError, Sent, TxPort, TxQueue};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How long the other port may take nothing after the end; what is left then is given up, and counted.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// Sends on what comes, through the first queue of a port. It takes frames in its own time, and so is to be alone.
pub struct Forward {
    /// Whose frames go where.
    name: String,
    to: TxPort,
    progress: Arc<Progress>,
    counts: Counts,
    /// What the progress knows.
    told: Counts,
    is_down: bool,
    events: Vec<String>,
    failure: Option<PortError>,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    received: u64,
    handed: u64,
    truncated: u64,
    down: u64,
    unsent: u64,
    sent: Sent,
    lost: u64,
}

impl Forward {
    /// Sends on what comes from the port of this name.
    pub fn new(from: &str, to: TxPort, progress: Arc<Progress>) -> Self {
        let name = format!("{from} -> {}", to.name);
        let (counts, told) = <(Counts, Counts)>::default();
        Forward { name, to, progress, counts, told, is_down: false, events: Vec::new(), failure: None }
    }

    /// What was sent.
    pub fn sent(&self) -> Sent {
        self.counts.sent
    }

    /// Hands on what one lane shows; how many frames are done with.
    fn send(&mut self, burst: Burst<'_>, give_up: bool) -> usize {
        let mut done = 0;
        while done < burst.len() {
            let rest = burst.slice(done..burst.len());
            if give_up {
                self.counts.unsent += rest.len() as u64;
                return burst.len();
            }
            match hand_on(self.to.queues[0].as_mut(), rest, &mut self.counts) {
                Ok(0) | Err(PortError::Again { .. }) => break,
                Ok(frames) => done += frames,
                Err(error @ PortError::Down { .. }) => {
                    // A wire that leads nowhere swallows what is put into it.
                    self.counts.down += rest.len() as u64;
                    done += rest.len();
                    if !std::mem::replace(&mut self.is_down, true) {
                        self.events.push(error.to_string());
                    }
                }
                Err(error) => {
                    self.failure.get_or_insert(error);
                    break;
                }
            }
        }
        done
    }

    /// Adds to the progress what was done since the last time.
    fn tell(&mut self) {
        let sent = self.to.queues[0].sent();
        self.is_down &= sent == self.counts.sent;
        self.counts.sent = sent;
        let (frames, bytes) = (sent.frames - self.told.sent.frames, sent.bytes - self.told.sent.bytes);
        self.progress.add(frames, bytes, bytes);
        self.progress.lost.fetch_add(self.counts.lost.saturating_sub(self.told.lost), Ordering::Relaxed);
        self.told = Counts { lost: self.counts.lost.max(self.told.lost), ..self.counts };
    }

    /// Counters of what is done here and of the other port's queues.
    fn add_counters(&self, ledger: &mut Ledger) {
        let Counts { received, handed, truncated, down, unsent, .. } = self.counts;
        let account = ledger.account(linerate_burst::Stage::Forward, &self.name);
        account.add(Count::ForwardReceived, received).add(Count::Forwarded, handed);
        account.add(Count::ForwardTruncated, truncated).add(Count::ForwardDown, down);
        account.add(Count::ForwardUnsent, unsent);
        self.to.queues.iter().for_each(|queue| queue.counters(ledger));
    }
}

impl Consumer for Forward {
    fn name(&self) -> &'static str {
        "forward"
    }

    fn order(&self) -> Order {
        Order::Any
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        let give_up = self.failure.is_some() || round.draining.is_some_and(|since| since > STOP_LIMIT);
        for lane in 0..round.bursts.len() {
            let burst = round.bursts[lane];
            let done = self.send(burst, give_up);
            self.counts.received += done as u64;
            round.leave(lane, burst.len() - done);
        }
        let in_hand = match self.to.queues[0].flush(round.now) {
            Ok(flushed) => !flushed,
            Err(PortError::Again { .. } | PortError::Down { .. }) => false,
            Err(error) => {
                self.failure.get_or_insert(error);
                false
            }
        };
        if in_hand || round.has_left() {
            round.keep_busy();
        }
        self.tell();
        Ok(())
    }

    fn look(&mut self, look: &Look<'_>) {
        let mut ledger = look.queues();
        self.add_counters(&mut ledger);
        self.counts.lost = ledger.lost();
    }

    fn demand(&self) -> Demand {
        if self.failure.is_some() { Demand::Failed } else { Demand::More }
    }

    fn finish(&mut self, end: &mut End<'_>) {
        if let Some(monitor) = &self.to.monitor {
            monitor.counters(end.ledger);
        }
        // Of a bug: what was not looked at any more.
        let unseen = if end.died.is_some() { end.given.saturating_sub(self.counts.received) } else { 0 };
        self.counts.received += unseen;
        self.counts.unsent += unseen;
        self.add_counters(end.ledger);
        self.counts.sent = self.to.queues[0].sent();
        end.events.append(&mut self.events);
        if let Some(failure) = self.failure.take() {
            end.fail(failure);
        }
    }
}

/// Hands frames from the front of `burst` to a queue and returns how many are done with.
fn hand_on(queue: &mut dyn TxQueue, burst: Burst<'_>, counts: &mut Counts) -> Result<usize, PortError> {
    let whole = burst.descs().iter().take_while(|desc| !desc.is_truncated()).count();
    if whole == 0 {
        counts.truncated += 1;
        return Ok(1);
    }
    let handed = queue.send(burst.slice(0..whole))?;
    counts.handed += handed as u64;
    Ok(handed)
}
