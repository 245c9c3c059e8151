//! Opening files that users name, without blocking for ever on a FIFO.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, read};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Timeout for the writer of a FIFO to open it.
const PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Opens a file for reading; also a pipe (`<(command)` of a shell).
///
/// # Errors
/// Those of the system, and [`ErrorKind::TimedOut`] for a FIFO that no process has opened for writing.
pub fn open(path: impl AsRef<Path>) -> Result<File> {
    let file = open_at_once(path.as_ref())?;
    if file.metadata()?.file_type().is_fifo() {
        let is_quiet = poll(&mut [PollFd::new(&file, PollFlags::IN)], Some(&PATIENCE))? == 0;
        // EAGAIN: a writer exists and has written nothing yet; wait for it.
        if is_quiet && read(&file, &mut [0]) != Err(Errno::AGAIN) {
            return Err(Error::new(ErrorKind::TimedOut, "FIFO without a writer"));
        }
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    }
    Ok(file)
}

/// Opens a regular file for reading; anything else is an error.
///
/// # Errors
/// Those of the system, and [`ErrorKind::InvalidInput`] for anything but a regular file.
pub fn open_regular(path: impl AsRef<Path>) -> Result<File> {
    let file = open_at_once(path.as_ref())?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(Error::new(ErrorKind::InvalidInput, "not a regular file")),
    }
}

fn open_at_once(path: &Path) -> Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::thread::spawn;

    #[test]
    fn a_fifo_with_a_writer_is_read() {
        let path = std::env::temp_dir().join(format!("linerate-input-{}", std::process::id()));
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        assert_eq!(open(&path).unwrap_err().kind(), ErrorKind::TimedOut);
        // A writer that exists and writes only after the timeout.
        let (quiet, opened) = (open_at_once(&path).unwrap(), OpenOptions::new().write(true).open(&path));
        let mut file = open(&path).unwrap();
        drop(quiet);
        let writer = spawn(move || opened.unwrap().write_all(b"text").unwrap());
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        writer.join().unwrap();
        assert_eq!(text, "text");
        assert!(open_regular(&path).unwrap_err().to_string().contains("not a regular file"));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(open(&path).unwrap_err().kind(), ErrorKind::NotFound);
    }
}
