//! The acceptor: readers come in here, one message each way, and go on to the writer as clients.
//!
//! All that is slow happens here, in whatever thread runs [`Acceptor::step`]: memory, mapping, messages. Nothing here waits
//! for a reader: sockets do not block, a reader that says nothing for a second is sent away, and few may be at the
//! acceptor at a time. Anybody may knock, as often as he likes: a step deals with so many and no more, strangers are sent away as
//! soon as their credentials are known, and whoever has most at the acceptor makes room for the others.

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

/// How long a reader has to say hello.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a lossless reader for whom there is no room waits for another one to be noticed to have gone.
const SETTLING: Duration = Duration::from_millis(100);
/// Readers that may be at the acceptor at a time.
const WAITING: usize = 16;
/// Whoever comes in one step: what a step costs is bounded, however many there are.
const ACCEPTS: usize = 16;
/// Readers that a user may attach within a second, root and the user who shares apart: each costs memory.
const PACE: u32 = 100;
/// Registrations kept for root and the user who shares.
const RESERVED: u32 = 16;

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
pub struct Client {
    pub(crate) registration: Registration,
    pub(crate) socket: OwnedFd,
    pub(crate) control: Control,
    pub(crate) who: Who,
    pub(crate) lossless: bool,
    /// It decides.
    pub(crate) inline: bool,
    pub(crate) quota: u32,
}

/// Where readers come in.
#[derive(Debug)]
pub struct Acceptor {
    listener: Listener,
    access: Access,
    own: u32,
    /// Handed to readers.
    arena: OwnedFd,
    offer: Offer,
    generation: u64,
    registrations: Arc<Registrations>,
    waiting: Vec<Waiting>,
    /// Descriptors or memory have run out: leave the socket alone for a while.
    exhausted: bool,
    /// More came than one step deals with.
    crowded: bool,
    /// Since when readers of each user are counted, and how many came.
    second: Nanos,
    came: HashMap<u32, u32>,
    refused: u64,
}

/// A reader that has not said hello, or waits for a place that another one is about to leave.
#[derive(Debug)]
struct Waiting {
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
            came: HashMap::new(),
            refused: 0,
        }
    }

    /// Waits until somebody is at the acceptor, at most for `limit`.
    pub fn wait(&self, limit: Duration) {
        let all = std::iter::once(self.listener.socket.as_fd())
            .filter(|_| !self.exhausted)
            .chain(self.waiting.iter().map(|waiting| waiting.socket.as_fd()));
        let mut polled: Vec<PollFd<'_>> = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        // An interrupted wait is as good as a finished one: the caller steps in any case.
        let _ = poll(&mut polled, Some(&limit));
    }

    /// Does what there is to do at `now`, without waiting, for so many and no more; returns those who were let in.
    pub fn step(&mut self, now: Nanos) -> Vec<Client> {
        // Those who have waited too long make room first.
        let mut clients = self.hear_all(now);
        self.accept(now);
        clients.extend(self.hear_all(now));
        clients
    }

    /// Whether the writer has ended: those who come now are told so.
    pub fn is_over(&self) -> bool {
        self.registrations.have_ended()
    }

    /// Whether more came than the last step has dealt with: a caller that has anything else to do may let them wait a
    /// little, so that whoever knocks does not decide what this costs.
    pub fn is_crowded(&self) -> bool {
        self.crowded
    }

    /// Readers that were sent away so far, or went by themselves before they had said hello.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Lets in, or sends away, whoever has said something or has waited too long.
    fn hear_all(&mut self, now: Nanos) -> Vec<Client> {
        let mut clients = Vec::new();
        for mut one in std::mem::take(&mut self.waiting) {
            match one.hello.take().map_or_else(|| hear(one.socket.as_fd()), Heard::Hello) {
                Heard::Hello(hello) if self.may_find_room(&one, &hello, now) => {
                    self.waiting.push(Waiting { hello: Some(hello), ..one });
                }
                Heard::Nothing if now.since(one.since) < PATIENCE && now >= one.since => self.waiting.push(one),
                Heard::Nothing | Heard::Gone => self.refused += 1,
                Heard::Noise(reason) => self.refuse(one.socket.as_fd(), Status::Malformed, reason),
                Heard::Hello(hello) => match self.let_in(&one, &hello, now) {
                    Ok((registration, control)) => {
                        let who = Who { name: hello.name, pid: one.peer.pid, uid: one.peer.uid };
                        let quota = quota(hello.quota, self.offer.slots);
                        let Waiting { socket, .. } = one;
                        let Hello { lossless, inline, .. } = hello;
                        clients.push(Client { registration, socket, control, who, lossless, inline, quota });
                    }
                    Err((status, reason)) => self.refuse(one.socket.as_fd(), status, &reason),
                },
            }
        }
        clients
    }

    /// Whether there is no room for this lossless reader, but may be in a moment: that another one has gone shows a little
    /// later than that the next one comes, where it is started again.
    fn may_find_room(&self, one: &Waiting, hello: &Hello, now: Nanos) -> bool {
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

    /// One who has knocked: nothing is done for strangers but to tell them so.
    fn receive(&mut self, socket: OwnedFd, now: Nanos) {
        let Ok(peer) = Peer::of(socket.as_fd()) else { return self.refused += 1 };
        if !self.access.allows(&peer, self.own, socket.as_fd()) {
            let reason = format!("user {} may not attach; the owner and root may", peer.uid);
            return self.refuse(socket.as_fd(), Status::Permission, &reason);
        }
        if self.waiting.len() == WAITING {
            self.make_room();
        }
        self.waiting.push(Waiting { socket, peer, since: now, hello: None });
    }

    /// Sends away who has waited longest, of the user who has most at the acceptor.
    fn make_room(&mut self) {
        let of = |uid| self.waiting.iter().filter(|one| one.peer.uid == uid).count();
        let most = self.waiting.iter().map(|one| of(one.peer.uid)).max().unwrap_or_default();
        if let Some(at) = self.waiting.iter().position(|one| of(one.peer.uid) == most) {
            self.waiting.remove(at);
            self.refused += 1;
        }
    }

    /// Makes what a reader needs and hands it over.
    fn let_in(
        &mut self,
        one: &Waiting,
        hello: &Hello,
        now: Nanos,
    ) -> Result<(Registration, Control), (Status, String)> {
        if hello.major != MAJOR {
            let reason = format!("the ring has version {MAJOR} of the format, the reader knows {}", hello.major);
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
            .map_err(|error| (Status::NoMemory, format!("no memory for another reader: {error}")))?;
        control.set_lossless(hello.lossless);
        let quota = quota(hello.quota, self.offer.slots);
        let welcome = Welcome::to(registration.number, quota, self.generation, &self.offer, hello.inline);
        send(one.socket.as_fd(), &welcome.encode(), &[self.arena.as_fd(), fd.as_fd()])
            .map_err(|error| (Status::NoMemory, format!("the ring cannot be handed over: {error}")))?;
        Ok((registration, control))
    }

    /// Whether this reader may decide.
    fn check_engine(&self, hello: &Hello) -> Result<(), (Status, String)> {
        let refusal = |status, reason: String| Err((status, reason));
        let Some(name) = &self.access.engine else {
            let reason = "no verdicts are wanted here: linerate inline shares rings that an engine decides on";
            return refusal(Status::Permission, reason.into());
        };
        if !name.is_empty() && *name != hello.name {
            let reason = format!(
                "the engine that decides here is called {name}, not {:?}: it says so by its name (inspect --name {name})",
                hello.name
            );
            return refusal(Status::Permission, reason);
        }
        if hello.lossless {
            return refusal(Status::Permission, "an engine is not waited for: the policy says what happens".into());
        }
        if self.registrations.is_decided() {
            return refusal(Status::TooMany, "another engine decides already".into());
        }
        if self.offer.verdicts.is_some_and(|shape| shape.deciding_bytes() > MOST_DECIDING) {
            let reason = format!("verdicts on so many blocks take more than {} MiB", MOST_DECIDING >> 20);
            return refusal(Status::NoMemory, reason);
        }
        Ok(())
    }

    /// A number for a reader of this user, if there is one for it.
    fn register(&mut self, uid: u32, lossless: bool, now: Nanos) -> Result<Registration, (Status, String)> {
        if lossless && !self.access.lossless {
            let reason = "it waits for no reader: start it with --lossless-readers (as a port: lossless=yes), or read \
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
                self.came.clear();
            }
            let came = self.came.entry(uid).or_default();
            if *came == PACE {
                return Err((Status::TooMany, format!("user {uid} attaches too often: {PACE} times a second at most")));
            }
            *came += 1;
            room -= RESERVED;
        }
        let full = || (Status::TooMany, format!("{room} readers are attached, the most there can be"));
        let registration = Registration::take(&self.registrations, room).ok_or_else(full)?;
        if lossless {
            registration.count_as_lossless();
        }
        Ok(registration)
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
