//! What an output may do to the thing the user named.
//!
//! A regular file is locked, truncated before the first write, and cut back to its last complete record when
//! writing fails. Anything else (device, FIFO, pipe, socket) is only ever written to. What is compressed is
//! written in pieces, each whole in itself; the file is cut back to the last one and ended there.
//!
//! A regular file can be opened anew under its name, in the folder that it was opened in: whoever moved it away finds it
//! complete there. Nothing is written over then: where the name is still taken the new file has a number.

mod opened;
mod parts;

use crate::compression::{Compression, Encoder};
use opened::{Opened, Stream, lock, open_file};
pub use opened::{Replaced, replace};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, statat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

/// Bytes that are put together before they are written; more where several threads are to have enough of them.
const PIECE: usize = 256 << 10;
const PIECE_OF_SEVERAL: usize = 1 << 20;
/// Of new files.
const MODE: u32 = 0o600;

/// Where the bytes go, whatever it is.
pub(crate) trait Target: Send {
    /// Writes some of `bytes`; waits until it can.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Brings what is held back to where it can be read.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// The same at the end.
    fn finish(&mut self) -> io::Result<()> {
        self.flush()
    }

    /// Takes the last `bytes` written back; returns false where that cannot be done.
    fn take_back(&mut self, bytes: u64) -> io::Result<bool>;

    /// Whether nobody can open any more what was written.
    fn is_removed(&self) -> bool {
        false
    }

    /// Whether it still has what was there before.
    fn is_older(&self) -> bool {
        false
    }
}

/// An opened output.
pub struct Output {
    name: String,
    target: Box<dyn Target>,
    encoder: Option<Box<Encoder>>,
    /// Compressed bytes of a piece that could not be written whole.
    torn: usize,
    piece: usize,
    /// Where a regular file is.
    place: Option<Arc<Place>>,
    /// What it is called there, where that is not the name it was opened by.
    called: Option<String>,
    /// What the names of files beside it end with.
    beside: Option<String>,
    /// Whether it, and the file beside it, was made when it was opened.
    is_new: bool,
    is_beside_new: bool,
    /// Bytes in it, as far as all went well.
    written: u64,
}

/// Where a file is: the folder, whatever its path leads to later, and its name there.
struct Place {
    folder: OwnedFd,
    name: String,
}

/// Writing failed in the middle.
#[derive(Debug)]
pub(crate) struct Partial {
    /// Bytes that were written before.
    pub written: usize,
    pub reason: io::Error,
}

impl Output {
    /// Opens `path` for writing, with the rights that this process has now; `-` is standard output. A file that did not
    /// exist is created for its owner alone, since captures hold what others said; one that existed keeps its mode. An
    /// existing regular file is emptied by the first write; anything else is left as it is and written to. A regular file is
    /// locked (`flock(2)`) as long as it is open.
    ///
    /// # Errors
    /// Those of `open(2)` and `fstat(2)`; another output has the file. A FIFO waits for its reader.
    pub fn open(path: &str) -> io::Result<Self> {
        if path == "-" {
            let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
            return Ok(Output::over(Box::new(Opened::output(file)?), "standard output"));
        }
        let (file, is_new) = open_file(path)?;
        let opened = Opened::new(file)?;
        let place = if opened.regular { Place::of(path).map(Arc::new) } else { None };
        let output = Output { place, is_new, ..Output::over(Box::new(opened), path) };
        match Compression::of_path(path) {
            (Some(compression), _) => output.compressed(compression),
            (None, _) => Ok(output),
        }
    }

    /// An output to anything that takes bytes, of which errors speak as `name`.
    pub fn to(sink: Box<dyn Write + Send>, name: impl Into<String>) -> Self {
        Output::over(Box::new(Stream(sink)), name)
    }

    /// The same output, compressed.
    ///
    /// # Errors
    /// No memory for a compressor.
    pub fn compressed(self, compression: Compression) -> io::Result<Self> {
        Ok(Output { encoder: Some(Box::new(Encoder::new(compression)?)), ..self })
    }

    /// The same, compressed by so many threads where it is by zstd: others take one.
    ///
    /// # Errors
    /// No memory for compressors.
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

    /// Whether nothing was written over what a file had before.
    pub(crate) fn is_older(&self) -> bool {
        self.target.is_older()
    }

    /// As the user named it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder that a file is in, where it can be opened anew.
    pub fn folder(&self) -> Option<&OwnedFd> {
        self.place.as_ref().map(|place| &place.folder)
    }

    /// A new file of the same name in the same folder, and what it is called; `None` of what is no regular file.
    ///
    /// # Errors
    /// Those of `openat(2)`; no memory for a compressor.
    pub(crate) fn anew(&self) -> io::Result<Option<(Self, String)>> {
        let Some(place) = &self.place else { return Ok(None) };
        let (file, name) = place.open(self.beside.as_deref())?;
        let mut output = Output {
            place: Some(Arc::clone(place)),
            called: Some(name.clone()),
            beside: self.beside.clone(),
            ..Output::over(Box::new(Opened::new(file)?), &*self.name)
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
            beside: None,
            is_new: false,
            is_beside_new: false,
            written: 0,
        }
    }

    /// Writes all of `bytes`, however few the target takes at a time. What is compressed is written as one
    /// piece, which readers can decompress to its end at once; if that fails, none of it counts as written.
    pub(crate) fn write_all(&mut self, bytes: &[u8]) -> Result<(), Partial> {
        let Some(encoder) = &mut self.encoder else {
            write_all(&mut *self.target, bytes)?;
            self.written += bytes.len() as u64;
            return Ok(());
        };
        let piece = encoder.compress(bytes).map_err(|reason| Partial { written: 0, reason })?;
        write_all(&mut *self.target, piece).map_err(|partial| {
            self.torn = partial.written;
            Partial { written: 0, ..partial }
        })?;
        self.written += piece.len() as u64;
        Ok(())
    }

    /// Brings what is held back to where it can be read.
    pub(crate) fn flush(&mut self) -> Result<(), Partial> {
        self.target.flush().map_err(|reason| Partial { written: 0, reason })
    }

    /// Takes the last `bytes` written back, and what there is of a torn piece, where the output is a regular
    /// file; says whether the output now ends with something whole.
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

    /// Ends a compressed stream; nothing may be written afterwards. A file that somebody has removed meanwhile is gone with
    /// all that was written.
    pub(crate) fn finish(&mut self) -> Result<(), Partial> {
        if let Some(encoder) = &self.encoder {
            write_all(&mut *self.target, encoder.tail())?;
            self.written += encoder.tail().len() as u64;
        }
        self.target.finish().map_err(|reason| Partial { written: 0, reason })?;
        if self.target.is_removed() {
            return Err(Partial { written: 0, reason: ErrorKind::NotFound.into() });
        }
        Ok(())
    }
}

/// All of what is written at once, or nothing that counts: as one piece, where it is compressed.
impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Output::write_all(self, bytes).map(|()| bytes.len()).map_err(|partial| partial.reason)
    }

    fn flush(&mut self) -> io::Result<()> {
        Output::flush(self).map_err(|partial| partial.reason)
    }
}

/// The same name with a number in it, before its ending: `all.2.pcapng.zst`.
pub fn numbered(name: &str, number: u32) -> String {
    let (_, plain) = Compression::of_path(name);
    let at = plain.rfind('.').filter(|at| *at > 0).unwrap_or(plain.len());
    format!("{}.{number}{}", &name[..at], &name[at..])
}

impl Place {
    /// Of a file that is open; none where it cannot be found again.
    fn of(path: &str) -> Option<Self> {
        // A link stays one: what it leads to is what is written.
        let path = Path::new(path).canonicalize().ok()?;
        let folder = openat(CWD, path.parent()?, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        Some(Place {
            folder: folder.ok()?,
            name: path.file_name().map(OsStr::to_owned).map(OsString::into_string)?.ok()?,
        })
    }

    /// A file of that name, or of the first number that is free; what is there already is taken where it is empty, as
    /// logrotate(8) leaves it. Where something is `beside` it that belongs to the file which was called so, the name is taken.
    fn open(&self, beside: Option<&str>) -> io::Result<(File, String)> {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY;
        let mut name = self.name.clone();
        for number in 2.. {
            let is_taken = |ending: &str| {
                let data = statat(&self.folder, format!("{name}{ending}"), AtFlags::SYMLINK_NOFOLLOW);
                data.is_ok_and(|data| data.st_size > 0)
            };
            if beside.is_some_and(is_taken) {
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

fn write_all(target: &mut dyn Target, bytes: &[u8]) -> Result<(), Partial> {
    let mut written = 0;
    while written < bytes.len() {
        match target.write(&bytes[written..]) {
            Ok(0) => return Err(Partial { written, reason: ErrorKind::WriteZero.into() }),
            Ok(count) => written += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(reason) => return Err(Partial { written, reason }),
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
    fn a_file_that_was_removed_is_no_file() {
        let folder = scratch("removed");
        let path = folder.join("a.pcap");
        let mut output = Output::open(path.to_str().unwrap()).unwrap();
        output.write_all(b"0123456789").unwrap();
        assert!(output.finish().is_ok());
        fs::remove_file(&path).unwrap();
        assert!(output.finish().unwrap_err().reason.kind() == ErrorKind::NotFound);
    }

    #[test]
    fn an_existing_file_is_emptied_and_keeps_its_identity() {
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
    fn a_new_file_is_for_its_owner_alone_and_an_old_one_keeps_its_mode() {
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
    fn a_fifo_and_a_device_are_only_written_to() {
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
