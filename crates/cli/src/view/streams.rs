//! Results of checked streams: table and remarks as text, clocks as JSON.

use crate::view::rates::{counted, frames_per_second, grouped, stated};
use crate::view::table::table;
use linerate_burst::{Count, Interface, Ledger, StampSource};
use linerate_generate::check::{CheckSummary, LIMIT, StreamRow, WINDOW};
use serde::Serialize;

/// Start of latencies.
const SENDER_CLOCK: &str = "CLOCK_REALTIME of the sender when the packet was made";

/// Returns a table of streams, one per row, and their total.
pub fn rows(summary: &CheckSummary, shown: &[StreamRow], name: impl Fn(u32) -> String) -> String {
    let heads = [
        "stream",
        "sent",
        "received",
        "rate",
        "lost",
        "duplicated",
        "reordered",
        "corrupted",
        "latency min",
        "latency p50",
        "latency p99",
        "latency p99.9",
        "latency max",
        "ipdv",
    ];
    let mut lines = table(&heads, 1);
    let all = StreamRow {
        mark: "",
        counts: summary.counts,
        pace: summary.pace,
        delay: summary.delay,
        ..StreamRow::default()
    };
    for (name, row) in shown.iter().map(|row| (name(row.stream), row)).chain([("total".to_owned(), &all)]) {
        let (counts, delay) = (&row.counts, &row.delay);
        let sent = counts.sent.map_or_else(|| "-".to_owned(), grouped);
        let faults = [counts.lost, counts.duplicated, counts.reordered, counts.corrupted].map(grouped);
        let latencies = [
            delay.latency_min_ns,
            delay.latency_p50_ns,
            delay.latency_p99_ns,
            delay.latency_p999_ns,
            delay.latency_max_ns,
            delay.ipdv_mean_ns.map(|mean| mean as i64),
        ];
        let first = [name, sent, grouped(counts.received), frames_per_second(row.pace.mpps)];
        lines.add_row(first.into_iter().chain(faults).chain(latencies.map(micros)));
    }
    let left = (summary.streams as usize).saturating_sub(shown.len());
    let more = if left > 0 { format!("  and {} more\n", counted(left as u64, "stream")) } else { String::new() };
    format!("{lines}\n{more}")
}

/// The streams that lost most, then those that received most.
pub fn first(mut rows: Vec<StreamRow>, most: usize) -> Vec<StreamRow> {
    rows.sort_by_key(|row| std::cmp::Reverse((row.counts.lost, row.counts.received)));
    rows.truncate(most);
    rows
}

/// Returns remarks below the table.
pub fn remarks(interfaces: &[Interface], ledger: &Ledger, summary: &CheckSummary) -> String {
    let counts = &summary.counts;
    let lost = match counts.sent {
        Some(_) => "sent and not received",
        None => "gaps below the highest sequence number received",
    };
    let mut text = format!(
        "  latencies in us, from {SENDER_CLOCK} to the receive time stamp ({}); percentiles +-3 %\n  lost: {lost}\n",
        stamps(interfaces).join(", ")
    );
    if let Some(gap) = summary.gap.as_ref().filter(|_| counts.received > 1) {
        let mean = summary.pace.seconds * 1e6 / counts.received.saturating_sub(1).max(1) as f64;
        let [p50, p99, max] =
            [gap.gap_error_p50_ns, gap.gap_error_p99_ns, gap.gap_error_max_ns].map(|ns| ns as f64 / 1e3);
        text += &format!(
            "  gap error at the receiver: p50 {p50:.1} us, p99 {p99:.1} us, max {max:.1} us; mean gap {mean:.1} us, target {:.1} us\n",
            gap.gap_wanted_ns / 1e3
        );
    }
    if summary.delay.latency_min_ns.is_some_and(|least| least < 0) {
        text += "  negative latencies: the clocks of sender and receiver differ (synchronise by PTP or NTP);\n  \
                 their percentiles are unknown, differences between packets are correct\n";
    }
    let before = if counts.sent.is_none() { counts.lost_before_first } else { 0 };
    for (number, remark) in [
        (before, "of the lost have numbers below the first received: lost, or sent before the start"),
        (counts.stale, "packets arrived more than 1,024 numbers late and count as lost"),
        (summary.damaged, "packets with a damaged trailer, lost by an unknown stream"),
        (summary.cut, "packets were truncated before their trailer"),
        (summary.over_limit, "packets are of streams beyond the limit (--max-streams)"),
        (summary.foreign, "packets have no trailer with this key"),
        (
            ledger.total(Count::SuperFrames),
            "packets were merged by GRO on the receiving host, and all but one of each count as lost; use xdp:, or \
             ethtool -K INTERFACE gro off",
        ),
    ] {
        if number > 0 {
            text += &format!("  {}\n", stated(number, remark));
        }
    }
    text
}

/// Clocks of latencies, and accuracy of figures.
#[derive(Serialize)]
pub struct ClockJson {
    sender: &'static str,
    /// Sources of receive time stamps.
    receiver: Vec<&'static str>,
    resolution_ns: u64,
    latency_error_percent: f64,
    latency_limit_ns: u64,
    window_frames: u64,
}

impl ClockJson {
    /// Creates it for packets received on these interfaces.
    pub fn new(interfaces: &[Interface]) -> Self {
        ClockJson {
            sender: SENDER_CLOCK,
            receiver: stamps(interfaces),
            resolution_ns: 1,
            latency_error_percent: 3.125,
            latency_limit_ns: LIMIT,
            window_frames: WINDOW,
        }
    }
}

fn stamps(interfaces: &[Interface]) -> Vec<&'static str> {
    let mut names: Vec<&str> = interfaces.iter().map(|interface| StampSource::name(interface.stamp)).collect();
    names.sort_unstable();
    names.dedup();
    names
}

fn micros(nanos: Option<i64>) -> String {
    nanos.map_or_else(String::new, |nanos| format!("{:.1}", nanos as f64 / 1e3))
}
