//! The file of a socket in the file system: it has its mode from the first moment, one that nobody listens at gives way, and
//! whoever made it removes it, and nothing else that has its name by then.

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

/// The file of a socket, which goes when this is dropped. It is known by its folder, which stays that folder whatever its path leads
/// to later.
#[derive(Debug)]
pub struct SocketFile {
    folder: OwnedFd,
    name: OsString,
    /// The file that was made: device and number.
    file: Option<(u64, u64)>,
}

/// Why a socket has got no file.
#[derive(Debug)]
pub enum NoFile {
    /// The system says so.
    System(Errno),
    /// Something that is no socket has the name; it was left alone.
    NoSocket,
    /// Somebody listens there: a socket connected to it, unless too many wait to be let in.
    Taken(Option<OwnedFd>),
}

impl From<Errno> for NoFile {
    fn from(error: Errno) -> Self {
        NoFile::System(error)
    }
}

impl SocketFile {
    /// Binds a socket of any kind to a path. `others`: whether other users may connect, who are then asked for their credentials;
    /// else its user alone. It is made with the rights of `owner` (user, group), and is its own, where this is root. Nobody can
    /// connect before it listens.
    ///
    /// # Errors
    /// [`NoFile`].
    pub fn bind(socket: &OwnedFd, path: &Path, others: bool, owner: Option<(u32, u32)>) -> Result<SocketFile, NoFile> {
        // The file takes its mode from the socket: whatever has its name a moment later is left alone.
        fchmod(socket, Mode::from_raw_mode(if others { 0o666 } else { 0o600 }))?;
        as_user(owner, || SocketFile::make(socket, path, others))?
    }

    fn make(socket: &OwnedFd, path: &Path, others: bool) -> Result<SocketFile, NoFile> {
        let place = SocketAddrUnix::new(path)?;
        let mut entry = SocketFile::at(path)?;
        let bound = || if others { unmasked(|| bind(socket, &place)) } else { bind(socket, &place) };
        match bound() {
            Err(Errno::ADDRINUSE) => {
                entry.clear_away(socket, &place)?;
                bound()?;
            }
            result => result?,
        }
        entry.file = entry.look().map(|(_, file)| file);
        Ok(entry)
    }

    /// The folder that it is in.
    pub fn folder(&self) -> &OwnedFd {
        &self.folder
    }

    fn at(path: &Path) -> Result<SocketFile, Errno> {
        let name = path.file_name().ok_or(Errno::ISDIR)?.to_owned();
        let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
        let folder = openat(CWD, folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(SocketFile { folder, name, file: None })
    }

    /// Removes a socket that nobody listens at.
    fn clear_away(&self, socket: &OwnedFd, place: &SocketAddrUnix) -> Result<(), NoFile> {
        let Some((FileType::Socket, file)) = self.look() else { return Err(NoFile::NoSocket) };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let knock = socket_with(AddressFamily::UNIX, socket_type(socket)?, flags, None)?;
        match connect(&knock, place) {
            Err(Errno::CONNREFUSED) => Ok(self.remove(file)?),
            // Perhaps it has gone meanwhile.
            result => Err(NoFile::Taken(result.ok().map(|()| knock))),
        }
    }

    /// What has the name now, links not followed.
    fn look(&self) -> Option<(FileType, (u64, u64))> {
        let found = statat(&self.folder, &self.name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some((FileType::from_raw_mode(found.st_mode), (found.st_dev, found.st_ino)))
    }

    /// Removes the socket that this was; by now it may be that of somebody else, which stays.
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
            // A run that has given up its rights leaves it; the next one makes it give way.
            let _ = self.remove(file);
        }
    }
}

/// Does something that makes a file, which takes its whole mode. The mask is the process's own: one at a time.
fn unmasked<T>(work: impl FnOnce() -> T) -> T {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mask = umask(Mode::empty());
    let result = work();
    umask(mask);
    result
}
