//! Table of names, each stored once for all flows that have them.

use foldhash::quality::RandomState;
use linerate_names::Names;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum memory: results above it are discarded and counted.
pub(super) const MOST_BYTES: usize = 64 << 20;
/// Overhead of each: its entry here and in the map, which has up to four times as much room while it grows.
const EACH: usize = 128;

/// Names of all open flows.
#[derive(Default)]
pub(super) struct NameTable {
    /// From index 1 on.
    entries: Vec<Entry>,
    free: Vec<u32>,
    places: HashMap<Arc<Names>, u32, RandomState>,
    bytes: usize,
    /// Number of results discarded for lack of room.
    pub full: u64,
}

#[derive(Default)]
struct Entry {
    names: Option<Arc<Names>>,
    flows: u32,
}

impl NameTable {
    /// Returns the names at an index; 0 has none.
    pub(super) fn get(&self, place: u32) -> Option<Arc<Names>> {
        self.entries.get((place as usize).checked_sub(1)?)?.names.clone()
    }

    /// Returns the index of these names; 0 if the book is full.
    pub(super) fn insert(&mut self, names: Arc<Names>) -> u32 {
        if let Some(place) = self.places.get(&names) {
            self.entries[*place as usize - 1].flows += 1;
            return *place;
        }
        let bytes = names.memory() + EACH;
        if self.bytes + bytes > MOST_BYTES {
            self.full += 1;
            return 0;
        }
        self.bytes += bytes;
        let place = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry::default());
            self.entries.len() as u32
        });
        self.entries[place as usize - 1] = Entry { names: Some(Arc::clone(&names)), flows: 1 };
        self.places.insert(names, place);
        place
    }

    /// Replaces the names of a flow at an index; without room for new ones the old ones stay.
    pub(super) fn replace(&mut self, place: u32, names: Names) -> u32 {
        match self.insert(Arc::new(names)) {
            0 => place,
            new => {
                self.release(place);
                new
            }
        }
    }

    /// Removes one flow from these names.
    pub(super) fn release(&mut self, place: u32) {
        let Some(entry) = (place as usize).checked_sub(1).and_then(|place| self.entries.get_mut(place)) else { return };
        entry.flows = entry.flows.saturating_sub(1);
        if entry.flows == 0
            && let Some(names) = entry.names.take()
        {
            self.bytes -= names.memory() + EACH;
            self.places.remove(&names);
            self.free.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Names {
        Names { ssh: Some([Some(name.into()), None]), ..Names::default() }
    }

    #[test]
    fn shared_names_are_stored_once_while_referenced() {
        let mut book = NameTable::default();
        let (one, two) = (book.replace(0, named("a")), book.replace(0, named("a")));
        assert_eq!((one, two, book.entries.len()), (1, 1, 1));
        let other = book.replace(one, named("b"));
        assert_eq!((other, book.get(two).as_deref(), book.get(0)), (2, Some(&named("a")), None));
        book.release(two);
        assert_eq!((book.get(1), book.places.len()), (None, 1));
        assert_eq!(book.replace(other, named("c")), 1, "the index is free again");
        book.release(1);
        book.release(0);
        assert_eq!((book.bytes, book.places.len()), (0, 0));
    }

    #[test]
    fn names_without_space_are_counted_and_others_kept() {
        let mut book = NameTable::default();
        let long = "x".repeat(1 << 20);
        let place = book.replace(0, named("first"));
        let mut kept = 0;
        for number in 0..70 {
            kept += usize::from(book.replace(0, named(&format!("{number}{long}"))) != 0);
        }
        assert!((60..64).contains(&kept) && book.full == 70 - kept as u64, "{kept} of 70");
        assert_eq!(book.replace(place, named(&format!("more{long}"))), place);
        assert_eq!(book.get(place).as_deref(), Some(&named("first")));
    }
}
