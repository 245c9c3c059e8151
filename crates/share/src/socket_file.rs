//! The file of a UNIX socket: it has its mode from the start, replaces a file without a listener, and is removed by its
//! creator, unless the name belongs to another file by then.

use crate::credentials::as_user;
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fchmod, openat, statat, unlinkat};
use rustix::io::Errno;
use rustix::net::sockopt::socket_type;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, bind, connect, socket_with};
use rustix::process::umask;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The file of a socket, removed on drop. It is identified by its folder, by descriptor, whatever its path refers to
/// later.
#[derive(Debug)]
pub struct SocketFile {
    folder: OwnedFd,
    name: OsString,
    /// The created file: device and inode.
    file: Option<(u64, u64)>,
}

/// The reason why a socket has no file.
#[derive(Debug)]
pub enum SocketFileError {
    /// A system call failed.
    System(Errno),
    /// The name belongs to a file that is not a socket; it was left unchanged.
    NoSocket,
    /// A process listens there: a socket connected to it, unless its backlog is full.
    Taken(Option<OwnedFd>),
}

impl From<Errno> for SocketFileError {
    fn from(error: Errno) -> Self {
        SocketFileError::System(error)
    }
}

impl SocketFile {
    /// Binds a socket of any type to a path. `others`: whether other users may connect (their credentials are checked
    /// later); else only its owner may. It is created with the rights of `owner` (user, group) and belongs to it, if
    /// this process is root. Connecting is possible only after `listen`.
    ///
    /// # Errors
    /// [`SocketFileError`].
    pub fn bind(
        socket: &OwnedFd,
        path: &Path,
        others: bool,
        owner: Option<(u32, u32)>,
    ) -> Result<SocketFile, SocketFileError> {
        // The file takes its mode from the socket, so no other file is changed that has the name a moment later.
        fchmod(socket, Mode::from_raw_mode(if others { 0o666 } else { 0o600 }))?;
        as_user(owner, || SocketFile::make(socket, path, others))?
    }

    fn make(socket: &OwnedFd, path: &Path, others: bool) -> Result<SocketFile, SocketFileError> {
        let place = SocketAddrUnix::new(path)?;
        let mut entry = SocketFile::at(path)?;
        let bound = || if others { unmasked(|| bind(socket, &place)) } else { bind(socket, &place) };
        match bound() {
            Err(Errno::ADDRINUSE) => {
                entry.remove_stale(socket, &place)?;
                bound()?;
            }
            result => result?,
        }
        entry.file = entry.look().map(|(_, file)| file);
        Ok(entry)
    }

    /// Returns the folder of the file.
    pub fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    fn at(path: &Path) -> Result<SocketFile, Errno> {
        let name = path.file_name().ok_or(Errno::ISDIR)?.to_owned();
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let folder = openat(CWD, folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(SocketFile { folder, name, file: None })
    }

    /// Removes a socket without a listener.
    fn remove_stale(&self, socket: &OwnedFd, place: &SocketAddrUnix) -> Result<(), SocketFileError> {
        let Some((FileType::Socket, file)) = self.look() else { return Err(SocketFileError::NoSocket) };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let probe = socket_with(AddressFamily::UNIX, socket_type(socket)?, flags, None)?;
        match connect(&probe, place) {
            Err(Errno::CONNREFUSED) => Ok(self.remove(file)?),
            // It may have gone by now.
            result => Err(SocketFileError::Taken(result.ok().map(|()| probe))),
        }
    }

    /// Returns the file with this name, without following links.
    fn look(&self) -> Option<(FileType, (u64, u64))> {
        let found = statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((FileType::from_raw_mode(found.st_mode), (found.st_dev, found.st_ino)))
    }

    /// Removes the socket unless the name now belongs to another file.
    fn remove(&self, file: (u64, u64)) -> Result<(), Errno> {
        if self.look() == Some((FileType::Socket, file)) {
            unlinkat(&self.folder, &self.name, AtFlags::empty())?;
        }
        Ok(())
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Some(file) = self.file {
            // A run that dropped privileges cannot remove it; the next run replaces it.
            let _ = self.remove(file);
        }
    }
}

/// Runs `work` with an empty umask, which belongs to the whole process: one thread at a time.
fn unmasked<T>(work: impl FnOnce() -> T) -> T {
    static EXCLUSIVE: Mutex<()> = Mutex::new(());
    let _guard = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let mask = umask(Mode::empty());
    let result = work();
    umask(mask);
    result
}
