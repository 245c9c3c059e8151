//! Under which name a ring is shared: an abstract name of this network namespace, or a socket in the file system.

use crate::credentials::Peer;
use crate::error::Error;
use rustix::fs::{AtFlags, CWD, FileType, Mode, chmodat, stat, unlinkat};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with};
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

/// Where a ring is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// `NAME`: known in this network namespace.
    Name(String),
    /// With a `/`: a socket in the file system.
    Path(PathBuf),
}

/// Readers that may wait to be let in at a time.
const BACKLOG: i32 = 128;
/// An abstract name has 107 bytes, and a path 108 with its end.
const LONGEST: usize = 90;

impl Address {
    /// Takes a name apart.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.is_empty() || text.len() > LONGEST || text.contains('\0') {
            return Err(Error::Invalid(format!("{text:?}: the name of a ring has 1 to {LONGEST} bytes")));
        }
        Ok(if text.contains('/') { Address::Path(text.into()) } else { Address::Name(text.to_owned()) })
    }

    fn socket_address(&self) -> Result<SocketAddrUnix, Errno> {
        match self {
            Address::Name(name) => SocketAddrUnix::new_abstract_name(format!("linerate/{name}").as_bytes()),
            Address::Path(path) => SocketAddrUnix::new(path),
        }
    }

    /// Begins to listen. `others`: whether other users may be let in.
    pub fn listen(self, others: bool) -> Result<Listener, Error> {
        let failed = |error: Errno| Error::system(format!("sharing {self}"), error);
        let socket = seqpacket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).map_err(failed)?;
        let place = self.socket_address().map_err(failed)?;
        match bind(&socket, &place) {
            Err(Errno::ADDRINUSE) => {
                self.clear_away()?;
                bind(&socket, &place).map_err(failed)?;
            }
            result => result.map_err(failed)?,
        }
        if let Address::Path(path) = &self {
            // Nobody can connect before it listens. Credentials are looked at in any case.
            let mode = Mode::from_raw_mode(if others { 0o666 } else { 0o600 });
            chmodat(CWD, path, mode, AtFlags::empty()).map_err(failed)?;
        }
        listen(&socket, BACKLOG).map_err(failed)?;
        Ok(Listener { socket, file: self.file(), address: self })
    }

    /// The file of a socket in the file system: device and number.
    fn file(&self) -> Option<(u64, u64)> {
        let Address::Path(path) = self else { return None };
        std::fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()))
    }

    /// Removes the socket file of a writer that is gone; says so if one is there.
    fn clear_away(&self) -> Result<(), Error> {
        let failed = |error: Errno| Error::system(format!("sharing {self}"), error);
        if let Address::Path(path) = self
            && FileType::from_raw_mode(stat(path).map_err(failed)?.st_mode) != FileType::Socket
        {
            return Err(Error::Invalid(format!("{self} is there and is no socket: choose another name")));
        }
        let socket = seqpacket(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).map_err(failed)?;
        let pid = match (connect(&socket, &self.socket_address().map_err(failed)?), self) {
            (Ok(()), _) => Peer::of(socket.as_fd()).map_or(0, |peer| peer.pid),
            (Err(Errno::CONNREFUSED), Address::Path(path)) => {
                return unlinkat(CWD, path, AtFlags::empty()).map_err(failed);
            }
            // Too many wait to be let in, or it has gone meanwhile.
            (Err(_), _) => 0,
        };
        Err(Error::Taken { address: self.to_string(), pid })
    }

    /// A socket connected to whoever shares this. No call on it takes longer than `patience`.
    pub fn connect(&self, patience: Duration) -> Result<OwnedFd, Error> {
        let failed = |error: Errno| Error::system(format!("attaching to {self}"), error);
        let socket = seqpacket(SocketFlags::CLOEXEC).map_err(failed)?;
        for timeout in [Timeout::Send, Timeout::Recv] {
            // Zero would be for ever.
            let patience = patience.max(Duration::from_millis(1));
            sockopt::set_socket_timeout(&socket, timeout, Some(patience)).map_err(failed)?;
        }
        match connect(&socket, &self.socket_address().map_err(failed)?) {
            Ok(()) => Ok(socket),
            Err(Errno::CONNREFUSED | Errno::NOENT) => Err(Error::Absent { address: self.to_string() }),
            Err(Errno::AGAIN) => {
                let reason = "too many wait to be let in; try again".to_owned();
                Err(Error::Refused { address: self.to_string(), reason })
            }
            Err(error) => Err(failed(error)),
        }
    }
}

/// A socket that readers connect to; its file goes with it.
#[derive(Debug)]
pub(crate) struct Listener {
    pub socket: OwnedFd,
    pub address: Address,
    file: Option<(u64, u64)>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        // It may be that of another writer by now.
        if let Address::Path(path) = &self.address
            && self.file == self.address.file()
        {
            let _ = unlinkat(CWD, path, AtFlags::empty());
        }
    }
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
