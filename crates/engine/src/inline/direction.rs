//! Frames queued for one port: adjacent frames of a block are sent together.

use super::decide::FramePosition;
use super::output::Exits;
use crate::control::Progress;
use crate::forward::Errors;
use linerate_burst::{Block, Burst, Count, Desc, Ledger, Nanos, Stage};
use linerate_port::{PortError, Sent, TxPort};
use std::collections::VecDeque;
use std::ops::Range;

/// One direction between the ports.
pub(crate) struct InlineDirection {
    /// Names of both ports.
    name: String,
    to: TxPort,
    runs: VecDeque<Run>,
    /// Buffer for replaced and injected frames; allocated with the first one.
    own: Option<Block>,
    /// Number of the current engine, and how many of its frames were sent since the last query.
    engine: u64,
    own_gone: u64,
    counts: DirectionCounts,
    /// Part of the totals that is in the progress.
    reported: Sent,
    errors: Errors,
}

enum Run {
    /// Adjacent frames of a block.
    Block { block: u64, frames: Range<u32> },
    /// A replaced or injected frame, and the number of its engine.
    Own(Vec<u8>, u64),
}

#[derive(Clone, Copy, Default)]
struct DirectionCounts {
    received: u64,
    injected: u64,
    /// Number of those that exceeded the limit.
    beyond: u64,
    handed: u64,
    down: u64,
    unsent: u64,
    sent: Sent,
}

/// Both directions between two ports: frames received by the first one leave by the second, and vice versa.
impl Exits for [InlineDirection; 2] {
    #[inline]
    fn pass(&mut self, way: u16, place: FramePosition) {
        self[usize::from(way)].push(place);
    }

    fn replace(&mut self, way: u16, _: FramePosition, bytes: Vec<u8>) {
        self[usize::from(way)].replace(bytes);
    }

    fn inject(&mut self, way: u16, _: FramePosition, back: bool, bytes: Vec<u8>) {
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

    fn discard_own(&mut self) {
        self.iter_mut().for_each(|way| (way.engine, way.own_gone) = (way.engine + 1, 0));
    }
}

impl InlineDirection {
    /// Creates the output through the first queue of a port.
    pub(crate) fn new(from: &str, to: TxPort) -> Self {
        let name = format!("{from} -> {}", to.name);
        let (counts, reported) = Default::default();
        let (engine, own_gone, errors) = Default::default();
        InlineDirection { name, to, runs: VecDeque::new(), own: None, engine, own_gone, counts, reported, errors }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Queues a frame in place.
    #[inline]
    fn push(&mut self, place: FramePosition) {
        self.counts.received += 1;
        match self.runs.back_mut() {
            Some(Run::Block { block, frames }) if *block == place.block && frames.end == place.frame => frames.end += 1,
            _ => self.runs.push_back(Run::Block { block: place.block, frames: place.frame..place.frame + 1 }),
        }
    }

    /// Queues a frame with other bytes.
    fn replace(&mut self, bytes: Vec<u8>) {
        self.counts.received += 1;
        self.runs.push_back(Run::Own(bytes, self.engine));
    }

    /// Queues an injected frame.
    fn inject(&mut self, bytes: Vec<u8>) {
        self.counts.injected += 1;
        self.replace(bytes);
    }

    /// Passes queued frames to the port; `done` receives the frames no longer needed.
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

    /// Flushes the port; returns whether it has frames queued, unless it does not take them.
    pub(crate) fn flush(&mut self, now: Nanos) -> bool {
        let is_in_hand = match self.to.queues[0].flush(now) {
            Ok(flushed) => !flushed,
            Err(PortError::Again { .. } | PortError::Down { .. }) => false,
            Err(error) => self.errors.take(error),
        };
        is_in_hand || !self.runs.is_empty()
    }

    /// Adds to the progress what was sent since the last call.
    pub(crate) fn update_progress(&mut self, progress: &Progress) {
        let sent = self.to.queues[0].sent();
        self.errors.is_down &= sent == self.counts.sent;
        self.counts.sent = sent;
        let (frames, bytes) = (sent.frames - self.reported.frames, sent.bytes - self.reported.bytes);
        progress.add(frames, bytes, bytes);
        self.reported = sent;
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.errors.failure.is_some()
    }

    /// Returns the totals sent.
    pub(crate) fn sent(&self) -> Sent {
        self.counts.sent
    }

    /// Adds the counters of this output and of the port's queues.
    pub(crate) fn counters(&self, ledger: &mut Ledger) {
        let DirectionCounts { received, injected, beyond, handed, down, unsent, .. } = self.counts;
        let account = ledger.account(Stage::Forward, &self.name);
        account.add(Count::ForwardReceived, received).add(Count::Forwarded, handed);
        account.add(Count::ForwardInjectLimit, beyond);
        account.add(Count::ForwardInjected, injected).add(Count::ForwardDown, down).add(Count::ForwardUnsent, unsent);
        self.to.queues.iter().for_each(|queue| queue.counters(ledger));
    }

    /// Ends the output: remaining frames are not sent.
    pub(crate) fn finish(&mut self, ledger: &mut Ledger, events: &mut Vec<String>) -> Option<PortError> {
        if let Some(monitor) = &self.to.monitor {
            monitor.counters(ledger);
        }
        self.counts.sent = self.to.queues[0].sent();
        let DirectionCounts { received, beyond, handed, down, .. } = self.counts;
        self.counts.unsent = received - beyond - handed - down;
        self.counters(ledger);
        events.append(&mut self.errors.events);
        self.errors.failure.take()
    }
}
