//! Hash table from key to record: buckets of one cache line, with two bytes of hash per flow.
//!
//! A bucket has room for twelve flows, eight on average when the table is full. A flow that finds its bucket full goes
//! to the next one, and each bucket counts the flows that passed it, so that most searches end in the first.

use linerate_burst::{match_mask, prefetch_many, resident};

/// Flows for each bucket when the table is full.
pub(crate) const FLOWS_PER_BUCKET: usize = 8;
pub(crate) const BUCKET_BYTES: usize = size_of::<Bucket>();
/// No record; all record numbers are less.
pub(crate) const NONE: u32 = (1 << NUMBER) - 1;
/// Bits of a record number.
const NUMBER: u32 = 24;

/// Room for flows in one bucket.
const WAYS: usize = 12;

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Bucket {
    /// A byte of the hash of each flow; 0 for a free slot.
    tags: [u8; WAYS],
    /// Flows stored after this bucket because it was full.
    passed: u32,
    /// Record number (24 bits), and another byte of its hash.
    records: [u32; WAYS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    const EMPTY: Bucket = Bucket { tags: [0; WAYS], passed: 0, records: [NONE; WAYS] };

    /// Returns the slots with this tag, a bit each.
    #[inline(always)]
    fn places(&self, tag: u8) -> u16 {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = self.tags;
        let [m, n, o, p] = self.passed.to_le_bytes();
        match_mask(tag, [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]) & ((1 << WAYS) - 1)
    }

    /// Returns the first record with both bytes of this hash.
    #[inline(always)]
    fn first(&self, hash: u64) -> u32 {
        let mut places = self.places(tag(hash));
        while places != 0 {
            let record = self.records[places.trailing_zeros() as usize % WAYS];
            if record >> NUMBER == second_tag(hash) {
                return record & NONE;
            }
            places &= places - 1;
        }
        NONE
    }
}

pub(crate) struct Table {
    buckets: Vec<Bucket>,
}

impl Table {
    pub(crate) fn new(flows: usize) -> Self {
        let count = flows.div_ceil(FLOWS_PER_BUCKET).max(2);
        let mut buckets = resident(count);
        buckets.resize(count, Bucket::EMPTY);
        Table { buckets }
    }

    /// Prefetches the bucket of a hash.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        prefetch_many(&self.buckets[self.place(hash)]);
    }

    /// Returns a candidate in the bucket, or in the next one if flows passed it; there may be none, or others.
    #[inline(always)]
    pub(crate) fn guess(&self, hash: u64) -> u32 {
        let place = self.place(hash);
        let bucket = &self.buckets[place];
        match bucket.first(hash) {
            NONE if bucket.passed > 0 => self.buckets[self.behind(place)].first(hash),
            record => record,
        }
    }

    /// Returns the record for which `is_it` holds.
    pub(crate) fn find(&self, hash: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let (tag, second) = (tag(hash), second_tag(hash));
        let first = self.place(hash);
        let mut place = first;
        loop {
            let bucket = &self.buckets[place];
            for (found, record) in bucket.tags.iter().zip(bucket.records) {
                if *found == tag && record >> NUMBER == second && is_it(record & NONE) {
                    return Some(record & NONE);
                }
            }
            place = self.behind(place);
            // In a small table flows may have passed every bucket.
            if bucket.passed == 0 || place == first {
                return None;
            }
        }
    }

    /// Inserts a record; there must be fewer than the table was created for.
    pub(crate) fn insert(&mut self, hash: u64, record: u32) {
        let mut place = self.place(hash);
        loop {
            let bucket = &mut self.buckets[place];
            if let Some(way) = bucket.tags.iter().position(|tag| *tag == 0) {
                bucket.tags[way] = tag(hash);
                bucket.records[way] = record | second_tag(hash) << NUMBER;
                return;
            }
            bucket.passed += 1;
            place = self.behind(place);
        }
    }

    /// Removes a record that was inserted with this hash.
    pub(crate) fn remove(&mut self, hash: u64, record: u32) {
        let mut place = self.place(hash);
        loop {
            let bucket = &mut self.buckets[place];
            if let Some(way) = bucket.records.iter().position(|found| found & NONE == record) {
                bucket.tags[way] = 0;
                bucket.records[way] = NONE;
                return;
            }
            bucket.passed -= 1;
            place = self.behind(place);
        }
    }

    #[inline(always)]
    fn place(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.buckets.len() as u128) >> 64) as usize
    }

    fn behind(&self, place: usize) -> usize {
        if place + 1 == self.buckets.len() { 0 } else { place + 1 }
    }
}

/// Returns another byte.
#[inline(always)]
fn second_tag(hash: u64) -> u32 {
    (hash >> 8) as u8 as u32
}

/// Returns a byte of the hash that is independent of the bucket, and not 0.
#[inline(always)]
fn tag(hash: u64) -> u8 {
    (hash as u8).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Full, and with hashes that all map to a few buckets.
    #[test]
    fn records_are_found_until_they_are_removed() {
        for spread in [u64::MAX, 0x0fff_ffff_ffff_ffff, 7] {
            let flows = 500;
            let (mut table, mut state) = (Table::new(flows), 1u64);
            let mut known: HashMap<u32, u64> = HashMap::new();
            for step in 0..20_000u32 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let record = (state >> 33) as u32 % flows as u32;
                let hash = state.rotate_left(31).wrapping_mul(0x9e37_79b9_7f4a_7c15) & spread;
                match known.remove(&record) {
                    Some(hash) => table.remove(hash, record),
                    None => {
                        known.insert(record, hash);
                        table.insert(hash, record);
                    }
                }
                if step % 100 == 0 {
                    for (record, hash) in &known {
                        assert_eq!(table.find(*hash, |found| found == *record), Some(*record));
                    }
                    assert_eq!(table.find(hash, |found| found == NONE), None);
                }
            }
            known.drain().for_each(|(record, hash)| table.remove(hash, record));
            assert!(
                table.buckets.iter().all(|bucket| bucket.passed == 0 && bucket.tags == [0; WAYS]),
                "spread {spread:x}"
            );
        }
    }

    /// Each of a few buckets may have been full at a time when another had room.
    #[test]
    fn search_ends_if_every_bucket_was_passed() {
        let mut table = Table::new(16);
        let (one, other) = (1, u64::MAX);
        (0..WAYS as u32 + 1).for_each(|record| table.insert(one, record));
        (0..9).for_each(|record| table.remove(one, record));
        (20..32).for_each(|record| table.insert(other, record));
        assert!(table.buckets.iter().all(|bucket| bucket.passed > 0));
        assert_eq!(table.find(one, |_| false), None);
        assert_eq!(table.find(other - 1, |_| true), None);
        assert_eq!(table.find(one, |record| record == WAYS as u32), Some(WAYS as u32));
        assert_eq!(table.find(other, |record| record == 31), Some(31));
    }

    #[test]
    fn the_first_guess_is_a_record_with_the_tag() {
        let mut table = Table::new(8);
        for way in 0..WAYS as u32 {
            table.insert(u64::from(way) + 1, way);
        }
        for way in 0..WAYS as u32 {
            assert_eq!(table.guess(u64::from(way) + 1), way);
        }
        assert_eq!(table.guess(100), NONE);
    }
}
