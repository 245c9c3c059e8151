//! Trials of a measurement at the ports of the tester: streams sent once, with their own account.

use super::Tester;
use super::drain::SilenceDetector;
use crate::reception::{PortReception, account};
use crate::running_flow::matchers;
use linerate_engine::Stop;
use linerate_engine::transmit::{StreamTotals, TransmitState};
use linerate_generate::check::{Check, LiveRow};
use linerate_generate::stream::{Mark, StreamSet};
use linerate_generate::trailer::Key;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Frames of a trial in one direction.
#[derive(Clone, Debug)]
pub struct TrialDirection {
    /// Port that sends.
    pub tx: String,
    /// Receiving port.
    pub rx: String,
    /// Streams, each with its own rate and an end.
    pub set: StreamSet,
    /// Expected duration in seconds.
    pub seconds: f64,
    /// Delay after the due time from which a packet counts as late.
    pub late_after: Duration,
}

/// Result of one direction of a trial.
pub struct DirectionResult {
    /// Frames sent by each stream, by its id.
    pub sent: Vec<u64>,
    /// Packets sent late.
    pub late: u64,
    /// Time from the first frame to the last.
    pub elapsed: Duration,
    /// Account of the receiving port for this trial only.
    pub check: Check,
    /// Losses of the receiving port in this time, by cause.
    pub losses: BTreeMap<&'static str, u64>,
    /// Failure of a port.
    pub failure: Option<String>,
}

/// View of one direction of a running trial.
#[derive(Clone)]
pub struct TrialView {
    /// Streams by id.
    sending: Vec<Option<Arc<StreamTotals>>>,
    reception: Arc<Mutex<PortReception>>,
}

/// Function that runs in parallel to a trial: it gets each direction, and a flag that is set when all was sent.
pub type TrialObserver<'a> = Box<dyn FnOnce(Vec<TrialView>, Arc<AtomicBool>) + Send + 'a>;

impl TrialView {
    /// Returns the frames sent by each stream, by its id.
    pub fn sent(&self) -> Vec<u64> {
        self.sending.iter().map(|one| one.as_ref().map_or(0, |sending| sending.frames())).collect()
    }

    /// Returns the state of each stream, with the losses among the frames sent [`AGE`](linerate_generate::check::AGE)
    /// ago, given by `aged`.
    pub fn live(&self, aged: &[u64]) -> Vec<LiveRow> {
        self.reception().check.live(Some(aged)).rows
    }

    /// Returns the number of frames of this trial received.
    pub fn ours(&self) -> u64 {
        self.reception().check.ours()
    }

    fn reception(&self) -> MutexGuard<'_, PortReception> {
        self.reception.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Factor of the expected duration after which unfinished streams are stopped.
const LATE: f64 = 1.05;
/// Minimum time before that.
const GRACE: Duration = Duration::from_millis(500);
/// Interval of checks for the end of sending.
const LOOK: Duration = Duration::from_millis(1);

/// Sends frames, waits until they have arrived or silence, and returns the results; `observer` runs in parallel.
///
/// # Errors
/// A port is unknown, or the streams cannot be sent.
pub fn run(
    tester: &Mutex<Tester>,
    ways: &[TrialDirection],
    quiet: Duration,
    stop: &Stop,
    observer: Option<TrialObserver<'_>>,
) -> Result<Vec<DirectionResult>, String> {
    let lock = || tester.lock().unwrap_or_else(PoisonError::into_inner);
    let began = Instant::now();
    let before = lock().losses(ways);
    let sending = lock().send_once(ways)?;
    let longest = ways.iter().map(|way| way.seconds).fold(0.0, f64::max);
    let most = Duration::from_secs_f64((longest * LATE).min(1e9)) + GRACE;
    let looks = if observer.is_some() { lock().looks(ways, &sending) } else { Vec::new() };
    std::thread::scope(|scope| {
        let is_sent = Arc::new(AtomicBool::new(false));
        let shown = Arc::clone(&is_sent);
        let observer = observer.map(|observer| scope.spawn(move || observer(looks, shown)));
        // Ended streams do not restart.
        let mut left = sending.iter().flatten().filter(|sending| sending.doing() != TransmitState::Stopped).peekable();
        while left.peek().is_some() && began.elapsed() < most && !stop.is_requested() {
            std::thread::sleep(LOOK);
            while left.next_if(|sending| sending.doing() == TransmitState::Stopped).is_some() {}
        }
        is_sent.store(true, Ordering::Release);
        if let Some(Err(panic)) = observer.map(|observer| observer.join()) {
            std::panic::resume_unwind(panic);
        }
    });
    let mut awaited = lock().end_trial(ways, &sending);
    // Unlocks the tester between polls for requests of figures.
    let is_whole = loop {
        match lock().have_arrived(&mut awaited, quiet, Instant::now()) {
            Some(is_whole) => break is_whole,
            None => std::thread::sleep(LOOK),
        }
    };
    // The latest losses of a port may not be known yet.
    let (seen, looked) = (Instant::now(), lock().losses(ways));
    let was_polled = |now: &[PortLosses]| now.iter().zip(&looked).all(|(now, then)| now.looks > then.looks);
    while !is_whole && seen.elapsed() < GRACE && !was_polled(&lock().losses(ways)) {
        std::thread::sleep(LOOK);
    }
    Ok(lock().account_of(ways, &sending, &before))
}

/// Frames to wait for after a trial.
struct AwaitedFrames {
    sent: u64,
    rx: Vec<usize>,
    quiet: SilenceDetector,
}

/// Losses of a port at some time, and number of polls then.
#[derive(Default)]
struct PortLosses {
    causes: BTreeMap<&'static str, u64>,
    looks: u64,
}

impl Tester {
    /// Stops all streams, and sends these.
    fn send_once(&mut self, ways: &[TrialDirection]) -> Result<Vec<Vec<Arc<StreamTotals>>>, String> {
        self.stop_all();
        self.renew();
        let mut all = Vec::new();
        for (number, way) in ways.iter().enumerate() {
            let port = self.place(&way.tx).ok_or_else(|| format!("unknown port {:?}", way.tx))?;
            let rx = self.place(&way.rx).ok_or_else(|| format!("unknown port {:?}", way.rx))?;
            // Frames that return to their sender are ignored.
            let key = Key(self.key.wrapping_add(number as u64));
            let mut check = account(key, self.room);
            for stream in way.set.streams.iter().filter(|stream| stream.mark == Mark::Count) {
                matchers(stream).for_each(|matcher| check.count_only(stream.id, matcher));
            }
            self.ports[rx].listener.reception().check = check;
            let port = &self.ports[port];
            let longest =
                way.set.streams.iter().flat_map(|stream| &stream.variants).map(|variant| variant.frame.len()).max();
            if let Some(longest) = longest.filter(|longest| *longest > port.longest) {
                return Err(format!("{} bytes; {} sends at most {}", longest + 4, port.name, port.longest + 4));
            }
            if let Some(failure) = port.transmitter.failure() {
                return Err(format!("{}: {failure}", port.name));
            }
            let (streams, late_after) = (way.set.streams.clone(), way.late_after);
            let begun = port.transmitter.start_with_late_limit(streams, key, late_after);
            all.push(begun.map_err(|wrong| wrong.to_string())?);
        }
        Ok(all)
    }

    /// Returns a view of each direction, for use while it is sent.
    fn looks(&self, ways: &[TrialDirection], sending: &[Vec<Arc<StreamTotals>>]) -> Vec<TrialView> {
        let look = |(way, sending): (&TrialDirection, &Vec<Arc<StreamTotals>>)| {
            let mut by_number = Vec::new();
            for (stream, sending) in way.set.streams.iter().zip(sending) {
                let place = stream.id as usize;
                by_number.resize(by_number.len().max(place + 1), None);
                by_number[place] = Some(Arc::clone(sending));
            }
            let reception = self.ports[self.place(&way.rx)?].listener.shared();
            Some(TrialView { sending: by_number, reception })
        };
        ways.iter().zip(sending).filter_map(look).collect()
    }

    /// Stops unfinished streams.
    fn end_trial(&self, ways: &[TrialDirection], sending: &[Vec<Arc<StreamTotals>>]) -> AwaitedFrames {
        for (way, sending) in ways.iter().zip(sending) {
            let port = self.place(&way.tx).map(|place| &self.ports[place]);
            port.into_iter().for_each(|port| port.transmitter.end(sending));
        }
        let sent = sending.iter().flatten().map(|sending| sending.frames()).sum();
        let rx = ways.iter().filter_map(|way| self.place(&way.rx)).collect();
        AwaitedFrames { sent, rx, quiet: SilenceDetector::new(&self.ports, Instant::now()) }
    }

    /// Returns whether all frames of a trial have arrived; `Some(false)` after silence: other frames do not count.
    fn have_arrived(&self, awaited: &mut AwaitedFrames, quiet: Duration, now: Instant) -> Option<bool> {
        let counts = awaited.rx.iter().map(|place| {
            let check = &self.ports[*place].listener.reception().check;
            (check.ours(), check.totals().duplicated)
        });
        let (ours, repeated) = counts.fold((0, 0), |(ours, repeated), (more, again)| (ours + more, repeated + again));
        let is_whole = ours - repeated.min(ours) >= awaited.sent;
        (is_whole || awaited.quiet.is_over(&self.ports, ours, quiet, now)).then_some(is_whole)
    }

    /// Returns the losses of each receiving port so far.
    fn losses(&self, ways: &[TrialDirection]) -> Vec<PortLosses> {
        let of = |way: &TrialDirection| {
            let reception = self.ports[self.place(&way.rx)?].listener.reception();
            Some(PortLosses { causes: reception.losses.clone(), looks: reception.looks })
        };
        ways.iter().map(|way| of(way).unwrap_or_default()).collect()
    }

    fn account_of(
        &mut self,
        ways: &[TrialDirection],
        sending: &[Vec<Arc<StreamTotals>>],
        before: &[PortLosses],
    ) -> Vec<DirectionResult> {
        let mut all = Vec::new();
        let after = self.losses(ways);
        for (((way, sending), before), after) in ways.iter().zip(sending).zip(before).zip(after) {
            let (Some(tx), Some(rx)) = (self.place(&way.tx), self.place(&way.rx)) else { continue };
            let fresh = account(Key(self.key), self.room);
            let check = std::mem::replace(&mut self.ports[rx].listener.reception().check, fresh);
            let failure = self.ports[tx].transmitter.failure().or(self.ports[rx].listener.failure());
            let mut sent = vec![0; way.set.streams.iter().map(|stream| stream.id as usize + 1).max().unwrap_or(0)];
            for (stream, sending) in way.set.streams.iter().zip(sending) {
                sent[stream.id as usize] = sending.frames();
            }
            let times = sending.iter().filter_map(|sending| sending.times());
            let span = times.reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)));
            let elapsed = span.map_or(Duration::ZERO, |(first, last)| Duration::from_nanos(last.saturating_sub(first)));
            let more = |(cause, frames): (&'static str, u64)| {
                let frames = frames - before.causes.get(cause).copied().unwrap_or(0).min(frames);
                (frames > 0).then_some((cause, frames))
            };
            let losses = after.causes.into_iter().filter_map(more).collect();
            let late = sending.iter().map(|sending| sending.late()).sum();
            all.push(DirectionResult { sent, late, elapsed, check, losses, failure });
        }
        self.renew();
        all
    }
}
