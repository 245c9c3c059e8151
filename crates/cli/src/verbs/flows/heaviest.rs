//! The flows of which there is most, the records of each added up.
//!
//! The active timeout divides a long flow into many records. Those of a flow that goes on are added up, of at most so many flows
//! at a time: beyond that, those of which there is least so far are let go, and one that comes again is taken to have had as
//! much as they (Metwally, Agrawal, El Abbadi 2005: "space saving"). So no flow is let go that has more of all that goes on than one part in
//! [`MOST`].

use linerate_meter::{EndReason, Flow, Quality};
use std::cmp::Reverse;
use std::collections::HashMap;

/// How many flows are shown, unless another number is asked for.
pub(super) const TOP: usize = 10;
/// Flows that are kept of those that go on, each time that there are twice as many.
const MOST: usize = 512;

/// The heaviest flows, by some size.
#[derive(Clone)]
pub(super) struct Heaviest {
    size: fn(&Flow) -> u64,
    /// How many are shown.
    most: usize,
    /// Flows that have ended, or were let go; the greatest first.
    top: Vec<Flow>,
    /// Flows that go on, by their id.
    open: HashMap<u64, Sum>,
    /// The most that a flow had that was let go.
    floor: u64,
}

/// The records of a flow so far.
#[derive(Clone)]
struct Sum {
    flow: Flow,
    /// What it may have had before.
    before: u64,
}

impl Heaviest {
    pub(super) fn by(size: fn(&Flow) -> u64, most: usize) -> Self {
        Heaviest { size, most, top: Vec::new(), open: HashMap::new(), floor: 0 }
    }

    pub(super) fn add(&mut self, record: &Flow) {
        let goes_on = record.end == EndReason::Active;
        if record.quality.contains(Quality::CONTINUED) {
            match self.open.get_mut(&record.id) {
                Some(sum) => sum.flow.join(record),
                None if goes_on => self.begin(record),
                None => self.keep(record),
            }
            if !goes_on && let Some(sum) = self.open.remove(&record.id) {
                self.keep(&sum.flow);
            }
        } else if goes_on {
            self.begin(record);
        } else {
            self.keep(record);
        }
    }

    /// The greatest first.
    pub(super) fn finish(mut self) -> Vec<Flow> {
        std::mem::take(&mut self.open).values().for_each(|sum| self.keep(&sum.flow));
        self.top
    }

    fn begin(&mut self, record: &Flow) {
        self.open.insert(record.id, Sum { flow: record.clone(), before: self.floor });
        if self.open.len() == 2 * MOST {
            self.let_go();
        }
    }

    fn let_go(&mut self) {
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

    /// Keeps a flow if it is among those of which there is most.
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
    fn records_of_a_flow_count_together_and_those_of_another_apart() {
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

    /// Its parts are less than what others have, and much else comes between them.
    #[test]
    fn a_flow_of_many_small_parts_is_found_among_many_that_go_on() {
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
