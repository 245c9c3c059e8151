//! Flow records.
//!
//! One lane and one worker: each burst goes to the meter as its queue shows it, and nothing is copied. Several lanes are put in
//! order first, since the packets of a flow may come over all of them. Several workers have a meter and a thread each and share
//! nothing: this thread copies frames, as a rule their headers, into blocks, whole flows to one worker
//! ([`Spread`](linerate_meter::Spread)). A single worker stays in this thread beside other consumers too: handing frames to another
//! thread costs as much as metering them.
//!
//! `worker`: a meter at work; `dispatch`: all of them, and the block that is filled for each; `time`: how far
//! time goes while no frame comes; `meters`: made before ports open.

mod dispatch;
mod meters;
pub mod watch;
mod worker;

pub use self::meters::Meters;
pub use self::worker::Load;

use self::dispatch::Dispatch;
use self::worker::{Shared, finish};
use crate::arrivals::Arrivals;
use crate::consumer::{Consumer, Demand, End, Look, Order, Round, Start};
use crate::control::Progress;
use crate::error::ReceiveError;
use crate::select::{Selection, Selector};
use linerate_burst::{Account, Count, Interface, Kind, Ledger, Nanos, Pick, Stage};
use linerate_meter::{Counts, Protocol, Records};
use linerate_wire::Link;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Meters what is selected.
pub struct Metering<R: Records + Send + 'static> {
    selector: Selector,
    /// Before the run.
    meters: Option<Meters>,
    work: Work<R>,
    records: Shared<R>,
    /// When frames came.
    arrivals: Arrivals,
    /// Frames handed to the meters, and their bytes.
    handed: (u64, u64),
    progress: Arc<Progress>,
    observed: Arc<Observed>,
    picks: Vec<Pick>,
    done: Metered,
}

/// Frames that no record tells of, as far as they are counted by now: for whoever tells others.
#[derive(Debug, Default)]
pub struct Observed {
    /// They were lost at the ports.
    pub lost: AtomicU64,
    /// They are no packets that can be metered.
    pub ignored: AtomicU64,
}

/// Who meters.
enum Work<R: Records + Send + 'static> {
    /// Nobody, before and after the run.
    None,
    /// This thread, the frames of one lane where they lie.
    InPlace(Box<worker::Metering<R>>),
    /// Workers with blocks, of frames in order.
    Dispatch(Box<Dispatch<R>>),
}

/// What was metered.
#[derive(Clone, Debug, Default)]
pub struct Metered {
    /// What was counted beside the flows.
    pub counts: Counts,
    /// Numbers of the link types that are not known, of the interfaces there were
    /// ([registry](https://www.tcpdump.org/linktypes.html)); their frames are counted apart.
    pub unknown_links: Vec<u16>,
    /// Frames whose time was 16 hours and more from what time it was by all others.
    pub far_frames: u64,
    /// How often most frames were suddenly of such a time, and all flows of before ended.
    pub time_jumps: u64,
    /// Bytes of memory for each flow, plain and wide ([`bytes_per_flow`](linerate_meter::Config::bytes_per_flow)).
    pub bytes_per_flow: [usize; 2],
    /// The most bytes of memory that all meters may take.
    pub most_bytes: usize,
    /// What each worker has done.
    pub workers: Vec<Load>,
    /// How long it took, up to the last record.
    pub elapsed: Duration,
}

impl<R: Records + Send + 'static> Metering<R> {
    /// Meters frames that are selected, whole ones, with a worker for each meter; `records` takes finished flows.
    pub fn new(meters: Meters, selection: Selection, records: R) -> Self {
        let done = Metered {
            bytes_per_flow: meters.config.bytes_per_flow(),
            most_bytes: meters.most_bytes(),
            ..Metered::default()
        };
        Metering {
            selector: Selector::new(Selection { slice: None, ..selection }),
            meters: Some(meters),
            work: Work::None,
            records: Arc::new(Mutex::new(records)),
            arrivals: Arrivals::default(),
            handed: (0, 0),
            progress: Progress::new(),
            observed: Arc::default(),
            picks: Vec::new(),
            done,
        }
    }

    /// Says there what it has done so far.
    pub fn progress(mut self, progress: Arc<Progress>) -> Self {
        self.progress = progress;
        self
    }

    /// Says there what no record tells of.
    pub fn observed(mut self, observed: Arc<Observed>) -> Self {
        self.observed = observed;
        self
    }

    /// What takes the records: to look at it while the run lasts. It is to be gone before [`done`](Metering::done).
    pub fn records(&self) -> Arc<Mutex<R>> {
        Arc::clone(&self.records)
    }

    /// What was metered, once the run is over, and what took the records.
    ///
    /// # Panics
    /// If a worker is still there: the run is not over.
    pub fn done(self) -> (Metered, R) {
        let records = Arc::into_inner(self.records).expect("all workers have ended");
        (self.done, records.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// What was counted so far; of workers as they have said last.
    fn counts(&self) -> Counts {
        match &self.work {
            Work::InPlace(metering) => *metering.meter.counts(),
            Work::Dispatch(dispatch) => dispatch.counts(),
            Work::None => self.done.counts,
        }
    }

    fn hand(&mut self, round: &Round<'_>) {
        let Metering { selector, work, picks, handed, arrivals, .. } = self;
        let frames = round.frames();
        arrivals.see(round);
        match work {
            Work::InPlace(metering) if selector.is_everything() => {
                selector.take_all(frames);
                metering.take(round.bursts[0], round.links[0]);
            }
            // As many at a time as lie behind one another.
            Work::InPlace(metering) => {
                for run in selector.choose(round, picks).chunk_by(|one, next| one.index() + 1 == next.index()) {
                    let first = run[0].index();
                    metering.take(round.bursts[0].slice(first..first + run.len()), round.links[0]);
                }
            }
            Work::Dispatch(dispatch) => {
                let (frames, bytes) = dispatch.take(round, selector.choose(round, picks));
                *handed = (handed.0 + frames, handed.1 + bytes);
            }
            Work::None => {}
        }
        if let Work::InPlace(metering) = work {
            let Counts { frames, bytes, .. } = *metering.meter.counts();
            *handed = (frames, bytes);
        }
    }

    /// No frame is there, and none that comes is older than `complete`.
    fn pause(&mut self, complete: Nanos, elapsed: Duration) {
        if complete == Nanos::MAX {
            return;
        }
        let now = self.arrivals.bound(complete, elapsed);
        match &mut self.work {
            Work::InPlace(metering) => metering.expire(now),
            Work::Dispatch(dispatch) => dispatch.pause(now, elapsed),
            Work::None => {}
        }
    }
}

impl<R: Records + Send + 'static> Consumer for Metering<R> {
    fn name(&self) -> &'static str {
        "flows"
    }

    fn order(&self) -> Order {
        Order::Merged
    }

    fn begin(&mut self, start: &Start) -> Result<(), ReceiveError> {
        let Some(mut meters) = self.meters.take() else { return Ok(()) };
        self.work = if meters.meters.len() == 1 && start.lanes.len() == 1 {
            let hears = meters.config.names.has(Protocol::Dns);
            Work::InPlace(Box::new(worker::Metering::new(meters.meters.remove(0), &self.records, true, hears)))
        } else {
            Work::Dispatch(Box::new(Dispatch::new(meters, &self.records)?))
        };
        Ok(())
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        let learned = self.selector.learn(round.interfaces);
        if round.frames() > 0 {
            self.hand(round);
        } else {
            self.pause(round.complete, round.elapsed);
        }
        learned
    }

    fn look(&mut self, look: &Look<'_>) {
        let (frames, bytes) = self.handed;
        self.progress.frames.store(frames, Ordering::Relaxed);
        self.progress.bytes.store(bytes, Ordering::Relaxed);
        self.progress.wire_bytes.store(bytes, Ordering::Relaxed);
        let lost = look.queues().lost();
        self.progress.lost.store(lost, Ordering::Relaxed);
        self.observed.lost.store(lost, Ordering::Relaxed);
        self.observed.ignored.store(self.counts().in_no_record().0, Ordering::Relaxed);
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Select, "");
        self.selector.counters(account);
        let selected = account.sum(Kind::Delivered);
        account_for(&self.counts(), selected, ledger.account(Stage::Meter, ""));
    }

    fn demand(&self) -> Demand {
        match &self.work {
            Work::Dispatch(dispatch) if dispatch.has_failed() => Demand::Failed,
            _ if self.selector.is_full() => Demand::Enough,
            _ => Demand::More,
        }
    }

    fn finish(&mut self, end: &mut End<'_>) {
        let mut died = end.died.take();
        let time = match &self.work {
            Work::InPlace(metering) => metering.meter.time().clone(),
            Work::Dispatch(dispatch) => dispatch.time().clone(),
            Work::None => Default::default(),
        };
        (self.done.far_frames, self.done.time_jumps) = (time.far_frames(), time.jumps());
        match std::mem::replace(&mut self.work, Work::None) {
            Work::InPlace(mut metering) => {
                let last = metering.meter.latest();
                died = finish(&mut metering, last, died);
                let (counts, load) = metering.done();
                (self.done.counts, self.done.workers) = (counts, vec![load]);
            }
            Work::Dispatch(dispatch) => (self.done.counts, self.done.workers, died) = dispatch.finish(died),
            Work::None => {}
        }
        self.selector.counters(end.ledger.account(Stage::Select, ""));
        let selected = end.ledger.account(Stage::Select, "").sum(Kind::Delivered);
        self.observed.ignored.store(self.done.counts.in_no_record().0, Ordering::Relaxed);
        let account = end.ledger.account(Stage::Meter, "");
        let frames = account_for(&self.done.counts, selected, account);
        if let Some(died) = died {
            account.add(Count::MeterDied, selected - frames);
            end.fail(died);
        }
        self.done.unknown_links = unknown_links(end.interfaces);
        self.done.elapsed = end.elapsed();
    }
}

/// What became of the selected frames; how many of them were metered.
fn account_for(counts: &Counts, selected: u64, account: &mut Account) -> u64 {
    let frames = counts.frames.min(selected);
    account.add(Count::MeterReceived, selected).add(Count::Metered, frames - counts.in_no_record().0.min(frames));
    account.add(Count::MeterUnknownLink, counts.unknown_link).add(Count::MeterNotIp, counts.not_ip);
    account.add(Count::MeterMalformed, counts.malformed);
    frames
}

/// Numbers of the link types that are not known, each once.
fn unknown_links(interfaces: &[Interface]) -> Vec<u16> {
    let numbers = interfaces.iter().map(|interface| interface.link.0);
    let unknown: BTreeSet<u16> = numbers.filter(|number| Link::from_linktype(*number).is_none()).collect();
    unknown.into_iter().collect()
}
