//! A meter, and the thread that it may have of its own.

use linerate_burst::{Block, Burst, Nanos};
use linerate_meter::{Counts, Flow, Meter, PacketTime, Records};
use linerate_wire::Link;
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

    /// Ends all flows; `last` is the time of the last frame of the run.
    pub fn finish(mut self, last: Nanos, records: &mut dyn Records) -> (Counts, Load) {
        self.timed(|meter| meter.finish(last, records));
        let counts = *self.counts();
        let Counts { frames, bytes, begun: flows, .. } = counts;
        (counts, Load { frames, bytes, flows, busy: self.busy })
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
    thread: ScopedJoinHandle<'scope, (Counts, Load)>,
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
    ) -> std::io::Result<Self> {
        let (jobs, taken) = sync_channel(BLOCKS + 1);
        let (back, empty) = sync_channel(BLOCKS);
        let work = move || {
            for _ in 0..BLOCKS {
                // Whoever waits for them is still there.
                let _ = back.send(block());
            }
            run(Worker::following(meter), &taken, &back, Batch { flows: Vec::with_capacity(RECORDS), records })
        };
        let thread = Builder::new().name("linerate-meter".into()).spawn_scoped(scope, work)?;
        Ok(Hired { jobs, empty, thread })
    }

    /// Waits for an empty block; `None` if the worker is gone, which happens in a panic alone.
    pub fn block(&self) -> Option<Block> {
        self.empty.recv().ok()
    }

    /// Hands frames over.
    pub fn take(&self, block: Block, links: &Arc<[Option<Link>]>, now: Nanos) {
        // Where the worker has panicked `finish` tells.
        let _ = self.jobs.send(Job::Frames(block, Arc::clone(links), now));
    }

    /// Waits until all frames are metered, and ends all flows.
    pub fn finish(self, last: Nanos) -> (Counts, Load) {
        let _ = self.jobs.send(Job::End(last));
        drop((self.jobs, self.empty));
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// What a thread does.
fn run(mut worker: Worker, jobs: &Receiver<Job>, back: &SyncSender<Block>, mut batch: Batch<'_, '_>) -> (Counts, Load) {
    let mut last = worker.latest();
    for job in jobs {
        match job {
            Job::Frames(mut block, links, now) => {
                worker.take(block.burst(), &links, &mut batch);
                worker.expire(now, &mut batch);
                batch.hand_over();
                block.clear();
                // At the end nobody wants it back.
                let _ = back.send(block);
            }
            Job::End(time) => last = time,
        }
    }
    let result = worker.finish(last, &mut batch);
    batch.hand_over();
    result
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
