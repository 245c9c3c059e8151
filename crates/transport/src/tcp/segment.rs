//! Parses a frame as a TCP segment to a local address; each length is checked once, and every checksum.

use super::config::{Config, is_host};
use super::{Arrival, Checksum, Local};
use crate::stream_memory::{Ends, Payload};
use linerate_burst::Count;
use linerate_headers::{Link, MacAddr, Pseudo, Sum, ethernet, registry, vlan};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Ethernet header with two VLAN tags.
pub(super) const MOST_LINK: usize = 22;
const MOST_EXTENSIONS: usize = 8;
const MOST_LENGTH: usize = 65_535;

/// Connection key; IPv4 addresses as IPv4-mapped IPv6 addresses, which no IPv6 packet may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub from: u128,
    pub to: u128,
    /// Source and destination port.
    pub ports: u32,
}

impl Key {
    pub(super) fn source_port(&self) -> u16 {
        (self.ports >> 16) as u16
    }

    pub(super) fn destination_port(&self) -> u16 {
        self.ports as u16
    }

    pub(super) fn is_v6(&self) -> bool {
        self.to >> 32 != 0xffff
    }

    pub(super) fn ends(&self) -> Ends {
        let end = |bits, port| SocketAddr::new(Ipv6Addr::from_bits(bits).to_canonical(), port);
        Ends { from: end(self.from, self.source_port()), to: end(self.to, self.destination_port()) }
    }

    pub(super) fn words(&self) -> [u64; 5] {
        let halves = |bits: u128| [(bits >> 64) as u64, bits as u64];
        let ([a, b], [c, d]) = (halves(self.from), halves(self.to));
        [a, b, c, d, self.ports.into()]
    }
}

/// Returns an address as bits, IPv4 mapped.
pub(super) fn bits(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => mapped(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

fn mapped(bits: u32) -> u128 {
    0xffff << 32 | u128::from(bits)
}

/// Local addresses.
#[derive(Debug)]
pub(super) struct LocalAddresses {
    /// Sorted.
    ips: Vec<u128>,
    listen: Vec<Local>,
    stations: Vec<MacAddr>,
}

impl LocalAddresses {
    pub(super) fn new(config: &Config) -> Self {
        let mut ips: Vec<u128> = config.listen.iter().map(|local| bits(local.ip)).collect();
        ips.sort_unstable();
        ips.dedup();
        LocalAddresses { ips, listen: config.listen.clone(), stations: config.stations.clone() }
    }

    /// Returns whether this address and port accept connections.
    pub(super) fn listens(&self, key: &Key) -> bool {
        self.listen.iter().any(|local| bits(local.ip) == key.to && local.ports.contains(&key.destination_port()))
    }

    #[inline]
    fn has(&self, ip: u128) -> bool {
        self.ips[0] == ip || self.ips.binary_search(&ip).is_ok()
    }
}

/// Reasons why a frame yields no segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    NotMine,
    Gather,
    Drop(Count),
}

const MALFORMED: Refusal = Refusal::Drop(Count::TcpMalformed);

#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'a> {
    /// Link header, VLAN tags included.
    pub link: &'a [u8],
    pub key: Key,
    pub sequence: u32,
    pub ack: u32,
    pub flags: u8,
    pub options: &'a [u8],
    pub payload: Payload<'a>,
    /// Length of all headers before the payload.
    pub headers: usize,
}

/// Position of the TCP header in a packet, and of the packet's end.
struct HeaderPosition {
    from: u128,
    to: u128,
    tcp: usize,
    end: usize,
}

/// Parses a frame.
#[inline]
pub(super) fn read<'a>(arrival: &Arrival<'a>, own: &LocalAddresses) -> Result<Segment<'a>, Refusal> {
    let frame = arrival.headers;
    // Headers that are incomplete here: nothing can be decided yet.
    let unknown = if arrival.rest > 0 { Refusal::Gather } else { Refusal::NotMine };
    let network = network_at(arrival.link, frame).ok_or(unknown)??;
    let (link, packet) = frame.split_at(network);
    let whole = packet.len() + arrival.rest;
    let version = packet.first().ok_or(unknown)? >> 4;
    let found = match (version, link.last()) {
        (4, None | Some(0x00)) => find_v4(packet, whole, own, unknown),
        (6, None | Some(0xdd)) => find_v6(packet, whole, own, unknown),
        _ => Err(Refusal::NotMine),
    }?;
    if arrival.link == Link::Ethernet {
        let to = MacAddr([link[0], link[1], link[2], link[3], link[4], link[5]]);
        if to.is_multicast() {
            return Err(Refusal::Drop(Count::TcpMartian));
        }
        if !own.stations.is_empty() && !own.stations.contains(&to) {
            return Err(Refusal::NotMine);
        }
    }
    let cut = if arrival.rest > 0 { Refusal::Gather } else { MALFORMED };
    let head = packet.get(found.tcp..).and_then(|tcp| tcp.first_chunk::<20>()).ok_or(cut)?;
    let header = usize::from(head[12] >> 4) * 4;
    let payload_at = found.tcp + header;
    if header < 20 || payload_at > found.end {
        return Err(MALFORMED);
    }
    let payload = if arrival.rest == 0 {
        Payload::Bytes(&packet[payload_at..found.end])
    } else if packet.len() == payload_at {
        Payload::Read { from: 0, len: found.end - payload_at }
    } else {
        return Err(Refusal::Gather);
    };
    verify(arrival, &found, packet, payload.len())?;
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let key = Key { from: found.from, to: found.to, ports: word(0) };
    if key.from == key.to || key.source_port() == 0 || !is_host(key.ends().from.ip()) {
        return Err(Refusal::Drop(Count::TcpMartian));
    }
    let options = &packet[found.tcp + 20..payload_at];
    let headers = network + payload_at;
    Ok(Segment { link, key, sequence: word(4), ack: word(8), flags: head[13], options, payload, headers })
}

/// Returns the position of the IP header; an error if it is not IP, `None` if the frame is too short to decide.
#[inline]
fn network_at(link: Link, frame: &[u8]) -> Option<Result<usize, Refusal>> {
    match link {
        Link::RawIp => return Some(Ok(0)),
        Link::Ethernet => {}
        _ => return Some(Err(Refusal::NotMine)),
    }
    let mut at = 12;
    loop {
        let ether_type = u16::from_be_bytes(*frame.get(at..)?.first_chunk::<2>()?);
        at += 2;
        match ether_type {
            ethernet::IPV4 | ethernet::IPV6 => return Some(Ok(at)),
            vlan::CUSTOMER | vlan::SERVICE if at < MOST_LINK => at += 2,
            _ => return Some(Err(Refusal::NotMine)),
        }
    }
}

#[inline]
fn find_v4(packet: &[u8], whole: usize, own: &LocalAddresses, unknown: Refusal) -> Result<HeaderPosition, Refusal> {
    let head = packet.first_chunk::<20>().ok_or(unknown)?;
    let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let address = |at: usize| mapped(u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    let (from, to) = (address(12), address(16));
    if head[9] != registry::TCP || !own.has(to) {
        return Err(Refusal::NotMine);
    }
    let tcp = usize::from(head[0] & 0x0f) * 4;
    if tcp < 20 || tcp > whole {
        return Err(MALFORMED);
    }
    let header = packet.get(..tcp).ok_or(unknown)?;
    if Sum::of(header).checksum() != 0 {
        return Err(Refusal::Drop(Count::TcpBadChecksum));
    }
    if word(6) & 0x3fff != 0 {
        return Err(Refusal::Drop(Count::TcpFragment));
    }
    let end = match word(2) {
        // Longer than the field can express (a super-frame).
        0 if whole > MOST_LENGTH => whole,
        length => length.into(),
    };
    if end > whole || tcp + 20 > end { Err(MALFORMED) } else { Ok(HeaderPosition { from, to, tcp, end }) }
}

#[inline]
fn find_v6(packet: &[u8], whole: usize, own: &LocalAddresses, unknown: Refusal) -> Result<HeaderPosition, Refusal> {
    let head = packet.first_chunk::<40>().ok_or(unknown)?;
    let address = |at: usize| head[at..].first_chunk::<16>().map_or(0, |octets| u128::from_be_bytes(*octets));
    let (from, to) = (address(8), address(24));
    if !own.has(to) || to >> 32 == 0xffff {
        return Err(Refusal::NotMine);
    }
    if from >> 32 == 0xffff {
        return Err(Refusal::Drop(Count::TcpMartian));
    }
    let end = 40
        + match u16::from_be_bytes([head[4], head[5]]) {
            0 if whole > 40 + MOST_LENGTH => whole - 40,
            length => length.into(),
        };
    let (mut next, mut tcp) = (head[6], 40);
    for _ in 0..MOST_EXTENSIONS {
        match next {
            registry::TCP => {
                let fits = end <= whole && tcp + 20 <= end;
                return if fits { Ok(HeaderPosition { from, to, tcp, end }) } else { Err(MALFORMED) };
            }
            registry::HOP_BY_HOP | registry::ROUTING | registry::DESTINATION_OPTIONS => {
                let extension = packet.get(tcp..).and_then(|rest| rest.first_chunk::<4>()).ok_or(unknown)?;
                if next == registry::ROUTING && extension[3] != 0 {
                    return Err(Refusal::NotMine);
                }
                next = extension[0];
                tcp += 8 + usize::from(extension[1]) * 8;
            }
            registry::FRAGMENT => {
                let extension = packet.get(tcp..).and_then(|rest| rest.first_chunk::<1>()).ok_or(unknown)?;
                let is_tcp = extension[0] == registry::TCP;
                return Err(if is_tcp { Refusal::Drop(Count::TcpFragment) } else { Refusal::NotMine });
            }
            _ => return Err(Refusal::NotMine),
        }
    }
    Err(MALFORMED)
}

#[inline]
fn verify(arrival: &Arrival<'_>, found: &HeaderPosition, packet: &[u8], payload: usize) -> Result<(), Refusal> {
    let (here, rest) = match arrival.checksum {
        Checksum::Trusted => return Ok(()),
        _ if arrival.rest == 0 => (&packet[found.tcp..found.end], 0),
        // The sum includes padding.
        Checksum::Rest(sum) if payload == arrival.rest => (&packet[found.tcp..], sum),
        Checksum::Rest(_) | Checksum::Verify => return Err(Refusal::Gather),
    };
    let length = (found.end - found.tcp) as u32;
    let sum = pseudo(found.from, found.to).sum(registry::TCP, length).with(here).with_word(rest);
    if sum.checksum() == 0 { Ok(()) } else { Err(Refusal::Drop(Count::TcpBadChecksum)) }
}

/// Returns the pseudo-header of the checksum.
#[inline]
pub(super) fn pseudo(source: u128, destination: u128) -> Pseudo {
    if destination >> 32 == 0xffff {
        Pseudo::V4 { source: Ipv4Addr::from_bits(source as u32), destination: Ipv4Addr::from_bits(destination as u32) }
    } else {
        Pseudo::V6 { source: Ipv6Addr::from_bits(source), destination: Ipv6Addr::from_bits(destination) }
    }
}
