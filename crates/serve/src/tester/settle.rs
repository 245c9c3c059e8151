//! Whether what has ended has come: looked at now and then, so that nobody holds the tester meanwhile.
//!
//! Only what is waited for counts. However much else goes on at the ports, it keeps nobody waiting.

use super::Tester;
use crate::port::Port;
use linerate_generate::check::Came;
use linerate_generate::stream::{Next, Shape};
use std::time::{Duration, Instant};

/// Receivers are quiet when nothing has come for so long.
const QUIET: Duration = Duration::from_millis(100);
/// Or for so long, where the last frame of each stream is there: others of it may have been overtaken on the way.
const OVERTAKEN: Duration = Duration::from_millis(10);
/// And every port was asked so often since then: on a machine that is busy its thread may not have been there at all.
const LOOKS: u64 = 3;
/// And are waited for so long at most.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// A flow that is over within so many nanoseconds is over as soon as it begins.
const BRIEF: f64 = 20e6;
/// How often they are looked at.
pub const LOOK: Duration = Duration::from_millis(2);

/// Since when nothing has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Quiet {
    began: Instant,
    changed: Instant,
    came: u64,
    /// How often each port has to have been asked.
    looks: Vec<u64>,
}

impl Quiet {
    pub(super) fn new(ports: &[Port], now: Instant) -> Self {
        Quiet { began: now, changed: now, came: 0, looks: looks(ports) }
    }

    /// Whether nothing has come for so long, where so much had come by now.
    pub(super) fn is_over(&mut self, ports: &[Port], came: u64, quiet: Duration, now: Instant) -> bool {
        if came != self.came {
            (self.came, self.changed, self.looks) = (came, now, looks(ports));
        }
        let have_looked = || ports.iter().zip(&self.looks).all(|(port, looks)| port.has_looked(*looks));
        let since = |then: Instant| now.saturating_duration_since(then);
        since(self.began) >= PATIENCE || since(self.changed) >= quiet && have_looked()
    }
}

fn looks(ports: &[Port]) -> Vec<u64> {
    ports.iter().map(|port| port.listener.looked() + LOOKS).collect()
}

/// Flows that have ended, and what is still to come of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settling {
    /// Of the accounts that they are in: once these are closed there is nothing to wait for.
    key: u64,
    awaited: Vec<Awaited>,
    quiet: Quiet,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Awaited {
    id: u32,
    rx: Vec<usize>,
    /// Frames that are to come, those under its number before among them.
    frames: u64,
}

impl Settling {
    /// Whether all that was sent has come, or nothing of it comes any more.
    pub fn look(&mut self, tester: &Tester, now: Instant) -> bool {
        if self.key != tester.key {
            return true;
        }
        let (mut came, mut is_last_there) = (0, true);
        self.awaited.retain(|flow| {
            let (mut distinct, mut is_last) = (0, false);
            for place in &flow.rx {
                let Came { distinct: frames, next } = tester.ports[*place].listener.heard().check.came(flow.id);
                distinct += frames;
                is_last |= next.is_some_and(|next| next >= flow.frames);
            }
            came += distinct;
            let is_awaited = distinct < flow.frames;
            is_last_there &= is_last || !is_awaited;
            is_awaited
        });
        let quiet = if is_last_there { OVERTAKEN } else { QUIET };
        self.awaited.is_empty() || self.quiet.is_over(&tester.ports, came, quiet, now)
    }
}

impl Tester {
    /// What is to come of flows that have ended; of those that nobody receives nothing is.
    pub(super) fn settling(&self, flows: &[usize]) -> Settling {
        let awaited = flows.iter().filter_map(|at| {
            let (flow, running) = (&self.config.flows[*at], &self.running[*at]);
            let is_awaited = flow.is_counted && !running.rx.is_empty() && running.id != 0 && running.frozen.is_none();
            let frames = running.sending.frames() + running.before.0;
            is_awaited.then(|| Awaited { id: running.id, rx: running.rx.clone(), frames })
        });
        Settling { key: self.key, awaited: awaited.collect(), quiet: Quiet::new(&self.ports, Instant::now()) }
    }

    /// What is to come of flows that are over as soon as they begin: figures of several calls would tell of a part of it else.
    pub(super) fn settling_soon(&self, flows: &[usize]) -> Option<Settling> {
        let frames = |at: &usize| {
            let stream = &self.config.flows[*at].stream;
            let count = stream.count.filter(|_| stream.shape == Shape::Even && stream.next == Next::Following)?;
            let longest = stream.variants.iter().map(|variant| variant.frame.len() as u64).max()?;
            let nanos = stream.span.start as f64 + stream.rate.exact_nanos(count, count.saturating_mul(longest));
            let alone = self.own.get(*at).is_none_or(|own| own.sequence.is_none());
            (alone && nanos <= BRIEF).then_some(count)
        };
        let brief: Vec<(usize, u64)> = flows.iter().filter_map(|at| Some((*at, frames(at)?))).collect();
        let awaited = brief.iter().filter_map(|(at, frames)| {
            let (flow, running) = (&self.config.flows[*at], &self.running[*at]);
            let is_awaited = flow.is_counted && !running.rx.is_empty() && running.id != 0;
            is_awaited.then(|| Awaited { id: running.id, rx: running.rx.clone(), frames: frames + running.before.0 })
        });
        let awaited: Vec<Awaited> = awaited.collect();
        let quiet = Quiet::new(&self.ports, Instant::now());
        (!awaited.is_empty()).then_some(Settling { key: self.key, awaited, quiet })
    }

    /// Ends what is sent, and waits until it has come.
    pub fn stop(&self) {
        self.stop_all();
        let all: Vec<usize> = (0..self.running.len()).collect();
        let mut settling = self.settling(&all);
        while !settling.look(self, Instant::now()) {
            std::thread::sleep(LOOK);
        }
    }
}
