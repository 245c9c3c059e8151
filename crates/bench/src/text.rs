//! Rows as text in 80 columns.

use super::harness::{Group, PeerFigures, Row};
use linerate_cli::view::rates::grouped;

const WIDTH: usize = 80;
/// Room for names, for which minor columns are left out. Longer names have a line of their own.
const NAME: usize = 40;

/// A column with its head, and its figure of a row and of a peer or a limit. Columns without figures are left out.
struct Column {
    head: &'static str,
    row: fn(&Row) -> String,
    other: fn(&PeerFigures) -> String,
    /// Left out first where a line would be too long.
    is_minor: bool,
}

const fn column(head: &'static str, row: fn(&Row) -> String, other: fn(&PeerFigures) -> String) -> Column {
    Column { head, row, other, is_minor: false }
}

const fn minor(head: &'static str, row: fn(&Row) -> String) -> Column {
    Column { head, row, other: |_| String::new(), is_minor: true }
}

const COLUMNS: [Column; 12] = [
    column("size", |row| row.size.map_or_else(String::new, |size| size.to_string()), |_| String::new()),
    column("M/s", |row| number(Some(row.mpps)), |other| number(other.mpps)),
    minor("Gb/s", |row| number(Some(row.gbps_l2).filter(|rate| *rate > 0.0))),
    minor("ns", |row| number(row.ns.filter(|_| row.cpu_ns.is_none()))),
    column("CPU ns", |row| number(row.cpu_ns), |other| number(other.cpu_ns)),
    column("p50 us", |row| number(row.p50_us), |other| number(other.p50_us)),
    column("p99 us", |row| number(row.p99_us), |other| number(other.p99_us)),
    Column { is_minor: true, ..column("max us", |row| number(row.max_us), |other| number(other.max_us)) },
    column(
        "lost",
        |row| row.lost.map_or_else(String::new, grouped),
        |other| other.lost.map_or_else(String::new, grouped),
    ),
    column("ratio", |row| row.ratio.filter(|_| row.peer.is_some()).map_or_else(String::new, share), |_| String::new()),
    column("of limit", |row| row.of_limit().map_or_else(String::new, share), |_| String::new()),
    column(
        "spread",
        |row| row.spread_percent.map_or_else(String::new, |spread| format!("{spread:.0} %")),
        |_| String::new(),
    ),
];

/// Columns about rates, which tables of delays do not have.
const RATES: [&str; 5] = ["M/s", "Gb/s", "ratio", "of limit", "spread"];

/// The table of one benchmark: rows of ours, then the peers and limits of the same rounds.
pub(crate) fn text(bench: &str, about: &str, unit: &str, groups: &[Group]) -> String {
    let Some(rounds) = groups.iter().flat_map(|group| &group.rows).map(|row| row.rounds).max() else {
        return String::new();
    };
    let is_shown = |column: &&Column| {
        let has = |text: String| !text.is_empty();
        let is_used = groups.iter().any(|group| {
            group.rows.iter().any(|row| has((column.row)(row)))
                || group.others.iter().any(|other| has((column.other)(other)))
        });
        // Gb/s only of packets; no rates where delays are the result.
        is_used && (unit == "packets" || column.head != "Gb/s") && (unit != "delays" || !RATES.contains(&column.head))
    };
    let mut columns: Vec<(&Column, usize)> =
        COLUMNS.iter().filter(is_shown).map(|column| (column, width(column, groups))).collect();
    let names = groups.iter().flat_map(|group| {
        let rows = group.rows.iter().map(|row| row.case.chars().count());
        rows.chain(group.others.iter().map(|other| label(other).chars().count()))
    });
    let longest = names.max().unwrap_or_default().max(4);
    let room = |columns: &[(&Column, usize)]| {
        (WIDTH - 2).saturating_sub(columns.iter().map(|(_, width)| width + 2).sum::<usize>())
    };
    while room(&columns) < longest.min(NAME)
        && let Some(minor) = columns.iter().position(|(column, _)| column.is_minor)
    {
        columns.remove(minor);
    }
    let name = room(&columns).min(longest);
    let line = |first: &str, cells: &dyn Fn(&Column) -> String| {
        let cells: String = columns.iter().map(|(column, width)| format!("  {:>width$}", cells(column))).collect();
        if first.chars().count() > name {
            return format!("  {first}\n{}\n", format!("  {:name$}{cells}", "").trim_end());
        }
        format!("{}\n", format!("  {first:name$}{cells}").trim_end())
    };
    let heads = line("case", &|column| column.head.to_owned());
    let mut text = format!("{}{heads}", folded(&format!("{bench}: {about}"), 0));
    for group in groups {
        for row in &group.rows {
            text += &line(&row.case, &|column| (column.row)(row));
            text += &folded(&row.remark, 6);
        }
        for other in &group.others {
            text += &line(&label(other), &|column| (column.other)(other));
        }
    }
    let medians = if rounds > 1 { format!("medians of up to {rounds} rounds") } else { "1 round".to_owned() };
    let ratio =
        if columns.iter().any(|(column, _)| column.head == "ratio") { "; ratio: to the first peer" } else { "" };
    let is_disturbed = groups.iter().flat_map(|group| &group.rows).any(|row| row.of_limit() > Some(1.05));
    let disturbed = if is_disturbed { "; of limit above 1: other work slowed the limit" } else { "" };
    let rate = if unit == "delays" { String::new() } else { format!("M/s: million {unit}/s; ") };
    text + &folded(&format!("{rate}{medians}{ratio}{disturbed}"), 2)
}

fn label(other: &PeerFigures) -> String {
    format!("  {}: {}", if other.is_limit { "limit" } else { "peer" }, other.name)
}

fn width(column: &Column, groups: &[Group]) -> usize {
    let rows = groups.iter().flat_map(|group| group.rows.iter().map(column.row));
    let others = groups.iter().flat_map(|group| group.others.iter().map(column.other));
    rows.chain(others).map(|cell| cell.chars().count()).max().unwrap_or_default().max(column.head.len())
}

/// Text in lines that fit, indented; nothing for no text.
fn folded(text: &str, indent: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => *line += &format!(" {word}"),
            _ => lines.push(format!("{}{word}", " ".repeat(indent))),
        }
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Three digits or more; nothing for a figure that was not measured.
pub(crate) fn number(value: Option<f64>) -> String {
    match value {
        None => String::new(),
        Some(0.0) => "0".to_owned(),
        Some(value) if value.abs() >= 1e4 => grouped(value as u64),
        Some(value) => {
            let digits = (2 - value.abs().log10().floor() as i32).clamp(0, 6) as usize;
            format!("{value:.digits$}")
        }
    }
}

fn share(ratio: f64) -> String {
    match ratio {
        0.01..99.5 => format!("{ratio:.2}"),
        _ => number(Some(ratio)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_fit_and_small_figures_are_not_zero() {
        let other = PeerFigures {
            name: "tcpdump".into(),
            mpps: Some(0.0041),
            lost: Some(3511),
            cpu_ns: Some(47.0),
            ..PeerFigures::default()
        };
        let row = Row {
            case: "xdp, a switch and an engine at its ring, with a name that is too long".into(),
            size: Some(1518),
            mpps: 0.0065,
            gbps_l2: 0.01,
            ns: Some(123.0),
            cpu_ns: Some(12_345.0),
            p50_us: Some(0.5),
            p99_us: Some(108.0),
            max_us: Some(40_000.0),
            lost: Some(12_345_678),
            peer: Some("tcpdump".into()),
            ratio: Some(1.58),
            limit_mpps: Some(1.0),
            rounds: 3,
            spread_percent: Some(12.0),
            remark: "word ".repeat(40),
            ..Row::default()
        };
        let plain = Row { spread_percent: None, rounds: 1, ..row.clone() };
        let text = text("capture", &"about ".repeat(20), "packets", &[Group { rows: vec![row], others: vec![other] }]);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        for word in ["0.00650", "0.00410", "12,345,678", "peer: tcpdump", "12 %", "1.58"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let once = super::text("x", "y", "delays", &[Group { rows: vec![plain], others: Vec::new() }]);
        assert!(!once.contains("spread") && !once.contains("M/s") && once.contains("1 round\n"), "{once}");
        assert_eq!(
            [0.0, 0.5, 47.0, 154.2, 98_765.0].map(|value| number(Some(value))).join(" "),
            "0 0.500 47.0 154 98,765"
        );
    }
}
