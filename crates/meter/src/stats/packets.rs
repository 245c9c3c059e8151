//! The first packets of flows, a word each.

use super::PacketStats;
use crate::facts::Facts;
use linerate_burst::{prefetch_many, resident};

/// In a word: payload (15 bits), end that sent it, TCP flags, and the lower 40 bits of the time in microseconds, 12
/// days.
const PAYLOAD: u64 = 0x7fff;
const SIDE: u32 = 15;
const FLAGS: u32 = 16;
const TIME: u32 = 24;
const MICROSECOND: u64 = 1000;

/// The same number of words for each record.
pub(super) struct Packets {
    each: usize,
    words: Vec<u64>,
}

impl Packets {
    pub(super) fn new(records: usize, each: usize) -> Self {
        Packets { each, words: resident(records * each) }
    }

    /// Adds room for one record.
    pub(super) fn grow(&mut self) {
        self.words.resize(self.words.len() + self.each, 0);
    }

    /// Prefetches the word of a packet.
    #[inline(always)]
    pub(super) fn prefetch(&self, record: u32, listed: u8) {
        if let Some(place) = self.words.get(record as usize * self.each + usize::from(listed)) {
            prefetch_many(place);
        }
    }

    /// Lists a packet after those `listed`, if there is room; returns their new number.
    #[inline(always)]
    pub(super) fn list(&mut self, record: u32, listed: u8, facts: &Facts) -> u8 {
        if usize::from(listed) >= self.each {
            return listed;
        }
        let side = u64::from(facts.side & 1) << SIDE;
        let payload = u64::from(facts.payload).min(PAYLOAD);
        let word = (facts.time / MICROSECOND) << TIME | u64::from(facts.flags) << FLAGS | side | payload;
        self.words[record as usize * self.each + usize::from(listed)] = word;
        listed + 1
    }

    /// Returns the listed packets of a record that began at `began`, ns, and has this end as its originator.
    pub(super) fn of(&self, record: u32, listed: u8, began: u64, originator: usize) -> Vec<PacketStats> {
        let first = record as usize * self.each;
        let began = (began / MICROSECOND) << TIME;
        let packet = |word: &u64| PacketStats {
            time: (word.wrapping_sub(began) >> TIME) * MICROSECOND,
            from_originator: (word >> SIDE & 1) as usize == originator,
            payload: (word & PAYLOAD) as u16,
            tcp_flags: (word >> FLAGS) as u8,
        };
        self.words[first..first + usize::from(listed)].iter().map(packet).collect()
    }
}
