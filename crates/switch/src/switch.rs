//! The whole: frames in, copies of them out.

use crate::action::{Action, PortNo, Reason};
use crate::cache::Cache;
use crate::classify::{RuleId, Rules};
use crate::frame::{Frame, Scratch};
use crate::hash::Secrets;
use crate::key::{ETHERNET, Key, Parsed, parse};
use crate::learn::{LearnOptions, Learned, Station, Stations};
use crate::rule::{Inspect, Inspected, Installed, Match, Rest, Rule};
use crate::vlan::PortVlans;
use crate::way::Way;
use linerate_burst::{Burst, Nanos};
use std::sync::Arc;

/// Frames are looked up in groups, so that memory is on its way for several at a time.
const GROUP: usize = 32;

/// How a switch is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// The VLANs of each port, from port 1 on.
    pub ports: Vec<PortVlans>,
    /// What it learns.
    pub learn: LearnOptions,
    /// Entries of the cache in front of the rules, 80 bytes each; 0: none.
    pub cache: usize,
    /// `normal` forwards frames for the next bridge alone (01:80:c2:00:00:00 to 0f) too.
    pub forward_reserved: bool,
}

impl Options {
    /// So many ports, each in all VLANs.
    pub fn new(ports: usize) -> Self {
        let ports = vec![PortVlans::default(); ports];
        Options { ports, learn: LearnOptions::default(), cache: 1 << 17, forward_reserved: false }
    }
}

/// Where frames go.
pub trait Outputs {
    /// A copy of frame `index` of the burst leaves by a port; `as_it_came`: these are all its bytes, where they lay.
    fn copy(&mut self, index: usize, port: PortNo, bytes: &[u8], as_it_came: bool);

    /// Somebody is to decide about frame `index`. Where nobody does, no such frame passes.
    fn inspect(&mut self, _index: usize, _inspect: Inspect<'_>) -> Inspected {
        Inspected::Blocked
    }

    /// No more copies of frame `index` follow: so many there were, or why there was none.
    fn done(&mut self, index: usize, copies: Result<u32, Reason>);
}

/// A switch.
#[derive(Debug)]
pub struct Switch {
    ports: Vec<PortVlans>,
    rules: Rules,
    secrets: Secrets,
    cache: Cache,
    /// Of the rules; never 0.
    generation: u32,
    stations: Stations,
    forward_reserved: bool,
    /// How many frames there were for samples.
    sampled: u64,
    seed: u64,
    scratch: Scratch,
    /// For frames whose tag is another one at some ports.
    retagged: Scratch,
}

impl Switch {
    /// One without rules, which drops every frame.
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

    /// Adds a rule, in the place (and with the age) of one with the same priority about the same frames.
    pub fn add(&mut self, rule: Rule, now: Nanos) {
        self.add_all([rule], now);
    }

    /// Adds rules, as by [`Switch::add`] one after the other; many together take a moment.
    pub fn add_all(&mut self, rules: impl IntoIterator<Item = Rule>, now: Nanos) {
        self.rules.add(rules, now);
        self.turn();
    }

    /// Has these rules and no others from now on; those that were there as they are keep what was counted.
    pub fn replace_all(&mut self, rules: impl IntoIterator<Item = Rule>, now: Nanos) {
        self.rules.replace(rules, now);
        self.turn();
    }

    /// Removes rules, and returns how many.
    pub fn remove_if(&mut self, is_out: impl FnMut(&Installed) -> bool) -> usize {
        let removed = self.rules.remove_if(is_out).len();
        self.turn();
        removed
    }

    /// Removes the rules whose time is over, and returns them.
    pub fn expire(&mut self, now: Nanos) -> Vec<Installed> {
        let removed = self.rules.expire(now);
        if !removed.is_empty() {
            self.turn();
        }
        removed
    }

    /// The rules are others than before: nothing that was found counts any more.
    fn turn(&mut self) {
        self.generation = self.generation.checked_add(1).unwrap_or_else(|| {
            self.cache.clear();
            1
        });
    }

    /// The rules, those first that are asked first.
    pub fn rules(&self) -> Vec<&Installed> {
        let mut rules: Vec<_> = self.rules.all().map(|(_, rule)| rule).collect();
        rules.sort_by_key(|rule| (std::cmp::Reverse(rule.rule.priority), rule.number));
        rules
    }

    /// How many rules there are.
    pub fn count(&self) -> usize {
        self.rules.len()
    }

    /// Two rules of one priority that can be about the same frame and do other things with it; the older one goes first.
    pub fn ambiguous(&self, rule: &Rule) -> Option<&Installed> {
        let is_other = |other: &&Installed| {
            let other = &other.rule;
            other.priority == rule.priority && other.matches != rule.matches && other.actions != rule.actions
        };
        self.rules
            .all()
            .map(|(_, other)| other)
            .filter(is_other)
            .find(|other| other.rule.matches.overlaps(&rule.matches))
    }

    /// What is known of where MACs are.
    pub fn stations(&self, now: Nanos) -> Vec<Station> {
        self.stations.list(now)
    }

    /// Forgets where MACs are.
    pub fn flush_stations(&mut self) {
        self.stations.flush();
    }

    /// What was learned so far.
    pub fn learned(&self) -> Learned {
        self.stations.learned
    }

    /// How often what was found before counted, and how often the rules were asked.
    pub fn lookups(&self) -> (u64, u64) {
        (self.cache.hits, self.cache.misses)
    }

    /// Its ports.
    pub fn ports(&self) -> &[PortVlans] {
        &self.ports
    }

    /// Which rule there is for a frame, without that anything is counted or remembered.
    pub fn rule_for(&self, in_port: PortNo, frame: &[u8]) -> Option<&Installed> {
        self.rules.get(self.rules.find(&parse(in_port, frame).key)?)
    }

    /// The same by looking at every rule: slow, and plainly right.
    pub fn rule_for_naively(&self, in_port: PortNo, frame: &[u8]) -> Option<&Installed> {
        self.rules.get(self.rules.find_naively(&parse(in_port, frame).key)?)
    }

    /// Frames that came by `in_port`, whole ones.
    pub fn burst(&mut self, now: Nanos, in_port: PortNo, burst: Burst<'_>, out: &mut impl Outputs) {
        if self.rules.is_by_port() {
            let rule = self.rules.find(&parse(in_port, &[]).key);
            if let Some(rule) = rule.and_then(|rule| self.rules.get_mut(rule))
                && let Some(port) = rule.only
            {
                return pass(now, (in_port, port), rule, burst, out);
            }
        }
        let mut parsed = [Parsed::default(); GROUP];
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
        parsed: &Parsed,
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
        // Most frames go to one other port as they came.
        if let Some(port) = rule.only {
            return send(out, index, (in_port, port), frame);
        }
        let actions = &rule.rule.actions;
        let rest = rule.list.as_ref().map(|actions| Rest { actions, from: 0 });
        let mut frame = Frame::new(frame, *parsed, scratch);
        let way = Way {
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

    /// Does the rest with a frame that comes back from who decides about it; `index` is its place for `out`.
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
        let way = Way {
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
            rest: Some(Rest { actions, from }),
            is_taken: false,
        };
        way.go(actions.get(from..).unwrap_or_default(), &mut frame);
    }
}

/// All frames of a burst have one rule, which sends them out of a port: nothing of them is looked at.
fn pass(now: Nanos, (in_port, port): (PortNo, PortNo), rule: &mut Installed, burst: Burst<'_>, out: &mut impl Outputs) {
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

/// Whether a rule is about no other frames than those that are asked for.
pub fn is_within(rule: &Installed, asked: &Match) -> bool {
    asked.covers(&rule.rule.matches)
}
