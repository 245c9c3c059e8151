//! HTML report as one self-contained file.

use super::files::facts;
use super::sections::sections;
use super::{Report, Row, SizeReport};
use crate::view::chart::{Axis, DrawStyle, Series, picture, plain_html};
use linerate_generate::check::Delay;
use std::fmt::Write as _;

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c1c1c;--dim:#6a6a6a;--rule:#d8d8d8;--back:#fff;\
--k0:#0b62c4;--k1:#c4380b;--k2:#2a8a3c;--k3:#8a4fb5;--k4:#b58900;--k5:#6a6a6a}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e6e6;--dim:#a0a0a0;--rule:#3a3a3a;--back:#161616;\
--k0:#6db3ff;--k1:#ff8a65;--k2:#7bd88f;--k3:#c9a0ee;--k4:#e6c35c;--k5:#a0a0a0}}\
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--back);margin:2em auto;padding:0 1.2em;max-width:62em}\
h1{font-size:1.6em;margin:0 0 .6em}h2{font-size:1.15em;margin:2em 0 .5em}\
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15em 1.2em;margin:0}dt{color:var(--dim)}\
dd{margin:0;overflow-wrap:anywhere}.wide{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}\
td,th{padding:.25em .9em .25em 0;text-align:right;white-space:nowrap}th{border-bottom:1px solid var(--dim);font-weight:600}\
td{border-bottom:1px solid var(--rule)}.l{text-align:left}details{margin:1em 0}summary{cursor:pointer}\
figure{margin:1em 0}svg{width:100%;max-width:720px;height:auto;display:block}figcaption{color:var(--dim);font-size:.9em}\
.grid{stroke:var(--rule);fill:none}.tick{fill:var(--dim);font-size:11px}.line{fill:none;stroke-width:1.8}.dash{stroke-dasharray:6 4}\
.c0{stroke:var(--k0);fill:var(--k0);color:var(--k0)}.c1{stroke:var(--k1);fill:var(--k1);color:var(--k1)}\
.c2{stroke:var(--k2);fill:var(--k2);color:var(--k2)}.c3{stroke:var(--k3);fill:var(--k3);color:var(--k3)}\
.c4{stroke:var(--k4);fill:var(--k4);color:var(--k4)}.c5{stroke:var(--k5);fill:var(--k5);color:var(--k5)}\
path.line{fill:none}";
/// Maximum number of trials in the table of each size.
const MOST_TRIALS: usize = 500;

/// Returns the report as HTML.
pub(super) fn html(report: &Report) -> String {
    let device = report.device.clone().unwrap_or_else(|| format!("{} to {}", report.to, report.check));
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>Measurement of {0}</title>\n<style>{STYLE}</style></head><body>\n\
         <h1>Measurement of {0}: {1}</h1>\n<dl>\n",
        plain_html(&device),
        plain_html(report.state)
    );
    for (name, what) in facts(report) {
        let _ = writeln!(text, "<dt>{name}</dt><dd>{}</dd>", plain_html(&what));
    }
    text += "</dl>\n";
    let mut pictures = vec![over_size(report)];
    for section in sections(report) {
        let _ = writeln!(text, "<h2>{}</h2>\n<div class=\"wide\"><table>", plain_html(&section.title));
        let is_left = |column: usize| column < section.numbers || section.left.contains(&column);
        text += &row(section.heads.iter().map(|head| (*head).to_owned()), "th", is_left);
        for cells in section.rows {
            text += &row(cells.into_iter(), "td", is_left);
        }
        text += "</table></div>\n";
        text += &pictures.pop().unwrap_or_default();
    }
    for size in report.sizes.iter().filter(|size| !size.trials.is_empty()) {
        text += &of_size(size);
    }
    text + "</body></html>\n"
}

fn row(cells: impl Iterator<Item = String>, kind: &str, is_left: impl Fn(usize) -> bool) -> String {
    let cell = |(column, cell): (usize, String)| {
        let class = if is_left(column) { " class=\"l\"" } else { "" };
        format!("<{kind}{class}>{}</{kind}>", plain_html(&cell))
    };
    format!("<tr>{}</tr>\n", cells.enumerate().map(cell).collect::<String>())
}

/// Plots rates over sizes, with the line rate (RFC 2544, section 26.1).
fn over_size(report: &Report) -> String {
    let mut series: Vec<Series> = Vec::new();
    for (colour, goal) in report.goals.iter().enumerate() {
        let points: Vec<(f64, f64)> =
            report.sizes.iter().filter_map(|size| Some((size.size as f64, size.lower_of(goal.name)?))).collect();
        series.push(Series { name: goal.name.to_owned(), draw: DrawStyle::Line, colour, points: points.clone() });
        series.push(Series { name: String::new(), draw: DrawStyle::Dots, colour, points });
    }
    let of = |rate: fn(&SizeReport) -> Option<f64>| {
        report.sizes.iter().filter_map(|size| Some((size.size as f64, rate(size)?))).collect::<Vec<_>>()
    };
    let name = |name: &str| name.to_owned();
    series.push(Series {
        name: name("line rate"),
        draw: DrawStyle::Dashes,
        colour: 5,
        points: of(|size| size.line_rate),
    });
    series.push(Series {
        name: name("tester maximum"),
        draw: DrawStyle::Dashes,
        colour: 4,
        points: of(|size| size.tester),
    });
    series.retain(|one| !one.points.is_empty());
    if report.goals.is_empty() || report.sizes.len() < 2 || series.is_empty() {
        return String::new();
    }
    let all = || series.iter().flat_map(|one| &one.points);
    let across = Axis::linear("bytes with FCS", all().map(|point| point.0));
    // The line rate is far above that of most devices.
    let up = Axis::logarithmic("packets/s", all().map(|point| point.1));
    picture("rate over frame size", across, up, &series)
}

/// Returns loss, latencies and trials of one size.
fn of_size(size: &SizeReport) -> String {
    let name = size.service.as_ref().map_or_else(|| format!("{} bytes", size.size), |name| format!("service {name}"));
    let mut text = format!("<h2>{}: trials</h2>\n", plain_html(&name));
    text += &loss_over_load(size);
    text += &distribution(size);
    if size.trials.len() > 1 {
        text += &trials_in_order(size);
    }
    text += &by_second(size);
    let _ = writeln!(text, "<details><summary>all trials ({})</summary><div class=\"wide\"><table>", size.trials.len());
    let heads = [
        "trial",
        "test",
        "packets/s",
        "s",
        "sent",
        "unsent",
        "late",
        "behind us",
        "received",
        "lost",
        "loss %",
        "foreign",
        "p99 us",
        "tester",
    ];
    let is_left = |column: usize| column == 1 || column == heads.len() - 1;
    text += &row(heads.iter().map(|head| (*head).to_owned()), "th", is_left);
    for trial in size.trials.iter().take(MOST_TRIALS) {
        text += &row(cells(trial).into_iter(), "td", is_left);
    }
    let more = size.trials.len().saturating_sub(MOST_TRIALS);
    if more > 0 {
        let _ = writeln!(text, "<tr><td colspan=\"14\" class=\"l\">{more} more in the JSON and CSV reports</td></tr>");
    }
    text + "</table></div></details>\n"
}

fn cells(trial: &Row) -> Vec<String> {
    let (account, counts) = (&trial.account, &trial.account.counts);
    let p99 = account.latency.latency_p99_ns;
    vec![
        trial.trial.to_string(),
        trial.test.to_owned(),
        format!("{:.0}", trial.offered),
        format!("{:.3}", trial.duration_s),
        counts.sent.to_string(),
        counts.unsent.to_string(),
        counts.late.to_string(),
        account.lateness_p99_us.map_or_else(|| "-".to_owned(), |us| format!("{us:.0}")),
        counts.received.to_string(),
        counts.lost.to_string(),
        format!("{:.4}", counts.loss_ratio * 100.0),
        counts.foreign.to_string(),
        p99.map_or_else(|| "-".to_owned(), |nanos| format!("{:.1}", nanos as f64 / 1e3)),
        account.tester.clone().unwrap_or_default(),
    ]
}

/// Plots loss over load: trials of the search, and steps of 26.3.
fn loss_over_load(size: &SizeReport) -> String {
    let point = |row: &Row| (row.offered, row.account.counts.loss_ratio * 100.0);
    let searched: Vec<(f64, f64)> = size.trials.iter().filter(|row| row.test == "throughput").map(point).collect();
    let steps: Vec<(f64, f64)> = size.loss.iter().map(|row| (row.load, row.loss_ratio * 100.0)).collect();
    if searched.is_empty() && steps.is_empty() {
        return String::new();
    }
    let all = || searched.iter().chain(&steps);
    let across = Axis::linear("packets/s offered", all().map(|point| point.0));
    let up = Axis::linear("% lost", all().map(|point| point.1));
    let mut series =
        vec![Series { name: "trials of the search".to_owned(), draw: DrawStyle::Dots, colour: 0, points: searched }];
    series.push(Series { name: "steps of 26.3".to_owned(), draw: DrawStyle::Line, colour: 1, points: steps });
    series.retain(|one| !one.points.is_empty());
    picture("loss over load", across, up, &series)
}

/// Plots latency percentiles, from the minimum to the maximum.
fn distribution(size: &SizeReport) -> String {
    let points = |delay: &Delay| -> Vec<(f64, f64)> {
        let all: [(f64, Option<i64>); 6] = [
            (0.0, delay.latency_min_ns),
            (50.0, delay.latency_p50_ns),
            (90.0, delay.latency_p90_ns),
            (99.0, delay.latency_p99_ns),
            (99.9, delay.latency_p999_ns),
            (99.99, delay.latency_max_ns),
        ];
        // The number of nines: the tail of the distribution matters most.
        let known = all.into_iter().filter_map(|(percent, nanos)| Some((percent, nanos?)));
        known.map(|(percent, nanos)| (-(1.0 - percent / 100.0).log10(), nanos.max(1) as f64 / 1e3)).collect()
    };
    let mut named: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for row in &size.at_loads {
        named.push((format!("{:.1} % of the result", row.of_result * 100.0), points(&row.latency)));
    }
    if let Some(run) = size.latency.as_ref().and_then(|test| test.runs.first()) {
        named.extend(
            run.iter().enumerate().map(|(way, run)| (format!("26.2, direction {}", way + 1), points(&run.latency))),
        );
    }
    if let Some(row) = size.throughput().and_then(|found| size.trials.iter().rev().find(|row| row.offered == found)) {
        named.push(("at the result".to_owned(), points(&row.account.latency)));
    }
    named.retain(|(_, points)| !points.is_empty());
    if named.is_empty() {
        return String::new();
    }
    let values: Vec<f64> = named.iter().flat_map(|(_, points)| points.iter().map(|point| point.1)).collect();
    let across = Axis {
        name: "percentile: 1 is p90, 2 is p99, 3 is p99.9, 4 is the maximum",
        least: 0.0,
        greatest: 4.1,
        is_logarithmic: false,
    };
    let up = Axis::logarithmic("latency, us", values.into_iter());
    let series = named.into_iter().enumerate().map(|(colour, (name, points))| Series {
        name,
        draw: DrawStyle::Line,
        colour,
        points,
    });
    picture("latency distribution", across, up, &series.collect::<Vec<_>>())
}

/// Plots the load of the trials in order.
fn trials_in_order(size: &SizeReport) -> String {
    let of = |is_good: bool| {
        let chosen =
            size.trials.iter().filter(|row| (row.account.counts.lost + row.account.counts.unsent == 0) == is_good);
        chosen.map(|row| (row.trial as f64, row.offered)).collect::<Vec<_>>()
    };
    let line = size.trials.iter().map(|row| (row.trial as f64, row.offered)).collect();
    let series = [
        Series { name: String::new(), draw: DrawStyle::Dashes, colour: 5, points: line },
        Series { name: "no loss".to_owned(), draw: DrawStyle::Dots, colour: 2, points: of(true) },
        Series { name: "loss".to_owned(), draw: DrawStyle::Crosses, colour: 1, points: of(false) },
    ];
    let across = Axis::linear("trial", size.trials.iter().map(|row| row.trial as f64));
    let up = Axis::logarithmic("packets/s", size.trials.iter().map(|row| row.offered));
    picture("trials in order", across, up, &series)
}

/// Plots a soak test: loss per second, latency per minute.
fn by_second(size: &SizeReport) -> String {
    let Some(soak) = &size.soak else { return String::new() };
    let lost: Vec<(f64, f64)> =
        soak.lossy_seconds.iter().map(|second| (second.second as f64, second.lost as f64)).collect();
    let across = Axis::linear("second", std::iter::once(soak.seconds));
    let up = Axis::linear("packets lost", lost.iter().map(|point| point.1));
    let mut text = picture(
        "loss per second",
        across,
        up,
        &[Series { name: String::new(), draw: DrawStyle::Dots, colour: 1, points: lost }],
    );
    let of = |nanos: fn(&super::Minute) -> Option<i64>| {
        let minutes =
            soak.minutes.iter().filter_map(|minute| Some((minute.minute as f64, nanos(minute)?.max(1) as f64 / 1e3)));
        minutes.collect::<Vec<_>>()
    };
    let series = [
        Series { name: "p50".to_owned(), draw: DrawStyle::Line, colour: 0, points: of(|minute| minute.latency_p50_ns) },
        Series { name: "p99".to_owned(), draw: DrawStyle::Line, colour: 1, points: of(|minute| minute.latency_p99_ns) },
        Series { name: "max".to_owned(), draw: DrawStyle::Dots, colour: 3, points: of(|minute| minute.latency_max_ns) },
    ];
    let all = || series.iter().flat_map(|one| &one.points);
    let across = Axis::linear("minute", all().map(|point| point.0));
    text += &picture("latency per minute", across, Axis::logarithmic("us", all().map(|point| point.1)), &series);
    text
}
