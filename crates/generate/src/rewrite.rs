//! Frames with other addresses, ports, tags and times to live, by rules.
//!
//! Of several rules for the same field the first match applies; rules for VLAN tags apply one after the other. A rule
//! changes its field wherever it occurs in the outermost packet:
//!
//! | rule | where |
//! |---|---|
//! | MAC | Ethernet; ARP. One without an old address leaves frames to groups as they are |
//! | IP | IPv4, IPv6; ARP; the target of neighbour solicitations and advertisements, addresses of redirects; packets that ICMP errors and redirects quote |
//! | port | TCP, UDP, UDP-Lite, SCTP, also of quoted packets; of a fragmented datagram only the first fragment has ports |
//! | TTL | IPv4, IPv6 |
//! | VLAN | the outermost tag |
//!
//! A packet that an ICMP error quotes is changed as it was on its own path (RFC 5508 section 4.2), except its time to
//! live. So is one that a quoted error quotes, up to three levels deep; deeper ones become zeros if rules change
//! addresses. Where a quote ends within an address, the bytes of the address that are present become zeros, and so does
//! the checksum of the quoted IP header, which would reveal the rest. Packets in tunnels stay unless
//! [`Rewriting::inner`] is set; so do addresses in source routes and in application data. Lengths never change.
//! Checksums follow each change, see `covers`.

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

use covers::FrameChecksums;
use linerate_headers::{Flaw, Layer, Layers, Link, MacAddr, Protocol, Role, Stop, arp, dissect, ipv4, ipv6};
use std::ops::Range;

/// Changes to recorded frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rewriting {
    /// The rules.
    pub rules: Vec<Rule>,
    /// Shift of addresses from loop to loop, applied after the rules.
    pub shift: Option<Shift>,
    /// True to change packets in tunnels too.
    pub inner: bool,
    /// True to recompute every checksum.
    pub fix_checksums: bool,
}

impl Rewriting {
    /// Returns whether frames stay unchanged.
    pub fn is_identity(&self) -> bool {
        self.rules.is_empty() && self.shift.is_none() && !self.fix_checksums
    }
}

/// Rewrites frames.
#[derive(Debug)]
pub struct Rewriter {
    rewriting: Rewriting,
    layers: Layers,
    /// Headers of a packet quoted by an ICMP error, as dissected.
    inside: Layers,
    /// Nested quoted packets, outermost first, with their headers at their positions in the frame.
    quoted: Vec<QuotedPacket>,
    covers: FrameChecksums,
}

#[derive(Clone, Debug)]
struct QuotedPacket {
    place: Range<usize>,
    layers: Vec<Layer>,
}

/// Maximum depth of nested quotes. An ICMP error about another one is not allowed (RFC 1122 section 3.2.2), so one
/// level is rare and two are forged.
const MOST_QUOTES: usize = 3;

/// Neighbour solicitation and advertisement (RFC 4861, sections 4.3 and 4.4), and the offset of their target.
const NEIGHBOUR: [u8; 2] = [135, 136];
const TARGET: usize = 8;
/// Redirects of both versions (RFC 792; RFC 4861, section 4.5), and the offsets of the gateway and the destination.
const REDIRECT_V4: u8 = 5;
const REDIRECT_V6: u8 = 137;
const GATEWAY: usize = 4;
const REDIRECTED: usize = 24;
/// ICMP messages that quote a packet (RFC 792), and its offset; in ICMPv6 those with the upper bit clear (RFC 4443).
const ERRORS_V4: [u8; 5] = [3, 4, REDIRECT_V4, 11, 12];
const QUOTE: usize = 8;
/// Offset of the options in an ICMPv6 redirect, and the option that quotes a packet, at the same offset (RFC 4861,
/// section 4.6.3).
const REDIRECT_OPTIONS: usize = 40;
const REDIRECTED_HEADER: u8 = 4;
/// Offset of the addresses in ARP.
const ARP_FIXED: usize = 8;

impl Rewriter {
    /// Creates a rewriter for these rules.
    pub fn new(rewriting: Rewriting) -> Self {
        Rewriter {
            rewriting,
            layers: Layers::new(),
            inside: Layers::new(),
            quoted: Vec::new(),
            covers: FrameChecksums::default(),
        }
    }

    /// Rewrites an Ethernet frame of loop `turn`, counted from 0. `is_cut` is true if bytes are missing at its end.
    pub fn rewrite(&mut self, frame: &mut Vec<u8>, turn: u64, is_cut: bool) {
        dissect(Link::Ethernet, frame, &mut self.layers);
        self.covers.find(frame, &self.layers, is_cut);
        let mut next = quote(frame, &self.layers);
        self.quoted.clear();
        while let Some(place) = next.take_if(|_| self.quoted.len() < MOST_QUOTES) {
            let packet = &frame[place.clone()];
            dissect(Link::RawIp, packet, &mut self.inside);
            next = quote(packet, &self.inside).map(|inner| place.start + inner.start..place.start + inner.end);
            let layers: Vec<Layer> = quoted(&self.inside, packet, place.start).collect();
            self.covers.find_quoted(frame, &layers, place.clone());
            self.quoted.push(QuotedPacket { place, layers });
        }
        let writing = FrameRewrite { rewriting: &self.rewriting, covers: &self.covers, turn, quote_end: None };
        let mut is_complete = writing.layers(frame, self.layers.as_slice());
        for quoted in &self.quoted {
            let writing = FrameRewrite { quote_end: Some(quoted.place.end), ..writing };
            is_complete = is_complete && writing.layers(frame, &quoted.layers);
        }
        if let Some(rest) = next.filter(|_| is_complete && writing.changes_addresses()) {
            writing.blank(frame, rest);
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

/// Returns the packet that the innermost header quotes, if that is an ICMP error.
fn quote(frame: &[u8], layers: &Layers) -> Option<Range<usize>> {
    let last = layers.as_slice().last()?;
    let start = last.offset as usize;
    let kind = *frame.get(start)?;
    let end = last.end() as usize + layers.payload(frame).len();
    if last.protocol == Protocol::Icmpv6 && kind == REDIRECT_V6 {
        return quote_of_redirect(frame, start + REDIRECT_OPTIONS..end);
    }
    let is_error = match last.protocol {
        Protocol::Icmp => ERRORS_V4.contains(&kind),
        Protocol::Icmpv6 => kind < 128,
        _ => false,
    };
    (is_error && start + QUOTE < end).then_some(start + QUOTE..end)
}

/// Returns the packet that one of these options of a redirect quotes.
fn quote_of_redirect(frame: &[u8], mut options: Range<usize>) -> Option<Range<usize>> {
    while let [kind, units, ..] = frame.get(options.clone())? {
        let next = options.start + 8 * usize::from(*units);
        match *kind {
            _ if *units == 0 => return None,
            REDIRECTED_HEADER => {
                return Some(options.start + QUOTE..next.min(options.end)).filter(|quote| !quote.is_empty());
            }
            _ => options.start = next,
        }
    }
    None
}

/// Returns the headers of a quoted packet, which begins at `start` of the frame, at their positions in the frame. Only
/// eight bytes of its transport header may be present (RFC 792): these include the ports. Of a truncated or malformed
/// IP header, the bytes that are present count.
fn quoted(layers: &Layers, packet: &[u8], start: usize) -> impl Iterator<Item = Layer> {
    let end = layers.as_slice().last().map_or(0, Layer::end);
    let rest = packet.len() - end as usize;
    let cut = match layers.stop() {
        Stop::Truncated(cut) | Stop::Malformed(cut, _) if cut.role() == Role::Network => {
            let length = if cut == Protocol::Ipv4 { ipv4::LEN } else { ipv6::LEN };
            Some(Layer { offset: end, length: rest.min(length) as u16, protocol: cut })
        }
        Stop::Truncated(cut) | Stop::Malformed(cut, Flaw::Short) if rest >= 4 && (cut.has_ports() || is_icmp(cut)) => {
            Some(Layer { offset: end, length: 4, protocol: cut })
        }
        _ => None,
    };
    let layers = layers.as_slice().iter().copied().chain(cut);
    layers.map(move |layer| Layer { offset: layer.offset + start as u32, ..layer })
}

fn is_icmp(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Icmp | Protocol::Icmpv6)
}

/// Rules applied to one frame.
struct FrameRewrite<'a> {
    rewriting: &'a Rewriting,
    covers: &'a FrameChecksums,
    turn: u64,
    /// End of the packet if it is quoted: rules on the time to live do not apply then.
    quote_end: Option<usize>,
}

/// Old and new address of one end of the link.
type MacChange = Option<(MacAddr, MacAddr)>;

impl FrameRewrite<'_> {
    /// Changes the headers of a packet; returns whether rules apply to all of them.
    fn layers(&self, frame: &mut [u8], layers: &[Layer]) -> bool {
        let (mut networks, mut macs) = (0, [None; 2]);
        for (index, layer) in layers.iter().enumerate() {
            networks += usize::from(layer.protocol.role() == Role::Network);
            let is_inner = networks > 1 || index > 0 && layer.protocol == Protocol::Ethernet;
            if is_inner && !self.rewriting.inner {
                return false;
            }
            self.layer(frame, layer, &mut macs);
        }
        true
    }

    fn layer(&self, frame: &mut [u8], layer: &Layer, macs: &mut [MacChange; 2]) {
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
                if usize::from(layer.length) < ipv4::LEN && self.changes_addresses() {
                    self.blank(frame, at + 10..(layer.end() as usize).clamp(at + 10, at + 12));
                }
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
            Protocol::Icmpv6 if frame.get(at) == Some(&REDIRECT_V6) => {
                self.ip(frame, at + TARGET, 16, End::Either);
                self.ip(frame, at + REDIRECTED, 16, End::Either);
            }
            Protocol::Icmp if frame.get(at) == Some(&REDIRECT_V4) => self.ip(frame, at + GATEWAY, 4, End::Either),
            protocol if protocol.has_ports() => {
                self.port(frame, at, End::Source);
                self.port(frame, at + 2, End::Destination);
            }
            _ => {}
        }
    }

    /// Changes a MAC address; returns the old and the new one.
    fn mac(&self, frame: &mut [u8], at: usize, end: End) -> MacChange {
        let old = MacAddr(*frame.get(at..)?.first_chunk()?);
        let new = self.rewriting.rules.iter().find_map(|rule| match rule {
            Rule::Mac(of, Some(from), to) if of.is(end) && *from == old => Some(*to),
            Rule::Mac(of, None, to) if of.is(end) && (end == End::Source || !old.is_multicast()) => Some(*to),
            _ => None,
        })?;
        self.covers.write(frame, at, &new.0);
        Some((old, new))
    }

    /// Changes the addresses in ARP like those of the frame; others by the rules with a matching old address.
    fn arp(&self, frame: &mut [u8], at: usize, macs: &[MacChange; 2]) {
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

    /// Returns whether IP addresses may change: a shift changes none in the first loop.
    fn changes_addresses(&self) -> bool {
        self.turn > 0 && self.rewriting.shift.is_some()
            || self.rewriting.rules.iter().any(|rule| matches!(rule, Rule::Ip(..)))
    }

    /// Fills a range with zeros.
    fn blank(&self, frame: &mut [u8], place: Range<usize>) {
        place.clone().step_by(2).for_each(|at| self.covers.write(frame, at, &[0; 2][..place.end.min(at + 2) - at]));
    }

    fn ip(&self, frame: &mut [u8], at: usize, length: usize, end: End) {
        if let Some(quote_end) = self.quote_end.filter(|quote_end| *quote_end < at + length) {
            if self.changes_addresses() {
                self.blank(frame, at..quote_end.max(at));
            }
            return;
        }
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
        let Some(old) = frame.get(at).copied().filter(|_| self.quote_end.is_none()) else { return };
        let new = self.rewriting.rules.iter().find_map(|rule| match rule {
            Rule::Ttl(ttl) => Some(ttl.of(old)),
            _ => None,
        });
        if let Some(new) = new {
            self.covers.write(frame, at, &[new]);
        }
    }
}
