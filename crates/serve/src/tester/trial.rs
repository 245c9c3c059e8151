//! Trials of a measurement, at the ports of the tester: streams that are sent once, and the account of them alone.

use super::Tester;
use super::settle::Quiet;
use crate::listen::{Heard, account};
use crate::running::matchers;
use linerate_engine::Stop;
use linerate_engine::transmit::{Doing, Sending};
use linerate_generate::check::{Check, LiveRow};
use linerate_generate::stream::{Mark, StreamSet};
use linerate_generate::trailer::Key;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Frames of a trial in one direction.
#[derive(Clone, Debug)]
pub struct Way {
    /// The port that sends.
    pub tx: String,
    /// The port where they should come.
    pub rx: String,
    /// What is sent: each stream has its own rate, and an end.
    pub set: StreamSet,
    /// How long that should take.
    pub seconds: f64,
    /// A packet that leaves more than this after it was due is late.
    pub late_after: Duration,
}

/// What came of it.
pub struct Came {
    /// Frames that each stream has sent, by its number.
    pub sent: Vec<u64>,
    /// Packets that left late.
    pub late: u64,
    /// From the first frame to the last.
    pub elapsed: Duration,
    /// The account of the port where they should come, of this trial alone.
    pub check: Check,
    /// What the port where they should come lost itself meanwhile, by cause.
    pub losses: BTreeMap<&'static str, u64>,
    /// Why a port sends or receives no more.
    pub failure: Option<String>,
}

/// One direction of a trial, to be looked at while it goes on.
#[derive(Clone)]
pub struct Look {
    /// Streams by their numbers.
    sending: Vec<Option<Arc<Sending>>>,
    heard: Arc<Mutex<Heard>>,
}

/// Something that goes on beside a trial: it gets each direction, and where it shows that all was sent.
pub type Beside<'a> = Box<dyn FnOnce(Vec<Look>, Arc<AtomicBool>) + Send + 'a>;

impl Look {
    /// Frames that each stream has sent, by its number.
    pub fn sent(&self) -> Vec<u64> {
        self.sending.iter().map(|one| one.as_ref().map_or(0, |sending| sending.frames())).collect()
    }

    /// What came of each stream, and what is lost of it where so many frames had been sent
    /// [`AGE`](linerate_generate::check::AGE) ago.
    pub fn live(&self, aged: &[u64]) -> Vec<LiveRow> {
        self.heard().check.live(Some(aged)).rows
    }

    /// Frames of ours that came.
    pub fn ours(&self) -> u64 {
        self.heard().check.ours()
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whoever has not sent all so much later is told to end.
const LATE: f64 = 1.05;
/// And never sooner than after this.
const GRACE: Duration = Duration::from_millis(500);
/// How often it is looked whether all is sent.
const LOOK: Duration = Duration::from_millis(1);

/// Sends frames, waits until they have come or nothing has come for so long, and says what came; `beside` goes on beside that.
///
/// # Errors
/// A port that there is not, or streams that cannot be sent.
pub fn run(
    tester: &Mutex<Tester>,
    ways: &[Way],
    quiet: Duration,
    stop: &Stop,
    beside: Option<Beside<'_>>,
) -> Result<Vec<Came>, String> {
    let lock = || tester.lock().unwrap_or_else(PoisonError::into_inner);
    let began = Instant::now();
    let before = lock().losses(ways);
    let sending = lock().send_once(ways)?;
    let longest = ways.iter().map(|way| way.seconds).fold(0.0, f64::max);
    let most = Duration::from_secs_f64((longest * LATE).min(1e9)) + GRACE;
    let looks = if beside.is_some() { lock().looks(ways, &sending) } else { Vec::new() };
    std::thread::scope(|scope| {
        let is_sent = Arc::new(AtomicBool::new(false));
        let shown = Arc::clone(&is_sent);
        let beside = beside.map(|beside| scope.spawn(move || beside(looks, shown)));
        // Streams that have ended stay so.
        let mut left = sending.iter().flatten().filter(|sending| sending.doing() != Doing::Stopped).peekable();
        while left.peek().is_some() && began.elapsed() < most && !stop.is_requested() {
            std::thread::sleep(LOOK);
            while left.next_if(|sending| sending.doing() == Doing::Stopped).is_some() {}
        }
        is_sent.store(true, Ordering::Release);
        if let Some(Err(panic)) = beside.map(|beside| beside.join()) {
            std::panic::resume_unwind(panic);
        }
    });
    let mut awaited = lock().end_trial(ways, &sending);
    // Whoever asks for figures has the tester meanwhile.
    let is_whole = loop {
        match lock().has_come(&mut awaited, quiet, Instant::now()) {
            Some(is_whole) => break is_whole,
            None => std::thread::sleep(LOOK),
        }
    };
    // What a port lost last may not be known yet.
    let (seen, looked) = (Instant::now(), lock().losses(ways));
    let has_looked = |now: &[Lost]| now.iter().zip(&looked).all(|(now, then)| now.looks > then.looks);
    while !is_whole && seen.elapsed() < GRACE && !has_looked(&lock().losses(ways)) {
        std::thread::sleep(LOOK);
    }
    Ok(lock().account_of(ways, &sending, &before))
}

/// What is to come of a trial that has ended.
struct Awaited {
    sent: u64,
    rx: Vec<usize>,
    quiet: Quiet,
}

/// What a port had lost by some time, and how often that was looked at.
#[derive(Default)]
struct Lost {
    causes: BTreeMap<&'static str, u64>,
    looks: u64,
}

impl Tester {
    /// Ends all that is sent, and sends these.
    fn send_once(&mut self, ways: &[Way]) -> Result<Vec<Vec<Arc<Sending>>>, String> {
        self.stop_all();
        self.renew();
        let mut all = Vec::new();
        for (number, way) in ways.iter().enumerate() {
            let port = self.place(&way.tx).ok_or_else(|| format!("no port {:?} here", way.tx))?;
            let rx = self.place(&way.rx).ok_or_else(|| format!("no port {:?} here", way.rx))?;
            // What comes back to where it was sent is nobody's.
            let key = Key(self.key.wrapping_add(number as u64));
            let mut check = account(key, self.room);
            for stream in way.set.streams.iter().filter(|stream| stream.mark == Mark::Count) {
                matchers(stream).for_each(|matcher| check.count_only(stream.id, matcher));
            }
            self.ports[rx].listener.heard().check = check;
            let port = &self.ports[port];
            let longest =
                way.set.streams.iter().flat_map(|stream| &stream.variants).map(|variant| variant.frame.len()).max();
            if let Some(longest) = longest.filter(|longest| *longest > port.longest) {
                return Err(format!("{} bytes, and {} sends {} at most", longest + 4, port.name, port.longest + 4));
            }
            if let Some(failure) = port.transmitter.failure() {
                return Err(format!("{}: {failure}", port.name));
            }
            let (streams, late_after) = (way.set.streams.clone(), way.late_after);
            let begun = port.transmitter.begin_late_after(streams, key, late_after);
            all.push(begun.map_err(|wrong| wrong.to_string())?);
        }
        Ok(all)
    }

    /// Each direction, to be looked at while it is sent.
    fn looks(&self, ways: &[Way], sending: &[Vec<Arc<Sending>>]) -> Vec<Look> {
        let look = |(way, sending): (&Way, &Vec<Arc<Sending>>)| {
            let mut by_number = Vec::new();
            for (stream, sending) in way.set.streams.iter().zip(sending) {
                let place = stream.id as usize;
                by_number.resize(by_number.len().max(place + 1), None);
                by_number[place] = Some(Arc::clone(sending));
            }
            let heard = self.ports[self.place(&way.rx)?].listener.shared();
            Some(Look { sending: by_number, heard })
        };
        ways.iter().zip(sending).filter_map(look).collect()
    }

    /// Ends what has not ended yet.
    fn end_trial(&self, ways: &[Way], sending: &[Vec<Arc<Sending>>]) -> Awaited {
        for (way, sending) in ways.iter().zip(sending) {
            let port = self.place(&way.tx).map(|place| &self.ports[place]);
            port.into_iter().for_each(|port| port.transmitter.end(sending));
        }
        let sent = sending.iter().flatten().map(|sending| sending.frames()).sum();
        let rx = ways.iter().filter_map(|way| self.place(&way.rx)).collect();
        Awaited { sent, rx, quiet: Quiet::new(&self.ports, Instant::now()) }
    }

    /// Whether all of a trial has come; `Some(false)` if nothing of it has for so long: frames of others are none of it.
    fn has_come(&self, awaited: &mut Awaited, quiet: Duration, now: Instant) -> Option<bool> {
        let came = awaited.rx.iter().map(|place| {
            let check = &self.ports[*place].listener.heard().check;
            (check.ours(), check.totals().duplicated)
        });
        let (ours, repeated) = came.fold((0, 0), |(ours, repeated), (more, again)| (ours + more, repeated + again));
        let is_whole = ours - repeated.min(ours) >= awaited.sent;
        (is_whole || awaited.quiet.is_over(&self.ports, ours, quiet, now)).then_some(is_whole)
    }

    /// What the port where each should come has lost so far.
    fn losses(&self, ways: &[Way]) -> Vec<Lost> {
        let of = |way: &Way| {
            let heard = self.ports[self.place(&way.rx)?].listener.heard();
            Some(Lost { causes: heard.losses.clone(), looks: heard.looks })
        };
        ways.iter().map(|way| of(way).unwrap_or_default()).collect()
    }

    fn account_of(&mut self, ways: &[Way], sending: &[Vec<Arc<Sending>>], before: &[Lost]) -> Vec<Came> {
        let mut all = Vec::new();
        let after = self.losses(ways);
        for (((way, sending), before), after) in ways.iter().zip(sending).zip(before).zip(after) {
            let (Some(tx), Some(rx)) = (self.place(&way.tx), self.place(&way.rx)) else { continue };
            let fresh = account(Key(self.key), self.room);
            let check = std::mem::replace(&mut self.ports[rx].listener.heard().check, fresh);
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
            all.push(Came { sent, late, elapsed, check, losses, failure });
        }
        self.renew();
        all
    }
}
