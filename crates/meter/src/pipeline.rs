//! Packets whose memory is on its way.
//!
//! What a packet needs lies anywhere in memory, so it is asked for and meanwhile others are looked at. Packets go in groups
//! through four stages: their keys are hashed and the buckets asked for; their records are found in the buckets and asked for;
//! what lies beside the records is asked for; they are counted. The requests of a group stand close together, so that the
//! processor works on many of them at a time, above all where it has to walk page tables first.

use crate::encapsulation::Encapsulation;
use crate::facts::Facts;
use crate::flow_names::Place;
use crate::key::Wide;
use crate::table::NONE;

/// Packets of a group.
const GROUP: usize = 16;
const STAGES: usize = 4;

/// A packet between its stages.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub facts: Facts,
    /// Its record, as far as its bucket says.
    pub guess: u32,
    /// Where it is, if names are read.
    pub place: Place,
}

/// What few packets have, apart so that it takes no room in the fastest memory.
#[derive(Clone, Copy, Default)]
pub(crate) struct Extra {
    /// The other part of a wide key; of any other anything.
    pub wide: Wide,
    /// What is in front of it; anything unless the facts say that there is something.
    pub encapsulation: Encapsulation,
    /// Where its IP header is in the frame, unless it is usual.
    pub network: u32,
}

/// Packets that go on together.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    slots: [Slot; GROUP],
    extras: [Extra; GROUP],
    length: usize,
}

impl Group {
    /// Where the next packets will be.
    #[inline(always)]
    pub(crate) fn room(&mut self) -> impl Iterator<Item = (&mut Slot, &mut Extra)> {
        let slots = self.slots[self.length.min(GROUP)..].iter_mut();
        slots.zip(&mut self.extras[self.length.min(GROUP)..])
    }

    /// There are packets in so many more places.
    #[inline(always)]
    pub(crate) fn grow(&mut self, packets: usize) {
        self.length += packets;
    }

    /// Whether it has to go on before there is room.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.length >= GROUP
    }
}

/// Groups of packets in the order in which they came.
pub(crate) struct Pipeline {
    groups: Box<[Group; STAGES]>,
    /// The one that packets are put into; those after it are older, the oldest first.
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
    /// The group that packets are put into.
    #[inline(always)]
    pub(crate) fn newest(&mut self) -> &mut Group {
        &mut self.groups[self.newest % STAGES]
    }

    /// The packets of a stage: 0 those that have just come.
    #[inline(always)]
    pub(crate) fn stage(&mut self, stage: usize) -> (&mut [Slot], &[Extra]) {
        let group = &mut self.groups[(self.newest + STAGES - stage) % STAGES];
        let length = group.length.min(GROUP);
        (&mut group.slots[..length], &group.extras[..length])
    }

    /// Every group goes to its next stage; those of the last one are done.
    #[inline(always)]
    pub(crate) fn turn(&mut self) {
        self.newest = (self.newest + 1) % STAGES;
        self.groups[self.newest].length = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.iter().all(|group| group.length == 0)
    }
}
