//! The address of a ring: an abstract name in this network namespace, or a socket in the file system.

use crate::credentials::Peer;
use crate::error::Error;
use crate::socket_file::{SocketFile, SocketFileError};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// `NAME`: abstract, in this network namespace.
    Name(String),
    /// With a `/`: a socket in the file system.
    Path(PathBuf),
}

/// Backlog of the socket: connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Below the limits of sun_path: 107 bytes for an abstract name, 108 for a path with its terminator.
const LONGEST: usize = 90;

impl Address {
    /// Parses a name.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        if text.is_empty() || text.len() > LONGEST || text.contains('\0') {
            return Err(Error::Invalid(format!("{text:?}: invalid ring name; expected 1 to {LONGEST} bytes")));
        }
        Ok(if text.contains('/') { Address::Path(text.into()) } else { Address::Name(text.to_owned()) })
    }

    fn socket_address(&self) -> Result<SocketAddrUnix, Errno> {
        match self {
            Address::Name(name) => SocketAddrUnix::new_abstract_name(format!("linerate/{name}").as_bytes()),
            Address::Path(path) => SocketAddrUnix::new(path),
        }
    }

    /// Starts to listen. `others`: whether other users may connect. A socket in the file system is created with the
    /// rights of `owner` (user, group) and belongs to it; peers see the credentials of this process as they are now.
    pub(crate) fn listen(&self, others: bool, owner: Option<(u32, u32)>) -> Result<Listener, Error> {
        let failed = |error: Errno| Error::system(format!("sharing {self}"), error);
        let socket = seqpacket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).map_err(failed)?;
        let file = match self {
            Address::Name(_) => {
                match bind(&socket, &self.socket_address().map_err(failed)?) {
                    Err(Errno::ADDRINUSE) => return Err(self.taken()),
                    result => result.map_err(failed)?,
                }
                None
            }
            Address::Path(path) => {
                Some(SocketFile::bind(&socket, path, others, owner).map_err(|why| self.no_file(why))?)
            }
        };
        listen(&socket, BACKLOG).map_err(failed)?;
        Ok(Listener { socket, _file: file })
    }

    /// Converts the reason for a missing socket file to an error.
    fn no_file(&self, why: SocketFileError) -> Error {
        match why {
            SocketFileError::System(error) => Error::system(format!("sharing {self}"), error),
            SocketFileError::NoSocket => {
                Error::Invalid(format!("{self}: exists and is not a socket; choose another name"))
            }
            SocketFileError::Taken(by) => self.taken_by(by.and_then(|socket| Peer::of(socket.as_fd()).ok())),
        }
    }

    /// Returns the error for a name in use, with the process that shares it.
    fn taken(&self) -> Error {
        let connected = || {
            let socket = seqpacket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok()?;
            connect(&socket, &self.socket_address().ok()?).ok()?;
            Peer::of(socket.as_fd()).ok()
        };
        self.taken_by(connected())
    }

    fn taken_by(&self, peer: Option<Peer>) -> Error {
        Error::Taken { address: self.to_string(), pid: peer.map_or(0, |peer| peer.pid) }
    }

    /// Connects to the writer. No call on the socket takes longer than `patience`.
    pub(crate) fn connect(&self, patience: Duration) -> Result<OwnedFd, Error> {
        let failed = |error: Errno| Error::system(format!("attaching to {self}"), error);
        let socket = seqpacket(SocketFlags::CLOEXEC).map_err(failed)?;
        for timeout in [Timeout::Send, Timeout::Recv] {
            // Zero would mean no timeout.
            let patience = patience.max(Duration::from_millis(1));
            sockopt::set_socket_timeout(&socket, timeout, Some(patience)).map_err(failed)?;
        }
        match connect(&socket, &self.socket_address().map_err(failed)?) {
            Ok(()) => Ok(socket),
            Err(Errno::CONNREFUSED | Errno::NOENT) => Err(Error::Absent { address: self.to_string() }),
            Err(Errno::AGAIN) => {
                let reason = "too many readers are connecting; try again".to_owned();
                Err(Error::Refused { address: self.to_string(), reason })
            }
            Err(error) => Err(failed(error)),
        }
    }
}

/// A listening socket; its file is removed with it.
#[derive(Debug)]
pub(crate) struct Listener {
    _file: Option<SocketFile>,
    pub socket: OwnedFd,
}

fn seqpacket(flags: SocketFlags) -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Name(name) => f.write_str(name),
            Address::Path(path) => write!(f, "{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{getegid, geteuid};
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("linerate-address-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir(&folder).unwrap();
        // Independent of the umask that another test has set for this process.
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    #[test]
    fn socket_has_its_mode_from_creation_despite_umask() {
        let folder = folder("mode");
        for (others, mode) in [(false, 0o600), (true, 0o666)] {
            let path = folder.join("ring");
            let listener = Address::Path(path.clone()).listen(others, None).unwrap();
            let data = std::fs::symlink_metadata(&path).unwrap();
            assert_eq!((data.permissions().mode() & 0o777, data.uid()), (mode, geteuid().as_raw()));
            drop(listener);
            assert!(!path.exists());
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn socket_is_created_as_its_owner_and_privileges_return() {
        if !geteuid().is_root() {
            eprintln!("SKIPPED: only root can act as another user");
            return;
        }
        let folder = folder("owner");
        let path = folder.join("ring");
        let owner = Some((65_534, 65_534));
        let error = Address::Path(path.clone()).listen(true, owner).err().unwrap().to_string();
        assert!(error.contains("denied") && !path.exists(), "{error}");
        std::os::unix::fs::chown(&folder, Some(65_534), Some(65_534)).unwrap();
        let listener = Address::Path(path.clone()).listen(true, owner).unwrap();
        let data = std::fs::symlink_metadata(&path).unwrap();
        assert_eq!((data.uid(), data.gid(), data.permissions().mode() & 0o777), (65_534, 65_534, 0o666));
        assert!(geteuid().is_root() && getegid().as_raw() == 0);
        // Readers see the process that called listen.
        let socket = Address::Path(path).connect(Duration::from_secs(1)).unwrap();
        assert_eq!(Peer::of(socket.as_fd()).unwrap().uid, 0);
        drop(listener);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn replacement_of_a_socket_file_is_kept() {
        let folder = folder("stays");
        let [path, other, moved] = ["ring", "other", "moved"].map(|name| folder.join(name));
        std::fs::write(&other, "of another user").unwrap();
        let listener = Address::Path(path.clone()).listen(false, None).unwrap();
        std::fs::rename(&path, &moved).unwrap();
        symlink(&other, &path).unwrap();
        drop(listener);
        assert!(path.is_symlink() && other.exists());
        // A symbolic link is not a socket, whatever its target.
        let listener = Address::Path(other.with_extension("ring")).listen(false, None).unwrap();
        std::fs::remove_file(&path).unwrap();
        symlink("other.ring", &path).unwrap();
        let error = Address::Path(path.clone()).listen(false, None).err().unwrap().to_string();
        assert!(error.contains("not a socket"), "{error}");
        drop(listener);
        // The socket of a writer that is gone is replaced.
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&moved, &path).unwrap();
        drop(Address::Path(path.clone()).listen(false, None).unwrap());
        assert!(!path.exists());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
