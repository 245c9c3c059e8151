//! Results of soak tests and services, for reports.

use crate::verbs::measure::account::TrialResult;
use crate::view::rates::grouped;
use linerate_generate::check::StreamRow;
use linerate_measure::service::{Kind, Service, StepResult};
use linerate_measure::soak::{Event, PeriodCounts, Soak};
use serde::Serialize;

/// Result of a soak test.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SoakTest {
    pub load: f64,
    pub max_loss_ratio: f64,
    pub max_latency_s: Option<f64>,
    pub seconds: f64,
    pub sent: u64,
    pub lost: u64,
    pub loss_ratio: f64,
    pub worst_second: Option<(u64, u64)>,
    pub availability: f64,
    pub events: Vec<EventJson>,
    /// Minutes by the clock during the run, and by the time of sending at the end.
    pub minutes: Vec<Minute>,
    /// First seconds with loss.
    pub lossy_seconds: Vec<SoakSecond>,
    pub latency_p99_ns: Option<i64>,
    /// `kept`, `not kept`, or `running`.
    pub verdict: &'static str,
    #[serde(skip)]
    soak: Soak,
}

/// Result of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct SoakSecond {
    pub second: u64,
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
}

/// Result of one minute.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Minute {
    pub minute: u64,
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
    pub latency_p50_ns: Option<i64>,
    pub latency_p99_ns: Option<i64>,
    pub latency_max_ns: Option<i64>,
}

/// Consecutive seconds with loss.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct EventJson {
    second: u64,
    seconds: u64,
    lost: u64,
}

/// Result of one step of a service.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ServiceStep {
    pub service: String,
    pub step: String,
    /// Offered layer 2 rate.
    pub rate_bps: f64,
    /// Layer 2 rate received in the worst direction.
    pub received_bps: f64,
    pub loss_ratio: f64,
    pub delay_s: f64,
    pub variation_s: f64,
    pub verdict: &'static str,
}

/// Result of a service in the performance test.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PerformanceRow {
    pub service: String,
    pub sent: u64,
    pub lost: u64,
    pub loss_ratio: f64,
    pub delay_s: f64,
    pub variation_s: f64,
    pub availability: f64,
    pub seconds: u64,
    pub verdict: &'static str,
}

impl SoakTest {
    pub(crate) fn new(load: f64, max_loss_ratio: f64, max_latency_s: Option<f64>) -> Self {
        SoakTest {
            load,
            max_loss_ratio,
            max_latency_s,
            seconds: 0.0,
            sent: 0,
            lost: 0,
            loss_ratio: 0.0,
            worst_second: None,
            availability: 1.0,
            events: Vec::new(),
            minutes: Vec::new(),
            lossy_seconds: Vec::new(),
            latency_p99_ns: None,
            verdict: "running",
            soak: Soak::default(),
        }
    }

    /// Adds a second.
    pub(crate) fn add(&mut self, passed: PeriodCounts) {
        self.soak.add(passed);
        self.seconds = self.soak.seconds() as f64;
        self.update();
    }

    /// Returns the number of seconds added.
    pub(crate) fn passed(&self) -> u64 {
        self.soak.seconds()
    }

    fn update(&mut self) {
        let event = |event: &Event| EventJson { second: event.second, seconds: event.seconds, lost: event.lost };
        let PeriodCounts { sent, lost, .. } = self.soak.all();
        (self.sent, self.lost) = (sent, lost);
        let minutes = self.soak.minutes();
        // The last minute may have changed.
        self.minutes.pop();
        let new = (0..).zip(minutes).skip(self.minutes.len());
        let minute = |(minute, passed): (u64, &PeriodCounts)| {
            let PeriodCounts { sent, received, lost } = *passed;
            Minute { minute, sent, received, lost, ..Minute::default() }
        };
        self.minutes.extend(new.map(minute));
        let lossy = self.soak.lossy().iter().map(|(second, passed)| {
            let PeriodCounts { sent, received, lost } = *passed;
            SoakSecond { second: *second, sent, received, lost }
        });
        self.lossy_seconds = lossy.collect();
        self.loss_ratio = linerate_measure::trial::loss_ratio(self.sent, self.sent - self.lost.min(self.sent));
        self.events = self.soak.events().iter().map(event).collect();
        (self.worst_second, self.availability) = (self.soak.worst(), self.soak.availability());
    }

    /// Sets the final result; frames that are in no second yet are added to the last one.
    pub(crate) fn conclude(&mut self, account: &TrialResult, minutes: Vec<Minute>) {
        let counts = &account.counts;
        let all = self.soak.all();
        let rest = PeriodCounts {
            sent: counts.sent.saturating_sub(all.sent),
            received: counts.received.saturating_sub(all.received),
            lost: counts.lost.saturating_sub(all.lost),
        };
        // Frames after the last poll belong to that second if it is almost complete, else to one more.
        let last = self.soak.last();
        if last.sent > 0 && rest.sent * 2 < last.sent && self.seconds < account.seconds + 0.5 {
            self.soak.amend(rest);
            self.update();
        } else if rest.sent > 0 || rest.lost > 0 {
            self.add(rest);
        }
        self.minutes = minutes;
        (self.seconds, self.sent, self.lost) = (account.seconds, counts.sent, counts.lost);
        self.loss_ratio = counts.loss_ratio;
        self.latency_p99_ns = account.latency.latency_p99_ns;
        let p99 = account.latency.latency_p99_ns.map_or(f64::INFINITY, |nanos| nanos as f64 / 1e9);
        let is_kept = self.loss_ratio <= self.max_loss_ratio && self.max_latency_s.is_none_or(|max| p99 <= max);
        self.verdict = match (is_kept, &account.tester) {
            (true, _) => "kept",
            (false, Some(_)) => "limited by the tester",
            (false, None) => "not kept",
        };
    }
}

/// Converts nanoseconds to seconds; infinite if nothing was received, which is null in JSON.
pub(crate) fn seconds_of(nanos: Option<i64>) -> f64 {
    nanos.map_or(f64::INFINITY, |nanos| nanos as f64 / 1e9)
}

/// Returns the line of a second.
pub(crate) fn soak_line(second: u64, passed: PeriodCounts) -> String {
    let PeriodCounts { sent, received, lost } = passed;
    format!("  second {second}: {} sent, {} received, {} lost\n", grouped(sent), grouped(received), grouped(lost))
}

impl ServiceStep {
    /// Creates the result from the directions; the worst values are reported.
    pub(crate) fn new(service: &str, kind: Kind, rate: f64, seen: &[StepResult], verdict: &'static str) -> Self {
        let worst = |of: fn(&StepResult) -> f64| seen.iter().map(of).fold(0.0, f64::max);
        let received = match kind {
            Kind::Policing => worst(|seen| seen.rate),
            _ => seen.iter().map(|seen| seen.rate).fold(f64::INFINITY, f64::min),
        };
        let step = match kind {
            Kind::Committed(percent) => format!("{percent} % of CIR"),
            Kind::Excess => "CIR + EIR".to_owned(),
            Kind::Policing => "policing".to_owned(),
        };
        ServiceStep {
            service: service.to_owned(),
            step,
            rate_bps: rate,
            received_bps: received,
            loss_ratio: worst(|seen| seen.loss_ratio),
            delay_s: worst(|seen| seen.delay),
            variation_s: worst(|seen| seen.variation),
            verdict,
        }
    }
}

impl PerformanceRow {
    /// Creates the result from the rows of the directions, and the seconds.
    pub(crate) fn new<'a>(
        service: &str,
        agreed: &Service,
        rows: impl Iterator<Item = &'a StreamRow>,
        soak: &Soak,
        is_limited: bool,
    ) -> Self {
        let (mut sent, mut lost, mut delay, mut variation) = (0, 0, 0.0, 0.0);
        for row in rows {
            sent += row.counts.sent.unwrap_or(0);
            lost += row.counts.lost;
            delay = seconds_of(row.delay.latency_p999_ns).max(delay);
            variation = seconds_of(row.delay.pdv_p999_ns).max(variation);
        }
        let loss_ratio = linerate_measure::trial::loss_ratio(sent, sent.saturating_sub(lost));
        let is_kept = loss_ratio <= agreed.loss_ratio && delay <= agreed.delay && variation <= agreed.variation;
        let verdict = match (is_kept, is_limited) {
            (true, _) => "pass",
            (false, true) => "limited by the tester",
            (false, false) => "fail",
        };
        let (availability, seconds) = (soak.availability(), soak.seconds());
        PerformanceRow {
            service: service.to_owned(),
            sent,
            lost,
            loss_ratio,
            delay_s: delay,
            variation_s: variation,
            availability,
            seconds,
            verdict,
        }
    }
}
