//! Packets with outstanding memory loads.
//!
//! The memory of a packet is anywhere, so it is prefetched while other packets are processed. Packets go in groups
//! through four stages: their keys are hashed and the buckets prefetched; their records are found in the buckets and
//! prefetched; the side data of the records is prefetched; they are counted. The prefetches of a group are issued close
//! together, so that the processor works on many of them at a time, above all where it has to walk page tables first.

use crate::encapsulation::Encapsulation;
use crate::facts::Facts;
use crate::flow_names::Place;
use crate::key::Wide;
use crate::table::NONE;

const GROUP: usize = 16;
const STAGES: usize = 4;

/// A packet between its stages.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub facts: Facts,
    /// Its record according to its bucket.
    pub guess: u32,
    /// Its position, if names are read.
    pub place: Place,
}

/// Rarely used parts of packets, separate so that they take no room in the first-level cache.
#[derive(Clone, Copy, Default)]
pub(crate) struct Extra {
    /// The other part of a wide key; undefined for any other key.
    pub wide: Wide,
    /// Headers in front of it; undefined unless the facts have `is_encapsulated`.
    pub encapsulation: Encapsulation,
    /// Offset of its IP header in the frame, unless it is usual.
    pub network: u32,
}

/// Packets that go through the stages together.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    slots: [Slot; GROUP],
    extras: [Extra; GROUP],
    length: usize,
}

impl Group {
    /// Returns the slots of the next packets.
    #[inline(always)]
    pub(crate) fn room(&mut self) -> impl Iterator<Item = (&mut Slot, &mut Extra)> {
        let slots = self.slots[self.length.min(GROUP)..].iter_mut();
        slots.zip(&mut self.extras[self.length.min(GROUP)..])
    }

    /// Adds `packets` slots that have been filled.
    #[inline(always)]
    pub(crate) fn grow(&mut self, packets: usize) {
        self.length += packets;
    }

    /// Returns whether it has to be processed before there is room.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.length >= GROUP
    }
}

/// Groups of packets in order of arrival.
pub(crate) struct Pipeline {
    groups: Box<[Group; STAGES]>,
    /// The one that packets are added to; those after it are older, the oldest first.
    newest: usize,
}

impl Default for Pipeline {
    fn default() -> Self {
        let slots = [Slot { facts: Facts::NONE, guess: NONE, place: Place::NOWHERE }; GROUP];
        let group = Group { slots, extras: [Extra::default(); GROUP], length: 0 };
        Pipeline { groups: Box::new([group; STAGES]), newest: 0 }
    }
}

impl Pipeline {
    /// Returns the group that packets are added to.
    #[inline(always)]
    pub(crate) fn newest(&mut self) -> &mut Group {
        &mut self.groups[self.newest % STAGES]
    }

    /// Returns the packets of a stage: 0 those that have just arrived.
    #[inline(always)]
    pub(crate) fn stage(&mut self, stage: usize) -> (&mut [Slot], &[Extra]) {
        let group = &mut self.groups[(self.newest + STAGES - stage) % STAGES];
        let length = group.length.min(GROUP);
        (&mut group.slots[..length], &group.extras[..length])
    }

    /// Advances every group to its next stage; those of the last one are finished.
    #[inline(always)]
    pub(crate) fn turn(&mut self) {
        self.newest = (self.newest + 1) % STAGES;
        self.groups[self.newest].length = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.iter().all(|group| group.length == 0)
    }
}
