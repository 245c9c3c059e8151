//! Where the ordered stream of a capture goes: the block being filled, and the sinks that see it.

use crate::capture::CaptureError;
use crate::complete::Totals;
use crate::control::Progress;
use crate::outlet::{Outlet, Taker};
use crate::share::Shared;
use linerate_burst::{Block, Burst, Committed, Finish, Interface, Ledger, Nanos, Pick, Sink};
use std::sync::Arc;

/// Frames are gathered into blocks of this size.
const BLOCK_BYTES: usize = 1 << 20;
const BLOCK_FRAMES: usize = 8192;

/// The block being filled, and the sinks that get it.
pub(crate) struct Output {
    store: Store,
    progress: Arc<Progress>,
    totals: Totals,
    /// Those of `totals` that `progress` knows of.
    told: Totals,
    failure: Option<CaptureError>,
}

/// Where the blocks are.
enum Store {
    /// In this process alone; sinks may have a thread of their own, since whole blocks go there.
    Private { block: Block, outlet: Outlet },
    /// In shared memory, where readers see frames as soon as they are committed; sinks see the same memory.
    Shared { ring: Box<Shared>, taker: Taker, seen: usize },
}

impl Output {
    pub fn new(sinks: Vec<Box<dyn Sink>>, ring: Option<Shared>, progress: Arc<Progress>) -> Self {
        let store = match ring {
            None => Store::Private { block: new_block(), outlet: Outlet::new(sinks) },
            Some(ring) => Store::Shared { ring: Box::new(ring), taker: Taker { sinks, failure: None }, seen: 0 },
        };
        Output { store, progress, totals: Totals::NONE, told: Totals::NONE, failure: None }
    }

    /// Copies the frames that `picks` name out of `lanes` and hands full blocks on. `finish` completes each desc, or
    /// leaves the frame out. `all` are the interfaces that finished descs point to.
    #[inline]
    pub fn gather(&mut self, lanes: &[Burst<'_>], picks: &[Pick], all: &[Interface], finish: &mut impl Finish) {
        let (mut done, mut unused) = (0, Committed::default());
        while done < picks.len() {
            let (block, state) = match &mut self.store {
                Store::Private { block, .. } => (block, &mut unused),
                Store::Shared { ring, .. } => {
                    if !ring.is_ready() && !ring.hold() {
                        return ring.lose(picks.len() - done);
                    }
                    let Some(open) = ring.block() else { continue };
                    open
                }
            };
            let before = block.len();
            done += block.gather(lanes, &picks[done..], finish);
            self.totals.add(&block.descs()[before..], state);
            if done < picks.len() {
                // Every frame still to come is at least as young, but for late ones.
                self.commit(all, self.totals.last);
                self.pass_on(all, false);
                self.turn();
            }
        }
    }

    /// Whether other processes read the frames.
    pub fn is_shared(&self) -> bool {
        matches!(self.store, Store::Shared { .. })
    }

    /// Lets other processes see what is there; nothing older than `horizon` will follow but late frames.
    pub fn commit(&mut self, interfaces: &[Interface], horizon: Nanos) {
        if let Store::Shared { ring, .. } = &mut self.store
            && let Err(error) = ring.commit(interfaces, horizon)
        {
            self.fail_if(Err(error.into()));
        }
    }

    /// What is to be done once a round at `now`.
    pub fn tick(&mut self, now: Nanos) {
        if let Store::Shared { ring, .. } = &mut self.store {
            ring.tick(now);
        }
    }

    /// Hands what is in the block to the sinks; with `flush`, they pass on what they hold.
    pub fn pass_on(&mut self, interfaces: &[Interface], flush: bool) {
        match &mut self.store {
            Store::Private { block, outlet } => {
                if !block.is_empty() {
                    outlet.exchange(block, interfaces, flush, new_block);
                }
            }
            Store::Shared { ring, taker, seen } => {
                if let Some(block) = ring.current().filter(|block| block.len() > *seen) {
                    taker.take(block, *seen, interfaces, flush);
                    *seen = block.len();
                }
            }
        }
        let (now, before) = (self.totals, std::mem::replace(&mut self.told, self.totals));
        if now.frames > before.frames {
            let (bytes, wire_bytes) = (now.bytes - before.bytes, now.wire_bytes - before.wire_bytes);
            self.progress.add(now.frames - before.frames, bytes, wire_bytes);
        }
    }

    /// The block is full: the next frame goes to another one.
    fn turn(&mut self) {
        if let Store::Shared { ring, seen, .. } = &mut self.store {
            ring.turn();
            *seen = 0;
        }
    }

    /// Takes note of all frames lost before they got here.
    pub fn look_at_losses(&mut self, lost: u64) {
        if let Store::Shared { ring, .. } = &mut self.store {
            ring.look_at_losses(lost);
        }
    }

    /// Whether frames cannot go where they should.
    pub fn has_failed(&self) -> bool {
        let sinks_have = match &self.store {
            Store::Private { outlet, .. } => outlet.has_failed(),
            Store::Shared { taker, .. } => taker.failure.is_some(),
        };
        self.failure.is_some() || sinks_have
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Ends ring and sinks, with the ledger of all before them, and adds their counters to it. Returns what was
    /// noteworthy, and what went wrong, if anything.
    pub fn finish(self, ledger: &mut Ledger) -> (Vec<String>, Option<CaptureError>) {
        let (mut taker, events) = match self.store {
            Store::Private { outlet, .. } => (outlet.into_taker(), Vec::new()),
            Store::Shared { ring, taker, .. } => (taker, ring.finish(ledger)),
        };
        let mut failure = self.failure.or(taker.failure.take().map(CaptureError::Sink));
        for sink in &mut taker.sinks {
            if let Err(error) = sink.finish(ledger) {
                failure.get_or_insert(error.into());
            }
        }
        for sink in &taker.sinks {
            sink.counters(ledger);
        }
        (events, failure)
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
