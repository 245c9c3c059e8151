//! The acceptor: readers connect here, exchange one message each way, and become clients of the writer.
//!
//! All slow work happens here, in the thread that runs [`Acceptor::step`]: memory, mapping, messages. Nothing here
//! blocks on a reader: sockets are non-blocking, a reader that sends no hello within a second is disconnected, and few
//! may be pending at a time. Any process may connect, as often as it likes: a step handles a bounded number of
//! connections, unauthorised ones are closed as soon as their credentials are known, and the user with most pending
//! connections loses one first.

use crate::address::Listener;
use crate::control::Control;
use crate::credentials::{Access, Peer};
use crate::handshake::{HELLO, Hello, Offer, Status, Welcome};
use crate::layout::{MAJOR, MOST_DECIDING, READERS};
use crate::registrations::{Registration, Registrations};
use linerate_burst::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags,
    accept_with, recvmsg, sendmsg,
};
use std::collections::HashMap;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// Timeout for a reader's hello.
const PATIENCE: Duration = Duration::from_secs(1);
/// Delay before a lossless reader is rejected for lack of room: the departure of another one may not have been noticed
/// yet.
const SETTLING: Duration = Duration::from_millis(100);
/// Maximum number of pending connections.
const WAITING: usize = 16;
/// Connections accepted per step, which bounds the cost of a step.
const ACCEPTS: usize = 16;
/// Readers that a user may attach per second, except root and the owner: each costs memory.
const PACE: u32 = 100;
/// Registrations reserved for root and the owner.
const RESERVED: u32 = 16;

/// Identity of a reader, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderIdentity {
    /// The name that it gave itself.
    pub name: String,
    /// Its process; 0 if it is not visible from here.
    pub pid: i32,
    /// User of the process.
    pub uid: u32,
}

/// A reader that was accepted and waits for [`crate::Writer::admit`].
#[derive(Debug)]
pub struct Client {
    pub(crate) registration: Registration,
    pub(crate) socket: OwnedFd,
    pub(crate) control: Control,
    pub(crate) who: ReaderIdentity,
    pub(crate) lossless: bool,
    /// It gives verdicts.
    pub(crate) inline: bool,
    pub(crate) quota: u32,
}

/// Accepts readers.
#[derive(Debug)]
pub struct Acceptor {
    listener: Listener,
    access: Access,
    own: u32,
    /// Passed to readers.
    arena: OwnedFd,
    offer: Offer,
    generation: u64,
    registrations: Arc<Registrations>,
    waiting: Vec<PendingReader>,
    /// Descriptors or memory have run out: do not poll the socket for a while.
    exhausted: bool,
    /// More connections were pending than one step handles.
    crowded: bool,
    /// Start of the current second, and the number of readers attached in it per user.
    second: Nanos,
    attached: HashMap<u32, u32>,
    refused: u64,
}

/// A connection that has not sent its hello, or waits for a place that another reader is about to free.
#[derive(Debug)]
struct PendingReader {
    socket: OwnedFd,
    peer: Peer,
    since: Nanos,
    hello: Option<Hello>,
}

impl Acceptor {
    pub(crate) fn new(
        listener: Listener,
        access: Access,
        arena: OwnedFd,
        offer: Offer,
        generation: u64,
        registrations: Arc<Registrations>,
    ) -> Self {
        Acceptor {
            listener,
            access,
            own: rustix::process::geteuid().as_raw(),
            arena,
            offer,
            generation,
            registrations,
            waiting: Vec::new(),
            exhausted: false,
            crowded: false,
            second: Nanos::ZERO,
            attached: HashMap::new(),
            refused: 0,
        }
    }

    /// Waits until a connection needs attention, at most for `limit`.
    pub fn wait(&self, limit: Duration) {
        let all = std::iter::once(self.listener.socket.as_fd())
            .filter(|_| !self.exhausted)
            .chain(self.waiting.iter().map(|waiting| waiting.socket.as_fd()));
        let mut polled: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        // An interrupted wait counts as finished: the caller steps in any case.
        let _ = poll(&mut polled, Some(&limit));
    }

    /// Handles a bounded number of connections at `now`, without blocking; returns the readers that were accepted.
    pub fn step(&mut self, now: Nanos) -> Vec<Client> {
        // Expired connections make room first.
        let mut clients = self.process_pending(now);
        self.accept(now);
        clients.extend(self.process_pending(now));
        clients
    }

    /// Returns whether the writer has ended; readers that connect now are rejected with that reason.
    pub fn is_over(&self) -> bool {
        self.registrations.have_ended()
    }

    /// Returns whether more connections are pending than the last step handled: a caller with other work may let them
    /// wait, so that clients do not determine its cost.
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Returns the number of readers rejected so far, including those that disconnected before their hello.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Accepts or rejects each pending connection that has sent a message or has expired.
    fn process_pending(&mut self, now: Nanos) -> Vec<Client> {
        let mut clients = Vec::new();
        for mut one in std::mem::take(&mut self.waiting) {
            match one.hello.take().map_or_else(|| receive_hello(one.socket.as_fd()), HelloRead::Hello) {
                HelloRead::Hello(hello) if self.may_find_room(&one, &hello, now) => {
                    self.waiting.push(PendingReader { hello: Some(hello), ..one });
                }
                HelloRead::Nothing if now.since(one.since) < PATIENCE && now >= one.since => self.waiting.push(one),
                HelloRead::Nothing | HelloRead::Gone => self.refused += 1,
                HelloRead::Invalid(reason) => self.refuse(one.socket.as_fd(), Status::Malformed, reason),
                HelloRead::Hello(hello) => match self.let_in(&one, &hello, now) {
                    Ok((registration, control)) => {
                        let who = ReaderIdentity { name: hello.name, pid: one.peer.pid, uid: one.peer.uid };
                        let quota = quota(hello.quota, self.offer.slots);
                        let PendingReader { socket, .. } = one;
                        let Hello { lossless, inline, .. } = hello;
                        clients.push(Client { registration, socket, control, who, lossless, inline, quota });
                    }
                    Err((status, reason)) => self.refuse(one.socket.as_fd(), status, &reason),
                },
            }
        }
        clients
    }

    /// Returns whether this lossless reader lacks room that may become free shortly: when a reader is restarted, the
    /// departure of the old one may be noticed slightly after the new one connects.
    fn may_find_room(&self, one: &PendingReader, hello: &Hello, now: Nanos) -> bool {
        let is_full = || self.registrations.lossless() >= self.offer.lossless_readers();
        let waits = hello.lossless && self.access.lossless && is_full();
        let waits = waits || hello.inline && self.access.engine.is_some() && self.registrations.is_decided();
        waits && now.since(one.since) < SETTLING && now >= one.since
    }

    fn accept(&mut self, now: Nanos) {
        (self.exhausted, self.crowded) = (false, true);
        for _ in 0..ACCEPTS {
            match accept_with(&self.listener.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => self.receive(socket, now),
                Err(Errno::CONNABORTED | Errno::INTR) => {}
                Err(error) => {
                    (self.exhausted, self.crowded) = (error != Errno::AGAIN, false);
                    return;
                }
            }
        }
    }

    /// Handles a new connection: unauthorised ones only receive the reason.
    fn receive(&mut self, socket: OwnedFd, now: Nanos) {
        let Ok(peer) = Peer::of(socket.as_fd()) else { return self.refused += 1 };
        if !self.access.allows(&peer, self.own, socket.as_fd()) {
            let reason = format!("permission denied for user {}; only the owner and root may attach", peer.uid);
            return self.refuse(socket.as_fd(), Status::Permission, &reason);
        }
        if self.waiting.len() == WAITING {
            self.make_room();
        }
        self.waiting.push(PendingReader { socket, peer, since: now, hello: None });
    }

    /// Closes the oldest pending connection of the user with most of them.
    fn make_room(&mut self) {
        let of = |uid| self.waiting.iter().filter(|one| one.peer.uid == uid).count();
        let most = self.waiting.iter().map(|one| of(one.peer.uid)).max().unwrap_or_default();
        if let Some(at) = self.waiting.iter().position(|one| of(one.peer.uid) == most) {
            self.waiting.remove(at);
            self.refused += 1;
        }
    }

    /// Allocates what a reader needs and sends it.
    fn let_in(
        &mut self,
        one: &PendingReader,
        hello: &Hello,
        now: Nanos,
    ) -> Result<(Registration, Control), (Status, String)> {
        if hello.major != MAJOR {
            let reason = format!("unsupported version: the ring has version {MAJOR}, the reader {}", hello.major);
            return Err((Status::Version, reason));
        }
        if hello.kind != self.offer.kind {
            return Err((Status::Malformed, self.offer.other().into()));
        }
        if self.is_over() {
            return Err((Status::Ended, "the ring has ended".into()));
        }
        if hello.inline {
            self.check_engine(hello)?;
        }
        let registration = self.register(one.peer.uid, hello.lossless, now)?;
        let deciding = self.offer.verdicts.filter(|_| hello.inline);
        if deciding.is_some() {
            registration.count_as_deciding();
        }
        let (control, fd) = Control::create(self.offer.slots, registration.number, self.generation, deciding)
            .map_err(|error| (Status::NoMemory, format!("out of memory for another reader: {error}")))?;
        control.set_lossless(hello.lossless);
        let quota = quota(hello.quota, self.offer.slots);
        let welcome = Welcome::to(registration.number, quota, self.generation, &self.offer, hello.inline);
        send(one.socket.as_fd(), &welcome.encode(), &[self.arena.as_fd(), fd.as_fd()])
            .map_err(|error| (Status::NoMemory, format!("sending the ring failed: {error}")))?;
        Ok((registration, control))
    }

    /// Checks that this reader may give verdicts.
    fn check_engine(&self, hello: &Hello) -> Result<(), (Status, String)> {
        let refusal = |status, reason: String| Err((status, reason));
        let Some(name) = &self.access.engine else {
            let reason = "no verdicts are wanted here; attach to a ring of linerate inline";
            return refusal(Status::Permission, reason.into());
        };
        if !name.is_empty() && *name != hello.name {
            let reason = format!(
                "the engine of this ring must be called {name}, not {:?}; use inspect --name {name}",
                hello.name
            );
            return refusal(Status::Permission, reason);
        }
        if hello.lossless {
            return refusal(Status::Permission, "an engine cannot be lossless; attach as lossy".into());
        }
        if self.registrations.is_decided() {
            return refusal(Status::TooMany, "another engine is already attached".into());
        }
        if self.offer.verdicts.is_some_and(|shape| shape.deciding_bytes() > MOST_DECIDING) {
            let reason = format!("too many blocks: their verdicts need more than {} MiB", MOST_DECIDING >> 20);
            return refusal(Status::NoMemory, reason);
        }
        Ok(())
    }

    /// Registers a reader of this user, if there is room.
    fn register(&mut self, uid: u32, lossless: bool, now: Nanos) -> Result<Registration, (Status, String)> {
        if lossless && !self.access.lossless {
            let reason = "lossless readers are not allowed; start the writer with --lossless-readers (port: lossless=yes), or read \
                          with mode=lossy";
            return Err((Status::Permission, reason.into()));
        }
        if lossless && self.registrations.lossless() >= self.offer.lossless_readers() {
            return Err((Status::TooMany, self.offer.full()));
        }
        let mut room = READERS;
        if uid != 0 && uid != self.own {
            if now.since(self.second) >= Duration::from_secs(1) || now < self.second {
                self.second = now;
                self.attached.clear();
            }
            let attached = self.attached.entry(uid).or_default();
            if *attached == PACE {
                return Err((
                    Status::TooMany,
                    format!("user {uid} attaches too often: the limit is {PACE} times per second"),
                ));
            }
            *attached += 1;
            room -= RESERVED;
        }
        let full = || (Status::TooMany, format!("{room} readers are attached, which is the limit"));
        let registration = Registration::take(&self.registrations, room).ok_or_else(full)?;
        if lossless {
            registration.count_as_lossless();
        }
        Ok(registration)
    }

    fn refuse(&mut self, socket: BorrowedFd<'_>, status: Status, reason: &str) {
        self.refused += 1;
        // A reader that does not read its socket misses the reason.
        let _ = send(socket, &Welcome::refusal(status, reason).encode(), &[]);
    }
}

/// Returns the number of blocks that a lossy reader may hold.
fn quota(asked: u32, slots: u32) -> u32 {
    if asked == 0 { (slots / 4).max(2) } else { asked.clamp(2, slots) }
}

enum HelloRead {
    Nothing,
    Gone,
    Invalid(&'static str),
    Hello(Hello),
}

/// Reads a reader's first message. Descriptors sent with it are never received.
fn receive_hello(socket: BorrowedFd<'_>) -> HelloRead {
    let mut bytes = [0; HELLO + 1];
    let mut none = RecvAncillaryBuffer::default();
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut none, flags) {
        Err(Errno::AGAIN | Errno::INTR) => HelloRead::Nothing,
        Err(_) => HelloRead::Gone,
        Ok(message) if message.flags.contains(ReturnFlags::CTRUNC) => {
            HelloRead::Invalid("the first message of a reader must carry no descriptors")
        }
        Ok(message) if message.bytes == 0 => HelloRead::Gone,
        Ok(message) => match bytes.get(..message.bytes).and_then(Hello::decode) {
            Some(hello) => HelloRead::Hello(hello),
            None => HelloRead::Invalid("the first message of a reader must be a hello"),
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
