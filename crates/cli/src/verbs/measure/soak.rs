//! Soak test: one load for hours, with loss per second and latency per minute.

use super::account::{DirectionResult, TrialResult};
use super::report::{Minute, SoakTest, soak_line};
use super::traffic::{Frames, Phase};
use super::trial::{DirectionCounters, SideTask, TrialCounters};
use super::{Measurement, SizeParameters};
use crate::view::terminal::print_stderr;
use linerate_generate::check::AGE;
use linerate_measure::TrialRequest;
use linerate_measure::soak::PeriodCounts;
use linerate_measure::trial::loss_ratio;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Maximum duration in seconds: one week.
pub(super) const LONGEST: f64 = 7.0 * 24.0 * 3600.0;
/// Interval of latencies in seconds.
const MINUTE: f64 = 60.0;
/// Interval at which sent frames are sampled.
const SAMPLE: Duration = Duration::from_millis(50);
/// Intervals at which reports are written, in seconds: in the first hour, and later.
const WRITE: [u64; 2] = [10, 60];
const HOUR: u64 = 3600;
/// A run without a received frame ends after this many seconds.
const SILENCE: u64 = 5;

/// Counters of a stream so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct StreamCounts {
    pub sent: u64,
    pub received: u64,
    pub lost: u64,
}

impl Measurement<'_> {
    pub(super) fn soak(&mut self, sized: &SizeParameters<'_>) -> anyhow::Result<()> {
        let load = sized.limits.greatest;
        let left = self.until.map_or(LONGEST, |until| until.saturating_duration_since(Instant::now()).as_secs_f64());
        let left = left.min(LONGEST);
        let minutes = (left / MINUTE).floor() as usize;
        let rest = left - minutes as f64 * MINUTE;
        let mut phases = vec![Phase::with_duration(load, MINUTE); minutes];
        phases.extend((rest * load >= 1.0).then(|| Phase::with_duration(load, rest)));
        if phases.is_empty() {
            return Ok(());
        }
        let frames = Frames::Phases(phases);
        let max_latency = self.args.method.max_latency.map(|millis| millis / 1e3);
        let test = SoakTest::new(load, self.args.goals.loss.unwrap_or(0.0), max_latency);
        self.known().soak = Some(test);
        self.number += 1;
        let (number, is_silent) = (self.number, self.is_silent());
        let Measurement { bench, report, files, .. } = self;
        let stop = bench.stop().clone();
        let task = SideTask::looking(|looks: &TrialCounters| {
            let mut before = StreamCounts::default();
            by_second(looks, |directions| {
                let now = directions.iter().flatten().fold(StreamCounts::default(), |all, one| StreamCounts {
                    sent: all.sent + one.sent,
                    received: all.received + one.received,
                    lost: all.lost + one.lost,
                });
                let Some(test) = report.sizes.last_mut().and_then(|size| size.soak.as_mut()) else { return };
                let second = PeriodCounts {
                    sent: now.sent.saturating_sub(before.sent),
                    received: now.received.saturating_sub(before.received),
                    lost: now.lost.saturating_sub(before.lost),
                };
                before = StreamCounts { lost: before.lost.max(now.lost), ..now };
                test.add(second);
                let seconds = test.passed();
                if seconds >= SILENCE && now.sent > 0 && looks.directions.iter().all(|way| way.ours() == 0) {
                    stop.request();
                }
                if !is_silent && (second.lost > 0 || seconds.is_multiple_of(MINUTE as u64)) {
                    print_stderr(soak_line(seconds - 1, second));
                }
                if seconds.is_multiple_of(WRITE[usize::from(seconds > HOUR)]) {
                    files.write(report);
                }
            });
        });
        let mut account = bench.run(sized.sets, &frames, number, Some(task))?;
        account.failure = account.failure.take().or_else(|| account.nothing_arrived());
        self.conclude_soak(sized, account)
    }

    fn conclude_soak(&mut self, sized: &SizeParameters<'_>, mut account: TrialResult) -> anyhow::Result<()> {
        // Frames after an early stop by the user do not count as unsent.
        if self.bench.stop().is_requested() {
            account.tester = None;
            account.counts.unsent = 0;
            account.counts.loss_ratio = loss_ratio(account.counts.sent, account.counts.received);
        }
        let minutes = minutes(&account.directions);
        if let Some(test) = &mut self.known().soak {
            test.conclude(&account, minutes);
        }
        let ask = TrialRequest { load: sized.limits.greatest, duration: account.seconds };
        self.keep("soak", sized.size, ask, &account)
    }
}

/// Returns the result of each minute, which is one phase; latencies are those of the slower direction.
fn minutes(directions: &[DirectionResult]) -> Vec<Minute> {
    let count = directions.iter().flat_map(|way| &way.rows).map(|row| row.stream as usize + 1).max().unwrap_or(0);
    let mut minutes = vec![Minute::default(); count];
    for row in directions.iter().flat_map(|way| &way.rows) {
        let minute = &mut minutes[row.stream as usize];
        minute.minute = row.stream.into();
        minute.sent += row.counts.sent.unwrap_or(0);
        minute.received += row.counts.received - row.counts.duplicated.min(row.counts.received);
        minute.lost += row.counts.lost;
        minute.latency_p50_ns = minute.latency_p50_ns.max(row.delay.latency_p50_ns);
        minute.latency_p99_ns = minute.latency_p99_ns.max(row.delay.latency_p99_ns);
        minute.latency_max_ns = minute.latency_max_ns.max(row.delay.latency_max_ns);
    }
    minutes
}

/// Calls `each` once per second with the counters of each stream of each direction, until all frames are sent.
pub(super) fn by_second(looks: &TrialCounters, mut each: impl FnMut(&[Vec<StreamCounts>])) {
    let started = Instant::now();
    let mut samples: VecDeque<(Instant, Vec<Vec<u64>>)> = VecDeque::new();
    let mut seconds = 1;
    while !looks.is_sent() {
        let now = Instant::now();
        samples.push_back((now, looks.directions.iter().map(|way| way.sent()).collect()));
        while samples.get(1).is_some_and(|(at, _)| now - *at >= AGE) {
            samples.pop_front();
        }
        if now - started >= Duration::from_secs(seconds) {
            let sent = samples.back().map_or(&[][..], |(_, sent)| sent);
            let aged = samples.front().map_or(&[][..], |(_, sent)| sent);
            let directions = looks.directions.iter().enumerate().map(|(way, look)| {
                let of = |all: &[Vec<u64>]| all.get(way).cloned().unwrap_or_default();
                so_far(&**look, of(sent), of(aged))
            });
            each(&directions.collect::<Vec<_>>());
            seconds += 1;
        }
        std::thread::sleep(SAMPLE);
    }
}

fn so_far(look: &dyn DirectionCounters, sent: Vec<u64>, aged: Vec<u64>) -> Vec<StreamCounts> {
    let rows = look.live(aged);
    let mut all: Vec<StreamCounts> =
        sent.into_iter().map(|sent| StreamCounts { sent, ..StreamCounts::default() }).collect();
    for row in &rows {
        let place = row.stream as usize;
        if all.len() <= place {
            all.resize(place + 1, StreamCounts::default());
        }
        (all[place].received, all[place].lost) = (row.received, row.lost);
    }
    all
}
