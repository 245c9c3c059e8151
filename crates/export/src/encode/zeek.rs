//! JSON lines with the names of Zeek's conn.log; docs/flows.md lists differences in meaning.

use super::json::{Document, Source};
use super::lines::Lines;
use super::{Encoder, Settings};
use crate::fields::{Absence, Getter, Zeek, fields};
use linerate_headers::registry;
use linerate_meter::{ConnState, Direction, EndReason, Flow, Protocol, Quality, icmp_pair};
use std::borrow::Cow;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::LazyLock;

/// Zeek field.
enum Conn {
    /// Field of ours with this Zeek name and the same value.
    Same(&'static str),
    /// Value derived for Zeek.
    Own(&'static str, Source),
}

/// Document in Zeek's order, without unknown values.
static RECORD: LazyLock<Document> = LazyLock::new(|| {
    let mut record = Document::new("{");
    columns().into_iter().for_each(|(name, source)| record.add_flat(name, source));
    record
});

/// Returns all names in their order, with the sources of their values.
pub(super) fn columns() -> Vec<(&'static str, Source)> {
    let column = |conn| match conn {
        Conn::Own(name, source) => Some((name, source)),
        Conn::Same(name) => same().find(|(known, _)| *known == name),
    };
    conn().into_iter().filter_map(column).collect()
}

pub(super) fn start(out: Box<dyn Write + Send>, _: &Settings) -> io::Result<Box<dyn Encoder>> {
    Lines::start(out, "", |flow, text| RECORD.write(flow, text))
}

/// Returns Zeek names for fields of ours.
fn same() -> impl Iterator<Item = (&'static str, Source)> {
    fields().flat_map(|field| {
        let names = if let Zeek::Same(names) = field.zeek { names } else { &[] };
        names.iter().enumerate().map(|(side, name)| (*name, Source::of(field, side)))
    })
}

/// Returns all names in their order.
fn conn() -> [Conn; 25] {
    use Conn::{Own, Same};
    let own = |name, get| Own(name, Source::Value { get, side: 0, absence: Absence::LeftOut });
    let of = |name, get, side| Own(name, Source::Value { get, side, absence: Absence::LeftOut });
    [
        own("ts", Getter::F64(|flow, _| Some(seconds(flow.first().0)))),
        own("uid", Getter::Text(|flow, _| Some(Cow::Owned(uid(number(flow)))))),
        Same("id.orig_h"),
        own("id.orig_p", Getter::U16(|flow, _| Some(flow.ends[0].port))),
        Same("id.resp_h"),
        own("id.resp_p", Getter::U16(|flow, _| Some(resp_port(flow)))),
        own("proto", Getter::Name(|flow, _| Some(proto(flow.protocol)))),
        own("service", Getter::Name(|flow, _| service(flow))),
        own("duration", Getter::F64(|flow, _| duration(flow))),
        of("orig_bytes", Getter::U64(sequence_bytes), 0),
        of("resp_bytes", Getter::U64(sequence_bytes), 1),
        own("conn_state", Getter::Name(|flow, _| conn_state(flow))),
        own("missed_bytes", Getter::U64(|flow, _| missed_bytes(flow))),
        own("history", Getter::Text(|flow, _| history(flow))),
        Same("orig_pkts"),
        Same("orig_ip_bytes"),
        Same("resp_pkts"),
        Same("resp_ip_bytes"),
        Own("tunnel_parents", Source::Text(tunnel_parents)),
        Same("ip_proto"),
        Same("community_id"),
        Same("orig_l2_addr"),
        Same("resp_l2_addr"),
        Same("vlan"),
        Same("inner_vlan"),
    ]
}

fn duration(flow: &Flow) -> Option<f64> {
    Some(seconds(flow.last().0.saturating_sub(flow.first().0))).filter(|span| *span > 0.0)
}

/// Maps to Zeek's service names: an older one for TLS, and both for QUIC.
fn service(flow: &Flow) -> Option<&'static str> {
    Some(match flow.names.as_ref()?.protocol()? {
        Protocol::Tls => "ssl",
        Protocol::Quic => "quic,ssl",
        other => other.name(),
    })
}

/// Returns the port of the responder; for ICMP the type of the reply, or the code of a message that has none.
fn resp_port(flow: &Flow) -> u16 {
    let [orig, resp] = flow.ends.map(|end| end.port);
    let pair = match flow.protocol {
        registry::ICMP | registry::ICMPV6 => icmp_pair(flow.protocol, orig as u8),
        _ => None,
    };
    pair.map_or(resp, |[request, reply]| u16::from(if orig == u16::from(request) { reply } else { request }))
}

/// Returns Zeek's history: `^` for an originator found by the SYN with ACK, and for UDP a letter per direction.
fn history(flow: &Flow) -> Option<Cow<'_, str>> {
    if flow.protocol != registry::UDP {
        let letters = &flow.tcp.as_ref()?.history.0;
        let is_flipped = flow.direction == Direction::SynAck;
        return Some(if is_flipped { Cow::Owned(format!("^{letters}")) } else { Cow::Borrowed(letters) });
    }
    Some(Cow::Borrowed(match flow.sides.map(|side| side.has_time().then_some(side.first)) {
        [Some(orig), Some(resp)] if resp < orig => "dD",
        [Some(_), Some(_)] => "Dd",
        [Some(_), None] => "D",
        [None, Some(_)] => "d",
        [None, None] => return None,
    }))
}

fn missed_bytes(flow: &Flow) -> Option<u64> {
    if flow.protocol != registry::TCP {
        return Some(0);
    }
    let [orig, resp] = &flow.tcp.as_ref()?.sides;
    Some(orig.gap_bytes.saturating_add(resp.gap_bytes))
}

fn tunnel_parents(flow: &Flow, text: &mut Vec<u8>) -> bool {
    flow.tunnel.is_some_and(|tunnel| write!(text, "[\"{}\"]", uid(tunnel.parent)).is_ok())
}

/// Converts to seconds, rounded to microseconds as in Zeek.
fn seconds(nanos: u64) -> f64 {
    (nanos / 1_000) as f64 / 1e6
}

/// Returns the input of the uid: the flow id if other flows may refer to it, else a hash unique to the record.
fn number(flow: &Flow) -> u64 {
    // Floods have no id: each of their records covers other flows.
    let is_flood = flow.id == 0;
    let is_piece = flow.end == EndReason::Active || flow.quality.contains(Quality::CONTINUED);
    if !is_flood && (is_piece || may_be_parent(flow)) {
        return flow.id;
    }
    let [first, last] = [flow.first().0, flow.last().0];
    let mut number = [flow.id, first, last, flow.packets(), flow.frame_bytes(), flow.flows].into_iter().fold(0, mix);
    if is_flood {
        for end in flow.ends {
            let address = match end.address {
                IpAddr::V4(address) => address.to_ipv6_mapped(),
                IpAddr::V6(address) => address,
            };
            let bits = address.to_bits();
            number = [(bits >> 64) as u64, bits as u64, end.port.into()].into_iter().fold(number, mix);
        }
        number = mix(number, flow.protocol.into());
    }
    number
}

/// Returns whether flows in a tunnel may refer to this one by its id.
fn may_be_parent(flow: &Flow) -> bool {
    match flow.protocol {
        registry::TCP | registry::ICMP | registry::ICMPV6 => false,
        registry::UDP => registry::may_be_tunnel(flow.ends[0].port, flow.ends[1].port),
        _ => true,
    }
}

/// Mixes a number into a hash.
fn mix(hash: u64, number: u64) -> u64 {
    linerate_burst::random::draw(hash ^ number, 0)
}

/// Formats a uid, which starts with C as in Zeek.
fn uid(number: u64) -> String {
    format!("C{number:016x}")
}

fn proto(number: u8) -> &'static str {
    match number {
        registry::TCP => "tcp",
        registry::UDP => "udp",
        registry::ICMP | registry::ICMPV6 => "icmp",
        _ => "unknown_transport",
    }
}

/// Returns payload bytes by sequence numbers: retransmissions count once, and gaps are included.
fn sequence_bytes(flow: &Flow, side: usize) -> Option<u64> {
    if flow.quality.contains(Quality::PAYLOAD_UNKNOWN) {
        return None;
    }
    let sent_again = flow.tcp.as_ref().map_or(0, |tcp| tcp.sides[side].retransmitted_bytes);
    let unseen = flow.tcp.as_ref().map_or(0, |tcp| tcp.sides[side].gap_bytes);
    Some(flow.sides[side].payload_bytes.saturating_sub(sent_again).saturating_add(unseen))
}

/// Returns the state; for UDP Zeek distinguishes by who sent packets.
fn conn_state(flow: &Flow) -> Option<&'static str> {
    if flow.protocol == registry::TCP {
        // If the TCP header was not captured, no level knows the state.
        let is_unseen = flow.quality.contains(Quality::TRUNCATED) && flow.sides.iter().all(|side| side.tcp_flags == 0);
        return flow.tcp.as_ref().map(|tcp| tcp.state).or(is_unseen.then_some(ConnState::Oth)).map(ConnState::name);
    }
    if flow.protocol != registry::UDP {
        return Some("OTH");
    }
    Some(match flow.sides.map(|side| side.has_time()) {
        [true, true] => "SF",
        [true, false] => "S0",
        [false, true] => "SHR",
        [false, false] => "OTH",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn zeek_names_in_the_table_of_fields_are_written() {
        let written: BTreeSet<_> =
            conn().into_iter().filter_map(|conn| if let Conn::Same(name) = conn { Some(name) } else { None }).collect();
        assert_eq!(same().map(|(name, _)| name).collect::<BTreeSet<_>>(), written);
    }
}
