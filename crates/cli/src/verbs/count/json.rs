//! `linerate/count/1`: one line per interval, and a summary as the last line.

use super::rows::{CountReadings, CountedPorts, RowIncrease, RowSubject};
use crate::view::ledger::RunJson;
use crate::view::rates::Rates;
use crate::view::terminal::show_line;
use linerate_burst::Sizes;
use linerate_engine::count::{Busiest, CountSnapshot, Mix, TrafficCounts, Windows};
use linerate_engine::{CountWatch, RunReport, Stop};
use linerate_generate::rate::FCS;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;

const SCHEMA: &str = "linerate/count/1";

/// Prints a line per interval. The run ends when standard output is closed.
pub(super) fn ticker(subject: CountedPorts, watch: CountWatch, stop: Stop) -> impl FnMut() + Send {
    let mut looks = CountReadings::new(watch);
    move || {
        looks.look(|before, now| {
            if !show_line(&IntervalJson::new(&subject, before, now)).unwrap_or_default() {
                stop.request();
            }
        });
    }
}

/// Counters of one interval: frames and drops of this interval only.
#[derive(Serialize)]
struct IntervalJson {
    schema: &'static str,
    record: &'static str,
    /// Time since the start of the run.
    elapsed_seconds: f64,
    #[serde(flatten)]
    total: GainJson,
    by_port: Vec<PlacedJson<GainJson>>,
    by_queue: Vec<PlacedJson<GainJson>>,
}

#[derive(Serialize)]
struct GainJson {
    frames: u64,
    bytes: u64,
    seconds: f64,
    #[serde(flatten)]
    rates: Rates,
    #[serde(flatten)]
    drops: DropsJson,
}

/// The last line.
#[derive(Serialize)]
pub(super) struct SummaryJson {
    schema: &'static str,
    record: &'static str,
    ports: Vec<String>,
    filter: String,
    #[serde(flatten)]
    counts: CountsJson,
    #[serde(flatten)]
    run: RunJson,
}

/// Counters so far, printed on request.
#[derive(Serialize)]
pub(super) struct SoFarJson<'a> {
    schema: &'static str,
    record: &'static str,
    ports: &'a [String],
    filter: &'a str,
    #[serde(flatten)]
    counts: CountsJson,
    #[serde(flatten)]
    drops: DropsJson,
}

/// Counters of all ports, each port and each queue.
#[derive(Serialize)]
pub(crate) struct CountsJson {
    elapsed_seconds: f64,
    #[serde(flatten)]
    total: CountedJson,
    delivered: u64,
    by_port: Vec<PlacedJson<RowJson>>,
    by_queue: Vec<PlacedJson<RowJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bursts: Option<BurstsJson>,
}

/// The busiest windows.
#[derive(Serialize)]
struct BurstsJson {
    windows: Vec<WindowJson>,
    /// Frames out of order, which are in no window.
    late: u64,
}

/// Busiest windows of one length: by frames, and by bytes at layer 1.
#[derive(Serialize)]
struct WindowJson {
    window_ns: u64,
    frames: u64,
    mpps: f64,
    frames_at_ns: u64,
    l1_bytes: u64,
    gbps_l1: f64,
    l1_at_ns: u64,
}

#[derive(Serialize)]
struct RowJson {
    #[serde(flatten)]
    counted: CountedJson,
    #[serde(flatten)]
    drops: DropsJson,
}

/// Counters of one port or queue.
#[derive(Serialize)]
struct PlacedJson<T> {
    port: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<usize>,
    #[serde(flatten)]
    inside: T,
}

/// Losses of queues, by cause.
#[derive(Serialize)]
struct DropsJson {
    lost: u64,
    drops: BTreeMap<&'static str, u64>,
}

/// Sizes count the FCS, bytes do not.
#[derive(Serialize)]
struct CountedJson {
    received: u64,
    frames: u64,
    bytes: u64,
    seconds: f64,
    /// Source of `seconds`: the `run`, or the `frames` of a file.
    time_base: &'static str,
    first_time_ns: Option<u64>,
    last_time_ns: Option<u64>,
    #[serde(flatten)]
    rates: Rates,
    peak_mpps: f64,
    peak_gbps_l1: f64,
    size_min_bytes: Option<u64>,
    size_mean_bytes: Option<f64>,
    size_max_bytes: Option<u64>,
    #[serde(serialize_with = "buckets")]
    sizes: Sizes,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocols: Option<ProtocolsJson>,
}

/// Frames by protocol header; `unknown`: not parsed to the end.
#[derive(Serialize)]
struct ProtocolsJson {
    #[serde(flatten)]
    known: BTreeMap<&'static str, u64>,
    unknown: u64,
}

impl IntervalJson {
    fn new(subject: &CountedPorts, before: &CountSnapshot, now: &CountSnapshot) -> Self {
        let gain = |place, from, to| GainJson::new(subject.gain(place, from, to, (before.elapsed, now.elapsed)));
        let ports = subject.ports(now).zip(&before.ports);
        let queues = subject.queues(now).zip(&before.queues);
        IntervalJson {
            schema: SCHEMA,
            record: "interval",
            elapsed_seconds: now.elapsed.as_secs_f64(),
            total: gain(RowSubject::All, &before.all, &now.all),
            by_port: ports.map(|((at, to), from)| placed(subject, at, gain(at, from, to))).collect(),
            by_queue: queues.map(|((at, to), from)| placed(subject, at, gain(at, from, to))).collect(),
        }
    }
}

impl GainJson {
    fn new(gain: RowIncrease) -> Self {
        let RowIncrease { frames, bytes, seconds, rates, lost } = gain;
        GainJson { frames, bytes, seconds, rates, drops: DropsJson::new(lost.into_iter()) }
    }
}

impl SummaryJson {
    pub(super) fn new(
        subject: &CountedPorts,
        filter: &str,
        protocols: bool,
        counts: &CountSnapshot,
        run: &RunReport,
    ) -> Self {
        SummaryJson {
            schema: SCHEMA,
            record: "summary",
            ports: subject.names.clone(),
            filter: filter.to_owned(),
            counts: CountsJson::new(subject, protocols, counts),
            run: RunJson::new(run),
        }
    }
}

impl<'a> SoFarJson<'a> {
    pub(super) fn new(subject: &'a CountedPorts, filter: &'a str, protocols: bool, counts: &CountSnapshot) -> Self {
        let lost = counts.all.lost.iter().map(|(cause, lost)| (cause.name(), *lost));
        SoFarJson {
            schema: SCHEMA,
            record: "so_far",
            ports: &subject.names,
            filter,
            counts: CountsJson::new(subject, protocols, counts),
            drops: DropsJson::new(lost),
        }
    }
}

impl CountsJson {
    /// Converts the counts of these ports.
    pub(crate) fn new(subject: &CountedPorts, protocols: bool, counts: &CountSnapshot) -> Self {
        let counted = |place, row: &TrafficCounts| CountedJson::new(subject, place, row, counts, protocols);
        let row = |(place, row): (RowSubject, &TrafficCounts)| {
            let drops = DropsJson::new(row.lost.iter().map(|(cause, lost)| (cause.name(), *lost)));
            placed(subject, place, RowJson { counted: counted(place, row), drops })
        };
        CountsJson {
            elapsed_seconds: counts.elapsed.as_secs_f64(),
            total: counted(RowSubject::All, &counts.all),
            delivered: counts.all.traffic.frames,
            by_port: subject.ports(counts).map(row).collect(),
            by_queue: subject.queues(counts).map(row).collect(),
            bursts: counts.windows.as_ref().map(BurstsJson::new),
        }
    }
}

impl BurstsJson {
    fn new(windows: &Windows) -> Self {
        let window = |busiest: Busiest| {
            let seconds = busiest.span.as_secs_f64();
            WindowJson {
                window_ns: busiest.span.as_nanos() as u64,
                frames: busiest.frames,
                mpps: busiest.frames as f64 / seconds / 1e6,
                frames_at_ns: busiest.frames_at.0,
                l1_bytes: busiest.l1_bytes,
                gbps_l1: busiest.l1_bytes as f64 * 8.0 / seconds / 1e9,
                l1_at_ns: busiest.l1_at.0,
            }
        };
        BurstsJson { windows: windows.busiest().map(window).into(), late: windows.late() }
    }
}

impl CountedJson {
    fn new(
        subject: &CountedPorts,
        place: RowSubject,
        counted: &TrafficCounts,
        counts: &CountSnapshot,
        protocols: bool,
    ) -> Self {
        let traffic = &counted.traffic;
        let seconds = subject.seconds(place, counted, counts.elapsed);
        let size = |length: u32| u64::from(length) + FCS;
        let rates = Rates::new(traffic.frames, traffic.bytes, seconds);
        let (peak_mpps, peak_gbps_l1) = super::rows::peaks(traffic, &rates);
        CountedJson {
            received: counted.received,
            frames: traffic.frames,
            bytes: traffic.bytes,
            seconds,
            time_base: if subject.is_recorded(place) { "frames" } else { "run" },
            first_time_ns: traffic.span.map(|(first, _)| first.0),
            last_time_ns: traffic.span.map(|(_, last)| last.0),
            rates,
            peak_mpps,
            peak_gbps_l1,
            size_min_bytes: traffic.lengths.map(|(least, _)| size(least)),
            size_mean_bytes: super::text::mean_size(traffic),
            size_max_bytes: traffic.lengths.map(|(_, most)| size(most)),
            sizes: traffic.sizes,
            protocols: protocols.then(|| ProtocolsJson::new(&counted.mix)),
        }
    }
}

impl ProtocolsJson {
    fn new(mix: &Mix) -> Self {
        let known = mix.protocols().map(|(protocol, frames)| (protocol.name(), frames)).collect();
        ProtocolsJson { known, unknown: mix.unknown() }
    }
}

impl DropsJson {
    fn new(losses: impl Iterator<Item = (&'static str, u64)>) -> Self {
        let drops: BTreeMap<_, _> = losses.collect();
        DropsJson { lost: drops.values().sum(), drops }
    }
}

fn placed<T>(subject: &CountedPorts, place: RowSubject, inside: T) -> PlacedJson<T> {
    let [port, _] = subject.label(place);
    let queue = if let RowSubject::Queue(_, queue) = place { Some(queue) } else { None };
    PlacedJson { port, queue, inside }
}

fn buckets<S: Serializer>(sizes: &Sizes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(sizes.buckets().map(|(least, most, frames)| (super::text::bucket(least, most), frames)))
}
