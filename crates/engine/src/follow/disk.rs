//! Files of streams on disk: names, creation, reopening and writing.

use linerate_transport::follow::StreamInfo;
use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Readable only by the owner: files contain other people's traffic.
const MODE: u32 = 0o600;

/// Creates the file of a stream, named by both endpoints, and, if that exists, by the number of its connection.
pub(super) fn begin(folder: &Path, about: &StreamInfo) -> Result<(String, File), (String, Error)> {
    let name = format!("{}-{}", numbers(about.ends.from), numbers(about.ends.to));
    match create(&folder.join(&name)) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let name = format!("{name}c{}", about.connection);
            let file = create(&folder.join(&name)).map_err(|error| (name.clone(), error))?;
            Ok((name, file))
        }
        made => made.map(|file| (name.clone(), file)).map_err(|error| (name, error)),
    }
}

/// Creates a file that must not exist.
pub(super) fn create(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create_new(true).mode(MODE).open(path)
}

/// Writes as much as possible, and returns how much.
pub(super) fn write_at(file: &File, bytes: &[u8], at: u64) -> (usize, std::io::Result<()>) {
    let mut done = 0;
    while done < bytes.len() {
        match file.write_at(&bytes[done..], at + done as u64) {
            Ok(0) => return (done, Err(ErrorKind::WriteZero.into())),
            Ok(more) => done += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return (done, Err(error)),
        }
    }
    (done, Ok(()))
}

/// Opens a file again, but not a link that may have replaced it.
pub(super) fn reopen(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)
}

/// Returns whether the error is limited to this file at this position.
pub(super) fn is_of_one(error: &Error) -> bool {
    let limits = [rustix::io::Errno::FBIG, rustix::io::Errno::INVAL];
    error.raw_os_error().is_some_and(|code| limits.iter().any(|limit| limit.raw_os_error() == code))
}

/// Formats an address and a port in digits that sort.
fn numbers(end: SocketAddr) -> String {
    let address: Vec<String> = match end.ip() {
        IpAddr::V4(address) => address.octets().iter().map(|part| format!("{part:03}")).collect(),
        IpAddr::V6(address) => address.segments().iter().map(|part| format!("{part:04x}")).collect(),
    };
    format!("{}.{:05}", address.join("."), end.port())
}
