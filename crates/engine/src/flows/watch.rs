//! Looking at flows while they are metered, from another thread.
//!
//! Whoever looks leaves a number, as for [`metrics`](crate::metrics): each meter finds it when it is handed frames, or told the time, and
//! shows records that had a packet since the look before, some thousands of places at a time, between bursts. Records that end
//! meanwhile are noted as long as somebody has looked lately. A meter that nobody looks at does one load of a word for each burst.

use linerate_burst::Nanos;
use linerate_meter::{Flow, Glance, Meter, Records};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Places that are looked at between two bursts: some 20 us.
const PLACES: usize = 4096;
/// Records of a meter that one look has at the most; those beyond are counted. So many more may have ended.
const MOST: usize = 1 << 18;
/// Ended records are noted for so long after somebody has looked.
const LATELY: Duration = Duration::from_secs(5);
/// A packet may be this much older than one before it, and is still seen by a look.
const LATE: Duration = Duration::from_millis(100);

/// Whether anybody will look.
static IS_WANTED: AtomicBool = AtomicBool::new(false);
/// The meters of this process.
static METERS: Mutex<Vec<Arc<Shown>>> = Mutex::new(Vec::new());

/// What meters show.
#[derive(Debug, Default)]
pub struct Look {
    /// Records with a packet since the look before, those that have ended among them; of the first look all.
    pub flows: Vec<Glance>,
    /// How many more of these there were, beyond 262,144 of a meter.
    pub left_out: u64,
    /// Records that go on.
    pub open: u64,
    /// Records begun since the run began.
    pub begun: u64,
    /// The time of the last packet when this look began, or a little before.
    pub at: Nanos,
    /// How many meters there are.
    pub meters: usize,
}

#[derive(Default)]
struct Shown {
    /// How often somebody has looked.
    asked: AtomicU64,
    answer: Mutex<Answer>,
    is_answered: Condvar,
}

/// To which of the questions it is.
#[derive(Default)]
struct Answer {
    to: u64,
    look: Look,
}

/// Meters that begin from now on can be looked at.
pub fn want() {
    IS_WANTED.store(true, Ordering::Relaxed);
}

/// Looks at all meters. One that does not answer within `patience` shows the rest at the next look. One thread looks: what it has been
/// shown nobody else is.
pub fn look(patience: Duration) -> Look {
    let began = Instant::now();
    let meters = lock(&METERS).clone();
    let asked: Vec<u64> = meters.iter().map(|meter| meter.asked.fetch_add(1, Ordering::Relaxed) + 1).collect();
    let mut all = Look { meters: meters.len(), ..Look::default() };
    for (meter, asked) in meters.iter().zip(asked) {
        let left = patience.saturating_sub(began.elapsed());
        let waited = meter.is_answered.wait_timeout_while(lock(&meter.answer), left, |answer| answer.to < asked);
        let mut answer = waited.unwrap_or_else(PoisonError::into_inner).0;
        let Look { flows, left_out, .. } = &mut answer.look;
        all.flows.append(flows);
        all.left_out += std::mem::take(left_out);
        all.open += answer.look.open;
        all.begun += answer.look.begun;
        all.at = all.at.max(answer.look.at);
    }
    all
}

/// The side of a meter.
pub(super) struct Watch {
    shown: Option<Arc<Shown>>,
    answered: u64,
    /// The question that is being answered, and where.
    walk: Option<(u64, usize)>,
    /// Records that go on and were seen, and those that ended.
    flows: Vec<Glance>,
    left_out: u64,
    /// Packets of this time and later have not been seen by a look.
    since: Nanos,
    next_since: Nanos,
    until: Option<Instant>,
}

impl Watch {
    /// A meter begins.
    pub fn new() -> Self {
        let shown = IS_WANTED.load(Ordering::Relaxed).then(Arc::<Shown>::default);
        lock(&METERS).extend(shown.clone());
        Watch {
            shown,
            answered: 0,
            walk: None,
            flows: Vec::new(),
            left_out: 0,
            since: Nanos::ZERO,
            next_since: Nanos::ZERO,
            until: None,
        }
    }

    /// Has `work` done by the meter, which notes the records that end if somebody looks.
    pub fn note(&mut self, work: impl FnOnce(&mut dyn Records), records: &mut dyn Records) {
        match self.until {
            None => work(records),
            Some(_) => work(&mut Noting { watch: self, records }),
        }
    }

    /// Shows some records, if somebody looks.
    #[inline]
    pub fn show(&mut self, meter: &Meter, now: Instant) {
        let Some(shown) = &self.shown else { return };
        let asked = shown.asked.load(Ordering::Relaxed);
        if asked != self.answered {
            self.go_on(meter, asked, now);
        } else if self.until.is_some_and(|until| until < now) {
            (self.until, self.flows, self.left_out) = (None, Vec::new(), 0);
        }
    }

    fn go_on(&mut self, meter: &Meter, asked: u64, now: Instant) {
        let (question, place) = *self.walk.get_or_insert_with(|| {
            self.next_since = meter.latest().before(LATE);
            self.until = Some(now + LATELY);
            (asked, 0)
        });
        let (flows, left_out) = (&mut self.flows, &mut self.left_out);
        let next = meter.glance(place, PLACES, self.since, |glance| put(flows, left_out, 2 * MOST, || glance));
        self.walk = next.map(|place| (question, place));
        if next.is_some() {
            return;
        }
        (self.answered, self.since) = (question, self.next_since);
        let Some(shown) = &self.shown else { return };
        let mut answer = lock(&shown.answer);
        // What came too late for the look before goes with this one.
        if answer.look.flows.len() > MOST {
            answer.look.left_out += std::mem::take(&mut answer.look.flows).len() as u64;
        }
        answer.look.flows.append(&mut self.flows);
        answer.look.left_out += std::mem::take(&mut self.left_out);
        (answer.look.open, answer.look.begun) = (meter.open_flows(), meter.counts().begun);
        answer.look.at = self.since;
        answer.to = question;
        shown.is_answered.notify_all();
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(shown) = self.shown.take() {
            lock(&METERS).retain(|other| !Arc::ptr_eq(other, &shown));
            lock(&shown.answer).to = u64::MAX;
            shown.is_answered.notify_all();
        }
    }
}

struct Noting<'a> {
    watch: &'a mut Watch,
    records: &'a mut dyn Records,
}

impl Records for Noting<'_> {
    fn take(&mut self, flow: &Flow) {
        put(&mut self.watch.flows, &mut self.watch.left_out, MOST, || Glance::of(flow));
        self.records.take(flow);
    }
}

fn put(flows: &mut Vec<Glance>, left_out: &mut u64, most: usize, glance: impl FnOnce() -> Glance) {
    if flows.len() < most { flows.push(glance()) } else { *left_out += 1 }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
