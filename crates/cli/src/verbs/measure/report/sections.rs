//! Tables of results, for terminals, Markdown and HTML.

use super::{Report, SizeReport};
use crate::view::rates::{bits_per_second, grouped};

/// Table of results.
pub(super) struct Section {
    /// Title, with the section of the RFC, marked if shortened.
    pub title: String,
    pub heads: Vec<&'static str>,
    /// Columns from this one on are numbers.
    pub numbers: usize,
    /// Columns among those that are text after all.
    pub left: Vec<usize>,
    pub rows: Vec<Vec<String>>,
}

/// Returns all tables that have rows.
pub(super) fn sections(report: &Report) -> Vec<Section> {
    let all = [
        throughput(report),
        at_loads(report),
        latency(report),
        loss(report),
        bursts(report),
        recovery(report),
        reset(report),
        forwarding(report),
        soak(report),
        services(report),
        performance(report),
    ];
    all.into_iter().filter(|section| !section.rows.is_empty()).collect()
}

/// Returns a table with a row for each item of `of`, for every size.
fn each<T>(
    report: &Report,
    title: &str,
    heads: &[&'static str],
    of: impl Fn(&SizeReport) -> Vec<T>,
    cells: impl Fn(&SizeReport, T) -> Vec<String>,
) -> Section {
    let rows = report.sizes.iter().flat_map(|size| {
        let rows: Vec<_> = of(size).into_iter().map(|one| cells(size, one)).collect();
        rows
    });
    Section { title: title.to_owned(), heads: heads.to_vec(), numbers: 1, left: Vec::new(), rows: rows.collect() }
}

/// Returns the title, marked if the test is shorter than its specification.
fn titled(title: &str, shortened: Option<&String>) -> String {
    shortened.map_or_else(|| title.to_owned(), |how| format!("{title} ({how})"))
}

fn known<T>(value: Option<T>, text: impl Fn(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), text)
}

fn frames(frames: f64) -> String {
    grouped(frames.round() as u64)
}

fn micros(nanos: Option<i64>) -> String {
    known(nanos, |nanos| format!("{:.1}", nanos as f64 / 1e3))
}

fn millis(seconds: f64) -> String {
    // The latency is unknown if nothing was received.
    if seconds.is_infinite() { "-".to_owned() } else { format!("{:.3}", seconds * 1e3) }
}

fn percent(part: f64) -> String {
    format!("{:.4}", part * 100.0)
}

/// Returns how many runs were limited by the tester.
fn limited(limited: usize, runs: usize) -> String {
    match limited {
        0 => String::new(),
        all if all == runs => "limited".to_owned(),
        some => format!("{some} of {runs} limited"),
    }
}

fn throughput(report: &Report) -> Section {
    let is_short = report.goals.iter().any(|goal| goal.name.starts_with("rfc2544") && goal.final_trial_s < 60.0);
    let title = match (report.method, is_short) {
        ("rfc2544", true) => "throughput, RFC 2544, 26.1 (shortened)",
        ("rfc2544", false) => "throughput, RFC 2544, 26.1",
        (_, true) => "rates of goals, RFC 9971 (shortened)",
        _ => "rates of goals, RFC 9971",
    };
    let heads = ["size", "goal", "packets/s", "L1", "lowest failing", "p50 us", "p99 us", "verdict"];
    let of = |size: &SizeReport| size.results.clone();
    let section = each(report, title, &heads, of, |size, result| {
        vec![
            size.size.to_string(),
            result.goal.to_owned(),
            known(result.lower, frames),
            known(result.gbps_l1, bits_per_second),
            known(result.upper, frames),
            micros(result.latency_p50_ns),
            micros(result.latency_p99_ns),
            result.verdict.to_owned(),
        ]
    });
    Section { numbers: 2, left: vec![7], ..section }
}

fn at_loads(report: &Report) -> Section {
    let heads = ["size", "% of result", "packets/s", "min us", "p50 us", "p99 us", "p99.9 us", "lost", "tester"];
    let section = each(
        report,
        "latency at parts of the result",
        &heads,
        |size| size.at_loads.clone(),
        |size, row| {
            vec![
                size.size.to_string(),
                format!("{:.1}", row.of_result * 100.0),
                frames(row.load),
                micros(row.latency.latency_min_ns),
                micros(row.latency.latency_p50_ns),
                micros(row.latency.latency_p99_ns),
                micros(row.latency.latency_p999_ns),
                grouped(row.lost),
                limited(usize::from(row.tester.is_some()), 1),
            ]
        },
    );
    Section { left: vec![8], ..section }
}

fn latency(report: &Report) -> Section {
    let first = report.sizes.iter().find_map(|size| size.latency.as_ref());
    let title = titled(
        "latency, RFC 2544, 26.2, from transmit to receive port",
        first.and_then(|test| test.shortened.as_ref()),
    );
    let heads = ["size", "packets/s", "tagged us", "typical us", "worst us", "max us", "runs", "tester"];
    let of = |size: &SizeReport| size.latency.clone().into_iter().collect();
    let section = each(report, &title, &heads, of, |size, test| {
        let faults = test.runs.iter().filter(|run| run.iter().any(|way| way.tester.is_some())).count();
        vec![
            size.size.to_string(),
            frames(test.load),
            known(test.tagged_mean_ns, |nanos| format!("{:.1}", nanos / 1e3)),
            micros(test.typical_ns),
            micros(test.worst_ns),
            micros(test.max_ns),
            test.runs.len().to_string(),
            limited(faults, test.runs.len()),
        ]
    });
    Section { left: vec![7], ..section }
}

fn loss(report: &Report) -> Section {
    let first = report.sizes.iter().find_map(|size| size.loss_shortened.as_ref());
    let title = titled("frame loss rate, RFC 2544, 26.3", first);
    let heads = ["size", "% of max", "packets/s", "loss %", "tester"];
    let section = each(
        report,
        &title,
        &heads,
        |size| size.loss.clone(),
        |size, row| {
            vec![
                size.size.to_string(),
                format!("{:.1}", row.of_max_load * 100.0),
                frames(row.load),
                percent(row.loss_ratio),
                limited(usize::from(row.tester.is_some()), 1),
            ]
        },
    );
    Section { left: vec![4], ..section }
}

fn bursts(report: &Report) -> Section {
    let first = report.sizes.iter().find_map(|size| size.bursts.as_ref());
    let shortened = first.and_then(|test| test.shortened.as_ref());
    let title = titled("back-to-back frames, RFC 2544, 26.4, and RFC 9004", shortened);
    let heads = ["size", "packets/s", "mean burst", "min", "max", "dev", "buffer ms", "frames", "note"];
    let of = |size: &SizeReport| size.bursts.clone().into_iter().collect();
    let section = each(report, &title, &heads, of, |size, test| {
        let note = match &test.tester {
            Some(_) => "limited by the tester",
            None if test.is_limited => "invalid: no loss at --burst-limit",
            None => "",
        };
        vec![
            size.size.to_string(),
            frames(test.greatest),
            known(test.mean, |mean| format!("{mean:.1}")),
            known(test.min, frames),
            known(test.max, frames),
            known(test.deviation, |deviation| format!("{deviation:.1}")),
            known(test.corrected_s, millis),
            known(test.buffer_frames, frames),
            note.to_owned(),
        ]
    });
    Section { left: vec![8], ..section }
}

fn recovery(report: &Report) -> Section {
    let first = report.sizes.iter().find_map(|size| size.recovery.as_ref());
    let title = titled("recovery from overload, RFC 2544, 26.5", first.and_then(|test| test.shortened.as_ref()));
    let heads = ["size", "overload", "halved", "lost", "lost after", "mean ms", "max ms", "runs", "tester"];
    let of = |size: &SizeReport| size.recovery.clone().into_iter().collect();
    let section = each(report, &title, &heads, of, |size, test| {
        let faults = test.runs.iter().filter(|run| run.iter().any(|way| way.tester.is_some())).count();
        let (before, after) = test
            .runs
            .iter()
            .flatten()
            .fold((0, 0), |(before, after), run| (before + run.lost_before, after + run.lost_after));
        vec![
            size.size.to_string(),
            frames(test.overload),
            frames(test.halved),
            grouped(before),
            grouped(after),
            known(test.mean_s, millis),
            known(test.max_s, millis),
            test.runs.len().to_string(),
            limited(faults, test.runs.len()),
        ]
    });
    Section { left: vec![8], ..section }
}

fn reset(report: &Report) -> Section {
    let heads = ["size", "packets/s", "by loss s", "by times s", "command s", "command", "tester"];
    let of = |size: &SizeReport| {
        let runs = |test: &super::Reset| test.runs.iter().map(|run| (test.load, run.clone())).collect();
        size.reset.as_ref().map_or_else(Vec::new, runs)
    };
    let section = each(report, "reset, RFC 2544, 26.6, and RFC 6201", &heads, of, |size, (load, run)| {
        vec![
            size.size.to_string(),
            frames(load),
            format!("{:.3}", run.by_loss_s),
            known(run.by_times_s, |seconds| format!("{seconds:.3}")),
            known(run.command_s, |seconds| format!("{seconds:.3}")),
            run.command,
            limited(usize::from(run.tester.is_some()), 1),
        ]
    });
    Section { left: vec![5, 6], ..section }
}

fn forwarding(report: &Report) -> Section {
    let heads = ["size", "offered", "mean", "min", "max", "dev", "trials", "tester"];
    let of = |size: &SizeReport| size.forwarding.clone().into_iter().collect();
    let title = "forwarding rate at the maximum load (MRR), packets/s";
    let section = each(report, title, &heads, of, |size, test: super::Forwarding| {
        vec![
            size.size.to_string(),
            frames(test.load * test.directions as f64),
            frames(test.mean),
            frames(test.min),
            frames(test.max),
            frames(test.deviation),
            test.rates.len().to_string(),
            limited(test.limited as usize, test.rates.len()),
        ]
    });
    Section { left: vec![7], ..section }
}

fn soak(report: &Report) -> Section {
    let heads =
        ["size", "packets/s", "time", "lost", "loss %", "events", "worst s", "available %", "p99 us", "verdict"];
    let of = |size: &SizeReport| size.soak.clone().into_iter().collect();
    let section = each(report, "soak", &heads, of, |size, test: super::SoakTest| {
        vec![
            size.size.to_string(),
            frames(test.load),
            super::clock(test.seconds),
            grouped(test.lost),
            percent(test.loss_ratio),
            test.events.len().to_string(),
            known(test.worst_second, |(second, lost)| format!("{second} ({})", grouped(lost))),
            format!("{:.3}", test.availability * 100.0),
            micros(test.latency_p99_ns),
            test.verdict.to_owned(),
        ]
    });
    Section { left: vec![9], ..section }
}

fn services(report: &Report) -> Section {
    let heads = ["service", "step", "kb/s", "received", "loss %", "delay ms", "variation ms", "verdict"];
    let row = |step: &super::ServiceStep| {
        vec![
            step.service.clone(),
            step.step.clone(),
            grouped((step.rate_bps / 1e3).round() as u64),
            grouped((step.received_bps / 1e3).round() as u64),
            percent(step.loss_ratio),
            millis(step.delay_s),
            millis(step.variation_s),
            step.verdict.to_owned(),
        ]
    };
    let rows = report.services.iter().map(row).collect();
    let title = "service configuration, ITU-T Y.1564; layer 2 rates, p99.9 delays".to_owned();
    Section { title, heads: heads.to_vec(), numbers: 2, left: vec![7], rows }
}

fn performance(report: &Report) -> Section {
    let heads = ["service", "s", "sent", "lost", "loss %", "delay ms", "variation ms", "available %", "verdict"];
    let row = |row: &super::PerformanceRow| {
        vec![
            row.service.clone(),
            row.seconds.to_string(),
            grouped(row.sent),
            grouped(row.lost),
            percent(row.loss_ratio),
            millis(row.delay_s),
            millis(row.variation_s),
            format!("{:.3}", row.availability * 100.0),
            row.verdict.to_owned(),
        ]
    };
    let rows = report.performance.iter().map(row).collect();
    let title = "service performance, ITU-T Y.1564: all services together".to_owned();
    Section { title, heads: heads.to_vec(), numbers: 1, left: vec![8], rows }
}
