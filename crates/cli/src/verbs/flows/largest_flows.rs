//! Largest flows, by the sum of the records of each.
//!
//! The active timeout divides a long flow into many records, which are added up for a bounded number of open flows. If
//! there are more, the smallest are evicted, and an evicted flow that returns is assumed to have had as much as the
//! largest evicted one (Metwally, Agrawal, El Abbadi 2005: "space saving"). So a flow with more than one part in
//! [`MOST`] of the traffic of open flows is never evicted.

use linerate_meter::{EndReason, Flow, Quality};
use std::cmp::Reverse;
use std::collections::HashMap;

/// Default number of flows shown.
pub(super) const TOP: usize = 10;
/// Number of open flows kept when their number reaches twice this.
const MOST: usize = 512;

/// Largest flows by packets or bytes.
#[derive(Clone)]
pub(super) struct Heaviest {
    size: fn(&Flow) -> u64,
    /// Maximum number shown.
    most: usize,
    /// Ended or evicted flows, the largest first.
    top: Vec<Flow>,
    /// Flows of more than one record by id, most of them open.
    open: HashMap<u64, Sum>,
    /// Size of the largest evicted flow.
    floor: u64,
}

/// Sum of the records of a flow.
#[derive(Clone)]
struct Sum {
    flow: Flow,
    /// Maximum size before it was (re)inserted.
    before: u64,
}

impl Heaviest {
    pub(super) fn by(size: fn(&Flow) -> u64, most: usize) -> Self {
        Heaviest { size, most, top: Vec::new(), open: HashMap::new(), floor: 0 }
    }

    pub(super) fn add(&mut self, record: &Flow) {
        // Collected records do not always have the quality, and are of one direction each if the exporter has no biflows.
        if let Some(sum) = self.open.get_mut(&record.id) {
            let is_part = sum.flow.end == EndReason::Active
                || record.quality.contains(Quality::CONTINUED)
                || record.ends[0] == sum.flow.ends[1];
            if is_part {
                return sum.flow.join(record);
            }
        }
        if let Some(ended) = self.open.remove(&record.id) {
            self.keep(&ended.flow);
        }
        if record.end == EndReason::Active { self.begin(record) } else { self.keep(record) }
    }

    /// Returns the flows, the largest first.
    pub(super) fn finish(mut self) -> Vec<Flow> {
        std::mem::take(&mut self.open).values().for_each(|sum| self.keep(&sum.flow));
        self.top
    }

    fn begin(&mut self, record: &Flow) {
        self.open.insert(record.id, Sum { flow: record.clone(), before: self.floor });
        if self.open.len() == 2 * MOST {
            self.evict();
        }
    }

    fn evict(&mut self) {
        let mut sums: Vec<(u64, Sum)> = self.open.drain().collect();
        let size = self.size;
        let most = |(_, sum): &(u64, Sum)| size(&sum.flow) + sum.before;
        sums.select_nth_unstable_by_key(MOST, |sum| Reverse(most(sum)));
        self.floor = most(&sums[MOST]);
        for (_, sum) in sums.drain(MOST..) {
            self.keep(&sum.flow);
        }
        self.open.extend(sums);
    }

    /// Keeps a flow if it is among the largest.
    fn keep(&mut self, flow: &Flow) {
        let (size, own) = (self.size, (self.size)(flow));
        if self.top.len() < self.most || self.top.last().is_some_and(|least| size(least) < own) {
            let place = self.top.partition_point(|other| size(other) >= own);
            self.top.insert(place, flow.clone());
            self.top.truncate(self.most);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::workers::tests::flow;
    use super::*;

    /// One of several records of a flow.
    fn part(id: u64, packets: u64, is_continued: bool, end: EndReason) -> Flow {
        let quality = if is_continued { Quality::CONTINUED } else { Quality::default() };
        Flow { id, quality, end, ..flow(1, packets, 100 * packets) }
    }

    #[test]
    fn records_are_summed_per_flow() {
        let mut heaviest = Heaviest::by(Flow::packets, TOP);
        let (active, idle) = (EndReason::Active, EndReason::Idle);
        for (id, packets, is_continued, end) in
            [(1, 4, false, active), (2, 9, false, idle), (1, 5, true, active), (1, 6, true, idle), (1, 7, false, idle)]
        {
            heaviest.add(&part(id, packets, is_continued, end));
        }
        let found = heaviest.finish();
        let sums: Vec<_> = found.iter().map(|flow| (flow.id, flow.packets(), flow.frame_bytes())).collect();
        assert_eq!(sums, [(1, 15, 1500), (2, 9, 900), (1, 7, 700)]);
        assert_eq!((found[0].end, found[0].quality.contains(Quality::CONTINUED)), (idle, false));
    }

    /// Records of one direction each, without the quality of a continued one.
    #[test]
    fn both_directions_of_a_collected_flow_are_summed() {
        let mut heaviest = Heaviest::by(Flow::packets, TOP);
        let (active, idle) = (EndReason::Active, EndReason::Idle);
        for (packets, is_back, end) in
            [(4, false, active), (900, true, active), (5, false, active), (6, false, idle), (70, true, idle)]
        {
            let mut record = part(1, packets, false, end);
            if is_back {
                record.ends.swap(0, 1);
            }
            heaviest.add(&record);
        }
        let sums: Vec<_> = heaviest.finish().iter().map(Flow::packets).collect();
        assert_eq!(sums, [985]);
    }

    /// Each of its records is smaller than the other flows, with many others between them.
    #[test]
    fn a_flow_of_many_small_records_is_found_among_many_open_flows() {
        let mut heaviest = Heaviest::by(Flow::packets, TOP);
        let (active, crowd) = (EndReason::Active, 2 * MOST as u64);
        (0..crowd).for_each(|id| heaviest.add(&part(1000 + id, 100, false, active)));
        for round in 1..=50 {
            heaviest.add(&part(1, 10, round > 1, if round == 50 { EndReason::Idle } else { active }));
            (0..crowd).for_each(|id| heaviest.add(&part(round * 10_000 + id, id % 3, false, active)));
            assert!(heaviest.open.len() < 2 * MOST);
        }
        let sums: Vec<_> = heaviest.finish().iter().map(|flow| (flow.id, flow.packets())).collect();
        assert_eq!((sums[0], sums[1].1, sums.len()), ((1, 500), 100, TOP));
    }
}
