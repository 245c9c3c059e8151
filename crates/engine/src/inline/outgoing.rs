//! Frames on their way out of one port: those of a block follow each other as far as they lie there in a row.

use super::decide::Place;
use super::onward::Exits;
use crate::control::Progress;
use crate::forward::Errors;
use linerate_burst::{Block, Burst, Count, Desc, Ledger, Nanos, Stage};
use linerate_port::{PortError, Sent, TxPort};
use std::collections::VecDeque;
use std::ops::Range;

/// One way between the ports.
pub(crate) struct Outgoing {
    /// Whose frames go where.
    name: String,
    to: TxPort,
    runs: VecDeque<Run>,
    /// For frames that the engine handed back; made when the first one comes.
    own: Option<Block>,
    /// Which engine there is, and how many of its frames have left since that was asked.
    engine: u64,
    own_gone: u64,
    counts: Counts,
    /// What the progress knows of.
    told: Sent,
    errors: Errors,
}

enum Run {
    /// Frames of a block that lie in a row.
    Block { block: u64, frames: Range<u32> },
    /// A frame that the engine handed back, and which one that was.
    Own(Vec<u8>, u64),
}

#[derive(Clone, Copy, Default)]
struct Counts {
    received: u64,
    injected: u64,
    /// Of those, the ones beyond the limit.
    beyond: u64,
    handed: u64,
    down: u64,
    unsent: u64,
    sent: Sent,
}

/// Both ways between two ports: out of the second one what came at the first, and the other way round.
impl Exits for [Outgoing; 2] {
    #[inline]
    fn pass(&mut self, way: u16, place: Place) {
        self[usize::from(way)].push(place);
    }

    fn replace(&mut self, way: u16, _: Place, bytes: Vec<u8>) {
        self[usize::from(way)].replace(bytes);
    }

    fn inject(&mut self, way: u16, _: Place, back: bool, bytes: Vec<u8>) {
        self[usize::from(way ^ u16::from(back))].inject(bytes);
    }

    fn refuse(&mut self, way: u16, back: bool) {
        let counts = &mut self[usize::from(way ^ u16::from(back))].counts;
        (counts.received, counts.injected, counts.beyond) =
            (counts.received + 1, counts.injected + 1, counts.beyond + 1);
    }

    fn take_own(&mut self) -> u64 {
        self.iter_mut().map(|way| std::mem::take(&mut way.own_gone)).sum()
    }

    fn forget_own(&mut self) {
        self.iter_mut().for_each(|way| (way.engine, way.own_gone) = (way.engine + 1, 0));
    }
}

impl Outgoing {
    /// Through the first queue of a port.
    pub(crate) fn new(from: &str, to: TxPort) -> Self {
        let name = format!("{from} -> {}", to.name);
        let (counts, told) = Default::default();
        let (engine, own_gone, errors) = Default::default();
        Outgoing { name, to, runs: VecDeque::new(), own: None, engine, own_gone, counts, told, errors }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A frame goes.
    #[inline]
    fn push(&mut self, place: Place) {
        self.counts.received += 1;
        match self.runs.back_mut() {
            Some(Run::Block { block, frames }) if *block == place.block && frames.end == place.frame => frames.end += 1,
            _ => self.runs.push_back(Run::Block { block: place.block, frames: place.frame..place.frame + 1 }),
        }
    }

    /// A frame goes with other bytes.
    fn replace(&mut self, bytes: Vec<u8>) {
        self.counts.received += 1;
        self.runs.push_back(Run::Own(bytes, self.engine));
    }

    /// A frame of the engine's own goes.
    fn inject(&mut self, bytes: Vec<u8>) {
        self.counts.injected += 1;
        self.replace(bytes);
    }

    /// Hands over what the port takes; `done` is told of frames that are needed no more.
    pub(crate) fn send<'b>(
        &mut self,
        now: Nanos,
        burst_of: impl Fn(u64) -> Burst<'b>,
        give_up: bool,
        mut done: impl FnMut(u64, u32),
    ) {
        while let Some(run) = self.runs.front_mut() {
            let offered = match run {
                Run::Block { frames, .. } => frames.len(),
                Run::Own(..) => 1,
            };
            let queue = self.to.queues[0].as_mut();
            let sent = match run {
                _ if give_up => Ok(0),
                Run::Block { block, frames } => {
                    queue.send(burst_of(*block).slice(frames.start as usize..frames.end as usize))
                }
                Run::Own(bytes, _) => {
                    let own = self.own.get_or_insert_with(|| Block::new(0, 1));
                    own.clear();
                    own.push(&Desc::new(now, 0, bytes.len() as u32), bytes);
                    queue.send(own.burst())
                }
            };
            let taken = match sent {
                _ if give_up => {
                    self.counts.unsent += offered as u64;
                    offered
                }
                Ok(0) | Err(PortError::Again { .. }) => return,
                Ok(taken) => {
                    self.counts.handed += taken as u64;
                    taken
                }
                Err(error) => {
                    if !self.errors.take(error) {
                        return;
                    }
                    self.counts.down += offered as u64;
                    offered
                }
            };
            match run {
                Run::Block { block, frames } => {
                    done(*block, taken as u32);
                    frames.start += taken as u32;
                }
                Run::Own(_, engine) => self.own_gone += u64::from(*engine == self.engine),
            }
            if taken == offered {
                self.runs.pop_front();
            }
        }
    }

    /// Gets frames on their way; whether the port has still some in hand, or does not take them.
    pub(crate) fn flush(&mut self, now: Nanos) -> bool {
        let is_in_hand = match self.to.queues[0].flush(now) {
            Ok(flushed) => !flushed,
            Err(PortError::Again { .. } | PortError::Down { .. }) => false,
            Err(error) => self.errors.take(error),
        };
        is_in_hand || !self.runs.is_empty()
    }

    /// Adds to the progress what was sent since the last time.
    pub(crate) fn tell(&mut self, progress: &Progress) {
        let sent = self.to.queues[0].sent();
        self.errors.is_down &= sent == self.counts.sent;
        self.counts.sent = sent;
        let (frames, bytes) = (sent.frames - self.told.frames, sent.bytes - self.told.bytes);
        progress.add(frames, bytes, bytes);
        self.told = sent;
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.errors.failure.is_some()
    }

    /// What was sent.
    pub(crate) fn sent(&self) -> Sent {
        self.counts.sent
    }

    /// Counters of what is done here and of the port's queues.
    pub(crate) fn counters(&self, ledger: &mut Ledger) {
        let Counts { received, injected, beyond, handed, down, unsent, .. } = self.counts;
        let account = ledger.account(Stage::Forward, &self.name);
        account.add(Count::ForwardReceived, received).add(Count::Forwarded, handed);
        account.add(Count::ForwardInjectLimit, beyond);
        account.add(Count::ForwardInjected, injected).add(Count::ForwardDown, down).add(Count::ForwardUnsent, unsent);
        self.to.queues.iter().for_each(|queue| queue.counters(ledger));
    }

    /// The run is over: what is left is not sent.
    pub(crate) fn finish(&mut self, ledger: &mut Ledger, events: &mut Vec<String>) -> Option<PortError> {
        if let Some(monitor) = &self.to.monitor {
            monitor.counters(ledger);
        }
        self.counts.sent = self.to.queues[0].sent();
        let Counts { received, beyond, handed, down, .. } = self.counts;
        self.counts.unsent = received - beyond - handed - down;
        self.counters(ledger);
        events.append(&mut self.errors.events);
        self.errors.failure.take()
    }
}
