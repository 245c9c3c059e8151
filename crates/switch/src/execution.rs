//! Execution of the actions of a rule on a frame.

use crate::action::{Action, PortNo, Reason};
use crate::frame::{Frame, Scratch};
use crate::key::TYPE_VLAN;
use crate::learn::Stations;
use crate::rule::{Inspect, InspectOutcome, RemainingActions};
use crate::switch::Outputs;
use crate::vlan::PortVlans;
use linerate_burst::{Nanos, random};

/// State of a frame during a list of actions.
pub(crate) struct ActionContext<'s, O> {
    pub ports: &'s [PortVlans],
    pub stations: &'s mut Stations,
    pub retagged: &'s mut Scratch,
    pub sampled: &'s mut u64,
    pub seed: u64,
    pub forward_reserved: bool,
    pub now: Nanos,
    pub in_port: PortNo,
    pub index: usize,
    pub out: &'s mut O,
    pub copies: u32,
    pub reason: Reason,
    /// Its actions, if one of them is to inspect, and the index after the current one.
    pub rest: Option<RemainingActions<'s>>,
    /// True if an inspector took it.
    pub is_taken: bool,
}

impl<O: Outputs> ActionContext<'_, O> {
    /// Applies all of these actions.
    pub(crate) fn go(mut self, actions: &[Action], frame: &mut Frame<'_>) {
        for action in actions {
            if let Some(rest) = &mut self.rest {
                rest.from += 1;
            }
            if !self.act(action, frame) {
                break;
            }
        }
        let result = if self.copies > 0 || self.is_taken { Ok(self.copies) } else { Err(self.reason) };
        self.out.done(self.index, result);
    }

    /// Applies one action; returns whether to continue.
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
                let (own, ports) = (self.in_port, self.ports);
                (1..)
                    .zip(ports)
                    .filter(|(port, vlans)| *port != own && !vlans.is_none())
                    .for_each(|(port, _)| self.send(port, frame, None));
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
                // A truncated header has no known value.
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
            Action::Inspect(ring) => {
                let Some(rest) = self.rest else { return false };
                let (bytes, _) = frame.bytes();
                match self.out.inspect(self.index, Inspect { ring, in_port: self.in_port, bytes, rest }) {
                    InspectOutcome::Passes => {}
                    InspectOutcome::Taken => {
                        self.is_taken = true;
                        return false;
                    }
                    InspectOutcome::Blocked => {
                        self.reason = Reason::Listed;
                        return false;
                    }
                }
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

    /// Forwards like a bridge (IEEE 802.1Q clause 8): learns the source, and sends to the port of the destination, or
    /// floods.
    fn normal(&mut self, frame: &Frame<'_>) -> Result<(), Reason> {
        let (bytes, _) = frame.bytes();
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
        let (destination, source, tag) = (word(0) >> 16, word(4) & 0xffff_ffff_ffff, frame.tag());
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
            Some(port) => self.leave_at(port, vlan, frame),
            None => self.leave(1..self.ports.len() as PortNo + 1, vlan, frame),
        }
        self.reason = Reason::NoPort;
        Ok(())
    }

    /// Sends to the port of a station, if that is still in the VLAN, with the tag for this port.
    #[inline]
    fn leave_at(&mut self, port: PortNo, vlan: u16, frame: &Frame<'_>) {
        let is_as_it_came = |member: &PortVlans| {
            let tag = member.tag_of(vlan);
            frame.tag().map(|(_, vlan)| vlan) == (tag > 0).then_some(tag)
        };
        match self.ports.get(usize::from(port) - 1) {
            Some(member) if is_as_it_came(member) => self.send(port, frame, None),
            _ => self.leave(port..port + 1, vlan, frame),
        }
    }

    /// Sends to all of these ports that are in the VLAN, with the tag for each port.
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
