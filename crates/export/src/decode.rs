//! Decoding of a record into a flow, value by value: the reverse of the table of fields.

mod names;

use self::names::of_names;
use linerate_headers::MacAddr;
use linerate_meter::{
    ConnState, Direction, End, EndReason, ExportedBy, Flow, History, PacketStats, Quality, Retransmitted, Rtt, Side,
    Stats, StatsSide, SummaryStatistics, Tcp, TcpSide, Tunnel, TunnelKind,
};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// Value of a field that is present.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// Number; time in ns; 0 or 1 for booleans.
    Number(u64),
    /// Floating-point number.
    Real(f64),
    /// Names, texts, MAC addresses.
    Text(&'a str),
    /// IP address.
    Address(IpAddr),
    /// List of numbers.
    List(&'a [u64]),
    /// Quality bits that are set.
    Quality(Quality),
}

/// Sets a value in a flow, for a direction (0: originator, or the whole flow). Invalid values are ignored.
pub type Setter = fn(&mut Flow, usize, Value<'_>);

/// Returns an empty flow.
pub fn nothing() -> Flow {
    let end = End { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), port: 0 };
    Flow {
        id: 0,
        ends: [end; 2],
        protocol: 0,
        vlans: [0; 2],
        tunnel: None,
        sides: [Side::default(); 2],
        end: EndReason::Idle,
        direction: Direction::FirstPacket,
        quality: Quality::default(),
        extensions: 0,
        flows: 1,
        macs: None,
        mpls: Default::default(),
        teids: [None; 2],
        tcp: None,
        stats: None,
        names: None,
        exporter: None,
    }
}

impl Value<'_> {
    fn number(self) -> u64 {
        match self {
            Value::Number(number) => number,
            _ => 0,
        }
    }

    /// Saturates at the maximum of `T`.
    fn small<T: TryFrom<u64> + Default>(self) -> T {
        T::try_from(self.number()).unwrap_or_default()
    }

    fn real(self) -> f64 {
        match self {
            Value::Real(real) => real,
            _ => 0.0,
        }
    }

    fn is(self) -> bool {
        self.number() != 0
    }

    fn text(&self) -> &str {
        match self {
            Value::Text(text) => text,
            _ => "",
        }
    }

    fn list(&self) -> &[u64] {
        match self {
            Value::List(list) => list,
            _ => &[],
        }
    }
}

/// Fields that are derived from others and have no setter.
const MADE: [&str; 7] =
    ["community_id", "first_time_ns", "last_time_ns", "duration_ns", "service", "dns.qtype_name", "dns.rcode_name"];

/// Returns the setter of a field, by its [path](crate::Field::path); `None` for derived and unknown fields.
pub fn set(path: &str) -> Option<Setter> {
    if MADE.contains(&path) {
        return None;
    }
    let name = path.trim_start_matches("*.");
    match (name.strip_prefix("tcp."), name.strip_prefix("stats.")) {
        (Some(name), _) => of_tcp(name),
        (_, Some(name)) => of_stats(name),
        _ => of_names(path).or_else(|| of_flow(path)),
    }
}

fn of_flow(path: &str) -> Option<Setter> {
    Some(match path {
        "id" => |flow, _, value| flow.id = value.number(),
        "*_address" => |flow, side, value| {
            if let Value::Address(address) = value {
                flow.ends[side].address = address;
            }
        },
        "*_port" => |flow, side, value| flow.ends[side].port = value.small(),
        "protocol" => |flow, _, value| flow.protocol = value.small(),
        "vlan" => |flow, _, value| flow.vlans[0] = value.small(),
        "inner_vlan" => |flow, _, value| flow.vlans[1] = value.small(),
        "tunnel.kind" => |flow, _, value| {
            let known = TunnelKind::ALL.into_iter().find(|kind| kind.name() == value.text());
            tunnel(flow).kind = known.unwrap_or(TunnelKind::Other);
        },
        "tunnel.id" => |flow, _, value| tunnel(flow).id = value.small(),
        "tunnel.parent" => |flow, _, value| tunnel(flow).parent = value.number(),
        "*.packets" => |flow, side, value| flow.sides[side].packets = value.number(),
        "*.frame_bytes" => |flow, side, value| flow.sides[side].frame_bytes = value.number(),
        "*.packet_bytes" => |flow, side, value| flow.sides[side].packet_bytes = value.number(),
        "*.payload_bytes" => |flow, side, value| flow.sides[side].payload_bytes = value.number(),
        "*.first_time_ns" => |flow, side, value| flow.sides[side].first.0 = value.number(),
        "*.last_time_ns" => |flow, side, value| flow.sides[side].last.0 = value.number(),
        "*.tcp_flags" => |flow, side, value| flow.sides[side].tcp_flags = value.small(),
        "*.ttl_min" => |flow, side, value| flow.sides[side].ttl[0] = value.small(),
        "*.ttl_max" => |flow, side, value| flow.sides[side].ttl[1] = value.small(),
        "*.dscp" => |flow, side, value| flow.sides[side].tos = value.small::<u8>() << 2,
        "*.dscp_changed" => |flow, side, value| flow.sides[side].dscp_changed = value.is(),
        "*.ect" => |flow, side, value| flow.sides[side].ect = value.is(),
        "*.ce" => |flow, side, value| flow.sides[side].ce = value.is(),
        "*.mac" => |flow, side, value| {
            let macs = flow.macs.get_or_insert([MacAddr([0; 6]); 2]);
            macs[side] = value.text().parse().unwrap_or(macs[side]);
        },
        "*.mpls_labels" => |flow, side, value| {
            let labels = value.list().iter().map(|label| u32::try_from(*label).unwrap_or_default());
            flow.mpls[side].iter_mut().zip(labels).for_each(|(to, from)| *to = from);
        },
        "exporter.address" => |flow, _, value| {
            if let Value::Address(address) = value {
                exporter(flow).address = Some(address);
            }
        },
        "exporter.domain" => |flow, _, value| exporter(flow).domain = value.small(),
        "exporter.ingress" => |flow, _, value| exporter(flow).interfaces[0] = value.small(),
        "exporter.egress" => |flow, _, value| exporter(flow).interfaces[1] = value.small(),
        "*.teid" => |flow, side, value| flow.teids[side] = Some(value.small()),
        "end_reason" => |flow, _, value| {
            flow.end = EndReason::ALL.into_iter().find(|end| end.name() == value.text()).unwrap_or(flow.end);
        },
        "direction" => |flow, _, value| {
            let known = Direction::ALL.into_iter().find(|one| one.name() == value.text());
            flow.direction = known.unwrap_or(flow.direction);
        },
        "quality" => |flow, _, value| {
            if let Value::Quality(quality) = value {
                flow.quality.0 |= quality.0;
            }
        },
        "extension_headers" => |flow, _, value| flow.extensions = value.small(),
        "flows" => |flow, _, value| flow.flows = value.number(),
        _ => return None,
    })
}

fn exporter(flow: &mut Flow) -> &mut ExportedBy {
    Arc::make_mut(flow.exporter.get_or_insert_default())
}

fn tunnel(flow: &mut Flow) -> &mut Tunnel {
    flow.tunnel.get_or_insert(Tunnel { kind: TunnelKind::Other, id: 0, parent: 0 })
}

fn tcp(flow: &mut Flow) -> &mut Tcp {
    flow.tcp.get_or_insert_with(|| Tcp {
        state: ConnState::Oth,
        history: History::default(),
        syn_to_syn_ack: None,
        syn_ack_to_ack: None,
        sides: [TcpSide::default(); 2],
    })
}

fn of_tcp(name: &str) -> Option<Setter> {
    fn side(flow: &mut Flow, side: usize) -> &mut TcpSide {
        &mut tcp(flow).sides[side]
    }
    fn rtt(flow: &mut Flow, of: usize) -> &mut Rtt {
        &mut side(flow, of).rtt
    }
    fn again(flow: &mut Flow, of: usize) -> &mut Retransmitted {
        &mut side(flow, of).retransmitted
    }
    Some(match name {
        "state" => |flow, _, value| {
            let state = ConnState::ALL.into_iter().find(|state| state.name() == value.text());
            tcp(flow).state = state.unwrap_or(ConnState::Oth);
        },
        "history" => |flow, _, value| tcp(flow).history = History(value.text().to_owned()),
        "syn_to_syn_ack_ns" => |flow, _, value| tcp(flow).syn_to_syn_ack = Some(value.number()),
        "syn_ack_to_ack_ns" => |flow, _, value| tcp(flow).syn_ack_to_ack = Some(value.number()),
        "isn" => |flow, of, value| side(flow, of).isn = Some(value.small()),
        "mss" => |flow, of, value| side(flow, of).mss = Some(value.small()),
        "window_scale" => |flow, of, value| side(flow, of).window_scale = Some(value.small()),
        "sack_permitted" => |flow, of, value| side(flow, of).sack_permitted = value.is(),
        "timestamps" => |flow, of, value| side(flow, of).timestamps = value.is(),
        "window_min" => |flow, of, value| side(flow, of).window[0] = value.small(),
        "window_max" => |flow, of, value| side(flow, of).window[1] = value.small(),
        "zero_windows" => |flow, of, value| side(flow, of).zero_windows = value.number(),
        "rtt.count" => |flow, of, value| rtt(flow, of).count = value.number(),
        "rtt.min_ns" => |flow, of, value| rtt(flow, of).min = value.number(),
        "rtt.max_ns" => |flow, of, value| rtt(flow, of).max = value.number(),
        "rtt.mean_ns" => |flow, of, value| rtt(flow, of).mean = value.real(),
        "rtt.deviation_ns" => |flow, of, value| rtt(flow, of).deviation = value.real(),
        "retransmitted.timeout" => |flow, of, value| again(flow, of).timeout = value.number(),
        "retransmitted.fast" => |flow, of, value| again(flow, of).fast = value.number(),
        "retransmitted.spurious" => |flow, of, value| again(flow, of).spurious = value.number(),
        "retransmitted.unseen" => |flow, of, value| again(flow, of).unseen = value.number(),
        "retransmitted_bytes" => |flow, of, value| side(flow, of).retransmitted_bytes = value.number(),
        "out_of_order" => |flow, of, value| side(flow, of).out_of_order = value.number(),
        "copies" => |flow, of, value| side(flow, of).copies = value.number(),
        "duplicate_acks" => |flow, of, value| side(flow, of).duplicate_acks = value.number(),
        "keep_alives" => |flow, of, value| side(flow, of).keep_alives = value.number(),
        "window_probes" => |flow, of, value| side(flow, of).window_probes = value.number(),
        "gaps" => |flow, of, value| side(flow, of).gaps = value.number(),
        "gap_bytes" => |flow, of, value| side(flow, of).gap_bytes = value.number(),
        _ => return None,
    })
}

fn stats(flow: &mut Flow) -> &mut Stats {
    let side = StatsSide {
        lengths: SummaryStatistics::default(),
        gaps: SummaryStatistics::default(),
        length_histogram: [0; 8],
        gap_histogram: [0; 8],
        ip_flags: 0,
        first_window: 0,
        tcp_options: 0,
        syn_bytes: 0,
    };
    flow.stats.get_or_insert_with(|| Stats { sides: [side; 2], packets: Vec::new() })
}

fn of_stats(name: &str) -> Option<Setter> {
    fn side(flow: &mut Flow, side: usize) -> &mut StatsSide {
        &mut stats(flow).sides[side]
    }
    fn each(flow: &mut Flow, value: Value<'_>, set: fn(&mut PacketStats, u64)) {
        let (list, packets) = (value.list(), &mut stats(flow).packets);
        let none = PacketStats { time: 0, from_originator: false, payload: 0, tcp_flags: 0 };
        packets.resize(packets.len().max(list.len()), none);
        packets.iter_mut().zip(list).for_each(|(packet, number)| set(packet, *number));
    }
    fn bins(to: &mut [u64; 8], value: Value<'_>) {
        to.iter_mut().zip(value.list()).for_each(|(to, from)| *to = *from);
    }
    Some(match name {
        "packet_times_ns" => |flow, _, value| each(flow, value, |packet, number| packet.time = number),
        "packet_from_orig" => |flow, _, value| each(flow, value, |packet, number| packet.from_originator = number == 1),
        "packet_payload_bytes" => |flow, _, value| each(flow, value, |packet, number| packet.payload = number as u16),
        "packet_tcp_flags" => |flow, _, value| each(flow, value, |packet, number| packet.tcp_flags = number as u8),
        "lengths.min" => |flow, of, value| side(flow, of).lengths.min = value.number(),
        "lengths.max" => |flow, of, value| side(flow, of).lengths.max = value.number(),
        "lengths.mean" => |flow, of, value| side(flow, of).lengths.mean = value.real(),
        "lengths.deviation" => |flow, of, value| side(flow, of).lengths.deviation = value.real(),
        "gaps.min_ns" => |flow, of, value| side(flow, of).gaps.min = value.number(),
        "gaps.max_ns" => |flow, of, value| side(flow, of).gaps.max = value.number(),
        "gaps.mean_ns" => |flow, of, value| side(flow, of).gaps.mean = value.real(),
        "gaps.deviation_ns" => |flow, of, value| side(flow, of).gaps.deviation = value.real(),
        "length_histogram" => |flow, of, value| bins(&mut side(flow, of).length_histogram, value),
        "gap_histogram" => |flow, of, value| bins(&mut side(flow, of).gap_histogram, value),
        "ip_flags" => |flow, of, value| side(flow, of).ip_flags = value.small(),
        "first_window" => |flow, of, value| side(flow, of).first_window = value.small(),
        "tcp_options" => |flow, of, value| side(flow, of).tcp_options = value.number(),
        "syn_bytes" => |flow, of, value| side(flow, of).syn_bytes = value.small(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields;

    #[test]
    fn every_field_has_a_setter_or_is_derived() {
        for field in fields() {
            assert_eq!(
                set(field.path).is_none(),
                MADE.contains(&field.path),
                "{}: add a setter in decode.rs",
                field.path
            );
        }
    }
}
