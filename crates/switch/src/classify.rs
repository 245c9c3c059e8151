//! The rule for a frame: the one with the highest priority, and of those the oldest.
//!
//! Rules with the same mask are in one table (tuple space search: Srinivasan, Suri, Varghese, SIGCOMM 1999). Tables are
//! searched in the order of their best rules, until no remaining table can have a better one than was found.

use crate::hash::Secrets;
use crate::key::{IN_PORT, Key};
use crate::rule::{InstalledRule, Match, Rule};
use crate::tuple::Tuple;
use linerate_burst::{Nanos, prefetch};
use std::collections::HashMap;

/// Slot of a rule.
pub(crate) type RuleId = u32;

/// Precedence of a rule: the greater one wins.
pub(crate) type Rank = (u16, std::cmp::Reverse<u64>);

/// Number of tables to prefetch; later ones are rarely reached.
const AHEAD: usize = 4;

/// Number of rules to prefetch at a time when many are added.
const GROUP: usize = 32;

#[derive(Debug)]
pub(crate) struct Rules {
    /// Rules by slot; entries of free slots are stale.
    rules: Vec<InstalledRule>,
    /// True for slots in use.
    are_there: Vec<bool>,
    free: Vec<RuleId>,
    /// Tables, ordered by their best rule.
    tuples: Vec<Tuple>,
    secrets: Secrets,
    /// Bits that some rule matches; the others distinguish no two frames.
    looked_at: Key,
    numbers: u64,
    timed: usize,
}

impl Rules {
    pub(crate) fn new(secrets: Secrets) -> Self {
        let (rules, are_there, free, tuples) = Default::default();
        Rules { rules, are_there, free, tuples, secrets, looked_at: Key::default(), numbers: 0, timed: 0 }
    }

    /// Adds rules, each replacing one with the same priority and match.
    pub(crate) fn add(&mut self, rules: impl IntoIterator<Item = Rule>, now: Nanos) {
        self.put_all(rules.into_iter().collect(), now, false);
        self.order();
    }

    /// Replaces all rules; those that are present unchanged are kept.
    pub(crate) fn replace(&mut self, rules: impl IntoIterator<Item = Rule>, now: Nanos) {
        let ids = self.put_all(rules.into_iter().collect(), now, true);
        let mut stays = vec![false; self.rules.len()];
        ids.into_iter().for_each(|id| stays[id as usize] = true);
        let out: Vec<_> = self.all().map(|(id, _)| id).filter(|id| !stays[*id as usize]).collect();
        self.remove(out);
        self.order();
    }

    /// Adds rules and returns their slots; prefetches the memory of the next ones.
    fn put_all(&mut self, rules: Vec<Rule>, now: Nanos, keeps_same: bool) -> Vec<RuleId> {
        let mut places = self.places();
        let mut ids = Vec::with_capacity(rules.len());
        let mut rules = rules.into_iter();
        while rules.len() > 0 {
            let group = &rules.as_slice()[..rules.len().min(GROUP)];
            let known = || {
                let tuple = |rule: &Rule| Some((rule.matches.value, rule.priority, *places.get(&rule.matches.mask)?));
                group.iter().filter_map(tuple)
            };
            for (value, _, place) in known() {
                self.tuples[place].prefetch(&self.secrets, &value);
            }
            for (value, priority, place) in known() {
                if let Some(id) = self.tuples[place].same(&self.secrets, &value, priority) {
                    let rule = &self.rules[id as usize];
                    prefetch(rule);
                    prefetch(&rule.rule.matches.mask);
                    prefetch(&rule.rule.matches.value);
                    prefetch(&rule.rule.actions);
                }
            }
            ids.extend(rules.by_ref().take(GROUP).map(|rule| self.put(rule, now, &mut places, keeps_same)));
        }
        ids
    }

    /// Returns the index of the table of each mask, valid until tables are reordered.
    fn places(&self) -> HashMap<Key, usize> {
        self.tuples.iter().enumerate().map(|(place, tuple)| (tuple.mask, place)).collect()
    }

    /// Adds a rule and returns its slot. It keeps the age of a rule that it replaces, and if that is equal also its
    /// counters.
    fn put(&mut self, rule: Rule, now: Nanos, places: &mut HashMap<Key, usize>, keeps_same: bool) -> RuleId {
        let Match { mask, value } = rule.matches;
        let place = *places.entry(mask).or_insert_with(|| {
            self.tuples.push(Tuple::new(mask));
            self.tuples.len() - 1
        });
        if let Some(id) = self.tuples[place].same(&self.secrets, &value, rule.priority) {
            let old = &mut self.rules[id as usize];
            if !keeps_same || old.rule != rule {
                self.timed -= usize::from(old.rule.is_timed());
                self.timed += usize::from(rule.is_timed());
                *old = InstalledRule::new(rule, old.number, now);
            }
            return id;
        }
        self.numbers += 1;
        self.timed += usize::from(rule.is_timed());
        let rank = (rule.priority, std::cmp::Reverse(self.numbers));
        let installed = InstalledRule::new(rule, self.numbers, now);
        let id = match self.free.pop() {
            Some(id) => {
                (self.rules[id as usize], self.are_there[id as usize]) = (installed, true);
                id
            }
            None => {
                self.rules.push(installed);
                self.are_there.push(true);
                self.rules.len() as RuleId - 1
            }
        };
        self.tuples[place].add(&self.secrets, value, rank, id);
        id
    }

    /// Restores the order and the summary of all tables.
    fn order(&mut self) {
        self.tuples.retain(|tuple| !tuple.is_empty());
        self.tuples.iter_mut().for_each(Tuple::tighten);
        self.tuples.sort_by_key(|tuple| std::cmp::Reverse(tuple.best));
        self.looked_at = self.tuples.iter().fold(Key::default(), |all, tuple| all.or(&tuple.mask));
    }

    /// Removes rules, and returns them.
    pub(crate) fn remove_if(&mut self, mut is_out: impl FnMut(&InstalledRule) -> bool) -> Vec<InstalledRule> {
        let ids = self.all().filter(|(_, rule)| is_out(rule)).map(|(id, _)| id).collect();
        let removed = self.remove(ids);
        if !removed.is_empty() {
            self.order();
        }
        removed
    }

    fn remove(&mut self, ids: Vec<RuleId>) -> Vec<InstalledRule> {
        let places = self.places();
        let mut removed = Vec::with_capacity(ids.len());
        for id in ids {
            let installed = self.rules[id as usize].clone();
            let Match { mask, value } = installed.rule.matches;
            if let Some(place) = places.get(&mask) {
                self.tuples[*place].remove(&self.secrets, &value, id);
            }
            self.timed -= usize::from(installed.rule.is_timed());
            self.are_there[id as usize] = false;
            self.free.push(id);
            removed.push(installed);
        }
        removed
    }

    pub(crate) fn expire(&mut self, now: Nanos) -> Vec<InstalledRule> {
        if self.timed == 0 { Vec::new() } else { self.remove_if(|rule| rule.is_over(now)) }
    }

    /// Prefetches the memory that [`Rules::find`] reads.
    #[inline(always)]
    pub(crate) fn prefetch(&self, key: &Key) {
        self.tuples.iter().take(AHEAD).for_each(|tuple| tuple.prefetch(&self.secrets, key));
    }

    /// Prefetches a rule that is to be counted.
    #[inline(always)]
    pub(crate) fn prefetch_rule(&self, id: RuleId) {
        if let Some(rule) = self.rules.get(id as usize) {
            prefetch(rule);
        }
    }

    /// Returns the rule for a frame.
    #[inline]
    pub(crate) fn find(&self, key: &Key) -> Option<RuleId> {
        let mut best: Option<(Rank, RuleId)> = None;
        for tuple in &self.tuples {
            if best.is_some_and(|(rank, _)| rank > tuple.best) {
                break;
            }
            best = best.max(tuple.find(&self.secrets, key));
        }
        best.map(|(_, id)| id)
    }

    /// Like [`Rules::find`], by a linear search.
    pub(crate) fn find_naively(&self, key: &Key) -> Option<RuleId> {
        let found = self.all().filter(|(_, rule)| rule.rule.matches.matches(key));
        found.max_by_key(|(_, rule)| (rule.rule.priority, std::cmp::Reverse(rule.number))).map(|(id, _)| id)
    }

    /// Returns the bits that rules match: frames that agree in these have the same rule.
    pub(crate) fn looked_at(&self) -> &Key {
        &self.looked_at
    }

    /// Returns whether rules match only the input port, which is the same for all frames of a burst.
    pub(crate) fn is_by_port(&self) -> bool {
        let mut port = Key::default();
        port.set(IN_PORT, IN_PORT.all());
        self.looked_at == port || self.looked_at == Key::default()
    }

    /// Returns a rule by slot, valid until rules change.
    #[inline(always)]
    pub(crate) fn get(&self, id: RuleId) -> Option<&InstalledRule> {
        self.rules.get(id as usize)
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, id: RuleId) -> Option<&mut InstalledRule> {
        self.rules.get_mut(id as usize)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = (RuleId, &InstalledRule)> {
        let places = self.rules.iter().zip(&self.are_there).enumerate();
        places.filter(|(_, (_, is_there))| **is_there).map(|(id, (rule, _))| (id as RuleId, rule))
    }

    pub(crate) fn len(&self) -> usize {
        self.rules.len() - self.free.len()
    }
}
