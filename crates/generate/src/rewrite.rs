//! Frames with other addresses, ports, tags and times to live, by rules.
//!
//! Of several rules for the same field the first one that fits counts; rules for VLAN tags are followed one after the
//! other. What a rule changes, it changes wherever the outermost packet says it:
//!
//! | rule | where |
//! |---|---|
//! | MAC | Ethernet; ARP. One without an old address leaves frames to groups as they are |
//! | IP | IPv4, IPv6; ARP; the target of neighbour solicitations and advertisements |
//! | port | TCP, UDP, UDP-Lite, SCTP; of a fragmented datagram it stands in the first fragment alone |
//! | TTL | IPv4, IPv6 |
//! | VLAN | the outermost tag |
//!
//! What is in a tunnel stays, unless asked for; so does what an ICMP error quotes, a source route lists, or an
//! application says. Lengths follow from none of it. Checksums follow each change, see `covers`.

mod covers;
mod prefix;
mod rule;
mod shift;
mod tags;
#[cfg(test)]
mod tests;

pub use prefix::{Ports, Prefix};
pub use rule::{BadRule, End, Rule, Tag, Ttl};
pub use shift::{BadShift, Shift};

use covers::Covers;
use linerate_wire::{Layer, Layers, Link, MacAddr, Protocol, Role, arp, dissect};

/// What is to be other than it was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewriting {
    /// The rules.
    pub rules: Vec<Rule>,
    /// How addresses move from loop to loop, behind the rules.
    pub shift: Option<Shift>,
    /// Packets in tunnels are changed too.
    pub inner: bool,
    /// Every checksum is computed anew.
    pub fix_checksums: bool,
}

impl Rewriting {
    /// Whether frames stay as they are.
    pub fn is_nothing(&self) -> bool {
        self.rules.is_empty() && self.shift.is_none() && !self.fix_checksums
    }
}

/// Rewrites frame after frame.
#[derive(Debug)]
pub struct Rewriter {
    rewriting: Rewriting,
    layers: Layers,
    covers: Covers,
}

/// Neighbour solicitation and advertisement (RFC 4861, sections 4.3 and 4.4), and where their target stands.
const NEIGHBOUR: [u8; 2] = [135, 136];
const TARGET: usize = 8;
/// Where ARP says how long addresses are, that hardware addresses begin, and that IPv4 is what is asked for.
const ARP_FIXED: usize = 8;

impl Rewriter {
    /// One for these rules.
    pub fn new(rewriting: Rewriting) -> Self {
        Rewriter { rewriting, layers: Layers::new(), covers: Covers::default() }
    }

    /// Rewrites an Ethernet frame of loop `turn`, counted from 0. `is_cut` says that bytes are missing at its end.
    pub fn rewrite(&mut self, frame: &mut Vec<u8>, turn: u64, is_cut: bool) {
        dissect(Link::Ethernet, frame, &mut self.layers);
        self.covers.find(frame, &self.layers, is_cut);
        let writing = Writing { rewriting: &self.rewriting, covers: &self.covers, turn };
        let (mut networks, mut macs) = (0, [None; 2]);
        for (index, layer) in self.layers.as_slice().iter().enumerate() {
            networks += usize::from(layer.protocol.role() == Role::Network);
            let is_inner = networks > 1 || index > 0 && layer.protocol == Protocol::Ethernet;
            if is_inner && !self.rewriting.inner {
                break;
            }
            writing.layer(frame, layer, &mut macs);
        }
        if self.rewriting.fix_checksums {
            self.covers.fix(frame);
        }
        for rule in &self.rewriting.rules {
            if let Rule::Vlan(tag) = rule {
                tags::edit(frame, *tag);
            }
        }
    }
}

/// The rules, at work on one frame.
struct Writing<'a> {
    rewriting: &'a Rewriting,
    covers: &'a Covers,
    turn: u64,
}

/// Old and new address of one end of the link.
type Moved = Option<(MacAddr, MacAddr)>;

impl Writing<'_> {
    fn layer(&self, frame: &mut [u8], layer: &Layer, macs: &mut [Moved; 2]) {
        let at = layer.offset as usize;
        match layer.protocol {
            Protocol::Ethernet => {
                let destination = self.mac(frame, at, End::Destination);
                *macs = [self.mac(frame, at + 6, End::Source), destination];
            }
            Protocol::Arp => self.arp(frame, at, macs),
            Protocol::Ipv4 => {
                self.ip(frame, at + 12, 4, End::Source);
                self.ip(frame, at + 16, 4, End::Destination);
                self.ttl(frame, at + 8);
            }
            Protocol::Ipv6 => {
                self.ip(frame, at + 8, 16, End::Source);
                self.ip(frame, at + 24, 16, End::Destination);
                self.ttl(frame, at + 7);
            }
            Protocol::Icmpv6 if frame.get(at).is_some_and(|kind| NEIGHBOUR.contains(kind)) => {
                self.ip(frame, at + TARGET, 16, End::Either);
            }
            protocol if protocol.has_ports() => {
                self.port(frame, at, End::Source);
                self.port(frame, at + 2, End::Destination);
            }
            _ => {}
        }
    }

    /// Changes a MAC address; returns what it was and is.
    fn mac(&self, frame: &mut [u8], at: usize, end: End) -> Moved {
        let old = MacAddr(*frame.get(at..)?.first_chunk()?);
        let new = self.rewriting.rules.iter().find_map(|rule| match rule {
            Rule::Mac(of, Some(from), to) if of.is(end) && *from == old => Some(*to),
            Rule::Mac(of, None, to) if of.is(end) && (end == End::Source || !old.is_multicast()) => Some(*to),
            _ => None,
        })?;
        self.covers.write(frame, at, &new.0);
        Some((old, new))
    }

    /// Addresses in ARP follow those of the frame; others are changed by the rules that name them.
    fn arp(&self, frame: &mut [u8], at: usize, macs: &[Moved; 2]) {
        let packet = frame.get(at..).and_then(|bytes| arp::View::parse(bytes).ok()?.packet());
        if packet.is_none() {
            return;
        }
        for (at, end) in [(at + ARP_FIXED, End::Source), (at + ARP_FIXED + 10, End::Destination)] {
            let Some(old) = frame.get(at..).and_then(|bytes| bytes.first_chunk()).map(|old| MacAddr(*old)) else {
                continue;
            };
            let followed = macs.iter().flatten().find(|(from, _)| *from == old).map(|(_, to)| *to);
            let named = self.rewriting.rules.iter().find_map(|rule| match rule {
                Rule::Mac(of, Some(from), to) if of.is(end) && *from == old => Some(*to),
                _ => None,
            });
            if let Some(new) = followed.or(named) {
                self.covers.write(frame, at, &new.0);
            }
            self.ip(frame, at + 6, 4, end);
        }
    }

    fn ip(&self, frame: &mut [u8], at: usize, length: usize, end: End) {
        let Some(old) = frame.get(at..at + length) else { return };
        let moved = self.rewriting.rules.iter().find_map(|rule| match rule {
            Rule::Ip(of, from, to) if (of.is(end) || end == End::Either) && from.holds(old) => {
                Some(to.place(from, prefix::number(old)))
            }
            _ => None,
        });
        let mut new = [0; 16];
        new.copy_from_slice(&moved.unwrap_or_else(|| prefix::number(old)).to_be_bytes());
        if let Some(shift) = &self.rewriting.shift {
            new = shift.of(&new[16 - length..], self.turn).to_be_bytes();
        }
        self.covers.write(frame, at, &new[16 - length..]);
    }

    fn port(&self, frame: &mut [u8], at: usize, end: End) {
        let Some(old) = frame.get(at..).and_then(|bytes| bytes.first_chunk()).map(|port| u16::from_be_bytes(*port))
        else {
            return;
        };
        let new = self.rewriting.rules.iter().find_map(|rule| match rule {
            Rule::Port(of, from, to) if of.is(end) => to.place(from, old),
            _ => None,
        });
        if let Some(new) = new {
            self.covers.write(frame, at, &new.to_be_bytes());
        }
    }

    fn ttl(&self, frame: &mut [u8], at: usize) {
        let Some(old) = frame.get(at).copied() else { return };
        let new = self.rewriting.rules.iter().find_map(|rule| match rule {
            Rule::Ttl(ttl) => Some(ttl.of(old)),
            _ => None,
        });
        if let Some(new) = new {
            self.covers.write(frame, at, &[new]);
        }
    }
}
