//! JSON lines under the names of Zeek's conn.log; docs/flows.md tells where the meaning differs.

use super::form::Encode;
use super::jsonl::{Lines, id};
use linerate_meter::Flow;
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
            uid: uid(flow.id),
            orig_h: flow.ends[0].address,
            orig_p: flow.ends[0].port,
            resp_h: flow.ends[1].address,
            resp_p: flow.ends[1].port,
            proto: proto(flow.protocol),
            duration: Some(span).filter(|span| *span > 0).map(seconds),
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
        return flow.tcp.as_ref().map(|tcp| tcp.state.name());
    }
    Some(match flow.sides.map(|side| side.packets > 0) {
        [true, true] => "SF",
        [true, false] => "S0",
        [false, true] => "SHR",
        [false, false] => "OTH",
    })
}
