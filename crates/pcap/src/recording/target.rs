//! Destination of the bytes of one file of a recording.

use super::direct::Direct;
use super::retained::RetainedFiles;
use crate::file::Target;
use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A file that deletes the oldest ones for space, if configured.
pub(super) struct FileTarget {
    file: File,
    direct: Option<Direct>,
    /// Size in bytes, shared with the recording.
    size: Arc<AtomicU64>,
    retained: Arc<Mutex<RetainedFiles>>,
    drop_oldest: bool,
}

impl FileTarget {
    pub(super) fn new(
        file: File,
        direct: Option<Direct>,
        size: Arc<AtomicU64>,
        retained: Arc<Mutex<RetainedFiles>>,
        drop_oldest: bool,
    ) -> Self {
        FileTarget { file, direct, size, retained, drop_oldest }
    }

    /// Repeats an operation that needs space, as long as files can be deleted for it.
    fn with_room<T>(&mut self, mut work: impl FnMut(&mut Self) -> io::Result<T>) -> io::Result<T> {
        loop {
            match work(self) {
                Err(error) if is_full(error.kind()) && self.make_room() => {}
                result => return result,
            }
        }
    }

    fn make_room(&self) -> bool {
        self.drop_oldest && self.retained.lock().unwrap_or_else(PoisonError::into_inner).remove_oldest()
    }
}

/// Returns whether deleting the oldest file would help.
pub(super) fn is_full(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

impl Target for FileTarget {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.with_room(|slot| match &mut slot.direct {
            Some(direct) => direct.write(bytes),
            None => slot.file.write(bytes),
        })?;
        self.size.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.with_room(|slot| slot.direct.as_mut().map_or(Ok(()), Direct::flush))
    }

    fn finish(&mut self) -> io::Result<()> {
        self.with_room(|slot| slot.direct.as_mut().map_or(Ok(()), Direct::finish))
    }

    fn take_back(&mut self, bytes: u64) -> io::Result<bool> {
        let end = self.size.load(Ordering::Relaxed).saturating_sub(bytes);
        match &mut self.direct {
            Some(direct) => direct.cut(end)?,
            None => {
                self.file.set_len(end)?;
                self.file.seek(SeekFrom::Start(end))?;
            }
        }
        self.size.store(end, Ordering::Relaxed);
        Ok(true)
    }

    fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|data| data.nlink() == 0)
    }
}
