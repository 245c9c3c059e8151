//! Live flows of a port: a meter whose open flows are queried once per second.

use linerate_burst::{Burst, Nanos};
use linerate_headers::Link;
use linerate_meter::{ActiveFlow, Config, End, EndReason, Flow, Meter, Quality, Timeouts};
use std::collections::HashMap;
use std::time::Duration;

/// Maximum number of concurrent flows; memory is allocated at the start.
const MOST_FLOWS: usize = 1 << 16;
/// Maximum number of flows with sums.
const MOST_SUMS: usize = 8192;
/// Idle timeout.
const IDLE: Nanos = Nanos(30_000_000_000);
/// Interval of queries.
const ACTIVE: Nanos = Nanos(1_000_000_000);
/// Age of the latest packet after which a flow counts as stalled.
const STALE: Duration = Duration::from_millis(2500);

/// Live flows.
pub struct LiveFlows {
    meter: Meter,
    /// Sums of ended records, by flow id.
    sums: HashMap<u64, FlowRow>,
    /// Time of the last query.
    now: Nanos,
    /// Flows evicted for lack of space.
    evicted_groups: u64,
}

/// Rates of a flow in the last second, per direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RecentRates {
    /// Packets per second.
    pub packets: [f64; 2],
    /// Bits per second, of frames without FCS.
    pub bits: [f64; 2],
}

/// Sums of a flow from its first packet to its latest.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRow {
    id: u64,
    /// Originator and responder.
    pub ends: [End; 2],
    /// IP protocol number.
    pub protocol: u8,
    /// Packets per direction.
    pub packets: [u64; 2],
    /// Frame bytes per direction, without FCS.
    pub bytes: [u64; 2],
    /// Time of the first packet.
    pub first: Nanos,
    /// Time of the latest packet.
    pub last: Nanos,
    /// End reason, or [`EndReason::Active`].
    pub end: EndReason,
    /// Recent rates.
    pub lately: RecentRates,
}

impl FlowRow {
    /// Converts an ended or open record.
    fn of(glance: &ActiveFlow, end: EndReason) -> Self {
        let ActiveFlow { id, ends, protocol, packets, frame_bytes: bytes, first, last, .. } = *glance;
        FlowRow { id, ends, protocol, packets, bytes, first, last, end, lately: RecentRates::of(glance) }
    }

    /// Adds the record that continues this flow.
    fn join(&mut self, next: FlowRow) {
        if self.ends[0] != next.ends[0] {
            self.packets.swap(0, 1);
            self.bytes.swap(0, 1);
        }
        for side in [0, 1] {
            self.packets[side] += next.packets[side];
            self.bytes[side] += next.bytes[side];
        }
        // A record that has just started covers less of the last second than its predecessor.
        if next.last.since(next.first).as_nanos() as u64 >= ACTIVE.0 || next.first.since(self.last) > STALE {
            self.lately = next.lately;
        }
        (self.ends, self.last, self.end) = (next.ends, self.last.max(next.last), next.end);
    }

    fn all_bytes(&self) -> u64 {
        self.bytes[0].saturating_add(self.bytes[1])
    }
}

impl RecentRates {
    /// Computes rates of a record, which covers the time since the previous one, a second or slightly more.
    fn of(glance: &ActiveFlow) -> Self {
        let seconds = glance.last.since(glance.first).max(Duration::from_nanos(ACTIVE.0)).as_secs_f64();
        RecentRates {
            packets: glance.packets.map(|packets| packets as f64 / seconds),
            bits: glance.frame_bytes.map(|bytes| bytes as f64 * 8.0 / seconds),
        }
    }

    fn all(&self) -> f64 {
        self.bits[0] + self.bits[1]
    }
}

impl LiveFlows {
    /// Creates an empty meter; `seed` is secret.
    pub fn new(seed: u64) -> Self {
        let timeouts = [Timeouts { idle: IDLE, active: ACTIVE }; 4];
        let config = Config { max_flows: MOST_FLOWS, timeouts, seed: [seed, !seed], ..Config::default() };
        LiveFlows { meter: Meter::new(&config), sums: HashMap::new(), now: Nanos::ZERO, evicted_groups: 0 }
    }

    /// Processes frames.
    pub fn take(&mut self, burst: Burst<'_>, links: &[Option<Link>]) {
        let (sums, evicted_groups) = (&mut self.sums, &mut self.evicted_groups);
        self.meter.take(burst, links, &mut |flow: &Flow| add(sums, evicted_groups, flow));
    }

    /// Advances the time to `now`.
    pub fn expire(&mut self, now: Nanos) {
        self.now = self.now.max(now);
        let (sums, evicted_groups) = (&mut self.sums, &mut self.evicted_groups);
        self.meter.expire(now, &mut |flow: &Flow| add(sums, evicted_groups, flow));
    }

    /// Returns the top flows by bytes or by rate, the number of flows, and the number of evicted ones. Flows count from
    /// their first packet, whether their records have ended or not.
    pub fn greatest(&self, most: usize, by_rate: bool) -> (Vec<FlowRow>, usize, u64) {
        let mut all: Vec<FlowRow> = self.sums.values().cloned().collect();
        let open: HashMap<u64, usize> = (0..).zip(&all).map(|(place, row)| (row.id, place)).collect();
        self.meter.glance(0, usize::MAX, Nanos::ZERO, |_, glance| {
            let row = FlowRow::of(&glance(), EndReason::Active);
            match open.get(&row.id).filter(|place| all[**place].end == EndReason::Active) {
                Some(place) => all[*place].join(row),
                None => all.push(row),
            }
        });
        for row in &mut all {
            // Stalled flows have no rate.
            if self.now.since(row.last) > STALE {
                row.lately = RecentRates::default();
            }
        }
        let rate = |row: &FlowRow| if by_rate { row.lately.all() as u64 } else { 0 };
        all.sort_unstable_by_key(|row| std::cmp::Reverse((rate(row), row.all_bytes(), row.id)));
        let flows = all.len();
        all.truncate(most);
        (all, flows, self.evicted_groups)
    }
}

fn add(sums: &mut HashMap<u64, FlowRow>, evicted_groups: &mut u64, flow: &Flow) {
    let row = FlowRow::of(&ActiveFlow::of(flow), flow.end);
    if let Some(sum) = sums.get_mut(&flow.id).filter(|_| flow.quality.contains(Quality::CONTINUED)) {
        let lately = row.lately;
        sum.join(row);
        sum.lately = lately;
        return;
    }
    if sums.len() >= MOST_SUMS {
        // Evicts half of them: ended flows first, then the smallest.
        let mut sizes: Vec<(bool, u64, u64)> =
            sums.iter().map(|(id, sum)| (sum.end == EndReason::Active, sum.all_bytes(), *id)).collect();
        sizes.sort_unstable();
        for (.., id) in &sizes[..MOST_SUMS / 2] {
            sums.remove(id);
        }
        *evicted_groups += MOST_SUMS as u64 / 2;
    }
    sums.insert(flow.id, row);
}

#[cfg(test)]
mod tests {
    use super::*;
    use linerate_burst::{Desc, TAIL};

    const SIZE: usize = 60;

    /// Feeds UDP packets from ports of one host, with times in milliseconds.
    fn take(top: &mut LiveFlows, packets: &[(u16, u64)]) {
        let (mut memory, mut descs) = (Vec::new(), Vec::new());
        for (at, (port, ms)) in packets.iter().enumerate() {
            let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0];
            frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            frame.extend(port.to_be_bytes());
            frame.extend([0, 53, 0, 26, 0, 0]);
            frame.resize(SIZE, 0);
            memory.extend(frame);
            descs.push(Desc::new(Nanos((1_000_000 + ms) * 1_000_000), (at * SIZE) as u32, SIZE as u32));
        }
        memory.resize(memory.len() + TAIL, 0);
        let now = descs.last().map_or(Nanos::ZERO, |desc| desc.time);
        top.take(Burst::over(&memory, &descs).unwrap(), &[Some(Link::Ethernet)]);
        top.expire(now);
    }

    /// Returns the packets of flows by port.
    fn seen(top: &LiveFlows) -> Vec<(u16, u64)> {
        let (rows, flows, _) = top.greatest(usize::MAX, false);
        assert_eq!(rows.len(), flows);
        let mut seen: Vec<(u16, u64)> = rows.iter().map(|row| (row.ends[0].port, row.packets[0])).collect();
        seen.sort_unstable();
        seen
    }

    #[test]
    fn flows_count_from_their_first_packet() {
        let mut top = LiveFlows::new(7);
        take(&mut top, &[(1000, 0), (1001, 0), (1002, 1)]);
        assert_eq!(seen(&top), [(1000, 1), (1001, 1), (1002, 1)]);
        let (rows, ..) = top.greatest(2, true);
        assert_eq!((rows.len(), rows[0].lately.packets[0], rows[0].end), (2, 1.0, EndReason::Active));
        // One flow continues beyond its first records, and has packets in open records.
        for second in 1..6u64 {
            take(&mut top, &[(1000, second * 1000 + 100), (1000, second * 1000 + 600)]);
            assert_eq!(seen(&top), [(1000, 1 + 2 * second), (1001, 1), (1002, 1)], "second {second}");
        }
        // They have ended, and are still listed.
        take(&mut top, &[(1003, 60_000)]);
        assert_eq!(seen(&top), [(1000, 11), (1001, 1), (1002, 1), (1003, 1)]);
    }
}
