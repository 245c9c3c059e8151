//! Decoding of a record into a flow, element by element.

mod endpoints;

use super::collect::Clock;
use super::elements::{Meaning, Number, Numbers, scaled};
use super::enterprise::OWN;
use super::{names, times};
use crate::decode::nothing;
use crate::fields::names;
use linerate_burst::Nanos;
use linerate_burst::random::draw;
use linerate_headers::MacAddr;
use linerate_meter::{
    ConnState, Direction, EndReason, ExportedBy, Flow, History, Names, Quality, Side, Tcp, TcpSide, Tunnel, TunnelKind,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Partially decoded record.
pub(super) struct Record {
    clock: Clock,
    flow: Flow,
    numbers: Numbers,
    /// IPv4, IPv6 and exporter addresses, each with the rank of its element.
    addresses: [Option<(u8, IpAddr)>; 6],
    /// True if a quality element was present.
    has_quality: bool,
    /// Names found in payload.
    names: Names,
    tunnel: Tunnel,
    has_tunnel: bool,
    exporter: ExportedBy,
}

impl Record {
    pub(super) fn new(clock: Clock, exporter: ExportedBy) -> Self {
        Record {
            clock,
            flow: nothing(),
            numbers: Numbers::default(),
            addresses: [None; 6],
            has_quality: false,
            names: Names::default(),
            tunnel: Tunnel { kind: TunnelKind::Other, id: 0, parent: 0 },
            has_tunnel: false,
            exporter,
        }
    }

    /// Applies the value of an element.
    pub(super) fn set(&mut self, meaning: Meaning, value: &[u8]) {
        match meaning {
            Meaning::Unknown => {}
            Meaning::Number { number, rank, side, element } => {
                let read = read_number(value);
                let read = match number {
                    Number::First | Number::Last | Number::Observed => times::absolute(self.clock, element, read),
                    _ => scaled(element, read),
                };
                self.numbers.offer(number, usize::from(side), rank, read);
            }
            Meaning::Address { place, rank } => {
                let (Some(read), known) = (address(value), &mut self.addresses[usize::from(place)]) else { return };
                let is_better =
                    |(best, known): (u8, IpAddr)| known.is_unspecified() || rank <= best && !read.is_unspecified();
                if known.is_none_or(is_better) {
                    *known = Some((rank, read));
                }
            }
            Meaning::Own { place, side } => {
                if let Some(path) = OWN.get(usize::from(place)) {
                    self.set_own(path, value, usize::from(side));
                }
            }
            Meaning::Name(place) => {
                if let Some(field) = names().get(usize::from(place)) {
                    names::set(&mut self.names, field.path, value);
                }
            }
        }
    }

    /// Returns the sampling interval (packets per sampled packet), if the record has it.
    pub(super) fn sampling(&self) -> u64 {
        let numbers =
            [Number::SamplingInterval, Number::SamplingSize, Number::SamplingSpace, Number::SamplingPopulation];
        let [interval, size, space, population] = numbers.map(|number| self.numbers.of(number));
        let whole = if population > 0 { population } else { size.saturating_add(space) };
        interval.max(whole.checked_div(size).unwrap_or(0))
    }

    /// Returns the start time of the exporter in ms since 1970, if present.
    pub(super) fn boot(&self) -> Option<u64> {
        some(self.numbers.of(Number::Boot)).or(self.clock.boot)
    }

    fn tcp(&mut self) -> &mut Tcp {
        let none = || Tcp {
            state: ConnState::Oth,
            history: History::default(),
            syn_to_syn_ack: None,
            syn_ack_to_ack: None,
            sides: [TcpSide::default(); 2],
        };
        self.flow.tcp.get_or_insert_with(none)
    }

    fn set_own(&mut self, path: &str, value: &[u8], side: usize) {
        let number = read_number(value);
        let of = &mut self.flow.sides[side];
        match path {
            "direction" => {
                let known = Direction::ALL.into_iter().find(|known| is(known.name(), value));
                self.flow.direction = known.unwrap_or(Direction::FirstPacket);
            }
            "quality" => (self.flow.quality, self.has_quality) = (Quality(number as u16), true),
            "extension_headers" => self.flow.extensions = number as u8,
            "tunnel.kind" => {
                if let Some(kind) = TunnelKind::ALL.into_iter().find(|kind| is(kind.name(), value)) {
                    (self.tunnel.kind, self.has_tunnel) = (kind, true);
                }
            }
            "tunnel.parent" => self.tunnel.parent = number,
            "*.payload_bytes" => self.numbers.offer(Number::PayloadBytes, side, 0, number),
            "*.dscp_changed" => of.dscp_changed = number == 1,
            "*.ect" => of.ect = number == 1,
            "*.ce" => of.ce = number == 1,
            "*.teid" => self.flow.teids[side] = some(number as u32),
            path => match path.trim_start_matches("*.").strip_prefix("tcp.") {
                Some(name) => self.set_tcp(name, number, value, side),
                None => names::set(&mut self.names, path, value),
            },
        }
    }

    fn set_tcp(&mut self, name: &str, number: u64, value: &[u8], side: usize) {
        let tcp = self.tcp();
        let of = &mut tcp.sides[side];
        let real = f64::from_bits(number);
        let real = if real.is_finite() { real } else { 0.0 };
        match name {
            "state" => {
                tcp.state = ConnState::ALL.into_iter().find(|state| is(state.name(), value)).unwrap_or(tcp.state)
            }
            "history" => {
                let letters = value.iter().filter(|byte| byte.is_ascii_alphabetic() || **byte == b'^');
                tcp.history = History(letters.map(|byte| char::from(*byte)).collect());
            }
            "syn_to_syn_ack_ns" => tcp.syn_to_syn_ack = some(number),
            "syn_ack_to_ack_ns" => tcp.syn_ack_to_ack = some(number),
            "mss" => of.mss = some(number as u16),
            "window_scale" => of.window_scale = some(number as u8),
            "sack_permitted" => of.sack_permitted = number == 1,
            "timestamps" => of.timestamps = number == 1,
            "window_min" => of.window[0] = number as u32,
            "window_max" => of.window[1] = number as u32,
            "zero_windows" => of.zero_windows = number,
            "rtt.count" => of.rtt.count = number,
            "rtt.min_ns" => of.rtt.min = number,
            "rtt.max_ns" => of.rtt.max = number,
            "rtt.mean_ns" => of.rtt.mean = real,
            "rtt.deviation_ns" => of.rtt.deviation = real,
            "retransmitted.timeout" => of.retransmitted.timeout = number,
            "retransmitted.fast" => of.retransmitted.fast = number,
            "retransmitted.spurious" => of.retransmitted.spurious = number,
            "retransmitted.unseen" => of.retransmitted.unseen = number,
            "retransmitted_bytes" => of.retransmitted_bytes = number,
            "out_of_order" => of.out_of_order = number,
            "copies" => of.copies = number,
            "duplicate_acks" => of.duplicate_acks = number,
            "keep_alives" => of.keep_alives = number,
            "window_probes" => of.window_probes = number,
            "gaps" => of.gaps = number,
            "gap_bytes" => of.gap_bytes = number,
            _ => {}
        }
    }

    /// Returns the flow; `None` without addresses.
    pub(super) fn flow(mut self) -> Option<Flow> {
        self.set_ends()?;
        self.set_headers();
        self.set_sides();
        let is_reversed = self.numbers.of(Number::BiflowDirection) == 2;
        self.set_icmp(is_reversed);
        self.flow.names =
            Some(std::mem::take(&mut self.names)).filter(|names| *names != Names::default()).map(Arc::new);
        self.flow.exporter = Some(Arc::new(self.exporter));
        self.flow.tunnel = self.has_tunnel.then_some(self.tunnel);
        if is_reversed {
            self.turn();
        }
        if self.flow.id == 0 && self.flow.flows == 1 {
            self.flow.id = id(&self.flow);
        }
        if !self.has_quality && self.flow.sides.iter().any(|side| !has_traffic(side)) {
            self.flow.quality = Quality::ONE_WAY;
        }
        if !self.numbers.has(Number::PayloadBytes) {
            self.flow.quality.0 |= Quality::PAYLOAD_UNKNOWN.0;
        }
        Some(self.flow)
    }

    fn set_headers(&mut self) {
        let (flow, numbers) = (&mut self.flow, &self.numbers);
        flow.vlans = [(Number::Vlan, Number::PostVlan), (Number::InnerVlan, Number::PostInnerVlan)]
            .map(|(number, post)| numbers.or_post(number, post, 0) as u16);
        let macs = [Number::SourceMac, Number::DestinationMac].map(|number| numbers.of(number));
        let mac = |mac: u64| mac.to_be_bytes().last_chunk().map_or(MacAddr([0; 6]), |bytes| MacAddr(*bytes));
        flow.macs = macs.iter().any(|mac| *mac != 0).then(|| macs.map(mac));
        flow.flows = numbers.of(Number::Flows).max(1);
        flow.id = numbers.of(Number::Id);
        let (reason, event) = (numbers.of(Number::EndReason), numbers.of(Number::FirewallEvent));
        flow.end = match (EndReason::ALL.into_iter().find(|end| *end as u64 == reason), event) {
            (Some(end), _) => end,
            // Created, updated; deleted, denied.
            (None, 1 | 5) => EndReason::Active,
            (None, 2 | 3) => EndReason::End,
            (None, _) => match numbers.of(Number::NatEvent) {
                1 | 4 | 6 => EndReason::Active,
                2 | 5 | 7 => EndReason::End,
                _ => flow.end,
            },
        };
        self.tunnel.id = numbers.of(Number::Segment) as u32;
        self.exporter.interfaces = [Number::Ingress, Number::Egress].map(|number| numbers.of(number) as u32);
        if numbers.has(Number::Domain) {
            self.exporter.domain = numbers.of(Number::Domain) as u32;
        }
        let mut found = [4, 5].iter().filter_map(|place| self.addresses[*place]).map(|(_, address)| address);
        self.exporter.address = found.rfind(|address| !address.is_unspecified()).or(self.exporter.address);
    }

    /// Sets counters, times and other values of each direction.
    fn set_sides(&mut self) {
        let numbers = &self.numbers;
        for (of, side) in self.flow.sides.iter_mut().zip(0..) {
            let number = |number| numbers.of_side(number, side);
            of.packets = number(Number::Packets);
            of.payload_bytes = number(Number::PayloadBytes);
            // Exporters that count only payload saw at least those bytes.
            of.packet_bytes = some(number(Number::PacketBytes)).unwrap_or(of.payload_bytes);
            of.frame_bytes = some(number(Number::FrameBytes)).unwrap_or(of.packet_bytes);
            of.tcp_flags = number(Number::TcpFlags) as u8;
            of.tos = numbers.or_post(Number::Tos, Number::PostTos, side) as u8;
            of.ttl =
                [Number::TtlMin, Number::TtlMax].map(|least| some(number(least)).unwrap_or(number(Number::Ttl)) as u8);
            self.flow.mpls[side] =
                [Number::Label0, Number::Label1, Number::Label2, Number::Label3].map(|label| number(label) as u32);
        }
        let times = [0, 1].map(|side| {
            let clock = Clock { boot: self.boot(), ..self.clock };
            let up = [Number::UpFirst, Number::UpLast].map(|up| (numbers.has(up), numbers.of_side(up, side) as u32));
            let absolute = [Number::First, Number::Last].map(|number| numbers.of_side(number, side));
            times::of_direction(clock, absolute, up)
        });
        let duration = numbers.of(Number::Duration).saturating_mul(1_000);
        let otherwise = [numbers.of(Number::Observed), u64::from(self.clock.seconds) * 1_000_000_000];
        let times = times::whole(times, self.flow.sides.each_ref().map(has_traffic), duration, otherwise);
        for (of, [first, last]) in self.flow.sides.iter_mut().zip(times) {
            (of.first, of.last) = (Nanos(first), Nanos(last));
        }
        for side in 0..2 {
            if let isn @ 1.. = self.numbers.of_side(Number::Isn, side) {
                self.tcp().sides[side].isn = some(isn as u32);
            }
        }
    }

    /// Swaps the directions, if the source is the responder.
    fn turn(&mut self) {
        self.flow.ends.swap(0, 1);
        self.flow.sides.swap(0, 1);
        self.flow.mpls.swap(0, 1);
        self.flow.teids.swap(0, 1);
        if let Some(macs) = &mut self.flow.macs {
            macs.swap(0, 1);
        }
        if let Some(tcp) = &mut self.flow.tcp {
            tcp.sides.swap(0, 1);
        }
    }
}

/// Reads an unsigned number of any size (RFC 7011, 6.2); longer values are truncated to the lower 64 bits.
fn read_number(value: &[u8]) -> u64 {
    value.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn address(value: &[u8]) -> Option<IpAddr> {
    let narrow = <[u8; 4]>::try_from(value).map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
    narrow.or_else(|_| <[u8; 16]>::try_from(value).map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes)))).ok()
}

fn is(name: &str, value: &[u8]) -> bool {
    name.as_bytes() == value
}

/// Returns `None` for 0, which stands for absent.
fn some<T: Default + PartialEq>(number: T) -> Option<T> {
    Some(number).filter(|number| *number != T::default())
}

fn has_traffic(side: &Side) -> bool {
    side.packets > 0 || side.frame_bytes > 0
}

/// Derives an id from the key if the exporter sends none.
fn id(flow: &Flow) -> u64 {
    let mut ends = flow.ends;
    ends.sort_by_key(|end| (end.address, end.port));
    let hash = ends.iter().fold(draw(flow.protocol.into(), flow.vlans[0].into()), |hash, end| {
        let bits = match end.address {
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => address.to_bits(),
        };
        draw(draw(draw(hash, (bits >> 64) as u64), bits as u64), end.port.into())
    });
    hash.max(1)
}
