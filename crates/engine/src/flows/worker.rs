//! A meter that works on blocks, in any thread.

use super::watch::FlowWatch;
use crate::thread_panic::{ThreadPanic, survive};
use crate::worker::Work;
use linerate_burst::{Block, Burst, Nanos};
use linerate_headers::Link;
use linerate_meter::{Counts, DnsAnswer, Flow, Meter, Records};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Work of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Frames received.
    pub frames: u64,
    /// Bytes on the wire without FCS.
    pub bytes: u64,
    /// Number of records created.
    pub flows: u64,
    /// Time spent metering; the rest of the run it waited for frames.
    pub busy: Duration,
}

/// Receiver of the records of all workers, locked by one at a time.
pub(super) type SharedRecords = Arc<Mutex<dyn Records + Send>>;

/// Maximum number of records passed on at once, if there are several workers.
const RECORDS: usize = 256;

/// Meters frames, and measures the time spent.
pub(super) struct MeterWorker {
    pub meter: Meter,
    /// True if DNS answers are used.
    reads_dns: bool,
    busy: Duration,
    records: SharedRecords,
    /// Buffer for records that reduces lock contention; `None` for a sole worker.
    batch: Option<Vec<Flow>>,
    watch: FlowWatch,
    /// Published counters, for another thread.
    shown: Option<Arc<Mutex<Counts>>>,
}

impl MeterWorker {
    pub(super) fn new(meter: Meter, records: &SharedRecords, is_sole: bool, reads_dns: bool) -> Self {
        let batch = (!is_sole).then(|| Vec::with_capacity(RECORDS));
        let (records, watch) = (Arc::clone(records), FlowWatch::new());
        MeterWorker { meter, reads_dns, busy: Duration::ZERO, records, batch, watch, shown: None }
    }

    /// Publishes its counters in `shown`.
    pub(super) fn showing(mut self, shown: &Arc<Mutex<Counts>>) -> Self {
        self.shown = Some(Arc::clone(shown));
        self
    }

    /// Meters all frames of a burst in place.
    pub(super) fn take(&mut self, burst: Burst<'_>, links: &[Option<Link>]) {
        if self.reads_dns {
            for (desc, frame) in burst.iter() {
                let link = links.get(usize::from(desc.interface)).copied().flatten();
                DnsAnswer::of(link, desc.time, frame).into_iter().for_each(|answer| self.meter.add_dns_answer(answer));
            }
        }
        self.meter(|meter, records| meter.take(burst, links, records));
    }

    /// Expires idle flows at `now`, even without frames.
    pub(super) fn expire(&mut self, now: Nanos) {
        self.meter(|meter, records| meter.expire(now, records));
    }

    /// Ends all flows; `last` is the time of the last frame of the run.
    pub(super) fn finish(&mut self, last: Nanos) {
        self.meter(|meter, records| meter.finish(last, records));
    }

    /// Returns its counters and work.
    pub(super) fn done(&self) -> (Counts, Load) {
        let counts = *self.meter.counts();
        let Counts { frames, bytes, begun: flows, .. } = counts;
        (counts, Load { frames, bytes, flows, busy: self.busy })
    }

    fn meter(&mut self, work: impl FnOnce(&mut Meter, &mut dyn Records)) {
        let MeterWorker { meter, records, batch, watch, .. } = self;
        let began = Instant::now();
        let work = |records: &mut dyn Records| work(meter, records);
        match batch {
            None => watch.note(work, &mut *lock(records)),
            Some(flows) => {
                let mut batch = Batch { flows, records };
                watch.note(work, &mut batch);
                batch.hand_over();
            }
        }
        watch.show(meter, began);
        if let Some(shown) = &self.shown {
            *lock(shown) = *meter.counts();
        }
        self.busy += began.elapsed();
    }
}

impl Work for MeterWorker {
    /// Link type of each interface, the packet time after the frames, and the DNS answers among all frames up to the
    /// last of these.
    type With = (Arc<[Option<Link>]>, Nanos, Vec<DnsAnswer>);
    /// Time of the last frame of the run.
    type Last = Nanos;

    fn take(&mut self, block: &Block, (links, now, answers): Self::With) {
        self.meter(|meter, records| {
            answers.into_iter().for_each(|answer| meter.add_dns_answer(answer));
            meter.take(block.burst(), &links, records);
            meter.expire(now, records);
        });
    }

    fn end(&mut self, last: Nanos) {
        self.finish(last);
    }
}

/// Ends all flows of a meter that has not panicked; returns its panic, if any.
pub(super) fn finish(metering: &mut MeterWorker, last: Nanos, died: Option<ThreadPanic>) -> Option<ThreadPanic> {
    died.or_else(|| survive(|| metering.finish(last)).err())
}

pub(super) fn lock<T: ?Sized>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Batch<'a> {
    flows: &'a mut Vec<Flow>,
    records: &'a SharedRecords,
}

impl Batch<'_> {
    fn hand_over(&mut self) {
        if !self.flows.is_empty() {
            let mut records = lock(self.records);
            self.flows.iter().for_each(|flow| records.take(flow));
            drop(records);
            self.flows.clear();
        }
    }
}

impl Records for Batch<'_> {
    fn take(&mut self, flow: &Flow) {
        self.flows.push(flow.clone());
        if self.flows.len() == RECORDS {
            self.hand_over();
        }
    }
}
