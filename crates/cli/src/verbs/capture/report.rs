//! Report of a capture: text and `linerate/capture/1`.

use super::CaptureOptions;
use super::analysis::{AnalysisJson, AnalysisResult};
use super::parts::PartJson;
use crate::view::ledger::{self, RunJson};
use crate::view::rates::{Rates, grouped, totals, totals_read};
use linerate_burst::{Count, Kind, Stage};
use linerate_engine::select::imbalance;
use linerate_engine::{CaptureTotals, RunReport};
use serde::Serialize;
use std::time::Duration;

/// Returns the report; `more` is that of flows, statistics and printing, and `is_whole` adds the whole packet
/// accounting.
pub fn summary(run: &RunReport, captured: &[CaptureTotals], is_recorded: bool, more: &str, is_whole: bool) -> String {
    let body = |(what, of): (&&str, &CaptureTotals)| body(run, what, of, is_recorded);
    let outputs = run.ledger.accounts().iter().filter(|account| account.stage == Stage::Write);
    let is_failed = outputs.map(|account| account.sum(Kind::Lost)).sum::<u64>() > 0;
    let done = match is_recorded {
        true if is_failed => "read",
        true => "written",
        false => "captured",
    };
    let captured: String = [done, "shared"].iter().zip(captured).map(body).collect();
    ledger::run(run, &(captured + more), is_whole)
}

/// Returns the duration in seconds; for files by their timestamps.
fn seconds(run: &RunReport, captured: &CaptureTotals, is_recorded: bool) -> f64 {
    let span = captured.span.map_or(Duration::ZERO, |(first, last)| last.since(first));
    if is_recorded { span.as_secs_f64() } else { run.elapsed.as_secs_f64() }
}

fn body(run: &RunReport, what: &str, captured: &CaptureTotals, is_recorded: bool) -> String {
    let (span, read) = (seconds(run, captured, is_recorded), run.elapsed.as_secs_f64());
    let CaptureTotals { frames, bytes, wire_bytes, .. } = *captured;
    let totals = match is_recorded {
        true => totals_read(what, frames, bytes, wire_bytes, (span, read)),
        false => totals(what, frames, bytes, wire_bytes, span),
    };
    let [lost, late] = [run.ledger.lost(), run.ledger.total(Count::Late)].map(grouped);
    let mut text = format!("{totals}; {lost} lost, {late} late\n");
    let shards = &captured.shards;
    if !shards.is_empty() {
        let frames: Vec<String> = shards.iter().map(|frames| grouped(*frames)).collect();
        let frames = if frames.len() > 16 { String::new() } else { format!(": {}", frames.join(", ")) };
        let (count, uneven) = (shards.len(), imbalance(shards));
        text += &format!("  packets per shard ({count}){frames}; the largest has {uneven:.2} times the mean\n");
    }
    text
}

/// `linerate/capture/1`.
#[derive(Serialize)]
pub(super) struct CaptureJson<'a> {
    schema: &'static str,
    ports: Vec<String>,
    filter: String,
    /// Shard that was kept, such as `2/8`.
    shard: Option<String>,
    /// Packets of each shard, including those not kept.
    shards: Vec<u64>,
    /// Largest shard relative to the mean.
    shard_imbalance: Option<f64>,
    /// Slice that was kept, such as `96` or `l4+64`.
    slice: Option<String>,
    dedup_ms: Option<f64>,
    received: u64,
    delivered: u64,
    frames: u64,
    bytes: u64,
    wire_bytes: u64,
    late: u64,
    first_time_ns: Option<u64>,
    last_time_ns: Option<u64>,
    /// Duration that rates refer to.
    seconds: f64,
    /// Source of `seconds`: `frames` for files, else `run`.
    time_base: &'static str,
    #[serde(flatten)]
    rates: Rates,
    /// Outputs with a selection of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<PartJson>,
    /// Packets of the ring, if its selection differs from that of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    share: Option<SharedJson>,
    #[serde(flatten)]
    analysis: AnalysisJson<'a>,
    #[serde(flatten)]
    run: RunJson,
}

impl<'a> CaptureJson<'a> {
    pub(super) fn new(
        asked: &CaptureOptions,
        run: &RunReport,
        captured: &[CaptureTotals],
        (done, parts): (&'a AnalysisResult, Vec<PartJson>),
    ) -> Self {
        let is_recorded = asked.inputs.are_files() && !captured.is_empty();
        let captured_first = captured.first().cloned().unwrap_or_default();
        let seconds = seconds(run, &captured_first, is_recorded);
        let CaptureTotals { frames, bytes, wire_bytes, shards, span } = captured_first;
        let selection = &asked.write;
        CaptureJson {
            schema: "linerate/capture/1",
            ports: asked.inputs.names(),
            filter: selection.filter.clone(),
            shard: selection.shard.map(|shard| shard.to_string()),
            shard_imbalance: (!shards.is_empty()).then(|| imbalance(&shards)),
            shards,
            slice: selection.slice.map(|slice| slice.to_string()),
            dedup_ms: selection.dedup.map(|window| window.as_secs_f64() * 1e3),
            received: run.ledger.sum(Stage::Receive, Kind::Received),
            delivered: frames,
            frames,
            bytes,
            wire_bytes,
            late: run.ledger.total(Count::Late),
            first_time_ns: span.map(|(first, _)| first.0),
            last_time_ns: span.map(|(_, last)| last.0),
            seconds,
            time_base: if is_recorded { "frames" } else { "run" },
            rates: Rates::new(frames, wire_bytes, seconds),
            parts,
            share: captured.get(1).map(SharedJson::new),
            analysis: done.json(&asked.inputs, &run.ledger),
            run: RunJson::new(run),
        }
    }
}

/// Packets of a ring.
#[derive(Serialize)]
struct SharedJson {
    frames: u64,
    bytes: u64,
    wire_bytes: u64,
    shards: Vec<u64>,
    first_time_ns: Option<u64>,
    last_time_ns: Option<u64>,
}

impl SharedJson {
    fn new(shared: &CaptureTotals) -> Self {
        let CaptureTotals { frames, bytes, wire_bytes, ref shards, span } = *shared;
        let [first_time_ns, last_time_ns] = [span.map(|(first, _)| first.0), span.map(|(_, last)| last.0)];
        SharedJson { frames, bytes, wire_bytes, shards: shards.clone(), first_time_ns, last_time_ns }
    }
}
