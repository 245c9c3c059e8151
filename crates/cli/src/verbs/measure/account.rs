//! What came of a trial.

use crate::view::rates::counted;
use linerate_engine::check::CheckReport;
use linerate_engine::replay;
use linerate_engine::streams::StreamsReport;
use linerate_generate::check::{Check, Delay, StreamRow};
use linerate_generate::stream::StreamSet;
use linerate_measure::trial::loss_ratio;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Frames of so many seconds are not missed: a sender has to stop somewhere (as CSIT has it).
const FORGIVEN: f64 = 10e-6;
/// Where more than this part was not sent, it was the tester that could not.
const LIMITED: f64 = 0.001;
/// A packet is late when it left more than this many gaps of its load after it was due, and no sooner than this duration.
const LATE: (f64, Duration) = (10.0, replay::LATE);

/// Where more than this part was sent late, the load was not the one asked for, whatever was lost.
const LIMITED_LATE: f64 = 0.1;

/// How long after it was due a packet of this load (packets per second) is late.
pub(super) fn late_after(load: f64) -> Duration {
    let gaps = if load > 0.0 { LATE.0 / load } else { 0.0 };
    Duration::try_from_secs_f64(gaps).unwrap_or(Duration::MAX).max(LATE.1)
}

/// Numbers of frames.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Counts {
    /// Frames that were to be sent.
    pub intended: u64,
    /// Frames that were.
    pub sent: u64,
    /// Of those to be sent; what is forgiven is not in it.
    pub unsent: u64,
    /// Of those sent: packets that left late, which a device may lose because they come in lumps.
    pub late: u64,
    /// Distinct frames that came undamaged.
    pub received: u64,
    /// Sent, and not received so.
    pub lost: u64,
    /// Of those expected: sent and unsent ones.
    pub loss_ratio: f64,
    /// Received again.
    pub duplicated: u64,
    /// Received out of order.
    pub reordered: u64,
    /// Received with a wrong checksum; they count as lost.
    pub corrupted: u64,
    /// Frames at the receiving port that were none of this trial.
    pub foreign: u64,
    /// Frames that the tester's own receiving port lost.
    pub lost_by_tester: u64,
}

/// What came of a trial, in all its directions together.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Account {
    #[serde(flatten)]
    pub counts: Counts,
    /// How long sending took.
    pub seconds: f64,
    /// Latencies; of two directions those of the one with the greater p99.
    #[serde(flatten)]
    pub latency: Delay,
    /// How much later than due frames left, of 99 in 100; nothing where nobody measured that.
    pub behind_p99_us: Option<f64>,
    /// How far apart the first frames of both directions came.
    pub starts_apart_us: Option<f64>,
    /// What the tester itself did not do, if anything.
    pub tester: Option<String>,
    /// What went wrong at a port.
    pub failure: Option<String>,
    /// Each direction.
    pub ways: Vec<Way>,
}

/// One direction of a trial.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Way {
    /// The port that sent.
    pub from: String,
    /// The port that received.
    pub to: String,
    #[serde(flatten)]
    pub counts: Counts,
    /// How long sending took.
    pub seconds: f64,
    #[serde(flatten)]
    pub latency: Delay,
    /// How much later than due frames left, of 99 in 100; nothing where nobody measured that.
    pub behind_p99_us: Option<f64>,
    /// What the tester itself lost where, by the names of its counters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tester_losses: BTreeMap<&'static str, u64>,
    /// Each stream, or phase.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamAccount>,
    #[serde(skip)]
    pub rows: Vec<StreamRow>,
    #[serde(skip)]
    pub first_ns: Option<u64>,
    #[serde(skip)]
    pub failure: Option<String>,
}

/// One stream of a direction.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct StreamAccount {
    pub stream: String,
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    pub latency_p50_ns: Option<i64>,
    pub latency_p99_ns: Option<i64>,
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        for (all, one) in [
            (&mut self.intended, other.intended),
            (&mut self.sent, other.sent),
            (&mut self.unsent, other.unsent),
            (&mut self.late, other.late),
            (&mut self.received, other.received),
            (&mut self.lost, other.lost),
            (&mut self.duplicated, other.duplicated),
            (&mut self.reordered, other.reordered),
            (&mut self.corrupted, other.corrupted),
            (&mut self.foreign, other.foreign),
            (&mut self.lost_by_tester, other.lost_by_tester),
        ] {
            *all += one;
        }
        self.loss_ratio = loss_ratio(self.sent + self.unsent, self.received);
    }
}

/// What was sent in a direction, and the account of what came.
pub(super) struct Made<'a> {
    /// Frames that each stream has sent, by its number.
    pub per_stream: &'a [u64],
    /// And all together.
    pub frames: u64,
    pub check: &'a Check,
    pub elapsed: Duration,
    pub behind_p99_us: Option<f64>,
    /// Packets that left late.
    pub late: u64,
    /// What the tester itself lost.
    pub losses: BTreeMap<&'static str, u64>,
    pub lost_by_tester: u64,
    pub failure: Option<String>,
}

impl<'a> Made<'a> {
    /// Of a sender and a receiver that have ended, where packets of this load were sent.
    pub(super) fn new(sent: &'a StreamsReport, received: &'a CheckReport, load: f64) -> Self {
        let behind = &sent.timing.behind;
        let losses = sent.ledger.losses().into_iter().chain(received.run.ledger.losses());
        let failures =
            [sent.failure.as_ref().map(ToString::to_string), received.run.failure.as_ref().map(ToString::to_string)];
        Made {
            per_stream: &sent.per_stream,
            frames: sent.sent.frames,
            check: &received.check,
            elapsed: sent.elapsed,
            behind_p99_us: (behind.count() > 0).then(|| behind.quantile(0.99).as_secs_f64() * 1e6),
            late: behind.longer_than(late_after(load)),
            losses: losses.map(|(count, frames)| (count.name(), frames)).collect(),
            lost_by_tester: received.run.ledger.lost(),
            failure: failures.into_iter().flatten().next(),
        }
    }
}

impl Way {
    /// Of what was sent and received; `intended` in how many seconds, where that is known. Streams are told one by one if they are few.
    pub(super) fn new(intended: Option<(u64, f64)>, set: &StreamSet, made: &Made<'_>, is_each_told: bool) -> Self {
        let report = made.check.report(Some(made.per_stream));
        let summary = report.summary();
        let counts = summary.counts;
        let frames = made.frames;
        let (intended, forgiven) = match intended {
            Some((frames, seconds)) => (frames, (frames as f64 / seconds.max(1e-9) * FORGIVEN).ceil() as u64),
            None => (frames, 0),
        };
        let unsent = intended.saturating_sub(frames);
        let unsent = if unsent <= forgiven { 0 } else { unsent };
        let came = frames.saturating_sub(counts.lost).saturating_sub(counts.corrupted);
        let rows: Vec<StreamRow> = report.rows().collect();
        let named = |row: &StreamRow| {
            let found = set.streams.iter().find(|stream| stream.id == row.stream);
            StreamAccount {
                stream: found.map_or_else(|| row.stream.to_string(), |stream| stream.name.clone()),
                sent: row.counts.sent.unwrap_or(0),
                received: row.counts.received - row.counts.duplicated.min(row.counts.received),
                lost: row.counts.lost,
                latency_p50_ns: row.delay.latency_p50_ns,
                latency_p99_ns: row.delay.latency_p99_ns,
            }
        };
        Way {
            from: String::new(),
            to: String::new(),
            counts: Counts {
                intended,
                sent: frames,
                unsent,
                late: made.late,
                received: came,
                lost: frames - came,
                loss_ratio: loss_ratio(frames + unsent, came),
                duplicated: counts.duplicated,
                reordered: counts.reordered,
                corrupted: counts.corrupted,
                foreign: summary.foreign,
                lost_by_tester: made.lost_by_tester,
            },
            seconds: made.elapsed.as_secs_f64(),
            latency: summary.delay,
            behind_p99_us: made.behind_p99_us,
            tester_losses: made.losses.clone(),
            streams: if is_each_told { rows.iter().map(named).collect() } else { Vec::new() },
            rows,
            first_ns: summary.pace.first_time_ns,
            failure: made.failure.clone(),
        }
    }

    /// What the tester itself did not do.
    pub(super) fn own_fault(&self) -> Option<String> {
        let Counts { intended, sent, unsent, late, lost, lost_by_tester, .. } = self.counts;
        let behind = self.behind_p99_us.map_or_else(String::new, |us| format!(" (p99 {us:.0} us)"));
        let own = [
            (
                unsent as f64 > LIMITED * intended as f64,
                format!("did not send {unsent} of {}", counted(intended, "frame")),
            ),
            // Those that the device lost may be those that came to it in lumps.
            (
                lost > 0 && lost <= late || late as f64 > LIMITED_LATE * sent as f64,
                format!("sent {late} of {sent} packets late{behind}"),
            ),
            (lost_by_tester > 0, format!("lost {} at its own receiving port", counted(lost_by_tester, "frame"))),
        ];
        let own: Vec<String> = own.into_iter().filter(|(is, _)| *is).map(|(_, what)| what).collect();
        (!own.is_empty()).then(|| own.join("; "))
    }
}

impl Account {
    /// Of all directions.
    pub(super) fn new(ways: Vec<Way>) -> Self {
        let mut account = Account::default();
        for way in &ways {
            account.counts.add(&way.counts);
            account.seconds = account.seconds.max(way.seconds);
            account.behind_p99_us = account.behind_p99_us.into_iter().chain(way.behind_p99_us).reduce(f64::max);
            if account.latency.latency_p99_ns.is_none_or(|p99| way.latency.latency_p99_ns > Some(p99)) {
                account.latency = way.latency;
            }
            let named = |fault: String| match ways.len() {
                1 => fault,
                _ => format!("{fault} ({} to {})", way.from, way.to),
            };
            if let Some(fault) = way.own_fault() {
                let before = account.tester.take().map_or_else(String::new, |before| format!("{before}; "));
                account.tester = Some(before + &named(fault));
            }
            account.failure = account.failure.take().or_else(|| way.failure.clone());
        }
        if let [Some(one), Some(other)] = ways.iter().map(|way| way.first_ns).collect::<Vec<_>>()[..] {
            account.starts_apart_us = Some(one.abs_diff(other) as f64 / 1e3);
        }
        account.ways = ways;
        account
    }

    /// What to look at where packets were sent, and not one arrived anywhere.
    pub(super) fn nothing_arrived(&self) -> Option<String> {
        let is_silent = |way: &Way| {
            let Counts { sent, received, corrupted, lost_by_tester, .. } = way.counts;
            sent > 0 && received + corrupted + lost_by_tester == 0
        };
        let way = self.ways.first().filter(|_| self.ways.iter().all(is_silent))?;
        Some(nothing_arrived(&way.to))
    }

    /// Frames a second that came through, in all directions together, in so many seconds.
    pub(super) fn forwarded(&self, seconds: f64) -> f64 {
        self.counts.received as f64 / seconds
    }
}

/// What to look at where nothing arrives at a port.
pub(super) fn nothing_arrived(port: &str) -> String {
    format!("nothing arrived at {port}: check the cabling, the addresses (-k), --answer and --gateway")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(intended: u64, sent: u64, received: u64) -> Way {
        let unsent = intended - sent;
        let counts = Counts {
            intended,
            sent,
            unsent,
            received,
            lost: sent - received,
            loss_ratio: loss_ratio(intended, received),
            ..Counts::default()
        };
        Way { from: "a".into(), to: "b".into(), counts, ..Way::default() }
    }

    /// One dead direction of two is half of all.
    #[test]
    fn loss_is_of_all_directions_together() {
        let account = Account::new(vec![way(1000, 1000, 1000), way(1000, 1000, 0)]);
        assert_eq!((account.counts.lost, account.counts.loss_ratio, account.tester), (1000, 0.5, None));
        let account = Account::new(vec![way(1000, 900, 900), way(1000, 1000, 1000)]);
        assert_eq!(account.counts.loss_ratio, 0.05, "what was not sent counts as lost");
        assert!(account.tester.unwrap().contains("did not send 100 of 1,000 frames (a to b)"));
    }
}
