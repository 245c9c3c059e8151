//! The flows of a port, while they go on: a meter that is asked for what there is once a second.

use linerate_burst::{Burst, Nanos};
use linerate_meter::{Config, EndReason, Flow, Meter, Quality, Timeouts};
use linerate_wire::Link;
use std::collections::HashMap;
use std::time::Duration;

/// Flows at one time; memory for them is taken when it begins.
const MOST_FLOWS: usize = 1 << 16;
/// Flows whose sums are kept.
const MOST_SUMS: usize = 8192;
/// A flow that is quiet for longer has ended.
const IDLE: Nanos = Nanos(30_000_000_000);
/// So often it is known what goes on.
const ACTIVE: Nanos = Nanos(1_000_000_000);
/// And where nothing was heard of a flow for longer it stands still.
const STALE: Duration = Duration::from_millis(2500);

/// What goes on at a port.
pub struct Top {
    meter: Meter,
    sums: HashMap<u64, Sum>,
    /// It was so late when it was said last.
    now: Nanos,
    /// Flows that were let go since there was no room.
    let_go: u64,
}

/// A flow so far, and how fast it went lately.
struct Sum {
    flow: Flow,
    lately: Lately,
    /// When that was, by the end of its last record.
    until: Nanos,
}

/// How fast a flow went in the last second: there, and back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lately {
    /// Packets a second.
    pub packets: [f64; 2],
    /// Bits a second, of frames without FCS.
    pub bits: [f64; 2],
}

impl Lately {
    /// Of a record: it has what came since the one before, in a second or somewhat more.
    fn of(flow: &Flow) -> Self {
        let seconds = flow.last().since(flow.first()).max(Duration::from_nanos(ACTIVE.0)).as_secs_f64();
        let [there, back] = &flow.sides;
        Lately {
            packets: [there.packets as f64 / seconds, back.packets as f64 / seconds],
            bits: [there.frame_bytes as f64 * 8.0 / seconds, back.frame_bytes as f64 * 8.0 / seconds],
        }
    }

    fn all(&self) -> f64 {
        self.bits[0] + self.bits[1]
    }
}

impl Sum {
    /// How fast it goes: a flow of which there was no record for a while does not go.
    fn lately(&self, now: Nanos) -> Lately {
        if now.since(self.until) > STALE { Lately::default() } else { self.lately }
    }
}

impl Top {
    /// In which nothing has come yet; `seed` is what nobody knows.
    pub fn new(seed: u64) -> Self {
        let timeouts = [Timeouts { idle: IDLE, active: ACTIVE }; 4];
        let config = Config { max_flows: MOST_FLOWS, timeouts, seed: [seed, !seed], ..Config::default() };
        Top { meter: Meter::new(&config), sums: HashMap::new(), now: Nanos::ZERO, let_go: 0 }
    }

    /// Takes frames.
    pub fn take(&mut self, burst: Burst<'_>, links: &[Option<Link>]) {
        let (sums, let_go) = (&mut self.sums, &mut self.let_go);
        self.meter.take(burst, links, &mut |flow: &Flow| add(sums, let_go, flow));
    }

    /// It is `now`.
    pub fn expire(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        let (sums, let_go) = (&mut self.sums, &mut self.let_go);
        self.meter.expire(now, &mut |flow: &Flow| add(sums, let_go, flow));
    }

    /// The greatest, by their bytes or by how fast they go, how many are kept, and how many were let go.
    pub fn greatest(&self, most: usize, by_rate: bool) -> (Vec<(Flow, Lately)>, usize, u64) {
        let mut all: Vec<(u64, u64, &Sum)> = self.sums.values().map(|sum| (0, sum.flow.frame_bytes(), sum)).collect();
        if by_rate {
            all.iter_mut().for_each(|(rate, _, sum)| *rate = sum.lately(self.now).all() as u64);
        }
        all.sort_unstable_by_key(|(rate, bytes, sum)| std::cmp::Reverse((*rate, *bytes, sum.flow.id)));
        let told = |(_, _, sum): (u64, u64, &Sum)| (sum.flow.clone(), sum.lately(self.now));
        (all.into_iter().take(most).map(told).collect(), self.sums.len(), self.let_go)
    }
}

fn add(sums: &mut HashMap<u64, Sum>, let_go: &mut u64, flow: &Flow) {
    let (lately, until) = (Lately::of(flow), flow.last());
    if let Some(sum) = sums.get_mut(&flow.id).filter(|_| flow.quality.contains(Quality::CONTINUED)) {
        sum.flow.join(flow);
        (sum.lately, sum.until) = (lately, until);
        return;
    }
    if sums.len() >= MOST_SUMS {
        // Half of them go: those that have ended, then the smallest.
        let mut sizes: Vec<(bool, u64, u64)> =
            sums.iter().map(|(id, sum)| (sum.flow.end == EndReason::Active, sum.flow.frame_bytes(), *id)).collect();
        sizes.sort_unstable();
        for (.., id) in &sizes[..MOST_SUMS / 2] {
            sums.remove(id);
        }
        *let_go += MOST_SUMS as u64 / 2;
    }
    sums.insert(flow.id, Sum { flow: flow.clone(), lately, until });
}
