//! Results of tests, for reports.

use crate::verbs::measure::account::DirectionResult;
use linerate_generate::check::Delay;
use linerate_measure::burst::buffer;
use linerate_measure::statistics::Spread;
use serde::Serialize;

/// Latency at a part of the result.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LoadLatency {
    pub of_result: f64,
    pub load: f64,
    pub lost: u64,
    pub tester: Option<String>,
    #[serde(flatten)]
    pub latency: Delay,
}

/// Latency test (RFC 2544, 26.2; RFC 8219, section 7.2).
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LatencyTest {
    pub load: f64,
    pub seconds: f64,
    pub shortened: Option<String>,
    /// Mean of the tagged frames over all runs and directions.
    pub tagged_mean_ns: Option<f64>,
    /// Median of the medians (RFC 8219).
    pub typical_ns: Option<i64>,
    /// Median of the 99.9th percentiles (RFC 8219).
    pub worst_ns: Option<i64>,
    pub max_ns: Option<i64>,
    pub runs: Vec<Vec<LatencyRun>>,
}

/// One direction of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LatencyRun {
    /// Latency of the frame in the middle; null if it was lost.
    pub tagged_ns: Option<i64>,
    pub lost: u64,
    /// Failure of the tester itself.
    pub tester: Option<String>,
    #[serde(flatten)]
    pub latency: Delay,
}

/// Step of the loss rate test (26.3).
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LossRow {
    pub of_max_load: f64,
    pub load: f64,
    pub loss_ratio: f64,
    pub by_direction: Vec<f64>,
    pub tester: Option<String>,
}

/// Back-to-back test (26.4, updated by RFC 9004).
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bursts {
    /// Frames per second within bursts.
    pub greatest: f64,
    pub throughput: f64,
    pub limit: u64,
    /// Resolution of burst lengths in frames.
    pub step: u64,
    pub shortened: Option<String>,
    /// Longest burst of each run.
    pub frames: Vec<u64>,
    /// Rate of the longest burst of each run.
    pub rates: Vec<f64>,
    pub mean: Option<f64>,
    pub min: Option<f64>,
    pub max: Option<f64>,
    pub deviation: Option<f64>,
    /// Buffer size in seconds (RFC 9004, section 6.4).
    pub implied_s: Option<f64>,
    pub corrected_s: Option<f64>,
    pub buffer_frames: Option<f64>,
    /// True if the longest burst tried was without loss: the limit of the device is unknown.
    pub is_limited: bool,
    /// Failure of the tester itself in all repetitions of a burst, which ended the test.
    pub tester: Option<String>,
    pub trials: u64,
}

/// Recovery from overload (26.5).
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Recovery {
    pub overload: f64,
    pub halved: f64,
    pub shortened: Option<String>,
    pub mean_s: Option<f64>,
    pub max_s: Option<f64>,
    pub runs: Vec<Vec<RecoveryRun>>,
}

/// One direction of a run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct RecoveryRun {
    /// Frames lost during the overload.
    pub lost_before: u64,
    /// Frames lost after the load was halved.
    pub lost_after: u64,
    /// Time from halving the load to the last lost frame, with a resolution of 1 ms in the first 0.2 s.
    pub seconds: f64,
    /// Failure of the tester itself: the run is not part of the mean.
    pub tester: Option<String>,
}

/// Reset test (26.6).
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Reset {
    pub load: f64,
    pub command: String,
    pub runs: Vec<ResetRun>,
}

/// Result of one reset.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ResetRun {
    /// Recovery time by frame loss (RFC 6201, 4.1.1).
    pub by_loss_s: f64,
    /// Recovery time by timestamps (RFC 6201, 4.1.2).
    pub by_times_s: Option<f64>,
    /// Duration of the command.
    pub command_s: Option<f64>,
    /// Exit status of the command.
    pub command: String,
    /// Failure of the tester itself.
    pub tester: Option<String>,
}

/// Forwarding rate at the maximum load.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Forwarding {
    pub load: f64,
    /// Number of directions that the rates cover.
    pub directions: usize,
    pub rates: Vec<f64>,
    pub mean: f64,
    pub min: f64,
    pub max: f64,
    pub deviation: f64,
    /// Trials limited by the tester: the device may forward more.
    pub limited: u64,
    /// First failure of the tester itself.
    pub tester: Option<String>,
}

impl LatencyTest {
    pub(crate) fn new(load: f64, seconds: f64, shortened: Option<String>) -> Self {
        LatencyTest {
            load,
            seconds,
            shortened,
            tagged_mean_ns: None,
            typical_ns: None,
            worst_ns: None,
            max_ns: None,
            runs: Vec::new(),
        }
    }

    /// Adds a run.
    pub(crate) fn add(&mut self, directions: Vec<LatencyRun>) {
        self.runs.push(directions);
        let all = || self.runs.iter().flatten();
        let median = |of: fn(&LatencyRun) -> Option<i64>| {
            let mut values: Vec<i64> = all().filter_map(of).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied()
        };
        let tagged: Vec<f64> = all().filter_map(|run| run.tagged_ns).map(|nanos| nanos as f64).collect();
        let (typical, worst) = (median(|run| run.latency.latency_p50_ns), median(|run| run.latency.latency_p999_ns));
        let max = all().filter_map(|run| run.latency.latency_max_ns).max();
        self.tagged_mean_ns = Spread::of(&tagged).map(|spread| spread.mean);
        (self.typical_ns, self.worst_ns, self.max_ns) = (typical, worst, max);
    }
}

impl LatencyRun {
    /// Creates the result of a direction; the second phase is the tagged frame.
    pub(crate) fn of(way: &DirectionResult) -> Self {
        let tagged = way.rows.iter().find(|row| row.stream == 1);
        LatencyRun {
            tagged_ns: tagged.and_then(|row| row.delay.latency_min_ns),
            lost: way.counts.lost,
            tester: way.own_fault(),
            latency: way.latency,
        }
    }
}

impl Bursts {
    pub(crate) fn new(greatest: f64, throughput: f64, limit: u64, shortened: Option<String>) -> Self {
        Bursts {
            greatest,
            throughput,
            limit,
            step: 1,
            shortened,
            frames: Vec::new(),
            rates: Vec::new(),
            mean: None,
            min: None,
            max: None,
            deviation: None,
            implied_s: None,
            corrected_s: None,
            buffer_frames: None,
            is_limited: false,
            tester: None,
            trials: 0,
        }
    }

    /// Adds a run, with its number of trials.
    pub(crate) fn add(&mut self, frames: u64, is_limited: bool, trials: u64, rate: f64) {
        self.frames.push(frames);
        self.rates.push(rate);
        self.is_limited |= is_limited;
        self.trials += trials;
        let found: Vec<f64> = self.frames.iter().map(|frames| *frames as f64).collect();
        let (Some(spread), Some(rate)) = (Spread::of(&found), Spread::of(&self.rates)) else { return };
        (self.mean, self.min, self.max) = (Some(spread.mean), Some(spread.least), Some(spread.greatest));
        self.deviation = Some(spread.deviation);
        let found = buffer(spread.mean, rate.mean, self.throughput).filter(|_| !self.is_limited);
        self.implied_s = found.map(|found| found.implied);
        self.corrected_s = found.map(|found| found.corrected);
        self.buffer_frames = found.map(|found| found.corrected * rate.mean);
    }
}

impl Recovery {
    pub(crate) fn new(overload: f64, halved: f64, shortened: Option<String>) -> Self {
        Recovery { overload, halved, shortened, mean_s: None, max_s: None, runs: Vec::new() }
    }

    /// Adds a run.
    pub(crate) fn add(&mut self, directions: Vec<RecoveryRun>) {
        self.runs.push(directions);
        let of_device = self.runs.iter().flatten().filter(|run| run.tester.is_none());
        let all: Vec<f64> = of_device.map(|run| run.seconds).collect();
        let spread = Spread::of(&all);
        (self.mean_s, self.max_s) = (spread.map(|spread| spread.mean), spread.map(|spread| spread.greatest));
    }
}

impl Reset {
    pub(crate) fn new(load: f64, command: &str) -> Self {
        Reset { load, command: command.to_owned(), runs: Vec::new() }
    }
}

impl Forwarding {
    pub(crate) fn new(load: f64, directions: usize, rates: &[f64], spread: &Spread, faults: &[String]) -> Self {
        let Spread { mean, least, greatest, deviation, .. } = *spread;
        let (limited, tester) = (faults.len() as u64, faults.first().cloned());
        let rates = rates.to_vec();
        Forwarding { load, directions, rates, mean, min: least, max: greatest, deviation, limited, tester }
    }
}
