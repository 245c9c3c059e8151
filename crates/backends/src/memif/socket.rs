//! The socket of a connection: where it is, who is at its other end, and messages with their descriptors.

use super::message::{BYTES, Message};
use super::wish::Wish;
use linerate_share::{NoFile, SocketFile};
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

/// Clients that may wait to be looked at.
const BACKLOG: i32 = 16;

/// A socket that clients connect to. Its file goes with it, if this process may do that then.
#[derive(Debug)]
pub(super) struct Listener {
    file: Option<SocketFile>,
    pub socket: OwnedFd,
}

impl Listener {
    /// Begins to listen. A file whose listener has gone gives way.
    pub(super) fn new(wish: &Wish) -> Result<Listener, String> {
        let failed = |error: Errno| format!("its socket cannot be made: {error}");
        let socket = seqpacket().map_err(failed)?;
        let taken = || "somebody listens there already: choose another name, or be the client".to_owned();
        let file = if wish.is_abstract {
            let bound = bind(&socket, &address(wish).map_err(failed)?);
            bound.map_err(|error| if error == Errno::ADDRINUSE { taken() } else { failed(error) })?;
            None
        } else {
            // Whoever comes is asked who it is; the file lets all others of the machine knock where some of them are let in.
            let bound = SocketFile::bind(&socket, Path::new(&wish.target), !wish.users.is_empty(), None);
            Some(bound.map_err(|why| match why {
                NoFile::System(error) => failed(error),
                NoFile::NoSocket => "is there, and is no socket: choose another name".to_owned(),
                NoFile::Taken(_) => taken(),
            })?)
        };
        listen(&socket, BACKLOG).map_err(failed)?;
        Ok(Listener { socket, file })
    }
}

impl Listener {
    /// The folder of its file, if it has one.
    pub(super) fn folder(&self) -> Option<OwnedFd> {
        self.file.as_ref()?.folder().try_clone().ok()
    }
}

/// A socket connected to whoever listens; none if nobody does, or not yet.
pub(super) fn connected(wish: &Wish) -> Result<Option<OwnedFd>, Errno> {
    let socket = seqpacket()?;
    match connect(&socket, &address(wish)?) {
        Ok(()) => Ok(Some(socket)),
        Err(Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(error) => Err(error),
    }
}

/// What has come.
#[derive(Debug)]
pub(super) enum Heard {
    Nothing,
    /// The other end has closed.
    Gone,
    Message(Message, Vec<OwnedFd>),
    /// No message: why.
    Noise(&'static str),
}

/// Takes the next message.
pub(super) fn hear(socket: BorrowedFd<'_>) -> Heard {
    let mut bytes = [0; BYTES + 1];
    // Room for one more than there may be; what the kernel has no room for it closes, and says so.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    let received = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut rights, flags) {
        Err(Errno::AGAIN | Errno::INTR) => return Heard::Nothing,
        Err(_) => return Heard::Gone,
        Ok(received) => received,
    };
    let fds = rights.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    let fds: Vec<OwnedFd> = fds.flatten().collect();
    if received.bytes == 0 {
        return Heard::Gone;
    }
    if received.flags.contains(ReturnFlags::CTRUNC) {
        return Heard::Noise("wrong number of descriptors");
    }
    let Some(Ok(whole)) = (received.bytes == BYTES).then(|| bytes[..BYTES].try_into()) else {
        return Heard::Noise("a message has 128 bytes");
    };
    Message::decode(whole).map_or(Heard::Noise("no such message"), |message| Heard::Message(message, fds))
}

/// Says something, with a descriptor if there is one.
pub(super) fn say(socket: BorrowedFd<'_>, message: &Message, fd: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let fds = fd.map(|fd| [fd]);
    if let Some(fds) = &fds {
        rights.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(&message.encode())], &mut rights, flags).map(|_| ())
}

/// Says why this end goes, as far as anybody listens.
pub(super) fn part(socket: BorrowedFd<'_>, reason: &str) {
    let _ = say(socket, &Message::Disconnect { code: 0, text: reason.into() }, None);
}

/// The names of sockets are not padded: one of another length is another name.
fn address(wish: &Wish) -> Result<SocketAddrUnix, Errno> {
    match wish.is_abstract {
        true => SocketAddrUnix::new_abstract_name(wish.target.as_bytes()),
        false => SocketAddrUnix::new(wish.target.as_str()),
    }
}

fn seqpacket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}
