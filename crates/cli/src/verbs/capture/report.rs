//! What a capture says at its end: a summary for people, `linerate/capture/1` for programs.

use super::Asked;
use crate::view::ledger;
use crate::view::ledger::LedgerJson;
use crate::view::rates::{Rates, frames_per_second, grouped};
use linerate_burst::{Kind, Stage};
use linerate_engine::CaptureReport;
use linerate_engine::select::imbalance;
use serde::Serialize;

/// The summary at the end, for people.
pub fn summary(report: &CaptureReport) -> String {
    let seconds = report.elapsed.as_secs_f64();
    let rates = Rates::new(report.frames, report.wire_bytes, seconds);
    let mut text = ledger::events(&report.events, report.failure.as_ref());
    text += &format!(
        "{} frames, {} bytes captured in {seconds:.3} s: {}, {:.3} Gb/s L1; {} lost, {} late\n",
        grouped(report.frames),
        grouped(report.bytes),
        frames_per_second(rates.mpps),
        rates.gbps_l1,
        grouped(report.ledger.lost()),
        grouped(report.ledger.total(linerate_burst::Count::Late)),
    );
    if !report.shards.is_empty() {
        let frames: Vec<String> = report.shards.iter().map(|frames| grouped(*frames)).collect();
        let frames = if frames.len() > 16 { String::new() } else { format!(": {}", frames.join(", ")) };
        let (count, uneven) = (report.shards.len(), imbalance(&report.shards));
        text += &format!("  frames of the {count} shards{frames}; the fullest has {uneven:.2} of the mean\n");
    }
    text + &ledger::print(&report.ledger, report.quiesced)
}

/// `linerate/capture/1`.
#[derive(Serialize)]
pub(super) struct CaptureJson {
    schema: &'static str,
    ports: Vec<String>,
    filter: String,
    /// Which part of the traffic was kept, as `2/8`.
    shard: Option<String>,
    /// Frames of each shard, whichever of them was kept.
    shards: Vec<u64>,
    /// The most of them over the mean.
    shard_imbalance: Option<f64>,
    /// How much of a frame was kept, as `96` or `l4+64`.
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
    seconds: f64,
    #[serde(flatten)]
    rates: Rates,
    quiesced: bool,
    events: Vec<String>,
    failure: Option<String>,
    #[serde(flatten)]
    ledger: LedgerJson,
}

impl CaptureJson {
    pub fn new(asked: &Asked, report: &CaptureReport) -> Self {
        let seconds = report.elapsed.as_secs_f64();
        CaptureJson {
            schema: "linerate/capture/1",
            ports: asked.specs.iter().map(ToString::to_string).collect(),
            filter: asked.selection.filter.clone(),
            shard: asked.selection.shard.map(|shard| shard.to_string()),
            shards: report.shards.clone(),
            shard_imbalance: (!report.shards.is_empty()).then(|| imbalance(&report.shards)),
            slice: asked.selection.slice.map(|slice| slice.to_string()),
            dedup_ms: asked.selection.dedup.map(|window| window.as_secs_f64() * 1e3),
            received: report.ledger.sum(Stage::Receive, Kind::Received),
            delivered: report.frames,
            frames: report.frames,
            bytes: report.bytes,
            wire_bytes: report.wire_bytes,
            late: report.ledger.total(linerate_burst::Count::Late),
            first_time_ns: report.span.map(|(first, _)| first.0),
            last_time_ns: report.span.map(|(_, last)| last.0),
            seconds,
            rates: Rates::new(report.frames, report.wire_bytes, seconds),
            quiesced: report.quiesced,
            events: report.events.clone(),
            failure: report.failure.as_ref().map(ToString::to_string),
            ledger: LedgerJson::new(&report.ledger),
        }
    }
}
