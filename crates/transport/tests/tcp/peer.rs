//! The peer: segments built by hand, and replies, parsed and checked.

use super::memory::Memory;
use linerate_burst::{Count, Kind, Ledger, Nanos, Stage};
use linerate_headers::tcp::{Flags, Header};
use linerate_headers::tcp_option::{TcpOption, encode};
use linerate_headers::{Link, MacAddr, ethernet, ipv4, ipv6, registry, tcp, vlan};
use linerate_transport::tcp::{Arrival, Checksum, Config, Endpoint, Local, ReceiveOutcome};
use std::net::IpAddr;
use std::time::Duration;

pub(super) const OWN_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub(super) const PEER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
pub(super) const START: Nanos = Nanos(1_700_000_000_000_000_000);
pub(super) const PORT: u16 = 5001;

pub(super) fn v4(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

pub(super) fn v6(last: u16) -> IpAddr {
    IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last])
}

pub(super) fn config() -> Config {
    let local = |ip| Local { ip, ports: PORT..=PORT + 9 };
    Config { listen: vec![local(v4(1)), local(v6(1))], secret: [7, 8], ..Config::default() }
}

/// A segment to build.
#[derive(Clone, Debug)]
pub(super) struct Seg {
    pub from: (IpAddr, u16),
    pub to: (IpAddr, u16),
    pub flags: Flags,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub options: Vec<u8>,
    pub payload: Vec<u8>,
    pub tags: Vec<u16>,
    pub macs: (MacAddr, MacAddr),
}

impl Seg {
    pub(super) fn new(flags: Flags, seq: u32, ack: u32, payload: &[u8]) -> Self {
        Seg {
            from: (v4(2), 40000),
            to: (v4(1), PORT),
            flags,
            seq,
            ack,
            window: 64240,
            options: Vec::new(),
            payload: payload.to_vec(),
            tags: Vec::new(),
            macs: (PEER_MAC, OWN_MAC),
        }
    }

    /// Returns the frame.
    pub(super) fn frame(&self) -> Vec<u8> {
        let mut frame = self.link();
        frame.extend(self.packet());
        frame
    }

    pub(super) fn link(&self) -> Vec<u8> {
        let mut frame = vec![0; 14];
        let network = if self.to.0.is_ipv4() { ethernet::IPV4 } else { ethernet::IPV6 };
        let kind = if self.tags.is_empty() { network } else { vlan::CUSTOMER };
        ethernet::Header { destination: self.macs.1, source: self.macs.0, ether_type: kind }.emit(&mut frame).unwrap();
        for (at, id) in self.tags.iter().enumerate() {
            let inner = if at + 1 == self.tags.len() { network } else { vlan::CUSTOMER };
            let tag = vlan::Header { id: *id, priority: 5, drop_eligible: false, ether_type: inner };
            let mut bytes = [0; 4];
            tag.emit(&mut bytes).unwrap();
            frame.extend(bytes);
        }
        frame
    }

    pub(super) fn packet(&self) -> Vec<u8> {
        let header = Header {
            source_port: self.from.1,
            destination_port: self.to.1,
            sequence: self.seq,
            acknowledgement: self.ack,
            flags: self.flags,
            window: self.window,
            urgent: 0,
            options: linerate_headers::options::Options::new(&self.options).unwrap(),
        };
        let mut segment = vec![0; 60];
        let length = header.emit(&mut segment).unwrap();
        segment.truncate(length);
        segment.extend(&self.payload);
        let mut packet = vec![0; 40];
        match (self.from.0, self.to.0) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let head = ipv4::Header { source, destination, ..ipv4::Header::new(registry::TCP) };
                let fits = if segment.len() + 20 > 65535 { 0 } else { segment.len() };
                let length = head.emit(fits, &mut packet).unwrap();
                packet.truncate(length);
                let pseudo = linerate_headers::Pseudo::V4 { source, destination };
                tcp::fill_checksum(&mut segment, &pseudo).unwrap();
                if fits == 0 {
                    packet[2..4].fill(0);
                    packet[10..12].fill(0);
                    let sum = linerate_headers::Sum::of(&packet).checksum();
                    packet[10..12].copy_from_slice(&sum.to_be_bytes());
                }
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let head = ipv6::Header { source, destination, ..ipv6::Header::new(registry::TCP) };
                head.emit(if segment.len() > 65535 { 0 } else { segment.len() }, &mut packet).unwrap();
                tcp::fill_checksum(&mut segment, &linerate_headers::Pseudo::V6 { source, destination }).unwrap();
            }
            _ => panic!("two families"),
        }
        packet.extend(segment);
        packet
    }
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub to: (IpAddr, u16),
    pub from: (IpAddr, u16),
    pub flags: Flags,
    pub seq: u32,
    pub ack: u32,
    pub window: u16,
    pub mss: Option<u16>,
    pub scale: Option<u8>,
    pub sack_ok: bool,
    pub stamps: Option<(u32, u32)>,
    pub blocks: Vec<(u32, u32)>,
    pub link: Vec<u8>,
}

impl Reply {
    pub(super) fn is(&self, flags: Flags) -> bool {
        self.flags == flags
    }
}

/// Parses a reply; everything in it must be valid.
pub(super) fn read(frame: &[u8]) -> Reply {
    let mut at = 12;
    while frame[at..at + 2] == [0x81, 0] {
        at += 4;
    }
    let (link, packet) = frame.split_at(at + 2);
    read_packet(link, packet)
}

pub(super) fn read_packet(link: &[u8], packet: &[u8]) -> Reply {
    let (from, to, pseudo, payload) = if packet[0] >> 4 == 4 {
        let view = ipv4::View::parse(packet).unwrap();
        assert!(view.is_checksum_right() && view.dont_fragment() && view.ttl() == 64);
        (IpAddr::V4(view.source()), IpAddr::V4(view.destination()), view.pseudo(), view.payload())
    } else {
        let view = ipv6::View::parse(packet).unwrap();
        assert_eq!((view.next_header(), view.hop_limit()), (registry::TCP, 64));
        (IpAddr::V6(view.source()), IpAddr::V6(view.destination()), view.pseudo(), view.payload())
    };
    let view = tcp::View::parse(payload).unwrap();
    assert!(view.is_checksum_right(&pseudo) && view.payload().is_empty());
    let mut reply = Reply {
        to: (to, view.destination_port()),
        from: (from, view.source_port()),
        flags: view.flags(),
        seq: view.sequence(),
        ack: view.acknowledgement(),
        window: view.window(),
        mss: None,
        scale: None,
        sack_ok: false,
        stamps: None,
        blocks: Vec::new(),
        link: link.to_vec(),
    };
    for option in view.options() {
        match option.unwrap() {
            TcpOption::MaximumSegmentSize(mss) => reply.mss = Some(mss),
            TcpOption::WindowScale(shift) => reply.scale = Some(shift),
            TcpOption::SackPermitted => reply.sack_ok = true,
            TcpOption::Timestamps { value, echo } => reply.stamps = Some((value, echo)),
            TcpOption::Sack(blocks) => reply.blocks = blocks.iter().collect(),
            option => panic!("{option:?}"),
        }
    }
    reply
}

pub(super) fn syn_options() -> Vec<u8> {
    let all = [
        TcpOption::MaximumSegmentSize(1460),
        TcpOption::SackPermitted,
        TcpOption::Timestamps { value: 1000, echo: 0 },
        TcpOption::WindowScale(7),
    ];
    encode(&all).unwrap().as_bytes().to_vec()
}

pub(super) fn stamps(value: u32, echo: u32) -> Vec<u8> {
    [&[1, 1, 8, 10][..], &value.to_be_bytes(), &echo.to_be_bytes()].concat()
}

/// An endpoint, its memory, and the time.
pub(super) struct Rig {
    pub endpoint: Endpoint,
    pub memory: Memory,
    pub now: Nanos,
}

impl Rig {
    pub(super) fn new(config: Config) -> Self {
        Rig { endpoint: Endpoint::new(config).unwrap(), memory: Memory::new(1 << 40), now: START }
    }

    pub(super) fn receive(&mut self, frame: &[u8]) -> ReceiveOutcome {
        self.receive_as(frame, Link::Ethernet, Checksum::Verify)
    }

    pub(super) fn receive_as(&mut self, frame: &[u8], link: Link, checksum: Checksum) -> ReceiveOutcome {
        let arrival = Arrival { headers: frame, rest: 0, link, checksum, now: self.now };
        self.endpoint.receive(&arrival, &mut self.memory)
    }

    /// Returns the frames to send.
    pub(super) fn replies(&mut self) -> Vec<Reply> {
        let replies = self.endpoint.frames().iter().map(|(_, frame)| read(frame)).collect();
        self.endpoint.clear(0);
        replies
    }

    /// Sends one segment, and returns the replies before the burst ends.
    pub(super) fn at_once(&mut self, segment: &Seg) -> Vec<Reply> {
        self.receive(&segment.frame());
        self.replies()
    }

    /// Sends one segment as a separate burst.
    pub(super) fn send(&mut self, segment: &Seg) -> Vec<Reply> {
        self.receive(&segment.frame());
        self.endpoint.burst_end(true, self.now, &mut self.memory);
        self.replies()
    }

    /// Advances the time.
    pub(super) fn pass(&mut self, time: Duration) -> Vec<Reply> {
        let end = self.now.after(time);
        let mut replies = Vec::new();
        while let Some(next) = self.endpoint.deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.endpoint.tick(self.now, &mut self.memory);
            replies.extend(self.replies());
        }
        self.now = end;
        self.endpoint.burst_end(true, self.now, &mut self.memory);
        replies.extend(self.replies());
        replies
    }

    pub(super) fn count(&self, count: Count) -> u64 {
        let mut ledger = Ledger::new();
        let account = ledger.account(Stage::Tcp, "x");
        self.endpoint.counters(account);
        assert_eq!(account.unaccounted(), 0);
        assert!(account.sum(Kind::Received) >= account.get(count) || count.kind() == Kind::Note);
        account.get(count)
    }

    /// Completes the handshake; timestamps and all other options are offered, or none.
    pub(super) fn connect(&mut self, isn: u32, is_plain: bool) -> Conn {
        let mut first = Seg::new(Flags::SYN, isn, 0, &[]);
        if !is_plain {
            first.options = syn_options();
        }
        self.connect_as(&first)
    }

    pub(super) fn connect_as(&mut self, first: &Seg) -> Conn {
        let replies = self.send(first);
        assert_eq!(replies.len(), 1, "{replies:?}");
        let answer = &replies[0];
        assert!(answer.is(Flags::SYN | Flags::ACK), "{answer:?}");
        assert_eq!(answer.ack, first.seq.wrapping_add(1));
        let mut conn = Conn {
            base: first.clone(),
            isn: first.seq,
            peer: answer.seq.wrapping_add(1),
            scale: answer.scale.unwrap_or(0),
            stamp: answer.stamps.map(|(value, _)| (1000, value)),
        };
        conn.base.options.clear();
        let replies = self.send(&conn.seg(Flags::ACK, 0, &[]));
        assert_eq!(replies, []);
        conn.stamp = conn.stamp.map(|(value, echo)| (value + 1, echo));
        conn
    }
}

/// A connection as its sender sees it.
#[derive(Clone, Debug)]
pub(super) struct Conn {
    pub base: Seg,
    pub isn: u32,
    /// Acknowledged edge.
    pub peer: u32,
    pub scale: u8,
    pub stamp: Option<(u32, u32)>,
}

impl Conn {
    /// Returns a segment at this offset of the stream.
    pub(super) fn seg(&self, flags: Flags, offset: u64, payload: &[u8]) -> Seg {
        let options = self.stamp.map(|(value, echo)| stamps(value, echo)).unwrap_or_default();
        Seg { flags, seq: self.seq(offset), ack: self.peer, options, payload: payload.to_vec(), ..self.base.clone() }
    }

    pub(super) fn data(&self, offset: u64, payload: &[u8]) -> Seg {
        self.seg(Flags::ACK, offset, payload)
    }

    pub(super) fn seq(&self, offset: u64) -> u32 {
        self.isn.wrapping_add(1).wrapping_add(offset as u32)
    }
}
