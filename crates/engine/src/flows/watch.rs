//! Reading open flows from another thread.
//!
//! A reader increments a request number, as for [`metrics`](crate::metrics): each meter sees it when it receives frames
//! or a time update, and publishes records that had a packet since the last look, some thousands of slots at a time,
//! between bursts. Records that end are noted if there was a recent look. A meter without readers does one load per
//! burst.

use linerate_burst::Nanos;
use linerate_meter::{ActiveFlow, Flow, Meter, Records};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Number of slots scanned between two bursts: about 20 us.
const PLACES: usize = 4096;
/// Maximum number of records of a meter in one look; those beyond are counted. Half of it is reserved for those with
/// many packets.
const MOST: usize = 1 << 17;
/// Time after a look during which ended records are noted.
const LATELY: Duration = Duration::from_secs(5);
/// Maximum age of a packet before its predecessor for a look to include it.
const LATE: Duration = Duration::from_millis(100);

/// True if flows will be read.
static IS_WANTED: AtomicBool = AtomicBool::new(false);
/// Meters of this process.
static METERS: Mutex<Vec<Arc<SnapshotSlot>>> = Mutex::new(Vec::new());

/// Records published by meters.
#[derive(Debug, Default)]
pub struct FlowSnapshot {
    /// Records with a packet since the last look, including those that have ended; all in the first look.
    pub flows: Vec<ActiveFlow>,
    /// Number of further records, beyond 131,072 of a meter.
    pub left_out: u64,
    /// Number of open records.
    pub open: u64,
    /// Number of records created since the start of the run.
    pub begun: u64,
    /// Time of the last packet when this look started, or a little before.
    pub at: Nanos,
    /// Number of meters.
    pub meters: usize,
}

#[derive(Default)]
struct SnapshotSlot {
    /// Number of requests.
    asked: AtomicU64,
    answer: Mutex<SnapshotAnswer>,
    is_answered: Condvar,
}

/// Number of the request that is answered, and the records.
#[derive(Default)]
struct SnapshotAnswer {
    to: u64,
    look: FlowSnapshot,
}

/// Enables reading of meters that start later.
pub fn want() {
    IS_WANTED.store(true, Ordering::Relaxed);
}

/// Reads all meters. One that does not answer within `patience` publishes the rest in the next look. Only one thread
/// may read: records are published once.
pub fn look(patience: Duration) -> FlowSnapshot {
    let began = Instant::now();
    let meters = lock(&METERS).clone();
    let asked: Vec<u64> = meters.iter().map(|meter| meter.asked.fetch_add(1, Ordering::Relaxed) + 1).collect();
    let mut all = FlowSnapshot { meters: meters.len(), ..FlowSnapshot::default() };
    for (meter, asked) in meters.iter().zip(asked) {
        let left = patience.saturating_sub(began.elapsed());
        let waited = meter.is_answered.wait_timeout_while(lock(&meter.answer), left, |answer| answer.to < asked);
        let mut answer = waited.unwrap_or_else(PoisonError::into_inner).0;
        let FlowSnapshot { flows, left_out, .. } = &mut answer.look;
        all.flows.append(flows);
        all.left_out += std::mem::take(left_out);
        all.open += answer.look.open;
        all.begun += answer.look.begun;
        all.at = all.at.max(answer.look.at);
    }
    all
}

/// A meter's side of the reads.
pub struct FlowWatch {
    shown: Option<Arc<SnapshotSlot>>,
    answered: u64,
    /// Request that is being answered, and the position of the scan.
    walk: Option<(u64, usize)>,
    /// Open records scanned so far, and those that ended.
    flows: Vec<ActiveFlow>,
    left_out: u64,
    /// Time from which packets have not been in a look.
    since: Nanos,
    next_since: Nanos,
    until: Option<Instant>,
    /// Packet count above which records may use all of the capacity: increased each time that it was insufficient.
    many: u64,
}

impl Default for FlowWatch {
    fn default() -> Self {
        FlowWatch::new()
    }
}

impl FlowWatch {
    /// Registers a meter; it can be read if [enabled](want).
    pub fn new() -> Self {
        let shown = IS_WANTED.load(Ordering::Relaxed).then(Arc::<SnapshotSlot>::default);
        lock(&METERS).extend(shown.clone());
        FlowWatch {
            shown,
            answered: 0,
            walk: None,
            flows: Vec::new(),
            left_out: 0,
            since: Nanos::ZERO,
            next_since: Nanos::ZERO,
            until: None,
            many: 1,
        }
    }

    /// Runs `work` on the meter, and notes the records that end if there was a recent look.
    pub fn note(&mut self, work: impl FnOnce(&mut dyn Records), records: &mut dyn Records) {
        match self.until {
            None => work(records),
            Some(_) => work(&mut RecordTee { watch: self, records }),
        }
    }

    /// Publishes some records, if requested.
    #[inline]
    pub fn show(&mut self, meter: &Meter, now: Instant) {
        let Some(shown) = &self.shown else { return };
        let asked = shown.asked.load(Ordering::Relaxed);
        if asked != self.answered {
            self.go_on(meter, asked, now);
        } else if self.until.is_some_and(|until| until < now) {
            (self.until, self.flows, self.left_out, self.many) = (None, Vec::new(), 0, 1);
        }
    }

    fn go_on(&mut self, meter: &Meter, asked: u64, now: Instant) {
        let (question, place) = *self.walk.get_or_insert_with(|| {
            self.next_since = meter.time().now().before(LATE);
            self.until = Some(now + LATELY);
            (asked, 0)
        });
        let (flows, left_out, many) = (&mut self.flows, &mut self.left_out, self.many);
        let next = meter.glance(place, PLACES, self.since, |packets, glance| {
            put(flows, left_out, if packets < many { MOST / 2 } else { MOST }, glance);
        });
        self.walk = next.map(|place| (question, place));
        if next.is_some() {
            return;
        }
        (self.answered, self.since) = (question, self.next_since);
        if self.flows.len() >= MOST {
            self.many = self.many.saturating_mul(2);
        }
        let Some(shown) = &self.shown else { return };
        let mut answer = lock(&shown.answer);
        // Records too late for the last look are part of this one.
        if answer.look.flows.len() > MOST {
            answer.look.left_out += std::mem::take(&mut answer.look.flows).len() as u64;
        }
        if answer.look.flows.is_empty() {
            // Buffers are swapped back and forth, since new memory of a process must be cleared first.
            std::mem::swap(&mut answer.look.flows, &mut self.flows);
        }
        answer.look.flows.append(&mut self.flows);
        answer.look.left_out += std::mem::take(&mut self.left_out);
        (answer.look.open, answer.look.begun) = (meter.open_flows(), meter.counts().begun);
        answer.look.at = self.since;
        answer.to = question;
        shown.is_answered.notify_all();
    }
}

impl Drop for FlowWatch {
    fn drop(&mut self) {
        if let Some(shown) = self.shown.take() {
            lock(&METERS).retain(|other| !Arc::ptr_eq(other, &shown));
            lock(&shown.answer).to = u64::MAX;
            shown.is_answered.notify_all();
        }
    }
}

struct RecordTee<'a> {
    watch: &'a mut FlowWatch,
    records: &'a mut dyn Records,
}

impl Records for RecordTee<'_> {
    fn take(&mut self, flow: &Flow) {
        put(&mut self.watch.flows, &mut self.watch.left_out, MOST / 2, || ActiveFlow::of(flow));
        self.records.take(flow);
    }
}

fn put(flows: &mut Vec<ActiveFlow>, left_out: &mut u64, most: usize, glance: impl FnOnce() -> ActiveFlow) {
    if flows.len() < most { flows.push(glance()) } else { *left_out += 1 }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_burst::{Burst, Desc, TAIL};
    use linerate_headers::{Link, ethernet};
    use linerate_meter::Config;

    /// Number of flows, above the capacity of a look.
    const FLOWS: u32 = MOST as u32 + 50_000;
    const SIZE: usize = 42;

    /// Builds one UDP packet per flow, in order.
    fn packets(of: impl Iterator<Item = u32>, time: u64) -> (Vec<u8>, Vec<Desc>) {
        let (mut memory, mut descs) = (Vec::new(), Vec::new());
        for flow in of {
            let mut frame = [0; SIZE];
            frame[12..14].copy_from_slice(&ethernet::IPV4.to_be_bytes());
            frame[14..24].copy_from_slice(&[0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17]);
            frame[26..30].copy_from_slice(&flow.to_be_bytes());
            frame[30..40].copy_from_slice(&[10, 0, 0, 1, 4, 0, 0, 53, 0, 8]);
            descs.push(Desc::new(Nanos(time), memory.len() as u32, SIZE as u32));
            memory.extend_from_slice(&frame);
        }
        memory.resize(memory.len() + TAIL, 0);
        (memory, descs)
    }

    #[test]
    fn heavy_flows_are_kept_when_the_table_is_full() {
        want();
        let config = Config { max_flows: 1 << 19, ..Config::default() };
        let (mut meter, mut watch) = (Meter::new(&config), FlowWatch::new());
        let mut seen = Vec::new();
        for round in 1..=3 {
            // The last flow has as many packets in each round as others in three.
            let of = (0..FLOWS).chain([FLOWS; 5]);
            let (memory, descs) = packets(of, (100 + round) * 1_000_000_000);
            let burst = Burst::over(&memory, &descs).unwrap();
            watch.note(|records| meter.take(burst, &[Some(Link::Ethernet)], records), &mut |_: &Flow| {});
            let asked = std::thread::spawn(|| look(Duration::from_secs(60)));
            while !asked.is_finished() {
                watch.show(&meter, Instant::now());
            }
            let look = asked.join().unwrap();
            assert_eq!(look.flows.len() as u64 + look.left_out, u64::from(FLOWS) + 1, "each is counted");
            assert!((MOST / 2..=MOST).contains(&look.flows.len()));
            seen.push(look.flows.iter().any(|glance| glance.packets[0] == 5 * round));
        }
        assert_eq!(seen, [false, false, true]);
    }
}
