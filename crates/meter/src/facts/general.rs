//! Any frame, header by header: tunnels, extension headers, fragments, truncated frames.

use super::checksums;
use super::outer_headers::{OuterHeaders, TunnelHeader};
use super::{Facts, Hint};
use crate::config::{Config, Tunnels};
use crate::encapsulation::Encapsulation;
use crate::flow::Quality;
use crate::hash::mixed;
use crate::key::{KEY_BITS, NARROW, VLAN, VLAN_BITS, WIDE, Wide, Words, icmp_pair, icmp_ports, is_icmp};
use crate::record::{FIN, RST, SYN};
use crate::stats::options::kinds_of;
use crate::tcp::{Options, Segment};
use linerate_burst::{Desc, Flags};
use linerate_headers::{Layer, Layers, Link, Protocol, Role, Stop, dissect, ipv4, ipv6, ipv6_fragment, registry, tcp};

/// Result of decoding a frame.
#[allow(clippy::large_enum_variant, reason = "destructured where it is created")]
#[derive(Clone, Copy, Debug)]
pub(crate) enum DecodeResult {
    /// One packet to meter, and the one in its tunnel if both are metered.
    Packets(Packet, Option<Packet>),
    /// No IP packet.
    NotIp,
    /// An IP packet is announced, and its header is truncated or inconsistent.
    Malformed,
}

/// A packet whose ends are not sorted yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub source: (u128, u16),
    pub destination: (u128, u16),
    pub protocol: u8,
    /// The wide part of the key, without addresses.
    pub wide: Wide,
    pub vlan: u16,
    pub fragment: Option<Fragment>,
    pub encapsulation: Encapsulation,
    /// Offset of its IP header in the frame.
    pub network: u32,
    /// All facts except the key.
    pub facts: Facts,
}

/// Position of a fragment in its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub identification: u32,
    /// True for the first fragment, which has the ports.
    pub is_first: bool,
}

/// Decodes frames.
pub(crate) struct FrameDecoder {
    layers: Layers,
    tunnels: Tunnels,
    vlans: bool,
    macs: bool,
    checksums: bool,
    id_seed: [u64; 2],
}

impl FrameDecoder {
    pub(crate) fn new(config: &Config) -> Self {
        FrameDecoder {
            layers: Layers::new(),
            tunnels: config.tunnels,
            vlans: config.vlans,
            macs: config.macs,
            checksums: config.checksums,
            id_seed: config.id_seed,
        }
    }

    pub(crate) fn look(&mut self, link: Link, desc: &Desc, frame: &[u8]) -> DecodeResult {
        dissect(link, frame, &mut self.layers);
        let layers = self.layers.as_slice();
        let is_network = |layer: &Layer| layer.protocol.role() == Role::Network;
        let Some(outer) = layers.iter().position(is_network) else {
            return match self.layers.stop() {
                Stop::Truncated(Protocol::Ipv4 | Protocol::Ipv6) => DecodeResult::Malformed,
                Stop::Malformed(Protocol::Ipv4 | Protocol::Ipv6, _) => DecodeResult::Malformed,
                _ => DecodeResult::NotIp,
            };
        };
        let inner =
            layers.iter().rposition(is_network).filter(|inner| *inner != outer && self.tunnels != Tunnels::Outer);
        let Some(outer_packet) = self.packet(desc, frame, outer) else { return DecodeResult::Malformed };
        let inner_packet = inner.and_then(|inner| {
            let packet = self.packet(desc, frame, inner)?;
            let through = TunnelHeader::find(frame, &layers[outer..inner]);
            let parent = self.id_of(&outer_packet);
            let scope = if through.has_ports { parent } else { self.id_of(&outer_packet.without_ports()) };
            let (tunnel, tunnel_id) = (through.kind as u8, through.id);
            Some(Packet {
                wide: Wide { tunnel, tunnel_id, scope, ..packet.wide },
                encapsulation: Encapsulation { teid: through.teid, parent, ..packet.encapsulation },
                ..packet
            })
        });
        match (self.tunnels, inner_packet) {
            (Tunnels::Inner, Some(inner)) => DecodeResult::Packets(inner, None),
            (_, inner) => DecodeResult::Packets(outer_packet, inner),
        }
    }

    /// Returns the id common to all records of a conversation.
    pub(crate) fn id(&self, words: Words, wide: &Wide) -> u64 {
        let mask = if self.vlans { KEY_BITS } else { KEY_BITS & !VLAN_BITS };
        let words = Words { rest: words.rest & mask, ..words };
        let wide = if words.is_wide() { wide.words() } else { [0; 6] };
        // Id 0 stands for "none".
        mixed(self.id_seed, [words.ends, words.rest].into_iter().chain(wide)).max(1)
    }

    fn id_of(&self, packet: &Packet) -> u64 {
        let (words, wide, _) = packet.key();
        self.id(words, &wide)
    }

    /// Returns the packet whose IP header is the layer `network`.
    fn packet(&self, desc: &Desc, frame: &[u8], network: usize) -> Option<Packet> {
        let (header, behind) = self.layers.as_slice().get(network..)?.split_first()?;
        let extensions = behind.iter().take_while(|layer| layer.protocol.role() == Role::Extension).count();
        let extensions = &behind[..extensions];
        let start = extensions.last().unwrap_or(header).end();
        let room = desc.wire.max(desc.captured) - header.offset.min(desc.captured);
        let ip = self.ip(frame, header, extensions)?;
        let length = ip.length.unwrap_or(room).min(room);
        let message = IpPayload {
            bytes: frame.get(start as usize..frame.len().min((header.offset + length) as usize)).unwrap_or_default(),
            length: (header.offset + length).saturating_sub(start),
            is_cut: ip.length.is_some_and(|length| length > room),
        };
        let content = message.bytes;
        let mut packet = ip.packet(desc, length, message);
        let front = OuterHeaders::find(frame, &self.layers.as_slice()[..network], self.macs);
        packet.network = header.offset;
        packet.vlan = front.vlans[0];
        packet.wide.inner_vlan = if self.vlans { front.vlans[1] } else { 0 };
        packet.encapsulation = Encapsulation {
            macs: front.macs,
            inner_vlan: front.vlans[1],
            labels: front.labels,
            ..Encapsulation::default()
        };
        packet.facts.extensions = extensions.iter().fold(0, |bits, layer| bits | extension(layer.protocol));
        packet.facts.is_usual &= packet.facts.extensions == 0;
        if let Some(cut) = self.cut_extension(network + 1 + extensions.len()) {
            packet.facts.extensions |= extension(cut);
            packet.facts.note(Quality::TRUNCATED);
        }
        let is_innermost = behind.iter().all(|layer| layer.protocol.role() != Role::Network);
        if self.layers.stop() == Stop::TooDeep && is_innermost && packet.may_carry_more() {
            packet.facts.note(Quality::TOO_DEEP);
        }
        if self.checksums {
            let is_whole = header.offset + packet.facts.packet <= desc.captured && packet.fragment.is_none();
            let is_known = is_whole && !desc.flags.contains(Flags::CHECKSUM_PARTIAL);
            if is_known && checksums::is_wrong(frame, header, extensions, (packet.protocol, content)) {
                packet.facts.note(Quality::BAD_CHECKSUM);
            }
        }
        Some(packet)
    }

    /// Reads the IP header and its extension headers.
    fn ip(&self, frame: &[u8], header: &Layer, extensions: &[Layer]) -> Option<Ip> {
        let bytes = frame.get(header.offset as usize..)?;
        let last = extensions.last().and_then(|layer| frame.get(layer.offset as usize)).copied();
        Some(if header.protocol == Protocol::Ipv4 {
            let view = ipv4::View::parse(bytes).ok()?;
            let identification = view.identification().into();
            let is_first = view.fragment_offset() == 0;
            Ip {
                version: 4,
                ends: [u32::from(view.source()).into(), u32::from(view.destination()).into()],
                length: Some(view.total_len().into()).filter(|length| *length > 0),
                ttl: view.ttl(),
                tos: view.traffic_class(),
                flags: bytes[6] >> 5,
                protocol: last.filter(|_| is_first).unwrap_or(view.protocol()),
                identification: view.identification(),
                fragment: view.is_fragment().then_some(Fragment { identification, is_first }),
                is_damaged: self.checksums && !view.is_checksum_right(),
            }
        } else {
            let view = ipv6::View::parse(bytes).ok()?;
            Ip {
                version: 6,
                ends: [view.source().into(), view.destination().into()],
                length: Some(ipv6::LEN as u32 + u32::from(view.payload_len()))
                    .filter(|length| *length > ipv6::LEN as u32),
                ttl: view.hop_limit(),
                tos: view.traffic_class(),
                flags: 0,
                protocol: last.unwrap_or(view.next_header()),
                identification: 0,
                fragment: extensions.iter().find_map(|layer| fragment(frame, layer)),
                is_damaged: false,
            }
        })
    }

    /// Returns the extension header at which decoding stopped, if it is the layer of this number: it is truncated, or
    /// longer than its packet.
    fn cut_extension(&self, number: usize) -> Option<Protocol> {
        let (Stop::Truncated(protocol) | Stop::Malformed(protocol, _)) = self.layers.stop() else { return None };
        (number == self.layers.as_slice().len() && protocol.role() == Role::Extension).then_some(protocol)
    }
}

/// Fields of an IP header.
struct Ip {
    version: u8,
    ends: [u128; 2],
    length: Option<u32>,
    ttl: u8,
    tos: u8,
    flags: u8,
    protocol: u8,
    /// IPv4 identification.
    identification: u16,
    fragment: Option<Fragment>,
    is_damaged: bool,
}

/// Payload of the IP packet.
struct IpPayload<'a> {
    /// Captured bytes.
    bytes: &'a [u8],
    /// Original length.
    length: u32,
    /// True if the packet is longer than its frame.
    is_cut: bool,
}

impl Ip {
    fn packet(&self, desc: &Desc, length: u32, message: IpPayload<'_>) -> Packet {
        let mut facts = Facts {
            time: desc.time.0,
            frame: desc.wire,
            packet: length,
            ttl: self.ttl,
            tos: self.tos,
            ip_flags: self.flags,
            payload: message.length,
            ..Facts::NONE
        };
        let has_head = self.fragment.is_none_or(|fragment| fragment.is_first);
        let (mut ports, mut is_cut) = ([0; 2], message.is_cut);
        if has_head {
            let (header, is_whole) = header_of(self.protocol, &message);
            facts.payload = message.length.saturating_sub(header);
            is_cut |= !is_whole;
            ports = ports_of(self.protocol, message.bytes);
            facts.message = icmp_hint(self.protocol, message.bytes);
            if self.protocol == registry::TCP && is_whole {
                facts.flags = message.bytes[13];
                facts.kinds = kinds_of(message.bytes);
                facts.has_segment = true;
                facts.segment = segment_of(message.bytes, self.identification);
            }
        }
        facts.is_usual = facts.flags & (SYN | FIN | RST) == 0;
        for (is_so, quality) in [
            (is_cut, Quality::TRUNCATED),
            (self.is_damaged || desc.flags.contains(Flags::DAMAGED), Quality::BAD_CHECKSUM),
            (desc.flags.contains(Flags::LOSING), Quality::SENSOR_LOSS),
            (desc.flags.contains(Flags::SUPER_FRAME), Quality::SUPER_FRAMES),
            (self.fragment.is_some(), Quality::FRAGMENTS),
        ] {
            if is_so {
                facts.note(quality);
            }
        }
        Packet {
            source: (self.ends[0], ports[0]),
            destination: (self.ends[1], ports[1]),
            protocol: self.protocol,
            wide: Wide { version: self.version, ..Wide::default() },
            vlan: 0,
            fragment: self.fragment,
            encapsulation: Encapsulation::default(),
            network: 0,
            facts,
        }
    }
}

impl Facts {
    pub(crate) fn note(&mut self, quality: Quality) {
        self.quality |= quality.0;
        self.is_usual = false;
    }
}

impl Packet {
    /// Returns whether further headers may follow that are not read here: the payload is not a transport, or has the
    /// port of a tunnel.
    fn may_carry_more(&self) -> bool {
        match self.protocol {
            registry::UDP => registry::may_be_tunnel(self.destination.1, self.source.1),
            registry::TCP | registry::UDP_LITE | registry::SCTP | registry::ICMP | registry::ICMPV6 => false,
            _ => true,
        }
    }

    /// Removes the ports, as in all later fragments between the same addresses.
    fn without_ports(&self) -> Packet {
        Packet { source: (self.source.0, 0), destination: (self.destination.0, 0), ..*self }
    }

    /// Returns the key, and which end the sender is.
    pub(crate) fn key(&self) -> (Words, Wide, u8) {
        let side = self.source > self.destination;
        let (low, high) = if side { (self.destination, self.source) } else { (self.source, self.destination) };
        let rest = Words::rest(low.1, high.1, self.protocol, 0) | u64::from(self.vlan) << VLAN;
        let is_narrow = self.wide.version == 4 && self.wide.tunnel == 0 && self.wide.inner_vlan == 0;
        let (words, ends) = if is_narrow {
            (Words { ends: (low.0 as u64) << 32 | high.0 as u64, rest: rest | NARROW }, [0; 2])
        } else {
            (Words { ends: 0, rest: rest | WIDE }, [low.0, high.0])
        };
        (words, Wide { ends, ..self.wide }, u8::from(side))
    }
}

/// Returns the length of a transport header, and whether it was captured.
fn header_of(protocol: u8, message: &IpPayload<'_>) -> (u32, bool) {
    let least = match protocol {
        registry::TCP => tcp::LEN as u32,
        registry::UDP | registry::UDP_LITE | registry::ICMP | registry::ICMPV6 => 8,
        registry::SCTP => 12,
        _ => 0,
    };
    if message.bytes.len() < least as usize || protocol != registry::TCP {
        return (least, message.bytes.len() >= least as usize);
    }
    let header = u32::from(message.bytes[12] >> 4) * 4;
    let is_right = (least..=message.length).contains(&header);
    (if is_right { header } else { least }, is_right)
}

/// Reads a TCP header that was captured.
fn segment_of(message: &[u8], identification: u16) -> Segment {
    let Some(head) = message.first_chunk() else { return Segment::NONE };
    let segment = Segment::of(head, identification);
    let options = if head[13] & SYN != 0 { Options::read(message) } else { Options::NONE };
    Segment { options, ..segment }
}

/// Returns the values that the key has for the ports of source and destination.
fn ports_of(protocol: u8, message: &[u8]) -> [u16; 2] {
    match (protocol, message) {
        (registry::TCP | registry::UDP | registry::UDP_LITE | registry::SCTP, [a, b, c, d, ..]) => {
            [u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])]
        }
        (registry::ICMP | registry::ICMPV6, [kind, code, ..]) => icmp_ports(protocol, *kind, *code),
        _ => [0; 2],
    }
}

fn icmp_hint(protocol: u8, message: &[u8]) -> Hint {
    let kind = message.first().filter(|_| is_icmp(protocol));
    match kind.and_then(|kind| Some((icmp_pair(protocol, *kind)?, kind))) {
        Some(([request, _], kind)) if *kind == request => Hint::Request,
        Some(_) => Hint::Reply,
        None => Hint::Nothing,
    }
}

/// Reads the fragment header of a packet that has other fragments.
fn fragment(frame: &[u8], layer: &Layer) -> Option<Fragment> {
    let header = frame.get(layer.offset as usize..).filter(|_| layer.protocol == Protocol::Fragment)?;
    let view = ipv6_fragment::View::parse(header).ok()?;
    let is_first = view.fragment_offset() == 0;
    let fragment = Fragment { identification: view.identification(), is_first };
    (view.more_fragments() || !is_first).then_some(fragment)
}

fn extension(protocol: Protocol) -> u8 {
    match protocol {
        Protocol::HopByHop => 1,
        Protocol::Routing => 2,
        Protocol::Fragment => 4,
        Protocol::DestinationOptions => 8,
        Protocol::Ah => 16,
        Protocol::Mobility => 32,
        Protocol::Hip => 64,
        Protocol::Shim6 => 128,
        _ => 0,
    }
}
