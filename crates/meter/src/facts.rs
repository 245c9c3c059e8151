//! What counts of a frame, found once.
//!
//! Spelled out for TCP and UDP in IPv4 or IPv6 behind Ethernet and at most one tag; `general` for anything else. Both agree,
//! which a property tests.

mod front;
mod general;

pub(crate) use general::{Found, General, Packet};

use crate::flow::Direction;
use crate::key::{VLAN, WIDE, Wide, Words};
use crate::record::{ACK, SYN};
use crate::stats::options::kinds_of;
use crate::tcp::Segment;
use linerate_burst::{Desc, Flags};
use linerate_wire::registry::{self, may_be_tunnel};
use linerate_wire::{ethernet, ipv4, ipv6, tcp, udp, vlan};

/// What counts of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Facts {
    /// The key, with the VLAN of the packet; of a wide key a part.
    pub words: Words,
    /// There is something to say of what is in front of it.
    pub is_encapsulated: bool,
    pub hash: u64,
    /// Nanoseconds.
    pub time: u64,
    /// Bytes of the frame on the wire, of the packet, and behind the transport header.
    pub frame: u32,
    pub packet: u32,
    pub payload: u32,
    /// Which end sent it: 0 the lower, 1 the higher.
    pub side: usize,
    pub ttl: u8,
    pub tos: u8,
    /// Of TCP.
    pub flags: u8,
    /// Of TCP, if the header is there.
    pub has_segment: bool,
    pub segment: Segment,
    /// What it says of who is the originator.
    pub hint: Hint,
    /// Bits of [`Quality`](crate::Quality).
    pub quality: u16,
    /// Kinds of TCP options, a bit each, if they are asked for.
    pub kinds: u64,
    /// The uppermost bits of the IPv4 fragment word.
    pub ip_flags: u8,
    /// IPv6 extension headers, as [`Flow::extensions`](crate::Flow::extensions) has them.
    pub extensions: u8,
    /// Nothing to note but numbers.
    pub is_usual: bool,
}

/// What a packet says of who is the originator.
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
    pub const NONE: Facts = Facts {
        words: Words { ends: 0, rest: 0 },
        is_encapsulated: false,
        hash: 0,
        time: 0,
        frame: 0,
        packet: 0,
        payload: 0,
        side: 0,
        ttl: 0,
        tos: 0,
        flags: 0,
        has_segment: false,
        segment: Segment::NONE,
        hint: Hint::Nothing,
        quality: 0,
        kinds: 0,
        ip_flags: 0,
        extensions: 0,
        is_usual: true,
    };

    /// The originator that the packet names, and how.
    pub fn direction(&self) -> Option<(usize, Direction)> {
        match self.hint {
            Hint::Nothing => None,
            Hint::Syn => Some((self.side, Direction::Syn)),
            Hint::SynAck => Some((self.side ^ 1, Direction::SynAck)),
            Hint::Request => Some((self.side, Direction::IcmpType)),
            Hint::Reply => Some((self.side ^ 1, Direction::IcmpType)),
        }
    }
}

/// Flags of a desc that a record must know of.
const NOTED: u16 = Flags::LOSING.0 | Flags::DAMAGED.0 | Flags::SUPER_FRAME.0;
/// The least frame that is looked at here: an Ethernet header, a tag, IPv4, TCP.
const LEAST: usize = ethernet::LEN + vlan::LEN + ipv4::LEN + tcp::LEN;

/// Of a frame behind Ethernet whose packet is plain and whole; `None` for any other. UDP with a tunnel's port is not
/// plain unless `outer` alone counts. Options of TCP are not read; what levels beyond `counters` want only if there is
/// `DETAIL`. Facts are made where they are to lie: they are long.
#[inline(always)]
pub(crate) fn usual<const DETAIL: bool>(
    desc: &Desc,
    frame: &[u8],
    outer: bool,
    facts: &mut Facts,
    wide: &mut Wide,
) -> Option<()> {
    let head: &[u8; LEAST] = frame.first_chunk()?;
    let ether_type = u16::from_be_bytes(part(head, 12));
    if desc.flags.0 & NOTED != 0 || desc.wire < desc.captured {
        return None;
    }
    match ether_type {
        ethernet::IPV4 => {
            usual_ipv4::<DETAIL>(desc, part(head, ethernet::LEN), (ethernet::LEN as u32, 0), outer, facts)
        }
        ethernet::IPV6 => {
            usual_ipv6::<DETAIL>(desc, frame.get(ethernet::LEN..)?, (ethernet::LEN as u32, 0), outer, (facts, wide))
        }
        vlan::CUSTOMER => {
            let tag = u16::from_be_bytes(part(head, 14)) & 0xfff;
            let behind = ethernet::LEN + vlan::LEN;
            match u16::from_be_bytes(part(head, 16)) {
                ethernet::IPV4 => usual_ipv4::<DETAIL>(desc, part(head, behind), (behind as u32, tag), outer, facts),
                ethernet::IPV6 => {
                    usual_ipv6::<DETAIL>(desc, frame.get(behind..)?, (behind as u32, tag), outer, (facts, wide))
                }
                _ => None,
            }
        }
        _ => None,
    }
}

#[inline(always)]
fn usual_ipv4<const DETAIL: bool>(
    desc: &Desc,
    head: [u8; ipv4::LEN + tcp::LEN],
    (l3, tag): (u32, u16),
    outer: bool,
    facts: &mut Facts,
) -> Option<()> {
    let length = u32::from(u16::from_be_bytes(part(&head, 2)));
    let fragment = u16::from_be_bytes(part(&head, 6)) & 0x3fff;
    let protocol = head[9];
    if head[0] != 0x45 || fragment != 0 || length > desc.wire.saturating_sub(l3) {
        return None;
    }
    let behind = length.checked_sub(ipv4::LEN as u32)?;
    let identification = u16::from_be_bytes(part(&head, 4));
    let transport = transport(protocol, part(&head, ipv4::LEN), behind, identification, outer)?;
    let end = |address, port: u16| u64::from(u32::from_be_bytes(part(&head, address))) << 16 | u64::from(port);
    let (source, destination) = (end(12, transport.source), end(16, transport.destination));
    let (words, is_higher) = Words::of_ipv4(source, destination, protocol, tag);
    *facts = Facts {
        words,
        packet: length,
        side: usize::from(is_higher),
        ttl: head[8],
        tos: head[1],
        ip_flags: if DETAIL { head[6] >> 5 } else { 0 },
        ..transport.facts::<DETAIL>(desc)
    };
    Some(())
}

#[inline(always)]
fn usual_ipv6<const DETAIL: bool>(
    desc: &Desc,
    packet: &[u8],
    (l3, tag): (u32, u16),
    outer: bool,
    (facts, wide): (&mut Facts, &mut Wide),
) -> Option<()> {
    let head: &[u8; ipv6::LEN + tcp::LEN] = packet.first_chunk()?;
    let payload = u32::from(u16::from_be_bytes(part(head, 4)));
    let protocol = head[6];
    let length = ipv6::LEN as u32 + payload;
    if head[0] >> 4 != 6 || payload == 0 || length > desc.wire.saturating_sub(l3) {
        return None;
    }
    let transport = transport(protocol, part(head, ipv6::LEN), payload, 0, outer)?;
    let end = |address, port| (u128::from_be_bytes(part(head, address)), port);
    let (source, destination) = (end(8, transport.source), end(24, transport.destination));
    let tos = head[0] << 4 | head[1] >> 4;
    let (low, high) = (source.min(destination), source.max(destination));
    *wide = Wide { ends: [low.0, high.0], version: 6, ..Wide::default() };
    let words = Words { ends: 0, rest: Words::rest(low.1, high.1, protocol, 0) | u64::from(tag) << VLAN | WIDE };
    let side = usize::from(source > destination);
    *facts = Facts { words, packet: length, side, ttl: head[7], tos, ..transport.facts::<DETAIL>(desc) };
    Some(())
}

/// What counts of a TCP or UDP header.
struct Transport {
    source: u16,
    destination: u16,
    payload: u32,
    flags: u8,
    has_segment: bool,
    segment: Segment,
}

/// Of a whole one, with `length` bytes of header and payload.
#[inline(always)]
fn transport(protocol: u8, head: [u8; tcp::LEN], length: u32, identification: u16, outer: bool) -> Option<Transport> {
    let (source, destination) = (u16::from_be_bytes(part(&head, 0)), u16::from_be_bytes(part(&head, 2)));
    match protocol {
        registry::TCP => {
            let header = u32::from(head[12] >> 4) * 4;
            let payload = length.checked_sub(header).filter(|_| header >= tcp::LEN as u32)?;
            let segment = Segment::of(&head, identification);
            Some(Transport { source, destination, payload, flags: head[13], has_segment: true, segment })
        }
        registry::UDP => {
            let payload = length.checked_sub(udp::LEN as u32)?;
            let is_plain = outer || !may_be_tunnel(destination, source);
            let segment = Segment::NONE;
            is_plain.then_some(Transport { source, destination, payload, flags: 0, has_segment: false, segment })
        }
        _ => None,
    }
}

impl Transport {
    #[inline(always)]
    fn facts<const DETAIL: bool>(&self, desc: &Desc) -> Facts {
        Facts {
            time: desc.time.0,
            frame: desc.wire,
            payload: self.payload,
            flags: self.flags,
            has_segment: self.has_segment,
            segment: if DETAIL { self.segment } else { Segment::NONE },
            hint: hint_of(self.flags),
            is_usual: self.flags & SYN == 0,
            ..Facts::NONE
        }
    }
}

/// What TCP flags say of who is the originator.
#[inline(always)]
fn hint_of(flags: u8) -> Hint {
    match flags & (SYN | ACK) {
        SYN => Hint::Syn,
        both if both == SYN | ACK => Hint::SynAck,
        _ => Hint::Nothing,
    }
}

/// Kinds of TCP options in a frame that is `usual`.
#[inline(always)]
pub(crate) fn usual_kinds(frame: &[u8]) -> u64 {
    let is_tagged = frame.get(12..14) == Some(&vlan::CUSTOMER.to_be_bytes());
    let network = if is_tagged { ethernet::LEN + vlan::LEN } else { ethernet::LEN };
    let is_ipv4 = frame.get(network).is_some_and(|byte| byte >> 4 == 4);
    let transport = network + if is_ipv4 { ipv4::LEN } else { ipv6::LEN };
    frame.get(transport..).map_or(0, kinds_of)
}

/// Bytes in the middle of others: where places are constants, one load.
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
    use linerate_wire::Link;
    use proptest::prelude::*;

    /// Bytes that are headers more often than not: of IPv4 or IPv6, tagged or not, TCP or UDP, some of them changed.
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
        fn the_spelled_out_way_agrees_with_the_general_one(frame in likely_frame(), outer in any::<bool>(), more in 0u32..9) {
            let tunnels = if outer { Tunnels::Outer } else { Tunnels::Both };
            let length = frame.len() as u32;
            let desc = Desc { wire: length + more, ..Desc::new(Nanos(7), 0, length) };
            let mut short = Wide { version: 4, ..Wide::default() };
            let mut found = Facts::NONE;
            if usual::<true>(&desc, &frame, outer, &mut found, &mut short).is_some() {
                let mut general = General::new(&Config { tunnels, ..Config::default() });
                let Found::Packets(packet, None) = general.look(Link::Ethernet, &desc, &frame) else {
                    panic!("one packet");
                };
                let (words, wide, side) = packet.key();
                let segment = Segment { options: found.segment.options, ..packet.facts.segment };
                let kinds = if found.has_segment { usual_kinds(&frame) } else { 0 };
                prop_assert_eq!(Facts { kinds, ..found }, Facts { words, side, segment, ..packet.facts });
                prop_assert_eq!(short, wide);
                let mut least = Facts::NONE;
                prop_assert!(usual::<false>(&desc, &frame, outer, &mut least, &mut short).is_some());
                prop_assert_eq!(least, Facts { segment: Segment::NONE, ip_flags: 0, ..found });
            }
        }
    }

    /// That frames as they should be go the short way.
    #[test]
    fn plain_frames_go_the_short_way() {
        let mut frame = [0; 60];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        (frame[17], frame[23], frame[46]) = (46, registry::TCP, 0x50);
        let desc = Desc::new(Nanos(7), 0, 60);
        let mut found = Facts::NONE;
        usual::<true>(&desc, &frame, false, &mut found, &mut Wide::default()).unwrap();
        assert_eq!((found.packet, found.payload, found.frame), (46, 6, 60));
        frame[20] = 0x20;
        assert_eq!(usual::<true>(&desc, &frame, false, &mut found, &mut Wide::default()), None, "a fragment");
    }
}
