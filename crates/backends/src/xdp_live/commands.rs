//! Commands to running streams: words that their program reads.
//!
//! A command has a time of the schedule. The program makes no frame that is due then or later ([`UNTIL`]); after all
//! earlier frames its call is ended, and the first thread that sees no call in progress writes gaps, due time and
//! numbers for the rest. Updates are therefore atomic, and take effect after the same frame as in the
//! [timeline](linerate_generate::Timeline). At line rate frames have no due times: commands are applied when their time
//! is reached.

use super::program::{
    self, BOUND, BYTES, CommandWords, DUE, FRACTION, LATE_FRAMES, LATE_MAX, LATE_SUM, NUMBERS, Program, SHIFTED, TURN,
    UNTIL,
};
use super::shared_state::{LIMIT, MADE, OWN, State};
use linerate_generate::stream::StreamSet;
use linerate_generate::timeline::{Kind, Pace};
use linerate_generate::{Action, Command, Rate};
use linerate_port::{AppliedCommands, RestartedStream};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Interval of checks whether a call that must end has ended, and earlier frames are sent.
const SOON: Duration = Duration::from_micros(100);
/// Units of a nanosecond's fraction.
const PARTS: f64 = 4_294_967_296.0;

/// Commands to the streams of a program.
#[derive(Debug)]
pub(super) struct StreamCommands {
    facts: StreamConstants,
    inner: Mutex<CommandState>,
}

/// The constant part.
#[derive(Debug)]
struct StreamConstants {
    kind: Kind,
    places: CommandWords,
    /// Initial values of words, and number of words.
    initial: Vec<(usize, u64)>,
    words: usize,
    frames: u64,
    counts: Vec<Option<u64>>,
    /// Per stream its first layout, and the lengths of its layouts.
    layouts: Vec<(usize, Vec<u32>)>,
}

#[derive(Debug)]
struct CommandState {
    pending: VecDeque<Command>,
    done: AppliedCommands,
    /// Start of the schedule: time since boot.
    start: Option<u64>,
    /// True if the program runs, and owns the words.
    in_call: bool,
    paused: Option<u64>,
    stopped: bool,
    paces: Vec<Pace>,
    /// Frames before each stream was last started; and whether its end was reported since.
    before: Vec<u64>,
    has_ended: Vec<bool>,
}

/// Next step between two calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Readiness {
    /// Frames may be made.
    Run,
    /// No frame may be made before the next command.
    Wait,
}

impl StreamCommands {
    /// Creates the commands of a program; `None` if it was compiled without them.
    pub(super) fn new(program: &Program<'_>, set: &StreamSet) -> Option<Self> {
        let facts = StreamConstants {
            kind: program.turns.kind,
            places: program.commanded?,
            initial: program.initial(),
            words: program.words,
            frames: program.turns.frames,
            counts: set.streams.iter().map(|stream| stream.count).collect(),
            layouts: program.layouts(),
        };
        let streams = set.streams.len();
        let inner = CommandState {
            pending: VecDeque::new(),
            done: AppliedCommands::default(),
            start: None,
            in_call: false,
            paused: None,
            stopped: false,
            paces: program.turns.paces.clone(),
            before: vec![0; streams],
            has_ended: vec![false; streams],
        };
        Some(StreamCommands { facts, inner: Mutex::new(inner) })
    }

    /// Checks whether streams can follow a command.
    pub(super) fn check(&self, state: &State, command: &Command) -> Result<(), String> {
        let (facts, inner) = (&self.facts, self.lock());
        let named = command.which.places(facts.layouts.len()).count();
        let (is_all, is_rate) = (named == facts.layouts.len(), is_rate(&command.action));
        // Each of these fits into a line of 80 columns at a terminal.
        let refused = match (facts.kind, &command.action) {
            (Kind::Round, _) if !is_all => "xdp-live cannot control single streams; name all of them, or use packet:",
            (Kind::Round, Action::Rates(_)) => {
                "xdp-live sends these streams in turns at one rate; set one rate for all"
            }
            (Kind::Sequence, _) if !is_all && !is_rate => "sequential streams can only be paused and stopped together",
            (_, Action::Begin(_)) => "xdp-live cannot add streams while it runs",
            (Kind::Round, Action::Rate(Rate::Bits(..))) if inner.paces[0].by_round && !facts.are_as_long() => {
                "streams in turns that differ in length need a rate in frames"
            }
            (Kind::Round, Action::Start(_))
                if !inner.stopped && inner.pending.is_empty() && self.is_any_complete(state) =>
            {
                "some of these streams have sent all of their frames; stop all of them first"
            }
            _ => return Ok(()),
        };
        Err(refused.to_owned())
    }

    /// Returns whether a stream has sent all of its frames.
    fn is_any_complete(&self, state: &State) -> bool {
        let mut all = self.facts.counts.iter().zip(NUMBERS..);
        all.any(|(count, word)| count.is_some_and(|count| state.get(word) >= count))
    }

    /// Adds a command, to be applied at its time.
    pub(super) fn command(&self, command: Command) {
        let mut inner = self.lock();
        let place = inner.pending.partition_point(|other| other.at <= command.at);
        inner.pending.insert(place, command);
    }

    /// Starts the schedule: the program is about to run for the first time, or again after its interface was away.
    pub(super) fn begin(&self, state: &State, now: u64) {
        let mut inner = self.lock();
        inner.start.get_or_insert(now);
        inner.paused = inner.paused.map(|since| since.max(now));
        inner.set_due(state, now, 0);
    }

    /// Returns the time since the schedule started.
    pub(super) fn elapsed(&self, now: u64) -> Duration {
        Duration::from_nanos(self.lock().start.map_or(0, |start| now.saturating_sub(start)))
    }

    /// Applies the commands that are due, between two calls; returns what to do next.
    pub(super) fn turn(&self, state: &State, now: u64) -> Readiness {
        let mut inner = self.lock();
        inner.apply_due(&self.facts, state, now);
        let has_ended = state.get(MADE) >= state.get(LIMIT) && !inner.pending.is_empty();
        if inner.is_held() || has_ended { Readiness::Wait } else { Readiness::Run }
    }

    /// Enters a call; false if no frame may be made.
    pub(super) fn enter(&self) -> bool {
        let mut inner = self.lock();
        inner.in_call = !inner.is_held();
        inner.in_call
    }

    /// Leaves a call.
    pub(super) fn leave(&self) {
        self.lock().in_call = false;
    }

    /// Stops the program at the time of the next command. Returns when to check again, and whether a call must end now.
    pub(super) fn look(&self, state: &State, now: u64) -> (Duration, bool) {
        let mut inner = self.lock();
        if !inner.in_call {
            inner.apply_due(&self.facts, state, now);
        }
        let Some(at) = inner.next_at() else { return (Duration::MAX, false) };
        state.set(UNTIL, at);
        match at.checked_sub(now) {
            Some(left) if left > 0 => (Duration::from_nanos(left), false),
            _ => (SOON, inner.in_call && inner.is_ready(state, at, now)),
        }
    }

    /// Returns the frames of each stream, before it was last started and since.
    pub(super) fn made(&self, state: &State) -> Vec<u64> {
        let inner = self.lock();
        inner.before.iter().zip(NUMBERS..).map(|(before, word)| before + state.get(word)).collect()
    }

    /// Returns the commands applied, and the streams started and ended since the last call.
    pub(super) fn done(&self, state: &State) -> AppliedCommands {
        let mut inner = self.lock();
        let CommandState { done, has_ended, .. } = &mut *inner;
        let new = AppliedCommands { commands: done.commands, until: done.until, ..std::mem::take(done) };
        (done.commands, done.until) = (new.commands, new.until);
        let ends = |(stream, has_ended): (usize, &mut bool)| {
            let is_over = self.facts.counts[stream].is_some_and(|count| state.get(NUMBERS + stream) >= count);
            let is_new = self.facts.kind != Kind::Sequence && is_over && !std::mem::replace(has_ended, is_over);
            is_new.then_some(stream as u32)
        };
        AppliedCommands { ended: has_ended.iter_mut().enumerate().filter_map(ends).collect(), ..new }
    }

    /// Returns the minimum time from one frame to the next, in nanoseconds, and whether frames are paced.
    pub(super) fn gap(&self) -> (u64, bool) {
        let (inner, layouts) = (self.lock(), &self.facts.layouts);
        let gaps = inner.paces.iter().zip(layouts);
        let gaps = gaps.flat_map(|(pace, (_, lengths))| lengths.iter().map(|length| program::gap(pace, *length).0));
        let by_round = if inner.paces.iter().any(|pace| pace.by_round) { layouts.len() as u64 } else { 1 };
        (gaps.min().unwrap_or_default() / by_round, !inner.is_top())
    }

    fn lock(&self) -> MutexGuard<'_, CommandState> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_rate(action: &Action) -> bool {
    matches!(action, Action::Rate(_) | Action::Rates(_) | Action::Scale(_))
}

impl StreamConstants {
    /// Returns whether all frames have the same length.
    fn are_as_long(&self) -> bool {
        let mut lengths = self.layouts.iter().flat_map(|(_, lengths)| lengths);
        let first = lengths.next();
        lengths.all(|length| Some(length) == first)
    }
}

impl CommandState {
    fn is_held(&self) -> bool {
        self.paused.is_some() || self.stopped
    }

    /// Returns whether all streams are sent at line rate.
    fn is_top(&self) -> bool {
        self.paces.iter().all(Pace::is_top)
    }

    /// Returns the time of the next command: time since boot.
    fn next_at(&self) -> Option<u64> {
        Some(self.start?.saturating_add(self.pending.front()?.at))
    }

    /// Returns whether all frames that were due before `at`, which has passed, are sent.
    fn is_ready(&self, state: &State, at: u64, now: u64) -> bool {
        let behind = at.saturating_sub(state.get(DUE));
        let has_ended = state.get(MADE) >= state.get(LIMIT);
        behind == 0 || self.is_held() || self.is_top() || has_ended || now - at + behind > state.get(BOUND)
    }

    fn apply_due(&mut self, facts: &StreamConstants, state: &State, now: u64) {
        while let Some(at) = self.next_at().filter(|at| *at <= now)
            && self.is_ready(state, at, now)
            && let Some(command) = self.pending.pop_front()
        {
            if !self.is_held() && !self.is_top() && state.get(DUE) < at {
                self.set_due(state, at, 0);
            }
            self.apply(facts, state, &command, at);
            (self.done.commands, self.done.until) = (self.done.commands + 1, Some(command.at));
        }
        state.set(UNTIL, self.next_at().unwrap_or(u64::MAX));
    }

    /// Applies a command; all frames that were due before are sent.
    fn apply(&mut self, facts: &StreamConstants, state: &State, command: &Command, at: u64) {
        let places: Vec<usize> = command.which.places(facts.layouts.len()).collect();
        match &command.action {
            Action::Rate(rate) => self.change_rates(facts, state, at, &places, |_, _| *rate),
            Action::Rates(rates) => {
                self.change_rates(facts, state, at, &places, |nth, was| rates.get(nth).copied().unwrap_or(was))
            }
            Action::Scale(factor) => self.change_rates(facts, state, at, &places, |_, was| was.scaled(*factor)),
            Action::Pause if !self.stopped => self.paused = self.paused.or(Some(at)),
            Action::Resume => {
                if let Some(since) = self.paused.take() {
                    let due = state.get(DUE).saturating_add(at.saturating_sub(since));
                    self.set_due(state, due, state.get(FRACTION));
                }
            }
            Action::Stop if state.get(MADE) < state.get(LIMIT) => (self.stopped, self.paused) = (true, None),
            Action::Start(numbers) if self.stopped || state.get(MADE) >= state.get(LIMIT) => {
                self.restart(facts, state, at, numbers);
            }
            Action::Pause | Action::Stop | Action::Start(_) | Action::Begin(_) => {}
        }
    }

    /// Changes rates. The rest of the current gap is scaled like whole gaps; the first frame waits for none, and a gap
    /// between bursts stays.
    fn change_rates(
        &mut self,
        facts: &StreamConstants,
        state: &State,
        at: u64,
        places: &[usize],
        new: impl Fn(usize, Rate) -> Rate,
    ) {
        let turn = (state.get(TURN) as usize).min(facts.layouts.len() - 1);
        let nanos = |pace: &Pace| {
            let (whole, parts) = program::gap(pace, facts.layouts[turn].1[0]);
            whole as f64 + parts as f64 / PARTS
        };
        let (was_top, old) = (self.is_top(), nanos(&self.paces[turn]));
        for (nth, place) in places.iter().enumerate() {
            self.paces[*place].rate = new(nth, self.paces[*place].rate);
            self.write_gaps(facts, state, *place);
        }
        let at = self.paused.unwrap_or(at);
        if was_top {
            return self.set_due(state, at, 0);
        }
        if places.contains(&turn) {
            let (due, part) = (state.get(DUE), state.get(FRACTION) as f64 / PARTS);
            let left = due.saturating_sub(at) as f64 + part;
            let stays = match self.paces[turn].burst {
                _ if state.get(NUMBERS + turn) == 0 => left,
                Some(_) => (left - old).max(0.0),
                None => 0.0,
            };
            let rest = if old > 0.0 { (left - stays) * (nanos(&self.paces[turn]) / old) } else { 0.0 };
            let later = stays + rest;
            self.set_due(state, at.saturating_add(later as u64), (later.fract() * PARTS) as u64);
        }
    }

    /// Restarts all streams, with these numbers in trailers.
    fn restart(&mut self, facts: &StreamConstants, state: &State, at: u64, numbers: &[u32]) {
        let CommandWords { numbers: words, .. } = facts.places;
        for (stream, before) in self.before.iter_mut().enumerate() {
            *before += state.get(NUMBERS + stream);
            let number = numbers.get(stream).copied();
            self.done.begun.push(RestartedStream { stream: stream as u32, number, made: *before });
        }
        let kept: Vec<u64> = (words..words + self.before.len()).map(|word| state.get(word)).collect();
        let stays = |word: &usize| ![LATE_MAX, LATE_SUM, LATE_FRAMES, BYTES, BOUND, SHIFTED].contains(word);
        (OWN..OWN + facts.words).filter(stays).for_each(|word| state.set(word, 0));
        facts.initial.iter().for_each(|(word, value)| state.set(*word, *value));
        for (stream, kept) in kept.into_iter().enumerate() {
            self.write_gaps(facts, state, stream);
            let number = numbers.get(stream).map_or(kept, |number| program::number(*number));
            state.set(words + stream, number);
        }
        state.set(LIMIT, state.get(MADE).saturating_add(facts.frames));
        self.set_due(state, at, 0);
        self.stopped = false;
        self.has_ended.fill(false);
    }

    fn write_gaps(&self, facts: &StreamConstants, state: &State, stream: usize) {
        let (first, lengths) = &facts.layouts[stream];
        for (length, layout) in lengths.iter().zip(*first..) {
            let (word, (nanos, parts)) = (facts.places.gap(layout), program::gap(&self.paces[stream], *length));
            state.set(word, nanos);
            state.set(word + 1, parts);
        }
    }

    /// Sets the due time of the next frame.
    fn set_due(&self, state: &State, due: u64, fraction: u64) {
        let (due, fraction) = if self.is_top() { (0, 0) } else { (due, fraction) };
        state.set(DUE, due);
        state.set(FRACTION, fraction);
    }
}
