//! The door: readers come in here, one message each way, and go on to the writer as visitors.
//!
//! All that is slow happens here, in whatever thread runs [`Door::step`]: memory, mapping, messages. Nothing here waits
//! for a reader: sockets do not block, a reader that says nothing for a second is sent away, and few may be at the
//! door at a time.

use crate::address::Listener;
use crate::control::Control;
use crate::credentials::{Access, Peer};
use crate::handshake::{HELLO, Hello, Status, Welcome};
use crate::layout::{MAJOR, READERS, Shape};
use linerate_burst::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    accept_with, recvmsg, sendmsg,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

/// How long a reader has to say hello.
const PATIENCE: Duration = Duration::from_secs(1);
/// Readers that may be at the door at a time.
const WAITING: usize = 16;

/// What the door and the writer both know.
#[derive(Debug, Default)]
pub(crate) struct Seats {
    /// A bit for each reader number in use.
    taken: AtomicU64,
    ended: AtomicBool,
}

impl Seats {
    /// The writer has ended: nobody is let in any more.
    pub fn end(&self) {
        self.ended.store(true, Release);
    }

    fn have_ended(&self) -> bool {
        self.ended.load(Acquire)
    }
}

/// A reader number, free again when dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    pub number: u32,
}

impl Seat {
    fn take(seats: &Arc<Seats>) -> Option<Seat> {
        // The door alone takes seats; others only free them.
        let number = (!seats.taken.load(Acquire)).trailing_zeros();
        (number < READERS).then(|| {
            seats.taken.fetch_or(1 << number, Relaxed);
            Seat { seats: seats.clone(), number }
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.seats.taken.fetch_and(!(1 << self.number), Release);
    }
}

/// Who reads, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    /// As it calls itself.
    pub name: String,
    /// Its process; 0 where that cannot be seen from here.
    pub pid: i32,
    /// Its user.
    pub uid: u32,
}

/// A reader that was let in and waits for [`crate::Writer::admit`].
#[derive(Debug)]
pub struct Visitor {
    pub(crate) seat: Seat,
    pub(crate) socket: OwnedFd,
    pub(crate) control: Control,
    pub(crate) who: Who,
    pub(crate) lossless: bool,
    pub(crate) quota: u32,
}

/// Where readers come in.
#[derive(Debug)]
pub struct Door {
    listener: Listener,
    access: Access,
    own: u32,
    /// Handed to readers.
    arena: OwnedFd,
    shape: Shape,
    generation: u64,
    seats: Arc<Seats>,
    waiting: Vec<Waiting>,
    /// Descriptors or memory have run out: leave the socket alone for a while.
    tired: bool,
    refused: u64,
}

/// A reader that has not said hello.
#[derive(Debug)]
struct Waiting {
    socket: OwnedFd,
    peer: Peer,
    since: Nanos,
}

impl Door {
    pub(crate) fn new(
        listener: Listener,
        access: Access,
        arena: OwnedFd,
        shape: Shape,
        generation: u64,
        seats: Arc<Seats>,
    ) -> Self {
        let own = rustix::process::geteuid().as_raw();
        let (waiting, tired, refused) = (Vec::new(), false, 0);
        Door { listener, access, own, arena, shape, generation, seats, waiting, tired, refused }
    }

    /// Waits until somebody is at the door, at most for `limit`.
    pub fn wait(&self, limit: Duration) {
        let all = std::iter::once(self.listener.socket.as_fd())
            .filter(|_| !self.tired && self.waiting.len() < WAITING)
            .chain(self.waiting.iter().map(|waiting| waiting.socket.as_fd()));
        let mut polled: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        // An interrupted wait is as good as a finished one: the caller steps in any case.
        let _ = poll(&mut polled, Some(&limit));
    }

    /// Does what there is to do at `now`, without waiting; returns those who were let in.
    pub fn step(&mut self, now: Nanos) -> Vec<Visitor> {
        // Those who have waited too long make room first.
        let mut visitors = self.hear_all(now);
        self.accept(now);
        visitors.extend(self.hear_all(now));
        visitors
    }

    /// Whether the writer has ended: those who come now are told so.
    pub fn is_over(&self) -> bool {
        self.seats.have_ended()
    }

    /// Readers that were sent away so far, or went by themselves before they had said hello.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Lets in, or sends away, whoever has said something or has waited too long.
    fn hear_all(&mut self, now: Nanos) -> Vec<Visitor> {
        let mut visitors = Vec::new();
        for one in std::mem::take(&mut self.waiting) {
            match hear(one.socket.as_fd()) {
                Heard::Nothing if now.since(one.since) < PATIENCE && now >= one.since => self.waiting.push(one),
                Heard::Nothing | Heard::Gone => self.refused += 1,
                Heard::Noise(reason) => self.refuse(one.socket.as_fd(), Status::Malformed, reason),
                Heard::Hello(hello) => match self.let_in(one.socket.as_fd(), &hello) {
                    Ok((seat, control)) => {
                        let who = Who { name: hello.name, pid: one.peer.pid, uid: one.peer.uid };
                        let quota = quota(hello.quota, self.shape.slots);
                        let Waiting { socket, .. } = one;
                        visitors.push(Visitor { seat, socket, control, who, lossless: hello.lossless, quota });
                    }
                    Err((status, reason)) => self.refuse(one.socket.as_fd(), status, &reason),
                },
            }
        }
        visitors
    }

    fn accept(&mut self, now: Nanos) {
        self.tired = false;
        while self.waiting.len() < WAITING {
            match accept_with(&self.listener.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    let Ok(peer) = Peer::of(socket.as_fd()) else { continue };
                    if self.access.allows(&peer, self.own, socket.as_fd()) {
                        self.waiting.push(Waiting { socket, peer, since: now });
                    } else {
                        let reason = format!("user {} may not attach; the owner and root may", peer.uid);
                        self.refuse(socket.as_fd(), Status::Permission, &reason);
                    }
                }
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => {
                    self.tired = true;
                    return;
                }
            }
        }
    }

    /// Makes what a reader needs and hands it over.
    fn let_in(&self, socket: BorrowedFd<'_>, hello: &Hello) -> Result<(Seat, Control), (Status, String)> {
        if hello.major != MAJOR {
            let reason = format!("the ring has version {MAJOR} of the format, the reader knows {}", hello.major);
            return Err((Status::Version, reason));
        }
        if self.is_over() {
            return Err((Status::Ended, "the ring has ended".into()));
        }
        let full = || (Status::TooMany, format!("{READERS} readers are attached, the most there can be"));
        let seat = Seat::take(&self.seats).ok_or_else(full)?;
        let (control, fd) = Control::create(&self.shape, seat.number, self.generation)
            .map_err(|error| (Status::NoMemory, format!("no memory for another reader: {error}")))?;
        control.set_lossless(hello.lossless);
        let welcome = Welcome::to(seat.number, quota(hello.quota, self.shape.slots), self.generation, &self.shape);
        send(socket, &welcome.encode(), &[self.arena.as_fd(), fd.as_fd()])
            .map_err(|error| (Status::NoMemory, format!("the ring cannot be handed over: {error}")))?;
        Ok((seat, control))
    }

    fn refuse(&mut self, socket: BorrowedFd<'_>, status: Status, reason: &str) {
        self.refused += 1;
        // A reader that does not listen does not want to know.
        let _ = send(socket, &Welcome::refusal(status, reason).encode(), &[]);
    }
}

/// How many blocks a lossy reader may hold.
fn quota(asked: u32, slots: u32) -> u32 {
    if asked == 0 { (slots / 4).max(2) } else { asked.clamp(2, slots) }
}

enum Heard {
    Nothing,
    Gone,
    Noise(&'static str),
    Hello(Hello),
}

/// What a reader has said. Descriptors that come along are never taken in.
fn hear(socket: BorrowedFd<'_>) -> Heard {
    let mut bytes = [0; HELLO + 1];
    let mut none = RecvAncillaryBuffer::default();
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut none, flags) {
        Err(Errno::AGAIN | Errno::INTR) => Heard::Nothing,
        Err(_) => Heard::Gone,
        Ok(message) if message.flags.contains(ReturnFlags::CTRUNC) => {
            Heard::Noise("the first message of a reader carries no descriptors")
        }
        Ok(message) if message.bytes == 0 => Heard::Gone,
        Ok(message) => match bytes.get(..message.bytes).and_then(Hello::decode) {
            Some(hello) => Heard::Hello(hello),
            None => Heard::Noise("the first message of a reader is no hello"),
        },
    }
}

fn send(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        rights.push(SendAncillaryMessage::ScmRights(fds));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut rights, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).map(|_| ())
}
