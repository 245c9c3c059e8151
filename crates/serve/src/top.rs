//! The flows of a port, while they go on: a meter that is asked for what there is once a second.

use linerate_burst::{Burst, Nanos};
use linerate_meter::{Config, EndReason, Flow, Meter, Quality, Timeouts};
use linerate_wire::Link;
use std::collections::HashMap;

/// Flows at one time; memory for them is taken when it begins.
const MOST_FLOWS: usize = 1 << 16;
/// Flows whose sums are kept.
const MOST_SUMS: usize = 8192;
/// A flow that is quiet for longer has ended.
const IDLE: Nanos = Nanos(30_000_000_000);
/// So often it is known what goes on.
const ACTIVE: Nanos = Nanos(1_000_000_000);

/// What goes on at a port.
pub struct Top {
    meter: Meter,
    sums: HashMap<u64, Flow>,
    /// Flows that were let go since there was no room.
    let_go: u64,
}

impl Top {
    /// In which nothing has come yet; `seed` is what nobody knows.
    pub fn new(seed: u64) -> Self {
        let timeouts = [Timeouts { idle: IDLE, active: ACTIVE }; 4];
        let config = Config { max_flows: MOST_FLOWS, timeouts, seed: [seed, !seed], ..Config::default() };
        Top { meter: Meter::new(&config), sums: HashMap::new(), let_go: 0 }
    }

    /// Takes frames.
    pub fn take(&mut self, burst: Burst<'_>, links: &[Option<Link>]) {
        let (sums, let_go) = (&mut self.sums, &mut self.let_go);
        self.meter.take(burst, links, &mut |flow: &Flow| add(sums, let_go, flow));
    }

    /// It is `now`.
    pub fn expire(&mut self, now: Nanos) {
        let (sums, let_go) = (&mut self.sums, &mut self.let_go);
        self.meter.expire(now, &mut |flow: &Flow| add(sums, let_go, flow));
    }

    /// The greatest, how many are kept, and how many were let go.
    pub fn greatest(&self, most: usize) -> (Vec<Flow>, usize, u64) {
        let mut all: Vec<&Flow> = self.sums.values().collect();
        all.sort_unstable_by_key(|flow| std::cmp::Reverse((flow.frame_bytes(), flow.id)));
        (all.into_iter().take(most).cloned().collect(), self.sums.len(), self.let_go)
    }
}

fn add(sums: &mut HashMap<u64, Flow>, let_go: &mut u64, flow: &Flow) {
    if let Some(sum) = sums.get_mut(&flow.id).filter(|_| flow.quality.contains(Quality::CONTINUED)) {
        sum.join(flow);
        return;
    }
    if sums.len() >= MOST_SUMS {
        // Half of them go: those that have ended, then the smallest.
        let mut sizes: Vec<(bool, u64, u64)> =
            sums.iter().map(|(id, flow)| (flow.end == EndReason::Active, flow.frame_bytes(), *id)).collect();
        sizes.sort_unstable();
        for (.., id) in &sizes[..MOST_SUMS / 2] {
            sums.remove(id);
        }
        *let_go += MOST_SUMS as u64 / 2;
    }
    sums.insert(flow.id, flow.clone());
}
