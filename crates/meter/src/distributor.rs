//! Assignment of frames to meters.
//!
//! By the sorted addresses of the outermost IP packet: so one meter gets both directions of a flow, the fragments of a
//! packet, which have no ports, and the contents of a tunnel with the packets that carry it, whose flow is in its key.
//! A pair of hosts is never divided. The hash is keyed like that of the table: a sender cannot construct addresses that
//! all go to one meter.

use crate::config::{Config, Tunnels};
use crate::hash::Keyed;
use crate::key::{Wide, Words};
use linerate_headers::registry::{self, may_be_tunnel};
use linerate_headers::{Layer, Layers, Link, Protocol, Role, dissect, ethernet, ipv4, ipv6, udp, vlan};

/// Distributes frames over meters.
#[derive(Debug)]
pub struct FlowDistributor {
    keyed: Keyed,
    meters: u64,
    /// Only inner packets are metered, so tunnels may be divided by their addresses.
    inner: bool,
    layers: Layers,
}

/// Separates the secrets from those of the table.
const OTHER: u64 = 0x7370_7265_6164;
/// Part of an IPv4 frame with both addresses, and the ports after them.
const IPV4_HEAD: usize = ipv4::LEN + udp::LEN;
const IPV6_HEAD: usize = ipv6::LEN + udp::LEN;

impl FlowDistributor {
    /// Maximum number of meters.
    pub const MOST: usize = 64;
    /// Maximum number of bytes of a [plain](FlowDistributor::is_plain) frame that a meter reads, unless it verifies checksums: a
    /// tag, IPv6, and TCP with all options.
    pub const HEADERS: usize = 256;

    /// Creates an assignment to `meters` meters, each of which is created with `config`.
    ///
    /// # Panics
    /// If `meters` is 0, or more than [`FlowDistributor::MOST`].
    pub fn new(config: &Config, meters: usize) -> Self {
        assert!((1..=FlowDistributor::MOST).contains(&meters), "{meters} meters");
        let [one, other] = config.seed;
        FlowDistributor {
            keyed: Keyed::new([one ^ OTHER, other]),
            meters: meters as u64,
            inner: config.tunnels == Tunnels::Inner,
            layers: Layers::new(),
        }
    }

    /// Returns the meter of a frame, from 0; frames without IP go to the first one. With [`Tunnels::Inner`] the
    /// innermost addresses are used instead of the outermost.
    #[inline(always)]
    pub fn meter_of(&mut self, link: Option<Link>, frame: &[u8]) -> usize {
        let pair = if link == Some(Link::Ethernet) { usual(frame, self.inner) } else { None };
        match pair {
            Some(Pair::V4(ends)) => self.pick(self.keyed.narrow(Words { ends, rest: 0 })),
            Some(Pair::V6(ends)) => self.pick(self.wide(ends)),
            None => self.look(link, frame),
        }
    }

    /// Returns whether a meter reads no more than [`FlowDistributor::HEADERS`] bytes: TCP or UDP over Ethernet that is not a
    /// tunnel.
    #[inline]
    pub fn is_plain(link: Option<Link>, frame: &[u8]) -> bool {
        link == Some(Link::Ethernet) && usual(frame, true).is_some()
    }

    /// Selects by the upper bits, without a division.
    #[inline(always)]
    fn pick(&self, hash: u64) -> usize {
        (((hash >> 32) * self.meters) >> 32) as usize
    }

    fn wide(&self, ends: [u128; 2]) -> u64 {
        self.keyed.wide(Words::default(), &Wide { ends, ..Wide::default() })
    }

    /// Returns the meter of any frame.
    #[inline(never)]
    fn look(&mut self, link: Option<Link>, frame: &[u8]) -> usize {
        let Some(link) = link else { return 0 };
        dissect(link, frame, &mut self.layers);
        let mut packets = self.layers.as_slice().iter().filter(|layer| layer.protocol.role() == Role::Network);
        let inner = if self.inner { packets.clone().next_back().and_then(|layer| ends_of(frame, layer)) } else { None };
        match inner.or_else(|| packets.next().and_then(|layer| ends_of(frame, layer))) {
            Some(Pair::V4(ends)) => self.pick(self.keyed.narrow(Words { ends, rest: 0 })),
            Some(Pair::V6(ends)) => self.pick(self.wide(ends)),
            None => 0,
        }
    }
}

/// Two addresses, the lower one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pair {
    /// In the upper and the lower half.
    V4(u64),
    V6([u128; 2]),
}

/// Returns the addresses of IP over Ethernet and at most one tag. With `plain`, only of TCP and UDP that carry no
/// packet.
#[inline(always)]
fn usual(frame: &[u8], plain: bool) -> Option<Pair> {
    let ether_type: [u8; 2] = part(frame, 12)?;
    match u16::from_be_bytes(ether_type) {
        ethernet::IPV4 => usual_ipv4(part(frame, ethernet::LEN)?, plain),
        ethernet::IPV6 => usual_ipv6(part(frame, ethernet::LEN)?, plain),
        vlan::CUSTOMER => match u16::from_be_bytes(part(frame, ethernet::LEN + 2)?) {
            ethernet::IPV4 => usual_ipv4(part(frame, ethernet::LEN + vlan::LEN)?, plain),
            ethernet::IPV6 => usual_ipv6(part(frame, ethernet::LEN + vlan::LEN)?, plain),
            _ => None,
        },
        _ => None,
    }
}

#[inline(always)]
fn usual_ipv4(head: [u8; IPV4_HEAD], plain: bool) -> Option<Pair> {
    let has_options = head[0] != 0x45;
    if head[0] >> 4 != 4 || plain && (has_options || !is_plain(head[9], &head[ipv4::LEN..])) {
        return None;
    }
    Some(v4(u32::from_be_bytes(part(&head, 12)?), u32::from_be_bytes(part(&head, 16)?)))
}

#[inline(always)]
fn usual_ipv6(head: [u8; IPV6_HEAD], plain: bool) -> Option<Pair> {
    if head[0] >> 4 != 6 || plain && !is_plain(head[6], &head[ipv6::LEN..]) {
        return None;
    }
    Some(v6(u128::from_be_bytes(part(&head, 8)?), u128::from_be_bytes(part(&head, 24)?)))
}

/// Returns whether this transport carries no packet.
#[inline(always)]
fn is_plain(protocol: u8, transport: &[u8]) -> bool {
    let port = |at: usize| u16::from_be_bytes([transport[at], transport[at + 1]]);
    protocol == registry::TCP || protocol == registry::UDP && !may_be_tunnel(port(2), port(0))
}

fn v4(one: u32, other: u32) -> Pair {
    Pair::V4(u64::from(one.min(other)) << 32 | u64::from(one.max(other)))
}

fn v6(one: u128, other: u128) -> Pair {
    Pair::V6([one.min(other), one.max(other)])
}

/// Returns the addresses of the packet whose IP header is this layer.
fn ends_of(frame: &[u8], layer: &Layer) -> Option<Pair> {
    let bytes = frame.get(layer.offset as usize..)?;
    if layer.protocol == Protocol::Ipv4 {
        let view = ipv4::View::parse(bytes).ok()?;
        Some(v4(view.source().into(), view.destination().into()))
    } else {
        let view = ipv6::View::parse(bytes).ok()?;
        Some(v6(view.source().into(), view.destination().into()))
    }
}

/// Returns bytes in the middle of others, if they are there.
#[inline(always)]
fn part<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}
