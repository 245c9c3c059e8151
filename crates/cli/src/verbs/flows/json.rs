//! `linerate/flow/1`, a line a record, and `linerate/flows/1`, the summary.

use super::output::Totals;
use super::workers::{ElephantJson, WorkerJson, elephants, unevenness, workers};
use crate::view::ledger::LedgerJson;
use crate::view::rates::Rates;
use linerate_burst::{Kind, Stage};
use linerate_engine::FlowsReport;
use linerate_meter::{EndReason, Flow, Side};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// One record; `docs/flows.md` says what each field means.
#[derive(Serialize)]
pub(super) struct FlowJson {
    schema: &'static str,
    id: String,
    first_time_ns: u64,
    last_time_ns: u64,
    orig_address: IpAddr,
    orig_port: u16,
    resp_address: IpAddr,
    resp_port: u16,
    protocol: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    vlan: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inner_vlan: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tunnel: Option<TunnelJson>,
    orig: SideJson,
    resp: SideJson,
    end_reason: &'static str,
    direction: &'static str,
    quality: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extension_headers: Option<u8>,
    flows: u64,
}

#[derive(Serialize)]
struct TunnelJson {
    kind: &'static str,
    id: u32,
    parent: String,
}

/// One direction.
#[derive(Serialize)]
struct SideJson {
    packets: u64,
    frame_bytes: u64,
    packet_bytes: u64,
    payload_bytes: u64,
    first_time_ns: Option<u64>,
    last_time_ns: Option<u64>,
    tcp_flags: u8,
    ttl_min: u8,
    ttl_max: u8,
    dscp: u8,
    dscp_changed: bool,
    ect: bool,
    ce: bool,
}

impl FlowJson {
    pub fn new(flow: &Flow) -> Self {
        let [orig, resp] = flow.ends;
        let some = |number: u16| Some(number).filter(|number| *number != 0);
        FlowJson {
            schema: "linerate/flow/1",
            id: id(flow.id),
            first_time_ns: flow.first().0,
            last_time_ns: flow.last().0,
            orig_address: orig.address,
            orig_port: orig.port,
            resp_address: resp.address,
            resp_port: resp.port,
            protocol: flow.protocol,
            vlan: some(flow.vlans[0]),
            inner_vlan: some(flow.vlans[1]),
            tunnel: flow.tunnel.map(|tunnel| TunnelJson {
                kind: tunnel.kind.name(),
                id: tunnel.id,
                parent: id(tunnel.parent),
            }),
            orig: SideJson::new(&flow.sides[0]),
            resp: SideJson::new(&flow.sides[1]),
            end_reason: flow.end.name(),
            direction: flow.direction.name(),
            quality: flow.quality.names().collect(),
            extension_headers: Some(flow.extensions).filter(|bits| *bits != 0),
            flows: flow.flows,
        }
    }
}

/// JSON numbers are exact to 53 bits alone.
fn id(id: u64) -> String {
    format!("{id:016x}")
}

impl SideJson {
    fn new(side: &Side) -> Self {
        let time = |nanos: u64| Some(nanos).filter(|_| side.packets > 0);
        SideJson {
            packets: side.packets,
            frame_bytes: side.frame_bytes,
            packet_bytes: side.packet_bytes,
            payload_bytes: side.payload_bytes,
            first_time_ns: time(side.first.0),
            last_time_ns: time(side.last.0),
            tcp_flags: side.tcp_flags,
            ttl_min: side.ttl[0],
            ttl_max: side.ttl[1],
            dscp: side.tos >> 2,
            dscp_changed: side.dscp_changed,
            ect: side.ect,
            ce: side.ce,
        }
    }
}

/// Everything but the records.
#[derive(Serialize)]
pub(super) struct SummaryJson {
    schema: &'static str,
    ports: Vec<String>,
    filter: String,
    received: u64,
    frames: u64,
    bytes: u64,
    seconds: f64,
    #[serde(flatten)]
    rates: Rates,
    flows: u64,
    inner_flows: u64,
    records: BTreeMap<&'static str, u64>,
    max_flows_at_a_time: u64,
    aggregated_flows: u64,
    not_ip: u64,
    not_ip_bytes: u64,
    malformed: u64,
    malformed_bytes: u64,
    fragments_held: u64,
    fragments_joined: u64,
    fragments_orphaned: u64,
    flow_bytes: usize,
    flow_bytes_ipv6: usize,
    workers: Vec<WorkerJson>,
    worker_imbalance: f64,
    elephants: Vec<ElephantJson>,
    top: Vec<FlowJson>,
    events: Vec<String>,
    failure: Option<String>,
    #[serde(flatten)]
    ledger: LedgerJson,
}

impl SummaryJson {
    pub fn new(ports: Vec<String>, filter: &str, report: &FlowsReport, totals: &Totals) -> Self {
        let counts = &report.counts;
        let seconds = report.elapsed.as_secs_f64();
        let [flow_bytes, flow_bytes_ipv6] = report.bytes_per_flow;
        SummaryJson {
            schema: "linerate/flows/1",
            ports,
            filter: filter.to_owned(),
            received: report.ledger.sum(Stage::Receive, Kind::Received),
            frames: counts.frames,
            bytes: counts.bytes,
            seconds,
            rates: Rates::new(counts.frames, counts.bytes, seconds),
            flows: totals.flows,
            inner_flows: totals.inner_flows,
            records: EndReason::ALL.map(|reason| (reason.name(), counts.ended_by(reason))).into_iter().collect(),
            max_flows_at_a_time: counts.most_flows,
            aggregated_flows: counts.aggregated,
            not_ip: counts.not_ip,
            not_ip_bytes: counts.not_ip_bytes,
            malformed: counts.malformed,
            malformed_bytes: counts.malformed_bytes,
            fragments_held: counts.fragments_held,
            fragments_joined: counts.fragments_joined,
            fragments_orphaned: counts.fragments_orphaned,
            flow_bytes,
            flow_bytes_ipv6,
            workers: workers(report),
            worker_imbalance: unevenness(report),
            elephants: elephants(report, totals),
            top: totals.top.iter().map(FlowJson::new).collect(),
            events: report.events.clone(),
            failure: report.failure.as_ref().map(ToString::to_string),
            ledger: LedgerJson::new(&report.ledger),
        }
    }
}
