//! Where the ordered stream of a capture goes: the block being filled, and the sinks that see it.

use crate::capture::CaptureError;
use crate::control::Progress;
use crate::outlet::Outlet;
use linerate_burst::{Block, Burst, Committed, Desc, Flags, Interface, Ledger, Nanos, Pick, Sink};
use std::sync::Arc;

/// Frames are gathered into blocks of this size.
const BLOCK_BYTES: usize = 1 << 20;
const BLOCK_FRAMES: usize = 8192;

/// The block being filled, and the sinks that get it.
pub(crate) struct Output {
    block: Block,
    /// What is known of the frames of the block.
    state: Committed,
    outlet: Outlet,
    progress: Arc<Progress>,
    totals: Totals,
    /// Those of `totals` that `progress` knows of.
    told: Totals,
    failure: Option<CaptureError>,
}

/// What went to the sinks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    pub frames: u64,
    pub bytes: u64,
    pub wire_bytes: u64,
    pub first: Nanos,
    pub last: Nanos,
}

impl Totals {
    const NONE: Totals = Totals { frames: 0, bytes: 0, wire_bytes: 0, first: Nanos::MAX, last: Nanos::ZERO };

    /// The least and the greatest time.
    pub fn span(&self) -> Option<(Nanos, Nanos)> {
        (self.frames > 0).then_some((self.first, self.last))
    }

    #[inline(always)]
    fn add(&mut self, desc: &Desc) {
        self.frames += 1;
        self.bytes += u64::from(desc.captured);
        self.wire_bytes += u64::from(desc.wire);
        self.first = self.first.min(desc.time);
        self.last = self.last.max(desc.time);
    }
}

impl Output {
    pub fn new(sinks: Vec<Box<dyn Sink>>, progress: Arc<Progress>) -> Self {
        Output {
            block: new_block(),
            state: Committed::default(),
            outlet: Outlet::new(sinks),
            progress,
            totals: Totals::NONE,
            told: Totals::NONE,
            failure: None,
        }
    }

    /// Copies the frames that `picks` name out of `lanes` and hands full blocks on. `finish` completes each desc, or
    /// leaves the frame out. `all` are the interfaces that finished descs point to.
    #[inline]
    pub fn gather(
        &mut self,
        lanes: &[Burst<'_>],
        picks: &[Pick],
        all: &[Interface],
        mut finish: impl FnMut(&mut Desc, &[u8], Pick) -> bool,
    ) {
        let mut done = 0;
        while done < picks.len() {
            let Output { block, totals, state, .. } = self;
            done += block.gather(lanes, &picks[done..], |desc, frame, pick| {
                if pick.is_late() {
                    desc.flags |= Flags::LATE;
                }
                let wanted = finish(desc, frame, pick);
                if wanted {
                    totals.add(desc);
                    state.late += u32::from(desc.flags.contains(Flags::LATE));
                    state.sliced += u32::from(desc.flags.contains(Flags::SLICED));
                }
                wanted
            });
            if done < picks.len() {
                self.pass_on(all, false);
            }
        }
    }

    /// Hands what is in the block to the sinks; with `flush`, they pass on what they hold.
    pub fn pass_on(&mut self, interfaces: &[Interface], flush: bool) {
        if !self.block.is_empty() {
            self.outlet.exchange(&mut self.block, interfaces, flush, new_block);
            let (now, before) = (self.totals, std::mem::replace(&mut self.told, self.totals));
            let (bytes, wire_bytes) = (now.bytes - before.bytes, now.wire_bytes - before.wire_bytes);
            self.progress.add(now.frames - before.frames, bytes, wire_bytes);
            self.state = Committed::default();
        }
    }

    /// Whether frames cannot go where they should.
    pub fn has_failed(&self) -> bool {
        self.failure.is_some() || self.outlet.has_failed()
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Ends the sinks, with the ledger of all before them, and adds their counters to it. What went wrong, if
    /// anything.
    pub fn finish(self, ledger: &mut Ledger) -> Option<CaptureError> {
        let mut taker = self.outlet.into_taker();
        let mut failure = self.failure.or(taker.failure.take().map(CaptureError::Sink));
        for sink in &mut taker.sinks {
            if let Err(error) = sink.finish(ledger) {
                failure.get_or_insert(error.into());
            }
        }
        for sink in &taker.sinks {
            sink.counters(ledger);
        }
        failure
    }

    pub fn fail_if(&mut self, result: Result<(), CaptureError>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }
}

fn new_block() -> Block {
    Block::new(BLOCK_BYTES, BLOCK_FRAMES)
}
