//! Chunks of several sizes: their times, the line through them, and their tables.

use super::CHUNKS;
use crate::harness::{Side, median};
use linerate_cli::view::table::table;
use serde::Serialize;

/// Chunks of one size in one round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChunkResult {
    /// Mean seconds of a chunk.
    pub seconds: f64,
    /// Median and 99th percentile in microseconds.
    pub p50: f64,
    pub p99: f64,
    /// CPU seconds of the receiving thread per GiB.
    pub cpu: f64,
    /// Segments that were retransmitted.
    pub resent: u32,
}

/// A receiver with chunks of one size; names as in docs/json.md.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    pub bench: &'static str,
    pub device: Option<String>,
    pub model: Option<String>,
    pub case: String,
    pub way: Option<&'static str>,
    pub mtu: u32,
    pub chunk: u64,
    pub chunk_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub gbps_payload: f64,
    pub gbps_payload_min: f64,
    pub gbps_payload_max: f64,
    pub gbps_l2: Option<f64>,
    pub cpu_s_per_gib: f64,
    /// Over all rounds.
    pub resent_segments: Option<u32>,
    /// Slope of the line through the times of all sizes.
    pub limit_gbps_payload: f64,
    pub limit_gbps_l2: Option<f64>,
    pub fixed_us: f64,
    pub bus_to_gbps: Option<f64>,
    pub bus_from_gbps: Option<f64>,
    pub peer: Option<String>,
    pub peer_gbps_payload: Option<f64>,
    pub peer_cpu_s_per_gib: Option<f64>,
    pub ratio: Option<f64>,
    pub rounds: usize,
    pub spread_percent: Option<f64>,
    /// Job of the kernel's receiver.
    pub remark: Option<String>,
}

/// Rows of one side, a chunk size each. `payload` is bytes of a chunk that are sent.
pub(super) fn rows(side: &Side<Vec<ChunkResult>>, row: &Row, payload: impl Fn(u64) -> f64) -> Vec<Row> {
    let sizes = side.samples.first().map_or(0, Vec::len);
    let middle = |at: usize, of: fn(&ChunkResult) -> f64| {
        median(side.samples.iter().map(|round| of(&round[at]))).unwrap_or_default()
    };
    let chunks = &CHUNKS[..sizes];
    let times: Vec<(f64, f64)> =
        chunks.iter().enumerate().map(|(at, chunk)| (payload(*chunk), middle(at, |one| one.seconds))).collect();
    let line = LatencyFit::through(&times);
    let of = |(at, chunk): (usize, &u64)| {
        let gbps = |seconds: f64| times[at].0 * 8.0 / seconds / 1e9;
        let of_rounds = side.samples.iter().map(|round| gbps(round[at].seconds));
        let (min, max) = of_rounds.fold((f64::MAX, 0.0f64), |(min, max), one| (min.min(one), max.max(one)));
        let rate = gbps(times[at].1);
        Row {
            case: side.name.clone(),
            chunk: *chunk,
            chunk_us: times[at].1 * 1e6,
            p50_us: middle(at, |one| one.p50),
            p99_us: middle(at, |one| one.p99),
            gbps_payload: rate,
            gbps_payload_min: min,
            gbps_payload_max: max,
            cpu_s_per_gib: middle(at, |one| one.cpu),
            resent_segments: Some(side.samples.iter().map(|round| round[at].resent).sum()),
            limit_gbps_payload: line.gbps(),
            fixed_us: line.fixed * 1e6,
            rounds: side.samples.len(),
            spread_percent: (side.samples.len() > 1).then(|| (max - min) / rate * 100.0),
            ..row.clone()
        }
    };
    chunks.iter().enumerate().map(of).collect()
}

/// Parts of rows that have the same key.
pub(super) fn parts<K: PartialEq>(rows: &[Row], key: impl Fn(&Row) -> K) -> Vec<&[Row]> {
    rows.chunk_by(|one, next| key(one) == key(next)).collect()
}

/// Rates of receivers by chunk size in MiB; on layer 2 too if rows have them.
pub(super) fn rates(head: &str, sides: &[&[Row]]) -> String {
    let sizes = sides[0].iter().map(|row| (row.chunk >> 20).to_string());
    let heads: Vec<String> = [head.to_owned(), "Gb/s".to_owned()].into_iter().chain(sizes).collect();
    let mut lines = table(&heads.iter().map(String::as_str).collect::<Vec<_>>(), 2);
    for side in sides {
        for (layer, rate) in
            [("payload", (|row| Some(row.gbps_payload)) as fn(&Row) -> Option<f64>), ("L2", |row| row.gbps_l2)]
        {
            let cells: Vec<String> = side.iter().filter_map(rate).map(|rate| format!("{rate:.1}")).collect();
            if !cells.is_empty() {
                lines.add_row([side[0].case.clone(), layer.to_owned()].into_iter().chain(cells));
            }
        }
    }
    lines.to_string()
}

/// A figure that is above 0; noise may give the line a negative slope.
pub(super) fn positive(value: Option<f64>) -> String {
    value.filter(|value| *value > 0.0).map_or_else(String::new, |value| format!("{value:.1}"))
}

/// A table with a row for each receiver, of its longest chunks.
pub(super) fn summary(heads: &[&str], sides: &[&[Row]], cells: impl Fn(&[Row], &Row) -> Vec<String>) -> String {
    let mut lines = table(heads, 1);
    for (side, row) in sides.iter().filter_map(|side| Some((side, side.last()?))) {
        lines.add_row([row.case.clone()].into_iter().chain(cells(side, row)));
    }
    lines.to_string()
}

/// Time of a chunk in seconds: a fixed part, and a part per byte.
#[derive(Clone, Copy, Debug)]
pub(super) struct LatencyFit {
    pub fixed: f64,
    per_byte: f64,
}

impl LatencyFit {
    /// The line closest to these chunks (bytes, seconds) by least squares of relative errors: with absolute ones the noise of the
    /// longest chunk would be many times the fixed part.
    pub(super) fn through(times: &[(f64, f64)]) -> LatencyFit {
        let (mut w, mut wx, mut wy, mut wxx, mut wxy) = (0.0, 0.0, 0.0, 0.0, 0.0);
        for (x, y) in times {
            let weight = 1.0 / (y * y);
            w += weight;
            wx += weight * x;
            wy += weight * y;
            wxx += weight * x * x;
            wxy += weight * x * y;
        }
        let per_byte = (w * wxy - wx * wy) / (w * wxx - wx * wx);
        LatencyFit { fixed: (wy - per_byte * wx) / w, per_byte }
    }

    /// Rate of endless chunks.
    pub(super) fn gbps(&self) -> f64 {
        8.0 / self.per_byte / 1e9
    }
}

/// Fixstars' figures of lightning-kit (High-Performance Networking Series, blog.us.fixstars.com/?p=317 and its sequel, 2024):
/// microseconds of chunks of the same sizes. Its rates, written as Gbps, are Gibit/s of layer 2; those of payload follow from the
/// times.
const PUBLISHED: [(&str, [f64; 8]); 3] = [
    ("ACK only", [102.54, 188.10, 360.48, 697.14, 1376.15, 2733.60, 5448.02, 10871.39]),
    ("CPU frames", [105.72, 194.04, 371.10, 722.01, 1425.33, 2828.36, 5641.19, 11282.01]),
    ("GPU frames", [127.27, 216.18, 388.32, 731.93, 1410.75, 2762.26, 5477.66, 10912.11]),
];

/// The published figures as a table.
pub(super) fn published() -> String {
    let sizes = CHUNKS.map(|chunk| (chunk >> 20).to_string());
    let heads: Vec<&str> = ["published"].into_iter().chain(sizes.iter().map(String::as_str)).collect();
    let mut lines = table(&heads, 1);
    let mut limits = String::new();
    for (name, times) in PUBLISHED {
        let points = CHUNKS.iter().zip(times).map(|(chunk, micros)| (*chunk as f64, micros / 1e6)).collect::<Vec<_>>();
        let cells = points.iter().map(|(bytes, seconds)| format!("{:.1}", bytes * 8.0 / seconds / 1e9));
        lines.add_row([name.to_owned()].into_iter().chain(cells));
        let line = LatencyFit::through(&points);
        limits += &format!("    {name}: limit {:.1} Gb/s, fixed {:.1} us\n", line.gbps(), line.fixed * 1e6);
    }
    format!(
        "{lines}\n\n  Gb/s of payload of lightning-kit on other machines, with cards of 100 Gb/s\n  \
         and MTU 8000, from the microseconds that its authors published; the rates\n  \
         they print as Gbps are Gibit/s of layer 2 (blog.us.fixstars.com/?p=317)\n{limits}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_fixed_cost_are_fitted() {
        let times = [1.0, 2.0, 64.0, 128.0].map(|mib: f64| (mib * 1e6, 20e-6 + mib * 1e6 * 8.0 / 50e9));
        let line = LatencyFit::through(&times);
        assert!((line.gbps() - 50.0).abs() < 1e-6 && (line.fixed - 20e-6).abs() < 1e-12, "{line:?}");
    }

    #[test]
    fn published_figures_are_decimal_and_fit() {
        let text = published();
        let line = text.lines().find(|line| line.contains("CPU frames")).expect("a row");
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells[2..], ["79.3", "86.5", "90.4", "92.9", "94.2", "94.9", "95.2", "95.2"]);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
