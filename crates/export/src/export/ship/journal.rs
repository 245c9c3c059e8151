//! Journal of a spool: the outcome of each batch, in lines of 64 bytes that are written once.
//!
//! ```text
//!  0  CRC-32C of the rest     5  detail (form, outcome)              16  batch number   24 .. 64  by kind
//!  4  kind                    8  run                                 (numbers are little endian)
//! ```
//!
//! The file is preallocated with zeros that are on disk: a line needs no further disk space, so that deliveries can be
//! noted on a full disk, and a length change cannot tear a line. A line of zeros is the end. Obsolete lines disappear
//! when the file is rewritten under another name and renamed.

mod line;

pub(super) use self::line::{Assigned, Batch, Id, Line, Outcome};

use super::super::directory::Directory;
use rustix::fs::OFlags;
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::os::unix::fs::FileExt;

pub(super) const LINE: usize = 64;
/// Lines per preallocation, and the reserve for lines that must not fail for lack of space.
const STEP: u64 = 1024;
const RESERVE: u64 = 256;
/// Maximum size read: about 16 million lines.
const MOST: u64 = 1 << 30;
const NAME: &str = "journal";
const NEW: &str = "journal.new";

pub(super) struct Journal {
    file: File,
    /// Number of lines written, and allocated.
    lines: u64,
    room: u64,
}

/// Content of an existing journal.
pub(super) struct JournalContent {
    pub lines: Vec<Line>,
    /// Number of unreadable lines; 1 if the journal was missing.
    pub damaged: u64,
    pub is_new: bool,
}

impl Journal {
    /// Opens the journal of a directory, or creates it.
    ///
    /// # Errors
    /// System errors; `InvalidData`: another version, or not a journal.
    pub(super) fn open(folder: &Directory) -> Result<(Self, JournalContent)> {
        let mut file = match folder.file(NAME, OFlags::RDWR) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let journal = Journal::made(folder, &[])?;
                return Ok((journal, JournalContent { lines: Vec::new(), damaged: 0, is_new: true }));
            }
            file => file?,
        };
        let length = file.metadata()?.len();
        if length > MOST {
            return Err(Error::new(ErrorKind::InvalidData, "journal exceeds its maximum size"));
        }
        let mut bytes = Vec::new();
        (&mut file).take(MOST).read_to_end(&mut bytes)?;
        let (all, _) = bytes.as_chunks::<LINE>();
        if all.first().and_then(Line::of) != Some(Line::Begin) {
            return Err(Error::new(ErrorKind::InvalidData, "journal is damaged or not a linerate journal"));
        }
        let end = all.iter().rposition(|line| *line != [0; LINE]).map_or(0, |last| last + 1);
        let read: Vec<Option<Line>> = all[..end].iter().map(Line::of).collect();
        let damaged = read.iter().filter(|line| line.is_none()).count() as u64;
        let lines = read.into_iter().flatten().skip(1).collect();
        Ok((
            Journal { file, lines: end as u64, room: all.len() as u64 },
            JournalContent { lines, damaged, is_new: false },
        ))
    }

    /// Appends lines. With `needs_room` it keeps a reserve for later lines about them.
    ///
    /// # Errors
    /// `StorageFull`: the disk is full. Others: system errors. On an error the content is unchanged.
    pub(super) fn add(&mut self, lines: &[Line], needs_room: bool) -> Result<()> {
        let wanted = self.lines + lines.len() as u64;
        if wanted + RESERVE > self.room {
            let grown = self.grow();
            if wanted + if needs_room { RESERVE } else { 0 } > self.room {
                return Err(grown.err().unwrap_or(ErrorKind::StorageFull.into()));
            }
        }
        let bytes: Vec<u8> = lines.iter().flat_map(|line| line.to_bytes()).collect();
        self.file.write_all_at(&bytes, self.lines * LINE as u64)?;
        self.lines = wanted;
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<()> {
        self.file.sync_data()
    }

    /// Returns whether it has many more lines than this.
    pub(super) fn is_longer_than(&self, lines: usize) -> bool {
        self.lines > STEP && self.lines > 4 * lines as u64
    }

    /// Replaces the content by these lines; on an error all old lines stay.
    pub(super) fn replace(&mut self, folder: &Directory, lines: &[Line]) -> Result<()> {
        *self = Journal::made(folder, lines)?;
        Ok(())
    }

    fn made(folder: &Directory, lines: &[Line]) -> Result<Self> {
        let file = folder.file(NEW, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)?;
        let mut journal = Journal { file, lines: 0, room: 0 };
        let all: Vec<Line> = [Line::Begin].into_iter().chain(lines.iter().copied()).collect();
        let mut make = || {
            while journal.room < all.len() as u64 + RESERVE {
                journal.grow()?;
            }
            journal.add(&all, true)?;
            journal.file.sync_all()?;
            folder.rename(NEW.as_ref(), NAME.as_ref())?;
            folder.sync()
        };
        match make() {
            Ok(()) => Ok(journal),
            Err(error) => {
                // It was not renamed yet.
                let _ = folder.remove(NEW.as_ref());
                Err(error)
            }
        }
    }

    fn grow(&mut self) -> Result<()> {
        self.file.write_all_at(&[0; STEP as usize * LINE], self.room * LINE as u64)?;
        self.file.sync_all()?;
        self.room += STEP;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id() -> impl Strategy<Value = Id> {
        any::<(u64, u64)>().prop_map(|(run, number)| Id { run, number })
    }

    pub(super) fn line() -> impl Strategy<Value = Line> {
        let assigned =
            any::<(i32, i64, i16, i32, u32, u64)>().prop_map(|(partition, producer, epoch, sequence, count, at)| {
                Assigned { partition, producer, epoch, sequence, count, at }
            });
        let batch = (id(), any::<(u8, u16, u32, u64, u32)>(), any::<(u64, u64, u64)>()).prop_map(
            |(id, (form, lane, rows, bytes, crc), (first, last, made))| Batch {
                id,
                form,
                lane,
                rows,
                bytes,
                crc,
                first,
                last,
                made,
            },
        );
        prop_oneof![
            batch.prop_map(Line::Made),
            (id(), assigned.clone()).prop_map(|(id, assigned)| Line::Sent(id, assigned)),
            (id(), 0..5usize).prop_map(|(id, which)| Line::Done(
                id,
                [Outcome::Delivered, Outcome::Dropped, Outcome::Refused, Outcome::Damaged, Outcome::Halved][which]
            )),
            assigned.prop_map(Line::Next),
            (id(), any::<u64>()).prop_map(|(id, at)| Line::Tried(id, at)),
        ]
    }

    proptest! {
        #[test]
        fn lines_round_trip_and_bit_errors_are_detected(line in line(), bit in 0..LINE * 8) {
            let mut bytes = line.to_bytes();
            prop_assert_eq!(Line::of(&bytes), Some(line));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(Line::of(&bytes), None);
        }

        #[test]
        fn journals_round_trip_after_rewrites(runs in prop::collection::vec(
            (prop::collection::vec(line(), 0..700), any::<bool>()), 1..5
        ), case: u64) {
            let root = crate::tests::scratch(&format!("journal-{case}"));
            let folder = Directory::open(&root).unwrap();
            let mut wanted = Vec::new();
            for (lines, replace) in runs {
                let (mut journal, found) = Journal::open(&folder).unwrap();
                prop_assert_eq!((found.lines, found.damaged), (wanted.clone(), 0));
                if replace {
                    wanted.truncate(3);
                    journal.replace(&folder, &wanted).unwrap();
                }
                lines.chunks(7).for_each(|lines| journal.add(lines, true).unwrap());
                wanted.extend(lines);
            }
            let (_, found) = Journal::open(&folder).unwrap();
            prop_assert_eq!(found.lines, wanted);
            std::fs::remove_dir_all(root).unwrap();
        }
    }

    #[test]
    fn halves_have_distinct_names() {
        let mut all = vec![Id { run: 1, number: 5 }];
        let mut at = 0;
        while all.len() < 100 {
            all.extend(all[at].halves().unwrap());
            at += 1;
        }
        assert!(all.iter().all(|id| id.parts().0 == 5 && id.run == 1));
        assert!((0..100).all(|one| (0..one).all(|other| all[one] != all[other])));
        let whole_of_halves = |id: &Id| id.halves().unwrap().iter().all(|half| half.whole() == Some(*id));
        assert!(all.iter().all(whole_of_halves) && all[0].whole().is_none());
        assert_eq!((all[0].parts().1, all[1].parts().1, all[4].parts().1), (0, 2, 5));
        let deepest = std::iter::successors(Some(all[0]), |id| id.halves().map(|halves| halves[1]));
        assert_eq!(deepest.count(), 24);
    }

    #[test]
    fn damage_loses_only_its_line_and_other_files_are_rejected() {
        let root = crate::tests::scratch("journal-damaged");
        let folder = Directory::open(&root).unwrap();
        let id = |number| Id { run: 9, number };
        let lines: Vec<Line> = (0..5).map(|number| Line::Done(id(number), Outcome::Dropped)).collect();
        let (mut journal, found) = Journal::open(&folder).unwrap();
        assert!(found.is_new);
        journal.add(&lines, true).unwrap();
        let path = root.join(NAME);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[3 * LINE + 20] ^= 4;
        std::fs::write(&path, &bytes).unwrap();
        let (_, found) = Journal::open(&folder).unwrap();
        assert_eq!((found.lines.len(), found.damaged, found.is_new), (4, 1, false));
        for bytes in [&b""[..], b"linerate spool 1", &[0; 4 * LINE], &bytes[LINE..]] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(Journal::open(&folder).err().unwrap().kind(), ErrorKind::InvalidData);
        }
        std::fs::remove_dir_all(root).unwrap();
    }
}
