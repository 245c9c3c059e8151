//! Interleaved streams that accept commands.
//!
//! Members of a round that get the same command stay together, and so do the others: a round is split, and both parts
//! continue like the whole. So a command to a hundred thousand streams together costs no more than to one, and a
//! command to some streams changes nothing for others.

use super::chain::Link;
use super::{Interleave, Round, Total, first_turns};
use crate::Rate;
use crate::command::{Action, Command, StreamSelection};
use crate::stream::StreamSet;
use crate::timeline::clock::{Clock, ClockKind};
use crate::timeline::{Batch, Shares, StreamEvent};
use std::cmp::Reverse;
use std::collections::HashMap;

/// State to start streams with, and sequences of streams.
#[derive(Clone, Debug, Default)]
pub(super) struct CommandState {
    /// Each stream at its first frame, at its current rate.
    pub(super) origins: Vec<Clock>,
    /// Streams in sequence, by index.
    pub(super) links: HashMap<u32, Link>,
    /// Streams stopped before their end.
    stopped: Vec<bool>,
    shares: Option<Shares>,
}

impl Interleave {
    /// Like [`Interleave::new`], for streams that accept commands.
    pub(crate) fn commanded(set: &StreamSet, cycle: u64) -> Self {
        let mut interleave = Interleave::new(set, cycle);
        let mut origins: Vec<Clock> = set.streams.iter().map(|stream| Clock::new(stream, stream.rate, cycle)).collect();
        let shares = Shares::of(set);
        if let (Some(shares), Some(rate)) = (&shares, set.rate) {
            for (place, origin) in origins.iter_mut().enumerate() {
                origin.make_even();
                origin.rate = shares.rate(rate, place);
            }
        }
        let stopped = vec![false; origins.len()];
        let links = HashMap::new();
        interleave.commanded = Some(Box::new(CommandState { origins, links, stopped, shares }));
        interleave.news = Some(Vec::new());
        interleave
    }

    /// Creates the order of streams that have yet to begin.
    pub(crate) fn coming() -> Self {
        let (commanded, news) = (Some(Box::default()), Some(Vec::new()));
        Interleave { heap: Default::default(), rounds: Vec::new(), counts: Vec::new(), total: None, commanded, news }
    }

    /// Drains the events of streams.
    pub(crate) fn news(&mut self) -> Vec<StreamEvent> {
        self.news.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Applies a command; frames due before it have been sent.
    pub(crate) fn apply(&mut self, command: &Command) {
        let Some(mut commanded) = self.commanded.take() else { return };
        let at = command.at as f64;
        if let Some(total) = self.total.take() {
            self.separate(&total, &commanded.origins);
        }
        let chosen = SelectedStreams::of(&command.which, self.counts.len());
        match &command.action {
            Action::Rate(rate) => {
                let CommandState { origins, shares, .. } = &mut *commanded;
                let shares = shares.as_ref().filter(|_| command.which == StreamSelection::All);
                let new = |place: usize, _: Rate| shares.map_or(*rate, |shares| shares.rate(*rate, place));
                self.change_rates(origins, &chosen, at, new);
                commanded.pace_links();
            }
            Action::Rates(rates) => {
                let nth = |place: usize| command.which.nth(place).and_then(|nth| rates.get(nth).copied());
                let new = |place: usize, rate: Rate| nth(place).unwrap_or(rate);
                self.change_rates(&mut commanded.origins, &chosen, at, new);
                commanded.pace_links();
            }
            Action::Scale(factor) => {
                self.change_rates(&mut commanded.origins, &chosen, at, |_, rate| rate.scaled(*factor));
                commanded.pace_links();
            }
            Action::Pause => self.each_chosen(&chosen, |round| round.paused = round.paused.or(Some(at))),
            Action::Resume => self.each_chosen(&chosen, |round| {
                if let Some(since) = round.paused.take() {
                    round.shift(at - since);
                }
            }),
            Action::Stop => self.stop(&mut commanded, &chosen),
            Action::Start(_) => self.start(&mut commanded, command),
            Action::Begin(batch) => {
                self.stop(&mut commanded, &chosen);
                self.receive(&mut commanded, &command.which, batch);
                self.start(&mut commanded, command);
            }
        }
        self.take_turns(at);
        for round in self.rounds.iter_mut().filter(|round| round.is_late()) {
            round.retire(&self.counts, self.news.as_mut());
        }
        self.rounds.retain(|round| !round.members.is_empty());
        self.heap = first_turns(&self.rounds);
        self.commanded = Some(commanded);
    }

    /// Lets streams at the maximum rate take turns from now on, however many frames each has sent: otherwise only the
    /// one whose due times began to count first would be sent.
    fn take_turns(&mut self, at: f64) {
        let unpaced = self.rounds.iter_mut().filter(|round| round.clock.is_idle() && round.paused.is_none());
        unpaced.for_each(|round| round.clock.set_due(at.max(round.clock.due())));
    }

    /// Returns whether streams have due times of their own when running.
    pub(crate) fn would_be_paced(&self) -> bool {
        self.commanded.iter().flat_map(|commanded| &commanded.origins).any(|origin| !origin.is_idle())
    }

    /// Returns whether frames may become due after a command.
    pub(crate) fn is_waiting(&self) -> bool {
        let stopped = self.commanded.iter().flat_map(|commanded| &commanded.stopped);
        self.rounds.iter().any(|round| round.paused.is_some()) || stopped.into_iter().any(|stopped| *stopped)
    }

    /// Postpones everything that runs by `by` nanoseconds.
    pub(crate) fn shift(&mut self, by: f64) {
        if let Some(total) = &mut self.total {
            total.base += by;
        }
        self.rounds.iter_mut().filter(|round| round.paused.is_none()).for_each(|round| round.shift(by));
        self.heap = first_turns(&self.rounds);
    }

    /// Gives each stream its share of the common rate as its own; due times stay the same.
    fn separate(&mut self, total: &Total, origins: &[Clock]) {
        let Some(Reverse(front)) = self.heap.peek().copied() else { return };
        let due = total.due();
        for round in &mut self.rounds {
            let Some(origin) = round.members.first().map(|stream| &origins[*stream as usize]) else { continue };
            let (own, gap) = (round.clock.gap(), origin.gap());
            let ahead = round.clock.due() - front.due as f64;
            round.clock.make_even();
            round.clock.rate = origin.rate;
            round.clock.set_lengths(origin.lengths().clone());
            round.clock.set_due(due + if own > 0.0 { ahead * (gap / own) } else { 0.0 });
            let (members, turn) = (round.members.len() as f64, round.turn as f64);
            if round.members.len() > 1 && gap > 0.0 {
                round.phases = (0..round.members.len()).map(|place| (place as f64 - turn) / members * gap).collect();
            }
        }
    }

    fn change_rates(
        &mut self,
        origins: &mut [Clock],
        chosen: &SelectedStreams,
        at: f64,
        new: impl Fn(usize, Rate) -> Rate,
    ) {
        for (place, origin) in origins.iter_mut().enumerate().filter(|(place, _)| chosen.has(*place)) {
            origin.rate = new(place, origin.rate);
        }
        let origins = &*origins;
        self.regroup(chosen, |stream| origins[stream as usize].kind());
        self.each_chosen(chosen, |round| {
            let Some(origin) = round.members.first().map(|stream| &origins[*stream as usize]) else { return };
            round.clock.set_lengths(origin.lengths().clone());
            let (from, old) = (round.paused.unwrap_or(at), round.clock.gap());
            round.clock.rescale(from, origin.rate);
            let factor = if old > 0.0 { round.clock.gap() / old } else { 0.0 };
            round.phases.iter_mut().for_each(|phase| *phase *= factor);
        });
    }

    fn stop(&mut self, commanded: &mut CommandState, chosen: &SelectedStreams) {
        let mut ended = Vec::new();
        self.each_chosen(chosen, |round| ended.append(&mut round.members));
        for stream in commanded.unlinked(ended) {
            commanded.stopped[stream as usize] = true;
            self.news.iter_mut().for_each(|news| news.push(StreamEvent::Ended { stream }));
        }
    }

    /// Adds the streams of a batch, which are about to begin.
    fn receive(&mut self, commanded: &mut CommandState, which: &StreamSelection, batch: &Batch) {
        for (place, (clock, count)) in which.places(batch.streams.len()).zip(&batch.streams) {
            let places = self.counts.len().max(place + 1);
            self.counts.resize(places, 0);
            commanded.stopped.resize(places, false);
            commanded.origins.resize(places, clock.clone());
            (self.counts[place], commanded.origins[place]) = (*count, clock.clone());
        }
        commanded.link(which, batch);
    }

    /// Starts the chosen streams that are not running.
    fn start(&mut self, commanded: &mut CommandState, command: &Command) {
        let (mut runs, mut kinds) = (vec![false; self.counts.len()], HashMap::new());
        self.rounds.iter().flat_map(|round| &round.members).for_each(|stream| runs[*stream as usize] = true);
        let named = command.which.places(self.counts.len()).enumerate();
        // Places without a stream have no frames.
        for (nth, place) in named.filter(|(_, place)| runs.get(*place) == Some(&false) && self.counts[*place] > 0) {
            commanded.stopped[place] = false;
            let begun = StreamEvent::Begun { stream: place as u32, number: command.action.number(nth) };
            self.news.iter_mut().for_each(|news| news.push(begun));
            let mut clock = commanded.origins[place].clone();
            clock.restart(command.at as f64);
            if let Some(is_first) = commanded.is_first(place as u32) {
                // Others in the sequence wait for their turn.
                if is_first {
                    self.rounds.push(Round { is_chained: true, ..Round::new(clock, place as u32, self.counts[place]) });
                }
                continue;
            }
            let known = clock.kind().map(|kind| *kinds.entry(kind).or_insert(self.rounds.len()));
            match known.and_then(|known| self.rounds.get_mut(known)) {
                Some(round) => {
                    round.members.push(place as u32);
                    round.ends = round.ends.min(self.counts[place]);
                }
                None => self.rounds.push(Round::new(clock, place as u32, self.counts[place])),
            }
        }
    }

    /// Applies `change` to the chosen streams, to the chosen ones of a round together.
    fn each_chosen(&mut self, chosen: &SelectedStreams, change: impl FnMut(&mut Round)) {
        self.regroup(chosen, |_| Some(ClockKind::default()));
        let is_chosen = |round: &&mut Round| round.members.first().is_some_and(|stream| chosen.has(*stream as usize));
        self.rounds.iter_mut().filter(is_chosen).for_each(change);
    }

    /// Splits rounds until the chosen streams of each are of one kind, without others.
    fn regroup(&mut self, chosen: &SelectedStreams, kind: impl Fn(u32) -> Option<ClockKind>) {
        for index in 0..self.rounds.len() {
            if self.rounds[index].members.len() < 2 {
                continue;
            }
            let (mut kinds, mut groups, mut singles) = (HashMap::new(), Vec::new(), 0);
            for stream in &self.rounds[index].members {
                let key = match chosen.has(*stream as usize).then(|| kind(*stream)) {
                    None => (0, ClockKind::default()),
                    Some(Some(kind)) => (1, kind),
                    Some(None) => {
                        singles += 1;
                        (1 + singles, ClockKind::default())
                    }
                };
                let groups_before = kinds.len();
                groups.push(*kinds.entry(key).or_insert(groups_before));
            }
            if kinds.len() > 1 {
                let (round, news) = (&self.rounds[index], &mut self.news);
                let parts = (0..kinds.len()).map(|group| round.part(&groups, group, &self.counts, news.as_mut()));
                let mut parts: Vec<Round> = parts.collect();
                self.rounds[index] = parts.swap_remove(0);
                self.rounds.extend(parts);
            }
        }
    }
}

impl Round {
    /// Postpones everything by `by` nanoseconds.
    fn shift(&mut self, by: f64) {
        self.clock.shift(by);
        self.end += by;
    }

    /// Returns the round of one group's members, each at its current position.
    fn part(&self, groups: &[usize], group: usize, counts: &[u64], news: Option<&mut Vec<StreamEvent>>) -> Round {
        let mine = || groups.iter().enumerate().filter(|(_, of)| **of == group).map(|(place, _)| place);
        let phases = if self.phases.is_empty() { Vec::new() } else { mine().map(|place| self.phases[place]).collect() };
        let members: Vec<u32> = mine().map(|place| self.members[place]).collect();
        let turn = mine().filter(|place| *place < self.turn).count();
        let (clock, end, paused) = (self.clock.clone(), self.end, self.paused);
        let mut part = Round { clock, members, turn, ends: 0, phases, end, paused, is_chained: false };
        part.find_end(counts);
        if part.turn == part.members.len() {
            part.go_on(counts, news);
        }
        part
    }
}

/// Streams chosen by a command.
struct SelectedStreams(Option<Vec<bool>>);

impl SelectedStreams {
    fn of(which: &StreamSelection, streams: usize) -> Self {
        let StreamSelection::Some(places) = which else { return SelectedStreams(None) };
        let mut chosen = vec![false; streams];
        places.iter().filter_map(|place| chosen.get_mut(*place as usize).map(|is| *is = true)).for_each(drop);
        SelectedStreams(Some(chosen))
    }

    fn has(&self, place: usize) -> bool {
        self.0.as_ref().is_none_or(|chosen| chosen.get(place).is_some_and(|is| *is))
    }
}
