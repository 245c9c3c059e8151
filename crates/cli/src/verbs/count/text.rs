//! Report of a count: tables.

use super::rows::{CountedPorts, RowSubject, heads, peaks};
use crate::view::rates::{Rates, bits_per_second, frames_per_second, grouped, stated};
use crate::view::table::table;
use linerate_burst::Nanos;
use linerate_burst::Sizes;
use linerate_engine::count::{Busiest, CountSnapshot, Traffic, TrafficCounts, Windows};
use linerate_generate::rate::FCS;

/// Returns the report.
pub(crate) fn summary(subject: &CountedPorts, protocols: bool, counts: &CountSnapshot) -> String {
    let mut text = totals(subject, counts) + &sizes(subject, counts);
    text += &counts.windows.as_ref().map(bursts).unwrap_or_default();
    if protocols {
        text += &mix(subject, counts);
    }
    text
}

/// Returns the mean size of a frame, with the FCS.
pub(super) fn mean_size(traffic: &Traffic) -> Option<f64> {
    (traffic.frames > 0).then(|| traffic.bytes as f64 / traffic.frames as f64 + FCS as f64)
}

/// Returns the name of a bucket of sizes.
pub(super) fn bucket(least: u32, most: Option<u32>) -> String {
    match most {
        Some(most) if least == most => least.to_string(),
        Some(most) => format!("{least}-{most}"),
        None => format!("{least}-"),
    }
}

/// Returns the losses by cause.
pub(super) fn losses(lost: impl Iterator<Item = (&'static str, u64)>) -> String {
    let causes: Vec<String> = lost.map(|(cause, frames)| format!("{} {cause}", grouped(frames))).collect();
    if causes.is_empty() { "0".into() } else { causes.join(", ") }
}

fn totals(subject: &CountedPorts, counts: &CountSnapshot) -> String {
    let others = ["packets", "bytes", "lost", "mean rate", "L1", "L2", "peak rate", "peak L1", "size"];
    let keys = heads(counts);
    let mut rows = table(&[keys, &others].concat(), keys.len());
    for (place, counted) in subject.rows(counts) {
        let traffic = &counted.traffic;
        let rates = Rates::new(traffic.frames, traffic.bytes, subject.seconds(place, counted, counts.elapsed));
        let (peak, peak_l1) = peaks(traffic, &rates);
        let cells = [
            grouped(traffic.frames),
            grouped(traffic.bytes),
            losses(counted.lost.iter().map(|(cause, lost)| (cause.name(), *lost))),
            rates.frames(),
            rates.l1(),
            rates.l2(),
            frames_per_second(peak),
            bits_per_second(peak_l1),
            size_range(traffic),
        ];
        rows.add_row(subject.key_columns(place, counts).chain(cells));
    }
    format!("{rows}\n  {}\n", explanation(subject, counts))
}

/// Returns the smallest, mean and largest size.
fn size_range(traffic: &Traffic) -> String {
    let Some(((least, most), mean)) = traffic.lengths.zip(mean_size(traffic)) else { return String::new() };
    format!("{} / {mean:.0} / {}", u64::from(least) + FCS, u64::from(most) + FCS)
}

fn explanation(subject: &CountedPorts, counts: &CountSnapshot) -> String {
    let ports = || subject.ports(counts);
    let recorded = ports().filter(|(place, _)| subject.is_recorded(*place)).count();
    let of_frames = "the time from the first packet to the last";
    let of_run = format!("the {:.3} s of the run", counts.elapsed.as_secs_f64());
    let time = match recorded {
        0 => of_run,
        all if all == ports().count() => of_frames.to_owned(),
        _ => format!("{of_run}, of files over {of_frames}"),
    };
    format!("means over {time}\n  peak: highest second; size: min / mean / max with FCS; bytes: without FCS")
}

fn sizes(subject: &CountedPorts, counts: &CountSnapshot) -> String {
    let buckets: Vec<String> = Sizes::default().buckets().map(|(least, most, _)| bucket(least, most)).collect();
    let keys = heads(counts);
    let heads: Vec<&str> = keys.iter().copied().chain(buckets.iter().map(String::as_str)).collect();
    let mut rows = table(&heads, keys.len());
    for (place, counted) in subject.rows(counts) {
        let frames = counted.traffic.sizes.buckets().map(|(_, _, frames)| grouped(frames));
        rows.add_row(subject.key_columns(place, counts).chain(frames));
    }
    format!("\n  packets by size (RFC 2819, with FCS):\n{rows}\n\n")
}

fn bursts(windows: &Windows) -> String {
    let mut rows = table(&["window", "max packets", "rate", "at", "max L1 rate", "at"], 1);
    for Busiest { span, frames, frames_at, l1_bytes, l1_at } in windows.busiest() {
        let seconds = span.as_secs_f64();
        rows.add_row([
            format!("{} us", span.as_micros()),
            grouped(frames),
            frames_per_second(frames as f64 / seconds / 1e6),
            time_of_day(frames_at),
            bits_per_second(l1_bytes as f64 * 8.0 / seconds / 1e9),
            time_of_day(l1_at),
        ]);
    }
    let late = match windows.late() {
        0 => String::new(),
        late => format!("  {}, not counted in windows\n", stated(late, "packets were out of order")),
    };
    format!("  busiest windows, by timestamps (UTC):\n{rows}\n{late}\n")
}

/// Formats hour, minute, second and microsecond, in UTC.
fn time_of_day(time: Nanos) -> String {
    let seconds = time.seconds() % 86_400;
    let micros = time.0 % 1_000_000_000 / 1000;
    format!("{:02}:{:02}:{:02}.{micros:06}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn mix(subject: &CountedPorts, counts: &CountSnapshot) -> String {
    let columns: Vec<(RowSubject, &TrafficCounts)> = if counts.ports.len() > 1 {
        subject.ports(counts).chain([(RowSubject::All, &counts.all)]).collect()
    } else {
        vec![(RowSubject::All, &counts.all)]
    };
    let label = |place| if columns.len() > 1 { subject.label(place)[0].clone() } else { "packets".into() };
    let labels: Vec<String> = columns.iter().map(|(place, _)| label(*place)).collect();
    let heads: Vec<&str> = ["protocol"].into_iter().chain(labels.iter().map(String::as_str)).chain(["share"]).collect();
    let mut rows = table(&heads, 1);
    let all = counts.all.traffic.frames;
    let part = |frames: u64| format!("{:.1} %", frames as f64 / all.max(1) as f64 * 100.0);
    for (protocol, sum) in counts.all.mix.protocols() {
        let frames = columns.iter().map(|(_, counted)| {
            let found = counted.mix.protocols().find(|(known, _)| *known == protocol);
            grouped(found.map_or(0, |(_, frames)| frames))
        });
        rows.add_row([protocol.name().to_owned()].into_iter().chain(frames).chain([part(sum)]));
    }
    let unknown = columns.iter().map(|(_, counted)| grouped(counted.mix.unknown()));
    rows.add_row(["unknown".to_owned()].into_iter().chain(unknown).chain([part(counts.all.mix.unknown())]));
    format!("  packets by protocol header (unknown: not parsed to the end):\n{rows}\n\n")
}
