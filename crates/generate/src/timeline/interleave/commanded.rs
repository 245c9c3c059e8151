//! Streams all at once that are told something.
//!
//! Members of a round that are told the same stay together, the others do: a round is split, and both parts go on as the whole did. So a
//! hundred thousand streams that are told something together cost no more than one, and what is told to some changes nothing for others.

use super::{Interleave, Round, Total, first_turns};
use crate::Rate;
use crate::command::{Action, Command, Which};
use crate::stream::StreamSet;
use crate::timeline::Begun;
use crate::timeline::Shares;
use crate::timeline::clock::Clock;
use std::cmp::Reverse;
use std::collections::HashMap;

/// What a stream would be started with, and who waits for it.
#[derive(Clone, Debug)]
pub(super) struct Commanded {
    /// Each stream at its first frame, at the rate that it has by now.
    origins: Vec<Clock>,
    /// Who is stopped before its end.
    stopped: Vec<bool>,
    shares: Option<Shares>,
}

impl Interleave {
    /// The same, which can be told something.
    pub fn commanded(set: &StreamSet, cycle: u64) -> Self {
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
        interleave.commanded = Some(Box::new(Commanded { origins, stopped, shares }));
        interleave
    }

    /// Does what streams are told, what was due before that having gone; says which of them begin anew.
    pub fn obey(&mut self, command: &Command) -> Vec<Begun> {
        let Some(mut commanded) = self.commanded.take() else { return Vec::new() };
        let mut begun = Vec::new();
        let at = command.at as f64;
        if let Some(total) = self.total.take() {
            self.separate(&total, &commanded.origins);
        }
        let chosen = Chosen::of(&command.which, self.counts.len());
        match &command.action {
            Action::Rate(rate) => {
                let Commanded { origins, shares, .. } = &mut *commanded;
                let shares = shares.as_ref().filter(|_| command.which == Which::All);
                let new = |place: usize, _: Rate| shares.map_or(*rate, |shares| shares.rate(*rate, place));
                self.change_rates(origins, &chosen, at, new);
            }
            Action::Scale(factor) => {
                self.change_rates(&mut commanded.origins, &chosen, at, |_, rate| rate.scaled(*factor));
            }
            Action::Pause => self.each_chosen(&chosen, |round| round.paused = round.paused.or(Some(at))),
            Action::Resume => self.each_chosen(&chosen, |round| {
                if let Some(since) = round.paused.take() {
                    round.clock.shift(at - since);
                }
            }),
            Action::Stop => self.each_chosen(&chosen, |round| {
                round.members.drain(..).for_each(|stream| commanded.stopped[stream as usize] = true);
            }),
            Action::Start(_) => begun = self.start(&mut commanded, command),
        }
        self.rounds.retain(|round| !round.members.is_empty());
        self.heap = first_turns(&self.rounds);
        self.commanded = Some(commanded);
        begun
    }

    /// Whether streams have times of their own once they run.
    pub fn would_be_paced(&self) -> bool {
        self.commanded.iter().flat_map(|commanded| &commanded.origins).any(|origin| !origin.is_idle())
    }

    /// Whether frames may come once streams are told something.
    pub fn is_waiting(&self) -> bool {
        let stopped = self.commanded.iter().flat_map(|commanded| &commanded.stopped);
        self.rounds.iter().any(|round| round.paused.is_some()) || stopped.into_iter().any(|stopped| *stopped)
    }

    /// What runs is due so much later.
    pub fn shift(&mut self, by: f64) {
        if let Some(total) = &mut self.total {
            total.base += by;
        }
        self.rounds.iter_mut().filter(|round| round.paused.is_none()).for_each(|round| round.clock.shift(by));
        self.heap = first_turns(&self.rounds);
    }

    /// Each stream gets its share of the rate of all as its own, and each frame stays due when it was.
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

    fn change_rates(&mut self, origins: &mut [Clock], chosen: &Chosen, at: f64, new: impl Fn(usize, Rate) -> Rate) {
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

    /// Streams that stand begin anew.
    fn start(&mut self, commanded: &mut Commanded, command: &Command) -> Vec<Begun> {
        let (mut runs, mut begun, mut kinds) = (vec![false; self.counts.len()], Vec::new(), HashMap::new());
        self.rounds.iter().flat_map(|round| &round.members).for_each(|stream| runs[*stream as usize] = true);
        let named = command.which.places(self.counts.len()).enumerate();
        for (nth, place) in named.filter(|(_, place)| runs.get(*place) == Some(&false)) {
            commanded.stopped[place] = false;
            begun.push(Begun { stream: place as u32, number: command.action.number(nth) });
            let mut clock = commanded.origins[place].clone();
            clock.restart(command.at as f64);
            let known = clock.kind().map(|kind| *kinds.entry(kind).or_insert(self.rounds.len()));
            match known.and_then(|known| self.rounds.get_mut(known)) {
                Some(round) => {
                    round.members.push(place as u32);
                    round.ends = round.ends.min(self.counts[place]);
                }
                None => self.rounds.push(Round::new(clock, place as u32, self.counts[place])),
            }
        }
        begun
    }

    /// Goes through the streams that are chosen, with those of a round together that are.
    fn each_chosen(&mut self, chosen: &Chosen, change: impl FnMut(&mut Round)) {
        self.regroup(chosen, |_| Some([0; 5]));
        let is_chosen = |round: &&mut Round| round.members.first().is_some_and(|stream| chosen.has(*stream as usize));
        self.rounds.iter_mut().filter(is_chosen).for_each(change);
    }

    /// Splits rounds until the chosen ones of each are of one kind, and by themselves.
    fn regroup(&mut self, chosen: &Chosen, kind: impl Fn(u32) -> Option<[u64; 5]>) {
        for index in 0..self.rounds.len() {
            let (mut kinds, mut groups, mut alone) = (HashMap::new(), Vec::new(), 0);
            for stream in &self.rounds[index].members {
                let key = match chosen.has(*stream as usize).then(|| kind(*stream)) {
                    None => (0, [0; 5]),
                    Some(Some(kind)) => (1, kind),
                    Some(None) => {
                        alone += 1;
                        (1 + alone, [0; 5])
                    }
                };
                let groups_before = kinds.len();
                groups.push(*kinds.entry(key).or_insert(groups_before));
            }
            if kinds.len() > 1 {
                let parts = (0..kinds.len()).map(|group| self.rounds[index].part(&groups, group, &self.counts));
                let mut parts: Vec<Round> = parts.collect();
                self.rounds[index] = parts.swap_remove(0);
                self.rounds.extend(parts);
            }
        }
    }
}

impl Round {
    /// The members that are of a group, each as far as it is.
    fn part(&self, groups: &[usize], group: usize, counts: &[u64]) -> Round {
        let mine = || groups.iter().enumerate().filter(|(_, of)| **of == group).map(|(place, _)| place);
        let phases = if self.phases.is_empty() { Vec::new() } else { mine().map(|place| self.phases[place]).collect() };
        let members: Vec<u32> = mine().map(|place| self.members[place]).collect();
        let turn = mine().filter(|place| *place < self.turn).count();
        let mut part = Round { clock: self.clock.clone(), members, turn, ends: 0, phases, paused: self.paused };
        part.find_end(counts);
        if part.turn == part.members.len() {
            part.go_on(counts);
        }
        part
    }
}

/// Streams that something is told to.
struct Chosen(Option<Vec<bool>>);

impl Chosen {
    fn of(which: &Which, streams: usize) -> Self {
        let Which::Some(places) = which else { return Chosen(None) };
        let mut chosen = vec![false; streams];
        places.iter().filter_map(|place| chosen.get_mut(*place as usize).map(|is| *is = true)).for_each(drop);
        Chosen(Some(chosen))
    }

    fn has(&self, place: usize) -> bool {
        self.0.as_ref().is_none_or(|chosen| chosen[place])
    }
}
