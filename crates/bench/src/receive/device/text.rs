//! The tables, for people.

use super::Row;
use linerate_cli::view::table::table;

/// GiB of 100 Gb/s, which is what a core is to keep up with.
const GIB_OF_100_GBPS: f64 = 12.5e9 / (1_u64 << 30) as f64;

/// All of it.
pub(crate) fn text(rows: &[Row]) -> String {
    let Some(first) = rows.first() else { return String::new() };
    let mut text = format!("frames on {} ({})\n\n", first.device, first.model);
    for mtu in rows.chunk_by(|one, next| one.mtu == next.mtu) {
        let cases: Vec<&[Row]> = mtu.chunk_by(|one, next| one.case == next.case).collect();
        text += &format!("{}\n\n{}\n\n", rates(mtu[0].mtu, &cases), summary(&cases));
    }
    text + &format!(
        "  medians of up to {} rounds, the ways in turn; heads are MiB of a chunk\n  \
         Gb/s are 10^9 bits of payload; a chunk ends when its frame was looked at\n  \
         bus: one large copy in the same run: {:.0} Gb/s there, {:.0} Gb/s back\n  \
         limit and fixed us: the line closest to the times of all chunks; to host:\n  \
         what of the fixed part frames of the host do not take\n  \
         s/GiB: CPU time of the receiving thread, with the endpoint; cores: of it at\n  \
         100 Gb/s; both of the longest chunks\n  \
         scattered: a buffer a segment, brought together by the processor\n",
        first.rounds, first.bus_to_gbps, first.bus_from_gbps
    )
}

fn rates(mtu: usize, cases: &[&[Row]]) -> String {
    let sizes: Vec<String> = cases[0].iter().map(|row| (row.chunk >> 20).to_string()).collect();
    let name = format!("MTU {mtu}, Gb/s");
    let heads: Vec<&str> = [name.as_str()].into_iter().chain(sizes.iter().map(String::as_str)).collect();
    let mut lines = table(&heads, 1);
    for case in cases {
        let cells = case.iter().map(|row| format!("{:.1}", row.gbps_payload));
        lines.add_row([case[0].case.to_owned()].into_iter().chain(cells));
    }
    lines.to_string()
}

fn summary(cases: &[&[Row]]) -> String {
    let mut lines = table(&["frames", "limit", "of bus", "fixed us", "to host", "s/GiB", "cores"], 1);
    let host = cases.first().and_then(|case| case.first()).map_or(0.0, |row| row.fixed_us);
    for row in cases.iter().filter_map(|case| case.last()) {
        let is_host = row.case == cases[0][0].case;
        let unless = |text: String| if is_host { String::new() } else { text };
        lines.add_row([
            row.case.to_owned(),
            format!("{:.1}", row.limit_gbps_payload),
            unless(format!("{:.0} %", row.limit_gbps_payload / row.bus_to_gbps * 100.0)),
            format!("{:.1}", row.fixed_us),
            unless(format!("{:+.1}", row.fixed_us - host)),
            format!("{:.3}", row.cpu_s_per_gib),
            format!("{:.2}", row.cpu_s_per_gib * GIB_OF_100_GBPS),
        ]);
    }
    lines.to_string()
}
