//! Slow path: packets that are not of the guessed flow, or are the first of their kind in it.

use crate::facts::Facts;
use crate::flow::{Direction, EndReason, Records};
use crate::key::Wide;
use crate::meter::{CountResult, Meter};
use crate::record::{FIN, RST};

impl Meter {
    /// Counts a packet that is not of the guessed flow; returns its record.
    #[inline(never)]
    pub(crate) fn search(&mut self, facts: &Facts, wide: &Wide, records: &mut dyn Records) -> u32 {
        match self.find(facts, wide) {
            Some(found) if self.count::<true>(found, facts, wide) == CountResult::Done => found,
            found => self.account(found, facts, wide, records),
        }
    }

    /// Counts any packet in the flow that was found for it; returns its record.
    #[inline(never)]
    pub(crate) fn account(
        &mut self,
        mut found: Option<u32>,
        facts: &Facts,
        wide: &Wide,
        records: &mut dyn Records,
    ) -> u32 {
        let mut before = None;
        if let Some(record) = found
            && let Some(reason) = self.is_over(record, facts)
        {
            before = (reason == EndReason::Active).then(|| self.before(record));
            self.end(record, reason, records);
            found = None;
        }
        let record = found.unwrap_or_else(|| self.begin(facts, wide, before, records));
        let hot = &mut self.hot[record as usize];
        if hot.direction() == Direction::FirstPacket as u8
            && let Some((originator, direction)) = facts.direction()
        {
            hot.set_direction(originator, direction as u8);
        }
        if facts.flags & (FIN | RST) != 0 {
            if self.tcp.accepts_end(record, facts) {
                hot.note_end(facts.sides()[0], facts.flags);
            } else {
                self.cold[record as usize].note_doubtful_end();
            }
        }
        let clock = &self.clock;
        if let Some(stats) = &mut self.stats {
            let gap = self.cold[record as usize].gap(hot, facts);
            stats.count(record, hot, facts, gap);
            stats.note(record, facts, gap.is_none());
        }
        self.cold[record as usize].count(hot, facts, (&mut self.spills, record), |time| clock.coarse(time));
        if facts.words.is_wide() {
            self.wide[record as usize].extensions |= facts.extensions;
        }
        if facts.has_segment {
            self.tcp.take_any(record, facts);
        }
        record
    }

    fn find(&self, facts: &Facts, wide: &Wide) -> Option<u32> {
        self.table.find(facts.hash, |record| {
            let hot = &self.hot[record as usize];
            hot.has(facts.words, self.mask) && (!facts.words.is_wide() || self.wide[record as usize].key == *wide)
        })
    }
}
