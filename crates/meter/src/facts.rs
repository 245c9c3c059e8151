//! Properties of a frame that metering needs, extracted once.
//!
//! A fast path for TCP and UDP in IPv4 or IPv6 over Ethernet with at most one tag; `general` for anything else. Both
//! agree, which a property test checks.

mod checksums;
mod general;
mod outer_headers;

pub(crate) use general::{DecodeResult, FrameDecoder, Packet};

use crate::flow::Direction;
use crate::key::{VLAN, WIDE, Wide, Words};
use crate::record::{ACK, FIN, RST, SYN};
use crate::stats::options::kinds_of;
use crate::tcp::Segment;
use linerate_burst::{Desc, Flags};
use linerate_headers::registry::{self, may_be_tunnel};
use linerate_headers::{ethernet, ipv4, ipv6, tcp, udp, vlan};

/// Properties of a packet. Those that every level needs are in the first cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Facts {
    /// The key, with the VLAN of the packet; for a wide key a part of it.
    pub words: Words,
    pub hash: u64,
    /// Capture time in nanoseconds.
    pub time: u64,
    /// Bytes of the frame on the wire, of the packet, and after the transport header.
    pub frame: u32,
    pub packet: u32,
    pub payload: u32,
    pub tos: u8,
    pub ttl: u8,
    /// End that sent it: 0 the lower, 1 the higher.
    pub side: u8,
    /// TCP flags.
    pub flags: u8,
    /// True for TCP whose header was captured.
    pub has_segment: bool,
    /// True if only numbers have to be recorded.
    pub is_usual: bool,
    /// True if `Encapsulation` has something to record.
    pub is_encapsulated: bool,
    /// Originator as inferred from an ICMP message.
    pub message: Hint,
    /// Bits of [`Quality`](crate::Quality).
    pub quality: u16,
    /// The uppermost bits of the IPv4 fragment word.
    pub ip_flags: u8,
    /// IPv6 extension headers, as [`Flow::extensions`](crate::Flow::extensions) has them.
    pub extensions: u8,
    pub segment: Segment,
    /// Kinds of TCP options, a bit each, if configured.
    pub kinds: u64,
}

/// Originator as inferred from a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hint {
    Nothing,
    /// A SYN: the sender.
    Syn,
    /// A SYN with ACK: the other end.
    SynAck,
    /// A request: the sender.
    Request,
    /// A reply: the other end.
    Reply,
}

impl Facts {
    pub(crate) const NONE: Facts = Facts {
        words: Words { ends: 0, rest: 0 },
        hash: 0,
        time: 0,
        frame: 0,
        packet: 0,
        payload: 0,
        tos: 0,
        ttl: 0,
        side: 0,
        flags: 0,
        has_segment: false,
        is_usual: true,
        is_encapsulated: false,
        message: Hint::Nothing,
        quality: 0,
        ip_flags: 0,
        extensions: 0,
        segment: Segment::NONE,
        kinds: 0,
    };

    /// Returns the originator as inferred from the packet.
    pub(crate) fn hint(&self) -> Hint {
        match self.flags & (SYN | ACK) {
            _ if !self.has_segment => self.message,
            SYN => Hint::Syn,
            both if both == SYN | ACK => Hint::SynAck,
            _ => Hint::Nothing,
        }
    }

    /// Returns the originator that the packet identifies, and by which evidence.
    pub(crate) fn direction(&self) -> Option<(usize, Direction)> {
        let [side, other] = self.sides();
        match self.hint() {
            Hint::Nothing => None,
            Hint::Syn => Some((side, Direction::Syn)),
            Hint::SynAck => Some((other, Direction::SynAck)),
            Hint::Request => Some((side, Direction::IcmpType)),
            Hint::Reply => Some((other, Direction::IcmpType)),
        }
    }

    /// Returns the end that sent it and the other, as indices of an array of two.
    #[inline(always)]
    pub(crate) fn sides(&self) -> [usize; 2] {
        let side = usize::from(self.side & 1);
        [side, side ^ 1]
    }
}

/// Descriptor flags that are recorded in [`Quality`](crate::Quality).
const NOTED: u16 = Flags::LOSING.0 | Flags::DAMAGED.0 | Flags::SUPER_FRAME.0;
/// Minimum length of a frame for the fast path: an Ethernet header, a tag, IPv4, TCP.
const LEAST: usize = ethernet::LEN + vlan::LEN + ipv4::LEN + tcp::LEN;

/// Extracts the facts of an Ethernet frame whose packet is plain and complete; false, and undefined facts, for any
/// other. UDP to a tunnel's port is plain only if `outer` is set. Options of TCP are not read; the fields that levels
/// above `counters` need only with `DETAIL`. Facts are written in place: they are large.
#[inline(always)]
pub(crate) fn usual<const DETAIL: bool>(
    desc: &Desc,
    frame: &[u8],
    outer: bool,
    facts: &mut Facts,
    wide: &mut Wide,
) -> bool {
    let Some(head) = frame.first_chunk::<LEAST>() else { return false };
    if desc.flags.0 & NOTED != 0 || desc.wire < desc.captured {
        return false;
    }
    let (ether_type, network, tag) = match u16_at(head, 12) {
        vlan::CUSTOMER => (u16_at(head, 16), ethernet::LEN + vlan::LEN, u16_at(head, 14) & 0xfff),
        ether_type => (ether_type, ethernet::LEN, 0),
    };
    let Some(packet) = frame.get(network..) else { return false };
    let room = desc.wire - network as u32;
    match ether_type {
        ethernet::IPV4 => usual_ipv4::<DETAIL>((desc, room), packet, tag, outer, facts),
        ethernet::IPV6 => usual_ipv6::<DETAIL>((desc, room), packet, tag, outer, (facts, wide)),
        _ => false,
    }
}

#[inline(always)]
fn usual_ipv4<const DETAIL: bool>(
    (desc, room): (&Desc, u32),
    packet: &[u8],
    tag: u16,
    outer: bool,
    facts: &mut Facts,
) -> bool {
    let Some(head) = packet.first_chunk::<{ ipv4::LEN + tcp::LEN }>() else { return false };
    let length = u32::from(u16_at(head, 2));
    let (protocol, ports) = (head[9], u32_at(head, ipv4::LEN));
    // No options, no fragment.
    if head[0] != 0x45 || u16_at(head, 6) & 0x3fff != 0 || length > room {
        return false;
    }
    let Some(transport) = transport(protocol, head[ipv4::LEN + 12], ports, outer) else { return false };
    let Some(payload) = length.checked_sub(ipv4::LEN as u32 + transport) else { return false };
    let addresses = u64::from(u32_at(head, 12)) << 32 | u64::from(u32_at(head, 16));
    let (words, side) = Words::of_ipv4(addresses, ports, protocol, tag);
    let (tos, ttl) = (head[1], head[8]);
    *facts = Facts { words, packet: length, payload, tos, ttl, side, ..common(desc, protocol, head[ipv4::LEN + 13]) };
    if DETAIL {
        facts.ip_flags = head[6] >> 5;
        facts.segment = segment(protocol, part(head, ipv4::LEN), u16_at(head, 4));
    }
    true
}

/// Not inlined: code common to both would be shared at the expense of either.
#[inline(never)]
fn usual_ipv6<const DETAIL: bool>(
    (desc, room): (&Desc, u32),
    packet: &[u8],
    tag: u16,
    outer: bool,
    (facts, wide): (&mut Facts, &mut Wide),
) -> bool {
    let Some(head) = packet.first_chunk::<{ ipv6::LEN + tcp::LEN }>() else { return false };
    let behind = u32::from(u16_at(head, 4));
    let (protocol, ports) = (head[6], u32_at(head, ipv6::LEN));
    let length = ipv6::LEN as u32 + behind;
    if head[0] >> 4 != 6 || length > room {
        return false;
    }
    let Some(transport) = transport(protocol, head[ipv6::LEN + 12], ports, outer) else { return false };
    let Some(payload) = behind.checked_sub(transport) else { return false };
    let end = |address, port: u32| (u128::from_be_bytes(part(head, address)), port as u16);
    let (source, destination) = (end(8, ports >> 16), end(24, ports));
    let (low, high) = (source.min(destination), source.max(destination));
    *wide = Wide { ends: [low.0, high.0], version: 6, ..Wide::default() };
    let words = Words { ends: 0, rest: Words::rest(low.1, high.1, protocol, 0) | u64::from(tag) << VLAN | WIDE };
    let side = u8::from(source > destination);
    let (tos, ttl) = (head[0] << 4 | head[1] >> 4, head[7]);
    *facts = Facts { words, packet: length, payload, tos, ttl, side, ..common(desc, protocol, head[ipv6::LEN + 13]) };
    if DETAIL {
        facts.segment = segment(protocol, part(head, ipv6::LEN), 0);
    }
    true
}

/// Returns the length of a TCP or UDP header, for TCP from `offset`. `ports` are those of source and destination.
#[inline(always)]
fn transport(protocol: u8, offset: u8, ports: u32, outer: bool) -> Option<u32> {
    match protocol {
        registry::TCP => (offset >= 0x50).then_some(u32::from(offset >> 4) * 4),
        registry::UDP => (outer || !may_be_tunnel(ports as u16, (ports >> 16) as u16)).then_some(udp::LEN as u32),
        _ => None,
    }
}

#[inline(always)]
fn common(desc: &Desc, protocol: u8, flags: u8) -> Facts {
    let has_segment = protocol == registry::TCP;
    let flags = if has_segment { flags } else { 0 };
    Facts {
        time: desc.time.0,
        frame: desc.wire,
        flags,
        has_segment,
        is_usual: flags & (SYN | FIN | RST) == 0,
        ..Facts::NONE
    }
}

#[inline(always)]
fn segment(protocol: u8, head: [u8; tcp::LEN], identification: u16) -> Segment {
    if protocol == registry::TCP { Segment::of(&head, identification) } else { Segment::NONE }
}

/// Returns the kinds of TCP options in a frame that is `usual`.
#[inline(always)]
pub(crate) fn usual_kinds(frame: &[u8]) -> u64 {
    frame.get(usual_headers(frame).1..).map_or(0, kinds_of)
}

/// Returns the offsets of the IP header and of the transport header in a frame that is `usual`.
#[inline(always)]
pub(crate) fn usual_headers(frame: &[u8]) -> (usize, usize) {
    let is_tagged = frame.get(12..14) == Some(&vlan::CUSTOMER.to_be_bytes());
    let network = if is_tagged { ethernet::LEN + vlan::LEN } else { ethernet::LEN };
    let is_ipv4 = frame.get(network).is_some_and(|byte| byte >> 4 == 4);
    (network, network + if is_ipv4 { ipv4::LEN } else { ipv6::LEN })
}

#[inline(always)]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(part(bytes, at))
}

#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(part(bytes, at))
}

/// Returns bytes in the middle of others: where offsets and lengths are constants, one load.
#[inline(always)]
fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Tunnels};
    use linerate_burst::Nanos;
    use linerate_headers::Link;
    use proptest::prelude::*;

    /// Bytes that are mostly headers: IPv4 or IPv6, tagged or not, TCP or UDP, some of them changed.
    fn likely_frame() -> impl Strategy<Value = Vec<u8>> {
        let changes = prop::collection::vec((0usize..100, any::<u8>()), 0..3);
        (any::<[bool; 3]>(), prop::collection::vec(any::<u8>(), 60..120), 0u8..100, changes).prop_map(
            |([v6, tagged, tcp], mut frame, length, changes)| {
                let l3 = if tagged { ethernet::LEN + vlan::LEN } else { ethernet::LEN };
                let ether_type = if v6 { ethernet::IPV6 } else { ethernet::IPV4 };
                if tagged {
                    frame[12..14].copy_from_slice(&vlan::CUSTOMER.to_be_bytes());
                }
                frame[l3 - 2..l3].copy_from_slice(&ether_type.to_be_bytes());
                let number = if tcp { registry::TCP } else { registry::UDP };
                let l4 = if v6 {
                    frame[l3] = 0x60 | frame[l3] & 15;
                    frame[l3 + 4..l3 + 7].copy_from_slice(&[0, length, number]);
                    l3 + ipv6::LEN
                } else {
                    frame[l3] = 0x45;
                    frame[l3 + 2..l3 + 4].copy_from_slice(&[0, length]);
                    frame[l3 + 6..l3 + 8].fill(0);
                    frame[l3 + 9] = number;
                    l3 + ipv4::LEN
                };
                if let Some(offset) = frame.get_mut(l4 + 12).filter(|_| tcp) {
                    *offset = 0x50 | *offset & 0x2f;
                }
                for (place, byte) in changes {
                    if let Some(changed) = frame.get_mut(place) {
                        *changed = byte;
                    }
                }
                frame
            },
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 8192, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn fast_path_agrees_with_the_general_path(frame in likely_frame(), outer in any::<bool>(), more in 0u32..9) {
            let tunnels = if outer { Tunnels::Outer } else { Tunnels::Both };
            let length = frame.len() as u32;
            let desc = Desc { wire: length + more, ..Desc::new(Nanos(7), 0, length) };
            let mut short = Wide { version: 4, ..Wide::default() };
            let mut found = Facts::NONE;
            if usual::<true>(&desc, &frame, outer, &mut found, &mut short) {
                let mut general = FrameDecoder::new(&Config { tunnels, ..Config::default() });
                let DecodeResult::Packets(packet, None) = general.look(Link::Ethernet, &desc, &frame) else {
                    panic!("one packet");
                };
                let (words, wide, side) = packet.key();
                let segment = Segment { options: found.segment.options, ..packet.facts.segment };
                let kinds = if found.has_segment { usual_kinds(&frame) } else { 0 };
                prop_assert_eq!(Facts { kinds, ..found }, Facts { words, side, segment, ..packet.facts });
                prop_assert_eq!(short, wide);
                let mut least = Facts::NONE;
                prop_assert!(usual::<false>(&desc, &frame, outer, &mut least, &mut short));
                prop_assert_eq!(least, Facts { segment: Segment::NONE, ip_flags: 0, ..found });
            }
        }
    }

    /// Well-formed frames take the fast path.
    #[test]
    fn plain_frames_take_the_fast_path() {
        let mut frame = [0; 60];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        (frame[17], frame[23], frame[46]) = (46, registry::TCP, 0x50);
        let desc = Desc::new(Nanos(7), 0, 60);
        let mut found = Facts::NONE;
        assert!(usual::<true>(&desc, &frame, false, &mut found, &mut Wide::default()));
        assert_eq!((found.packet, found.payload, found.frame), (46, 6, 60));
        frame[20] = 0x20;
        assert!(!usual::<true>(&desc, &frame, false, &mut found, &mut Wide::default()), "a fragment");
    }
}
