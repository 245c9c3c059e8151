//! Rows of all views of a count: names of ports and queues, and the time that rates refer to.

use crate::verbs::inputs::is_file;
use crate::view::rates::Rates;
use linerate_backends::REGISTRY;
use linerate_burst::Nanos;
use linerate_engine::CountWatch;
use linerate_engine::count::{CountSnapshot, Traffic, TrafficCounts};
use linerate_port::Spec;
use std::time::Duration;

/// Ports of a count.
#[derive(Clone, Debug)]
pub(crate) struct CountedPorts {
    /// As the user named them.
    pub names: Vec<String>,
    /// First queue of each port.
    first_queues: Vec<usize>,
    /// True for each capture file: its rates refer to timestamps, not to the time of the run.
    recorded: Vec<bool>,
}

/// Returns the heads of the columns that identify a row.
pub(super) fn heads(counts: &CountSnapshot) -> &'static [&'static str] {
    if counts.places.len() > counts.ports.len() { &["port", "queue"] } else { &["port"] }
}

/// Port or queue of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowSubject {
    All,
    Port(usize),
    /// Port, and number of its queue.
    Queue(usize, usize),
}

impl CountedPorts {
    pub(crate) fn new(specs: &[Spec]) -> Self {
        let queues = |spec: &Spec| REGISTRY.innermost(spec).ok().and_then(|(_, at)| at.queues);
        CountedPorts {
            names: specs.iter().map(ToString::to_string).collect(),
            first_queues: specs.iter().map(|spec| queues(spec).map_or(0, |(first, _)| first as usize)).collect(),
            recorded: specs.iter().map(is_file).collect(),
        }
    }

    /// Returns the counts of all queues.
    pub(crate) fn queues<'a>(
        &'a self,
        counts: &'a CountSnapshot,
    ) -> impl Iterator<Item = (RowSubject, &'a TrafficCounts)> {
        let place = |(port, queue): (usize, usize)| RowSubject::Queue(port, self.first_queues[port] + queue);
        counts.places.iter().map(move |at| place(*at)).zip(&counts.queues)
    }

    /// Returns the counts of all ports.
    pub(crate) fn ports<'a>(
        &'a self,
        counts: &'a CountSnapshot,
    ) -> impl Iterator<Item = (RowSubject, &'a TrafficCounts)> {
        counts.ports.iter().enumerate().map(|(port, counted)| (RowSubject::Port(port), counted))
    }

    /// Returns the rows of the report: queues that received packets, each port with several queues, and the total.
    pub(crate) fn rows<'a>(&'a self, counts: &'a CountSnapshot) -> Vec<(RowSubject, &'a TrafficCounts)> {
        let mut rows = Vec::new();
        for (port, sum) in counts.ports.iter().enumerate() {
            let several = counts.places.iter().filter(|place| place.0 == port).count() > 1;
            let of_port = |place: &RowSubject| matches!(place, RowSubject::Queue(of, _) if *of == port);
            let queues =
                self.queues(counts).filter(|(place, queue)| of_port(place) && (!several || queue.received > 0));
            rows.extend(queues);
            if several {
                rows.push((RowSubject::Port(port), sum));
            }
        }
        if counts.ports.len() > 1 {
            rows.push((RowSubject::All, &counts.all));
        }
        rows
    }

    /// Returns the name of a row: its port, its queue.
    pub(crate) fn label(&self, place: RowSubject) -> [String; 2] {
        match place {
            RowSubject::All => ["total".into(), String::new()],
            RowSubject::Port(port) => [self.names[port].clone(), "all".into()],
            RowSubject::Queue(port, queue) => [self.names[port].clone(), queue.to_string()],
        }
    }

    /// Returns the same for a table, which has a column of queues only if a port has several.
    pub(crate) fn key_columns(
        &self,
        place: RowSubject,
        counts: &CountSnapshot,
    ) -> impl Iterator<Item = String> + use<> {
        self.label(place).into_iter().take(heads(counts).len())
    }

    /// Returns whether rates refer to timestamps, not to the time of the run.
    pub(crate) fn is_recorded(&self, place: RowSubject) -> bool {
        match place {
            RowSubject::All => self.recorded.iter().all(|recorded| *recorded),
            RowSubject::Port(port) | RowSubject::Queue(port, _) => self.recorded[port],
        }
    }

    /// Returns the duration of a row in seconds.
    pub(crate) fn seconds(&self, place: RowSubject, counted: &TrafficCounts, elapsed: Duration) -> f64 {
        let (first, last) = counted.traffic.span.unwrap_or_default();
        let time = if self.is_recorded(place) { last.since(first) } else { elapsed };
        time.as_secs_f64()
    }
}

/// Returns the peak rates of a row, in Mpps and Gb/s at layer 1: the maximum within one second of the clock, but at
/// least the mean, which is more exact for less than a second or parts of two.
pub(super) fn peaks(traffic: &Traffic, mean: &Rates) -> (f64, f64) {
    let (frames, l1) = (traffic.peak.frames as f64 / 1e6, traffic.peak.l1_bytes as f64 * 8.0 / 1e9);
    (frames.max(mean.mpps.unwrap_or(0.0)), l1.max(mean.gbps_l1.unwrap_or(0.0)))
}

/// Successive readings of the counts of a run.
pub(super) struct CountReadings {
    watch: CountWatch,
    before: Option<CountSnapshot>,
}

impl CountReadings {
    pub(super) fn new(watch: CountWatch) -> Self {
        CountReadings { watch, before: None }
    }

    /// Calls `show` with the previous and the current counts, if these are newer.
    pub(super) fn look(&mut self, show: impl FnOnce(&CountSnapshot, &CountSnapshot)) {
        let now = self.watch.counts();
        let before = self.before.take().unwrap_or_else(|| now.beginning());
        let is_newer = now.elapsed > before.elapsed;
        if is_newer {
            show(&before, &now);
        }
        self.before = Some(if is_newer { now } else { before });
    }
}

/// Increase of a row between two readings.
pub(crate) struct RowIncrease {
    pub frames: u64,
    pub bytes: u64,
    pub seconds: f64,
    pub rates: Rates,
    pub lost: Vec<(&'static str, u64)>,
}

impl CountedPorts {
    /// Returns the increase from `before` to `now`, read at the two times `elapsed`.
    pub(crate) fn gain(
        &self,
        place: RowSubject,
        before: &TrafficCounts,
        now: &TrafficCounts,
        elapsed: (Duration, Duration),
    ) -> RowIncrease {
        let newest = |traffic: &Traffic| traffic.span.map(|(_, last)| last);
        let begin = newest(&before.traffic).or(now.traffic.span.map(|(first, _)| first)).unwrap_or(Nanos::ZERO);
        let recorded = newest(&now.traffic).unwrap_or(begin).since(begin);
        let time = if self.is_recorded(place) { recorded } else { elapsed.1.saturating_sub(elapsed.0) };
        let (frames, bytes) = (now.traffic.frames - before.traffic.frames, now.traffic.bytes - before.traffic.bytes);
        let seconds = time.as_secs_f64();
        let lost_before = |cause| before.lost.iter().find(|(known, _)| *known == cause).map_or(0, |(_, lost)| *lost);
        let lost = now.lost.iter().map(|(cause, lost)| (cause.name(), lost.saturating_sub(lost_before(*cause))));
        RowIncrease {
            frames,
            bytes,
            seconds,
            rates: Rates::new(frames, bytes, seconds),
            lost: lost.filter(|(_, lost)| *lost > 0).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(received: u64) -> TrafficCounts {
        TrafficCounts { received, ..TrafficCounts::default() }
    }

    #[test]
    fn queues_keep_their_numbers_and_idle_ones_are_omitted() {
        let specs = ["xdp:x0@2-4", "pcap:f", "packet:y0"].map(|text| Spec::parse(text).unwrap());
        let subject = CountedPorts::new(&specs);
        let counts = CountSnapshot {
            ports: vec![counted(7), counted(0), counted(5)],
            queues: vec![counted(3), counted(0), counted(4), counted(0), counted(5)],
            places: vec![(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)],
            ..CountSnapshot::default()
        };
        let labels: Vec<String> =
            subject.rows(&counts).iter().map(|(place, _)| subject.label(*place).join(" ")).collect();
        assert_eq!(labels, ["xdp:x0@2-4 2", "xdp:x0@2-4 4", "xdp:x0@2-4 all", "pcap:f 0", "packet:y0 0", "total "]);
        let recorded =
            [RowSubject::All, RowSubject::Port(0), RowSubject::Queue(1, 0)].map(|place| subject.is_recorded(place));
        assert_eq!(recorded, [false, false, true]);
    }
}
