//! The holder of each frame, in the writer's private state. Pure.

use std::collections::VecDeque;

/// State of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// With the writer, to be filled.
    Free,
    /// Finished, for the next reader.
    Waiting,
    /// Held by the reader; the number is its position among all frames ever handed over.
    Held(u64),
}

/// A reader returned an entry that it does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Violation {
    /// Beyond the table.
    NoSuch,
    /// Never handed to it, or already returned.
    NotHeld,
}

impl Violation {
    /// Returns the words for reports.
    pub(super) fn words(self) -> &'static str {
        match self {
            Violation::NoSuch => "it returned an unknown frame",
            Violation::NotHeld => "it returned a frame that it does not hold",
        }
    }
}

#[derive(Debug)]
pub(super) struct Slots {
    states: Vec<State>,
    /// In the order of handing over.
    waiting: VecDeque<u32>,
    handed: u64,
    held: usize,
}

impl Slots {
    pub(super) fn new(entries: u32) -> Self {
        Slots { states: vec![State::Free; entries as usize], waiting: VecDeque::new(), handed: 0, held: 0 }
    }

    /// Queues a free entry for the reader; returns false if it is not free.
    pub(super) fn offer(&mut self, entry: u32) -> bool {
        let is_free = self.states.get(entry as usize) == Some(&State::Free);
        if is_free {
            self.states[entry as usize] = State::Waiting;
            self.waiting.push_back(entry);
        }
        is_free
    }

    /// Returns the first free entry from `first` on.
    pub(super) fn free_from(&self, first: u32) -> Option<u32> {
        let free = self.states.iter().skip(first as usize).position(|state| *state == State::Free)?;
        Some(first + free as u32)
    }

    /// Hands the next entry to the reader.
    pub(super) fn next(&mut self) -> Option<u32> {
        let entry = self.waiting.pop_front()?;
        self.states[entry as usize] = State::Held(self.handed);
        (self.handed, self.held) = (self.handed + 1, self.held + 1);
        Some(entry)
    }

    /// Takes an entry back from the reader.
    pub(super) fn return_slot(&mut self, entry: u64) -> Result<u32, Violation> {
        let place = usize::try_from(entry).ok().filter(|place| *place < self.states.len()).ok_or(Violation::NoSuch)?;
        if !matches!(self.states[place], State::Held(_)) {
            return Err(Violation::NotHeld);
        }
        self.states[place] = State::Free;
        self.held -= 1;
        Ok(place as u32)
    }

    /// Removes the reader: its entries wait again, before the others, in the order in which they were handed over.
    /// Returns them.
    pub(super) fn leave(&mut self) -> Vec<u32> {
        let held = |(place, state): (usize, &State)| match state {
            State::Held(number) => Some((*number, place as u32)),
            _ => None,
        };
        let mut had: Vec<(u64, u32)> = self.states.iter().enumerate().filter_map(held).collect();
        had.sort_unstable();
        for (_, entry) in had.iter().rev() {
            self.states[*entry as usize] = State::Waiting;
            self.waiting.push_front(*entry);
        }
        self.held = 0;
        had.into_iter().map(|(_, entry)| entry).collect()
    }

    /// Returns the number of entries that the reader holds.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Returns the number of waiting entries.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compared with lists of the waiting entries and of those that the reader holds.
        #[test]
        fn each_entry_is_in_one_list_and_keeps_its_order(steps in prop::collection::vec((0u8..5, 0u64..7), 0..200)) {
            let mut slots = Slots::new(6);
            let (mut waits, mut has): (Vec<u32>, Vec<u32>) = Default::default();
            for (step, entry) in steps {
                let place = entry as u32;
                match step {
                    0 => {
                        let is_free = entry < 6 && !waits.contains(&place) && !has.contains(&place);
                        prop_assert_eq!(slots.offer(place), is_free);
                        waits.extend(is_free.then_some(place));
                    }
                    1 => {
                        let next = (!waits.is_empty()).then(|| waits.remove(0));
                        prop_assert_eq!(slots.next(), next);
                        has.extend(next);
                    }
                    2 | 3 => {
                        let expected = match has.iter().position(|one| u64::from(*one) == entry) {
                            Some(at) => Ok(has.remove(at)),
                            None if entry < 6 => Err(Violation::NotHeld),
                            None => Err(Violation::NoSuch),
                        };
                        prop_assert_eq!(slots.return_slot(entry), expected);
                    }
                    _ => {
                        prop_assert_eq!(slots.leave(), has.clone());
                        waits.splice(0..0, has.drain(..));
                    }
                }
                prop_assert_eq!((slots.waiting(), slots.held()), (waits.len(), has.len()));
                let free = (2..6).find(|place| !waits.contains(place) && !has.contains(place));
                prop_assert_eq!(slots.free_from(2), free);
            }
        }
    }

    #[test]
    fn numbers_beyond_the_table_are_rejected() {
        let mut slots = Slots::new(2);
        for entry in [2, u64::from(u32::MAX), 1 << 32, u64::MAX] {
            assert_eq!(slots.return_slot(entry), Err(Violation::NoSuch));
        }
    }
}
