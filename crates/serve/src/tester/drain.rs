//! Waiting for the arrival of sent frames: polled, so that the tester is not locked in the meantime.
//!
//! Only the awaited frames count: other traffic at the ports does not prolong the wait.

use super::Tester;
use crate::port::Port;
use linerate_generate::check::StreamProgress;
use linerate_generate::stream::{Next, Shape};
use std::time::{Duration, Instant};

/// Silence after which no more frames are expected.
const QUIET: Duration = Duration::from_millis(100);
/// Shorter silence, if the last frame of each stream has arrived: others may have been overtaken on the way.
const OVERTAKEN: Duration = Duration::from_millis(10);
/// Minimum number of polls per port in that time: on a busy host its thread may not have run at all.
const LOOKS: u64 = 3;
/// Maximum wait.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// Duration in nanoseconds of a flow that counts as finished at its start.
const BRIEF: f64 = 20e6;
/// Poll interval.
pub const LOOK: Duration = Duration::from_millis(2);

/// Detector of silence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SilenceDetector {
    began: Instant,
    changed: Instant,
    received: u64,
    /// Required number of polls per port.
    looks: Vec<u64>,
}

impl SilenceDetector {
    pub(super) fn new(ports: &[Port], now: Instant) -> Self {
        SilenceDetector { began: now, changed: now, received: 0, looks: looks(ports) }
    }

    /// Returns whether the count `received` has not changed for a time.
    pub(super) fn is_over(&mut self, ports: &[Port], received: u64, quiet: Duration, now: Instant) -> bool {
        if received != self.received {
            (self.received, self.changed, self.looks) = (received, now, looks(ports));
        }
        let have_looked = || ports.iter().zip(&self.looks).all(|(port, looks)| port.was_polled(*looks));
        let since = |then: Instant| now.saturating_duration_since(then);
        since(self.began) >= PATIENCE || since(self.changed) >= quiet && have_looked()
    }
}

fn looks(ports: &[Port]) -> Vec<u64> {
    ports.iter().map(|port| port.listener.looked() + LOOKS).collect()
}

/// Ended flows with the frames still to arrive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrainingFlows {
    /// Key of the accounts: when they are closed there is nothing to wait for.
    key: u64,
    awaited: Vec<AwaitedFlow>,
    quiet: SilenceDetector,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct AwaitedFlow {
    id: u32,
    rx: Vec<usize>,
    /// Expected frames, including earlier ones with the same id.
    frames: u64,
}

impl DrainingFlows {
    /// Returns whether all frames have arrived, or no more are expected.
    pub fn look(&mut self, tester: &Tester, now: Instant) -> bool {
        if self.key != tester.key {
            return true;
        }
        let (mut received, mut is_last_there) = (0, true);
        self.awaited.retain(|flow| {
            let (mut distinct, mut is_last) = (0, false);
            for place in &flow.rx {
                let StreamProgress { distinct: frames, next } =
                    tester.ports[*place].listener.reception().check.progress(flow.id);
                distinct += frames;
                is_last |= next.is_some_and(|next| next >= flow.frames);
            }
            received += distinct;
            let is_awaited = distinct < flow.frames;
            is_last_there &= is_last || !is_awaited;
            is_awaited
        });
        let quiet = if is_last_there { OVERTAKEN } else { QUIET };
        self.awaited.is_empty() || self.quiet.is_over(&tester.ports, received, quiet, now)
    }
}

impl Tester {
    /// Returns the frames to wait for after flows have ended; none for flows without a receiver.
    pub(super) fn draining(&self, flows: &[usize]) -> DrainingFlows {
        let awaited = flows.iter().filter_map(|at| {
            let (flow, running) = (&self.config.flows[*at], &self.running[*at]);
            let is_awaited = flow.is_counted && !running.rx.is_empty() && running.id != 0 && running.frozen.is_none();
            let frames = running.sending.frames() + running.before.0;
            is_awaited.then(|| AwaitedFlow { id: running.id, rx: running.rx.clone(), frames })
        });
        DrainingFlows {
            key: self.key,
            awaited: awaited.collect(),
            quiet: SilenceDetector::new(&self.ports, Instant::now()),
        }
    }

    /// Returns the frames to wait for if flows end right after their start: otherwise consecutive calls would see
    /// partial figures.
    pub(super) fn draining_soon(&self, flows: &[usize]) -> Option<DrainingFlows> {
        let frames = |at: &usize| {
            let stream = &self.config.flows[*at].stream;
            let count = stream.count.filter(|_| stream.shape == Shape::Even && stream.next == Next::Following)?;
            let longest = stream.variants.iter().map(|variant| variant.frame.len() as u64).max()?;
            let nanos = stream.span.start as f64 + stream.rate.exact_nanos(count, count.saturating_mul(longest));
            let is_single = self.own.get(*at).is_none_or(|own| own.sequence.is_none());
            (is_single && nanos <= BRIEF).then_some(count)
        };
        let brief: Vec<(usize, u64)> = flows.iter().filter_map(|at| Some((*at, frames(at)?))).collect();
        let awaited = brief.iter().filter_map(|(at, frames)| {
            let (flow, running) = (&self.config.flows[*at], &self.running[*at]);
            let is_awaited = flow.is_counted && !running.rx.is_empty() && running.id != 0;
            is_awaited.then(|| AwaitedFlow {
                id: running.id,
                rx: running.rx.clone(),
                frames: frames + running.before.0,
            })
        });
        let awaited: Vec<AwaitedFlow> = awaited.collect();
        let quiet = SilenceDetector::new(&self.ports, Instant::now());
        (!awaited.is_empty()).then_some(DrainingFlows { key: self.key, awaited, quiet })
    }

    /// Stops all flows and waits for their frames.
    pub fn stop(&self) {
        self.stop_all();
        let all: Vec<usize> = (0..self.running.len()).collect();
        let mut draining = self.draining(&all);
        while !draining.look(self, Instant::now()) {
            std::thread::sleep(LOOK);
        }
    }
}
