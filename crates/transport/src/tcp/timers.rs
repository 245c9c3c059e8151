//! Timers: a heap with one entry per slot.

use linerate_burst::Nanos;

const NOWHERE: u32 = u32::MAX;

#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: Vec<(Nanos, u32)>,
    /// Position of each slot in the heap.
    places: Vec<u32>,
}

impl Timers {
    /// Returns the earliest deadline and its slot.
    #[inline]
    pub(super) fn first(&self) -> Option<(Nanos, u32)> {
        self.heap.first().copied()
    }

    /// Sets the only timer of slot `who`; [`Nanos::MAX`] clears it.
    pub(super) fn set(&mut self, who: u32, when: Nanos) {
        if who as usize >= self.places.len() {
            self.places.resize(who as usize + 1, NOWHERE);
        }
        let mut at = self.places[who as usize];
        if at == NOWHERE {
            if when == Nanos::MAX {
                return;
            }
            at = self.heap.len() as u32;
            self.heap.push((when, who));
            self.places[who as usize] = at;
        } else if when == Nanos::MAX {
            self.remove(at as usize);
            return;
        } else {
            self.heap[at as usize].0 = when;
        }
        let at = self.rise(at as usize);
        self.sink(at);
    }

    fn remove(&mut self, at: usize) {
        let (_, who) = self.heap.swap_remove(at);
        self.places[who as usize] = NOWHERE;
        if at < self.heap.len() {
            self.places[self.heap[at].1 as usize] = at as u32;
            let at = self.rise(at);
            self.sink(at);
        }
    }

    fn rise(&mut self, mut at: usize) -> usize {
        while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        at
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let children = (2 * at + 1..self.heap.len().min(2 * at + 3)).min_by_key(|child| self.heap[*child]);
            let Some(child) = children.filter(|child| self.heap[*child] < self.heap[at]) else { return };
            self.swap(at, child);
            at = child;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for at in [one, other] {
            self.places[self.heap[at].1 as usize] = at as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn earliest_timer_is_first(steps in prop::collection::vec((0u32..40, 0u64..30), 0..300)) {
            let (mut timers, mut model) = (Timers::default(), BTreeMap::new());
            for (who, when) in steps {
                let when = if when == 0 { Nanos::MAX } else { Nanos(when) };
                timers.set(who, when);
                model.insert(who, when);
                model.retain(|_, when| *when != Nanos::MAX);
                prop_assert_eq!(timers.first(), model.iter().map(|(who, when)| (*when, *who)).min());
                prop_assert_eq!(timers.heap.len(), model.len());
            }
        }
    }
}
