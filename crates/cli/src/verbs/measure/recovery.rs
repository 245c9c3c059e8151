//! Recovery time from overload (RFC 2544, section 26.5) and from a reset (26.6, updated by RFC 6201).

use super::plan::AFTER;
use super::report::{Recovery, RecoveryRun, Reset, ResetRun};
use super::reset::Helper;
use super::traffic::{Frames, Phase};
use super::trial::{SideTask, TrialCounters};
use super::{Measurement, SizeParameters};
use linerate_measure::TrialRequest;
use linerate_measure::recovery::{recovery, reset_by_loss, reset_by_times};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Overload as a multiple of the throughput.
const OVERLOAD: f64 = 1.1;
/// Resolution of the time of the last loss, in seconds, up to each time after the overload.
const FINE: [(f64, f64); 5] = [(0.001, 0.2), (0.01, 1.0), (0.1, 60.0), (1.0, 600.0), (60.0, f64::INFINITY)];
/// Part of a trial after which the device is reset.
const BEFORE: f64 = 0.2;
/// Interval at which received frames are polled.
const LOOK: Duration = Duration::from_micros(500);

impl Measurement<'_> {
    /// Measures recovery from overload (26.5): 110 % of the throughput, at most the maximum load, then half of that.
    pub(super) fn recovery(&mut self, sized: &SizeParameters<'_>) -> anyhow::Result<()> {
        let Some(throughput) = self.throughput() else {
            return self.left_out("recovery", "skipped: needs a throughput, and none was found");
        };
        let span = self.plan.recovery;
        let load = (OVERLOAD * throughput).min(sized.line.map_or(f64::INFINITY, |_| sized.limits.greatest));
        let half = load / 2.0;
        let overload = Phase::with_duration(load, span.seconds);
        let after = slots(half, span.seconds * AFTER);
        let frames = Frames::Phases([overload].into_iter().chain(after.iter().copied()).collect());
        let mut test = Recovery::new(load, half, span.shortened());
        self.known().recovery = Some(test.clone());
        for _ in 0..span.times {
            let ask = TrialRequest { load, duration: frames.seconds().unwrap_or_default() };
            let Some(account) = self.trial("recovery", sized, &frames, ask)? else { break };
            let halved = overload.seconds();
            let run = |way: &super::account::DirectionResult| {
                let (mut at, mut last_lost, mut lost) = (halved, None, [0; 2]);
                for (id, phase) in after.iter().enumerate() {
                    at += phase.seconds();
                    let row = way.rows.iter().find(|row| row.stream as usize == id + 1);
                    let missing = row.map_or(0, |row| row.counts.lost);
                    last_lost = if missing > 0 { Some(at) } else { last_lost };
                    lost[1] += missing;
                }
                lost[0] = way.rows.iter().find(|row| row.stream == 0).map_or(0, |row| row.counts.lost);
                RecoveryRun {
                    lost_before: lost[0],
                    lost_after: lost[1],
                    seconds: recovery(halved, last_lost),
                    tester: way.own_fault(),
                }
            };
            test.add(account.directions.iter().map(run).collect());
            self.known().recovery = Some(test.clone());
        }
        Ok(())
    }

    /// Resets the device at the throughput (26.6); measures the interruption and the loss.
    pub(super) fn reset(&mut self, sized: &SizeParameters<'_>) -> anyhow::Result<()> {
        let Some(load) = self.throughput() else {
            return self.left_out("reset", "skipped: needs a throughput, and none was found");
        };
        let (span, command) = (self.plan.reset, self.args.method.reset_with.clone().unwrap_or_default());
        let frames = Frames::Phases(vec![Phase::with_duration(load, span.seconds)]);
        let Some(resetter) = self.bench.resets() else {
            return self.left_out("reset", "skipped: no shell for the reset command");
        };
        let mut test = Reset::new(load, &command);
        for _ in 0..span.times {
            let seen = Mutex::new(ResetObservations::default());
            let does = Box::new(|looks: &TrialCounters| {
                let found = watch(looks, resetter, span.seconds * BEFORE);
                *seen.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = found;
            });
            let task = SideTask { does, is_reset: true };
            let ask = TrialRequest { load, duration: span.seconds };
            let Some(account) = self.trial_with("reset", sized, &frames, ask, Some(task))? else { break };
            let seen = seen.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
            let by_loss = account.directions.iter().map(|way| reset_by_loss(way.counts.lost, load)).fold(0.0, f64::max);
            test.runs.push(ResetRun {
                by_loss_s: by_loss,
                by_times_s: seen.silence.map(|(before, after)| reset_by_times(before, after)),
                command_s: seen.took,
                command: seen.ended,
                tester: account.tester,
            });
            self.known().reset = Some(test.clone());
        }
        Ok(())
    }
}

/// Observations during a reset.
#[derive(Default)]
struct ResetObservations {
    /// Longest interval without a received frame (start, end), over all directions.
    silence: Option<(f64, f64)>,
    took: Option<f64>,
    ended: String,
}

/// Returns the phases of the halved load, finest at the start; at least one frame each.
fn slots(load: f64, seconds: f64) -> Vec<Phase> {
    let (mut at, mut slots) = (0.0, Vec::new());
    while at < seconds {
        let slot = FINE.iter().find(|(_, until)| at < *until).map_or(60.0, |(slot, _)| *slot);
        let phase = Phase::with_duration(load, slot.max(1.0 / load));
        at += phase.seconds();
        slots.push(phase);
    }
    slots
}

/// Resets the device and measures how long no frame is received.
fn watch(looks: &TrialCounters, resetter: &Helper, before: f64) -> ResetObservations {
    let started = Instant::now();
    let (mut has_begun, mut seen) = (false, ResetObservations::default());
    let mut last: Vec<(u64, f64)> = looks.directions.iter().map(|_| (0, 0.0)).collect();
    while !looks.is_sent() {
        let now = started.elapsed().as_secs_f64();
        for (look, last) in looks.directions.iter().zip(&mut last) {
            let ours = look.ours();
            if ours == last.0 {
                continue;
            }
            let is_longer = seen.silence.is_none_or(|(from, to)| now - last.1 > to - from);
            if last.0 > 0 && is_longer && has_begun {
                seen.silence = Some((last.1, now));
            }
            *last = (ours, now);
        }
        if has_begun && seen.took.is_none() {
            if let Some(how) = resetter.ended() {
                (seen.took, seen.ended) = (Some(now - before), how);
            }
        } else if now >= before && seen.ended.is_empty() {
            match resetter.begin() {
                Ok(()) => has_begun = true,
                Err(error) => seen.ended = format!("cannot run: {error}"),
            }
        }
        std::thread::sleep(LOOK);
    }
    if has_begun && seen.took.is_none() {
        seen.ended = "still running at the end of the trial".to_owned();
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_fine_at_first_and_cover_all() {
        for (load, seconds) in [(1e6, 5.0), (5_000.0, 30.0), (3.0, 2.0)] {
            let slots = slots(load, seconds);
            let all: f64 = slots.iter().map(Phase::seconds).sum();
            assert!(all >= seconds && all < seconds + 0.5, "{all}");
            assert!(slots.len() < 600 && slots[0].seconds() <= (0.0015f64).max(1.0 / load), "{}", slots.len());
        }
    }
}
