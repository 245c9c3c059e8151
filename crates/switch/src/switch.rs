//! The whole: frames in, copies of them out.

use crate::action::{Action, PortNo, Reason};
use crate::cache::Cache;
use crate::classify::{RuleId, Rules};
use crate::frame::{Frame, Scratch};
use crate::key::{Parsed, TYPE_VLAN, parse};
use crate::learn::{LearnOptions, Learned, Station, Stations};
use crate::rule::{Installed, Match, Rule};
use crate::vlan::PortVlans;
use linerate_burst::{Burst, Nanos, random};

/// Frames are looked up in groups, so that memory is on its way for several at a time.
const GROUP: usize = 16;

/// How a switch is made.
#[derive(Clone, Debug)]
pub struct Options {
    /// The VLANs of each port, from port 1 on.
    pub ports: Vec<PortVlans>,
    /// What it learns.
    pub learn: LearnOptions,
    /// Entries of the cache in front of the rules, 128 bytes each; 0: none.
    pub cache: usize,
    /// `normal` forwards frames for the next bridge alone (01:80:c2:00:00:00 to 0f) too.
    pub forward_reserved: bool,
}

impl Options {
    /// So many ports, each in all VLANs.
    pub fn new(ports: usize) -> Self {
        let ports = vec![PortVlans::default(); ports];
        Options { ports, learn: LearnOptions::default(), cache: 1 << 16, forward_reserved: false }
    }
}

/// Where frames go.
pub trait Outputs {
    /// A copy of frame `index` of the burst leaves by a port; `as_it_came`: these are all its bytes, where they lay.
    fn copy(&mut self, index: usize, port: PortNo, bytes: &[u8], as_it_came: bool);

    /// No more copies of frame `index` follow: so many there were, or why there was none.
    fn done(&mut self, index: usize, copies: Result<u32, Reason>);
}

/// A switch.
#[derive(Debug)]
pub struct Switch {
    ports: Vec<PortVlans>,
    rules: Rules,
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

/// A frame on its way through a list of actions.
struct Way<'s, O> {
    ports: &'s [PortVlans],
    stations: &'s mut Stations,
    retagged: &'s mut Scratch,
    sampled: &'s mut u64,
    seed: u64,
    forward_reserved: bool,
    now: Nanos,
    in_port: PortNo,
    index: usize,
    out: &'s mut O,
    copies: u32,
    reason: Reason,
}

impl Switch {
    /// One without rules, which drops every frame.
    pub fn new(options: Options) -> Self {
        let Options { ports, learn, cache, forward_reserved } = options;
        Switch {
            ports,
            rules: Rules::default(),
            cache: Cache::new(cache, learn.seed),
            generation: 1,
            stations: Stations::new(learn),
            forward_reserved,
            sampled: 0,
            seed: learn.seed,
            scratch: Scratch::default(),
            retagged: Scratch::default(),
        }
    }

    /// Adds a rule, in the place of one with the same priority about the same frames.
    pub fn add(&mut self, rule: Rule, now: Nanos) {
        self.rules.add(rule, now);
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
        let mut parsed = [Parsed::default(); GROUP];
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
                hashes[slot] = self.cache.hash(&parsed[slot].key.masked(&looked_at));
                self.cache.prefetch(hashes[slot]);
            }
            for (slot, index) in (at..at + frames).enumerate() {
                let rule = self.lookup(hashes[slot], &parsed[slot].key.masked(&looked_at));
                self.apply((now, in_port, index), rule, burst.frame(index), &parsed[slot], out);
            }
            at += frames;
        }
    }

    #[inline(always)]
    fn lookup(&mut self, hash: u64, key: &crate::key::Key) -> Option<RuleId> {
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
        if frame.len() < crate::key::ETHERNET {
            return out.done(index, Err(Reason::Malformed));
        }
        let Switch { ports, rules, stations, forward_reserved, sampled, seed, scratch, retagged, .. } = self;
        let Some(rule) = rule.and_then(|rule| rules.get_mut(rule)) else { return out.done(index, Err(Reason::NoRule)) };
        rule.frames += 1;
        rule.bytes += frame.len() as u64;
        rule.used = now;
        let actions = &rule.rule.actions;
        // Most frames go to one other port as they came.
        if let [Action::Output { port, most: None }] = actions[..] {
            if port == in_port {
                return out.done(index, Err(Reason::SamePort));
            }
            out.copy(index, port, frame, true);
            return out.done(index, Ok(1));
        }
        let (forward_reserved, seed) = (*forward_reserved, *seed);
        let reason = Reason::Rule;
        let mut way = Way {
            ports,
            stations,
            retagged,
            sampled,
            seed,
            forward_reserved,
            now,
            in_port,
            index,
            out,
            copies: 0,
            reason,
        };
        let mut frame = Frame::new(frame, *parsed, scratch);
        for action in actions {
            if !way.act(action, &mut frame) {
                break;
            }
        }
        let result = if way.copies > 0 { Ok(way.copies) } else { Err(way.reason) };
        way.out.done(index, result);
    }
}

impl<O: Outputs> Way<'_, O> {
    /// Does one thing; whether the rest is to be done too.
    fn act(&mut self, action: &Action, frame: &mut Frame<'_>) -> bool {
        match *action {
            Action::Output { port, .. } if port == self.in_port => self.reason = Reason::SamePort,
            Action::Output { port, most } => self.send(port, frame, most),
            Action::InPort => self.send(self.in_port, frame, None),
            Action::Normal => {
                if let Err(reason) = self.normal(frame) {
                    self.reason = reason;
                }
            }
            Action::Flood | Action::All => {
                self.reason = Reason::NoPort;
                let own = self.in_port;
                (1..=self.ports.len() as PortNo)
                    .filter(|port| *port != own)
                    .for_each(|port| self.send(port, frame, None));
            }
            Action::SetSource(mac) => frame.set_source(mac),
            Action::SetDestination(mac) => frame.set_destination(mac),
            Action::SetVlan(vlan) => frame.set_vlan(vlan),
            Action::SetPriority(priority) => frame.set_priority(priority),
            Action::StripVlan => frame.strip(),
            Action::PushVlan(kind) => frame.push_tag(kind, 0, 0),
            Action::SetV4Source(address) => frame.set_v4_address(12, address),
            Action::SetV4Destination(address) => frame.set_v4_address(16, address),
            Action::SetV6Source(address) => frame.set_v6_address(8, address, true),
            Action::SetV6Destination(address) => frame.set_v6_address(24, address, !frame.parsed.is_routed),
            Action::SetTos(tos) => frame.set_tos(tos, 0xfc),
            Action::SetEcn(ecn) => frame.set_tos(ecn, 3),
            Action::SetTtl(ttl) => frame.set_ttl(ttl),
            Action::DecTtl => match frame.ttl() {
                Some(ttl @ 2..) => frame.set_ttl(ttl - 1),
                // Of a header that is cut nobody knows.
                Some(_) | None => {
                    self.reason = Reason::Ttl;
                    return false;
                }
            },
            Action::SetSourcePort(port) => frame.set_port(0, port),
            Action::SetDestinationPort(port) => frame.set_port(2, port),
            Action::Sample(one_in) => {
                *self.sampled += 1;
                self.reason = Reason::Sample;
                return random::draw(self.seed, *self.sampled).is_multiple_of(u64::from(one_in.max(1)));
            }
        }
        true
    }

    fn send(&mut self, port: PortNo, frame: &Frame<'_>, most: Option<u32>) {
        let (bytes, as_it_came) = frame.bytes();
        let most = most.map_or(bytes.len(), |most| most as usize).min(bytes.len());
        self.out.copy(self.index, port, &bytes[..most], as_it_came && most == bytes.len());
        self.copies += 1;
    }

    /// What a bridge does (IEEE 802.1Q clause 8): learns where it came from, and sends it to where its destination is, or everywhere.
    fn normal(&mut self, frame: &Frame<'_>) -> Result<(), Reason> {
        let (bytes, _) = frame.bytes();
        let mac = |at: usize| bytes[at..at + 6].iter().fold(0, |mac, byte| mac << 8 | u64::from(*byte));
        let (destination, source, tag) = (mac(0), mac(6), frame.tag());
        if frame.parsed.key.dl_type() == TYPE_VLAN && tag.is_none() && !frame.had_tag() {
            return Err(Reason::Malformed);
        }
        let own = &self.ports[usize::from(self.in_port) - 1];
        let vlan = own.of_frame(tag.map_or(0, |(_, vlan)| vlan)).ok_or(Reason::Vlan)?;
        if destination & !0xf == 0x0180_c200_0000 && !self.forward_reserved {
            return Err(Reason::Reserved);
        }
        if source >> 40 & 1 == 0 {
            self.stations.learn(self.now, vlan, source, self.in_port);
        }
        let is_group = destination >> 40 & 1 == 1;
        match if is_group { None } else { self.stations.find(self.now, vlan, destination) } {
            Some(port) if port == self.in_port => return Err(Reason::Local),
            Some(port) => self.leave(port..port + 1, vlan, frame),
            None => self.leave(1..self.ports.len() as PortNo + 1, vlan, frame),
        }
        self.reason = Reason::NoPort;
        Ok(())
    }

    /// Out of all of these ports that are in the VLAN, with the tag that it has there.
    fn leave(&mut self, to: std::ops::Range<PortNo>, vlan: u16, frame: &Frame<'_>) {
        let (ports, in_port) = (self.ports, self.in_port);
        let is_single = to.len() == 1;
        let members =
            to.filter(|port| *port != in_port).filter_map(|port| Some((port, ports.get(usize::from(port) - 1)?)));
        let members = members.filter(|(_, member)| is_single || member.has(vlan));
        let now = frame.tag().map(|(_, vlan)| vlan);
        for tag in [0, vlan].into_iter().take(if vlan == 0 { 1 } else { 2 }) {
            let mut those = members.clone().filter(|(_, member)| member.tag_of(vlan) == tag).peekable();
            if those.peek().is_none() {
                continue;
            }
            if now == (tag > 0).then_some(tag) {
                those.for_each(|(port, _)| self.send(port, frame, None));
                continue;
            }
            let mut retagged = std::mem::take(self.retagged);
            let mut other = frame.again(&mut retagged);
            if tag > 0 {
                other.set_vlan(tag)
            } else {
                other.strip()
            }
            those.for_each(|(port, _)| self.send(port, &other, None));
            *self.retagged = retagged;
        }
    }
}

/// Whether a rule is about no other frames than those that are asked for.
pub fn is_within(rule: &Installed, asked: &Match) -> bool {
    asked.covers(&rule.rule.matches)
}
