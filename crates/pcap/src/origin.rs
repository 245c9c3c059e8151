//! Metadata of a pcapng file beyond frames and the fields of an [`Interface`], carried to another file.
//!
//! It is carried in [`Interface::origin`], so that the stages between reader and writer (merge, filter, memory) need
//! not know about it. Options are kept encoded, in native byte order. Interface statistics follow the frames, and
//! notes arrive with them, hence the locks; both are taken for frames with a note and at the end, not for others.

use crate::pcapng::{IF_FCSLEN, push};
use linerate_burst::{Desc, Interface, Nanos};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of notes of a file kept at a time; their numbers wrap. Far more than the frames in flight between
/// reader and writer.
const MOST_NOTES: usize = u16::MAX as usize;

/// Maximum size of the notes kept at a time.
const MOST_NOTE_BYTES: usize = 64 << 20;

/// Metadata of an interface of a file.
#[derive(Debug)]
pub(crate) struct Origin {
    /// Options of the section header.
    pub section: Arc<Vec<u8>>,
    /// Options of the interface description, except those on the resolution of times.
    pub options: Vec<u8>,
    /// Bytes of FCS at the end of each frame, unless the frame gives another length.
    pub fcs: u8,
    /// Metadata of frames and of the file, shared by all its interfaces.
    pub notes: Arc<Notes>,
    statistics: Mutex<Option<Statistics>>,
}

/// Content of an interface statistics block; `None` for missing options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    pub first: Option<Nanos>,
    pub last: Option<Nanos>,
    pub received: Option<u64>,
    pub dropped_by_interface: Option<u64>,
    pub accepted: Option<u64>,
    pub dropped_by_system: Option<u64>,
    pub delivered: Option<u64>,
    /// Comments, encoded.
    pub comments: Vec<u8>,
}

impl Origin {
    /// Returns the metadata of an interface of a section.
    pub(crate) fn new(section: &Arc<Vec<u8>>, options: Vec<u8>, notes: &Arc<Notes>, fcs: u8) -> Self {
        let (section, notes) = (Arc::clone(section), Arc::clone(notes));
        Origin { section, options, fcs, notes, statistics: Mutex::default() }
    }

    /// Returns the metadata of an interface from a pcapng file, or a pcap file with FCS.
    pub(crate) fn of(interface: &Interface) -> Option<Arc<Origin>> {
        interface.origin.clone().and_then(|origin| origin.downcast().ok())
    }

    /// Returns the metadata of an interface for which only the FCS length is known.
    pub(crate) fn of_fcs(fcs: u8) -> Self {
        let mut options = Vec::new();
        push(&mut options, IF_FCSLEN, &[fcs]);
        Origin::new(&Arc::default(), options, &Arc::default(), fcs)
    }

    /// Sets the statistics; those of a later block are cumulative and replace earlier ones.
    pub(crate) fn set_statistics(&self, statistics: Statistics) {
        *lock(&self.statistics) = Some(statistics);
    }

    /// Takes the statistics read before.
    pub(crate) fn take_statistics(&self) -> Option<Statistics> {
        lock(&self.statistics).take()
    }

    /// Returns frames received, and dropped by interface and system, if the statistics have them.
    pub(crate) fn seen_and_dropped(&self) -> [Option<u64>; 3] {
        let statistics = lock(&self.statistics);
        let of = |count: fn(&Statistics) -> Option<u64>| statistics.as_ref().and_then(count);
        [of(|found| found.received), of(|found| found.dropped_by_interface), of(|found| found.dropped_by_system)]
    }

    /// Returns the latest statistics.
    pub(crate) fn statistics(&self) -> Option<Statistics> {
        lock(&self.statistics).clone()
    }
}

/// Options of frames by number, of which the oldest are dropped above a limit; and blocks about the whole file, names
/// and secrets, encoded, in order.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    ring: Mutex<Ring>,
    tables: Mutex<Vec<Arc<[u8]>>>,
}

#[derive(Debug, Default)]
struct Ring {
    notes: VecDeque<Note>,
    /// Number of notes dropped before the first of `notes`.
    gone: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Note {
    /// Time of its frame, which distinguishes it from a note with the same number a round later.
    time: Nanos,
    options: Box<[u8]>,
}

impl Notes {
    /// Stores the options of a frame. Returns their number for [`Desc::note`].
    pub(crate) fn push(&self, time: Nanos, options: &[u8]) -> u16 {
        let mut ring = lock(&self.ring);
        while ring.notes.len() >= MOST_NOTES || ring.bytes + options.len() > MOST_NOTE_BYTES {
            let Some(oldest) = ring.notes.pop_front() else { break };
            ring.bytes -= oldest.options.len();
            ring.gone += 1;
        }
        ring.bytes += options.len();
        ring.notes.push_back(Note { time, options: options.into() });
        let serial = ring.gone + ring.notes.len() as u64 - 1;
        (serial % MOST_NOTES as u64) as u16 + 1
    }

    /// Appends the options of a frame, if it has any; false if they were dropped.
    #[must_use]
    pub(crate) fn append(&self, desc: &Desc, to: &mut Vec<u8>) -> bool {
        let Some(place) = desc.note.checked_sub(1) else { return true };
        let ring = lock(&self.ring);
        let round = MOST_NOTES as u64;
        let index = (u64::from(place) + round - ring.gone % round) % round;
        let note = ring.notes.get(index as usize).filter(|note| note.time == desc.time);
        note.inspect(|note| to.extend_from_slice(&note.options)).is_some()
    }
}

impl Notes {
    /// Stores a block.
    pub(crate) fn push_table(&self, block: Vec<u8>) {
        lock(&self.tables).push(block.into());
    }

    /// Returns the blocks after the first `known`.
    pub(crate) fn tables(&self, known: usize) -> Vec<Arc<[u8]>> {
        lock(&self.tables).get(known..).unwrap_or_default().to_vec()
    }
}

/// Locks, ignoring poison from a panic elsewhere: the data is never left inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(notes: &Notes, number: u16, time: u64) -> Vec<u8> {
        let mut found = Vec::new();
        let is_kept = notes.append(&Desc { note: number, ..Desc::new(Nanos(time), 0, 0) }, &mut found);
        assert_eq!(is_kept, number == 0 || !found.is_empty());
        found
    }

    #[test]
    fn notes_are_found_by_number_until_the_end_of_their_round() {
        let notes = Notes::default();
        let numbers: Vec<u16> = (0..70_000u32).map(|n| notes.push(Nanos(n.into()), &n.to_ne_bytes())).collect();
        assert_eq!((numbers[0], numbers[65_534], numbers[65_535]), (1, 65_535, 1));
        for n in 0..70_000u32 {
            let found = note(&notes, numbers[n as usize], n.into());
            assert_eq!(found, if n < 70_000 - 65_535 { vec![] } else { n.to_ne_bytes().to_vec() }, "{n}");
        }
        assert!(note(&notes, 0, 0).is_empty() && note(&Notes::default(), 7, 0).is_empty());
    }

    #[test]
    fn long_notes_take_bounded_memory() {
        let notes = Notes::default();
        let long = vec![7; 1 << 20];
        let numbers: Vec<u16> = (0..100).map(|n| notes.push(Nanos(n), &long)).collect();
        let kept = |n: u64| !note(&notes, numbers[n as usize], n).is_empty();
        assert_eq!((0..100).filter(|n| kept(*n)).count(), 64);
        assert!(kept(99) && !kept(35));
        assert!(lock(&notes.ring).bytes <= MOST_NOTE_BYTES);
    }
}
