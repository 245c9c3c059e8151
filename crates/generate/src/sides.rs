//! Sides of a recording: the client's or the server's frames.

use crate::rewrite::Prefix;
use linerate_headers::{Layers, Link, MacAddr, Protocol, Role, arp, dissect, ipv4, ipv6, tcp};
use std::collections::HashMap;
use std::str::FromStr;

/// Side of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Client, which sends requests.
    Client,
    /// Server, which answers.
    Server,
}

impl Side {
    fn client_if(is_client: bool) -> Side {
        if is_client { Side::Client } else { Side::Server }
    }
}

/// Rule that assigns frames to sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitBy {
    /// These source MAC addresses are clients'.
    Mac(Vec<MacAddr>),
    /// These source addresses are clients'; of ARP, the sender's. A frame without an address is a client's.
    Ip(Vec<Prefix>),
    /// The end with the lower port is the server, which well-known ports make likely; without ports as [`SplitBy::First`].
    Port,
    /// The sender of the first packet of a conversation is its client; of a SYN with ACK, its server.
    First,
}

/// Invalid rule for sides.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid side rule {0:?}; expected first-packet, port, mac=MAC,... with the clients' addresses, or ip=BLOCK,... with \
     the clients' blocks, such as ip=10.0.0.0/8,fd00::/8"
)]
pub struct BadSplitBy(String);

impl FromStr for SplitBy {
    type Err = BadSplitBy;

    fn from_str(text: &str) -> Result<Self, BadSplitBy> {
        let found = match text.split_once('=') {
            None if text == "port" => Some(SplitBy::Port),
            None if text == "first-packet" => Some(SplitBy::First),
            Some(("mac", list)) => list.split(',').map(|mac| mac.parse().ok()).collect::<Option<_>>().map(SplitBy::Mac),
            Some(("ip", list)) => list.split(',').map(|ip| ip.parse().ok()).collect::<Option<_>>().map(SplitBy::Ip),
            _ => None,
        };
        found.ok_or_else(|| BadSplitBy(text.to_owned()))
    }
}

/// Assigns each frame to a side. The memory for conversations is bounded: at least the last [`Sides::REMEMBERED`] are
/// known.
#[derive(Debug)]
pub struct Sides {
    by: SplitBy,
    layers: Layers,
    /// Maps a conversation to whether its lower end is its client. When full, the young map becomes the old one, and
    /// the old one is dropped.
    young: HashMap<ConversationKey, bool>,
    old: HashMap<ConversationKey, bool>,
    most: usize,
}

/// IP address (IPv4 in its last four bytes) and port.
type Host = ([u8; 16], u16);

/// Conversation: its ends, the lower one first, and its protocol; without ports, all traffic of two hosts.
type ConversationKey = (Host, Host, u8);

/// Ends of a conversation in a frame.
struct Ends {
    source: Host,
    destination: Host,
    protocol: u8,
    /// True for a SYN with ACK or an ARP reply.
    answers: bool,
}

impl Sides {
    /// Minimum number of remembered conversations.
    pub const REMEMBERED: usize = 1 << 18;

    /// Creates an empty memory.
    pub fn new(by: SplitBy) -> Self {
        Sides { by, layers: Layers::new(), young: HashMap::new(), old: HashMap::new(), most: Sides::REMEMBERED }
    }

    /// Forgets all conversations.
    pub fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }

    /// Returns the side that sent an Ethernet frame.
    pub fn side(&mut self, frame: &[u8]) -> Side {
        if let SplitBy::Mac(clients) = &self.by {
            let source = frame.get(6..).and_then(|bytes| bytes.first_chunk()).map(|mac| MacAddr(*mac));
            return Side::client_if(source.is_some_and(|source| clients.contains(&source)));
        }
        dissect(Link::Ethernet, frame, &mut self.layers);
        let ends = ends(frame, &self.layers);
        match (&self.by, ends) {
            (SplitBy::Ip(clients), Some(ends)) => Side::client_if(clients.iter().any(|block| ends.source_is_in(block))),
            (SplitBy::Ip(_), None) => Side::Client,
            (SplitBy::Port, Some(ends)) if ends.source.1 != ends.destination.1 => {
                Side::client_if(ends.source.1 > ends.destination.1)
            }
            (_, Some(ends)) => self.remembered(&ends),
            (_, None) => self.remembered(&Ends::of_link(frame)),
        }
    }

    /// Returns the side by the first packet of the conversation.
    fn remembered(&mut self, ends: &Ends) -> Side {
        let hosts = ends.without_ports();
        let has_ports = ends.source.1 != 0 || ends.destination.1 != 0;
        let known = self.look_up(ends).or_else(|| if has_ports { None } else { self.look_up(&hosts) });
        let is_client = known.unwrap_or(!ends.answers);
        if known.is_none() {
            self.remember(ends, is_client);
            // Fragments and ICMP errors follow the hosts' first conversation.
            if has_ports && self.look_up(&hosts).is_none() {
                self.remember(&hosts, is_client);
            }
        }
        Side::client_if(is_client)
    }

    /// Returns whether the sender is the client, if known.
    fn look_up(&mut self, ends: &Ends) -> Option<bool> {
        let (talk, is_lower) = ends.talk();
        if let Some(lower) = self.young.get(&talk) {
            return Some(*lower == is_lower);
        }
        let lower = self.old.remove(&talk)?;
        self.insert(talk, lower);
        Some(lower == is_lower)
    }

    fn remember(&mut self, ends: &Ends, is_client: bool) {
        let (talk, is_lower) = ends.talk();
        self.insert(talk, is_client == is_lower);
    }

    fn insert(&mut self, talk: ConversationKey, lower: bool) {
        if self.young.len() >= self.most {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert(talk, lower);
    }
}

impl Ends {
    /// Returns the ends of a frame without IP addresses: those of the link.
    fn of_link(frame: &[u8]) -> Ends {
        let host = |at: usize| (padded(frame.get(at..at + 6).unwrap_or_default()), 0);
        Ends { source: host(6), destination: host(0), protocol: u8::MAX, answers: false }
    }

    fn without_ports(&self) -> Ends {
        let (source, destination) = ((self.source.0, 0), (self.destination.0, 0));
        Ends { source, destination, protocol: 0, answers: self.answers }
    }

    /// Returns the conversation, and whether the sender is its lower end.
    fn talk(&self) -> (ConversationKey, bool) {
        let is_lower = self.source <= self.destination;
        let (low, high) = if is_lower { (self.source, self.destination) } else { (self.destination, self.source) };
        ((low, high, self.protocol), is_lower)
    }

    fn source_is_in(&self, block: &Prefix) -> bool {
        let address = &self.source.0;
        block.holds(address) || address[..12] == [0; 12] && block.holds(&address[12..])
    }
}

fn padded(bytes: &[u8]) -> [u8; 16] {
    let mut all = [0; 16];
    if let Some(end) = all.get_mut(16 - bytes.len().min(16)..) {
        end.copy_from_slice(&bytes[bytes.len() - end.len()..]);
    }
    all
}

/// Returns the ends of the outermost packet.
fn ends(frame: &[u8], layers: &Layers) -> Option<Ends> {
    if let Some(layer) = layers.as_slice().iter().find(|layer| layer.protocol == Protocol::Arp) {
        let packet = arp::View::parse(frame.get(layer.offset as usize..)?).ok()?;
        let (source, destination) = (padded(packet.sender_protocol()), padded(packet.target_protocol()));
        let answers = packet.operation() == arp::REPLY;
        return Some(Ends { source: (source, 0), destination: (destination, 0), protocol: u8::MAX, answers });
    }
    let network = layers.network()?;
    let packet = frame.get(network.offset as usize..)?;
    let (source, destination, is_fragment) = if network.protocol == Protocol::Ipv4 {
        let view = ipv4::View::parse(packet).ok()?;
        (padded(&view.source().octets()), padded(&view.destination().octets()), view.is_fragment())
    } else {
        let view = ipv6::View::parse(packet).ok()?;
        let is_fragment = layers.as_slice().iter().any(|layer| layer.protocol == Protocol::Fragment);
        (view.source().octets(), view.destination().octets(), is_fragment)
    };
    let mut ends = Ends { source: (source, 0), destination: (destination, 0), protocol: 0, answers: false };
    let transport = layers.transport().filter(|_| !is_fragment);
    let Some(transport) = transport.filter(|layer| layer.protocol.role() == Role::Transport) else { return Some(ends) };
    let message = frame.get(transport.offset as usize..)?;
    if transport.protocol.has_ports() {
        let &[a, b, c, d] = message.first_chunk()?;
        (ends.source.1, ends.destination.1) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        ends.protocol = transport.protocol as u8;
        let flags =
            tcp::View::parse(message).ok().filter(|_| transport.protocol == Protocol::Tcp).map(|view| view.flags());
        ends.answers = flags.is_some_and(|flags| flags.contains(tcp::Flags::SYN) && flags.contains(tcp::Flags::ACK));
    }
    Some(ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_headers::build::{Frame, Header};
    use linerate_headers::{ethernet, icmp, udp};
    use std::net::Ipv4Addr;

    const A: [u8; 4] = [10, 0, 0, 1];
    const B: [u8; 4] = [10, 0, 0, 2];

    fn frame(source: [u8; 4], destination: [u8; 4], transport: &dyn Header) -> Vec<u8> {
        let mac = |[.., last]: [u8; 4]| MacAddr([2, 0, 0, 0, 0, last]);
        let link = ethernet::Header { source: mac(source), destination: mac(destination), ether_type: 0 };
        let (source, destination) = (Ipv4Addr::from(source), Ipv4Addr::from(destination));
        let network = ipv4::Header { source, destination, ..ipv4::Header::new(0) };
        Frame::new(&[&link, &network, transport], b"x").to_vec().unwrap()
    }

    fn tcp(from: u16, to: u16, flags: tcp::Flags) -> tcp::Header {
        tcp::Header { source_port: from, destination_port: to, flags, ..tcp::Header::default() }
    }

    fn sides(by: &str) -> Sides {
        Sides::new(by.parse().unwrap())
    }

    #[test]
    fn lists_and_ports_decide() {
        let udp = |from, to| udp::Header { source_port: from, destination_port: to };
        let there = frame(A, B, &udp(40_000, 53));
        let back = frame(B, A, &udp(53, 40_000));
        for by in ["mac=02:00:00:00:00:01", "ip=192.0.2.0/24,10.0.0.1", "port", "first-packet"] {
            let mut sides = sides(by);
            for _ in 0..2 {
                assert_eq!((sides.side(&there), sides.side(&back)), (Side::Client, Side::Server), "{by}");
            }
        }
        let mut sides = sides("ip=fd00::/8");
        assert_eq!((sides.side(&there), sides.side(&[0; 60])), (Side::Server, Side::Client));
        for wrong in ["", "mac", "mac=", "ip=10.0.0.0/99", "ports", "first", "ip=10.0.0.0/8,"] {
            assert!(wrong.parse::<SplitBy>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_first_sender_is_the_client_unless_it_sends_syn_ack() {
        let mut sides = sides("first-packet");
        let answer = tcp::Flags::SYN | tcp::Flags::ACK;
        assert_eq!(sides.side(&frame(B, A, &tcp(80, 1000, answer))), Side::Server, "recorded from the answer on");
        assert_eq!(sides.side(&frame(A, B, &tcp(1000, 80, tcp::Flags::ACK))), Side::Client);
        assert_eq!(
            sides.side(&frame(B, A, &tcp(2000, 22, tcp::Flags::SYN))),
            Side::Client,
            "another flow, its own client"
        );
        assert_eq!(sides.side(&frame(A, B, &tcp(22, 2000, answer))), Side::Server);
        let echo = icmp::Header { kind: 8, code: 0, rest: [0; 4] };
        assert_eq!(sides.side(&frame(A, B, &echo)), Side::Client, "the hosts' first flow decides");
        assert_eq!(sides.side(&frame(B, A, &echo)), Side::Server);
        let mut fragment = frame(B, A, &tcp(80, 1000, tcp::Flags::ACK));
        fragment[20] = 0x20;
        assert_eq!(sides.side(&fragment), Side::Server);
        sides.clear();
        assert_eq!(sides.side(&fragment), Side::Client);
    }

    #[test]
    fn arp_is_classified_by_target_address() {
        let mut sides = sides("first-packet");
        let mut packet = arp::Packet {
            operation: arp::REQUEST,
            sender_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            sender_ip: A.into(),
            target_mac: MacAddr([0; 6]),
            target_ip: B.into(),
        };
        let arp = |packet: &arp::Packet, destination| {
            let link = ethernet::Header { source: packet.sender_mac, destination, ether_type: 0 };
            Frame::new(&[&link, packet], &[]).to_vec().unwrap()
        };
        assert_eq!(sides.side(&arp(&packet, MacAddr::BROADCAST)), Side::Client);
        packet = arp::Packet { operation: arp::REPLY, sender_ip: B.into(), target_ip: A.into(), ..packet };
        assert_eq!(sides.side(&arp(&packet, packet.sender_mac)), Side::Server);
    }

    #[test]
    fn memory_is_bounded_and_recent() {
        let mut sides = sides("first-packet");
        sides.most = 16;
        let flow = |port: u16| tcp(port, 80, tcp::Flags::SYN);
        for port in 1000..2000 {
            assert_eq!(sides.side(&frame(A, B, &flow(port))), Side::Client);
            assert!(sides.young.len() + sides.old.len() <= 32);
        }
        for port in 1986..2000 {
            assert_eq!(sides.side(&frame(B, A, &tcp(80, port, tcp::Flags::ACK))), Side::Server, "{port}");
        }
    }
}
