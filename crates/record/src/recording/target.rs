//! Where the bytes of one file of a recording go.

use super::shelf::Shelf;
use crate::file::Target;
use std::fs::File;
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A file that makes room for itself where it may.
pub(super) struct Slot {
    file: File,
    /// Bytes in it, for the recording to know.
    size: Arc<AtomicU64>,
    shelf: Arc<Mutex<Shelf>>,
    drop_oldest: bool,
}

impl Slot {
    pub fn new(file: File, size: Arc<AtomicU64>, shelf: Arc<Mutex<Shelf>>, drop_oldest: bool) -> Self {
        Slot { file, size, shelf, drop_oldest }
    }

    fn make_room(&self) -> bool {
        self.drop_oldest && self.shelf.lock().unwrap_or_else(PoisonError::into_inner).remove_oldest()
    }
}

/// Whether an oldest file that goes would help.
pub(super) fn is_full(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

impl Target for Slot {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.file.write(bytes) {
                Ok(count) => {
                    self.size.fetch_add(count as u64, Ordering::Relaxed);
                    return Ok(count);
                }
                Err(error) if is_full(error.kind()) && self.make_room() => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn take_back(&mut self, bytes: u64) -> io::Result<bool> {
        let end = self.size.load(Ordering::Relaxed).saturating_sub(bytes);
        self.file.set_len(end)?;
        self.file.seek(SeekFrom::Start(end))?;
        self.size.store(end, Ordering::Relaxed);
        Ok(true)
    }

    fn is_removed(&self) -> bool {
        self.file.metadata().is_ok_and(|data| data.nlink() == 0)
    }
}
