//! What the views of a count have in common: names of ports and queues, and over which time rates are taken.

use crate::verbs::inputs::is_file;
use crate::view::rates::Rates;
use linerate_backends::REGISTRY;
use linerate_burst::Nanos;
use linerate_engine::Watch;
use linerate_engine::count::{Counted, Counts, Traffic};
use linerate_port::Spec;
use std::time::Duration;

/// Which ports are counted.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    /// As the user named them.
    pub names: Vec<String>,
    /// The number of the first queue of each port.
    first_queues: Vec<usize>,
    /// Whether each is a recording, whose frames came at their own time and not at that of the run.
    recorded: Vec<bool>,
}

/// How the columns are called that a row is known by.
pub(super) fn heads(counts: &Counts) -> &'static [&'static str] {
    if counts.places.len() > counts.ports.len() { &["port", "queue"] } else { &["port"] }
}

/// Where a row belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    All,
    Port(usize),
    /// Its port, and the number of the queue there.
    Queue(usize, usize),
}

impl Subject {
    pub(crate) fn new(specs: &[Spec]) -> Self {
        let queues = |spec: &Spec| REGISTRY.innermost(spec).ok().and_then(|(_, at)| at.queues);
        Subject {
            names: specs.iter().map(ToString::to_string).collect(),
            first_queues: specs.iter().map(|spec| queues(spec).map_or(0, |(first, _)| first as usize)).collect(),
            recorded: specs.iter().map(is_file).collect(),
        }
    }

    /// Every queue.
    pub(crate) fn queues<'a>(&'a self, counts: &'a Counts) -> impl Iterator<Item = (Place, &'a Counted)> {
        let place = |(port, queue): (usize, usize)| Place::Queue(port, self.first_queues[port] + queue);
        counts.places.iter().map(move |at| place(*at)).zip(&counts.queues)
    }

    /// Every port.
    pub(crate) fn ports<'a>(&'a self, counts: &'a Counts) -> impl Iterator<Item = (Place, &'a Counted)> {
        counts.ports.iter().enumerate().map(|(port, counted)| (Place::Port(port), counted))
    }

    /// For people: the queues of each port that received anything, then the port where it has several; at last all
    /// of them.
    pub(crate) fn rows<'a>(&'a self, counts: &'a Counts) -> Vec<(Place, &'a Counted)> {
        let mut rows = Vec::new();
        for (port, sum) in counts.ports.iter().enumerate() {
            let several = counts.places.iter().filter(|place| place.0 == port).count() > 1;
            let of_port = |place: &Place| matches!(place, Place::Queue(of, _) if *of == port);
            let queues =
                self.queues(counts).filter(|(place, queue)| of_port(place) && (!several || queue.received > 0));
            rows.extend(queues);
            if several {
                rows.push((Place::Port(port), sum));
            }
        }
        if counts.ports.len() > 1 {
            rows.push((Place::All, &counts.all));
        }
        rows
    }

    /// What a row is called: its port, its queue.
    pub(crate) fn label(&self, place: Place) -> [String; 2] {
        match place {
            Place::All => ["all".into(), String::new()],
            Place::Port(port) => [self.names[port].clone(), "all".into()],
            Place::Queue(port, queue) => [self.names[port].clone(), queue.to_string()],
        }
    }

    /// The same under the heads of a table, which has a column of queues only where a port has several.
    pub(crate) fn known_by(&self, place: Place, counts: &Counts) -> impl Iterator<Item = String> + use<> {
        self.label(place).into_iter().take(heads(counts).len())
    }

    /// Whether the time that counts is that of the frames, not that of the run.
    pub(crate) fn is_recorded(&self, place: Place) -> bool {
        match place {
            Place::All => self.recorded.iter().all(|recorded| *recorded),
            Place::Port(port) | Place::Queue(port, _) => self.recorded[port],
        }
    }

    /// Over how many seconds a row was counted.
    pub(crate) fn seconds(&self, place: Place, counted: &Counted, elapsed: Duration) -> f64 {
        let (first, last) = counted.traffic.span.unwrap_or_default();
        let time = if self.is_recorded(place) { last.since(first) } else { elapsed };
        time.as_secs_f64()
    }
}

/// The peak rates of a row, in millions of frames and Gb/s at layer 1: the most in one second of the clock, but never less than
/// the mean, which is the better figure of less than a second and of parts of two.
pub(super) fn peaks(traffic: &Traffic, mean: &Rates) -> (f64, f64) {
    let (frames, l1) = (traffic.peak.frames as f64 / 1e6, traffic.peak.l1_bytes as f64 * 8.0 / 1e9);
    (frames.max(mean.mpps.unwrap_or(0.0)), l1.max(mean.gbps_l1.unwrap_or(0.0)))
}

/// One look after the other at what a run counts.
pub(super) struct Looks {
    watch: Watch,
    before: Option<Counts>,
}

impl Looks {
    pub(super) fn new(watch: Watch) -> Self {
        Looks { watch, before: None }
    }

    /// Shows the counts of the last look beside those of now, unless the run has brought nothing newer.
    pub(super) fn look(&mut self, show: impl FnOnce(&Counts, &Counts)) {
        let now = self.watch.counts();
        let before = self.before.take().unwrap_or_else(|| now.beginning());
        let is_newer = now.elapsed > before.elapsed;
        if is_newer {
            show(&before, &now);
        }
        self.before = Some(if is_newer { now } else { before });
    }
}

/// What a row has gained between two looks.
pub(crate) struct Gain {
    pub frames: u64,
    pub bytes: u64,
    pub seconds: f64,
    pub rates: Rates,
    pub lost: Vec<(&'static str, u64)>,
}

impl Subject {
    /// From `before` to `now`, which were seen when the run had taken `elapsed`, before and now.
    pub(crate) fn gain(&self, place: Place, before: &Counted, now: &Counted, elapsed: (Duration, Duration)) -> Gain {
        let newest = |traffic: &Traffic| traffic.span.map(|(_, last)| last);
        let begin = newest(&before.traffic).or(now.traffic.span.map(|(first, _)| first)).unwrap_or(Nanos::ZERO);
        let recorded = newest(&now.traffic).unwrap_or(begin).since(begin);
        let time = if self.is_recorded(place) { recorded } else { elapsed.1.saturating_sub(elapsed.0) };
        let (frames, bytes) = (now.traffic.frames - before.traffic.frames, now.traffic.bytes - before.traffic.bytes);
        let seconds = time.as_secs_f64();
        let lost_before = |cause| before.lost.iter().find(|(known, _)| *known == cause).map_or(0, |(_, lost)| *lost);
        let lost = now.lost.iter().map(|(cause, lost)| (cause.name(), lost.saturating_sub(lost_before(*cause))));
        Gain {
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

    fn counted(received: u64) -> Counted {
        Counted { received, ..Counted::default() }
    }

    #[test]
    fn queues_have_the_numbers_asked_for_and_silent_ones_of_several_are_left_out() {
        let specs = ["xdp:x0@2-4", "pcap:f", "packet:y0"].map(|text| Spec::parse(text).unwrap());
        let subject = Subject::new(&specs);
        let counts = Counts {
            ports: vec![counted(7), counted(0), counted(5)],
            queues: vec![counted(3), counted(0), counted(4), counted(0), counted(5)],
            places: vec![(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)],
            ..Counts::default()
        };
        let labels: Vec<String> =
            subject.rows(&counts).iter().map(|(place, _)| subject.label(*place).join(" ")).collect();
        assert_eq!(labels, ["xdp:x0@2-4 2", "xdp:x0@2-4 4", "xdp:x0@2-4 all", "pcap:f 0", "packet:y0 0", "all "]);
        let recorded = [Place::All, Place::Port(0), Place::Queue(1, 0)].map(|place| subject.is_recorded(place));
        assert_eq!(recorded, [false, false, true]);
    }
}
