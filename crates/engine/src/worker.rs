//! Work on blocks of frames: in the thread that fills them, or in a separate one.
//!
//! Blocks travel to the thread and return empty, and the one that returned last is filled next: while the thread keeps
//! up, few blocks circulate, and those stay in the cache. Their number is bounded, so the producer waits for a slower
//! thread, and the ports count what they lose during the wait. A panic in the work ends it, but not the accounting: later
//! blocks are skipped.

use crate::thread_panic::{ThreadPanic, survive};
use linerate_burst::Block;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Work done on blocks.
pub(crate) trait Work: Send + 'static {
    /// Data passed with a block.
    type With: Send;
    /// Data passed with the end.
    type Last: Send;

    fn take(&mut self, block: &Block, with: Self::With);

    /// Ends the work.
    fn end(&mut self, last: Self::Last);

    /// Returns whether its output has failed.
    fn has_failed(&self) -> bool {
        false
    }
}

/// Executor of the work.
pub(crate) enum Worker<W: Work> {
    /// The calling thread.
    Here(GuardedWork<W>),
    /// A separate thread.
    SeparateThread(SeparateThread<W>),
}

/// Work that may have panicked.
pub(crate) struct GuardedWork<W> {
    pub work: W,
    pub died: Option<ThreadPanic>,
}

/// Handle of a separate thread.
pub(crate) struct SeparateThread<W: Work> {
    jobs: Sender<Job<W>>,
    returned: Receiver<Block>,
    /// Empty blocks, the last one returned at the end.
    empty: Vec<Block>,
    thread: JoinHandle<GuardedWork<W>>,
    /// Number of blocks allocated, and its maximum.
    made: usize,
    most: usize,
    /// Number and duration of waits for the work.
    waits: u64,
    waited: Duration,
    failed: Arc<AtomicBool>,
}

enum Job<W: Work> {
    Block(Block, W::With),
    End(W::Last),
}

impl<W: Work> Worker<W> {
    pub(crate) fn here(work: W) -> Self {
        Worker::Here(GuardedWork { work, died: None })
    }

    /// Starts a thread, with at most `most` blocks in circulation.
    ///
    /// # Errors
    /// If the thread cannot be started: returns the work.
    pub(crate) fn apart(name: &str, work: W, most: usize) -> Result<Self, (W, std::io::Error)> {
        let (jobs, taken) = channel::<Job<W>>();
        let (back, returned) = channel();
        let failed = Arc::new(AtomicBool::new(false));
        let has_failed = Arc::clone(&failed);
        // If the thread cannot be started, the work must not be dropped with the closure.
        let slot = Arc::new(Mutex::new(Some(work)));
        let own = Arc::clone(&slot);
        let take = |slot: &Mutex<Option<W>>| slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        let run = move || {
            let mut guarded = GuardedWork { work: take(&own).expect("it is taken once"), died: None };
            for job in taken {
                match job {
                    Job::Block(mut block, with) => {
                        guarded.take(&block, with);
                        has_failed.fetch_or(guarded.has_failed(), Ordering::Relaxed);
                        block.clear();
                        // At the end the receiver is gone.
                        let _ = back.send(block);
                    }
                    Job::End(last) => {
                        guarded.end(last);
                        break;
                    }
                }
            }
            guarded
        };
        match Builder::new().name(name.into()).spawn(run) {
            Ok(thread) => Ok(Worker::SeparateThread(SeparateThread {
                jobs,
                returned,
                empty: Vec::new(),
                thread,
                made: 1,
                most,
                waits: 0,
                waited: Duration::ZERO,
                failed,
            })),
            Err(error) => Err((take(&slot).expect("no thread took it"), error)),
        }
    }

    pub(crate) fn has_failed(&self) -> bool {
        match self {
            Worker::Here(guarded) => guarded.has_failed(),
            Worker::SeparateThread(apart) => apart.failed.load(Ordering::Relaxed),
        }
    }

    /// Passes a block on and replaces it by an empty one, created by `make` or recycled.
    pub(crate) fn hand_over(&mut self, block: &mut Block, with: W::With, make: impl FnOnce() -> Block) {
        match self {
            Worker::Here(guarded) => {
                guarded.take(block, with);
                block.clear();
            }
            Worker::SeparateThread(apart) => apart.hand_over(block, with, make),
        }
    }

    /// Does the same as [`Worker::hand_over`] without waiting; returns false, and does nothing, if it would have to
    /// wait.
    pub(crate) fn offer(&mut self, block: &mut Block, with: W::With, make: impl FnOnce() -> Block) -> bool {
        match self {
            Worker::Here(_) => self.hand_over(block, with, make),
            Worker::SeparateThread(apart) => match apart.empty(make) {
                Ok(empty) => apart.exchange(block, empty, with),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => apart.mark_failed(block),
            },
        }
        true
    }

    /// Returns the number and total duration of waits for the work.
    pub(crate) fn waited(&self) -> (u64, Duration) {
        match self {
            Worker::Here(_) => (0, Duration::ZERO),
            Worker::SeparateThread(apart) => (apart.waits, apart.waited),
        }
    }

    /// Ends the work without waiting for the thread.
    pub(crate) fn end(&mut self, last: W::Last) {
        match self {
            Worker::Here(guarded) => guarded.end(last),
            // If the thread has ended, `join` reports why.
            Worker::SeparateThread(apart) => drop(apart.jobs.send(Job::End(last))),
        }
    }

    /// Waits for all blocks and returns the work, or the panic if its thread died outside of it.
    pub(crate) fn join(self) -> Result<GuardedWork<W>, ThreadPanic> {
        match self {
            Worker::Here(guarded) => Ok(guarded),
            Worker::SeparateThread(SeparateThread { jobs, returned, thread, .. }) => {
                let name = thread.thread().name().unwrap_or_default().to_owned();
                drop((jobs, returned));
                thread.join().map_err(|panic| ThreadPanic::of(&name, &*panic))
            }
        }
    }

    /// Waits at most for `limit`; returns `None` if that is exceeded: then the thread is detached.
    pub(crate) fn join_within(self, limit: Duration) -> Option<Result<GuardedWork<W>, ThreadPanic>> {
        let began = Instant::now();
        while let Worker::SeparateThread(apart) = &self
            && !apart.thread.is_finished()
        {
            if began.elapsed() >= limit {
                return None;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Some(self.join())
    }
}

impl<W: Work> GuardedWork<W> {
    fn take(&mut self, block: &Block, with: W::With) {
        if self.died.is_none() {
            self.died = survive(|| self.work.take(block, with)).err();
        }
    }

    fn end(&mut self, last: W::Last) {
        if self.died.is_none() {
            self.died = survive(|| self.work.end(last)).err();
        }
    }

    fn has_failed(&self) -> bool {
        self.died.is_some() || self.work.has_failed()
    }
}

impl<W: Work> SeparateThread<W> {
    fn hand_over(&mut self, block: &mut Block, with: W::With, make: impl FnOnce() -> Block) {
        let empty = self.empty(make).or_else(|_| {
            // All are in use: the work is slower than the lanes.
            let since = Instant::now();
            let empty = self.returned.recv();
            self.waits += 1;
            self.waited += since.elapsed();
            empty
        });
        match empty {
            Ok(empty) => self.exchange(block, empty, with),
            Err(_) => self.mark_failed(block),
        }
    }

    /// Returns a recycled block, or a new one within the limit.
    fn empty(&mut self, make: impl FnOnce() -> Block) -> Result<Block, TryRecvError> {
        let reason = loop {
            match self.returned.try_recv() {
                Ok(block) => self.empty.push(block),
                Err(reason) => break reason,
            }
        };
        match self.empty.pop() {
            Some(block) => Ok(block),
            None if self.made < self.most => {
                self.made += 1;
                Ok(make())
            }
            None => Err(reason),
        }
    }

    fn exchange(&mut self, block: &mut Block, empty: Block, with: W::With) {
        let full = std::mem::replace(block, empty);
        let _ = self.jobs.send(Job::Block(full, with));
    }

    /// Handles the end of the thread.
    fn mark_failed(&mut self, block: &mut Block) {
        self.failed.store(true, Ordering::Relaxed);
        block.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::mpsc::sync_channel;

    /// Waits for a permission before each block, and reports after it.
    struct Gated(Receiver<()>, Sender<()>);

    impl Work for Gated {
        type With = ();
        type Last = ();

        fn take(&mut self, _: &Block, (): ()) {
            let _ = (self.0.recv(), self.1.send(()));
        }

        fn end(&mut self, (): ()) {}
    }

    #[test]
    fn few_blocks_circulate_after_a_stall() {
        let ((permit, permits), (done, finished)) = (sync_channel(100), channel());
        let Ok(mut worker) = Worker::apart("test", Gated(permits, done), 16) else { panic!("no thread") };
        let mut block = Block::new(0, 1);
        let mut hand_over = |block: &mut Block| {
            worker.hand_over(block, (), || Block::new(0, 1));
            block.descs().as_ptr()
        };
        // A slow thread: all blocks are made.
        let made: HashSet<_> = (0..15).map(|_| hand_over(&mut block)).collect();
        (0..15).for_each(|_| permit.send(()).unwrap());
        (0..15).for_each(|_| finished.recv().unwrap());
        let used: HashSet<_> = (0..30)
            .map(|_| {
                permit.send(()).unwrap();
                let used = hand_over(&mut block);
                finished.recv().unwrap();
                used
            })
            .collect();
        // A block is reported shortly before it returns.
        assert!(made.len() == 15 && used.len() <= 4, "{} blocks of {}", used.len(), made.len());
    }
}
