//! The tables, for people.

use super::fit::Line;
use super::{CHUNKS, Row};
use linerate_cli::view::table::table;

/// What Fixstars published for lightning-kit (High-Performance Networking Series, blog.us.fixstars.com/?p=317 and its sequel, 2024):
/// microseconds of chunks of the same sizes. Its rates, written as Gbps, are Gibit/s of layer 2; those of payload follow from the
/// times.
const PUBLISHED: [(&str, [f64; 8]); 3] = [
    ("ACK only", [102.54, 188.10, 360.48, 697.14, 1376.15, 2733.60, 5448.02, 10871.39]),
    ("CPU frames", [105.72, 194.04, 371.10, 722.01, 1425.33, 2828.36, 5641.19, 11282.01]),
    ("GPU frames", [127.27, 216.18, 388.32, 731.93, 1410.75, 2762.26, 5477.66, 10912.11]),
];

/// All of it.
pub(crate) fn text(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut text = String::new();
    for way in rows.chunk_by(|one, next| one.way == next.way) {
        let sides: Vec<&[Row]> = way.chunk_by(|one, next| one.case == next.case).collect();
        text += &format!("{}\n\n{}\n\n", rates(way[0].way, &sides), summary(&sides));
    }
    text += &format!(
        "  medians of up to {} rounds, the receivers in turn; heads are MiB of a chunk\n  \
         Gb/s are 10^9 bits of payload, or with headers and FCS (L2) where packets are\n  \
         as long as the MTU (super-frames: 1500)\n  \
         limit and fixed us: the line closest to the times of all chunks\n  \
         s/GiB: CPU time of the receiving thread; CPU, ratio: that and the rate, to\n  \
         those of the kernel; these and spread are of the longest chunks\n  \
         resent: segments, over all chunks\n\n",
        first.rounds
    );
    text + &published()
}

/// Rates by size of the chunks.
fn rates(way: &str, sides: &[&[Row]]) -> String {
    let sizes: Vec<String> = sides[0].iter().map(|row| (row.chunk >> 20).to_string()).collect();
    let heads: Vec<&str> = [way, "Gb/s"].into_iter().chain(sizes.iter().map(String::as_str)).collect();
    let mut lines = table(&heads, 2);
    for side in sides {
        for (of, gbps) in [("payload", (|row| row.gbps_payload) as fn(&Row) -> f64), ("L2", |row| row.gbps_l2)] {
            let cells = side.iter().map(|row| format!("{:.1}", gbps(row)));
            lines.add_row([side[0].case.to_owned(), of.to_owned()].into_iter().chain(cells));
        }
    }
    lines.to_string()
}

/// What tells most of each receiver.
fn summary(sides: &[&[Row]]) -> String {
    let heads = ["receiver", "limit", "L2", "fixed us", "s/GiB", "CPU", "ratio", "spread", "resent"];
    let mut lines = table(&heads, 1);
    for (side, row) in sides.iter().filter_map(|side| Some((side, side.last()?))) {
        let ratio = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
        lines.add_row([
            row.case.to_owned(),
            format!("{:.1}", row.limit_gbps_payload),
            format!("{:.1}", row.limit_gbps_l2),
            format!("{:.1}", row.fixed_us),
            format!("{:.3}", row.cpu_s_per_gib),
            ratio(row.peer_cpu_s_per_gib.map(|peer| row.cpu_s_per_gib / peer)),
            ratio(row.ratio),
            format!("{:.0} %", row.spread_percent),
            side.iter().map(|row| row.resent_segments).sum::<u32>().to_string(),
        ]);
    }
    lines.to_string()
}

fn published() -> String {
    let sizes = CHUNKS.map(|chunk| (chunk >> 20).to_string());
    let heads: Vec<&str> = ["published"].into_iter().chain(sizes.iter().map(String::as_str)).collect();
    let mut lines = table(&heads, 1);
    let mut limits = String::new();
    for (name, times) in PUBLISHED {
        let points: Vec<(f64, f64)> =
            CHUNKS.iter().zip(times).map(|(chunk, micros)| (*chunk as f64, micros / 1e6)).collect();
        let cells = points.iter().map(|(bytes, seconds)| format!("{:.1}", bytes * 8.0 / seconds / 1e9));
        lines.add_row([name.to_owned()].into_iter().chain(cells));
        let line = Line::through(&points);
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
    fn what_was_published_is_told_in_decimal_and_fits() {
        let text = published();
        let line = text.lines().find(|line| line.contains("CPU frames")).expect("a row");
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells[2..], ["79.3", "86.5", "90.4", "92.9", "94.2", "94.9", "95.2", "95.2"]);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
