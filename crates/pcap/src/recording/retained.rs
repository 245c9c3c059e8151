//! Complete files of a recording, in the order in which they were started; deletes the oldest.

use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags, fsync, openat, statx, unlinkat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Result;
use std::os::fd::OwnedFd;

/// Requested metadata.
const ASKED: StatxFlags = StatxFlags::INO.union(StatxFlags::BTIME);

/// Identity of a file, independent of its name. Inode numbers are reused soon after a file is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id {
    device: (u32, u32),
    inode: u64,
    /// Birth time in seconds and nanoseconds, if the file system has it.
    made: (i64, u32),
}

/// Complete files of a recording that were not deleted yet.
#[derive(Debug)]
pub(super) struct RetainedFiles {
    pub folder: OwnedFd,
    kept: VecDeque<RetainedFile>,
    /// Total size in bytes.
    pub bytes: u64,
    /// Number of files deleted.
    pub removed: u64,
    /// Number of files that could not be deleted, and the last error.
    pub stuck: Option<(u64, Errno)>,
}

/// Names of a file and its companion files.
#[derive(Debug)]
pub(super) struct RetainedFile {
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

impl RetainedFiles {
    pub(super) fn new(folder: OwnedFd) -> Self {
        RetainedFiles { folder, kept: VecDeque::new(), bytes: 0, removed: 0, stuck: None }
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn push(&mut self, kept: RetainedFile) {
        self.bytes += kept.bytes;
        self.kept.push_back(kept);
    }

    /// Returns whether a name in the folder belongs to this file.
    pub(super) fn has(&self, name: &str, id: Id) -> bool {
        statx(&self.folder, name, AtFlags::SYMLINK_NOFOLLOW, ASKED).is_ok_and(|there| Id::from(there) == id)
    }

    /// Deletes the oldest file; returns whether there was one. Files that were moved away or replaced no longer belong
    /// to this recording.
    pub(super) fn remove_oldest(&mut self) -> bool {
        let Some(RetainedFile { names, bytes }) = self.kept.pop_front() else { return false };
        self.bytes -= bytes;
        // A run killed in between leaves no index without its file.
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

    /// Syncs the directory.
    pub(super) fn sync(&self) -> Result<()> {
        // The folder was opened with O_PATH, which cannot be synced.
        let folder = openat(&self.folder, ".", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(fsync(folder)?)
    }
}
