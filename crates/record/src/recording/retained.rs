//! The files of a recording that are complete, in the order they were begun, and those that have to go.

use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, fsync, openat, statx, unlinkat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Result;
use std::os::fd::OwnedFd;

/// What is asked of a file.
const ASKED: StatxFlags = StatxFlags::INO.union(StatxFlags::BTIME);

/// A file, whatever it is called later. Its number alone is that of another one soon after it was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    device: (u32, u32),
    inode: u64,
    /// Seconds and nanoseconds of when it was made, where the file system knows that.
    made: (i64, u32),
}

/// All files of a recording that are complete and not yet removed.
#[derive(Debug)]
pub(super) struct Retained {
    pub folder: OwnedFd,
    kept: VecDeque<Kept>,
    /// Bytes of these.
    pub bytes: u64,
    /// Files that were removed.
    pub removed: u64,
    /// Files that had to go and could not be removed, and why the last of them could not.
    pub stuck: Option<(u64, Errno)>,
}

/// A file, with what is beside it, by their names.
#[derive(Debug)]
pub(super) struct Kept {
    pub names: Vec<(String, Id)>,
    pub bytes: u64,
}

impl Id {
    pub(super) fn of(file: &File) -> Result<Self> {
        Ok(Id::from(statx(file, "", AtFlags::EMPTY_PATH, ASKED)?))
    }
}

impl From<Statx> for Id {
    fn from(data: Statx) -> Self {
        Id {
            device: (data.stx_dev_major, data.stx_dev_minor),
            inode: data.stx_ino,
            made: (data.stx_btime.tv_sec, data.stx_btime.tv_nsec),
        }
    }
}

impl Retained {
    pub(super) fn new(folder: OwnedFd) -> Self {
        Retained { folder, kept: VecDeque::new(), bytes: 0, removed: 0, stuck: None }
    }

    /// How many files there are.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn push(&mut self, kept: Kept) {
        self.bytes += kept.bytes;
        self.kept.push_back(kept);
    }

    /// Whether a name in the folder is that of this file.
    pub(super) fn has(&self, name: &str, id: Id) -> bool {
        statx(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW, ASKED).is_ok_and(|there| Id::from(there) == id)
    }

    /// Removes the oldest file, and says whether there was one. What was moved away, or has another file's name by now, is no
    /// business of this recording any more.
    pub(super) fn remove_oldest(&mut self) -> bool {
        let Some(Kept { names, bytes }) = self.kept.pop_front() else { return false };
        self.bytes -= bytes;
        // A run that is killed in between leaves no index without its file.
        for (place, (name, id)) in names.iter().enumerate().rev() {
            if !self.has(name, *id) {
                continue;
            }
            match unlinkat(&self.folder, name.as_str(), AtFlags::empty()) {
                Ok(()) => self.removed += u64::from(place == 0),
                Err(reason) => self.stuck = Some((self.stuck.map_or(0, |(files, _)| files) + 1, reason)),
            }
        }
        true
    }

    /// Brings its names to the disk.
    pub(super) fn sync(&self) -> Result<()> {
        // The folder is open by its path alone.
        let folder = openat(&self.folder, ".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(fsync(folder)?)
    }
}
