//! Results of a trial.

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

/// Tolerance in seconds: frames of this time may remain unsent at the end of a trial (as in CSIT).
const FORGIVEN: f64 = 10e-6;
/// A trial is limited by the tester if more than this part was not sent.
const LIMITED: f64 = 0.001;
/// A packet is late if it left more than this many gaps of its load, and more than this duration, after its due time.
const LATE: (f64, Duration) = (10.0, replay::LATE);

/// A trial is limited by the tester if more than this part was sent late, regardless of loss.
const LIMITED_LATE: f64 = 0.1;

/// Returns the delay after which a packet of this load (packets per second) is late.
pub(super) fn late_after(load: f64) -> Duration {
    let gaps = if load > 0.0 { LATE.0 / load } else { 0.0 };
    Duration::try_from_secs_f64(gaps).unwrap_or(Duration::MAX).max(LATE.1)
}

/// Frame counters of a trial.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct TrialCounts {
    /// Frames to send.
    pub intended: u64,
    /// Frames sent.
    pub sent: u64,
    /// Frames not sent, beyond the tolerance.
    pub unsent: u64,
    /// Frames sent late, which a device may drop because they arrive in bursts.
    pub late: u64,
    /// Distinct frames received intact.
    pub received: u64,
    /// Frames sent but not received intact.
    pub lost: u64,
    /// Part of the sent and unsent frames that was not received.
    pub loss_ratio: f64,
    /// Frames received more than once.
    pub duplicated: u64,
    /// Received out of order.
    pub reordered: u64,
    /// Received with a wrong checksum; they count as lost.
    pub corrupted: u64,
    /// Frames received that are not part of this trial.
    pub foreign: u64,
    /// Frames lost by the tester's own receiving port.
    pub lost_by_tester: u64,
}

/// Result of a trial, over all directions.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct TrialResult {
    #[serde(flatten)]
    pub counts: TrialCounts,
    /// Duration of sending in seconds.
    pub seconds: f64,
    /// Latencies; of two directions those of the one with the greater p99.
    #[serde(flatten)]
    pub latency: Delay,
    /// 99th percentile of the delay of sending after the due time, if measured.
    pub lateness_p99_us: Option<f64>,
    /// Time between the first received frames of both directions.
    pub starts_apart_us: Option<f64>,
    /// Failure of the tester itself, if any.
    pub tester: Option<String>,
    /// Failure of a port.
    pub failure: Option<String>,
    /// Each direction.
    pub directions: Vec<DirectionResult>,
}

/// One direction of a trial.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct DirectionResult {
    /// Sending port.
    pub from: String,
    /// Receiving port.
    pub to: String,
    #[serde(flatten)]
    pub counts: TrialCounts,
    /// Duration of sending in seconds.
    pub seconds: f64,
    #[serde(flatten)]
    pub latency: Delay,
    /// 99th percentile of the delay of sending after the due time, if measured.
    pub lateness_p99_us: Option<f64>,
    /// Losses of the tester itself, by counter.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub tester_losses: BTreeMap<&'static str, u64>,
    /// Result of each stream, or phase.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamAccount>,
    #[serde(skip)]
    pub rows: Vec<StreamRow>,
    #[serde(skip)]
    pub first_ns: Option<u64>,
    #[serde(skip)]
    pub failure: Option<String>,
}

/// Result of one stream of a direction.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct StreamAccount {
    pub stream: String,
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    pub latency_p50_ns: Option<i64>,
    pub latency_p99_ns: Option<i64>,
}

impl TrialCounts {
    fn add(&mut self, other: &TrialCounts) {
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

/// Frames sent in one direction, and the check of those received.
pub(super) struct SentFrames<'a> {
    /// Frames sent per stream, by stream number.
    pub per_stream: &'a [u64],
    /// Frames sent by all streams.
    pub frames: u64,
    pub check: &'a Check,
    pub elapsed: Duration,
    pub lateness_p99_us: Option<f64>,
    /// Frames sent late.
    pub late: u64,
    /// Losses of the tester itself, by counter.
    pub losses: BTreeMap<&'static str, u64>,
    pub lost_by_tester: u64,
    pub failure: Option<String>,
}

impl<'a> SentFrames<'a> {
    /// Combines the reports of sender and receiver, for this load.
    pub(super) fn new(sent: &'a StreamsReport, received: &'a CheckReport, load: f64) -> Self {
        let behind = &sent.timing.behind;
        let losses = sent.ledger.losses().into_iter().chain(received.run.ledger.losses());
        let failures =
            [sent.failure.as_ref().map(ToString::to_string), received.run.failure.as_ref().map(ToString::to_string)];
        SentFrames {
            per_stream: &sent.per_stream,
            frames: sent.sent.frames,
            check: &received.check,
            elapsed: sent.elapsed,
            lateness_p99_us: (behind.count() > 0).then(|| behind.quantile(0.99).as_secs_f64() * 1e6),
            late: behind.longer_than(late_after(load)),
            losses: losses.map(|(count, frames)| (count.name(), frames)).collect(),
            lost_by_tester: received.run.ledger.lost(),
            failure: failures.into_iter().flatten().next(),
        }
    }
}

impl DirectionResult {
    /// Computes the result of a direction; `intended` are the frames to send and their duration in seconds, if known.
    /// With `per_stream` the result has each stream.
    pub(super) fn new(intended: Option<(u64, f64)>, set: &StreamSet, made: &SentFrames<'_>, per_stream: bool) -> Self {
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
        let received = frames.saturating_sub(counts.lost).saturating_sub(counts.corrupted);
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
        DirectionResult {
            from: String::new(),
            to: String::new(),
            counts: TrialCounts {
                intended,
                sent: frames,
                unsent,
                late: made.late,
                received,
                lost: frames - received,
                loss_ratio: loss_ratio(frames + unsent, received),
                duplicated: counts.duplicated,
                reordered: counts.reordered,
                corrupted: counts.corrupted,
                foreign: summary.foreign,
                lost_by_tester: made.lost_by_tester,
            },
            seconds: made.elapsed.as_secs_f64(),
            latency: summary.delay,
            lateness_p99_us: made.lateness_p99_us,
            tester_losses: made.losses.clone(),
            streams: if per_stream { rows.iter().map(named).collect() } else { Vec::new() },
            rows,
            first_ns: summary.pace.first_time_ns,
            failure: made.failure.clone(),
        }
    }

    /// Returns the failure of the tester itself, if any.
    pub(super) fn own_fault(&self) -> Option<String> {
        let TrialCounts { intended, sent, unsent, late, lost, lost_by_tester, .. } = self.counts;
        let behind = self.lateness_p99_us.map_or_else(String::new, |us| format!(" (p99 {us:.0} us)"));
        let own = [
            (
                unsent as f64 > LIMITED * intended as f64,
                format!("did not send {unsent} of {}", counted(intended, "packet")),
            ),
            // The device may have dropped packets because they arrived in bursts.
            (
                lost > 0 && lost <= late || late as f64 > LIMITED_LATE * sent as f64,
                format!("sent {late} of {sent} packets late{behind}"),
            ),
            (lost_by_tester > 0, format!("lost {} at its own receiving port", counted(lost_by_tester, "packet"))),
        ];
        let own: Vec<String> = own.into_iter().filter(|(is, _)| *is).map(|(_, what)| what).collect();
        (!own.is_empty()).then(|| own.join("; "))
    }
}

impl TrialResult {
    /// Combines the results of all directions.
    pub(super) fn new(directions: Vec<DirectionResult>) -> Self {
        let mut account = TrialResult::default();
        for way in &directions {
            account.counts.add(&way.counts);
            account.seconds = account.seconds.max(way.seconds);
            account.lateness_p99_us = account.lateness_p99_us.into_iter().chain(way.lateness_p99_us).reduce(f64::max);
            if account.latency.latency_p99_ns.is_none_or(|p99| way.latency.latency_p99_ns > Some(p99)) {
                account.latency = way.latency;
            }
            let named = |fault: String| match directions.len() {
                1 => fault,
                _ => format!("{fault} ({} to {})", way.from, way.to),
            };
            if let Some(fault) = way.own_fault() {
                let before = account.tester.take().map_or_else(String::new, |before| format!("{before}; "));
                account.tester = Some(before + &named(fault));
            }
            account.failure = account.failure.take().or_else(|| way.failure.clone());
        }
        if let [Some(one), Some(other)] = directions.iter().map(|way| way.first_ns).collect::<Vec<_>>()[..] {
            account.starts_apart_us = Some(one.abs_diff(other) as f64 / 1e3);
        }
        account.directions = directions;
        account
    }

    /// Returns an error if packets were sent, but none was received in any direction.
    pub(super) fn nothing_arrived(&self) -> Option<String> {
        let is_silent = |way: &DirectionResult| {
            let TrialCounts { sent, received, corrupted, lost_by_tester, .. } = way.counts;
            sent > 0 && received + corrupted + lost_by_tester == 0
        };
        let way = self.directions.first().filter(|_| self.directions.iter().all(is_silent))?;
        Some(nothing_arrived(&way.to))
    }

    /// Returns the forwarded frames per second, over all directions, for a duration in seconds.
    pub(super) fn forwarded(&self, seconds: f64) -> f64 {
        self.counts.received as f64 / seconds
    }
}

/// Returns the error for a port that receives nothing.
pub(super) fn nothing_arrived(port: &str) -> String {
    format!("{port}: nothing received; check the cabling, the addresses (-k), --answer and --gateway")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(intended: u64, sent: u64, received: u64) -> DirectionResult {
        let unsent = intended - sent;
        let counts = TrialCounts {
            intended,
            sent,
            unsent,
            received,
            lost: sent - received,
            loss_ratio: loss_ratio(intended, received),
            ..TrialCounts::default()
        };
        DirectionResult { from: "a".into(), to: "b".into(), counts, ..DirectionResult::default() }
    }

    /// If one of two directions fails, the loss is 50 %.
    #[test]
    fn loss_covers_all_directions() {
        let account = TrialResult::new(vec![way(1000, 1000, 1000), way(1000, 1000, 0)]);
        assert_eq!((account.counts.lost, account.counts.loss_ratio, account.tester), (1000, 0.5, None));
        let account = TrialResult::new(vec![way(1000, 900, 900), way(1000, 1000, 1000)]);
        assert_eq!(account.counts.loss_ratio, 0.05, "unsent frames count as lost");
        assert!(account.tester.unwrap().contains("did not send 100 of 1,000 packets (a to b)"));
    }
}
