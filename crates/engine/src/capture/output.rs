//! Output of the ordered stream of a capture: the block being filled, and the sinks that read it.

use super::complete::Totals;
use super::share::SharedRing;
use super::sinks::{self, BlockContext, Sinks};
use crate::control::{Progress, ReopenRequest};
use crate::error::ReceiveError;
use crate::thread_panic::ThreadPanic;
use crate::worker::Worker;
use linerate_burst::block::{BLOCK_BYTES, BLOCK_FRAMES};
use linerate_burst::{Block, CommitState, Desc, Flags, FrameIndex, Interface, Kind, Ledger, Nanos, Sink, Stage};
use std::sync::Arc;
use std::time::Duration;

/// The block being filled, and its sinks.
pub(super) struct Output {
    store: Store,
    progress: Arc<Progress>,
    totals: Totals,
    /// Part of `totals` that is in `progress`.
    reported: Totals,
    failure: Option<ReceiveError>,
    /// True if selected frames may be missing.
    is_dead: bool,
    follow: bool,
    /// True if sinks may hold frames without a request to flush.
    unflushed: bool,
}

/// Location of the blocks.
enum Store {
    /// Before and after the run.
    None(Sinks),
    /// In this process only; sinks may have a thread of their own, since whole blocks are passed to it.
    Private { block: Block, sinks: Worker<Sinks>, interfaces: Arc<[Interface]> },
    /// In shared memory, where readers see frames as soon as they are committed; sinks read the same memory.
    SharedRing { ring: Box<SharedRing>, sinks: Sinks, seen: usize },
}

impl Output {
    pub(super) fn new(sinks: Vec<Box<dyn Sink>>, progress: Arc<Progress>) -> Self {
        let sinks = Sinks::new(sinks);
        let follow = sinks.follow();
        let store = Store::None(sinks);
        let (totals, reported) = (Totals::NONE, Totals::NONE);
        Output { store, progress, totals, reported, failure: None, is_dead: false, follow, unflushed: false }
    }

    pub(super) fn set_progress(&mut self, progress: Arc<Progress>) {
        self.progress = progress;
    }

    /// Starts the output, with a ring for other processes, if any.
    pub(super) fn begin(&mut self, ring: Option<SharedRing>) {
        let Store::None(sinks) = &mut self.store else { return };
        let sinks = std::mem::take(sinks);
        self.store = match ring {
            None => Store::Private { block: new_block(), sinks: sinks::worker(sinks), interfaces: Arc::new([]) },
            Some(ring) => Store::SharedRing { ring: Box::new(ring), sinks, seen: 0 },
        };
    }

    /// Passes full blocks on while `copy` fills them with the frames of `picks`: it returns how many it has processed
    /// when the block is full. `all` are the interfaces of their descs.
    pub(super) fn gather(
        &mut self,
        picks: &[FrameIndex],
        all: &[Interface],
        mut copy: impl FnMut(&mut Block, &[FrameIndex]) -> usize,
    ) {
        let (mut done, mut unused) = (0, CommitState::default());
        let is_shared = self.is_shared();
        while done < picks.len() {
            let (block, state) = match &mut self.store {
                Store::None(_) => return,
                Store::Private { block, .. } => (block, &mut unused),
                Store::SharedRing { ring, .. } => {
                    if !ring.is_ready() && !ring.hold() {
                        return ring.lose(picks.len() - done);
                    }
                    let Some(open) = ring.block() else { continue };
                    open
                }
            };
            let before = block.len();
            done += copy(block, &picks[done..]);
            self.totals.add(&block.descs()[before..], state);
            let complete = complete_to(block.descs());
            // This visits every interface, of which files may have thousands.
            state.mixed |= is_shared && is_mixed(&block.descs()[before.saturating_sub(1)..], all);
            if done < picks.len() {
                self.commit(all, complete);
                self.flush_block(all, false);
                self.turn();
            }
        }
    }

    pub(super) fn count_duplicates(&mut self, duplicates: u64) {
        if let Store::SharedRing { ring, .. } = &mut self.store {
            ring.count_duplicates(duplicates);
        }
    }

    pub(super) fn is_shared(&self) -> bool {
        matches!(self.store, Store::SharedRing { .. })
    }

    /// Publishes frames to other processes; later ones are not older than `horizon`, except late ones.
    pub(super) fn commit(&mut self, interfaces: &[Interface], horizon: Nanos) {
        if let Store::SharedRing { ring, .. } = &mut self.store
            && let Err(error) = ring.commit(interfaces, horizon)
        {
            self.fail_if(Err(error.into()));
        }
    }

    /// Adds the counters of shared memory and its readers.
    pub(super) fn share_counters(&self, ledger: &mut Ledger) {
        if let Store::SharedRing { ring, .. } = &self.store {
            ring.counters(ledger);
        }
    }

    /// Handles readers; to be called once per round at `now`.
    pub(super) fn tick(&mut self, now: Nanos) {
        if let Store::SharedRing { ring, .. } = &mut self.store {
            ring.tick(now);
        }
    }

    /// Passes the frames of the block to the sinks; with `flush`, these flush earlier blocks too.
    pub(super) fn flush_block(&mut self, interfaces: &[Interface], flush: bool) {
        let must = flush && self.unflushed;
        let mut passed = false;
        match &mut self.store {
            Store::None(_) => {}
            Store::Private { block, sinks, interfaces: known } => {
                if known.len() != interfaces.len() {
                    *known = interfaces.into();
                }
                passed = !block.is_empty();
                if passed || must {
                    let along = BlockContext { interfaces: Arc::clone(known), flush, reopen: None, look: None };
                    sinks.hand_over(block, along, new_block);
                }
            }
            Store::SharedRing { ring, sinks, seen } => {
                if let Some(block) = ring.current().filter(|block| block.len() > *seen) {
                    sinks.accept(block, *seen, interfaces, flush);
                    *seen = block.len();
                    passed = true;
                } else if must {
                    sinks.flush();
                }
            }
        }
        self.unflushed = !flush && (passed || self.unflushed);
        let (now, before) = (self.totals, std::mem::replace(&mut self.reported, self.totals));
        if now.frames > before.frames {
            let (bytes, wire_bytes) = (now.bytes - before.bytes, now.wire_bytes - before.wire_bytes);
            self.progress.add(now.frames - before.frames, bytes, wire_bytes);
        }
    }

    /// Passes the interfaces to sinks without frames, since a file contains them anyway.
    pub(super) fn introduce(&mut self, interfaces: &[Interface]) {
        if self.totals.frames > 0 {
            return;
        }
        match &mut self.store {
            Store::None(_) => {}
            Store::Private { block, sinks, .. } => {
                let along = BlockContext { interfaces: interfaces.into(), flush: false, reopen: None, look: None };
                sinks.hand_over(block, along, new_block);
            }
            Store::SharedRing { sinks, .. } => sinks.accept(&Block::new(0, 1), 0, interfaces, false),
        }
    }

    /// Starts new outputs; `run` is the ledger up to here.
    pub(super) fn reopen(&mut self, interfaces: &[Interface], run: Ledger, reopen: &ReopenRequest) {
        self.flush_block(interfaces, true);
        match &mut self.store {
            Store::None(_) => {}
            Store::Private { block, sinks, interfaces } => {
                let reopen = Some((run, reopen.clone()));
                let along = BlockContext { interfaces: Arc::clone(interfaces), flush: true, reopen, look: None };
                sinks.hand_over(block, along, new_block);
            }
            Store::SharedRing { sinks, .. } => sinks.reopen(&run, reopen),
        }
    }

    /// Returns whether any sink reports the progress of the run.
    pub(super) fn follow(&self) -> bool {
        self.follow
    }

    /// Passes the state of the run to sinks: `run` is the ledger up to here.
    pub(super) fn look(&mut self, interfaces: &[Interface], run: Ledger, complete: Nanos) {
        match &mut self.store {
            Store::None(_) => {}
            Store::Private { block, sinks, interfaces: known } => {
                if known.len() != interfaces.len() {
                    *known = interfaces.into();
                }
                self.unflushed |= !block.is_empty();
                let look = Some((run, complete));
                let along = BlockContext { interfaces: Arc::clone(known), flush: false, reopen: None, look };
                sinks.hand_over(block, along, new_block);
            }
            Store::SharedRing { .. } => {
                self.flush_block(interfaces, false);
                if let Store::SharedRing { sinks, .. } = &mut self.store {
                    sinks.look(&run, complete);
                }
            }
        }
    }

    /// Replaces the full block.
    fn turn(&mut self) {
        if let Store::SharedRing { ring, seen, .. } = &mut self.store {
            ring.turn();
            *seen = 0;
        }
    }

    /// Records the total of frames lost upstream.
    pub(super) fn record_losses(&mut self, lost: u64) {
        if let Store::SharedRing { ring, .. } = &mut self.store {
            ring.record_losses(lost);
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        let sinks_have = match &self.store {
            Store::None(_) => false,
            Store::Private { sinks, .. } => sinks.has_failed(),
            Store::SharedRing { ring, sinks, .. } => sinks.failure.is_some() || ring.has_failed(),
        };
        self.failure.is_some() || sinks_have
    }

    pub(super) fn totals(&self) -> Totals {
        self.totals
    }

    /// Ends ring and sinks, with the ledger of all stages before them, and adds their counters to it. Returns
    /// noteworthy events and the failure, if any. `has_failed` is true if an earlier stage failed.
    pub(super) fn finish(&mut self, has_failed: bool, ledger: &mut Ledger) -> (Vec<String>, Option<ReceiveError>) {
        let selected = ledger.account(Stage::Select, "").sum(Kind::Delivered);
        let missing = if self.is_dead { selected.saturating_sub(self.totals.frames) } else { 0 };
        let (sinks, mut events, failure) = match std::mem::replace(&mut self.store, Store::None(Sinks::default())) {
            Store::None(sinks) => (sinks, Vec::new(), None),
            Store::Private { sinks, .. } => {
                let events = held_up(sinks.waited(), ledger.lost());
                match sinks.join() {
                    Ok(sinks) => (sinks.work, events, sinks.died.map(ReceiveError::ThreadPanic)),
                    Err(died) => (Sinks::default(), events, Some(died.into())),
                }
            }
            Store::SharedRing { ring, sinks, .. } => {
                let (events, failure) = ring.finish(ledger);
                (sinks, events, failure)
            }
        };
        let is_unused = has_failed && self.totals.frames == 0;
        let sinks = sinks.finish((missing, is_unused), ledger, &mut events);
        (events, self.failure.take().or(failure).or(sinks))
    }

    pub(super) fn record_panic(&mut self, died: ThreadPanic) {
        self.is_dead = true;
        self.fail_if(Err(died.into()));
    }

    pub(super) fn fail_if(&mut self, result: Result<(), ReceiveError>) {
        if let Err(error) = result {
            self.failure.get_or_insert(error);
        }
    }
}

/// Reports waits for slow outputs if frames were lost.
fn held_up((waits, waited): (u64, Duration), lost: u64) -> Vec<String> {
    let seconds = waited.as_secs_f64();
    let text = || {
        format!(
            "the capture waited {waits} times, {seconds:.2} s in total, for its outputs: the disk, compression or a \
             pipe reader is too slow (measure a disk with linerate-bench disk)"
        )
    };
    (waits > 0 && lost > 0).then(text).into_iter().collect()
}

/// Returns the horizon after these frames, which are in order except for late ones; those may have any time.
fn complete_to(descs: &[Desc]) -> Nanos {
    let in_order = |desc: &&Desc| !desc.flags.contains(Flags::LATE);
    descs.iter().rev().find(in_order).map_or(Nanos::ZERO, |desc| desc.time)
}

/// Returns whether frames have more than one link type.
fn is_mixed(descs: &[Desc], interfaces: &[Interface]) -> bool {
    if interfaces.windows(2).all(|pair| pair[0].link == pair[1].link) {
        return false;
    }
    let link = |desc: &Desc| interfaces.get(usize::from(desc.interface)).map(|interface| interface.link);
    descs.windows(2).any(|pair| link(&pair[0]) != link(&pair[1]))
}

fn new_block() -> Block {
    Block::new(BLOCK_BYTES, BLOCK_FRAMES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_burst::block::View;
    use linerate_burst::{LinkType, SinkError, StampSource};
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Number of frames that it has not been asked to flush.
    #[derive(Clone, Default)]
    struct Holds(Arc<AtomicUsize>);

    impl Sink for Holds {
        fn accept(&mut self, view: View<'_>) -> Result<(), SinkError> {
            self.0.fetch_add(view.burst().len(), Ordering::Relaxed);
            Ok(())
        }

        fn flush(&mut self) -> Result<(), SinkError> {
            self.0.store(0, Ordering::Relaxed);
            Ok(())
        }

        fn finish(&mut self, _: &Ledger) -> Result<(), SinkError> {
            Ok(())
        }

        fn counters(&self, _: &mut Ledger) {}
    }

    #[test]
    fn buffered_output_is_flushed_at_the_next_pause() {
        let holds = Holds::default();
        let mut output = Output::new(vec![Box::new(holds.clone())], Arc::default());
        output.store = match std::mem::replace(&mut output.store, Store::None(Sinks::default())) {
            Store::None(sinks) => {
                Store::Private { block: new_block(), sinks: Worker::here(sinks), interfaces: [].into() }
            }
            store => store,
        };
        let push = |output: &mut Output| {
            if let Store::Private { block, .. } = &mut output.store {
                assert!(block.push(&Desc::new(Nanos(1), 0, 60), &[0; 60]));
            }
        };
        push(&mut output);
        output.look(&[], Ledger::new(), Nanos(1));
        assert_eq!(holds.0.load(Ordering::Relaxed), 1);
        output.flush_block(&[], true);
        assert!(holds.0.load(Ordering::Relaxed) == 0 && !output.unflushed);
        push(&mut output);
        output.flush_block(&[], false);
        output.flush_block(&[], true);
        assert_eq!(holds.0.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn frames_of_two_link_types_are_noticed() {
        let interface = |link| Interface::new("", link, StampSource::User);
        let descs = [0, 0, 1].map(|interface| Desc { interface, ..Desc::new(Nanos(1), 0, 0) });
        let two = [interface(LinkType::ETHERNET), interface(LinkType::RAW)];
        assert!(is_mixed(&descs, &two) && !is_mixed(&descs[..2], &two) && !is_mixed(&[], &two));
        assert!(!is_mixed(&descs, &[interface(LinkType::RAW), interface(LinkType::RAW)]));
    }

    #[test]
    fn a_late_frame_does_not_move_the_horizon() {
        let desc = |time, flags| Desc { flags, ..Desc::new(Nanos(time), 0, 0) };
        let far = desc(u64::MAX, Flags::LATE);
        assert_eq!(complete_to(&[desc(5, Flags::NONE), desc(7, Flags::SLICED), far, desc(3, Flags::LATE)]), Nanos(7));
        assert_eq!((complete_to(&[far]), complete_to(&[])), (Nanos::ZERO, Nanos::ZERO));
    }

    #[test]
    fn totals_include_late_and_truncated_frames_and_the_time_span() {
        let frame = |time, flags| Desc { wire: 100, flags, ..Desc::new(Nanos(time), 0, 60) };
        let descs = [frame(7, Flags::NONE), frame(5, Flags::LATE | Flags::SLICED), frame(8, Flags::SLICED)];
        let (mut totals, mut state) = (Totals::NONE, CommitState::default());
        totals.add(&descs, &mut state);
        totals.add(&[], &mut state);
        assert_eq!((totals.frames, totals.bytes, totals.wire_bytes), (3, 180, 300));
        assert_eq!((totals.span(), state.last_time), (Some((Nanos(5), Nanos(8))), Nanos(8)));
        assert_eq!((state.late, state.sliced), (1, 2));
    }
}
