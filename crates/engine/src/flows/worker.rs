//! A meter, and the thread that it may have of its own.

use crate::died::{Died, survive};
use linerate_burst::{Block, Burst, Nanos};
use linerate_meter::{Counts, Flow, Meter, PacketTime, Records};
use linerate_wire::Link;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// What one worker has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Frames it was given.
    pub frames: u64,
    /// Their bytes on the wire without FCS.
    pub bytes: u64,
    /// Records it has begun.
    pub flows: u64,
    /// How long it metered; the rest of the run it waited for frames.
    pub busy: Duration,
}

/// Meters frames, and takes the time it needs.
pub(super) struct Worker {
    meter: Meter,
    busy: Duration,
}

impl Worker {
    pub fn new(meter: Meter) -> Self {
        Worker { meter, busy: Duration::ZERO }
    }

    /// One of several, or of one that does not see lanes: it is told what time it is.
    pub fn following(mut meter: Meter) -> Self {
        meter.follow();
        Worker::new(meter)
    }

    pub fn take(&mut self, burst: Burst<'_>, links: &[Option<Link>], records: &mut dyn Records) {
        self.timed(|meter| meter.take(burst, links, records));
    }

    /// It is `now`: quiet flows end, even where no frame comes.
    pub fn expire(&mut self, now: Nanos, records: &mut dyn Records) {
        self.timed(|meter| meter.expire(now, records));
    }

    pub fn counts(&self) -> &Counts {
        self.meter.counts()
    }

    /// Ends all flows, unless it `died` before; `last` is the time of the last frame of the run.
    pub fn finish(mut self, last: Nanos, records: &mut dyn Records, died: Option<Died>) -> Done {
        let end = || self.timed(|meter| meter.finish(last, records));
        let died = if died.is_none() { survive(end).err() } else { died };
        let counts = *self.counts();
        let Counts { frames, bytes, begun: flows, .. } = counts;
        Done { counts, load: Load { frames, bytes, flows, busy: self.busy }, died }
    }

    pub fn latest(&self) -> Nanos {
        self.meter.latest()
    }

    /// What time it is by its frames.
    pub fn time(&self) -> &PacketTime {
        self.meter.time()
    }

    fn timed(&mut self, work: impl FnOnce(&mut Meter)) {
        let began = Instant::now();
        work(&mut self.meter);
        self.busy += began.elapsed();
    }
}

/// The threads.
const NAME: &str = "linerate-meter";
/// Blocks that go round between a worker and whoever fills them. More of them would bear longer pauses, and lie outside
/// of the caches.
const BLOCKS: usize = 6;
/// Frames of a block, and bytes for them: most frames are cut to their headers.
const FRAMES: usize = 1024;
const BYTES: usize = 1 << 18;
/// Records handed over at a time, at the most.
const RECORDS: usize = 256;

/// What takes the records of all workers.
pub(super) type Shared<'a> = Mutex<&'a mut (dyn Records + Send)>;

/// The other end of a worker with a thread of its own.
pub(super) struct Hired<'scope> {
    jobs: SyncSender<Job>,
    empty: Receiver<Block>,
    thread: ScopedJoinHandle<'scope, Done>,
    failed: Arc<AtomicBool>,
}

/// What a worker leaves.
pub(super) struct Done {
    pub counts: Counts,
    pub load: Load,
    /// Of what it died, if it did; the counts are those of before.
    pub died: Option<Died>,
}

enum Job {
    /// Frames, what those of each interface begin with, and the time that has come behind them.
    Frames(Block, Arc<[Option<Link>]>, Nanos),
    /// There are no more; the time of the last one.
    End(Nanos),
}

/// An empty block as it goes round.
pub(super) fn block() -> Block {
    Block::new(BYTES, FRAMES)
}

impl<'scope> Hired<'scope> {
    /// Starts the thread.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn start<'env>(
        scope: &'scope Scope<'scope, 'env>,
        meter: Meter,
        records: &'env Shared<'_>,
        failed: &Arc<AtomicBool>,
    ) -> std::io::Result<Self> {
        let (jobs, taken) = sync_channel(BLOCKS + 1);
        let has_failed = Arc::clone(failed);
        let (back, empty) = sync_channel(BLOCKS);
        let work = move || {
            for _ in 0..BLOCKS {
                // Whoever waits for them is still there.
                let _ = back.send(block());
            }
            let batch = Batch { flows: Vec::with_capacity(RECORDS), records };
            run(Worker::following(meter), &taken, &back, batch, &has_failed)
        };
        let thread = Builder::new().name(NAME.into()).spawn_scoped(scope, work)?;
        Ok(Hired { jobs, empty, thread, failed: Arc::clone(failed) })
    }

    /// Waits for an empty block; `None` if the worker is gone, which happens in a panic alone.
    pub fn block(&self) -> Option<Block> {
        let block = self.empty.recv().ok();
        if block.is_none() {
            self.failed.store(true, Ordering::Relaxed);
        }
        block
    }

    /// Hands frames over.
    pub fn take(&self, block: Block, links: &Arc<[Option<Link>]>, now: Nanos) {
        // Where the worker has panicked `finish` tells.
        let _ = self.jobs.send(Job::Frames(block, Arc::clone(links), now));
    }

    /// Waits until all frames are metered, and ends all flows.
    pub fn finish(self, last: Nanos) -> Done {
        let _ = self.jobs.send(Job::End(last));
        drop((self.jobs, self.empty));
        self.thread.join().unwrap_or_else(|panic| Done {
            counts: Counts::default(),
            load: Load::default(),
            died: Some(Died::of(NAME, &*panic)),
        })
    }
}

/// What a thread does. Once it has died it gives blocks back as they come: the run is about to end, and counts their frames.
fn run(
    mut worker: Worker,
    jobs: &Receiver<Job>,
    back: &SyncSender<Block>,
    mut batch: Batch<'_, '_>,
    has_failed: &AtomicBool,
) -> Done {
    let mut last = worker.latest();
    let mut died = None;
    for job in jobs {
        match job {
            Job::Frames(mut block, links, now) => {
                if died.is_none() {
                    let meter = || {
                        worker.take(block.burst(), &links, &mut batch);
                        worker.expire(now, &mut batch);
                        batch.hand_over();
                    };
                    died = survive(meter).err();
                    has_failed.fetch_or(died.is_some(), Ordering::Relaxed);
                }
                block.clear();
                // At the end nobody wants it back.
                let _ = back.send(block);
            }
            Job::End(time) => last = time,
        }
    }
    let mut done = worker.finish(last, &mut batch, died);
    if done.died.is_none() {
        done.died = survive(|| batch.hand_over()).err();
    }
    done
}

/// Keeps a few records, so that workers seldom meet where they hand them over.
struct Batch<'a, 'r> {
    flows: Vec<Flow>,
    records: &'a Shared<'r>,
}

impl Batch<'_, '_> {
    fn hand_over(&mut self) {
        if self.flows.is_empty() {
            return;
        }
        let mut records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
        for flow in &self.flows {
            records.take(flow);
        }
        drop(records);
        self.flows.clear();
    }
}

impl Records for Batch<'_, '_> {
    fn take(&mut self, flow: &Flow) {
        self.flows.push(flow.clone());
        if self.flows.len() == RECORDS {
            self.hand_over();
        }
    }
}
