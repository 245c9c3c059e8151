//! Connections by slot, with a hash index by key.

use super::connection::Connection;
use super::secret::Secret;
use super::segment::Key;

/// Empty index entry.
const FREE: u32 = u32::MAX;

#[derive(Debug)]
pub(super) struct Table {
    secret: Secret,
    slots: Vec<Option<Connection>>,
    free: Vec<u32>,
    /// Hash of the key and slot; at least twice as many entries as connections.
    index: Vec<(u32, u32)>,
    len: usize,
}

impl Table {
    pub(super) fn new(secret: Secret) -> Self {
        Table { secret, slots: Vec::new(), free: Vec::new(), index: vec![(0, FREE); 64], len: 0 }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(super) fn get(&self, slot: u32) -> Option<&Connection> {
        self.slots.get(slot as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slots.get_mut(slot as usize)?.as_mut()
    }

    pub(super) fn slots(&self) -> Vec<u32> {
        (0..self.slots.len() as u32).filter(|slot| self.get(*slot).is_some()).collect()
    }

    /// Finds the connection of these endpoints.
    pub(super) fn find(&self, key: &Key) -> Option<u32> {
        let spread = self.spread(key);
        let mask = self.index.len() - 1;
        let mut at = spread as usize & mask;
        loop {
            let (other, slot) = self.index[at];
            if slot == FREE {
                return None;
            }
            if other == spread && self.get(slot).is_some_and(|connection| connection.key == *key) {
                return Some(slot);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds a connection whose key is not in the table.
    pub(super) fn insert(&mut self, connection: Connection) -> u32 {
        if (self.len + 1) * 2 > self.index.len() {
            self.grow();
        }
        let spread = self.spread(&connection.key);
        let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
        if slot as usize == self.slots.len() {
            self.slots.push(None);
        }
        self.slots[slot as usize] = Some(connection);
        self.place(spread, slot);
        self.len += 1;
        slot
    }

    /// Removes a connection.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Connection> {
        let connection = self.slots.get_mut(slot as usize)?.take()?;
        self.free.push(slot);
        self.len -= 1;
        let mask = self.index.len() - 1;
        let mut gap = self.spread(&connection.key) as usize & mask;
        while self.index[gap].1 != slot {
            gap = (gap + 1) & mask;
        }
        // Move later entries of the cluster up, as far as each may go.
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let (spread, other) = self.index[at];
            if other == FREE {
                break;
            }
            let wanted = spread as usize & mask;
            if (at.wrapping_sub(wanted) & mask) >= (at.wrapping_sub(gap) & mask) {
                self.index[gap] = (spread, other);
                gap = at;
            }
        }
        self.index[gap] = (0, FREE);
        Some(connection)
    }

    #[inline]
    fn spread(&self, key: &Key) -> u32 {
        self.secret.spread(key.words()) as u32
    }

    fn place(&mut self, spread: u32, slot: u32) {
        let mask = self.index.len() - 1;
        let mut at = spread as usize & mask;
        while self.index[at].1 != FREE {
            at = (at + 1) & mask;
        }
        self.index[at] = (spread, slot);
    }

    fn grow(&mut self) {
        let twice = vec![(0, FREE); self.index.len() * 2];
        for (spread, slot) in std::mem::replace(&mut self.index, twice) {
            if slot != FREE {
                self.place(spread, slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::options::NegotiatedOptions;
    use super::super::segment::Segment;
    use super::super::template::Template;
    use super::*;
    use crate::stream_memory::Payload;
    use linerate_burst::Nanos;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn connection(ports: u32) -> Connection {
        let key = Key { from: 0xffff_0a00_0002, to: 0xffff_0a00_0001, ports };
        let payload = Payload::Bytes(&[]);
        let segment = Segment { link: &[], key, sequence: 0, ack: 0, flags: 0, options: &[], payload, headers: 40 };
        Connection::new(key, Template::back(&segment), (0, 0), NegotiatedOptions::default(), Nanos::ZERO)
    }

    proptest! {
        /// Compared with a map.
        #[test]
        fn connections_are_found_after_any_insertions_and_removals(
            steps in prop::collection::vec((0u32..120, any::<bool>()), 0..600), secret: [u64; 2],
        ) {
            let (mut table, mut model) = (Table::new(Secret::new(secret)), BTreeMap::new());
            for (ports, comes) in steps {
                let key = connection(ports).key;
                prop_assert_eq!(table.find(&key), model.get(&ports).copied());
                match model.get(&ports) {
                    None if comes => {
                        let slot = table.insert(connection(ports));
                        model.insert(ports, slot);
                    }
                    Some(slot) if !comes => {
                        prop_assert_eq!(table.remove(*slot).map(|gone| gone.key), Some(key));
                        model.remove(&ports);
                    }
                    _ => {}
                }
                prop_assert_eq!(table.len(), model.len());
            }
            for (ports, slot) in &model {
                prop_assert_eq!(table.find(&connection(*ports).key), Some(*slot));
            }
            let mut slots: Vec<u32> = model.into_values().collect();
            slots.sort_unstable();
            prop_assert_eq!(table.slots(), slots);
        }
    }
}
