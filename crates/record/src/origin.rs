//! What a pcapng file says beyond frames and the fields of an [`Interface`], on its way to another file.
//!
//! It travels as [`Interface::origin`], so that whatever stands between reader and writer (merge, filter,
//! memory) need not know of it. Options lie ready to be written: encoded, in native byte order. Interface
//! statistics come behind the frames and notes with them, hence the locks; both are taken for the frames
//! that have a note and at the end, not for others.

use crate::pcapng::{IF_FCSLEN, push};
use linerate_burst::{Desc, Interface, Nanos};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most notes of a file that are kept at a time; their numbers go round. Far more than the frames on
/// their way between reader and writer.
const MOST_NOTES: usize = u16::MAX as usize;

/// The most bytes of notes that are kept at a time.
const MOST_NOTE_BYTES: usize = 64 << 20;

/// What a file says about one of its interfaces.
#[derive(Debug)]
pub(crate) struct Origin {
    /// The options of the section header.
    pub section: Arc<Vec<u8>>,
    /// The options of the interface description, but for those that say how to read times.
    pub options: Vec<u8>,
    /// Bytes of FCS at the end of each frame, unless the frame says otherwise.
    pub fcs: u8,
    /// What is said of frames and of the file, the same for all its interfaces.
    pub notes: Arc<Notes>,
    statistics: Mutex<Option<Statistics>>,
}

/// What an interface statistics block says; `None` where it does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Statistics {
    pub first: Option<Nanos>,
    pub last: Option<Nanos>,
    pub received: Option<u64>,
    pub dropped_by_interface: Option<u64>,
    pub accepted: Option<u64>,
    pub dropped_by_system: Option<u64>,
    pub delivered: Option<u64>,
    /// Its comments, encoded.
    pub comments: Vec<u8>,
}

impl Origin {
    /// An interface of a section, with options of its own.
    pub(crate) fn new(section: &Arc<Vec<u8>>, options: Vec<u8>, notes: &Arc<Notes>, fcs: u8) -> Self {
        let (section, notes) = (Arc::clone(section), Arc::clone(notes));
        Origin { section, options, fcs, notes, statistics: Mutex::default() }
    }

    /// The origin of an interface, if it came from a pcapng file, or a pcap file with FCS.
    pub(crate) fn of(interface: &Interface) -> Option<Arc<Origin>> {
        interface.origin.clone().and_then(|origin| origin.downcast().ok())
    }

    /// The origin of an interface about which a file says no more than how long the FCS of its frames is.
    pub(crate) fn of_fcs(fcs: u8) -> Self {
        let mut options = Vec::new();
        push(&mut options, IF_FCSLEN, &[fcs]);
        Origin::new(&Arc::default(), options, &Arc::default(), fcs)
    }

    /// Takes statistics up; those of a later block count further, and stand for the earlier ones.
    pub(crate) fn set_statistics(&self, statistics: Statistics) {
        *lock(&self.statistics) = Some(statistics);
    }

    /// Gives away the statistics that were read before.
    pub(crate) fn take_statistics(&self) -> Option<Statistics> {
        lock(&self.statistics).take()
    }

    /// Frames received, and dropped by interface and system, as far as the statistics say so.
    pub(crate) fn seen_and_dropped(&self) -> [Option<u64>; 3] {
        let statistics = lock(&self.statistics);
        let of = |count: fn(&Statistics) -> Option<u64>| statistics.as_ref().and_then(count);
        [of(|found| found.received), of(|found| found.dropped_by_interface), of(|found| found.dropped_by_system)]
    }

    /// The last statistics that were read.
    pub(crate) fn statistics(&self) -> Option<Statistics> {
        lock(&self.statistics).clone()
    }
}

/// The options of frames, by number: the oldest go when there are too many of them. And the blocks about the
/// whole file, names and secrets, ready to be written, in order.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    ring: Mutex<Ring>,
    tables: Mutex<Vec<Arc<[u8]>>>,
}

#[derive(Debug, Default)]
struct Ring {
    notes: VecDeque<Note>,
    /// Notes that went before the first of `notes`.
    gone: u64,
    bytes: usize,
}

#[derive(Debug)]
struct Note {
    /// The time of its frame, by which a note with the same number a round later is told apart.
    time: Nanos,
    options: Box<[u8]>,
}

impl Notes {
    /// Keeps the options of a frame; returns their number for [`Desc::note`].
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

    /// Appends the options of a frame, if it has any; false if they are kept no longer.
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
    /// Keeps a block.
    pub(crate) fn push_table(&self, block: Vec<u8>) {
        lock(&self.tables).push(block.into());
    }

    /// The blocks behind the first `known`.
    pub(crate) fn tables(&self, known: usize) -> Vec<Arc<[u8]>> {
        lock(&self.tables).get(known..).unwrap_or_default().to_vec()
    }
}

/// What a lock holds, also after a panic elsewhere: nothing here is ever left half done.
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
    fn notes_are_found_by_number_until_their_round_is_over() {
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
