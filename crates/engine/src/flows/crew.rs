//! Frames in their order, into a block for each worker.

use super::meters::Meters;
use super::worker::{Hired, Load, Shared, Worker, block};
use crate::died::{Died, survive};
use linerate_burst::{Block, Burst, Desc, Finish, Interface, Nanos, Pick};
use linerate_meter::{Config, Counts, PacketTime, Records, Spread};
use linerate_wire::Link;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::Duration;

/// Frames that are looked at, and then copied, together: they stay in the first cache meanwhile.
const CHUNK: usize = 512;
/// Frames asked for ahead.
const AHEAD: usize = 8;
/// How long frames may wait for their block to fill.
const PATIENCE: Duration = Duration::from_millis(1);
/// How far packet time goes on before a worker without frames is told.
const TELL: Duration = Duration::from_millis(250);

/// All workers, with the blocks that are being filled for them.
pub(super) struct Crew<'a> {
    workers: Vec<Place<'a>>,
    spread: Spread,
    time: PacketTime,
    frames: u64,
    bytes: u64,
    /// What frames of each interface of all ports begin with.
    links: Arc<[Option<Link>]>,
    /// Whether whole frames count.
    whole: bool,
    /// Whether a worker is no more.
    failed: Arc<AtomicBool>,
}

struct Place<'a> {
    hand: Hand<'a>,
    block: Block,
    /// Which frames go there.
    picks: Vec<Pick>,
    /// When the first frame of the block was copied.
    since: Option<Nanos>,
    /// The packet time that the worker was told last.
    told: Nanos,
}

/// Who meters.
enum Hand<'a> {
    /// This thread.
    Own(Box<Worker>, &'a mut dyn Records),
    Hired(Hired<'a>),
}

/// What lanes show in a round.
#[derive(Clone, Copy)]
pub(super) struct Shelf<'a> {
    pub bursts: &'a [Burst<'a>],
    /// What frames of each interface of each lane begin with.
    pub links: &'a [Vec<Option<Link>>],
    /// The place of each interface of each lane in the list of all.
    pub maps: &'a [&'a [u16]],
}

impl<'scope> Crew<'scope> {
    /// One worker, in this thread.
    pub fn own(meters: Meters, records: &'scope mut dyn Records) -> Self {
        let Meters { config, mut meters } = meters;
        let hand = Hand::Own(Box::new(Worker::following(meters.remove(0))), records);
        Crew::new(vec![Place::new(hand, block())], &config, Arc::default())
    }

    /// A worker for each meter, ready for frames, each in a thread of its own.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn hire<'env>(
        scope: &'scope Scope<'scope, 'env>,
        meters: Meters,
        records: &'env Shared<'_>,
    ) -> std::io::Result<Self> {
        let Meters { config, meters } = meters;
        let failed = Arc::default();
        let hired: std::io::Result<Vec<Hired<'scope>>> =
            meters.into_iter().map(|meter| Hired::start(scope, meter, records, &failed)).collect();
        let place = |worker: Hired<'scope>| {
            let block = worker.block().unwrap_or_else(block);
            Place::new(Hand::Hired(worker), block)
        };
        Ok(Crew::new(hired?.into_iter().map(place).collect(), &config, failed))
    }

    fn new(workers: Vec<Place<'scope>>, config: &Config, failed: Arc<AtomicBool>) -> Self {
        Crew {
            spread: Spread::new(config, workers.len()),
            workers,
            time: PacketTime::default(),
            frames: 0,
            bytes: 0,
            links: Arc::new([]),
            whole: config.checksums,
            failed,
        }
    }

    /// Whether frames of a worker go nowhere any more.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Takes up interfaces that are new.
    pub fn learn(&mut self, interfaces: &[Interface]) {
        if self.links.len() != interfaces.len() {
            self.links = interfaces.iter().map(|interface| Link::from_linktype(interface.link.0)).collect();
        }
    }

    /// Copies frames for their workers and hands over what is full, or has waited; it is `now` by the clock.
    /// How many there were, and their bytes.
    pub fn take(&mut self, shelf: Shelf<'_>, picks: impl Iterator<Item = Pick>, now: Nanos) -> (u64, u64) {
        let mut picks = picks.peekable();
        let before = (self.frames, self.bytes);
        while picks.peek().is_some() {
            self.divide(shelf, picks.by_ref().take(CHUNK));
            for place in &mut self.workers {
                place.copy(shelf, self.whole, (&self.links, self.time.now()), now);
            }
        }
        for place in &mut self.workers {
            let has_waited = place.since.is_some_and(|since| now.since(since) >= PATIENCE || now < since);
            if has_waited || place.wants_to_know(self.time.now()) {
                place.hand_over(&self.links, self.time.now());
            }
        }
        (self.frames - before.0, self.bytes - before.1)
    }

    /// No frame is there, and none that comes is older than `complete`: hands over what was copied.
    pub fn pause(&mut self, complete: Nanos) {
        self.time.tell(complete);
        let now = self.time.now();
        for place in &mut self.workers {
            if !place.block.is_empty() || place.wants_to_know(now) {
                place.hand_over(&self.links, now);
            }
        }
    }

    /// What time it is by all frames.
    pub fn time(&self) -> &PacketTime {
        &self.time
    }

    /// Hands over all that was copied and ends all flows, unless this thread `died` over them.
    pub fn finish(mut self, died: Option<Died>) -> (Counts, Vec<Load>, Option<Died>) {
        let died = died.or_else(|| {
            let rest = || self.workers.iter_mut().for_each(|place| place.hand_over(&self.links, self.time.now()));
            survive(rest).err()
        });
        let last = self.time.latest();
        let (mut counts, mut loads, mut first) = (Counts::default(), Vec::new(), died.clone());
        for place in self.workers {
            let done = match place.hand {
                Hand::Own(worker, records) => worker.finish(last, records, died.clone()),
                Hand::Hired(worker) => worker.finish(last),
            };
            counts = counts.plus(&done.counts);
            loads.push(done.load);
            first = first.or(done.died);
        }
        (counts, loads, first)
    }

    /// Finds the worker of each frame.
    fn divide(&mut self, shelf: Shelf<'_>, picks: impl Iterator<Item = Pick>) {
        let Crew { workers, spread, time, frames, bytes, .. } = self;
        let is_one = workers.len() == 1;
        for pick in picks {
            let burst = &shelf.bursts[pick.lane()];
            let desc = &burst.descs()[pick.index()];
            time.see(desc.time);
            *frames += 1;
            *bytes += u64::from(desc.wire);
            let worker = if is_one {
                0
            } else {
                if pick.index() + AHEAD < burst.len() {
                    burst.prefetch(pick.index() + AHEAD);
                }
                let link = shelf.links[pick.lane()].get(usize::from(desc.interface)).copied().flatten();
                spread.meter_of(link, burst.frame(pick.index()))
            };
            workers[worker].picks.push(pick);
        }
    }
}

impl<'a> Place<'a> {
    fn new(hand: Hand<'a>, block: Block) -> Self {
        Place { hand, block, picks: Vec::with_capacity(CHUNK), since: None, told: Nanos::ZERO }
    }

    /// Whether the time went on, or back, since the worker was told.
    fn wants_to_know(&self, now: Nanos) -> bool {
        u128::from(now.0.abs_diff(self.told.0)) >= TELL.as_nanos()
    }

    /// Copies the frames of `picks`, handing over each block that is full.
    fn copy(&mut self, shelf: Shelf<'_>, whole: bool, behind: (&Arc<[Option<Link>]>, Nanos), now: Nanos) {
        let mut done = 0;
        while done < self.picks.len() {
            let mut cut = Cut { shelf, whole };
            done += self.block.gather(shelf.bursts, &self.picks[done..], &mut cut);
            if done < self.picks.len() {
                self.hand_over(behind.0, behind.1);
            }
        }
        if !self.block.is_empty() {
            self.since.get_or_insert(now);
        }
        self.picks.clear();
    }

    /// Hands the block over, even an empty one, with the time that has come.
    fn hand_over(&mut self, links: &Arc<[Option<Link>]>, now: Nanos) {
        (self.since, self.told) = (None, now);
        match &mut self.hand {
            Hand::Own(worker, records) => {
                worker.take(self.block.burst(), links, *records);
                worker.expire(now, *records);
                self.block.clear();
            }
            Hand::Hired(worker) => match worker.block() {
                Some(empty) => worker.take(std::mem::replace(&mut self.block, empty), links, now),
                None => self.block.clear(),
            },
        }
    }
}

/// Leaves of each frame what counts.
struct Cut<'a> {
    shelf: Shelf<'a>,
    whole: bool,
}

impl Finish for Cut<'_> {
    #[inline(always)]
    fn finish(&mut self, desc: &mut Desc, frame: &[u8], pick: Pick) -> bool {
        if desc.captured as usize > Spread::HEADERS && !self.whole && desc.captured <= desc.wire {
            let links = &self.shelf.links[pick.lane()];
            if Spread::is_plain(links.get(usize::from(desc.interface)).copied().flatten(), frame) {
                desc.captured = Spread::HEADERS as u32;
            }
        }
        let interface = self.shelf.maps[pick.lane()].get(usize::from(desc.interface)).copied();
        desc.interface = interface.unwrap_or_default();
        true
    }
}
