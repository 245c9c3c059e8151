//! Coming in at the acceptor of a writer, as a reader.

use crate::address::Address;
use crate::arena::{Arena, Owner};
use crate::control::Control;
use crate::credentials::Peer;
use crate::engine::Engine;
use crate::error::Error;
use crate::frame_ring;
use crate::handshake::{Hello, Kind, Status, WELCOME, Welcome};
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

/// How a reader wants to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attach {
    /// The writer waits for this reader rather than lose a frame for it.
    pub lossless: bool,
    /// Most blocks that a lossy reader holds; 0: as the writer thinks best.
    pub quota: u32,
    /// What the writer is told, for its reports: at most 96 bytes of it are.
    pub name: String,
    /// Attach to a ring that neither root nor this user shares.
    pub trust: bool,
    /// How long the writer has to answer.
    pub patience: Duration,
}

impl Default for Attach {
    fn default() -> Self {
        Attach { lossless: false, quota: 0, name: String::new(), trust: false, patience: Duration::from_secs(5) }
    }
}

/// A reader that has said hello, and waits for the answer.
#[derive(Debug)]
pub struct Attaching {
    address: Address,
    socket: OwnedFd,
    owner: Owner,
    inline: bool,
}

impl Attach {
    /// Attaches to the ring of this name; waits for the writer's answer.
    pub fn to(&self, name: &str) -> Result<Reader, Error> {
        self.begin(name)?.finish()
    }

    /// Attaches as the one that decides about each frame.
    ///
    /// # Errors
    /// As those of [`Attach::to`], and where no verdicts are wanted, or another engine decides.
    pub fn engine(&self, name: &str) -> Result<Engine, Error> {
        Ok(Engine::over(self.say_hello(name, Kind::Blocks, true)?.finish()?))
    }

    /// Takes frames of memory from whoever shares them under this name; waits for the writer's answer. Of what is asked for only name,
    /// trust and patience mean something there.
    ///
    /// # Errors
    /// If nobody does, or this reader is not let in: one at a time is.
    pub fn frames(&self, name: &str) -> Result<frame_ring::Reader, Error> {
        let of_frames = |error| match error {
            Error::Protocol { address, reason } => {
                let reason = format!("what answers shares no frames of memory: {reason}");
                Error::Refused { address, reason }
            }
            error => error,
        };
        let handed = self.say_hello(name, Kind::Frames, false)?.hear().map_err(of_frames)?;
        let Handed { address, socket, generation, memory: [arena, control], .. } = handed;
        frame_ring::Reader::open(arena.as_fd(), control.as_fd(), generation, socket)
            .map_err(|reason| of_frames(Error::Protocol { address: address.to_string(), reason }))
    }

    /// Says hello; the answer is waited for by [`Attaching::finish`].
    pub fn begin(&self, name: &str) -> Result<Attaching, Error> {
        self.say_hello(name, Kind::Blocks, false)
    }

    fn say_hello(&self, name: &str, kind: Kind, inline: bool) -> Result<Attaching, Error> {
        let address = Address::parse(name)?;
        let socket = address.connect(self.patience)?;
        let writer =
            Peer::of(socket.as_fd()).map_err(|error| Error::system(format!("attaching to {address}"), error))?;
        let is_own = writer.uid == 0 || writer.uid == rustix::process::geteuid().as_raw();
        let owner = if is_own { Owner::Trusted } else { Owner::Another };
        if !self.trust && owner == Owner::Another {
            let reason = format!(
                "it is shared by user {}, neither root nor you: say --trust (as a port ?trust=yes) if you trust it",
                writer.uid
            );
            return Err(Error::Refused { address: address.to_string(), reason });
        }
        let Attach { lossless, quota, .. } = *self;
        let hello = Hello { major: MAJOR, kind, lossless, inline, quota, name: self.name.clone() };
        match send(&socket, &hello.encode(), SendFlags::NOSIGNAL) {
            // It has said why before it hung up.
            Ok(_) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(Attaching { address, socket, owner, inline }),
            Err(error) => Err(Error::system(format!("attaching to {address}"), error)),
        }
    }
}

impl Attaching {
    /// Waits for the answer.
    pub fn finish(self) -> Result<Reader, Error> {
        let inline = self.inline;
        let Handed { address, owner, socket, generation, memory: [arena, control] } = self.hear()?;
        let protocol = |reason: String| Error::Protocol { address: address.to_string(), reason };
        let arena = Arena::open(arena.as_fd(), owner).map_err(protocol)?;
        if arena.generation() != generation {
            return Err(protocol("it handed over the memory of another ring".into()));
        }
        let shape = *arena.shape();
        let control = Control::open(control.as_fd(), shape.slots, arena.generation(), inline.then_some(shape));
        let control = control.map_err(protocol)?;
        Reader::new(arena, control, socket).map_err(|error| Error::system(format!("attaching to {address}"), error))
    }

    /// What the writer hands over.
    fn hear(self) -> Result<Handed, Error> {
        let Attaching { address, socket, owner, inline } = self;
        let (welcome, fds) = hear(&address, &socket)?;
        if welcome.status != Status::Welcome {
            let reason = if welcome.text.is_empty() { "it lets nobody in".to_owned() } else { welcome.text };
            return Err(Error::Refused { address: address.to_string(), reason });
        }
        if inline && welcome.minor == 0 {
            let reason = "it is shared by an older version, which knows nothing of verdicts".to_owned();
            return Err(Error::Refused { address: address.to_string(), reason });
        }
        let memory = <[OwnedFd; 2]>::try_from(fds).map_err(|fds| Error::Protocol {
            address: address.to_string(),
            reason: format!("it handed over {} descriptors instead of 2", fds.len()),
        })?;
        if owner == Owner::Another {
            let refused = |reason| Error::Refused { address: address.to_string(), reason };
            // Pages of control memory that are not there become this process's: it is small.
            check_whole(memory[0].as_fd()).and_then(|()| check_ordinary(memory[1].as_fd())).map_err(refused)?;
        }
        // What it waits on from now on does not time out.
        for timeout in [sockopt::Timeout::Send, sockopt::Timeout::Recv] {
            let _ = sockopt::set_socket_timeout(&socket, timeout, None);
        }
        Ok(Handed { address, owner, socket, generation: welcome.generation, memory })
    }
}

/// What a reader that was let in has: arena and control memory.
struct Handed {
    address: Address,
    owner: Owner,
    socket: OwnedFd,
    generation: u64,
    memory: [OwnedFd; 2],
}

/// A writer that means to let nobody in says so first.
const HUNG_UP: &str =
    "whoever shared it hung up without an answer: it has died, or shares no ring; look whether it runs";

/// The writer's answer, and the descriptors that came along.
fn hear(address: &Address, socket: &OwnedFd) -> Result<(Welcome, Vec<OwnedFd>), Error> {
    let protocol = |reason: &str| Error::Protocol { address: address.to_string(), reason: reason.to_owned() };
    let unanswered = |reason| Error::Unanswered { address: address.to_string(), reason };
    let mut bytes = [0; WELCOME + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    for _ in 0..8 {
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        let message = match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut rights, RecvFlags::CMSG_CLOEXEC) {
            // It hung up without having read the hello; what it said is behind this error.
            Err(Errno::CONNRESET | Errno::INTR) => continue,
            Err(Errno::AGAIN) => {
                return Err(unanswered(
                    "whoever shares it does not answer: it is stopped or overloaded, or shares no ring",
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
        return welcome.map(|welcome| (welcome, fds)).ok_or_else(|| protocol("its answer is none of this protocol"));
    }
    Err(unanswered(HUNG_UP))
}
