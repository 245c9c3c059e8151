//! Which rule is about a frame: the one of the highest priority, and of those the oldest.
//!
//! Rules with the same mask lie in one hash table (tuple space search: Srinivasan, Suri, Varghese, SIGCOMM 1999). Tables are asked in
//! the order of the best rule that each has, until none that is left can have a better one than was found.

use crate::key::Key;
use crate::rule::{Installed, Match, Rule};
use linerate_burst::Nanos;
use std::collections::HashMap;

/// The place of a rule.
pub(crate) type RuleId = u32;

/// Of two rules the greater one goes first.
type Rank = (u16, std::cmp::Reverse<u64>);

/// The rules.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    rules: Vec<Option<Installed>>,
    free: Vec<RuleId>,
    by_match: HashMap<(u16, Match), RuleId>,
    tuples: Vec<Tuple>,
    /// Some rule looks at these bits; the others tell no two frames apart.
    looked_at: Key,
    numbers: u64,
    timed: usize,
}

/// Rules with the same mask.
#[derive(Debug)]
struct Tuple {
    mask: Key,
    best: Rank,
    /// The best one first.
    rules: HashMap<Key, Vec<(Rank, RuleId)>>,
}

impl Rules {
    /// Adds a rule, in the place of one with the same priority about the same frames.
    pub fn add(&mut self, rule: Rule, now: Nanos) {
        let (priority, matches) = (rule.priority, rule.matches);
        if let Some(id) = self.by_match.get(&(priority, matches)).copied() {
            self.remove(id);
        }
        self.numbers += 1;
        self.timed += usize::from(rule.idle_timeout > 0 || rule.hard_timeout > 0);
        let number = self.numbers;
        let installed = Installed::new(rule, number, now);
        let id = self.free.pop().unwrap_or(self.rules.len() as RuleId);
        if id as usize == self.rules.len() {
            self.rules.push(Some(installed))
        } else {
            self.rules[id as usize] = Some(installed)
        }
        self.by_match.insert((priority, matches), id);
        let rank = (priority, std::cmp::Reverse(number));
        let at = self.tuples.iter().position(|tuple| tuple.mask == matches.mask).unwrap_or_else(|| {
            self.tuples.push(Tuple { mask: matches.mask, best: rank, rules: HashMap::new() });
            self.tuples.len() - 1
        });
        let tuple = &mut self.tuples[at];
        tuple.best = tuple.best.max(rank);
        let same = tuple.rules.entry(matches.value).or_default();
        same.insert(same.partition_point(|(other, _)| *other > rank), (rank, id));
        self.looked_at = self.looked_at.or(&matches.mask);
        self.sort();
    }

    fn sort(&mut self) {
        self.tuples.sort_by_key(|tuple| std::cmp::Reverse(tuple.best));
    }

    fn remove(&mut self, id: RuleId) -> Option<Installed> {
        let installed = self.rules[id as usize].take()?;
        self.free.push(id);
        let Rule { priority, matches, idle_timeout, hard_timeout, .. } = &installed.rule;
        self.timed -= usize::from(*idle_timeout > 0 || *hard_timeout > 0);
        self.by_match.remove(&(*priority, *matches));
        let at = self.tuples.iter().position(|tuple| tuple.mask == matches.mask)?;
        let tuple = &mut self.tuples[at];
        if let Some(same) = tuple.rules.get_mut(&matches.value) {
            same.retain(|(_, other)| *other != id);
            if same.is_empty() {
                tuple.rules.remove(&matches.value);
            }
        }
        Some(installed)
    }

    /// What is said of all rules of a table is no more than a bound after some have gone: makes it true again.
    fn tighten(&mut self) {
        self.tuples.retain(|tuple| !tuple.rules.is_empty());
        for tuple in &mut self.tuples {
            tuple.best = tuple.rules.values().filter_map(|same| Some(same.first()?.0)).max().unwrap_or(tuple.best);
        }
        self.looked_at = self.tuples.iter().fold(Key::default(), |all, tuple| all.or(&tuple.mask));
        self.sort();
    }

    /// Removes rules, and returns them.
    pub fn remove_if(&mut self, mut is_out: impl FnMut(&Installed) -> bool) -> Vec<Installed> {
        let out =
            |(id, rule): (usize, &Option<Installed>)| rule.as_ref().is_some_and(&mut is_out).then_some(id as RuleId);
        let ids: Vec<_> = self.rules.iter().enumerate().filter_map(out).collect();
        let removed: Vec<_> = ids.into_iter().filter_map(|id| self.remove(id)).collect();
        if !removed.is_empty() {
            self.tighten();
        }
        removed
    }

    /// Removes those whose time is over.
    pub fn expire(&mut self, now: Nanos) -> Vec<Installed> {
        if self.timed == 0 { Vec::new() } else { self.remove_if(|rule| rule.is_over(now)) }
    }

    /// The rule for a frame.
    pub fn find(&self, key: &Key) -> Option<RuleId> {
        let mut best: Option<(Rank, RuleId)> = None;
        for tuple in &self.tuples {
            if best.is_some_and(|(rank, _)| rank > tuple.best) {
                break;
            }
            let found = tuple.rules.get(&key.masked(&tuple.mask)).and_then(|same| same.first()).copied();
            best = best.max(found);
        }
        best.map(|(_, id)| id)
    }

    /// The same by looking at every rule.
    pub fn find_naively(&self, key: &Key) -> Option<RuleId> {
        let found = self.all().filter(|(_, rule)| rule.rule.matches.matches(key));
        found.max_by_key(|(_, rule)| (rule.rule.priority, std::cmp::Reverse(rule.number))).map(|(id, _)| id)
    }

    /// What is the same of two frames has the same rule.
    pub fn looked_at(&self) -> &Key {
        &self.looked_at
    }

    pub fn get(&self, id: RuleId) -> Option<&Installed> {
        self.rules.get(id as usize)?.as_ref()
    }

    pub fn get_mut(&mut self, id: RuleId) -> Option<&mut Installed> {
        self.rules.get_mut(id as usize)?.as_mut()
    }

    pub fn all(&self) -> impl Iterator<Item = (RuleId, &Installed)> {
        self.rules.iter().enumerate().filter_map(|(id, rule)| Some((id as RuleId, rule.as_ref()?)))
    }

    pub fn len(&self) -> usize {
        self.by_match.len()
    }
}
