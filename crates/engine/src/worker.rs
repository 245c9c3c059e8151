//! Work on blocks of frames: in the thread that fills them, or in one of its own.
//!
//! Blocks travel to the thread and come back empty; there is a bounded number of them, so whoever fills them waits for a
//! thread that is slower, and the ports count what they lose meanwhile. A panic in the work ends it, not the account: what
//! is handed over afterwards is not looked at.

use crate::died::{Died, survive};
use linerate_burst::Block;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// What is done with blocks.
pub(crate) trait Work: Send + 'static {
    /// What a block goes with.
    type With: Send;
    /// What the last one goes with.
    type Last: Send;

    fn take(&mut self, block: &Block, with: Self::With);

    /// There are no more.
    fn end(&mut self, last: Self::Last);

    /// Whether what it takes goes nowhere any more.
    fn has_failed(&self) -> bool {
        false
    }
}

/// Whoever does it.
pub(crate) enum Worker<W: Work> {
    /// The thread that hands over.
    Here(Guarded<W>),
    /// A thread of its own.
    Apart(Apart<W>),
}

/// Work that may have panicked.
pub(crate) struct Guarded<W> {
    pub work: W,
    pub died: Option<Died>,
}

/// The other end of a thread.
pub(crate) struct Apart<W: Work> {
    jobs: Sender<Job<W>>,
    empty: Receiver<Block>,
    thread: JoinHandle<Guarded<W>>,
    /// Blocks there are, and the most there may be.
    made: usize,
    most: usize,
    /// How often and how long the work was waited for.
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
        Worker::Here(Guarded { work, died: None })
    }

    /// Starts a thread that at most so many blocks go round with.
    ///
    /// # Errors
    /// There can be no more threads: the work comes back.
    pub(crate) fn apart(name: &str, work: W, most: usize) -> Result<Self, (W, std::io::Error)> {
        let (jobs, taken) = channel::<Job<W>>();
        let (back, empty) = channel();
        let failed = Arc::new(AtomicBool::new(false));
        let has_failed = Arc::clone(&failed);
        // Where no thread can be had the work must not go down with the closure.
        let place = Arc::new(Mutex::new(Some(work)));
        let own = Arc::clone(&place);
        let take = |place: &Mutex<Option<W>>| place.lock().unwrap_or_else(PoisonError::into_inner).take();
        let run = move || {
            let mut guarded = Guarded { work: take(&own).expect("it is taken once"), died: None };
            for job in taken {
                match job {
                    Job::Block(mut block, with) => {
                        guarded.take(&block, with);
                        has_failed.fetch_or(guarded.has_failed(), Ordering::Relaxed);
                        block.clear();
                        // At the end nobody wants it back.
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
            Ok(thread) => Ok(Worker::Apart(Apart {
                jobs,
                empty,
                thread,
                made: 1,
                most,
                waits: 0,
                waited: Duration::ZERO,
                failed,
            })),
            Err(error) => Err((take(&place).expect("no thread took it"), error)),
        }
    }

    /// Whether what is handed over goes nowhere any more.
    pub(crate) fn has_failed(&self) -> bool {
        match self {
            Worker::Here(guarded) => guarded.has_failed(),
            Worker::Apart(apart) => apart.failed.load(Ordering::Relaxed),
        }
    }

    /// Hands a block over and leaves an empty one in its place, made by `make` or used before.
    pub(crate) fn hand_over(&mut self, block: &mut Block, with: W::With, make: impl FnOnce() -> Block) {
        match self {
            Worker::Here(guarded) => {
                guarded.take(block, with);
                block.clear();
            }
            Worker::Apart(apart) => apart.hand_over(block, with, make),
        }
    }

    /// Hands a block over as [`Worker::hand_over`] does, unless that would have to wait: then nothing happens, and it is false.
    pub(crate) fn offer(&mut self, block: &mut Block, with: W::With, make: impl FnOnce() -> Block) -> bool {
        match self {
            Worker::Here(_) => self.hand_over(block, with, make),
            Worker::Apart(apart) => match apart.empty(make) {
                Ok(empty) => apart.exchange(block, empty, with),
                Err(TryRecvError::Empty) => return false,
                Err(TryRecvError::Disconnected) => apart.give_up(block),
            },
        }
        true
    }

    /// How often whoever hands over has waited for the work, and how long in all.
    pub(crate) fn waited(&self) -> (u64, Duration) {
        match self {
            Worker::Here(_) => (0, Duration::ZERO),
            Worker::Apart(apart) => (apart.waits, apart.waited),
        }
    }

    /// There are no more blocks; the thread may take its time.
    pub(crate) fn end(&mut self, last: W::Last) {
        match self {
            Worker::Here(guarded) => guarded.end(last),
            // Where the thread is gone joining it tells why.
            Worker::Apart(apart) => drop(apart.jobs.send(Job::End(last))),
        }
    }

    /// Waits for all that was handed over, and gives the work back; nothing but the reason if its thread died outside of it.
    pub(crate) fn join(self) -> Result<Guarded<W>, Died> {
        match self {
            Worker::Here(guarded) => Ok(guarded),
            Worker::Apart(Apart { jobs, empty, thread, .. }) => {
                let name = thread.thread().name().unwrap_or_default().to_owned();
                drop((jobs, empty));
                thread.join().map_err(|panic| Died::of(&name, &*panic))
            }
        }
    }

    /// Waits so long at most; `None` where that is not enough: then the thread is left to itself.
    pub(crate) fn join_within(self, limit: Duration) -> Option<Result<Guarded<W>, Died>> {
        let began = Instant::now();
        while let Worker::Apart(apart) = &self
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

impl<W: Work> Guarded<W> {
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

impl<W: Work> Apart<W> {
    fn hand_over(&mut self, block: &mut Block, with: W::With, make: impl FnOnce() -> Block) {
        let empty = self.empty(make).or_else(|_| {
            // All are on their way: the work is slower than the lanes.
            let since = Instant::now();
            let empty = self.empty.recv();
            self.waits += 1;
            self.waited += since.elapsed();
            empty
        });
        match empty {
            Ok(empty) => self.exchange(block, empty, with),
            Err(_) => self.give_up(block),
        }
    }

    /// A block that came back, or a new one, as long as there may be more.
    fn empty(&mut self, make: impl FnOnce() -> Block) -> Result<Block, TryRecvError> {
        match self.empty.try_recv() {
            Err(_) if self.made < self.most => {
                self.made += 1;
                Ok(make())
            }
            result => result,
        }
    }

    fn exchange(&mut self, block: &mut Block, empty: Block, with: W::With) {
        let full = std::mem::replace(block, empty);
        let _ = self.jobs.send(Job::Block(full, with));
    }

    /// The thread is gone.
    fn give_up(&mut self, block: &mut Block) {
        self.failed.store(true, Ordering::Relaxed);
        block.clear();
    }
}
