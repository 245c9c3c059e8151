//! Frames as text: in order, to a thread that writes them.
//!
//! They are copied into blocks; format and destination are up to [`LineWriter`]. A block is passed on once it is full, the
//! input pauses, or it is old: lines are not delayed. The run waits for the writer, so that nothing is missing, or, if
//! other consumers must not lose frames because of a slow reader, frames without space are counted.

use crate::consumer::{Consumer, Demand, FrameOrder, Round, RunCounters, RunEnd, RunStart};
use crate::control::Progress;
use crate::error::ReceiveError;
use crate::select::{Selection, Selector};
use crate::worker::{Work, Worker};
use linerate_burst::block::{BLOCK_BYTES, BLOCK_FRAMES};
use linerate_burst::{Block, Burst, Count, Desc, FrameIndex, Interface, Kind, Stage};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Thread name.
const NAME: &str = "linerate-print";
/// Maximum number of queued blocks.
const BLOCKS: usize = 16;
/// Age at which a block is passed on even if it is not full.
const OLD: Duration = Duration::from_millis(20);

/// Longest wait for the last lines if other consumers must not wait.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Writes frames as text.
pub trait LineWriter: Send + 'static {
    /// Writes these frames and flushes. Returns the number written: less than all if nothing can be written any more,
    /// now or later.
    fn write(&mut self, burst: Burst<'_>, interfaces: &[Interface]) -> usize;
}

/// Prints selected frames.
pub struct PrintConsumer {
    selector: Selector,
    lines: Option<Box<dyn LineWriter>>,
    is_lossy: bool,
    worker: Option<Worker<PrintWork>>,
    block: Block,
    interfaces: Arc<[Interface]>,
    /// Time of the oldest frame in the block.
    since: Duration,
    slow: u64,
    frames: u64,
    bytes: u64,
    progress: Option<Arc<Progress>>,
    own: Vec<FrameIndex>,
    /// Number printed by the other thread.
    printed: Arc<AtomicU64>,
}

struct PrintWork {
    lines: Box<dyn LineWriter>,
    printed: Arc<AtomicU64>,
    unread: u64,
}

impl PrintConsumer {
    /// Prints frames with `lines`; frames that arrive faster than they are written make the run wait, or are lost if it
    /// `is_lossy`.
    pub fn new(selection: Selection, lines: impl LineWriter, is_lossy: bool) -> Self {
        PrintConsumer {
            selector: Selector::new(selection),
            lines: Some(Box::new(lines)),
            is_lossy,
            worker: None,
            block: new_block(),
            interfaces: Arc::new([]),
            since: Duration::ZERO,
            slow: 0,
            frames: 0,
            bytes: 0,
            progress: None,
            own: Vec::new(),
            printed: Arc::default(),
        }
    }

    /// Publishes the totals in `progress`.
    pub fn progress(mut self, progress: Arc<Progress>) -> Self {
        self.progress = Some(progress);
        self
    }

    /// Returns the number of frames written, after the run.
    pub fn done(self) -> u64 {
        self.printed.load(Ordering::Relaxed)
    }

    fn gather(&mut self, round: &Round<'_>) {
        let mut own = std::mem::take(&mut self.own);
        let takes_all = self.selector.take_all(round.frames());
        self.selector.start_round(round.filters);
        for pick in round.order(&mut own) {
            let (lane, burst) = (pick.lane(), &round.bursts[pick.lane()]);
            let (desc, frame) = (round.placed(lane, &burst.descs()[pick.index()]), burst.frame(pick.index()));
            let (length, flags) = match takes_all {
                true => (frame.len(), desc.flags),
                false => match self.selector.select(lane, &desc, frame) {
                    Some(kept) => kept,
                    None => continue,
                },
            };
            (self.frames, self.bytes) = (self.frames + 1, self.bytes + length as u64);
            self.push(&Desc { flags, ..desc }, &frame[..length], round);
        }
        own.clear();
        self.own = own;
    }

    fn push(&mut self, desc: &Desc, frame: &[u8], round: &Round<'_>) {
        if self.block.is_empty() {
            self.since = round.elapsed;
        }
        if !self.block.push(desc, frame) {
            self.flush_block(round.interfaces);
            if !self.block.is_empty() {
                self.slow += self.block.len() as u64;
                self.block.clear();
            }
            self.since = round.elapsed;
            assert!(self.block.push(desc, frame), "an empty block takes any frame");
        }
    }

    /// Passes the block on, if that is possible without waiting, or waiting is allowed.
    fn flush_block(&mut self, interfaces: &[Interface]) {
        if self.interfaces.len() != interfaces.len() {
            self.interfaces = interfaces.into();
        }
        let (Some(worker), false) = (&mut self.worker, self.block.is_empty()) else { return };
        let with = Arc::clone(&self.interfaces);
        if self.is_lossy {
            worker.offer(&mut self.block, with, new_block);
        } else {
            worker.hand_over(&mut self.block, with, new_block);
        }
    }
}

impl Consumer for PrintConsumer {
    fn name(&self) -> &'static str {
        "print"
    }

    fn order(&self) -> FrameOrder {
        FrameOrder::Merged
    }

    fn begin(&mut self, _: &RunStart) -> Result<(), ReceiveError> {
        let Some(lines) = self.lines.take() else { return Ok(()) };
        let writing = PrintWork { lines, printed: Arc::clone(&self.printed), unread: 0 };
        self.worker = Some(Worker::apart(NAME, writing, BLOCKS).unwrap_or_else(|(work, _)| Worker::here(work)));
        Ok(())
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        let learned = self.selector.learn(round.interfaces);
        self.gather(round);
        if round.frames() == 0 || round.elapsed.saturating_sub(self.since) >= OLD {
            self.flush_block(round.interfaces);
        }
        learned
    }

    fn look(&mut self, look: &RunCounters<'_>) {
        let Some(progress) = &self.progress else { return };
        progress.frames.store(self.frames, Ordering::Relaxed);
        progress.bytes.store(self.bytes, Ordering::Relaxed);
        progress.wire_bytes.store(self.bytes, Ordering::Relaxed);
        progress.lost.store(look.queues().lost() + self.slow, Ordering::Relaxed);
    }

    /// A reader that has disconnected needs no more.
    fn demand(&self) -> Demand {
        let is_over = self.worker.as_ref().is_some_and(Worker::has_failed);
        if is_over || self.selector.is_full() { Demand::Enough } else { Demand::More }
    }

    fn finish(&mut self, end: &mut RunEnd<'_>) {
        let mut died = end.died.take();
        // Without waiting for a stalled reader if files are written too.
        let (began, limit) = (Instant::now(), if self.is_lossy { LAST_LINES } else { Duration::MAX });
        self.flush_block(end.interfaces);
        while !self.block.is_empty() && began.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(2));
            self.flush_block(end.interfaces);
        }
        self.slow += self.block.len() as u64;
        self.selector.counters(end.ledger.account(Stage::Select, ""));
        let selected = end.ledger.account(Stage::Select, "").sum(Kind::Delivered);
        let account = end.ledger.account(Stage::Print, "");
        account.add(Count::PrintReceived, selected).add(Count::PrintSlow, self.slow);
        let mut worker = self.worker.take();
        worker.iter_mut().for_each(|worker| worker.end(()));
        let ended = worker.map(|worker| worker.join_within(limit.saturating_sub(began.elapsed())));
        account.add(Count::Printed, self.printed.load(Ordering::Relaxed));
        match ended {
            None => {}
            Some(Some(Ok(done))) => {
                account.add(Count::PrintUnread, done.work.unread);
                died = died.or(done.died);
            }
            Some(Some(Err(dead))) => died = died.or(Some(dead)),
            Some(None) => {
                let rest = u64::try_from(account.unaccounted()).unwrap_or(0);
                account.add(Count::PrintSlow, rest);
            }
        }
        if let Some(died) = died {
            let rest = u64::try_from(account.unaccounted()).unwrap_or(0);
            account.add(Count::PrintDied, rest);
            end.fail(died);
        }
    }
}

impl Work for PrintWork {
    type With = Arc<[Interface]>;
    type Last = ();

    fn take(&mut self, block: &Block, interfaces: Self::With) {
        let frames = block.len();
        let written = if self.has_failed() { 0 } else { self.lines.write(block.burst(), &interfaces) };
        self.printed.fetch_add(written as u64, Ordering::Relaxed);
        self.unread += (frames - written) as u64;
    }

    fn end(&mut self, (): ()) {}

    fn has_failed(&self) -> bool {
        self.unread > 0
    }
}

fn new_block() -> Block {
    Block::new(BLOCK_BYTES, BLOCK_FRAMES)
}
