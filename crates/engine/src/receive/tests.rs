//! Captures with clock steps, wrong time stamps and stopped feeders: in any case frames are held no longer than lanes
//! require, and none is lost; without such faults they are emitted in order.

use super::*;
use crate::clock::tests::FakeClock;
use linerate_burst::{Block, Desc, Horizon, LinkType, StampSource};
use linerate_port::PortError;
use linerate_port::{Feed, Head, RxQueue};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard};

const MS: u64 = 1_000_000;
const S: u64 = 1000 * MS;
const START: u64 = 1_700_000_000 * S;
const LAG: u64 = 2 * MS;
const PATIENCE: u64 = 50 * MS;
/// Longest time that a frame may be held: lag, slack of the clock, and two of the longest rounds.
const HELD: u64 = LAG + 10 * MS + 2 * ROUND;
const ROUND: u64 = 5 * MS;
const SCHEDULES: u64 = 4000;
const ROUNDS: u64 = 150;

/// A frame by its stamp, and its arrival by the steady clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Frame {
    stamp: u64,
    arrived: u64,
}

/// State of a lane.
#[derive(Default)]
struct State {
    there: VecDeque<Frame>,
    consumed: VecDeque<Frame>,
    /// Horizon promised by an external feeder; lanes of the clock derive theirs.
    promised: u64,
    /// Clock step that occurs while this lane is polled.
    step: i64,
    detached: bool,
}

/// A queue of a lane.
struct FakeRx {
    state: Arc<Mutex<State>>,
    clock: FakeClock,
    by_clock: bool,
    block: Block,
    interfaces: [Interface; 1],
}

impl RxQueue for FakeRx {
    fn fill(&mut self, now: Nanos) -> Result<Head<'_>, PortError> {
        let mut state = self.state.lock().unwrap();
        self.clock.set(std::mem::take(&mut state.step));
        self.block.clear();
        for frame in &state.there {
            self.block.push(&Desc::new(Nanos(frame.stamp), 0, 0), &[]);
        }
        let horizon = match (state.detached, self.by_clock) {
            (true, _) => Horizon::Ended,
            (_, true) => Horizon::At(Nanos(now.0 - LAG)),
            (_, false) => Horizon::At(Nanos(state.promised)),
        };
        Ok(Head { burst: self.block.burst(), horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        let mut state = self.state.lock().unwrap();
        let taken: Vec<Frame> = state.there.drain(..frames).collect();
        state.consumed.extend(taken);
    }

    fn detach(&mut self) {
        self.state.lock().unwrap().detached = true;
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self, _: &mut Ledger) {}
}

/// Faults of a schedule.
#[derive(Clone, Copy, Debug, Default)]
struct Trouble {
    /// Clock steps of seconds and more.
    steps: bool,
    /// Clock steps of milliseconds.
    slews: bool,
    /// Frames with wrong times, in the past and in the future.
    wrong: bool,
    /// A lane's feeder stops for a while.
    stops: bool,
}

/// A machine that runs a capture.
struct Machine {
    clock: FakeClock,
    lanes: Vec<(Feed, Arc<Mutex<State>>)>,
    receiver: ReceiveLoop,
    random: Random,
    trouble: Trouble,
    /// Emitted frames with their lanes, and whether late.
    out: Vec<(usize, Frame, bool)>,
    sent: Vec<(usize, Frame)>,
    others_stop: bool,
}

impl Machine {
    fn new(seed: u64, trouble: Trouble) -> Self {
        let mut random = Random(seed);
        let clock = FakeClock::at(START);
        let others = Feed::Others { patience: std::time::Duration::from_nanos(PATIENCE) };
        let mut feeds = vec![Feed::Clock; 1 + random.below(4) as usize];
        if trouble.stops || random.below(2) == 0 {
            feeds.insert(random.below(feeds.len() as u64 + 1) as usize, others);
        }
        let lanes: Vec<(Feed, Arc<Mutex<State>>)> = feeds.into_iter().map(|feed| (feed, Arc::default())).collect();
        let ports = lanes.iter().map(|(feed, state)| port(*feed, Arc::clone(state), clock.clone())).collect();
        let receive = Receive { waiting: WaitStrategy::Spin, ..Receive::all(ports) };
        let receiver = ReceiveLoop::with(receive, &mut [&mut Ignore], Box::new(clock.clone()));
        let (out, sent) = Default::default();
        Machine { clock, lanes, receiver, random, trouble, out, sent, others_stop: false }
    }

    fn lane(&self, lane: usize) -> MutexGuard<'_, State> {
        self.lanes[lane].1.lock().unwrap()
    }

    fn now(&self) -> (u64, u64) {
        (self.clock.utc().0, self.clock.steady().0)
    }

    /// Advances time, delivers frames and applies faults; then runs a round.
    fn round(&mut self, brings: bool) {
        let busy = self.random.0 % 7;
        for part in 0..1 + self.random.below(4) {
            self.clock.pass(self.random.below(ROUND / 5));
            if self.trouble.slews && self.random.below(20) == 0 {
                self.clock.set((self.random.below(9 * MS) as i64) - 4 * MS as i64);
            }
            if self.trouble.steps && self.random.below(60) == 0 {
                let step = self.step();
                // Before the poll, or while lanes are filled.
                let lane = self.random.below(2 * self.lanes.len() as u64) as usize;
                if lane < self.lanes.len() { self.lane(lane).step += step } else { self.clock.set(step) }
            }
            if self.trouble.stops && self.random.below(40) == 0 {
                self.others_stop ^= true;
            }
            for lane in 0..self.lanes.len() {
                // Some lanes have few frames.
                let rests = (lane as u64 + busy).is_multiple_of(3) && self.random.below(50) > 0;
                if brings && !rests && (part as usize + lane).is_multiple_of(2) {
                    self.bring(lane);
                }
            }
        }
        self.promise();
        assert!(self.receiver.round(&mut [&mut Ignore]));
        for pick in std::mem::take(&mut self.receiver.picks) {
            let frame = self.lane(pick.lane()).consumed.pop_front().expect("a frame");
            self.out.push((pick.lane(), frame, pick.is_late()));
        }
    }

    fn step(&mut self) -> i64 {
        let seconds = [1, 100, 86_400, 86_400 * 365][self.random.below(4) as usize];
        let step = (seconds * S + self.random.below(S)) as i64;
        if self.random.below(2) == 0 { -step } else { step }
    }

    fn bring(&mut self, lane: usize) {
        let (utc, steady) = self.now();
        if self.others_stop && self.lanes[lane].0 != Feed::Clock {
            return;
        }
        let wrong = self.trouble.wrong && self.random.below(30) == 0;
        let stamp = if wrong { utc.saturating_add_signed(self.step()) } else { utc };
        let frame = Frame { stamp, arrived: steady };
        self.lane(lane).there.push_back(frame);
        self.sent.push((lane, frame));
    }

    /// Updates the horizons of external feeders.
    fn promise(&mut self) {
        let (utc, _) = self.now();
        if !self.others_stop {
            for (_, state) in self.lanes.iter().filter(|(feed, _)| *feed != Feed::Clock) {
                let mut state = state.lock().unwrap();
                // Promises from before the clock was set back are kept, as by writers that never revoke them.
                state.promised = state.promised.max(utc - LAG / 2);
            }
        }
    }

    /// Returns the longest time for which a frame has been held.
    fn held(&self) -> u64 {
        let now = self.now().1;
        let heads =
            (0..self.lanes.len()).filter_map(|lane| self.lane(lane).there.front().map(|frame| now - frame.arrived));
        heads.max().unwrap_or(0)
    }
}

fn port(feed: Feed, state: Arc<Mutex<State>>, clock: FakeClock) -> RxPort {
    let name = format!("{feed:?}");
    let interfaces = [Interface::new(name.clone(), LinkType::ETHERNET, StampSource::Kernel)];
    let block = Block::new(64 << 10, 1024);
    let queue = FakeRx { state, clock, by_clock: feed == Feed::Clock, block, interfaces };
    RxPort {
        name,
        queues: vec![Box::new(queue)],
        feed,
        monitor: None,
        filter: String::new(),
        offset_ns: 0,
        notes: Vec::new(),
    }
}

/// Runs a schedule; returns the number of frames, and the report.
fn run(seed: u64, trouble: Trouble) -> (usize, RunReport) {
    let mut machine = Machine::new(seed, trouble);
    let others = machine.lanes.iter().any(|(feed, _)| *feed != Feed::Clock);
    let most = HELD + if others { PATIENCE } else { 0 };
    for round in 0..ROUNDS {
        machine.round(round < ROUNDS - 40);
        let held = machine.held();
        assert!(held <= most, "seed {seed}, {trouble:?}, round {round}: a frame was held for {} ms", held / MS);
    }
    machine.trouble = Trouble::default();
    for _ in 0..60 {
        machine.clock.pass(ROUND);
        machine.round(false);
    }
    assert_eq!(machine.out.len(), machine.sent.len(), "seed {seed}, {trouble:?}: frames are lost");
    let out: Vec<(usize, Frame)> = machine.out.iter().map(|(lane, frame, _)| (*lane, *frame)).collect();
    for lane in 0..machine.lanes.len() {
        let of_lane = |all: &[(usize, Frame)]| all.iter().copied().filter(|one| one.0 == lane).collect::<Vec<_>>();
        assert_eq!(of_lane(&out), of_lane(&machine.sent), "seed {seed}, {trouble:?}: lane {lane} is out of its order");
    }
    let mut newest = 0;
    let calm = !(trouble.steps || trouble.wrong || trouble.slews);
    for (_, frame, late) in &machine.out {
        assert!(!calm || *late == (frame.stamp < newest), "seed {seed}: {frame:?} after {newest}: late = {late}");
        newest = newest.max(frame.stamp);
    }
    if calm && !trouble.stops {
        let mut expected = machine.sent.clone();
        expected.sort_by_key(|(lane, frame)| (frame.stamp, *lane));
        assert_eq!(out, expected, "seed {seed}: not as the oracle sorts it");
    }
    (out.len(), machine.receiver.finish(&mut [&mut Ignore], None))
}

fn run_all(trouble: Trouble) -> (usize, Vec<RunReport>) {
    let done: Vec<_> = (0..SCHEDULES / 4).map(|seed| run(seed, trouble)).collect();
    let frames = done.iter().map(|one| one.0).sum::<usize>();
    assert!(frames as u64 > 20 * SCHEDULES, "the schedules are nearly empty: {frames}");
    (frames, done.into_iter().map(|one| one.1).collect())
}

fn total(reports: &[RunReport], count: linerate_burst::Count) -> u64 {
    reports.iter().map(|report| report.ledger.total(count)).sum()
}

#[test]
fn without_clock_steps_frames_match_the_oracle() {
    use linerate_burst::Count::{Ahead, ClockSteps, Late, Stalls};
    let (_, reports) = run_all(Trouble::default());
    assert_eq!([Late, Ahead, Stalls, ClockSteps].map(|count| total(&reports, count)), [0; 4]);
    assert!(reports.iter().all(|report| report.events.is_empty()));
}

#[test]
fn small_steps_are_ignored() {
    let (_, reports) = run_all(Trouble { slews: true, ..Trouble::default() });
    assert_eq!(total(&reports, linerate_burst::Count::ClockSteps), 0);
    assert!(reports.iter().all(|report| report.events.is_empty()));
}

#[test]
fn clock_steps_delay_no_frame_and_are_reported() {
    let (_, reports) = run_all(Trouble { steps: true, ..Trouble::default() });
    let steps = total(&reports, linerate_burst::Count::ClockSteps);
    assert!(steps > SCHEDULES, "{steps}");
    let said = |what| reports.iter().flat_map(|one| &one.events).filter(|event| event.starts_with(what)).count() as u64;
    let (back, forward) = (said("the clock was set back by "), said("the clock was set forward by "));
    assert!(back > 0 && forward > 0 && back + forward == steps, "{back} and {forward} of {steps}");
}

#[test]
fn frames_with_a_wrong_time_delay_no_others() {
    let (_, reports) = run_all(Trouble { wrong: true, ..Trouble::default() });
    assert!(total(&reports, linerate_burst::Count::Ahead) > SCHEDULES / 4);
}

#[test]
fn a_stopped_feeder_delays_no_live_lane_for_longer_than_its_patience() {
    let (_, reports) = run_all(Trouble { stops: true, ..Trouble::default() });
    let stalls = total(&reports, linerate_burst::Count::Stalls);
    assert!(stalls > SCHEDULES / 8, "{stalls}");
    let said =
        reports.iter().flat_map(|report| &report.events).filter(|event| event.contains("behind the clock")).count();
    assert!(said as u64 == stalls, "{said} of {stalls}");
}

#[test]
fn all_faults_together_lose_nothing() {
    run_all(Trouble { steps: true, slews: true, wrong: true, stops: true });
}

/// Needs an order, and ignores the frames.
struct Ignore;

impl Consumer for Ignore {
    fn name(&self) -> &'static str {
        "ignore"
    }

    fn order(&self) -> FrameOrder {
        FrameOrder::Checked
    }

    fn take(&mut self, _: &mut Round<'_>) -> Result<(), ReceiveError> {
        Ok(())
    }

    fn finish(&mut self, _: &mut RunEnd<'_>) {}
}

/// A small generator (splitmix64, Steele et al. 2014), so that a seed means the same schedule for ever.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit.max(1)
    }
}
