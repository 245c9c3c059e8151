//! The connections that are known, and in which order they were last heard of.

use super::segment::Key;
use super::side::Side;
use linerate_burst::Nanos;
use std::collections::HashMap;

/// No place.
const NONE: u32 = u32::MAX;

/// In which of the lists a connection stands; those of the first give way first where there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// It has ended, and what comes late still belongs to it.
    Closed,
    /// No byte was seen yet.
    Fresh,
    Open,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub key: Key,
    /// How many there were before it.
    pub number: u64,
    pub sides: [Side; 2],
    /// Which side has reset it.
    pub reset_by: Option<usize>,
    /// Which sides have sent anything.
    pub has_sent: [bool; 2],
    /// When it was last heard of.
    pub seen: Nanos,
    pub list: List,
    earlier: u32,
    later: u32,
    /// The connections of the same ends before it and after it. There are two at the most.
    pub predecessor: Option<u32>,
    successor: Option<u32>,
}

impl Connection {
    /// The list where it belongs.
    pub(super) fn state(&self) -> List {
        match &self.sides {
            _ if self.reset_by.is_some() => List::Closed,
            [one, other] if one.is_over() && other.is_over() => List::Closed,
            [one, other] if one.has_data() || other.has_data() => List::Open,
            _ => List::Fresh,
        }
    }
}

/// All connections.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// The latest connection of the same ends.
    places: HashMap<Key, u32>,
    connections: Vec<Option<Box<Connection>>>,
    free: Vec<u32>,
    /// The first and the last of each list: those heard of longest ago, and just now.
    ends: [Option<(u32, u32)>; 3],
    /// The last one that was asked for.
    last: Option<(Key, u32)>,
    begun: u64,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.connections.len() - self.free.len()
    }

    /// How many there were.
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

    /// Adds one; there is one of this key at the most.
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

    /// Removes one; says too whether it had a successor.
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

    /// Of those of each list that were seen after `above`, which are the last, none was seen after `most`.
    pub(super) fn correct(&mut self, above: Nanos, most: Nanos) {
        for mut place in self.ends.map(|ends| ends.map_or(NONE, |(_, last)| last)) {
            while let Some(connection) = self.get_mut(place).filter(|connection| connection.seen > above) {
                connection.seen = connection.seen.min(most);
                place = connection.earlier;
            }
        }
    }

    /// It was heard of now.
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

    /// The one of a list that was not heard of for longest.
    pub(super) fn oldest(&self, list: List) -> Option<u32> {
        self.ends[list as usize].map(|(first, _)| first)
    }

    /// All places, by the number of their connections.
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
