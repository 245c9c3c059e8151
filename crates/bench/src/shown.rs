//! Rows as a table.

use super::measure::Row;
use linerate_cli::view::table::table;
use linerate_cli::view::terminal::show;

pub(super) fn print(rows: &[Row]) {
    let heads = [
        "bench",
        "case",
        "size",
        "M frames/s",
        "Gb/s L2",
        "peer",
        "peer M/s",
        "limit M/s",
        "ratio",
        "spread",
        "remark",
    ];
    let mut lines = table(&heads, 2);
    for row in rows {
        let size = row.size.map_or_else(|| "mix".to_owned(), |size| size.to_string());
        let number = |value: Option<f64>| value.map_or_else(String::new, |value| format!("{value:.2}"));
        lines.add_row([
            row.bench.to_owned(),
            row.case.clone(),
            size,
            format!("{:.2}", row.mpps),
            format!("{:.2}", row.gbps_l2),
            row.peer.clone().unwrap_or_default(),
            number(row.peer_mpps),
            number(row.limit_mpps),
            number(row.ratio),
            if row.rounds > 1 { format!("{:.0} %", row.spread_percent) } else { String::new() },
            row.remark.clone(),
        ]);
    }
    show(format_args!(
        "{lines}\n\n  medians of up to {} rounds; ratio is to the peer where there is one, else to the limit\n",
        rows.first().map_or(0, |row| row.rounds)
    ));
}
