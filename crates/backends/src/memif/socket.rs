//! The socket of a connection: its address, the user of its peer, and messages with their descriptors.

use super::config::MemifConfig;
use super::message::{BYTES, Message};
use linerate_share::{SocketFile, SocketFileError};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, recvmsg, sendmsg,
    socket_with,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

/// Connections that may wait for `accept`.
const BACKLOG: i32 = 16;

/// A listening socket. Its file is removed on drop, if this process still may.
#[derive(Debug)]
pub(super) struct Listener {
    file: Option<SocketFile>,
    pub socket: OwnedFd,
}

impl Listener {
    /// Starts to listen. A file whose listener has gone is replaced.
    pub(super) fn new(config: &MemifConfig) -> Result<Listener, String> {
        let failed = |error: Errno| format!("cannot create its socket: {error}");
        let socket = seqpacket().map_err(failed)?;
        let taken = || "another process is listening there; choose another name, or role=client".to_owned();
        let file = if config.is_abstract {
            let bound = bind(&socket, &address(config).map_err(failed)?);
            bound.map_err(|error| if error == Errno::ADDRINUSE { taken() } else { failed(error) })?;
            None
        } else {
            // The user of each peer is checked; the file must let other users connect where some of them are allowed.
            let bound = SocketFile::bind(&socket, Path::new(&config.target), !config.users.is_empty(), None);
            Some(bound.map_err(|why| match why {
                SocketFileError::System(error) => failed(error),
                SocketFileError::NoSocket => "exists and is not a socket; choose another name".to_owned(),
                SocketFileError::Taken(_) => taken(),
            })?)
        };
        listen(&socket, BACKLOG).map_err(failed)?;
        Ok(Listener { socket, file })
    }
}

impl Listener {
    /// Returns the folder of its file, if it has one.
    pub(super) fn folder(&self) -> Option<OwnedFd> {
        self.file.as_ref()?.folder().try_clone().ok()
    }
}

/// Connects to the server; `None` if none listens, or not yet.
pub(super) fn connected(config: &MemifConfig) -> Result<Option<OwnedFd>, Errno> {
    let socket = seqpacket()?;
    match connect(&socket, &address(config)?) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Result of a read.
#[derive(Debug)]
pub(super) enum ReadOutcome {
    Nothing,
    /// The peer has closed the socket.
    Gone,
    Message(Message, Vec<OwnedFd>),
    /// Not a message, for this reason.
    Noise(&'static str),
}

/// Reads the next message.
pub(super) fn read_message(socket: BorrowedFd<'_>) -> ReadOutcome {
    let mut bytes = [0; BYTES + 1];
    // Room for one more than allowed; descriptors beyond it are closed by the kernel, which sets `CTRUNC`.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut rights, flags) {
        Err(Errno::AGAIN | Errno::INTR) => return ReadOutcome::Nothing,
        Err(_) => return ReadOutcome::Gone,
        Ok(received) => received,
    };
    let fds = rights.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds: Vec<OwnedFd> = fds.flatten().collect();
    if received.bytes == 0 {
        return ReadOutcome::Gone;
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return ReadOutcome::Noise("wrong number of descriptors");
    }
    let Some(Ok(whole)) = (received.bytes == BYTES).then(|| bytes[..BYTES].try_into()) else {
        return ReadOutcome::Noise("message length is not 128 bytes");
    };
    Message::decode(whole)
        .map_or(ReadOutcome::Noise("unknown message type"), |message| ReadOutcome::Message(message, fds))
}

/// Sends a message, with a descriptor if there is one.
pub(super) fn send_message(socket: BorrowedFd<'_>, message: &Message, fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds {
        rights.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(&message.encode())], &mut rights, flags).map(|_| ())
}

/// Sends DISCONNECT with a reason; errors are ignored.
pub(super) fn send_disconnect(socket: BorrowedFd<'_>, reason: &str) {
    let _ = send_message(socket, &Message::Disconnect { code: 0, text: reason.into() }, None);
}

/// Socket names are not padded: a name of another length is another name.
fn address(config: &MemifConfig) -> Result<SocketAddrUnix, Errno> {
    match config.is_abstract {
        true => SocketAddrUnix::new_abstract_name(config.target.as_bytes()),
        false => SocketAddrUnix::new(config.target.as_str()),
    }
}

fn seqpacket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}
