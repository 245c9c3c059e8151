//! Output files, and what may be done to existing ones.
//!
//! A regular file is locked, truncated before the first write, and cut back to its last complete record if writing
//! fails. Anything else (device, FIFO, pipe, socket) is only written to. Compressed data is written in independent
//! pieces; the file is cut back to the last one and ended there.
//!
//! A regular file can be reopened under its name, in the folder it was opened in, as after log rotation: the file
//! moved away is complete. Nothing is overwritten: if the name is still taken, the new file gets a number.

mod parts;
mod target;

use crate::compression::{Compression, Encoder};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use target::{OpenedFd, Stream, lock, open_file};
pub use target::{ReplacedFile, replace};

/// Bytes collected before a write; more with several threads, so that each has enough work.
const PIECE: usize = 256 << 10;
const PIECE_OF_SEVERAL: usize = 1 << 20;
const MODE: u32 = 0o600;

/// Destination of the bytes.
pub(crate) trait Target: Send {
    /// Writes some of `bytes`; blocks until it can.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Makes buffered data readable.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Makes buffered data readable at the end.
    fn finish(&mut self) -> io::Result<()> {
        self.flush()
    }

    /// Removes the last `bytes` written; returns false if that is impossible.
    fn take_back(&mut self, bytes: u64) -> io::Result<bool>;

    /// Returns whether the file was unlinked.
    fn is_removed(&self) -> bool {
        false
    }

    /// Returns whether the previous content is still unchanged.
    fn is_older(&self) -> bool {
        false
    }
}

/// An opened output.
pub struct Output {
    name: String,
    target: Box<dyn Target>,
    encoder: Option<Box<Encoder>>,
    /// Compressed bytes of a piece that was written only in part.
    torn: usize,
    piece: usize,
    /// Location of a regular file.
    place: Option<Arc<FileLocation>>,
    /// Name there, if it differs from that by which it was opened.
    called: Option<String>,
    /// Extension of the companion file (index).
    companion: Option<String>,
    /// True if the file, and its companion, were created by opening it.
    is_new: bool,
    is_companion_new: bool,
    /// Bytes written, if all went well.
    written: u64,
}

/// Location of a file: the folder, wherever its path leads later, and its name in it.
struct FileLocation {
    folder: OwnedFd,
    name: String,
}

/// A write failed after a part.
#[derive(Debug)]
pub(crate) struct PartialWrite {
    /// Bytes written before.
    pub written: usize,
    pub reason: io::Error,
}

impl Output {
    /// Opens `path` for writing, with the current privileges of the process; `-` is standard output. A new file is
    /// created with mode 0600, since captures are confidential; an existing one keeps its mode. An existing regular
    /// file is emptied by the first write; anything else is written to unchanged. A regular file is locked
    /// (`flock(2)`) while it is open.
    ///
    /// # Errors
    /// Those of `open(2)` and `fstat(2)`; if another output has the file. A FIFO waits for its reader.
    pub fn open(path: &str) -> io::Result<Self> {
        if path == "-" {
            let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            return Ok(Output::over(Box::new(OpenedFd::output(file)?), "standard output"));
        }
        let (file, is_new) = open_file(path)?;
        let opened = OpenedFd::new(file)?;
        let place = if opened.regular { FileLocation::of(path).map(Arc::new) } else { None };
        let output = Output { place, is_new, ..Output::over(Box::new(opened), path) };
        match Compression::of_path(path) {
            (Some(compression), _) => output.compressed(compression),
            (None, _) => Ok(output),
        }
    }

    /// Returns an output to a writer, with `name` in errors.
    pub fn to(sink: Box<dyn Write + Send>, name: impl Into<String>) -> Self {
        Output::over(Box::new(Stream(sink)), name)
    }

    /// Adds compression.
    ///
    /// # Errors
    /// If memory for a compressor is insufficient.
    pub fn compressed(self, compression: Compression) -> io::Result<Self> {
        Ok(Output { encoder: Some(Box::new(Encoder::new(compression)?)), ..self })
    }

    /// Sets the number of compression threads for zstd; other compressions use one.
    ///
    /// # Errors
    /// If memory for compressors is insufficient.
    pub fn threads(self, threads: usize) -> io::Result<Self> {
        match &self.encoder {
            Some(encoder) if encoder.threads() != threads => {
                let encoder = Encoder::with_threads(encoder.compression(), threads)?;
                let piece = if encoder.threads() > 1 { PIECE_OF_SEVERAL } else { PIECE };
                Ok(Output { encoder: Some(Box::new(encoder)), piece, ..self })
            }
            _ => Ok(self),
        }
    }

    /// Returns whether the previous content is still unchanged.
    pub(crate) fn is_older(&self) -> bool {
        self.target.is_older()
    }

    /// Returns the name as given by the user.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the folder of a file that can be reopened.
    pub fn folder(&self) -> Option<&OwnedFd> {
        self.place.as_ref().map(|place| &place.folder)
    }

    /// Opens a new file of the same name in the same folder, and returns its actual name; `None` if not a regular file.
    ///
    /// # Errors
    /// Those of `openat(2)`; if memory for a compressor is insufficient.
    pub(crate) fn next_file(&self) -> io::Result<Option<(Self, String)>> {
        let Some(place) = &self.place else { return Ok(None) };
        let (file, name) = place.open(self.companion.as_deref())?;
        let mut output = Output {
            place: Some(Arc::clone(place)),
            called: Some(name.clone()),
            companion: self.companion.clone(),
            ..Output::over(Box::new(OpenedFd::new(file)?), &*self.name)
        };
        if let Some(encoder) = &self.encoder {
            output = output.compressed(encoder.compression())?.threads(encoder.threads())?;
        }
        Ok(Some((output, name)))
    }

    pub(crate) fn over(target: Box<dyn Target>, name: impl Into<String>) -> Self {
        Output {
            name: name.into(),
            target,
            encoder: None,
            torn: 0,
            piece: PIECE,
            place: None,
            called: None,
            companion: None,
            is_new: false,
            is_companion_new: false,
            written: 0,
        }
    }

    /// Writes all of `bytes`, in as many calls as needed. Compressed data is written as one piece, which readers can
    /// decompress to its end at once; if that fails, none of it counts as written.
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> Result<(), PartialWrite> {
        let Some(encoder) = &mut self.encoder else {
            write_all(&mut *self.target, bytes)?;
            self.written += bytes.len() as u64;
            return Ok(());
        };
        let piece = encoder.compress(bytes).map_err(|reason| PartialWrite { written: 0, reason })?;
        write_all(&mut *self.target, piece).map_err(|partial| {
            self.torn = partial.written;
            PartialWrite { written: 0, ..partial }
        })?;
        self.written += piece.len() as u64;
        Ok(())
    }

    /// Makes buffered data readable.
    pub(crate) fn flush(&mut self) -> Result<(), PartialWrite> {
        self.target.flush().map_err(|reason| PartialWrite { written: 0, reason })
    }

    /// Removes the last `bytes` written and the rest of a torn piece, if the output is a regular file. Returns whether
    /// the output now ends with a complete piece.
    pub(crate) fn take_back(&mut self, bytes: u64) -> io::Result<bool> {
        let surplus = bytes + std::mem::take(&mut self.torn) as u64;
        if surplus > 0 && !self.target.take_back(surplus)? {
            return Ok(false);
        }
        match &self.encoder {
            Some(encoder) => Ok(write_all(&mut *self.target, encoder.tail_before()).is_ok()),
            None => Ok(true),
        }
    }

    /// Ends a compressed stream; nothing may be written afterwards. Fails if the file was unlinked in the meantime,
    /// since its content is then lost.
    pub(crate) fn finish(&mut self) -> Result<(), PartialWrite> {
        if let Some(encoder) = &self.encoder {
            write_all(&mut *self.target, encoder.tail())?;
            self.written += encoder.tail().len() as u64;
        }
        self.target.finish().map_err(|reason| PartialWrite { written: 0, reason })?;
        if self.target.is_removed() {
            return Err(PartialWrite { written: 0, reason: ErrorKind::NotFound.into() });
        }
        Ok(())
    }
}

/// Each write is all or nothing; compressed, it is one piece.
impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Output::write_all(self, bytes).map(|()| bytes.len()).map_err(|partial| partial.reason)
    }

    fn flush(&mut self) -> io::Result<()> {
        Output::flush(self).map_err(|partial| partial.reason)
    }
}

/// Inserts a number into a file name, before its extensions: `all.2.pcapng.zst`.
pub fn numbered(name: &str, number: u32) -> String {
    let (_, plain) = Compression::of_path(name);
    let at = plain.rfind('.').filter(|at| *at > 0).unwrap_or(plain.len());
    format!("{}.{number}{}", &name[..at], &name[at..])
}

impl FileLocation {
    /// Returns the location of an open file; `None` if it cannot be found again.
    fn of(path: &str) -> Option<Self> {
        // A symbolic link is kept: its target is written.
        let path = Path::new(path).canonicalize().ok()?;
        let folder = openat(CWD, path.parent()?, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        Some(FileLocation {
            folder: folder.ok()?,
            name: path.file_name().map(OsStr::to_owned).map(OsString::into_string)?.ok()?,
        })
    }

    /// Opens a file of that name, or with the first free number; an existing file is used if it is empty, as
    /// logrotate(8) leaves it. The name is taken if its companion file has content, which belongs to the earlier file.
    fn open(&self, companion: Option<&str>) -> io::Result<(File, String)> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY;
        let mut name = self.name.clone();
        for number in 2.. {
            let is_taken = |ending: &str| {
                let data = statat(&self.folder, format!("{name}{ending}"), AtFlags::SYMLINK_NOFOLLOW);
                data.is_ok_and(|data| data.st_size > 0)
            };
            if companion.is_some_and(is_taken) {
                name = numbered(&self.name, number);
                continue;
            }
            match openat(&self.folder, &*name, flags | OFlags::CREATE | OFlags::EXCL, Mode::from_raw_mode(MODE)) {
                Ok(file) => return Ok((lock(file.into())?, name)),
                Err(rustix::io::Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            let there = openat(&self.folder, &*name, flags | OFlags::NONBLOCK, Mode::empty()).map(File::from);
            if let Ok(file) = there
                && file.metadata().is_ok_and(|data| data.is_file() && data.len() == 0)
                && let Ok(file) = lock(file)
            {
                return Ok((file, name));
            }
            name = numbered(&self.name, number);
        }
        Err(ErrorKind::AlreadyExists.into())
    }
}

fn write_all(target: &mut dyn Target, bytes: &[u8]) -> Result<(), PartialWrite> {
    let mut written = 0;
    while written < bytes.len() {
        match target.write(&bytes[written..]) {
            Ok(0) => return Err(PartialWrite { written, reason: ErrorKind::WriteZero.into() }),
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(reason) => return Err(PartialWrite { written, reason }),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
    use std::path::PathBuf;

    fn scratch(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("linerate-record-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn removed_file_is_not_found() {
        let folder = scratch("removed");
        let path = folder.join("a.pcap");
        let mut output = Output::open(path.to_str().unwrap()).unwrap();
        output.write_all(b"0123456789").unwrap();
        assert!(output.finish().is_ok());
        fs::remove_file(&path).unwrap();
        assert!(output.finish().unwrap_err().reason.kind() == ErrorKind::NotFound);
    }

    #[test]
    fn existing_file_is_truncated_and_keeps_its_inode() {
        let folder = scratch("existing");
        let path = folder.join("a.pcap");
        fs::write(&path, b"something longer").unwrap();
        let before = fs::metadata(&path).unwrap();
        let mut output = Output::open(path.to_str().unwrap()).unwrap();
        output.write_all(b"0123456789").unwrap();
        assert!(output.take_back(4).unwrap());
        output.write_all(b"x").unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"012345x");
        assert_eq!((before.ino(), before.uid(), before.gid()), (after.ino(), after.uid(), after.gid()));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn new_file_is_private_and_existing_one_keeps_its_mode() {
        let folder = scratch("mode");
        let mode = |path: &PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let path = folder.join("a.pcap");
        Output::open(path.to_str().unwrap()).unwrap();
        assert_eq!(mode(&path), 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        Output::open(path.to_str().unwrap()).unwrap();
        assert_eq!(mode(&path), 0o644);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn fifos_and_devices_are_only_written() {
        let folder = scratch("fifo");
        let path = folder.join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let reader = std::thread::spawn({
            let path = path.clone();
            move || fs::read(path).unwrap()
        });
        let mut output = Output::open(path.to_str().unwrap()).unwrap();
        output.write_all(b"bytes").unwrap();
        assert!(!output.take_back(2).unwrap());
        drop(output);
        assert_eq!(reader.join().unwrap(), b"bytes");
        let after = fs::metadata(&path).unwrap();
        assert!(after.file_type().is_fifo() && after.uid() == rustix::process::geteuid().as_raw());
        fs::remove_dir_all(folder).unwrap();

        let owner = |path: &str| fs::metadata(path).map(|metadata| (metadata.uid(), metadata.gid())).unwrap();
        let before = owner("/dev/null");
        let mut null = Output::open("/dev/null").unwrap();
        null.write_all(b"bytes").unwrap();
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        assert_eq!(owner("/dev/null"), before);
        assert!(Output::open("/dev/null/x").is_err() && Output::open("/").is_err());
    }
}
