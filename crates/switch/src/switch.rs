//! The switch: frames in, copies of them out.

use crate::action::{Action, PortNo, Reason};
use crate::cache::Cache;
use crate::classify::{RuleId, Rules};
use crate::execution::ActionContext;
use crate::frame::{Frame, Scratch};
use crate::hash::Secrets;
use crate::key::{ETHERNET, Key, ParsedFrame, parse};
use crate::learn::{LearnCounts, LearnOptions, Station, Stations};
use crate::rule::{Inspect, InspectOutcome, InstalledRule, Match, RemainingActions, Rule};
use crate::vlan::PortVlans;
use linerate_burst::{Burst, Nanos};
use std::sync::Arc;

/// Frames are looked up in groups, so that several memory accesses overlap.
const GROUP: usize = 32;

/// Options of a switch.
#[derive(Clone, Debug)]
pub struct Options {
    /// VLANs of each port, from port 1 on.
    pub ports: Vec<PortVlans>,
    /// Options of MAC learning.
    pub learn: LearnOptions,
    /// Entries of the cache before the rules, 80 bytes each; 0 to disable it.
    pub cache: usize,
    /// True if `normal` also forwards frames for the next bridge (01:80:c2:00:00:00 to 0f).
    pub forward_reserved: bool,
}

impl Options {
    /// Returns options for this number of ports, each in all VLANs.
    pub fn new(ports: usize) -> Self {
        let ports = vec![PortVlans::default(); ports];
        Options { ports, learn: LearnOptions::default(), cache: 1 << 17, forward_reserved: false }
    }
}

/// Receiver of the output of a switch.
pub trait Outputs {
    /// Takes a copy of frame `index` of the burst for a port; `as_it_came` is true if these are all its bytes,
    /// unchanged and in place.
    fn copy(&mut self, index: usize, port: PortNo, bytes: &[u8], as_it_came: bool);

    /// Hands frame `index` to an inspector. By default no such frame passes.
    fn inspect(&mut self, _index: usize, _inspect: Inspect<'_>) -> InspectOutcome {
        InspectOutcome::Blocked
    }

    /// Ends frame `index`: with the number of copies, or the reason for a drop.
    fn done(&mut self, index: usize, copies: Result<u32, Reason>);
}

/// Switch.
#[derive(Debug)]
pub struct Switch {
    ports: Vec<PortVlans>,
    rules: Rules,
    secrets: Secrets,
    cache: Cache,
    /// Generation of the rules; never 0.
    generation: u32,
    stations: Stations,
    forward_reserved: bool,
    /// Number of frames subject to sampling.
    sampled: u64,
    seed: u64,
    scratch: Scratch,
    /// Memory for frames that need another tag at some ports.
    retagged: Scratch,
}

impl Switch {
    /// Creates a switch without rules, which drops every frame.
    pub fn new(options: Options) -> Self {
        let Options { ports, learn, cache, forward_reserved } = options;
        let secrets = Secrets::new(learn.seed);
        Switch {
            ports,
            rules: Rules::new(secrets.clone()),
            secrets,
            cache: Cache::new(cache),
            generation: 1,
            stations: Stations::new(learn),
            forward_reserved,
            sampled: 0,
            seed: learn.seed,
            scratch: Scratch::default(),
            retagged: Scratch::default(),
        }
    }

    /// Adds a rule, replacing (and keeping the age of) one with the same priority and match.
    pub fn add(&mut self, rule: Rule, now: Nanos) {
        self.add_all([rule], now);
    }

    /// Adds rules, like [`Switch::add`] one after the other, but faster.
    pub fn add_all(&mut self, rules: impl IntoIterator<Item = Rule>, now: Nanos) {
        self.rules.add(rules, now);
        self.turn();
    }

    /// Replaces all rules; those that are present unchanged keep their counters.
    pub fn replace_all(&mut self, rules: impl IntoIterator<Item = Rule>, now: Nanos) {
        self.rules.replace(rules, now);
        self.turn();
    }

    /// Removes rules, and returns their number.
    pub fn remove_if(&mut self, is_out: impl FnMut(&InstalledRule) -> bool) -> usize {
        let removed = self.rules.remove_if(is_out).len();
        self.turn();
        removed
    }

    /// Removes expired rules, and returns them.
    pub fn expire(&mut self, now: Nanos) -> Vec<InstalledRule> {
        let removed = self.rules.expire(now);
        if !removed.is_empty() {
            self.turn();
        }
        removed
    }

    /// Starts a new generation of rules, which invalidates the cache.
    fn turn(&mut self) {
        self.generation = self.generation.checked_add(1).unwrap_or_else(|| {
            self.cache.clear();
            1
        });
    }

    /// Returns the rules in order of precedence.
    pub fn rules(&self) -> Vec<&InstalledRule> {
        let mut rules: Vec<_> = self.rules.all().map(|(_, rule)| rule).collect();
        rules.sort_by_key(|rule| (std::cmp::Reverse(rule.rule.priority), rule.number));
        rules
    }

    /// Returns the number of rules.
    pub fn count(&self) -> usize {
        self.rules.len()
    }

    /// Returns a rule of the same priority that can match the same frame and has other actions; the older one wins.
    pub fn ambiguous(&self, rule: &Rule) -> Option<&InstalledRule> {
        let is_other = |other: &&InstalledRule| {
            let other = &other.rule;
            other.priority == rule.priority && other.matches != rule.matches && other.actions != rule.actions
        };
        self.rules
            .all()
            .map(|(_, other)| other)
            .filter(is_other)
            .find(|other| other.rule.matches.overlaps(&rule.matches))
    }

    /// Returns the MAC table.
    pub fn stations(&self, now: Nanos) -> Vec<Station> {
        self.stations.list(now)
    }

    /// Clears the MAC table.
    pub fn flush_stations(&mut self) {
        self.stations.flush();
    }

    /// Returns the counters of MAC learning.
    pub fn learned(&self) -> LearnCounts {
        self.stations.learned
    }

    /// Returns the number of cache hits and misses.
    pub fn lookups(&self) -> (u64, u64) {
        (self.cache.hits, self.cache.misses)
    }

    /// Returns the VLANs of its ports.
    pub fn ports(&self) -> &[PortVlans] {
        &self.ports
    }

    /// Returns the rule for a frame, without counting or caching.
    pub fn rule_for(&self, in_port: PortNo, frame: &[u8]) -> Option<&InstalledRule> {
        self.rules.get(self.rules.find(&parse(in_port, frame).key)?)
    }

    /// Like [`Switch::rule_for`], by a linear search: slow, but simple.
    pub fn rule_for_naively(&self, in_port: PortNo, frame: &[u8]) -> Option<&InstalledRule> {
        self.rules.get(self.rules.find_naively(&parse(in_port, frame).key)?)
    }

    /// Processes a burst of whole frames from `in_port`.
    pub fn burst(&mut self, now: Nanos, in_port: PortNo, burst: Burst<'_>, out: &mut impl Outputs) {
        if self.rules.is_by_port() {
            let rule = self.rules.find(&parse(in_port, &[]).key);
            if let Some(rule) = rule.and_then(|rule| self.rules.get_mut(rule))
                && let Some(port) = rule.only
            {
                return pass(now, (in_port, port), rule, burst, out);
            }
        }
        let mut parsed = [ParsedFrame::default(); GROUP];
        let mut keys = [Key::default(); GROUP];
        let mut hashes = [0; GROUP];
        let mut at = 0;
        while at < burst.len() {
            let frames = (burst.len() - at).min(GROUP);
            for ahead in at + frames..(at + 2 * frames).min(burst.len()) {
                burst.prefetch(ahead);
            }
            let looked_at = *self.rules.looked_at();
            for (slot, index) in (at..at + frames).enumerate() {
                parsed[slot] = parse(in_port, burst.frame(index));
                keys[slot] = parsed[slot].key.masked(&looked_at);
                hashes[slot] = self.secrets.hash(&keys[slot]);
                self.cache.prefetch(hashes[slot]);
            }
            for (hash, key) in hashes.iter().zip(&keys).take(frames) {
                match self.cache.expect(*hash, self.generation) {
                    Some(rule) => self.rules.prefetch_rule(rule),
                    None => self.rules.prefetch(key),
                }
            }
            for (slot, index) in (at..at + frames).enumerate() {
                let rule = self.lookup(hashes[slot], &keys[slot]);
                self.apply((now, in_port, index), rule, burst.frame(index), &parsed[slot], out);
            }
            at += frames;
        }
    }

    #[inline(always)]
    fn lookup(&mut self, hash: u64, key: &Key) -> Option<RuleId> {
        if let Some(found) = self.cache.find(hash, key, self.generation) {
            return found;
        }
        let found = self.rules.find(key);
        self.cache.put(hash, key, self.generation, found);
        found
    }

    #[inline]
    fn apply(
        &mut self,
        (now, in_port, index): (Nanos, PortNo, usize),
        rule: Option<RuleId>,
        frame: &[u8],
        parsed: &ParsedFrame,
        out: &mut impl Outputs,
    ) {
        if frame.len() < ETHERNET {
            return out.done(index, Err(Reason::Malformed));
        }
        let Switch { ports, rules, stations, forward_reserved, sampled, seed, scratch, retagged, .. } = self;
        let Some(rule) = rule.and_then(|rule| rules.get_mut(rule)) else { return out.done(index, Err(Reason::NoRule)) };
        rule.frames += 1;
        rule.bytes += frame.len() as u64;
        rule.used = now;
        // Most frames go unchanged to one other port.
        if let Some(port) = rule.only {
            return send(out, index, (in_port, port), frame);
        }
        let actions = &rule.rule.actions;
        let rest = rule.list.as_ref().map(|actions| RemainingActions { actions, from: 0 });
        let mut frame = Frame::new(frame, *parsed, scratch);
        let way = ActionContext {
            ports,
            stations,
            retagged,
            sampled,
            seed: *seed,
            forward_reserved: *forward_reserved,
            now,
            in_port,
            index,
            out,
            copies: 0,
            reason: Reason::Rule,
            rest,
            is_taken: false,
        };
        way.go(actions, &mut frame);
    }

    /// Applies the remaining actions to a frame that comes back from an inspector; `index` identifies it for `out`.
    pub fn resume(
        &mut self,
        (now, in_port, index): (Nanos, PortNo, usize),
        bytes: &[u8],
        (actions, from): (&Arc<[Action]>, usize),
        out: &mut impl Outputs,
    ) {
        if bytes.len() < ETHERNET {
            return out.done(index, Err(Reason::Malformed));
        }
        let Switch { ports, stations, forward_reserved, sampled, seed, scratch, retagged, .. } = self;
        let mut frame = Frame::new(bytes, parse(in_port, bytes), scratch);
        let way = ActionContext {
            ports,
            stations,
            retagged,
            sampled,
            seed: *seed,
            forward_reserved: *forward_reserved,
            now,
            in_port,
            index,
            out,
            copies: 0,
            reason: Reason::Rule,
            rest: Some(RemainingActions { actions, from }),
            is_taken: false,
        };
        way.go(actions.get(from..).unwrap_or_default(), &mut frame);
    }
}

/// Sends all frames of a burst to one port without parsing them, by the only matching rule.
fn pass(
    now: Nanos,
    (in_port, port): (PortNo, PortNo),
    rule: &mut InstalledRule,
    burst: Burst<'_>,
    out: &mut impl Outputs,
) {
    for index in 0..burst.len() {
        let frame = burst.frame(index);
        if frame.len() < ETHERNET {
            out.done(index, Err(Reason::Malformed));
            continue;
        }
        rule.frames += 1;
        rule.bytes += frame.len() as u64;
        rule.used = now;
        send(out, index, (in_port, port), frame);
    }
}

#[inline(always)]
fn send(out: &mut impl Outputs, index: usize, (in_port, port): (PortNo, PortNo), frame: &[u8]) {
    if port == in_port {
        return out.done(index, Err(Reason::SamePort));
    }
    out.copy(index, port, frame, true);
    out.done(index, Ok(1));
}

/// Returns whether a rule matches only frames that `asked` matches.
pub fn is_within(rule: &InstalledRule, asked: &Match) -> bool {
    asked.covers(&rule.rule.matches)
}
