//! What streams were told, and what of it they have done: the state of each, its rate, its number in trailers.

use linerate_generate::stream::check::IDS;
use linerate_generate::stream::{Order, Shape, Span, Stream, StreamSet};
use linerate_generate::{Action, Command, Rate, Shares, Which};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// How a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It sends.
    Running,
    /// It waits to be resumed.
    Paused,
    /// It waits to be started.
    Stopped,
    /// It has sent all of its frames.
    Ended,
}

/// One stream of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamState {
    /// How it is.
    pub state: State,
    /// How fast it goes, or would: its own rate, also where the set began with one for all.
    pub rate: Rate,
    /// Frames that it has sent in this run.
    pub sent: u64,
    /// Frames since it was started last.
    pub since_start: u64,
    /// Its number in trailers since then.
    pub number: u32,
}

/// Why streams cannot be told something.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// There are none of these.
    #[error("no stream is named {0:?}: * stands for any characters, ? for one")]
    Nobody(String),
    /// Nothing is sent any more.
    #[error("the run is over")]
    Over,
    /// That time is over.
    #[error("the time to do it is over: the run is {0:?} old")]
    Past(Duration),
    /// They cannot do it.
    #[error("{0}")]
    Unable(String),
}

/// What is known of all streams.
#[derive(Debug)]
pub(super) struct Book {
    order: Order,
    lines: Box<[Line]>,
    /// Whether the set began with a rate of all, and what each has of it.
    shares: Option<Shares>,
    /// Commands that no sender has done, by their times.
    pending: Vec<Command>,
    /// Who has or had which number, the numbers of streams that were started again with what they had sent before, and the next number
    /// that nobody has.
    places: HashMap<u32, u32>,
    starts: BTreeMap<u32, Vec<(u32, u64)>>,
    next_number: u32,
}

/// One stream.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Why it has a rate, if it cannot do without.
    paced: Option<&'static str>,
    /// It ends by itself.
    ends: bool,
    /// What was told last, and what is done.
    told: (State, Rate),
    now: (State, Rate),
    /// Nothing was sent yet, nor will be before it is started.
    is_new: bool,
    /// Frames before it was started last, and its number since.
    before: u64,
    number: u32,
}

impl Book {
    pub(super) fn new(set: &StreamSet) -> Self {
        let shares = Shares::of(set);
        let own = |place, stream: &Stream| match (&shares, set.rate) {
            (Some(shares), Some(rate)) => shares.rate(rate, place),
            (None, Some(rate)) => rate,
            (_, None) => stream.rate,
        };
        let line = |(place, stream): (usize, &Stream)| {
            let is = (State::Running, own(place, stream));
            let paced = match (&stream.shape, stream.span) {
                (Shape::Poisson { .. }, _) => Some("a Poisson process has a rate"),
                (_, Span::ALWAYS) => None,
                _ => Some("whoever begins or ends at a time of its own has a rate"),
            };
            let ends = stream.count.is_some() || stream.span.length.is_some();
            Line { paced, ends, told: is, now: is, is_new: false, before: 0, number: stream.id }
        };
        let places = set.streams.iter().zip(0..).map(|(stream, place)| (stream.id, place)).collect();
        let next_number = set.streams.iter().map(|stream| stream.id + 1).max().unwrap_or(0);
        let lines = set.streams.iter().enumerate().map(line).collect();
        Book { order: set.order, lines, shares, pending: Vec::new(), places, starts: BTreeMap::new(), next_number }
    }

    /// Whether streams can do that, sent by so many threads; numbers for those that may start.
    pub(super) fn prepare(
        &mut self,
        which: &Which,
        action: Action,
        threads: usize,
        later: bool,
    ) -> Result<Action, Refused> {
        let (all, unable) = (*which == Which::All, |why: &str| Err(Refused::Unable(why.to_owned())));
        let is_top = self.lines.iter().all(|line| line.told.1 == Rate::Top);
        let alone = matches!(action, Action::Rate(_) | Action::Rates(_) | Action::Scale(_)) || !all;
        if is_top && threads > 1 && alone {
            return unable(
                "streams at top speed by several threads can be paused, stopped and started all together alone",
            );
        }
        match &action {
            Action::Rate(rate) => self.check_rate(which, *rate)?,
            Action::Rates(rates) if rates.len() != which.places(self.lines.len()).count() => {
                return unable("as many rates as there are streams belong here");
            }
            Action::Rates(rates) => rates.iter().try_for_each(|rate| self.check_rate(which, *rate))?,
            Action::Begin(_) => return unable("the streams of a set are there from its beginning"),
            Action::Scale(factor) if !(factor.is_finite() && *factor > 0.0) => {
                return Err(Refused::Unable(format!("{factor} is no factor above 0")));
            }
            Action::Pause | Action::Resume | Action::Stop | Action::Start(_)
                if self.order == Order::Sequential && !all =>
            {
                return unable("streams that follow one another can be paused, stopped and started all together alone");
            }
            Action::Start(_) => return self.numbers(which, later).map(Action::Start),
            _ => {}
        }
        Ok(action)
    }

    /// They were told.
    pub(super) fn told(&mut self, command: &Command) {
        for place in command.which.places(self.lines.len()) {
            let share = self.share(&command.which, place, &command.action);
            let line = &mut self.lines[place];
            line.told = after(line.told, &command.action, share);
            line.is_new |= command.at == 0 && command.action == Action::Stop;
        }
        let place = self.pending.partition_point(|other| other.at <= command.at);
        self.pending.insert(place, command.clone());
    }

    /// What streams were told up to this time is done.
    pub(super) fn done(&mut self, until: u64) {
        let done = self.pending.partition_point(|command| command.at <= until);
        for command in self.pending.drain(..done).collect::<Vec<_>>() {
            for place in command.which.places(self.lines.len()) {
                let share = self.share(&command.which, place, &command.action);
                let line = &mut self.lines[place];
                line.now = after(line.now, &command.action, share);
            }
        }
    }

    /// A stream began anew, by one sender, which had sent so many of its frames. Another sender may be some starts behind.
    pub(super) fn begun(&mut self, stream: u32, number: Option<u32>, sent: u64) {
        let line = &mut self.lines[stream as usize];
        let Some(number) = number.filter(|number| *number != line.number || self.starts.contains_key(&stream)) else {
            return;
        };
        let first = (line.number, 0);
        let starts = self.starts.entry(stream).or_insert_with(|| vec![first]);
        match starts.iter_mut().find(|(known, _)| *known == number) {
            Some((_, before)) => *before += sent,
            None => starts.push((number, sent)),
        }
        self.places.insert(number, stream);
        if let Some(last) = starts.last() {
            (line.number, line.before) = *last;
        }
    }

    /// The numbers that a stream had, the present one last.
    pub(super) fn numbers_of(&self, place: usize) -> Vec<u32> {
        let starts = self.starts.get(&(place as u32)).map(|starts| starts.iter().map(|(number, _)| *number).collect());
        starts.unwrap_or_else(|| self.lines.get(place).map(|line| line.number).into_iter().collect())
    }

    /// Frames by number, from those that each has sent in all.
    pub(super) fn by_number(&self, sent: &[u64]) -> Vec<u64> {
        let most = self.places.keys().max().map_or(0, |number| *number as usize + 1);
        let mut found = vec![0; most];
        for (place, (line, sent)) in self.lines.iter().zip(sent).enumerate() {
            match self.starts.get(&(place as u32)) {
                None => found[line.number as usize] = *sent,
                Some(starts) => {
                    let ends = starts.iter().skip(1).map(|(_, before)| *before).chain([u64::MAX]);
                    for ((number, before), end) in starts.iter().zip(ends) {
                        found[*number as usize] = end.min(*sent).saturating_sub(*before);
                    }
                }
            }
        }
        found
    }

    /// How each is, with what it has sent in all; `has_ended` says whether a stream has no frame left.
    pub(super) fn states(&self, sent: &[u64], has_ended: impl Fn(usize) -> bool) -> Vec<StreamState> {
        let state = |(place, line): (usize, &Line)| {
            let sent = sent.get(place).copied().unwrap_or(0);
            let since_start = sent.saturating_sub(line.before);
            let state = if line.now.0 != State::Stopped && has_ended(place) { State::Ended } else { line.now.0 };
            StreamState { state, rate: line.now.1, sent, since_start, number: line.number }
        };
        self.lines.iter().enumerate().map(state).collect()
    }

    /// The stream that has or had a number.
    pub(super) fn place_of(&self, number: u32) -> Option<usize> {
        self.places.get(&number).map(|place| *place as usize)
    }

    fn check_rate(&self, which: &Which, rate: Rate) -> Result<(), Refused> {
        let unable = |why: String| Err(Refused::Unable(why));
        match rate {
            Rate::Frames(number) | Rate::Bits(number, _) if !(number.is_finite() && number > 0.0) => {
                return unable(format!("{number} is not a rate: above 0"));
            }
            _ => {}
        }
        let mut named = which.places(self.lines.len()).map(|place| &self.lines[place]);
        if let Some(why) = named.find_map(|line| line.paced).filter(|_| rate == Rate::Top) {
            return unable(why.into());
        }
        let chosen: Vec<usize> = which.places(self.lines.len()).collect();
        let others = (0..self.lines.len()).filter(|place| chosen.binary_search(place).is_err());
        let differs = |place: usize| (self.lines[place].told.1 == Rate::Top) != (rate == Rate::Top);
        if self.order == Order::Interleaved && others.into_iter().any(differs) {
            return unable(
                "streams that are sent together have either all a rate or all none (top): tell all of them".into(),
            );
        }
        Ok(())
    }

    /// A number for each stream that is named.
    fn numbers(&mut self, which: &Which, later: bool) -> Result<Arc<[u32]>, Refused> {
        let streams = self.lines.len();
        let (mut next, is_later) = (self.next_number, later || !self.pending.is_empty());
        let mut number = |place: usize| {
            let line = &mut self.lines[place];
            let may_start = is_later || line.told.0 == State::Stopped || line.ends;
            if std::mem::take(&mut line.is_new) || !may_start {
                return line.number;
            }
            next += 1;
            next - 1
        };
        let numbers: Vec<u32> = which.places(streams).map(&mut number).collect();
        if next > IDS {
            return Err(Refused::Unable(format!("streams were started so often that their {IDS} numbers are used up")));
        }
        self.next_number = next;
        Ok(numbers.into())
    }

    /// What a stream has of a rate that all are told.
    fn share(&self, which: &Which, place: usize, action: &Action) -> Option<Rate> {
        let rate = match action {
            Action::Rate(rate) => rate,
            Action::Rates(rates) => return which.nth(place).and_then(|nth| rates.get(nth).copied()),
            _ => return None,
        };
        let shares = self.shares.as_ref().filter(|_| *which == Which::All);
        Some(shares.map_or(*rate, |shares| shares.rate(*rate, place)))
    }
}

/// How a stream is once it was told something; `rate` is what it has of one.
fn after((state, is): (State, Rate), action: &Action, rate: Option<Rate>) -> (State, Rate) {
    let state = match (action, state) {
        (Action::Pause, State::Running) => State::Paused,
        (Action::Resume, State::Paused) => State::Running,
        (Action::Stop, _) => State::Stopped,
        (Action::Start(_), State::Stopped) => State::Running,
        (_, state) => state,
    };
    let factor = if let Action::Scale(factor) = action { *factor } else { 1.0 };
    (state, rate.unwrap_or(is.scaled(factor)))
}
