//! The rounds of a run that meters.

use super::crew::{Crew, Shelf};
use super::time::Arrivals;
use super::worker::{Load, Worker};
use super::{Course, FlowsReport};
use crate::capture::{CaptureError, learn};
use crate::control::Progress;
use crate::died::{Died, survive};
use crate::lanes::{Lanes, Shown, Table, recycle};
use crate::rounds::{Round, Rounds};
use crate::select::{Selection, Selector};
use linerate_burst::{Burst, Count, Interface, Kind, Ledger, Nanos, Pick, Stage};
use linerate_merge::{Input, Merge};
use linerate_meter::{Counts, Records};
use linerate_wire::Link;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Who meters.
pub(super) enum Hands<'a> {
    /// This thread, the frames of one lane where they lie.
    Here(Box<Worker>, &'a mut dyn Records),
    /// Workers with blocks, of frames in order.
    Crew(Box<Crew<'a>>),
}

/// A run.
pub(super) struct Session<'a> {
    lanes: Lanes,
    /// Where there are several lanes.
    merge: Option<Merge>,
    selector: Selector,
    rounds: Rounds,
    meters: Hands<'a>,
    /// When frames came.
    arrivals: Arrivals,
    /// Frames handed to the meters, and their bytes.
    metered: (u64, u64),
    progress: Arc<Progress>,
    failure: Option<CaptureError>,
    /// What frames of each interface of each lane begin with.
    links: Vec<Vec<Option<Link>>>,
    picks: Vec<Pick>,
    /// Frames of each lane that the round has taken.
    taken: Vec<usize>,
    /// Empty between rounds; their memory is kept.
    shown: Vec<Shown<'static>>,
    inputs: Vec<Input<'static>>,
    bursts: Vec<Burst<'static>>,
    maps: Vec<&'static [u16]>,
}

impl<'a> Session<'a> {
    pub fn new(lanes: Lanes, meters: Hands<'a>, course: Course) -> Self {
        Session {
            merge: (lanes.len() > 1).then(|| Merge::new(lanes.len())),
            links: vec![Vec::new(); lanes.len()],
            lanes,
            selector: Selector::new(Selection { slice: None, ..course.selection }),
            rounds: Rounds::new(course.waiting, course.duration, course.stop),
            meters,
            arrivals: Arrivals::default(),
            metered: (0, 0),
            progress: course.progress,
            failure: None,
            picks: Vec::new(),
            taken: Vec::new(),
            shown: Vec::new(),
            inputs: Vec::new(),
            bursts: Vec::new(),
            maps: Vec::new(),
        }
    }

    pub fn run(mut self) -> FlowsReport {
        let died = survive(|| while self.round() {}).err();
        self.finish(died)
    }

    /// Takes what is ready; false when there is nothing more to come.
    fn round(&mut self) -> bool {
        let has_failed = matches!(&self.meters, Hands::Crew(crew) if crew.has_failed());
        let enough = self.failure.is_some() || has_failed || self.selector.is_full();
        self.rounds.detach_if(enough, &mut self.lanes);
        let now = self.lanes.look_at_clock();
        let round = self.take_frames(now);
        if self.rounds.is_time_to_look() {
            let (frames, bytes) = self.metered;
            self.progress.frames.store(frames, Ordering::Relaxed);
            self.progress.bytes.store(bytes, Ordering::Relaxed);
            self.progress.wire_bytes.store(bytes, Ordering::Relaxed);
            let mut ledger = Ledger::new();
            self.lanes.queue_counters(&mut ledger);
            self.progress.lost.store(ledger.lost(), Ordering::Relaxed);
        }
        self.rounds.go_on(round, now, &self.lanes)
    }

    /// One round of fill, order, select, meter, consume.
    fn take_frames(&mut self, now: Nanos) -> Round {
        let Session { lanes, merge, selector, meters, links, picks, taken, metered, arrivals, .. } = self;
        let mut shown = recycle(std::mem::take(&mut self.shown));
        let mut inputs = recycle(std::mem::take(&mut self.inputs));
        let mut bursts = recycle(std::mem::take(&mut self.bursts));
        let mut maps = recycle(std::mem::take(&mut self.maps));
        let mut table = lanes.fill(now, &mut shown);
        if let Some(error) = learn(&mut table, &shown, selector) {
            self.failure.get_or_insert(error);
        }
        learn_links(&table, &shown, links);
        inputs.extend(shown.iter().map(Shown::input));
        bursts.extend(shown.iter().map(|head| head.burst));
        maps.extend(shown.iter().map(|head| table.map(head)));
        order(merge.as_mut(), table.ceiling(), &inputs, picks, taken);
        let frames: usize = taken.iter().sum();
        if frames > 0 {
            let elapsed = self.rounds.elapsed();
            if let [head] = &shown[..] {
                arrivals.note(head.burst.descs()[..frames].iter().rev().map(|desc| desc.time), elapsed);
            } else {
                let time = |pick: &Pick| bursts[pick.lane()].descs()[pick.index()].time;
                arrivals.note(picks.iter().rev().map(time), elapsed);
            }
            let (count, bytes) = match meters {
                Hands::Here(worker, records) => {
                    meter(worker, selector, &table, &shown[0], &links[0], *records);
                    let Counts { frames, bytes, .. } = *worker.counts();
                    (frames - metered.0, bytes - metered.1)
                }
                Hands::Crew(crew) => {
                    crew.learn(table.interfaces());
                    let shelf = Shelf { bursts: &bursts, links, maps: &maps };
                    spread(crew, selector, &table, &shown, (shelf, picks, frames), now)
                }
            };
            *metered = (metered.0 + count, metered.1 + bytes);
        }
        let complete = shown.iter().zip(&*taken).map(|(head, taken)| head.bound(*taken)).min().unwrap_or(Nanos::MAX);
        let over = shown.iter().all(Shown::is_over);
        let held = shown.iter().any(|head| !head.burst.is_empty());
        self.inputs = recycle(inputs);
        self.bursts = recycle(bursts);
        self.maps = recycle(maps);
        self.shown = recycle(shown);
        for (lane, frames) in self.taken.iter().enumerate() {
            self.lanes.consume(lane, *frames);
        }
        match (over, frames > 0, held) {
            (true, ..) => return Round::Over,
            (_, true, _) => return Round::Moved,
            _ => self.pause(complete),
        }
        if held { Round::Held } else { Round::Nothing }
    }

    /// No frame is there, and none that comes is older than `complete`.
    fn pause(&mut self, complete: Nanos) {
        if complete == Nanos::MAX {
            return;
        }
        let now = self.arrivals.bound(complete, self.rounds.elapsed());
        match &mut self.meters {
            Hands::Here(worker, records) => worker.expire(now, *records),
            Hands::Crew(crew) => crew.pause(now),
        }
    }

    fn finish(mut self, died: Option<Died>) -> FlowsReport {
        self.lanes.detach();
        let time = match &self.meters {
            Hands::Here(worker, _) => worker.time(),
            Hands::Crew(crew) => crew.time(),
        };
        let (far_frames, time_jumps) = (time.far_frames(), time.jumps());
        let (counts, workers, died): (Counts, Vec<Load>, Option<Died>) = match self.meters {
            Hands::Here(worker, records) => {
                let last = worker.latest();
                let done = worker.finish(last, records, died);
                (done.counts, vec![done.load], done.died)
            }
            Hands::Crew(crew) => crew.finish(died),
        };
        let mut ledger = Ledger::new();
        self.lanes.counters(&mut ledger);
        if let Some(merge) = &self.merge {
            self.lanes.merge_counters(merge, &mut ledger);
        }
        self.selector.counters(ledger.account(Stage::Select, ""));
        if let Some(died) = died {
            let selected = ledger.sum(Stage::Select, Kind::Delivered);
            let account = ledger.account(Stage::Write, "flows");
            account.add(Count::WriteReceived, selected).add(Count::Written, counts.frames.min(selected));
            account.add(Count::OutputDied, selected.saturating_sub(counts.frames));
            self.failure.get_or_insert(died.into());
        }
        FlowsReport {
            counts,
            far_frames,
            time_jumps,
            unknown_links: unknown_links(self.lanes.interfaces()),
            workers,
            elapsed: self.rounds.elapsed(),
            ledger,
            quiesced: self.rounds.quiesced(),
            events: std::mem::take(&mut self.lanes.events),
            failure: self.failure.or(self.lanes.failure.take().map(CaptureError::Port)),
            ..FlowsReport::default()
        }
    }
}

/// Takes up the interfaces that lanes show for the first time.
fn learn_links(table: &Table<'_>, shown: &[Shown<'_>], links: &mut [Vec<Option<Link>>]) {
    for (head, links) in shown.iter().zip(links) {
        for number in links.len()..table.map(head).len() {
            links.push(table.interface(head, number).and_then(|interface| Link::from_linktype(interface.link.0)));
        }
    }
}

/// Numbers of the link types that are not known, each once.
fn unknown_links(interfaces: &[Interface]) -> Vec<u16> {
    let numbers = interfaces.iter().map(|interface| interface.link.0);
    let unknown: BTreeSet<u16> = numbers.filter(|number| Link::from_linktype(*number).is_none()).collect();
    unknown.into_iter().collect()
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

/// Hands the frames that are selected to the workers: all `frames` of one lane, or those of `picks`. How many, and their bytes.
fn spread(
    crew: &mut Crew<'_>,
    selector: &mut Selector,
    table: &Table<'_>,
    shown: &[Shown<'_>],
    (shelf, picks, frames): (Shelf<'_>, &mut Vec<Pick>, usize),
    now: Nanos,
) -> (u64, u64) {
    let of_one_lane = (0..frames).map(|index| Pick::new(0, index));
    let is_one = shown.len() == 1;
    if selector.take_all(frames) {
        return if is_one { crew.take(shelf, of_one_lane, now) } else { crew.take(shelf, picks.iter().copied(), now) };
    }
    if is_one {
        picks.extend(of_one_lane);
    }
    picks.retain(|pick| {
        let head = &shown[pick.lane()];
        let mut desc = head.burst.descs()[pick.index()];
        table.place(head, &mut desc);
        selector.select(&desc, head.burst.frame(pick.index()), table.is_filtered(head)).is_some()
    });
    crew.take(shelf, picks.iter().copied(), now)
}

/// Hands the frames that are selected where they lie, as many at a time as lie behind one another.
fn meter(
    worker: &mut Worker,
    selector: &mut Selector,
    table: &Table<'_>,
    head: &Shown<'_>,
    links: &[Option<Link>],
    records: &mut dyn Records,
) {
    let burst = head.burst.slice(0..head.burst.len().min(Pick::MAX_FRAMES));
    if selector.take_all(burst.len()) {
        worker.take(burst, links, records);
        return;
    }
    let judged = table.is_filtered(head);
    let mut begin = 0;
    for (index, (desc, frame)) in burst.iter().enumerate() {
        let mut desc = *desc;
        table.place(head, &mut desc);
        if selector.select(&desc, frame, judged).is_none() {
            worker.take(burst.slice(begin..index), links, records);
            begin = index + 1;
        }
    }
    worker.take(burst.slice(begin..burst.len()), links, records);
}
