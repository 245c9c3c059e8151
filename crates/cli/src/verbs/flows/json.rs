//! Summary in JSON, `linerate/flows/1`.

use super::super::inputs::Inputs;
use super::output::Totals;
use super::text::lost;
use super::workers::{ElephantJson, WorkerJson, elephants, unevenness, workers};
use crate::view::ledger::RunJson;
use crate::view::rates::Rates;
use linerate_burst::{Count, Kind, Ledger, Stage};
use linerate_engine::{MeteringReport, RunReport};
use linerate_export::encode::json;
use linerate_meter::EndReason;
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Summary of a run of `linerate flows`.
#[derive(Serialize)]
pub(super) struct SummaryJson<'a> {
    schema: &'static str,
    ports: Vec<String>,
    filter: String,
    received: u64,
    #[serde(flatten)]
    flows: FlowsJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<serde_json::Value>,
    #[serde(flatten)]
    run: RunJson,
}

/// Counts and results without the records.
#[derive(Serialize)]
pub(crate) struct FlowsJson<'a> {
    frames: u64,
    bytes: u64,
    seconds: f64,
    /// Source of `seconds`: `reading` for files, which have no rates, else `run`.
    time_base: &'static str,
    #[serde(flatten)]
    rates: Rates,
    flows: u64,
    inner_flows: u64,
    records: BTreeMap<&'static str, u64>,
    peak_flows: u64,
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
    names_full: u64,
    name_buffer_full: u64,
    far_frames: u64,
    time_jumps: u64,
    flow_bytes: usize,
    flow_bytes_ipv6: usize,
    max_bytes: usize,
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
}

impl<'a> SummaryJson<'a> {
    pub(super) fn new(
        inputs: &Inputs,
        metered: &'a MeteringReport,
        totals: &'a Totals,
        run: &RunReport,
        query: Option<serde_json::Value>,
    ) -> Self {
        SummaryJson {
            query,
            schema: "linerate/flows/1",
            ports: inputs.names(),
            filter: inputs.filter.clone(),
            received: run.ledger.sum(Stage::Receive, Kind::Received),
            flows: FlowsJson::new(metered, totals, &run.ledger, inputs.are_files()),
            run: RunJson::new(run),
        }
    }
}

impl<'a> FlowsJson<'a> {
    /// Converts the counts of metering (from files if `is_read`) and of the records by the ledger.
    pub(crate) fn new(metered: &'a MeteringReport, totals: &'a Totals, ledger: &Ledger, is_read: bool) -> Self {
        let is_written = ledger.accounts().iter().any(|account| account.stage == Stage::Export);
        let written = is_written.then_some(ledger);
        let counts = &metered.counts;
        let seconds = metered.elapsed.as_secs_f64();
        let [flow_bytes, flow_bytes_ipv6] = metered.bytes_per_flow;
        FlowsJson {
            frames: counts.frames,
            bytes: counts.bytes,
            seconds,
            time_base: if is_read { "reading" } else { "run" },
            rates: if is_read { Rates::default() } else { Rates::new(counts.frames, counts.bytes, seconds) },
            flows: totals.flows,
            inner_flows: totals.inner_flows,
            records: EndReason::ALL.map(|reason| (reason.name(), counts.ended_by(reason))).into_iter().collect(),
            peak_flows: counts.most_flows,
            aggregated_flows: counts.aggregated,
            unknown_link: counts.unknown_link,
            unknown_link_bytes: counts.unknown_link_bytes,
            unknown_link_types: &metered.unknown_links,
            not_ip: counts.not_ip,
            not_ip_bytes: counts.not_ip_bytes,
            malformed: counts.malformed,
            malformed_bytes: counts.malformed_bytes,
            fragments_held: counts.fragments_held,
            fragments_joined: counts.fragments_joined,
            fragments_orphaned: counts.fragments_orphaned,
            fragments_no_room: counts.fragments_no_room,
            names_full: counts.names_full,
            name_buffer_full: counts.name_buffer_full,
            far_frames: metered.far_frames,
            time_jumps: metered.time_jumps,
            flow_bytes,
            flow_bytes_ipv6,
            max_bytes: metered.most_bytes,
            workers: workers(metered),
            worker_imbalance: unevenness(metered),
            elephants: elephants(metered, totals),
            top: totals.top.iter().filter_map(|flow| RawValue::from_string(json::record(flow)).ok()).collect(),
            records_written: written.map(|ledger| ledger.total(Count::Exported)),
            records_lost: written.map(lost),
            files: written.map(|ledger| ledger.total(Count::ExportFiles)),
        }
    }
}
