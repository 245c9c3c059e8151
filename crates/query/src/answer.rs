//! Evaluation and result of a question.
#![cfg_attr(not(feature = "parquet"), allow(dead_code, reason = "used only for files"))]

use crate::columns::{Batch, Id, Values, own};
use crate::filter::Memo;
use crate::group::Groups;
use crate::key::Value;
use crate::quantity::{Quantity, numbers};
use crate::question::{Measure, Question};
use crate::slot::Slot;
use crate::steps::Steps;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;

/// Partial result of a question, of one thread.
pub struct PartialAnswer {
    question: Arc<Question>,
    slots: Vec<Slot>,
    columns: Vec<Id>,
    totals: Vec<u64>,
    steps: Option<Steps>,
    groups: Groups,
    memo: Memo,
    /// Records that passed, and the best of them if records are listed.
    pub(crate) records: u64,
    /// Records among them of packets in tunnels.
    in_tunnels: u64,
    pub(crate) best: TopRecords,
}

/// Result of a question: groups and sums.
#[derive(Clone, Debug)]
pub struct Answer {
    slots: Vec<Slot>,
    /// Length of a time step in ns; 0 for none.
    step: u64,
    /// Records that passed the filter.
    pub records: u64,
    /// Records among them of packets in tunnels, which records of the tunnels count too.
    pub in_tunnels: u64,
    /// Sums over all of them.
    pub totals: Row,
    /// The largest groups; with time steps, each of them at each time, in order of time.
    pub rows: Vec<Row>,
    /// Number of groups, as far as they were kept separate.
    pub groups: u64,
    /// Sums of groups that are not among the rows, including evicted ones.
    pub others: Option<Row>,
    /// Number of evicted groups: some may have occurred again and are counted again.
    pub evicted_groups: u64,
}

/// One group.
#[derive(Clone, Debug)]
pub struct Row {
    /// Start of its time step, in ns since 1970.
    pub time: Option<u64>,
    /// Its keys.
    pub keys: Vec<Value>,
    kept: Vec<u64>,
}

impl PartialAnswer {
    /// Creates an empty one for one of `threads` threads. Up to [`WHOLE_THREADS`] each has room for all groups, so that
    /// the result is that of one thread.
    pub fn new(question: &Arc<Question>, threads: usize) -> Self {
        let slots = question.slots();
        PartialAnswer {
            question: Arc::clone(question),
            columns: question.columns(),
            totals: slots.iter().map(Slot::none).collect(),
            steps: (question.every > 0).then(|| Steps::new(question)),
            groups: Groups::new(
                question,
                (question.most_groups / threads.div_ceil(WHOLE_THREADS).max(1))
                    .max(LEAST_GROUPS.min(question.most_groups)),
            ),
            slots,
            memo: Memo::default(),
            records: 0,
            in_tunnels: 0,
            best: TopRecords::new(question),
        }
    }

    /// Returns the columns that it reads.
    pub fn columns(&self) -> &[Id] {
        &self.columns
    }

    /// Adds records after applying the filter.
    pub fn take(&mut self, batch: &Batch) {
        let chosen = self.question.filter.choose(batch, &mut self.memo);
        self.add(batch, Some(&chosen));
    }

    /// Adds records that passed the filter.
    pub(crate) fn add(&mut self, batch: &Batch, chosen: Option<&[bool]>) {
        let count = chosen.map_or(batch.rows, |chosen| chosen.iter().filter(|one| **one).count());
        if count == 0 {
            return;
        }
        self.records += count as u64;
        self.in_tunnels += batch.get(own("tunnel_kind")).map_or(0, |kinds| present(kinds, batch.rows, chosen));
        let values: Vec<Cow<'_, [u64]>> = self.slots.iter().map(|slot| slot.of(batch)).collect();
        for ((total, slot), values) in self.totals.iter_mut().zip(&self.slots).zip(&values) {
            *total = slot.total(*total, values, chosen);
        }
        match &self.steps {
            Some(steps) => steps.spread(batch, chosen, &self.slots, &values, &mut self.groups),
            None if self.question.is_of_groups() => self.groups.take(batch, chosen, &values),
            None => {}
        }
    }

    /// Adds the result of another thread.
    pub fn join(&mut self, other: PartialAnswer) {
        self.records += other.records;
        self.in_tunnels += other.in_tunnels;
        for ((total, one), slot) in self.totals.iter_mut().zip(&other.totals).zip(&self.slots) {
            *total = slot.join(*total, *one);
        }
        self.groups.join(other.groups);
        other.best.heap.into_iter().for_each(|one| self.best.put(one.0));
    }

    /// Returns the result so far.
    pub fn answer(&self) -> Answer {
        let PartialAnswer { question, slots, groups, .. } = self;
        let has_time = question.every > 0;
        // By keys only, over all times.
        let mut whole: HashMap<Vec<Value>, Vec<u64>> = HashMap::new();
        let (mut rows, mut count) = (Vec::new(), 0);
        for (mut keys, kept) in groups.each() {
            let time = has_time.then(|| match keys.remove(0) {
                Value::Time(time) => time,
                _ => 0,
            });
            if has_time && !question.keys.is_empty() {
                let sums = whole.entry(keys.clone()).or_insert_with(|| slots.iter().map(Slot::none).collect());
                sums.iter_mut().zip(kept).zip(slots).for_each(|((sum, one), slot)| *sum = slot.join(*sum, *one));
            }
            count += 1;
            rows.push(Row { time, keys, kept: kept.to_vec() });
        }
        let size = |kept: &[u64]| question.measures[question.sort].value(slots, kept, 0);
        let mut left: Vec<Row> = Vec::new();
        if !has_time {
            let mut order: Vec<(f64, Row)> = rows.into_iter().map(|row| (size(&row.kept), row)).collect();
            let by_size = |one: &(f64, Row), other: &(f64, Row)| {
                other.0.total_cmp(&one.0).then_with(|| one.1.keys.cmp(&other.1.keys))
            };
            if question.top < order.len() {
                order.select_nth_unstable_by(question.top, by_size);
                left = order.split_off(question.top).into_iter().map(|(_, row)| row).collect();
            }
            order.sort_unstable_by(by_size);
            rows = order.into_iter().map(|(_, row)| row).collect();
        } else if !question.keys.is_empty() {
            let mut order: Vec<(Vec<Value>, f64)> = whole.into_iter().map(|(keys, kept)| (keys, size(&kept))).collect();
            order.sort_by(|one, other| other.1.total_cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
            count = order.len() as u64;
            let place: HashMap<Vec<Value>, usize> =
                order.into_iter().take(question.top).enumerate().map(|(place, (keys, _))| (keys, place)).collect();
            (rows, left) = rows.into_iter().partition(|row| place.contains_key(&row.keys));
            rows.sort_by_key(|row| (row.time, place[&row.keys]));
        } else {
            rows.sort_by_key(|row| row.time);
        }
        let mut others: Vec<u64> = groups.others.clone();
        for row in &left {
            others.iter_mut().zip(&row.kept).zip(slots).for_each(|((sum, one), slot)| *sum = slot.join(*sum, *one));
        }
        let has_others = !left.is_empty() || groups.evicted_groups > 0;
        // Sums of an end are known only by group.
        let mut totals = self.totals.clone();
        for (place, total) in totals.iter_mut().enumerate().filter(|(place, _)| slots[*place].is_of_end()) {
            *total = groups.sum(place);
        }
        Answer {
            slots: slots.clone(),
            step: question.every,
            records: self.records,
            in_tunnels: self.in_tunnels,
            totals: Row { time: None, keys: Vec::new(), kept: totals },
            rows,
            groups: count,
            others: has_others.then_some(Row { time: None, keys: Vec::new(), kept: others }),
            evicted_groups: groups.evicted_groups,
        }
    }
}

/// Returns how many of the chosen records have a value of this column.
fn present(values: &Values, rows: usize, chosen: Option<&[bool]>) -> u64 {
    // Most recordings have no tunnels.
    if matches!(values, Values::Words(_, words) if words.is_empty()) {
        return 0;
    }
    (0..rows).filter(|row| chosen.is_none_or(|chosen| chosen[*row]) && !values.is_absent(*row)).count() as u64
}

/// Up to this many threads have room for all groups each: some 200 MB per thread with a million groups.
pub const WHOLE_THREADS: usize = 4;
/// Minimum number of groups of a thread.
const LEAST_GROUPS: usize = 1 << 16;

impl Answer {
    /// Returns the value of a measure of a row.
    pub fn value(&self, row: &Row, measure: &Measure) -> f64 {
        measure.value(&self.slots, &row.kept, row.time.map_or(0, |_| self.step))
    }

    /// Returns the value if it is an integer.
    pub fn whole(&self, row: &Row, measure: &Measure) -> Option<u64> {
        measure.whole(&self.slots, &row.kept)
    }

    /// Returns the share of the total of a row, from 0 to 1; `None` for rates and times.
    pub fn part(&self, row: &Row, measure: &Measure) -> Option<f64> {
        let (own, all) = (self.value(row, measure), self.value(&self.totals, measure));
        (measure.has_parts() && all > 0.0).then_some(own / all)
    }
}

/// Position of a record: file, row group in it, row in that.
pub(crate) type RecordPosition = (usize, usize, usize);

/// The records to list: the largest, or the first ones.
pub(crate) struct TopRecords {
    most: usize,
    quantity: Option<Quantity>,
    pub heap: BinaryHeap<Reverse<RankedRecord>>,
}

type RankedRecord = (u64, Reverse<u64>, Reverse<RecordPosition>);

impl TopRecords {
    fn new(question: &Question) -> Self {
        TopRecords { most: question.top, quantity: None, heap: BinaryHeap::new() }
    }

    /// Orders by a measure of each record instead of time.
    pub(crate) fn by(&mut self, measure: &Measure) {
        self.quantity = match measure {
            Measure::Records => None,
            Measure::Sum(_, ids) => match ids[..] {
                [one, other] => Some(Quantity::Sum(one, other)),
                [one] => Some(Quantity::Column(one)),
                _ => None,
            },
            Measure::OfEnd(_, [id, _]) => Some(Quantity::Column(*id)),
            Measure::Duration => Some(Quantity::Column(crate::columns::own("duration_ns"))),
            Measure::Bps => Some(Quantity::Bps),
            Measure::Pps => Some(Quantity::Pps),
            Measure::Bpp => Some(Quantity::Bpp),
        };
    }

    pub(crate) fn columns(&self) -> Vec<Id> {
        let quantity = self.quantity.map(Quantity::columns).unwrap_or_default();
        quantity.into_iter().chain([crate::columns::own("first_time")]).collect()
    }

    /// Adds records that passed.
    pub(crate) fn take(&mut self, batch: &Batch, chosen: Option<&[bool]>, (file, group, first): RecordPosition) {
        let times = numbers(batch, crate::columns::own("first_time"));
        // Non-negative floats compare like their bits.
        let sizes = self.quantity.map(|quantity| quantity.reals(batch));
        for row in (0..batch.rows).filter(|row| chosen.is_none_or(|chosen| chosen[*row])) {
            let size = sizes.as_ref().map_or(0, |sizes| sizes[row].max(0.0).to_bits());
            self.put((size, Reverse(times[row]), Reverse((file, group, first + row))));
        }
    }

    fn put(&mut self, one: RankedRecord) {
        if self.heap.len() < self.most {
            self.heap.push(Reverse(one));
        } else if self.heap.peek().is_some_and(|least| one > least.0) {
            self.heap.pop();
            self.heap.push(Reverse(one));
        }
    }

    /// Returns the positions in order.
    pub(crate) fn places(self) -> Vec<RecordPosition> {
        let mut all: Vec<RankedRecord> = self.heap.into_iter().map(|one| one.0).collect();
        all.sort_unstable_by_key(|one| Reverse(*one));
        all.into_iter().map(|(_, _, Reverse(place))| place).collect()
    }
}
