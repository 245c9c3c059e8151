//! Attachment to a ring, as a reader.

use crate::address::Address;
use crate::arena::{Arena, Owner};
use crate::control::Control;
use crate::credentials::Peer;
use crate::engine::Engine;
use crate::error::Error;
use crate::frame_ring;
use crate::handshake::{Hello, RingKind, Status, WELCOME, Welcome};
use crate::layout::MAJOR;
use crate::pages::{check_ordinary, check_whole};
use crate::reader::Reader;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendFlags, recvmsg, send, sockopt,
};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Options of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttachOptions {
    /// Make the writer wait for this reader rather than skip frames.
    pub lossless: bool,
    /// Maximum number of blocks that a lossy reader holds; 0: the writer's default.
    pub quota: u32,
    /// Name for the writer's reports; at most 96 bytes of it are sent.
    pub name: String,
    /// Read from a ring that is shared by neither root nor this user.
    pub trust: bool,
    /// Timeout for the writer's answer.
    pub patience: Duration,
}

impl Default for AttachOptions {
    fn default() -> Self {
        AttachOptions { lossless: false, quota: 0, name: String::new(), trust: false, patience: Duration::from_secs(5) }
    }
}

/// A reader that has sent its hello and waits for the answer.
#[derive(Debug)]
pub struct PendingAttach {
    address: Address,
    socket: OwnedFd,
    owner: Owner,
    inline: bool,
}

impl AttachOptions {
    /// Attaches to the ring of this name; waits for the writer's answer.
    ///
    /// # Errors
    /// [`Error`].
    pub fn to(&self, name: &str) -> Result<Reader, Error> {
        self.begin(name)?.finish()
    }

    /// Attaches as the engine, which gives a verdict on each frame.
    ///
    /// # Errors
    /// Those of [`AttachOptions::to`], and if no verdicts are wanted, or another engine is attached.
    pub fn engine(&self, name: &str) -> Result<Engine, Error> {
        Ok(Engine::over(self.send_hello(name, RingKind::Blocks, true)?.finish()?))
    }

    /// Attaches to frames of memory that are shared under this name; waits for the writer's answer. Of the options only
    /// name, trust and patience apply.
    ///
    /// # Errors
    /// If nothing is shared, or this reader is rejected: one reader at a time may attach.
    pub fn frames(&self, name: &str) -> Result<frame_ring::Reader, Error> {
        let of_frames = |error| match error {
            Error::Protocol { address, reason } => {
                let reason = format!("peer does not share frames of memory: {reason}");
                Error::Refused { address, reason }
            }
            error => error,
        };
        let handed = self.send_hello(name, RingKind::Frames, false)?.read_answer().map_err(of_frames)?;
        let ReceivedMemory { address, socket, generation, memory: [arena, control], .. } = handed;
        frame_ring::Reader::open(arena.as_fd(), control.as_fd(), generation, socket)
            .map_err(|reason| of_frames(Error::Protocol { address: address.to_string(), reason }))
    }

    /// Sends the hello; [`PendingAttach::finish`] waits for the answer.
    ///
    /// # Errors
    /// [`Error`].
    pub fn begin(&self, name: &str) -> Result<PendingAttach, Error> {
        self.send_hello(name, RingKind::Blocks, false)
    }

    fn send_hello(&self, name: &str, kind: RingKind, inline: bool) -> Result<PendingAttach, Error> {
        let address = Address::parse(name)?;
        let socket = address.connect(self.patience)?;
        let writer =
            Peer::of(socket.as_fd()).map_err(|error| Error::system(format!("attaching to {address}"), error))?;
        let is_own = writer.uid == 0 || writer.uid == rustix::process::geteuid().as_raw();
        let owner = if is_own { Owner::Trusted } else { Owner::Another };
        if !self.trust && owner == Owner::Another {
            let reason = format!(
                "shared by user {}, who is neither root nor you; use --trust (port: ?trust=yes) if you trust that user",
                writer.uid
            );
            return Err(Error::Refused { address: address.to_string(), reason });
        }
        let AttachOptions { lossless, quota, .. } = *self;
        let hello = Hello { major: MAJOR, kind, lossless, inline, quota, name: self.name.clone() };
        match send(&socket, &hello.encode(), SendFlags::NOSIGNAL) {
            // The writer has sent the reason before it closed the socket.
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(PendingAttach { address, socket, owner, inline }),
            Err(error) => Err(Error::system(format!("attaching to {address}"), error)),
        }
    }
}

impl PendingAttach {
    /// Waits for the answer.
    ///
    /// # Errors
    /// [`Error`].
    pub fn finish(self) -> Result<Reader, Error> {
        let inline = self.inline;
        let ReceivedMemory { address, owner, socket, generation, memory: [arena, control] } = self.read_answer()?;
        let protocol = |reason: String| Error::Protocol { address: address.to_string(), reason };
        let arena = Arena::open(arena.as_fd(), owner).map_err(protocol)?;
        if arena.generation() != generation {
            return Err(protocol("it sent the memory of another ring".into()));
        }
        let shape = *arena.shape();
        let control = Control::open(control.as_fd(), shape.slots, arena.generation(), inline.then_some(shape));
        let control = control.map_err(protocol)?;
        Reader::new(arena, control, socket).map_err(|error| Error::system(format!("attaching to {address}"), error))
    }

    /// Receives the memory from the writer.
    fn read_answer(self) -> Result<ReceivedMemory, Error> {
        let PendingAttach { address, socket, owner, inline } = self;
        let (welcome, fds) = read_answer(&address, &socket)?;
        if welcome.status != Status::Welcome {
            let reason = if welcome.text.is_empty() { "the writer gave no reason".to_owned() } else { welcome.text };
            return Err(Error::Refused { address: address.to_string(), reason });
        }
        if inline && welcome.minor == 0 {
            let reason = "the writer is an older version without verdicts; update it".to_owned();
            return Err(Error::Refused { address: address.to_string(), reason });
        }
        let memory = <[OwnedFd; 2]>::try_from(fds).map_err(|fds| Error::Protocol {
            address: address.to_string(),
            reason: format!("it sent {} descriptors instead of 2", fds.len()),
        })?;
        if owner == Owner::Another {
            let refused = |reason| Error::Refused { address: address.to_string(), reason };
            // Missing pages of control memory are charged to this process: it is small.
            check_whole(memory[0].as_fd()).and_then(|()| check_ordinary(memory[1].as_fd())).map_err(refused)?;
        }
        // From now on reads of the socket do not time out.
        for timeout in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
            let _ = sockopt::set_socket_timeout(&socket, timeout, None);
        }
        Ok(ReceivedMemory { address, owner, socket, generation: welcome.generation, memory })
    }
}

/// The memory of an accepted reader: arena and control memory.
struct ReceivedMemory {
    address: Address,
    owner: Owner,
    socket: OwnedFd,
    generation: u64,
    memory: [OwnedFd; 2],
}

/// A writer that rejects a reader sends the reason first.
const HUNG_UP: &str =
    "no answer: the writer closed the connection (it died, or is not a ring); check that it is running";

/// Receives the writer's answer, and the descriptors sent with it.
fn read_answer(address: &Address, socket: &OwnedFd) -> Result<(Welcome, Vec<OwnedFd>), Error> {
    let protocol = |reason: &str| Error::Protocol { address: address.to_string(), reason: reason.to_owned() };
    let unanswered = |reason| Error::Unanswered { address: address.to_string(), reason };
    let mut bytes = [0; WELCOME + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    for _ in 0..8 {
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let message = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut rights, RecvFlags::CMSG_CLOEXEC) {
            // It closed the socket without having read the hello; its message can be read after this error.
            Err(Errno::CONNRESET | Errno::INTR) => continue,
            Err(Errno::AGAIN) => {
                return Err(unanswered(
                    "no answer from the writer: it is stopped, overloaded or not a ring; check that it is running",
                ));
            }
            Err(error) => return Err(Error::system(format!("attaching to {address}"), error)),
            Ok(message) => message,
        };
        let fds = rights.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        });
        let fds: Vec<OwnedFd> = fds.flatten().collect();
        if message.bytes == 0 {
            return Err(unanswered(HUNG_UP));
        }
        let whole = !message.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        let welcome = bytes.get(..message.bytes).filter(|_| whole).and_then(Welcome::decode);
        return welcome
            .map(|welcome| (welcome, fds))
            .ok_or_else(|| protocol("its answer does not follow this protocol"));
    }
    Err(unanswered(HUNG_UP))
}
