//! Frames queued for one port: adjacent frames of a block are sent together.

use super::decide::FramePosition;
use super::output::Exits;
use crate::control::Progress;
use crate::egress::Egress;
use linerate_burst::{Block, Burst, Count, Desc, Ledger, Nanos, Stage};
use linerate_port::{PortError, Sent, TxPort};
use std::collections::VecDeque;
use std::ops::Range;

/// One direction between the ports.
pub(crate) struct InlineDirection {
    /// Names of both ports.
    name: String,
    to: Egress,
    runs: VecDeque<Run>,
    /// Buffer for replaced and injected frames; allocated with the first one.
    own: Option<Block>,
    /// Number of the current engine, and how many of its frames were sent since the last query.
    engine: u64,
    own_gone: u64,
    /// Number of injected frames, and of those that exceeded the limit.
    injected: u64,
    beyond: u64,
}

enum Run {
    /// Adjacent frames of a block.
    Block { block: u64, frames: Range<u32> },
    /// A replaced or injected frame, and the number of its engine.
    Own(Vec<u8>, u64),
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
        let direction = &mut self[usize::from(way ^ u16::from(back))];
        direction.to.receive(1);
        (direction.injected, direction.beyond) = (direction.injected + 1, direction.beyond + 1);
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
        let (to, runs) = (Egress::new(to), VecDeque::new());
        InlineDirection { name, to, runs, own: None, engine: 0, own_gone: 0, injected: 0, beyond: 0 }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Queues a frame in place.
    #[inline]
    fn push(&mut self, place: FramePosition) {
        self.to.receive(1);
        match self.runs.back_mut() {
            Some(Run::Block { block, frames }) if *block == place.block && frames.end == place.frame => frames.end += 1,
            _ => self.runs.push_back(Run::Block { block: place.block, frames: place.frame..place.frame + 1 }),
        }
    }

    /// Queues a frame with other bytes.
    fn replace(&mut self, bytes: Vec<u8>) {
        self.to.receive(1);
        self.runs.push_back(Run::Own(bytes, self.engine));
    }

    /// Queues an injected frame.
    fn inject(&mut self, bytes: Vec<u8>) {
        self.injected += 1;
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
            let taken = match run {
                _ if give_up => {
                    self.to.drop_rest(offered);
                    offered
                }
                Run::Block { block, frames } => {
                    self.to.offer(burst_of(*block).slice(frames.start as usize..frames.end as usize))
                }
                Run::Own(bytes, _) => {
                    let own = self.own.get_or_insert_with(|| Block::new(0, 1));
                    own.clear();
                    own.push(&Desc::new(now, 0, bytes.len() as u32), bytes);
                    self.to.offer(own.burst())
                }
            };
            if taken == 0 {
                return;
            }
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
        self.to.flush(now) || !self.runs.is_empty()
    }

    /// Adds to the progress what was sent since the last call.
    pub(crate) fn update_progress(&mut self, progress: &Progress) {
        self.to.update_progress(progress);
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.to.has_failed()
    }

    /// Returns the totals sent.
    pub(crate) fn sent(&self) -> Sent {
        self.to.sent()
    }

    /// Adds the counters of this output and of the port's queues.
    pub(crate) fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Forward, &self.name);
        account.add(Count::ForwardInjectLimit, self.beyond).add(Count::ForwardInjected, self.injected);
        self.to.counters(&self.name, ledger);
    }

    /// Ends the output: remaining frames are not sent.
    pub(crate) fn finish(&mut self, ledger: &mut Ledger, events: &mut Vec<String>) -> Option<PortError> {
        self.to.settle(self.to.received(), self.beyond);
        let failure = self.to.finish(ledger, events);
        self.counters(ledger);
        failure
    }
}
