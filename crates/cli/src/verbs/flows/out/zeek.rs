//! JSON lines under the names of Zeek's conn.log; docs/flows.md tells where the meaning differs.

use super::form::Encode;
use super::jsonl::{Lines, id};
use linerate_meter::{ConnState, EndReason, Flow, Quality};
use linerate_wire::registry;
use serde::Serialize;
use std::io::{self, Write};
use std::net::IpAddr;

pub(super) fn start(out: Box<dyn Write + Send>) -> io::Result<Box<dyn Encode>> {
    Ok(Box::new(Lines { out, text: Vec::new(), put: |flow, text| serde_json::to_writer(text, &ConnJson::new(flow)) }))
}

/// One record. What is not known is left out, as Zeek does.
#[derive(Serialize)]
struct ConnJson<'a> {
    ts: f64,
    uid: String,
    #[serde(rename = "id.orig_h")]
    orig_h: IpAddr,
    #[serde(rename = "id.orig_p")]
    orig_p: u16,
    #[serde(rename = "id.resp_h")]
    resp_h: IpAddr,
    #[serde(rename = "id.resp_p")]
    resp_p: u16,
    proto: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration: Option<f64>,
    orig_bytes: u64,
    resp_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    conn_state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    missed_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    history: Option<&'a str>,
    orig_pkts: u64,
    orig_ip_bytes: u64,
    resp_pkts: u64,
    resp_ip_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tunnel_parents: Option<[String; 1]>,
    ip_proto: u8,
    community_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    orig_l2_addr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resp_l2_addr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inner_vlan: Option<u16>,
}

impl<'a> ConnJson<'a> {
    fn new(flow: &'a Flow) -> Self {
        let [orig, resp] = &flow.sides;
        let span = flow.last().0.saturating_sub(flow.first().0);
        let tag = |number: u16| Some(number).filter(|number| *number != 0);
        ConnJson {
            ts: seconds(flow.first().0),
            uid: uid(number(flow)),
            orig_h: flow.ends[0].address,
            orig_p: flow.ends[0].port,
            resp_h: flow.ends[1].address,
            resp_p: flow.ends[1].port,
            proto: proto(flow.protocol),
            duration: Some(seconds(span)).filter(|span| *span > 0.0),
            orig_bytes: sequence_bytes(flow, 0),
            resp_bytes: sequence_bytes(flow, 1),
            conn_state: conn_state(flow),
            missed_bytes: flow.tcp.as_ref().map(|tcp| tcp.sides[0].gap_bytes.saturating_add(tcp.sides[1].gap_bytes)),
            history: flow.tcp.as_ref().map(|tcp| tcp.history.0.as_str()),
            orig_pkts: orig.packets,
            orig_ip_bytes: orig.packet_bytes,
            resp_pkts: resp.packets,
            resp_ip_bytes: resp.packet_bytes,
            tunnel_parents: flow.tunnel.map(|tunnel| [uid(tunnel.parent)]),
            ip_proto: flow.protocol,
            community_id: flow.community_id(0),
            orig_l2_addr: flow.macs.map(|macs| macs[0].to_string()),
            resp_l2_addr: flow.macs.map(|macs| macs[1].to_string()),
            vlan: tag(flow.vlans[0]),
            inner_vlan: tag(flow.vlans[1]),
        }
    }
}

/// To microseconds, as Zeek writes them.
fn seconds(nanos: u64) -> f64 {
    (nanos / 1_000) as f64 / 1e6
}

/// What the name of a record is made of: the flow's number where others may stand for it, else one of the record alone.
fn number(flow: &Flow) -> u64 {
    // A flood has no number: each of its records is of other flows.
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

/// Whether flows in a tunnel may name this one, which they do by its number.
fn may_be_parent(flow: &Flow) -> bool {
    match flow.protocol {
        registry::TCP | registry::ICMP | registry::ICMPV6 => false,
        registry::UDP => registry::may_be_tunnel(flow.ends[0].port, flow.ends[1].port),
        _ => true,
    }
}

/// Adds a number to a hash: the last step of splitmix64.
fn mix(hash: u64, number: u64) -> u64 {
    let mut hash = (hash ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    hash = (hash ^ hash >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ hash >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ hash >> 31
}

/// Zeek's begin with a C too.
fn uid(number: u64) -> String {
    format!("C{}", id(number))
}

fn proto(number: u8) -> &'static str {
    match number {
        registry::TCP => "tcp",
        registry::UDP => "udp",
        registry::ICMP | registry::ICMPV6 => "icmp",
        _ => "unknown_transport",
    }
}

/// Payload by sequence numbers: once, however often it was sent, and with what was not seen of it.
fn sequence_bytes(flow: &Flow, side: usize) -> u64 {
    let sent_again = flow.tcp.as_ref().map_or(0, |tcp| tcp.sides[side].retransmitted_bytes);
    let unseen = flow.tcp.as_ref().map_or(0, |tcp| tcp.sides[side].gap_bytes);
    flow.sides[side].payload_bytes.saturating_sub(sent_again).saturating_add(unseen)
}

/// Of what has no state Zeek tells who sent packets.
fn conn_state(flow: &Flow) -> Option<&'static str> {
    if flow.protocol == registry::TCP {
        // Of a header that was not seen no level tells anything.
        let is_unseen = flow.quality.contains(Quality::TRUNCATED) && flow.sides.iter().all(|side| side.tcp_flags == 0);
        return flow.tcp.as_ref().map(|tcp| tcp.state).or(is_unseen.then_some(ConnState::Oth)).map(ConnState::name);
    }
    Some(match flow.sides.map(|side| side.packets > 0) {
        [true, true] => "SF",
        [true, false] => "S0",
        [false, true] => "SHR",
        [false, false] => "OTH",
    })
}
