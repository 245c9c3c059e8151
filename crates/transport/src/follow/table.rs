//! Known connections, by the time of their last segment.

use super::segment::Key;
use super::side::Side;
use linerate_burst::Nanos;
use std::collections::HashMap;

const NONE: u32 = u32::MAX;

/// List of a connection; earlier lists are evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// Ended; late segments still belong to it.
    Closed,
    /// No data seen yet.
    Fresh,
    Open,
}

#[derive(Debug)]
pub(super) struct Connection {
    pub key: Key,
    /// Number of connections before it.
    pub number: u64,
    pub sides: [Side; 2],
    /// Side that has reset it.
    pub reset_by: Option<usize>,
    /// Sides that have sent a segment.
    pub has_sent: [bool; 2],
    /// Time of its last segment.
    pub seen: Nanos,
    pub list: List,
    earlier: u32,
    later: u32,
    /// Previous and next connection of the same endpoints. At most two exist.
    pub predecessor: Option<u32>,
    successor: Option<u32>,
}

impl Connection {
    /// Returns the list it belongs to.
    pub(super) fn state(&self) -> List {
        match &self.sides {
            _ if self.reset_by.is_some() => List::Closed,
            [one, other] if one.is_over() && other.is_over() => List::Closed,
            [one, other] if one.has_data() || other.has_data() => List::Open,
            _ => List::Fresh,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Table {
    /// Latest connection of each key.
    places: HashMap<Key, u32>,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<u32>,
    /// Ends of each list: the least and the most recently active.
    ends: [Option<(u32, u32)>; 3],
    /// Last lookup.
    last: Option<(Key, u32)>,
    begun: u64,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// Returns the number of connections so far.
    pub(super) fn begun(&self) -> u64 {
        self.begun
    }

    #[inline]
    pub(super) fn find(&mut self, key: &Key) -> Option<u32> {
        if let Some((last, place)) = &self.last
            && last == key
        {
            return Some(*place);
        }
        let place = *self.places.get(key)?;
        self.last = Some((*key, place));
        Some(place)
    }

    pub(super) fn get(&self, place: u32) -> Option<&Connection> {
        self.connections.get(place as usize)?.as_deref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, place: u32) -> Option<&mut Connection> {
        self.connections.get_mut(place as usize)?.as_deref_mut()
    }

    /// Adds a connection; at most one of this key may exist.
    pub(super) fn add(&mut self, key: Key, now: Nanos) -> u32 {
        let predecessor = self.find(&key);
        self.last = None;
        let place = self.free.pop().unwrap_or_else(|| {
            self.connections.push(None);
            self.connections.len() as u32 - 1
        });
        let connection = Connection {
            key,
            number: self.begun,
            sides: Default::default(),
            reset_by: None,
            has_sent: [false; 2],
            seen: now,
            list: List::Fresh,
            earlier: NONE,
            later: NONE,
            predecessor,
            successor: None,
        };
        if let Some(predecessor) = predecessor.and_then(|place| self.get_mut(place)) {
            predecessor.successor = Some(place);
        }
        self.begun += 1;
        self.connections[place as usize] = Some(Box::new(connection));
        self.places.insert(key, place);
        self.append(place, List::Fresh);
        place
    }

    /// Removes a connection. Also returns whether it had a successor.
    pub(super) fn remove(&mut self, place: u32) -> Option<(Box<Connection>, bool)> {
        self.unlink(place);
        let connection = self.connections.get_mut(place as usize)?.take()?;
        let Connection { predecessor, successor, .. } = *connection;
        if let Some(successor) = successor.and_then(|place| self.get_mut(place)) {
            successor.predecessor = None;
        } else if let Some(before) = predecessor {
            self.places.insert(connection.key, before);
        } else {
            self.places.remove(&connection.key);
        }
        if let Some(predecessor) = predecessor.and_then(|place| self.get_mut(place)) {
            predecessor.successor = None;
        }
        self.last = None;
        self.free.push(place);
        Some((connection, successor.is_some()))
    }

    /// Limits stamps later than `above` to `most`; they are at the ends of the lists.
    pub(super) fn correct(&mut self, above: Nanos, most: Nanos) {
        for mut place in self.ends.map(|ends| ends.map_or(NONE, |(_, last)| last)) {
            while let Some(connection) = self.get_mut(place).filter(|connection| connection.seen > above) {
                connection.seen = connection.seen.min(most);
                place = connection.earlier;
            }
        }
    }

    /// Updates the time and list of a connection.
    #[inline]
    pub(super) fn touch(&mut self, place: u32, list: List, now: Nanos) {
        let Some(connection) = self.get_mut(place) else { return };
        connection.seen = now;
        let is_last = connection.list == list && connection.later == NONE;
        if !is_last {
            self.unlink(place);
            self.append(place, list);
        }
    }

    /// Returns the least recently active connection of a list.
    pub(super) fn oldest(&self, list: List) -> Option<u32> {
        self.ends[list as usize].map(|(first, _)| first)
    }

    /// Returns all slots, by number of their connection.
    pub(super) fn all(&self) -> Vec<u32> {
        let is_there = |place: &u32| self.get(*place).is_some();
        let mut places: Vec<u32> = (0..self.connections.len() as u32).filter(is_there).collect();
        places.sort_unstable_by_key(|place| self.get(*place).map(|connection| connection.number));
        places
    }

    fn append(&mut self, place: u32, list: List) {
        let ends = &mut self.ends[list as usize];
        let before = ends.map_or(NONE, |(_, last)| last);
        *ends = Some((ends.map_or(place, |(first, _)| first), place));
        if let Some(connection) = self.get_mut(place) {
            (connection.list, connection.earlier, connection.later) = (list, before, NONE);
        }
        if let Some(before) = self.get_mut(before) {
            before.later = place;
        }
    }

    fn unlink(&mut self, place: u32) {
        let Some(&Connection { list, earlier, later, .. }) = self.get(place) else { return };
        if let Some(connection) = self.get_mut(earlier) {
            connection.later = later;
        }
        if let Some(connection) = self.get_mut(later) {
            connection.earlier = earlier;
        }
        let Some((first, last)) = self.ends[list as usize] else { return };
        let (first, last) = (if first == place { later } else { first }, if last == place { earlier } else { last });
        self.ends[list as usize] = (first != NONE).then_some((first, last));
    }
}
