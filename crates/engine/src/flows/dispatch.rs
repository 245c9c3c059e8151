//! Ordered frames, copied into a block for each worker.
//!
//! ```text
//! picks ──> divide: whose flow? ──> copy the metered part ──> Block ──> worker
//! ```

use super::meters::Meters;
use super::worker::{Load, MeterWorker, SharedRecords, lock};
use crate::consumer::Round;
use crate::error::ReceiveError;
use crate::thread_panic::{ThreadPanic, survive};
use crate::worker::Worker;
use linerate_burst::{Block, Desc, FinishDesc, FrameIndex, Interface, Nanos};
use linerate_headers::Link;
use linerate_meter::{Counts, DnsAnswer, FlowDistributor, PacketTime, Protocol};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Number of frames divided and then copied together: they stay in the first-level cache.
const CHUNK: usize = 512;
/// Number of frames to prefetch.
const AHEAD: usize = 8;
/// Longest time that frames wait for their block to fill.
const PATIENCE: Duration = Duration::from_millis(1);
/// Advance of packet time after which a worker without frames is updated.
const TELL: Duration = Duration::from_millis(250);
/// Number of DNS answers after which a worker is updated at once.
const HEARD: usize = 1024;
/// Thread name.
const NAME: &str = "linerate-meter";
/// Number of blocks between this thread and a worker. More of them would absorb longer pauses, but exceed the caches.
const BLOCKS: usize = 7;
/// Frames of a block, and bytes for them: most frames are cut to their headers.
const FRAMES: usize = 1024;
const BYTES: usize = 1 << 18;

/// All workers, with the blocks being filled for them.
pub(super) struct Dispatch {
    workers: Vec<Queue>,
    spread: FlowDistributor,
    time: PacketTime,
    /// Time of the run when workers were last updated without frames.
    paused: Duration,
    frames: u64,
    bytes: u64,
    /// Link type of each interface of all ports.
    links: Arc<[Option<Link>]>,
    /// True if whole frames are metered.
    whole: bool,
    /// True if DNS answers are used: by each worker, for all flows.
    reads_dns: bool,
}

struct Queue {
    worker: Worker<MeterWorker>,
    block: Block,
    /// Frames for this worker.
    picks: Vec<FrameIndex>,
    /// Time at which the first frame of the block was copied.
    since: Option<Nanos>,
    /// Packet time of the worker's last update.
    updated: Nanos,
    /// DNS answers among all frames since the last block.
    answers: Vec<DnsAnswer>,
    /// Counters of the worker so far.
    shown: Arc<Mutex<Counts>>,
}

impl Dispatch {
    /// Creates a worker for each meter; in separate threads if there are several.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(super) fn new(meters: Meters, records: &SharedRecords) -> Result<Self, ReceiveError> {
        let Meters { config, meters } = meters;
        let spread = FlowDistributor::new(&config, meters.len());
        let is_apart = meters.len() > 1;
        let start = |mut meter: linerate_meter::Meter| {
            // Its time is that of the blocks.
            meter.follow();
            let shown = Arc::default();
            let metering = MeterWorker::new(meter, records, !is_apart, false).showing(&shown);
            let worker = match is_apart {
                false => Worker::here(metering),
                true => Worker::apart(NAME, metering, BLOCKS).map_err(|(_, error)| ReceiveError::Worker(error))?,
            };
            let picks = Vec::with_capacity(CHUNK);
            Ok(Queue { worker, block: block(), picks, since: None, updated: Nanos::ZERO, answers: Vec::new(), shown })
        };
        let mut workers: Vec<Queue> = Vec::with_capacity(meters.len());
        for meter in meters {
            match start(meter) {
                Ok(queue) => workers.push(queue),
                Err(error) => {
                    // Workers already started are idle.
                    workers.into_iter().for_each(|queue| drop(queue.worker.join()));
                    return Err(error);
                }
            }
        }
        Ok(Dispatch {
            workers,
            spread,
            time: PacketTime::default(),
            paused: Duration::ZERO,
            frames: 0,
            bytes: 0,
            links: Arc::new([]),
            whole: config.checksums || !config.names.is_empty(),
            reads_dns: config.names.has(Protocol::Dns),
        })
    }

    /// Returns whether the records of a worker can no longer be delivered.
    pub(super) fn has_failed(&self) -> bool {
        self.workers.iter().any(|queue| queue.worker.has_failed())
    }

    /// Copies frames for their workers and passes on blocks that are full, or have waited. Returns the number of frames
    /// and their bytes.
    pub(super) fn take(&mut self, round: &Round<'_>, picks: &[FrameIndex]) -> (u64, u64) {
        self.learn(round.interfaces);
        let before = (self.frames, self.bytes);
        for picks in picks.chunks(CHUNK) {
            self.divide(round, picks);
            for queue in &mut self.workers {
                queue.copy(round, self.whole, (&self.links, self.time.now()));
            }
        }
        for queue in &mut self.workers {
            let has_waited = queue.since.is_some_and(|since| round.now.since(since) >= PATIENCE || round.now < since);
            if has_waited || queue.answers.len() >= HEARD || queue.is_update_due(self.time.now()) {
                queue.hand_over(&self.links, self.time.now());
            }
        }
        (self.frames - before.0, self.bytes - before.1)
    }

    /// Handles a round without frames; later frames are not older than `complete`. Passes on what was copied, and
    /// updates workers with the time periodically even if that has not changed: readers of open flows wait for it.
    pub(super) fn pause(&mut self, complete: Nanos, elapsed: Duration) {
        self.time.set_now(complete);
        let now = self.time.now();
        let is_late = elapsed.saturating_sub(self.paused) >= TELL;
        if is_late {
            self.paused = elapsed;
        }
        for queue in &mut self.workers {
            if is_late || !queue.block.is_empty() || queue.is_update_due(now) {
                queue.hand_over(&self.links, now);
            }
        }
    }

    /// Returns the counters of the workers so far.
    pub(super) fn counts(&self) -> Counts {
        self.workers.iter().fold(Counts::default(), |sum, queue| sum.plus(&lock(&queue.shown)))
    }

    /// Returns the packet time of all frames.
    pub(super) fn time(&self) -> &PacketTime {
        &self.time
    }

    /// Passes on all copied frames and ends all flows, unless this thread `died`.
    pub(super) fn finish(mut self, died: Option<ThreadPanic>) -> (Counts, Vec<Load>, Option<ThreadPanic>) {
        let mut first = died.or_else(|| {
            let rest = || self.workers.iter_mut().for_each(|queue| queue.hand_over(&self.links, self.time.now()));
            survive(rest).err()
        });
        if first.is_none() {
            // In parallel.
            self.workers.iter_mut().for_each(|queue| queue.worker.end(self.time.latest()));
        }
        let (mut counts, mut loads) = (Counts::default(), Vec::new());
        for queue in self.workers {
            let (done, died) = match queue.worker.join() {
                Ok(guarded) => (guarded.work.done(), guarded.died),
                Err(died) => (<(Counts, Load)>::default(), Some(died)),
            };
            counts = counts.plus(&done.0);
            loads.push(done.1);
            first = first.or(died);
        }
        (counts, loads, first)
    }

    /// Adds new interfaces.
    fn learn(&mut self, interfaces: &[Interface]) {
        if self.links.len() != interfaces.len() {
            self.links = interfaces.iter().map(|interface| Link::from_linktype(interface.link.0)).collect();
        }
    }

    /// Finds the worker of each frame.
    fn divide(&mut self, round: &Round<'_>, picks: &[FrameIndex]) {
        let Dispatch { workers, spread, time, frames, bytes, reads_dns, .. } = self;
        let is_one = workers.len() == 1;
        for pick in picks {
            let burst = &round.bursts[pick.lane()];
            let desc = &burst.descs()[pick.index()];
            time.see(desc.time);
            *frames += 1;
            *bytes += u64::from(desc.wire);
            let link = round.links[pick.lane()].get(usize::from(desc.interface)).copied().flatten();
            if *reads_dns && let Some(answer) = DnsAnswer::of(link, desc.time, burst.frame(pick.index())) {
                workers.iter_mut().for_each(|queue| queue.answers.push(answer.clone()));
            }
            let worker = if is_one {
                0
            } else {
                if pick.index() + AHEAD < burst.len() {
                    burst.prefetch(pick.index() + AHEAD);
                }
                spread.meter_of(link, burst.frame(pick.index()))
            };
            workers[worker].picks.push(*pick);
        }
    }
}

impl Queue {
    /// Returns whether the time has changed enough, in either direction, since the worker's last update.
    fn is_update_due(&self, now: Nanos) -> bool {
        u128::from(now.0.abs_diff(self.updated.0)) >= TELL.as_nanos()
    }

    /// Copies the frames of `picks`, passing on each full block.
    fn copy(&mut self, round: &Round<'_>, whole: bool, context: (&Arc<[Option<Link>]>, Nanos)) {
        let mut done = 0;
        while done < self.picks.len() {
            let mut cut = Truncation { links: round.links, maps: round.maps, whole };
            done += self.block.gather(round.bursts, &self.picks[done..], &mut cut);
            if done < self.picks.len() {
                self.hand_over(context.0, context.1);
            }
        }
        if !self.block.is_empty() {
            self.since.get_or_insert(round.now);
        }
        self.picks.clear();
    }

    /// Passes the block on, even an empty one, with the current packet time.
    fn hand_over(&mut self, links: &Arc<[Option<Link>]>, now: Nanos) {
        (self.since, self.updated) = (None, now);
        let answers = std::mem::take(&mut self.answers);
        self.worker.hand_over(&mut self.block, (Arc::clone(links), now, answers), block);
    }
}

fn block() -> Block {
    Block::new(BYTES, FRAMES)
}

/// Truncates each frame to its metered part.
struct Truncation<'a> {
    links: &'a [&'a [Option<Link>]],
    maps: &'a [&'a [u16]],
    whole: bool,
}

impl FinishDesc for Truncation<'_> {
    #[inline(always)]
    fn finish(&mut self, desc: &mut Desc, frame: &[u8], pick: FrameIndex) -> bool {
        if desc.captured as usize > FlowDistributor::HEADERS && !self.whole && desc.captured <= desc.wire {
            let links = self.links[pick.lane()];
            if FlowDistributor::is_plain(links.get(usize::from(desc.interface)).copied().flatten(), frame) {
                desc.captured = FlowDistributor::HEADERS as u32;
            }
        }
        let interface = self.maps[pick.lane()].get(usize::from(desc.interface)).copied();
        desc.interface = interface.unwrap_or_default();
        true
    }
}
