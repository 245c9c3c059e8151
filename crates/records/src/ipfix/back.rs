//! A record back to a flow, element by element.

use super::collect::{Clock, NO_TIME, Spec};
use super::column::{SINCE_1900, icmp_request};
use super::own::{OWN, RESPONDER};
use super::said;
use crate::back::nothing;
use crate::fields::REVERSE;
use linerate_burst::Nanos;
use linerate_burst::random::draw;
use linerate_meter::{
    ConnState, Direction, EndReason, ExportedBy, Flow, History, Names, Quality, Tcp, TcpSide, Tunnel, TunnelKind,
};
use linerate_wire::{MacAddr, registry};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// A record of which not all is known yet.
pub(super) struct Record {
    clock: Clock,
    enterprise: u32,
    flow: Flow,
    /// Whether there were addresses of the source, and of the destination.
    addresses: [bool; 2],
    /// Whether a field of the quality was there.
    has_quality: bool,
    /// The source is the responder.
    is_reversed: bool,
    /// What it said of itself.
    names: Names,
    /// Type and code.
    icmp: Option<[u8; 2]>,
    totals: [[u64; 2]; 2],
    tunnel: Tunnel,
    has_tunnel: bool,
    macs: [MacAddr; 2],
    /// Interval, and the space behind it.
    sampling: [u64; 2],
    duration: Option<u64>,
    /// First and last of each direction, in ms since the exporter began.
    since_boot: [[Option<u32>; 2]; 2],
    has_protocol: bool,
    exporter: ExportedBy,
}

impl Record {
    pub fn new(clock: Clock, enterprise: u32, exporter: ExportedBy) -> Self {
        let none = MacAddr([0; 6]);
        Record {
            clock,
            enterprise,
            flow: nothing(),
            addresses: [false; 2],
            has_quality: false,
            is_reversed: false,
            names: Names::default(),
            icmp: None,
            totals: [[0; 2]; 2],
            tunnel: Tunnel { kind: TunnelKind::Other, id: 0, parent: 0 },
            has_tunnel: false,
            macs: [none; 2],
            sampling: [0; 2],
            duration: None,
            since_boot: [[None; 2]; 2],
            has_protocol: false,
            exporter,
        }
    }

    /// Takes a value; elements that say nothing of a flow are passed over.
    pub fn set(&mut self, Spec { enterprise, element, .. }: Spec, value: &[u8]) {
        match enterprise {
            0 if (457..=468).contains(&element) => self.set_name(enterprise, element, value),
            0 => self.set_iana(element, value, 0),
            REVERSE => self.set_iana(element, value, 1),
            own if own == self.enterprise => {
                let side = usize::from(element & RESPONDER != 0);
                let place = usize::from(element & !RESPONDER);
                if let Some(path) = place.checked_sub(1).and_then(|place| OWN.get(place)) {
                    self.set_own(path, value, side);
                }
            }
            _ => self.set_name(enterprise, element, value),
        }
    }

    fn set_name(&mut self, enterprise: u32, element: u16, value: &[u8]) {
        if let Some(path) = said::field_of(enterprise, element) {
            said::set(&mut self.names, path, value);
        }
    }

    /// How many packets there are to one that was looked at, where the record says so.
    pub fn sampling(&self) -> u64 {
        match self.sampling {
            [0, _] => 0,
            [interval, space] => (interval.saturating_add(space)) / interval.max(1),
        }
    }

    /// When its exporter began, in ms since 1970, where that is known.
    pub fn boot(&self) -> Option<u64> {
        self.clock.boot
    }

    fn set_iana(&mut self, element: u16, value: &[u8], side: usize) {
        let number = number(value);
        let clock = self.clock;
        let of = &mut self.flow.sides[side];
        match element {
            1 => of.packet_bytes = number,
            2 => of.packets = number,
            85 | 86 => self.totals[side][usize::from(element == 86)] = number,
            352 => of.frame_bytes = number,
            231 => self.flow.sides[0].payload_bytes = number,
            232 => self.flow.sides[1].payload_bytes = number,
            5 => of.tos = number as u8,
            195 if of.tos == 0 => of.tos = (number as u8) << 2,
            6 => of.tcp_flags = number as u8,
            52 => of.ttl[0] = number as u8,
            53 => of.ttl[1] = number as u8,
            21 | 22 => self.since_boot[side][usize::from(element == 21)] = Some(number as u32),
            150..=159 => {
                let time = time(clock, element, number);
                // Nanoseconds say more than what stands in front of them.
                let is_last = element % 2 == 1;
                let place = if is_last { &mut of.last } else { &mut of.first };
                *place = time;
            }
            70..=73 => self.flow.mpls[side][usize::from(element - 70)] = (number as u32 >> 4) & 0xf_ffff,
            184 => self.tcp().sides[side].isn = some(number as u32),
            32 | 139 if side == 0 => {
                self.icmp = value.first_chunk().copied();
                // Some exporters leave the protocol out, as this says it.
                let protocol = if element == 32 { registry::ICMP } else { registry::ICMPV6 };
                self.flow.protocol = if self.has_protocol { self.flow.protocol } else { protocol };
            }
            _ if side == 0 => self.set_flow(element, number, value),
            _ => {}
        }
    }

    /// Elements of the flow, or of one end.
    fn set_flow(&mut self, element: u16, number: u64, value: &[u8]) {
        let flow = &mut self.flow;
        match element {
            3 => flow.flows = number,
            4 => (flow.protocol, self.has_protocol) = (number as u8, true),
            7 | 11 => flow.ends[usize::from(element == 11)].port = number as u16,
            8 | 12 | 27 | 28 => {
                let end = usize::from(element == 12 || element == 28);
                if let Some(address) = address(value) {
                    flow.ends[end].address = address;
                    self.addresses[end] = true;
                }
            }
            58 | 243 if flow.vlans[0] == 0 => flow.vlans[0] = number as u16,
            245 => flow.vlans[1] = number as u16,
            56 | 80 => {
                if let Some(mac) = value.first_chunk() {
                    self.macs[usize::from(element == 80)] = MacAddr(*mac);
                }
            }
            160 => self.clock.boot = Some(number),
            10 | 14 => self.exporter.interfaces[usize::from(element == 14)] = number as u32,
            130 | 131 if value.iter().any(|byte| *byte != 0) => {
                self.exporter.address = address(value).or(self.exporter.address)
            }
            149 => self.exporter.domain = number as u32,
            136 => flow.end = EndReason::ALL.into_iter().find(|end| *end as u64 == number).unwrap_or(flow.end),
            148 => flow.id = number,
            161 => self.duration = Some(number),
            239 => self.is_reversed = number == 2,
            351 => self.tunnel.id = number as u32,
            34 | 305 => self.sampling[0] = if element == 34 { 1 } else { number },
            306 => self.sampling[1] = number,
            _ => {}
        }
        if element == 34 {
            self.sampling[1] = number.saturating_sub(1);
        }
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
        let number = number(value);
        let of = &mut self.flow.sides[side];
        match path {
            "direction" => {
                use Direction::{FirstPacket, IcmpType, Syn, SynAck};
                let known = [FirstPacket, Syn, SynAck, IcmpType].into_iter().find(|known| is(known.name(), value));
                self.flow.direction = known.unwrap_or(FirstPacket);
            }
            "quality" => (self.flow.quality, self.has_quality) = (Quality(number as u16), true),
            "extension_headers" => self.flow.extensions = number as u8,
            "tunnel.kind" => {
                use TunnelKind::{Geneve, Gre, GtpU, Ip, Other, Teredo, Vxlan};
                let kinds = [Ip, Gre, Vxlan, Geneve, GtpU, Teredo, Other];
                if let Some(kind) = kinds.into_iter().find(|kind| is(kind.name(), value)) {
                    (self.tunnel.kind, self.has_tunnel) = (kind, true);
                }
            }
            "tunnel.parent" => self.tunnel.parent = number,
            "*.payload_bytes" => of.payload_bytes = number,
            "*.dscp_changed" => of.dscp_changed = number == 1,
            "*.ect" => of.ect = number == 1,
            "*.ce" => of.ce = number == 1,
            "*.teid" => self.flow.teids[side] = some(number as u32),
            path => match path.trim_start_matches("*.").strip_prefix("tcp.") {
                Some(name) => self.set_tcp(name, number, value, side),
                None => said::set(&mut self.names, path, value),
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

    /// The flow; `None` where it has no addresses.
    pub fn flow(mut self) -> Option<Flow> {
        if self.addresses != [true; 2] {
            return None;
        }
        let exported = Nanos(u64::from(self.clock.seconds) * 1_000_000_000);
        for (side, [first, last]) in self.flow.sides.iter_mut().zip(self.since_boot) {
            side.first = since_boot(self.clock, side.first, first);
            side.last = since_boot(self.clock, side.last, last);
        }
        for (side, totals) in self.flow.sides.iter_mut().zip(self.totals) {
            side.packet_bytes = if side.packet_bytes == 0 { totals[0] } else { side.packet_bytes };
            side.packets = if side.packets == 0 { totals[1] } else { side.packets };
            side.frame_bytes = if side.frame_bytes == 0 { side.packet_bytes } else { side.frame_bytes };
            if side.packets == 0 {
                (side.first, side.last) = (NO_TIME, NO_TIME);
                continue;
            }
            if side.first == NO_TIME && side.last == NO_TIME {
                (side.first, side.last) = (exported, exported);
            } else if side.first == NO_TIME {
                side.first = Nanos(side.last.0.saturating_sub(self.duration.unwrap_or(0).saturating_mul(1_000_000)));
            } else if side.last == NO_TIME {
                side.last = Nanos(side.first.0.saturating_add(self.duration.unwrap_or(0).saturating_mul(1_000_000)));
            }
            side.last = side.last.max(side.first);
        }
        self.flow.names =
            Some(std::mem::take(&mut self.names)).filter(|names| *names != Names::default()).map(Arc::new);
        self.flow.exporter = Some(Arc::new(self.exporter));
        self.flow.tunnel = self.has_tunnel.then_some(self.tunnel);
        self.flow.macs = Some(self.macs).filter(|macs| macs.iter().any(|mac| mac.0 != [0; 6]));
        self.set_icmp();
        self.turn();
        if self.flow.id == 0 && self.flow.flows == 1 {
            self.flow.id = id(&self.flow);
        }
        if !self.has_quality && self.flow.sides.iter().any(|side| side.packets == 0) {
            self.flow.quality = Quality::ONE_WAY;
        }
        Some(self.flow)
    }

    /// The originator's port is the type of what it sends, the responder's the code.
    fn set_icmp(&mut self) {
        let Some([kind, code]) = self.icmp else { return };
        let protocol = self.flow.protocol;
        if matches!(protocol, registry::ICMP | registry::ICMPV6) {
            let kind = if self.is_reversed { icmp_request(protocol, kind) } else { kind };
            let ports: [u16; 2] = [kind.into(), code.into()];
            // They are turned with the ends.
            let ports = if self.is_reversed { [ports[1], ports[0]] } else { ports };
            self.flow.ends.iter_mut().zip(ports).for_each(|(end, port)| end.port = port);
        }
    }

    /// Where the source is the responder.
    fn turn(&mut self) {
        if !self.is_reversed {
            return;
        }
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

/// An unsigned number of any size (RFC 7011, 6.2), of longer values the lower bits.
fn number(value: &[u8]) -> u64 {
    value.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn address(value: &[u8]) -> Option<IpAddr> {
    let narrow = <[u8; 4]>::try_from(value).map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
    narrow.or_else(|_| <[u8; 16]>::try_from(value).map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes)))).ok()
}

fn is(name: &str, value: &[u8]) -> bool {
    name.as_bytes() == value
}

/// 0 stands for what is absent.
fn some<T: Default + PartialEq>(number: T) -> Option<T> {
    Some(number).filter(|number| *number != T::default())
}

/// Milliseconds since the exporter began, which go round after 49 days: that nearest to the export. A time of itself says more.
fn since_boot(clock: Clock, time: Nanos, millis: Option<u32>) -> Nanos {
    let Some(number) = millis.filter(|_| time == NO_TIME) else { return time };
    let exported = i64::from(clock.seconds) * 1000;
    let ago = match (clock.uptime, clock.boot) {
        (Some(uptime), _) => uptime.wrapping_sub(number),
        (None, Some(boot)) => (exported.wrapping_sub(boot as i64) as u32).wrapping_sub(number),
        (None, None) => return NO_TIME,
    };
    let millis = exported.saturating_sub((ago as i32).into());
    Nanos(u64::try_from(millis).unwrap_or(0).saturating_mul(1_000_000))
}

/// Elements 150 to 159: seconds, milliseconds, micro- and nanoseconds as NTP has them, microseconds before the export.
fn time(clock: Clock, element: u16, number: u64) -> Nanos {
    match element {
        150 | 151 => Nanos(number.saturating_mul(1_000_000_000)),
        152 | 153 => Nanos(number.saturating_mul(1_000_000)),
        154..=157 => {
            let seconds = (number >> 32).saturating_sub(SINCE_1900);
            Nanos(seconds * 1_000_000_000 + (((number & 0xffff_ffff) * 1_000_000_000) >> 32))
        }
        _ => Nanos((u64::from(clock.seconds) * 1_000_000_000).saturating_sub(number.saturating_mul(1_000))),
    }
}

/// Made of the key where no exporter gives one.
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
