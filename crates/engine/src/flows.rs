//! Flow records.
//!
//! One lane and one worker: each burst is passed to the meter as its queue returns it, and nothing is copied. Several
//! lanes are ordered first, since the packets of a flow may arrive on all of them. Several workers have a meter and a
//! thread each and share nothing: this thread copies frames, usually their headers, into blocks, whole flows to one
//! worker ([`FlowDistributor`](linerate_meter::FlowDistributor)). A single worker stays in this thread even with other consumers: passing
//! frames to another thread costs as much as metering them.
//!
//! `worker`: a meter at work; `dispatch`: all of them, and the block that is filled for each; `meters`: allocated
//! before ports open; `watch`: reading open flows from another thread.

mod dispatch;
mod meters;
pub mod watch;
mod worker;

pub use self::meters::Meters;
pub use self::worker::Load;

use self::dispatch::Dispatch;
use self::worker::{SharedRecords, finish};
use crate::arrival_times::Arrivals;
use crate::consumer::{Consumer, Demand, FrameOrder, Round, RunCounters, RunEnd, RunStart};
use crate::control::Progress;
use crate::error::ReceiveError;
use crate::select::{Selection, Selector};
use linerate_burst::{Account, Count, FrameIndex, Interface, Kind, Ledger, Nanos, Stage};
use linerate_headers::Link;
use linerate_meter::{Counts, Protocol, Records};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Meters selected frames.
pub struct MeterConsumer<R: Records + Send + 'static> {
    selector: Selector,
    /// Meters before the run.
    meters: Option<Meters>,
    work: MeteringThreads,
    records: Arc<Mutex<R>>,
    /// Arrival times of frames.
    arrivals: Arrivals,
    /// Frames passed to the meters, and their bytes.
    handed: (u64, u64),
    progress: Arc<Progress>,
    observed: Arc<UnmeteredCounters>,
    picks: Vec<FrameIndex>,
    done: MeteringReport,
}

/// Counts so far of frames that are in no record, for exporters.
#[derive(Debug, Default)]
pub struct UnmeteredCounters {
    /// Frames lost at the ports.
    pub lost: AtomicU64,
    /// Frames that are not packets that can be metered.
    pub ignored: AtomicU64,
}

/// Threads that meter.
enum MeteringThreads {
    /// None, before and after the run.
    None,
    /// This thread, for the frames of one lane in place.
    InPlace(Box<worker::MeterWorker>),
    /// Workers with blocks, for ordered frames.
    Dispatch(Box<Dispatch>),
}

/// Result of metering.
#[derive(Clone, Debug, Default)]
pub struct MeteringReport {
    /// Counters in addition to the flows.
    pub counts: Counts,
    /// Unknown link type numbers of the interfaces ([registry](https://www.tcpdump.org/linktypes.html)); their frames
    /// are counted separately.
    pub unknown_links: Vec<u16>,
    /// Frames whose time was 16 hours or more from that of all others.
    pub far_frames: u64,
    /// Number of jumps of most frames to such a time, at which all open flows ended.
    pub time_jumps: u64,
    /// Memory for each flow in bytes, plain and wide ([`bytes_per_flow`](linerate_meter::Config::bytes_per_flow)).
    pub bytes_per_flow: [usize; 2],
    /// Upper bound of the memory of all meters, in bytes.
    pub most_bytes: usize,
    /// Load of each worker.
    pub workers: Vec<Load>,
    /// Duration, up to the last record.
    pub elapsed: Duration,
}

impl<R: Records + Send + 'static> MeterConsumer<R> {
    /// Meters selected frames, without the slice, with a worker for each meter; `records` takes finished flows.
    pub fn new(meters: Meters, selection: Selection, records: R) -> Self {
        let done = MeteringReport {
            bytes_per_flow: meters.config.bytes_per_flow(),
            most_bytes: meters.most_bytes(),
            ..MeteringReport::default()
        };
        MeterConsumer {
            selector: Selector::new(Selection { slice: None, ..selection }),
            meters: Some(meters),
            work: MeteringThreads::None,
            records: Arc::new(Mutex::new(records)),
            arrivals: Arrivals::default(),
            handed: (0, 0),
            progress: Progress::new(),
            observed: Arc::default(),
            picks: Vec::new(),
            done,
        }
    }

    /// Publishes the totals in `progress`.
    pub fn progress(mut self, progress: Arc<Progress>) -> Self {
        self.progress = progress;
        self
    }

    /// Publishes the counts of frames without a record in `observed`.
    pub fn observed(mut self, observed: Arc<UnmeteredCounters>) -> Self {
        self.observed = observed;
        self
    }

    /// Returns the receiver of the records, for reading during the run. It must be dropped before
    /// [`done`](MeterConsumer::done).
    pub fn records(&self) -> Arc<Mutex<R>> {
        Arc::clone(&self.records)
    }

    /// Returns the result after the run, and the receiver of the records.
    ///
    /// # Panics
    /// If a worker still exists: the run is not over.
    pub fn done(self) -> (MeteringReport, R) {
        let records = Arc::into_inner(self.records).expect("all workers have ended");
        (self.done, records.into_inner().unwrap_or_else(PoisonError::into_inner))
    }
}

impl MeteringThreads {
    /// Returns the counters so far; of workers as last published.
    fn counts(&self) -> Option<Counts> {
        match self {
            MeteringThreads::InPlace(metering) => Some(*metering.meter.counts()),
            MeteringThreads::Dispatch(dispatch) => Some(dispatch.counts()),
            MeteringThreads::None => None,
        }
    }

    /// Meters the selected frames of a round, and adds them to `handed`.
    fn take(
        &mut self,
        round: &Round<'_>,
        selector: &mut Selector,
        picks: &mut Vec<FrameIndex>,
        handed: &mut (u64, u64),
    ) {
        match self {
            MeteringThreads::InPlace(metering) if selector.is_everything() => {
                selector.take_all(round.frames());
                metering.take(round.bursts[0], round.links[0]);
            }
            // Adjacent frames are passed together.
            MeteringThreads::InPlace(metering) => {
                for run in selector.choose(round, picks).chunk_by(|one, next| one.index() + 1 == next.index()) {
                    let first = run[0].index();
                    metering.take(round.bursts[0].slice(first..first + run.len()), round.links[0]);
                }
            }
            MeteringThreads::Dispatch(dispatch) => {
                let (frames, bytes) = dispatch.take(round, selector.choose(round, picks));
                *handed = (handed.0 + frames, handed.1 + bytes);
            }
            MeteringThreads::None => {}
        }
        if let MeteringThreads::InPlace(metering) = self {
            let Counts { frames, bytes, .. } = *metering.meter.counts();
            *handed = (frames, bytes);
        }
    }

    /// Handles a round without frames; later frames are not older than `now`.
    fn pause(&mut self, now: Nanos, elapsed: Duration) {
        match self {
            MeteringThreads::InPlace(metering) => metering.expire(now),
            MeteringThreads::Dispatch(dispatch) => dispatch.pause(now, elapsed),
            MeteringThreads::None => {}
        }
    }
}

impl<R: Records + Send + 'static> Consumer for MeterConsumer<R> {
    fn name(&self) -> &'static str {
        "flows"
    }

    fn order(&self) -> FrameOrder {
        FrameOrder::Merged
    }

    fn begin(&mut self, start: &RunStart) -> Result<(), ReceiveError> {
        let Some(mut meters) = self.meters.take() else { return Ok(()) };
        let records: SharedRecords = self.records.clone();
        self.work = if meters.meters.len() == 1 && start.lanes.len() == 1 {
            let reads_dns = meters.config.names.has(Protocol::Dns);
            MeteringThreads::InPlace(Box::new(worker::MeterWorker::new(
                meters.meters.remove(0),
                &records,
                true,
                reads_dns,
            )))
        } else {
            MeteringThreads::Dispatch(Box::new(Dispatch::new(meters, &records)?))
        };
        Ok(())
    }

    fn take(&mut self, round: &mut Round<'_>) -> Result<(), ReceiveError> {
        let learned = self.selector.learn(round.interfaces);
        if round.frames() > 0 {
            self.arrivals.see(round);
            self.work.take(round, &mut self.selector, &mut self.picks, &mut self.handed);
        } else if round.complete != Nanos::MAX {
            self.work.pause(self.arrivals.bound(round.complete, round.elapsed), round.elapsed);
        }
        learned
    }

    fn look(&mut self, look: &RunCounters<'_>) {
        let (frames, bytes) = self.handed;
        self.progress.frames.store(frames, Ordering::Relaxed);
        self.progress.bytes.store(bytes, Ordering::Relaxed);
        self.progress.wire_bytes.store(bytes, Ordering::Relaxed);
        let lost = look.queues().lost();
        self.progress.lost.store(lost, Ordering::Relaxed);
        self.observed.lost.store(lost, Ordering::Relaxed);
        self.observed.ignored.store(self.work.counts().unwrap_or(self.done.counts).in_no_record().0, Ordering::Relaxed);
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Select, "");
        self.selector.counters(account);
        let selected = account.sum(Kind::Delivered);
        account_for(&self.work.counts().unwrap_or(self.done.counts), selected, ledger.account(Stage::Meter, ""));
    }

    fn demand(&self) -> Demand {
        match &self.work {
            MeteringThreads::Dispatch(dispatch) if dispatch.has_failed() => Demand::Failed,
            _ if self.selector.is_full() => Demand::Enough,
            _ => Demand::More,
        }
    }

    fn finish(&mut self, end: &mut RunEnd<'_>) {
        let mut died = end.died.take();
        let time = match &self.work {
            MeteringThreads::InPlace(metering) => metering.meter.time().clone(),
            MeteringThreads::Dispatch(dispatch) => dispatch.time().clone(),
            MeteringThreads::None => Default::default(),
        };
        (self.done.far_frames, self.done.time_jumps) = (time.far_frames(), time.jumps());
        match std::mem::replace(&mut self.work, MeteringThreads::None) {
            MeteringThreads::InPlace(mut metering) => {
                let last = metering.meter.latest();
                died = finish(&mut metering, last, died);
                let (counts, load) = metering.done();
                (self.done.counts, self.done.workers) = (counts, vec![load]);
            }
            MeteringThreads::Dispatch(dispatch) => (self.done.counts, self.done.workers, died) = dispatch.finish(died),
            MeteringThreads::None => {}
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

/// Accounts for the selected frames; returns how many were metered.
fn account_for(counts: &Counts, selected: u64, account: &mut Account) -> u64 {
    let frames = counts.frames.min(selected);
    account.add(Count::MeterReceived, selected).add(Count::Metered, frames - counts.in_no_record().0.min(frames));
    account.add(Count::MeterUnknownLink, counts.unknown_link).add(Count::MeterNotIp, counts.not_ip);
    account.add(Count::MeterMalformed, counts.malformed);
    frames
}

/// Returns the unknown link type numbers, each once.
fn unknown_links(interfaces: &[Interface]) -> Vec<u16> {
    let numbers = interfaces.iter().map(|interface| interface.link.0);
    let unknown: BTreeSet<u16> = numbers.filter(|number| Link::from_linktype(*number).is_none()).collect();
    unknown.into_iter().collect()
}
