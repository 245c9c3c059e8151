//! Direct I/O: whole blocks from aligned memory, the rest through the page cache.
//!
//! An incomplete block is written through the page cache when the input pauses, and at the end; the complete block
//! later overwrites it. Space is allocated before each block, so that a full disk is reported before frames are
//! accepted.

use crate::aligned::AlignedBytes;
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Block size in bytes.
const BLOCK: usize = 1 << 20;

/// A file written in blocks.
pub(super) struct Direct {
    /// Descriptor for whole blocks; `None` after bytes of an earlier block were removed.
    direct: Option<File>,
    plain: File,
    block: AlignedBytes,
    /// Bytes in the block, and those of them that are in the file.
    filled: usize,
    flushed: usize,
    /// File offset of the block.
    at: u64,
    has_room: bool,
}

impl Direct {
    /// Wraps `direct` and `plain`, the same empty file opened with and without `O_DIRECT`.
    pub(super) fn new(direct: File, plain: File) -> Self {
        let block = AlignedBytes::new(BLOCK);
        Direct { direct: Some(direct), plain, block, filled: 0, flushed: 0, at: 0, has_room: false }
    }

    /// Accepts some of `bytes`.
    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        let Some(direct) = &self.direct else {
            let count = self.plain.write_at(bytes, self.at)?;
            self.at += count as u64;
            return Ok(count);
        };
        if !self.has_room {
            match fallocate(&self.plain, FallocateFlags::KEEP_SIZE, self.at, BLOCK as u64) {
                // Without preallocation the write of the block reports a full disk.
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.has_room = true,
                Err(error) => return Err(error.into()),
            }
        }
        let count = bytes.len().min(BLOCK - self.filled);
        self.block[self.filled..self.filled + count].copy_from_slice(&bytes[..count]);
        if self.filled + count == BLOCK {
            direct.write_all_at(&self.block, self.at)?;
            (self.at, self.flushed, self.has_room) = (self.at + BLOCK as u64, 0, false);
        }
        self.filled = (self.filled + count) % BLOCK;
        Ok(count)
    }

    /// Writes the incomplete block to the file.
    pub(super) fn flush(&mut self) -> Result<()> {
        if self.direct.is_some() && self.flushed < self.filled {
            self.plain.write_all_at(&self.block[self.flushed..self.filled], self.at + self.flushed as u64)?;
            self.flushed = self.filled;
        }
        Ok(())
    }

    /// Flushes, and releases allocated space that was not used.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.flush()?;
        let end = if self.direct.is_some() { self.at + self.filled as u64 } else { self.at };
        self.plain.set_len(end)
    }

    /// Truncates the output at `end`.
    pub(super) fn cut(&mut self, end: u64) -> Result<()> {
        if self.direct.is_some() && end >= self.at {
            self.filled = (end - self.at) as usize;
            self.flush()?;
            self.flushed = self.flushed.min(self.filled);
        } else {
            self.direct = None;
            self.at = end;
        }
        self.plain.set_len(end)
    }
}

/// Tests whether files of a folder support direct writes, with an unnamed file.
pub(super) fn probe(folder: impl AsFd) -> Result<()> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::DIRECT | OFlags::CLOEXEC;
    match openat(folder, ".", flags, Mode::from_raw_mode(0o600)) {
        Err(Errno::INVAL) => Err(explain(Errno::INVAL)),
        // Other failures, such as missing support for unnamed files, are reported with the first file.
        _ => Ok(()),
    }
}

/// Returns the error of a failed direct open.
pub(super) fn explain(error: Errno) -> Error {
    match error {
        Errno::INVAL => Error::other("the file system does not support direct writes; omit --direct"),
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::fs::{CWD, open};
    use std::sync::atomic::{AtomicU32, Ordering};

    /// The file has the same content, in whatever pieces it was written, and however often it was flushed or cut.
    #[test]
    fn file_contains_what_was_written() {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let probe = std::env::temp_dir().join(format!("linerate-direct-{}", std::process::id()));
        let is_direct =
            open(&probe, OFlags::CREATE | OFlags::WRONLY | OFlags::DIRECT, Mode::from_raw_mode(0o600)).is_ok();
        let _ = std::fs::remove_file(&probe);
        if !is_direct {
            return eprintln!("SKIPPED: {} does not support direct writes", std::env::temp_dir().display());
        }
        proptest!(ProptestConfig::with_cases(20), |(steps in prop::collection::vec((0usize..900_000, 0u8..8), 1..12))| {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("linerate-direct-{}-{number}", std::process::id()));
            let plain = File::create(&path).unwrap();
            let direct = File::from(openat(CWD, &path, OFlags::WRONLY | OFlags::DIRECT, Mode::empty()).unwrap());
            let (mut file, mut wanted) = (Direct::new(direct, plain), Vec::new());
            for (length, what) in steps {
                match what {
                    0 => {
                        wanted.truncate(wanted.len() - length.min(wanted.len()) / 3);
                        file.cut(wanted.len() as u64).unwrap();
                    }
                    1 => {
                        file.flush().unwrap();
                        prop_assert_eq!(std::fs::metadata(&path).unwrap().len(), wanted.len() as u64);
                    }
                    _ => {
                        let bytes: Vec<u8> = (0..length).map(|at| (at / 7 + wanted.len()) as u8).collect();
                        let mut done = 0;
                        while done < bytes.len() {
                            done += file.write(&bytes[done..]).unwrap();
                        }
                        wanted.extend(bytes);
                    }
                }
            }
            file.finish().unwrap();
            let found = std::fs::read(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            prop_assert!(found == wanted, "{} of {} bytes", found.len(), wanted.len());
        });
    }
}
