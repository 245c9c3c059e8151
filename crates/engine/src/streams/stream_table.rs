//! Status of streams under control: requested and applied state, rate, number in trailers.

use linerate_generate::stream::check::IDS;
use linerate_generate::stream::{Order, Shape, Span, Stream, StreamSet};
use linerate_generate::{Action, Command, Rate, Shares, StreamSelection};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// Status of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendState {
    /// Sending.
    Running,
    /// Paused until it is resumed.
    Paused,
    /// Stopped until it is started.
    Stopped,
    /// All of its frames are sent.
    Ended,
}

/// One stream of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StreamState {
    /// Current state.
    pub state: SendState,
    /// Own rate, even if the set started with a common rate; kept while it does not send.
    pub rate: Rate,
    /// Frames sent in this run.
    pub sent: u64,
    /// Frames sent since the last start.
    pub since_start: u64,
    /// Number in trailers since then.
    pub number: u32,
}

/// Reason why a command was rejected.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CommandError {
    /// No stream matches the pattern.
    #[error("no stream matches {0:?} (* matches any characters, ? one)")]
    NoMatch(String),
    /// The run is over.
    #[error("the run is over")]
    Over,
    /// The time of the command has passed.
    #[error("the time has passed: the run started {0:?} ago")]
    Past(Duration),
    /// The streams do not support it.
    #[error("{0}")]
    Unable(String),
}

/// Status of all streams.
#[derive(Debug)]
pub(super) struct StreamTable {
    order: Order,
    lines: Box<[StreamEntry]>,
    /// Share of each stream, if the set started with a common rate.
    shares: Option<Shares>,
    /// Commands that no sender has applied, by their times.
    pending: Vec<Command>,
    /// Streams by current and former numbers; numbers of restarted streams with the frames sent before; and the next
    /// free number.
    places: HashMap<u32, u32>,
    starts: BTreeMap<u32, Vec<(u32, u64)>>,
    next_number: u32,
}

#[derive(Clone, Copy, Debug)]
struct StreamEntry {
    /// Reason why it needs a rate, if it does.
    paced: Option<&'static str>,
    /// True if it ends by itself.
    ends: bool,
    /// Requested state, and applied state.
    requested: (SendState, Rate),
    now: (SendState, Rate),
    /// True if nothing was sent yet, nor will be before a start.
    is_new: bool,
    /// Frames sent before the last start, and the number since.
    before: u64,
    number: u32,
}

impl StreamTable {
    pub(super) fn new(set: &StreamSet) -> Self {
        let shares = Shares::of(set);
        let own = |place, stream: &Stream| match (&shares, set.rate) {
            (Some(shares), Some(rate)) => shares.rate(rate, place),
            (None, Some(rate)) => rate,
            (_, None) => stream.rate,
        };
        let line = |(place, stream): (usize, &Stream)| {
            let is = (SendState::Running, own(place, stream));
            let paced = match (&stream.shape, stream.span) {
                (Shape::Poisson { .. }, _) => Some("a Poisson process needs a rate"),
                (_, Span::ALWAYS) => None,
                _ => Some("a stream with its own start or end needs a rate"),
            };
            let ends = stream.count.is_some() || stream.span.length.is_some();
            StreamEntry { paced, ends, requested: is, now: is, is_new: false, before: 0, number: stream.id }
        };
        let places = set.streams.iter().zip(0..).map(|(stream, place)| (stream.id, place)).collect();
        let next_number = set.streams.iter().map(|stream| stream.id + 1).max().unwrap_or(0);
        let lines = set.streams.iter().enumerate().map(line).collect();
        StreamTable {
            order: set.order,
            lines,
            shares,
            pending: Vec::new(),
            places,
            starts: BTreeMap::new(),
            next_number,
        }
    }

    /// Checks whether the streams, sent by `threads` threads, support an action, and assigns numbers to those that may
    /// start.
    pub(super) fn prepare(
        &mut self,
        which: &StreamSelection,
        action: Action,
        threads: usize,
        later: bool,
    ) -> Result<Action, CommandError> {
        let (all, unable) = (*which == StreamSelection::All, |why: &str| Err(CommandError::Unable(why.to_owned())));
        let is_top = self.lines.iter().all(|line| line.requested.1 == Rate::Top);
        let is_restricted = matches!(action, Action::Rate(_) | Action::Rates(_) | Action::Scale(_)) || !all;
        if is_top && threads > 1 && is_restricted {
            return unable(
                "streams without a rate on several threads can only be paused, stopped or started all at once",
            );
        }
        match &action {
            Action::Rate(rate) => self.check_rate(which, *rate)?,
            Action::Rates(rates) if rates.len() != which.places(self.lines.len()).count() => {
                return unable("expected one rate per stream");
            }
            Action::Rates(rates) => rates.iter().try_for_each(|rate| self.check_rate(which, *rate))?,
            Action::Begin(_) => return unable("streams cannot be added to a set"),
            Action::Scale(factor) if !(factor.is_finite() && *factor > 0.0) => {
                return Err(CommandError::Unable(format!("invalid factor {factor}; expected a number above 0")));
            }
            Action::Pause | Action::Resume | Action::Stop | Action::Start(_)
                if self.order == Order::Sequential && !all =>
            {
                return unable("sequential streams can only be paused, stopped or started all at once");
            }
            Action::Start(_) => return self.numbers(which, later).map(Action::Start),
            _ => {}
        }
        Ok(action)
    }

    /// Records a command.
    pub(super) fn record(&mut self, command: &Command) {
        for place in command.which.places(self.lines.len()) {
            let share = self.share(&command.which, place, &command.action);
            let line = &mut self.lines[place];
            line.requested = after(line.requested, &command.action, share);
            line.is_new |= command.at == 0 && command.action == Action::Stop;
        }
        let place = self.pending.partition_point(|other| other.at <= command.at);
        self.pending.insert(place, command.clone());
    }

    /// Marks commands up to this time as applied.
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

    /// Records a restart by one sender, which had sent this many frames of the stream. Another sender may be some
    /// starts behind.
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

    /// Returns the numbers that a stream had, the current one last.
    pub(super) fn numbers_of(&self, place: usize) -> Vec<u32> {
        let starts = self.starts.get(&(place as u32)).map(|starts| starts.iter().map(|(number, _)| *number).collect());
        starts.unwrap_or_else(|| self.lines.get(place).map(|line| line.number).into_iter().collect())
    }

    /// Converts totals of each stream to frames by number.
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

    /// Returns the state of each stream, given its total; `has_ended` returns whether a stream has no frame left.
    pub(super) fn states(&self, sent: &[u64], has_ended: impl Fn(usize) -> bool) -> Vec<StreamState> {
        let state = |(place, line): (usize, &StreamEntry)| {
            let sent = sent.get(place).copied().unwrap_or(0);
            let since_start = sent.saturating_sub(line.before);
            let state =
                if line.now.0 != SendState::Stopped && has_ended(place) { SendState::Ended } else { line.now.0 };
            StreamState { state, rate: line.now.1, sent, since_start, number: line.number }
        };
        self.lines.iter().enumerate().map(state).collect()
    }

    /// Returns the stream that has or had a number.
    pub(super) fn place_of(&self, number: u32) -> Option<usize> {
        self.places.get(&number).map(|place| *place as usize)
    }

    fn check_rate(&self, which: &StreamSelection, rate: Rate) -> Result<(), CommandError> {
        let unable = |why: String| Err(CommandError::Unable(why));
        match rate {
            Rate::Frames(number) | Rate::Bits(number, _) if !(number.is_finite() && number > 0.0) => {
                return unable(format!("invalid rate {number}; expected a number above 0"));
            }
            _ => {}
        }
        let mut named = which.places(self.lines.len()).map(|place| &self.lines[place]);
        if let Some(why) = named.find_map(|line| line.paced).filter(|_| rate == Rate::Top) {
            return unable(why.into());
        }
        let chosen: Vec<usize> = which.places(self.lines.len()).collect();
        let others = (0..self.lines.len()).filter(|place| chosen.binary_search(place).is_err());
        let differs = |place: usize| (self.lines[place].requested.1 == Rate::Top) != (rate == Rate::Top);
        if self.order == Order::Interleaved && others.into_iter().any(differs) {
            return unable("interleaved streams must all have a rate or all run at max; set all of them".into());
        }
        Ok(())
    }

    /// Assigns a number to each of the streams.
    fn numbers(&mut self, which: &StreamSelection, later: bool) -> Result<Arc<[u32]>, CommandError> {
        let streams = self.lines.len();
        let (mut next, is_later) = (self.next_number, later || !self.pending.is_empty());
        let mut number = |place: usize| {
            let line = &mut self.lines[place];
            let may_start = is_later || line.requested.0 == SendState::Stopped || line.ends;
            if std::mem::take(&mut line.is_new) || !may_start {
                return line.number;
            }
            next += 1;
            next - 1
        };
        let numbers: Vec<u32> = which.places(streams).map(&mut number).collect();
        if next > IDS {
            return Err(CommandError::Unable(format!("too many starts: all {IDS} stream numbers are used")));
        }
        self.next_number = next;
        Ok(numbers.into())
    }

    /// Returns a stream's rate under an action that sets rates.
    fn share(&self, which: &StreamSelection, place: usize, action: &Action) -> Option<Rate> {
        let rate = match action {
            Action::Rate(rate) => rate,
            Action::Rates(rates) => return which.nth(place).and_then(|nth| rates.get(nth).copied()),
            _ => return None,
        };
        let shares = self.shares.as_ref().filter(|_| *which == StreamSelection::All);
        Some(shares.map_or(*rate, |shares| shares.rate(*rate, place)))
    }
}

/// Returns the state of a stream after an action; `rate` is its rate under that action.
fn after((state, is): (SendState, Rate), action: &Action, rate: Option<Rate>) -> (SendState, Rate) {
    let state = match (action, state) {
        (Action::Pause, SendState::Running) => SendState::Paused,
        (Action::Resume, SendState::Paused) => SendState::Running,
        (Action::Stop, _) => SendState::Stopped,
        (Action::Start(_), SendState::Stopped) => SendState::Running,
        (_, state) => state,
    };
    let factor = if let Action::Scale(factor) = action { *factor } else { 1.0 };
    (state, rate.unwrap_or(is.scaled(factor)))
}
