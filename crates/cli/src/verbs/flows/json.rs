//! `linerate/flows/1`, the summary.

use super::output::Totals;
use super::workers::{ElephantJson, WorkerJson, elephants, unevenness, workers};
use crate::view::ledger::LedgerJson;
use crate::view::rates::Rates;
use linerate_burst::{Count, Kind, Ledger, Stage};
use linerate_engine::FlowsReport;
use linerate_meter::EndReason;
use linerate_records::encode::json;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Everything but the records.
#[derive(Serialize)]
pub(super) struct SummaryJson<'a> {
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
    unknown_link: u64,
    unknown_link_bytes: u64,
    unknown_link_types: &'a [u16],
    not_ip: u64,
    not_ip_bytes: u64,
    malformed: u64,
    malformed_bytes: u64,
    fragments_held: u64,
    fragments_joined: u64,
    fragments_orphaned: u64,
    fragments_no_room: u64,
    far_frames: u64,
    time_jumps: u64,
    flow_bytes: usize,
    flow_bytes_ipv6: usize,
    most_bytes: usize,
    workers: Vec<WorkerJson>,
    worker_imbalance: f64,
    elephants: Vec<ElephantJson>,
    top: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    records_written: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    records_lost: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    files: Option<u64>,
    events: Vec<String>,
    failure: Option<String>,
    #[serde(flatten)]
    ledger: LedgerJson,
}

impl<'a> SummaryJson<'a> {
    pub fn new(ports: Vec<String>, filter: &str, report: &'a FlowsReport, totals: &'a Totals) -> Self {
        let counts = &report.counts;
        let seconds = report.elapsed.as_secs_f64();
        let [flow_bytes, flow_bytes_ipv6] = report.bytes_per_flow;
        let is_written = report.ledger.accounts().iter().any(|account| account.stage == Stage::Export);
        let written: Option<&Ledger> = is_written.then_some(&report.ledger);
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
            unknown_link: counts.unknown_link,
            unknown_link_bytes: counts.unknown_link_bytes,
            unknown_link_types: &report.unknown_links,
            not_ip: counts.not_ip,
            not_ip_bytes: counts.not_ip_bytes,
            malformed: counts.malformed,
            malformed_bytes: counts.malformed_bytes,
            fragments_held: counts.fragments_held,
            fragments_joined: counts.fragments_joined,
            fragments_orphaned: counts.fragments_orphaned,
            fragments_no_room: counts.fragments_no_room,
            far_frames: report.far_frames,
            time_jumps: report.time_jumps,
            flow_bytes,
            flow_bytes_ipv6,
            most_bytes: report.most_bytes,
            workers: workers(report),
            worker_imbalance: unevenness(report),
            elephants: elephants(report, totals),
            top: totals.top.iter().filter_map(|flow| RawValue::from_string(json::record(flow)).ok()).collect(),
            records_written: written.map(|ledger| ledger.total(Count::Exported)),
            records_lost: written.map(|ledger| ledger.sum(Stage::Export, Kind::Lost)),
            files: written.map(|ledger| ledger.total(Count::ExportFiles)),
            events: report.events.clone(),
            failure: report.failure.as_ref().map(ToString::to_string),
            ledger: LedgerJson::new(&report.ledger),
        }
    }
}
