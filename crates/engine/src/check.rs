//! Ports -> order -> the account of streams with trailers, in one thread.
//!
//! Nothing is copied. One lane is taken as it shows its frames. Several lanes are merged by time first, or the order in which they
//! are looked at would pass for reordering on the way.

use crate::capture::{CaptureError, learn};
use crate::control::Stop;
use crate::died::survive;
use crate::lanes::{Lanes, Shown, Table, recycle};
use crate::rounds::{Round, Rounds};
use crate::select::{Selection, Selector};
use crate::wait::Waiting;
use linerate_burst::{Burst, Interface, Ledger, Nanos, Pick, Stage};
use linerate_generate::check::{Check, Totals};
use linerate_merge::{Input, Merge};
use linerate_port::RxPort;
use linerate_wire::Link;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What to check.
pub struct Checking {
    /// Where frames come from.
    pub ports: Vec<RxPort>,
    /// The account, empty or not.
    pub check: Check,
    /// Which frames to look at; the slice means nothing here.
    pub selection: Selection,
    /// How to wait for frames.
    pub waiting: Waiting,
    /// After how long to stop.
    pub duration: Option<Duration>,
    /// Ends the run when requested.
    pub stop: Stop,
    /// What was counted so far.
    pub watch: CheckWatch,
}

/// What a run has seen.
#[derive(Debug)]
pub struct CheckReport {
    /// The account of streams.
    pub check: Check,
    /// Every frame of the ports accounted for: what they lost themselves was not lost on the way.
    pub ledger: Ledger,
    /// The interfaces, which say who took the times of frames.
    pub interfaces: Vec<Interface>,
    /// How long the run took.
    pub elapsed: Duration,
    /// Whether all queues ran dry, so that all is exact.
    pub quiesced: bool,
    /// What was noteworthy, in order.
    pub events: Vec<String>,
    /// What went wrong, if anything; what was counted before is complete.
    pub failure: Option<CaptureError>,
}

/// A look at a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckLook {
    /// How long the run had taken then.
    pub elapsed: Duration,
    /// What was counted.
    pub totals: Totals,
    /// Streams with trailers.
    pub streams: u64,
    /// Frames that the ports lost.
    pub lost_by_port: u64,
}

/// Lets another thread see a run, as it was at most about a tenth of a second ago. The run never waits for a reader.
#[derive(Clone, Debug, Default)]
pub struct CheckWatch(Arc<Watched>);

#[derive(Debug, Default)]
struct Watched {
    look: Mutex<CheckLook>,
    /// Frames with trailers, and of streams without, at the end of the last round.
    ours: AtomicU64,
}

impl CheckWatch {
    /// Nothing counted yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// What was counted.
    pub fn look(&self) -> CheckLook {
        *self.0.look.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many frames were ours, at the end of the last round.
    pub fn ours(&self) -> u64 {
        self.0.ours.load(Ordering::Relaxed)
    }

    fn show(&self, look: CheckLook) {
        if let Ok(mut shown) = self.0.look.try_lock() {
            *shown = look;
        }
    }
}

impl Checking {
    /// Checks one port until somebody stops it, all frames.
    pub fn port(port: RxPort, check: Check) -> Self {
        Checking {
            ports: vec![port],
            check,
            selection: Selection::default(),
            waiting: Waiting::Adaptive,
            duration: None,
            stop: Stop::new(),
            watch: CheckWatch::new(),
        }
    }

    /// Checks until every port has ended, a limit is reached, or stopping is requested.
    pub fn run(self) -> CheckReport {
        let mut session = Session::new(self);
        if let Err(died) = survive(|| while session.round() {}) {
            session.failure.get_or_insert(died.into());
        }
        session.finish()
    }
}

/// A check in a thread of its own, beside whoever sends.
#[derive(Debug)]
pub struct Checker {
    stop: Stop,
    watch: CheckWatch,
    thread: JoinHandle<CheckReport>,
}

/// How often a checker that is to end looks whether frames still come.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl Checker {
    /// Starts the thread. Frames are taken from now on, so the sender may begin.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub fn start(checking: Checking) -> std::io::Result<Self> {
        let (stop, watch) = (checking.stop.clone(), checking.watch.clone());
        let thread = thread::Builder::new().name("check".into()).spawn(move || checking.run())?;
        Ok(Checker { stop, watch, thread })
    }

    /// To see what was counted so far.
    pub fn watch(&self) -> &CheckWatch {
        &self.watch
    }

    /// Ends the check once so long nothing of ours came, or `sent` frames did, and at the latest after `limit`: to be called
    /// when the sender has ended. Whatever came by then is in the report.
    pub fn finish(self, sent: Option<u64>, silence: Duration, limit: Duration) -> CheckReport {
        let started = Instant::now();
        let (mut ours, mut changed) = (self.watch.ours(), started);
        while !self.thread.is_finished() && changed.elapsed() < silence && started.elapsed() < limit {
            thread::sleep(LOOK_AGAIN);
            let now = self.watch.ours();
            if now != ours {
                (ours, changed) = (now, Instant::now());
            }
            if sent.is_some_and(|sent| ours >= sent) && changed.elapsed() >= silence / 4 {
                break;
            }
        }
        self.stop.request();
        // What can panic there is survived there.
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

struct Session {
    lanes: Lanes,
    /// Where there are several lanes.
    merge: Option<Merge>,
    selector: Selector,
    rounds: Rounds,
    check: Check,
    watch: CheckWatch,
    failure: Option<CaptureError>,
    picks: Vec<Pick>,
    /// How the frames of each interface of each lane begin.
    links: Vec<Vec<Option<Link>>>,
    /// Frames of each lane that the round has taken.
    taken: Vec<usize>,
    /// Empty between rounds; their memory is kept.
    shown: Vec<Shown<'static>>,
    inputs: Vec<Input<'static>>,
    bursts: Vec<Burst<'static>>,
}

impl Session {
    fn new(checking: Checking) -> Self {
        let mut lanes = Lanes::merged(checking.ports);
        let found = lanes.len();
        let failure = (found > Pick::MAX_LANES).then_some(CaptureError::Lanes { found });
        lanes.keep(Pick::MAX_LANES);
        Session {
            merge: (lanes.len() > 1).then(|| Merge::new(lanes.len())),
            links: vec![Vec::new(); lanes.len()],
            lanes,
            selector: Selector::new(Selection { slice: None, ..checking.selection }),
            rounds: Rounds::new(checking.waiting, checking.duration, checking.stop),
            check: checking.check,
            watch: checking.watch,
            failure,
            picks: Vec::new(),
            taken: Vec::new(),
            shown: Vec::new(),
            inputs: Vec::new(),
            bursts: Vec::new(),
        }
    }

    /// Takes what is ready; false when there is nothing more to come.
    fn round(&mut self) -> bool {
        let enough = self.failure.is_some() || self.selector.is_full();
        self.rounds.detach_if(enough, &mut self.lanes);
        let now = self.lanes.look_at_clock();
        let round = self.check_frames(now);
        self.watch.0.ours.store(self.check.ours(), Ordering::Relaxed);
        if self.rounds.is_time_to_look() {
            self.look();
        }
        self.rounds.go_on(round, now, &self.lanes)
    }

    /// One round of fill, order, select, check, consume.
    fn check_frames(&mut self, now: Nanos) -> Round {
        let Session { lanes, merge, selector, check, picks, links, taken, .. } = self;
        let mut shown = recycle(std::mem::take(&mut self.shown));
        let mut inputs = recycle(std::mem::take(&mut self.inputs));
        let mut bursts = recycle(std::mem::take(&mut self.bursts));
        let mut table = lanes.fill(now, &mut shown);
        if let Some(error) = learn(&mut table, &shown, selector) {
            self.failure.get_or_insert(error);
        }
        learn_links(&table, &shown, links);
        inputs.extend(shown.iter().map(Shown::input));
        bursts.extend(shown.iter().map(|head| head.burst));
        order(merge.as_mut(), table.ceiling(), &inputs, picks, taken);
        let frames: usize = taken.iter().sum();
        let all = selector.take_all(frames);
        if let (true, [burst], [links]) = (all, bursts.as_slice(), links.as_slice()) {
            check.take(burst.slice(0..frames), links);
        } else {
            if merge.is_none() {
                picks.extend((0..frames).map(|index| Pick::new(0, index)));
            }
            if !all {
                picks.retain(|pick| {
                    let head = &shown[pick.lane()];
                    let mut desc = head.burst.descs()[pick.index()];
                    table.place(head, &mut desc);
                    selector.select(&desc, head.burst.frame(pick.index()), table.is_filtered(head)).is_some()
                });
            }
            check.take_picks(&bursts, picks, links);
        }
        let over = shown.iter().all(Shown::is_over);
        let held = shown.iter().any(|head| !head.burst.is_empty());
        self.inputs = recycle(inputs);
        self.bursts = recycle(bursts);
        self.shown = recycle(shown);
        for (lane, frames) in self.taken.iter().enumerate() {
            self.lanes.consume(lane, *frames);
        }
        match (over, frames > 0, held) {
            (true, ..) => Round::Over,
            (_, true, _) => Round::Moved,
            (_, false, true) => Round::Held,
            (_, false, false) => Round::Nothing,
        }
    }

    /// Shows how far the run is.
    fn look(&mut self) {
        let mut ledger = Ledger::new();
        self.lanes.queue_counters(&mut ledger);
        self.watch.show(CheckLook {
            elapsed: self.rounds.elapsed(),
            totals: self.check.totals(),
            streams: self.check.streams() as u64,
            lost_by_port: ledger.lost(),
        });
    }

    fn finish(mut self) -> CheckReport {
        self.lanes.detach();
        self.look();
        let mut ledger = Ledger::new();
        self.lanes.counters(&mut ledger);
        if let Some(merge) = &self.merge {
            self.lanes.merge_counters(merge, &mut ledger);
        }
        self.selector.counters(ledger.account(Stage::Select, ""));
        CheckReport {
            interfaces: self.lanes.interfaces().to_vec(),
            check: self.check,
            ledger,
            elapsed: self.rounds.elapsed(),
            quiesced: self.rounds.quiesced(),
            events: std::mem::take(&mut self.lanes.events),
            failure: self.failure.or(self.lanes.failure.take().map(CaptureError::Port)),
        }
    }
}

/// How the frames of interfaces begin that a lane shows for the first time.
fn learn_links(table: &Table<'_>, shown: &[Shown<'_>], links: &mut [Vec<Option<Link>>]) {
    for (lane, links) in shown.iter().zip(links) {
        for number in links.len()..table.map(lane).len() {
            links.push(table.interface(lane, number).and_then(|interface| Link::from_linktype(interface.link.0)));
        }
    }
}

/// How many frames of each lane come next, and in which order where there are several.
fn order(
    merge: Option<&mut Merge>,
    ceiling: Nanos,
    inputs: &[Input<'_>],
    picks: &mut Vec<Pick>,
    taken: &mut Vec<usize>,
) {
    picks.clear();
    taken.clear();
    match merge {
        Some(merge) => {
            merge.set_ceiling(ceiling);
            merge.order(inputs, picks);
            taken.extend((0..inputs.len()).map(|lane| merge.taken(lane)));
        }
        None => taken.extend(inputs.iter().map(|input| input.descs.len().min(Pick::MAX_FRAMES))),
    }
}
