//! What a receiver saw of streams, for people.

use crate::view::rates::{frames_per_second, grouped};
use crate::view::table::table;
use linerate_burst::{Count, Ledger};
use linerate_generate::check::{Delay, Fate, StreamRow, Summary};
use std::fmt::Write;

/// Streams that are shown; of more, those that lost most, then those that received most.
const SHOWN: usize = 16;

/// A summary, and a table of streams by the names that `name` gives them.
pub fn print(summary: &Summary, rows: &[StreamRow], name: impl Fn(u32) -> String) -> String {
    let mut text = fate(summary);
    let mut lines = table(
        &[
            "stream",
            "sent",
            "received",
            "lost",
            "repeated",
            "reordered",
            "corrupted",
            "rate",
            "p50",
            "p99",
            "max",
            "ipdv",
        ],
        1,
    );
    let mut shown: Vec<&StreamRow> = rows.iter().collect();
    shown.sort_by_key(|row| std::cmp::Reverse((row.fate.lost, row.fate.received)));
    for row in shown.iter().take(SHOWN) {
        let (fate, delay) = (&row.fate, &row.delay);
        lines.add_row([
            name(row.stream),
            fate.sent.map_or_else(|| "?".to_owned(), grouped),
            grouped(fate.received),
            grouped(fate.lost),
            grouped(fate.duplicated),
            grouped(fate.reordered),
            grouped(fate.corrupted),
            frames_per_second(row.pace.mpps),
            span(delay.latency_p50_ns),
            span(delay.latency_p99_ns),
            span(delay.latency_max_ns),
            delay.ipdv_mean_ns.map_or_else(String::new, |nanos| span(Some(nanos as i64))),
        ]);
    }
    // Text in memory takes whatever is written.
    let _ = writeln!(text, "{lines}");
    if rows.len() > SHOWN {
        let _ = writeln!(text, "  and {} streams more, with less loss", grouped((rows.len() - SHOWN) as u64));
    }
    text
}

/// What the host of the receiver made of several frames before they were seen, if it did: only the last of them is found in it.
pub fn merged(ledger: &Ledger) -> Option<String> {
    let merged = ledger.total(Count::SuperFrames);
    (merged > 0).then(|| {
        format!(
            "  {} frames had been put together from several by the receiving host (GRO); all but one of each count as lost: receive \
             by xdp:, or ethtool -K INTERFACE gro off there\n",
            grouped(merged)
        )
    })
}

/// The sentences above the table.
fn fate(summary: &Summary) -> String {
    let Fate { sent, received, lost, duplicated, reordered, reorder_extent, stale, corrupted, .. } = summary.fate;
    let mut text = String::from("received: ");
    if let Some(sent) = sent {
        let _ = write!(text, "{} sent, ", grouped(sent));
    }
    let _ = writeln!(
        text,
        "{} received in {} streams, {} lost in {} of them, {} repeated, {} reordered (by {} at most), {} corrupted",
        grouped(received),
        grouped(summary.streams),
        grouped(lost),
        grouped(summary.streams_with_loss),
        grouped(duplicated),
        grouped(reordered),
        grouped(reorder_extent),
        grouped(corrupted),
    );
    for (frames, what) in [
        (summary.damaged, "of ours had lost what they are known by (damaged)"),
        (stale, "came too late to say whether they had come before; they count as lost"),
        (summary.cut, "were not captured to their end"),
        (summary.over_limit, "were of streams beyond the limit of --streams"),
        (summary.foreign, "were not ours"),
    ] {
        if frames > 0 {
            let _ = writeln!(text, "  {} frames {what}", grouped(frames));
        }
    }
    text + &latency(&summary.delay)
}

fn latency(delay: &Delay) -> String {
    if delay.latency_p50_ns.is_none() {
        return String::new();
    }
    let mut text = format!(
        "  latency: min {}, p50 {}, p90 {}, p99 {}, p99.9 {}, max {}; variation p99.9 - min {}",
        span(delay.latency_min_ns),
        span(delay.latency_p50_ns),
        span(delay.latency_p90_ns),
        span(delay.latency_p99_ns),
        span(delay.latency_p999_ns),
        span(delay.latency_max_ns),
        span(delay.pdv_p999_ns),
    );
    if let Some(mean) = delay.ipdv_mean_ns {
        let _ = write!(text, ", from frame to frame {} on average", span(Some(mean as i64)));
    }
    text + "\n"
}

/// Nanoseconds in the unit that keeps them readable.
fn span(nanos: Option<i64>) -> String {
    let Some(nanos) = nanos else { return String::new() };
    let (value, size) = (nanos as f64, nanos.unsigned_abs());
    match size {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.1} us", value / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", value / 1e6),
        _ => format!("{:.3} s", value / 1e9),
    }
}
