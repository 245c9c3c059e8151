//! Active flows of which a number per second closes and as many open, on one core, as ntop publishes for Cento: 1 M active flows with
//! 100,000 new flows per second, and 10 M with 1 M.
//!
//! Time in the traffic is the time that metering took, so that new flows per second are those of a meter at its maximum rate. A flow
//! closes by a RST; its record is exported after the time for stragglers.

use super::traffic::Pattern;
use super::{MeterRun, config, name};
use crate::Effort;
use crate::harness::{Case, Ours, Prepare, Sample, case};
use anyhow::ensure;
use linerate_burst::Nanos;
use linerate_cli::view::rates::{counted, grouped};
use linerate_meter::{Config, EndReason, Flow, Level};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

/// Active flows, and new ones per second.
const CASES: [(usize, usize); 2] = [(1_000_000, 100_000), (10_000_000, 1_000_000)];
/// Seconds of metering in a round.
const ROUND: f64 = 2.0;
/// Wait for stragglers of a closed flow.
const LINGER: Nanos = Nanos(100_000_000);
/// Seconds until a closed flow is exported and leaves the table: the wait, a second of tolerance, and the search for closed flows,
/// which takes a second.
const CLOSED: usize = 3;

/// The cases; `--flows 1048576` and `--flows 10485760` select one.
pub(super) fn cases(effort: Effort) -> Vec<Prepare> {
    let wants = |flows: usize| effort.flows.is_none_or(|wanted| wanted / 1_048_576 == flows / 1_000_000);
    let wanted = CASES.into_iter().filter(|(flows, _)| wants(*flows));
    let all = wanted.flat_map(|case| effort.levels().map(move |level| (case, level)));
    // Table sizes: 10 M flows take 1 GB at level counters and 6 GB at level stats.
    all.map(|((flows, new), level)| case(move || Ok(of(effort, effort.of(flows), effort.of(new), level)))).collect()
}

fn of(effort: Effort, flows: usize, new: usize, level: Level) -> Case {
    let config = Config { linger: LINGER, max_flows: flows + CLOSED * new, ..config(level, flows) };
    let bytes = config.bytes_per_flow()[0] * config.max_flows;
    let (warm_up, span) = if effort.quick { (0.0, ROUND / 20.0) } else { (CLOSED as f64, ROUND) };
    let mut running: Option<MeterRun> = None;
    let opened = Rc::new(Cell::new((0, 0.0)));
    let total = Rc::clone(&opened);
    let round = move || {
        let metering = running.get_or_insert_with(|| {
            let mut metering = MeterRun::new(&config, flows, Pattern::Random, 64).0;
            replace(&mut metering, new, warm_up);
            metering
        });
        let before = metering.traffic.replaced();
        let (frames, seconds) = replace(metering, new, span);
        let replaced = metering.traffic.replaced();
        let (sum, sum_seconds) = total.get();
        total.set((sum + replaced - before, sum_seconds + seconds));
        let closed = replaced.saturating_sub(CLOSED * new) as u64;
        ensure!(metering.closed >= closed, "{} of {closed} closed flows were exported", metering.closed);
        Ok(Sample::new(frames, seconds))
    };
    let name = format!("{}, {} active, {} new/s", name(level), grouped(flows as u64), grouped(new as u64));
    let ours = Ours::new(name, round).with(|row| row.flows = Some(flows)).finish(move |row| {
        let (replaced, seconds) = opened.get();
        row.ns = Some(1e3 / row.mpps);
        let rate = counted((replaced as f64 / seconds) as u64, "new flow");
        row.remark = format!("{rate} per second, table of {} MiB", bytes >> 20);
    });
    Case::sized(64).ours(ours)
}

/// Meters for this many seconds while `new` flows per second replace others; returns packets and seconds.
fn replace(metering: &mut MeterRun, new: usize, span: f64) -> (u64, f64) {
    let (mut seconds, mut frames) = (0.0, 0);
    while seconds < span {
        // The rate so far decides the number of new flows among the next packets.
        let gap = if frames > 0 { seconds / frames as f64 } else { 1e-7 };
        seconds += metering.take(|traffic, block, chunk| traffic.replace(block, chunk, gap, new));
        let (started, now, mut closed) = (Instant::now(), metering.traffic.now(), 0);
        metering.meter.expire(now, &mut |flow: &Flow| closed += u64::from(flow.end == EndReason::End));
        seconds += started.elapsed().as_secs_f64();
        metering.closed += closed;
        frames += metering.block.len() as u64;
    }
    (frames, seconds)
}

#[cfg(test)]
mod tests {
    use super::super::LEVELS;
    use super::*;

    #[test]
    fn closed_flows_leave_the_table() {
        let (flows, new, gap) = (1000, 2000, 1e-4);
        for level in LEVELS {
            let config = Config { linger: LINGER, max_flows: flows + CLOSED * new, ..config(level, flows) };
            let mut metering = MeterRun::new(&config, flows, Pattern::Random, 64).0;
            let mut expired = 0;
            // Ten seconds of packets.
            while metering.traffic.replaced() < 10 * new {
                metering.take(|traffic, block, _| traffic.replace(block, 1000, gap, new));
                let now = metering.traffic.now();
                metering.meter.expire(now, &mut |flow: &Flow| {
                    assert_eq!(flow.end, EndReason::End);
                    expired += 1;
                });
            }
            let least = metering.traffic.replaced() - CLOSED * new;
            assert!(metering.closed + expired >= least as u64, "{level:?}: {expired} of {least}");
        }
    }
}
