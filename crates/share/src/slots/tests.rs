//! Random sequences of operations, compared with a model that keeps every frame.

use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::collections::{BTreeMap, BTreeSet};

const SLOTS: u32 = 6;

/// The same rules applied frame by frame, without sums.
#[derive(Default)]
struct Model {
    /// Frames of each block by their number in the stream.
    blocks: BTreeMap<u32, Vec<u64>>,
    free: VecDeque<u32>,
    open: Option<u32>,
    committed: u64,
    readers: BTreeMap<u32, ModelReader>,
    /// The block kept for each evicted reader.
    kept: BTreeMap<u32, u32>,
}

#[derive(Default)]
struct ModelReader {
    lossy: bool,
    quota: usize,
    joined: u64,
    /// Frames that it can see, by block.
    holds: BTreeMap<u32, Vec<u64>>,
    finished: Vec<u64>,
    skipped: Vec<u64>,
    skipped_slots: BTreeSet<u64>,
}

impl Model {
    fn pinned(&self) -> BTreeSet<u32> {
        self.readers.values().filter(|one| one.lossy).flat_map(|one| one.holds.keys().copied()).collect()
    }

    fn free_unless_held(&mut self, slot: u32) {
        let is_kept = self.kept.values().any(|kept| *kept == slot);
        if !is_kept && self.open != Some(slot) && !self.readers.values().any(|one| one.holds.contains_key(&slot)) {
            self.free.push_back(slot);
        }
    }

    fn commit(&mut self, frames: u32) -> Vec<(u32, u32)> {
        let Some(slot) = self.open else { return Vec::new() };
        let new: Vec<u64> = (self.committed..self.committed + u64::from(frames)).collect();
        let before = self.blocks[&slot].len() as u32;
        let opened = self.committed - u64::from(before);
        self.committed += u64::from(frames);
        self.blocks.get_mut(&slot).unwrap().extend(&new);
        let mut published = Vec::new();
        for number in self.readers.keys().copied().collect::<Vec<_>>() {
            let pinned = self.pinned();
            let room = pinned.contains(&slot) || pinned.len() < SLOTS as usize / 2;
            let reader = self.readers.get_mut(&number).unwrap();
            if let Some(held) = reader.holds.get_mut(&slot) {
                held.extend(&new);
            } else if !reader.lossy || (reader.holds.len() < reader.quota && room) {
                reader.holds.insert(slot, new.clone());
                published.push((number, before));
            } else {
                reader.skipped.extend(&new);
                reader.skipped_slots.insert(opened);
            }
        }
        published
    }

    fn return_slot(&mut self, number: u32, slot: u64) -> Result<(), Violation> {
        let slot = u32::try_from(slot).ok().filter(|slot| *slot < SLOTS).ok_or(Violation::NoSuchSlot(slot))?;
        let reader = self.readers.get_mut(&number).unwrap();
        if !reader.holds.contains_key(&slot) {
            return Err(Violation::NotHeld(slot));
        }
        if self.open == Some(slot) {
            return Err(Violation::Open(slot));
        }
        reader.finished.extend(reader.holds.remove(&slot).unwrap());
        self.free_unless_held(slot);
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Join { reader: u32, lossless: bool, quota: u32 },
    Open,
    Commit(u32),
    Close,
    GiveBack { reader: u32, slot: u64 },
    Leave(u32),
    Evicted(u32),
    Forget(u32),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => (0u32..5, any::<bool>(), 2u32..5)
            .prop_map(|(reader, lossless, quota)| Step::Join { reader, lossless, quota }),
        4 => Just(Step::Open),
        6 => (1u32..100).prop_map(Step::Commit),
        3 => Just(Step::Close),
        12 => (0u32..5, 0u64..7).prop_map(|(reader, slot)| Step::GiveBack { reader, slot }),
        1 => (0u32..5).prop_map(Step::Leave),
        1 => (0u32..5).prop_map(Step::Evicted),
        1 => (0u32..5).prop_map(Step::Forget),
    ]
}

fn take(slots: &mut Slots, model: &mut Model, step: &Step) {
    match *step {
        Step::Join { reader, lossless, quota } => {
            if !model.readers.contains_key(&reader) && !model.kept.contains_key(&reader) {
                slots.join(reader, lossless, quota);
                let (lossy, quota, joined) = (!lossless, quota as usize, model.committed);
                model.readers.insert(reader, ModelReader { lossy, quota, joined, ..ModelReader::default() });
            }
        }
        Step::Open => {
            if model.open.is_none() {
                model.open = model.free.remove(model.free.len().saturating_sub(8));
                model.open.iter().for_each(|slot| _ = model.blocks.insert(*slot, Vec::new()));
                assert_eq!(slots.open(), model.open);
            }
        }
        Step::Commit(frames) => {
            let mut published = Vec::new();
            slots.commit(frames, |reader, place| {
                assert_eq!(Some(place.slot), model.open);
                published.push((reader, place.from));
            });
            assert_eq!(published, model.commit(frames));
        }
        Step::Close => {
            slots.close();
            if let Some(slot) = model.open.take() {
                model.free_unless_held(slot);
            }
        }
        Step::GiveBack { reader, slot } => {
            if model.readers.contains_key(&reader) {
                assert_eq!(slots.return_slot(reader, slot), model.return_slot(reader, slot));
            }
        }
        Step::Leave(reader) => {
            if let Some(gone) = model.readers.remove(&reader) {
                let held: usize = gone.holds.values().map(Vec::len).sum();
                assert_eq!(slots.leave(reader).reclaimed, held as u64);
                gone.holds.keys().for_each(|slot| model.free_unless_held(*slot));
            }
        }
        Step::Evicted(reader) => {
            if let Some(gone) = model.readers.remove(&reader) {
                let held: usize = gone.holds.values().map(Vec::len).sum();
                let first = gone.holds.iter().min_by_key(|(_, frames)| frames[0]).map(|(slot, _)| *slot);
                // Two of six blocks: three are for lossy readers and one is to be filled.
                let first = first.filter(|_| model.kept.len() < 2);
                let (tally, keeps) = slots.evict(reader);
                assert_eq!((tally.reclaimed, keeps), (held as u64, first.is_some()));
                first.into_iter().for_each(|slot| _ = model.kept.insert(reader, slot));
                gone.holds.keys().for_each(|slot| model.free_unless_held(*slot));
            }
        }
        Step::Forget(reader) => {
            if let Some(slot) = model.kept.remove(&reader) {
                slots.forget(reader);
                model.free_unless_held(slot);
            }
        }
    }
}

fn compare(slots: &Slots, model: &Model) {
    assert_eq!((slots.committed(), slots.current(), &slots.free), (model.committed, model.open, &model.free));
    let pinned = model.pinned().len() as u32;
    assert_eq!((slots.pinned, bits(slots.kept).collect::<Vec<_>>()), (pinned, model.kept.keys().copied().collect()));
    assert_eq!(bits(slots.present()).collect::<Vec<_>>(), model.readers.keys().copied().collect::<Vec<_>>());
    for (number, reader) in &model.readers {
        let outstanding: usize = reader.holds.values().map(Vec::len).sum();
        let expected = Tally {
            committed: model.committed - reader.joined,
            finished: reader.finished.len() as u64,
            reclaimed: 0,
            outstanding: outstanding as u64,
            skipped_frames: reader.skipped.len() as u64,
            skipped_slots: reader.skipped_slots.len() as u64,
            held: reader.holds.len() as u32,
        };
        assert_eq!(slots.tally(*number), expected);
        assert_eq!(slots.is_lossless(*number), !reader.lossy);
        let mut all = [&reader.finished[..], &reader.skipped[..]].concat();
        all.extend(reader.holds.values().flatten());
        all.sort_unstable();
        assert_eq!(all, (reader.joined..model.committed).collect::<Vec<_>>(), "each frame once");
    }
}

proptest! {
    #[test]
    fn the_state_matches_the_model(steps in prop::collection::vec(step(), 1..300)) {
        let mut slots = Slots::new(SLOTS);
        let mut model = Model { free: (0..SLOTS).collect(), ..Model::default() };
        for step in &steps {
            take(&mut slots, &mut model, step);
            compare(&slots, &model);
        }
    }
}
