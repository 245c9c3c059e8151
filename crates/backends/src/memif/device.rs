//! One end of one interface: the socket, the connection that stands, and who of this process uses it.
//!
//! There is no thread for it. Whoever receives or sends looks after the connection about once a millisecond ([`Device::step`]), and
//! a look does so much and no more, whoever knocks. A queue keeps what it reads of until it has read it, so memory goes only
//! when nobody looks into it any more.

mod opened;

pub(super) use self::opened::Claim;

use super::lobby::Lobby;
use super::message::Message;
use super::session::{Client, Making, Next, Server, Session, UNSEALED};
use super::socket::{Heard, connected, hear, part, say};
use super::wish::Wish;
use crate::sys::peer;
use linerate_burst::Ledger;
use linerate_port::news;
use rustix::net::{SocketFlags, accept_with};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How long a client waits before it tries again.
const RETRY: Duration = Duration::from_millis(250);
/// How long it may take to make a connection: whoever says nothing makes room for others.
pub(super) const MAKING: Duration = Duration::from_secs(5);
/// The most messages taken in one look, and the most clients.
const MESSAGES: usize = 512;
pub(super) const CLIENTS: usize = 4;
/// News of one end: peers may come and go as fast as they like.
pub(super) const NEWS: u32 = 100;

/// One end of one interface.
#[derive(Debug)]
pub(super) struct Device {
    pub wish: Wish,
    /// Of a server: where clients come to.
    lobby: Option<Arc<Lobby>>,
    /// Never readable, for those who wait while there is nothing to wait on; and always.
    never: OwnedFd,
    ready: OwnedFd,
    /// Who it is; the process may become somebody else.
    own: u32,
    /// Goes up when a connection stands, and when it ends.
    changes: AtomicU64,
    control: Mutex<Control>,
    /// Whether somebody receives, and whether somebody sends.
    used: [AtomicBool; 2],
}

#[derive(Debug)]
struct Control {
    state: State,
    /// When a client tries again.
    next: Instant,
    /// Whether it ever stood.
    has_stood: bool,
    /// What a server has refused this client with, before it ever stood: it will do so again.
    refusal: Option<String>,
    /// How often which reason ended a connection, or kept one from being made.
    reasons: BTreeMap<&'static str, u64>,
    /// Whether a client has said that it finds nobody, since it last found somebody.
    has_missed: bool,
    /// What was said so far.
    news: u32,
}

#[derive(Debug)]
enum State {
    Apart,
    Making { socket: OwnedFd, making: Making, since: Instant, first: Option<First> },
    Standing { socket: OwnedFd, session: Arc<Session> },
}

/// A message that was taken before it was known whom it is for.
pub(super) type First = (Message, Vec<OwnedFd>);

/// Somebody who has come, and was told hello.
#[derive(Debug)]
pub(super) struct Guest {
    pub socket: OwnedFd,
    pub since: Instant,
    /// What it has said, where that was taken.
    pub first: Option<First>,
}

/// What became of a guest.
pub(super) enum Admitted {
    Taken,
    /// Somebody looks after the connection at this moment.
    Later(Guest),
    /// Somebody else is at the other end.
    Connected(Guest),
}

/// Why a connection ends.
enum Ending {
    /// The other end has gone.
    Gone,
    /// It says why.
    Told(String),
    /// It has broken a rule.
    Broken(&'static str),
}

impl Device {
    /// The folder that the file of its socket is in.
    pub(super) fn folder(&self) -> Option<OwnedFd> {
        self.lobby.as_ref()?.listener.folder()
    }

    /// Another number than before says that a connection stands, or has ended.
    #[inline]
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// The connection that stands.
    pub(super) fn session(&self) -> Option<Arc<Session>> {
        match &self.control().state {
            State::Standing { session, .. } => Some(Arc::clone(session)),
            _ => None,
        }
    }

    /// Whether it ever stood; and what a server refuses this client with.
    pub(super) fn history(&self) -> (bool, Option<String>) {
        let control = self.control();
        (control.has_stood, control.refusal.clone())
    }

    /// What to wait on while no connection stands.
    pub(super) fn awaited(&self) -> BorrowedFd<'_> {
        // Messages are looked for every millisecond; nobody is held up by a client that says nothing.
        self.lobby.as_ref().map_or(self.never.as_fd(), |lobby| lobby.listener.socket.as_fd())
    }

    /// What is readable already.
    pub(super) fn ready(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Adds how often which reason ended a connection; how many there were.
    pub(super) fn reasons(&self, subject: &str, ledger: &mut Ledger) -> u64 {
        let control = self.control();
        control
            .reasons
            .iter()
            .for_each(|(reason, times)| ledger.add_detail(subject, &format!("refused: {reason}"), *times));
        let own: u64 = control.reasons.values().sum();
        drop(control);
        own + self.lobby.as_ref().map_or(0, |lobby| lobby.reasons(self.wish.id, subject, ledger))
    }

    /// Looks after the connection, unless somebody else does at this moment.
    pub(super) fn step(&self) {
        self.step_own();
        // Those who wait are handed on to others: nobody does that who holds a connection.
        self.lobby.iter().filter(|lobby| lobby.is_shared()).for_each(|lobby| lobby.step());
    }

    fn step_own(&self) {
        let Some(mut control) = self.try_control() else { return };
        let control = &mut *control;
        // Whoever has gone makes room for who comes.
        self.attend(control);
        self.accept(control);
        if matches!(control.state, State::Apart) && self.lobby.is_none() && Instant::now() >= control.next {
            self.connect(control);
        }
    }

    /// Takes what the other end has said, and ends the connection where it is over.
    fn attend(&self, control: &mut Control) {
        let Some(ending) = self.listen(control) else { return };
        let was = std::mem::replace(&mut control.state, State::Apart);
        control.next = Instant::now() + RETRY;
        let (State::Making { socket, .. } | State::Standing { socket, .. }) = &was else { return };
        let has_stood = matches!(was, State::Standing { .. });
        match ending {
            Ending::Gone => self.parted(control, has_stood, ""),
            // One that has stood ends so in order.
            Ending::Told(reason) if has_stood => self.parted(control, has_stood, &reason),
            Ending::Told(reason) => {
                *control.reasons.entry("the other end said no").or_default() += 1;
                self.give_up(control, reason);
            }
            Ending::Broken(reason) => {
                part(socket.as_fd(), reason);
                *control.reasons.entry(reason).or_default() += 1;
                self.parted(control, has_stood, reason);
                if !has_stood {
                    self.tell(control, &format!("a peer was sent away: {}", at_length(reason)));
                }
            }
        }
        if has_stood {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// The other end of a connection that stood has gone.
    fn parted(&self, control: &mut Control, has_stood: bool, reason: &str) {
        if has_stood {
            let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
            let next = if self.wish.is_server { "the next one may come" } else { "it is looked for again" };
            self.tell(control, &format!("the other end has gone{reason}: {next}"));
        }
    }

    /// Says what whoever watches should know at once.
    fn tell(&self, control: &mut Control, what: &str) {
        let rest = if control.news + 1 == NEWS { "; no more is said of it" } else { "" };
        if control.news < NEWS {
            news::say(format!("{}: {what}{rest}", self.wish.name));
        }
        control.news = control.news.saturating_add(1);
    }

    /// A server that never let this client in will not do so later.
    fn give_up(&self, control: &mut Control, reason: String) {
        if !control.has_stood && self.lobby.is_none() {
            control.refusal = Some(reason);
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Looks at who wants to connect.
    fn accept(&self, control: &mut Control) {
        let Some(lobby) = self.lobby.as_ref().filter(|lobby| !lobby.is_shared()) else { return };
        for _ in 0..CLIENTS {
            let Ok(socket) = accept_with(&lobby.listener.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) else {
                return;
            };
            let refusal = if !self.is_welcome(socket.as_fd()) {
                Some(STRANGER)
            } else if !matches!(control.state, State::Apart) {
                Some("already connected")
            } else {
                None
            };
            if let Some(reason) = refusal {
                part(socket.as_fd(), reason);
                *control.reasons.entry(reason).or_default() += 1;
                self.tell(control, &format!("a peer was sent away: {reason}"));
            } else if say(socket.as_fd(), &Server::hello(&self.wish), None).is_ok() {
                let making = Making::Server(Server::default());
                control.state = State::Making { socket, making, since: Instant::now(), first: None };
            }
        }
    }

    /// Somebody has come who is for this interface.
    pub(super) fn admit(&self, guest: Guest) -> Admitted {
        let Some(mut control) = self.try_control() else { return Admitted::Later(guest) };
        if !matches!(control.state, State::Apart) {
            return Admitted::Connected(guest);
        }
        let Guest { socket, since, first } = guest;
        control.state = State::Making { socket, making: Making::Server(Server::default()), since, first };
        Admitted::Taken
    }

    fn connect(&self, control: &mut Control) {
        control.next = Instant::now() + RETRY;
        match connected(&self.wish) {
            Ok(None) if !std::mem::replace(&mut control.has_missed, true) => {
                self.tell(
                    control,
                    "nobody listens there: it is tried again four times a second, nothing goes meanwhile",
                );
            }
            Ok(None) => {}
            Ok(Some(socket)) if self.is_welcome(socket.as_fd()) => {
                let making = Making::Client(Box::new(Client::new()));
                control.state = State::Making { socket, making, since: Instant::now(), first: None };
            }
            Ok(Some(_)) => {
                *control.reasons.entry(STRANGER).or_default() += 1;
                self.give_up(control, format!("it is one {STRANGER}"));
            }
            Err(error) => {
                *control.reasons.entry("its socket cannot be connected to").or_default() += 1;
                self.give_up(control, error.to_string());
            }
        }
    }

    /// Takes what the other end has said; why the connection ends, if it does.
    fn listen(&self, control: &mut Control) -> Option<Ending> {
        for _ in 0..MESSAGES {
            let Control { state, .. } = control;
            let (socket, making, first) = match state {
                State::Apart => return None,
                State::Making { since, .. } if since.elapsed() > MAKING => {
                    return Some(Ending::Broken("took too long"));
                }
                State::Making { socket, making, first, .. } => (&*socket, Some(making), first.take()),
                State::Standing { session, .. } if session.broken().is_some() => {
                    return session.broken().map(Ending::Broken);
                }
                State::Standing { socket, .. } => (&*socket, None, None),
            };
            let heard = first.map_or_else(|| hear(socket.as_fd()), |(message, fds)| Heard::Message(message, fds));
            let (message, fds) = match heard {
                Heard::Nothing => return None,
                Heard::Gone => return Some(Ending::Gone),
                Heard::Noise(reason) => return Some(Ending::Broken(reason)),
                Heard::Message(Message::Disconnect { text, .. }, _) => return Some(Ending::Told(text)),
                Heard::Message(message, fds) => (message, fds),
            };
            let Some(making) = making else { return Some(Ending::Broken("unexpected message")) };
            let (answer, session) = match making.take(message, fds, &self.wish) {
                Ok(Next::Say(answer, fd)) => (Some((answer, fd)), None),
                Ok(Next::Stand(answer, session)) => (answer.map(|answer| (answer, None)), Some(session)),
                Err(reason) => return Some(Ending::Broken(reason)),
            };
            if let Some((answer, fd)) = answer
                && say(socket.as_fd(), &answer, fd.as_ref().map(|fd| fd.as_fd())).is_err()
            {
                return Some(Ending::Gone);
            }
            let Some(session) = session else { continue };
            self.stand(control, *session);
        }
        None
    }

    /// The connection stands.
    fn stand(&self, control: &mut Control, session: Session) {
        let State::Making { socket, .. } = std::mem::replace(&mut control.state, State::Apart) else { return };
        let is_awaited = std::mem::take(&mut control.has_missed) || control.has_stood;
        if is_awaited || self.wish.is_server {
            let peer = if session.peer.is_empty() { "a peer without a name" } else { &session.peer };
            self.tell(control, &format!("connected with {peer}"));
        }
        (control.has_stood, control.refusal) = (true, None);
        control.state = State::Standing { socket, session: Arc::new(session) };
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Whether who is at the other end may be there.
    pub(super) fn is_welcome(&self, socket: BorrowedFd<'_>) -> bool {
        peer::user(socket).is_some_and(|user| user == 0 || user == self.own || self.wish.users.contains(&user))
    }

    /// None if somebody else looks after the connection at this moment.
    fn try_control(&self) -> Option<MutexGuard<'_, Control>> {
        match self.control.try_lock() {
            Ok(control) => Some(control),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn control(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if let State::Making { socket, .. } | State::Standing { socket, .. } = &self.control().state {
            part(socket.as_fd(), "the port was closed");
        }
    }
}

/// A reason with what there was no room for in the message to the other end.
fn at_length(reason: &'static str) -> &'static str {
    if reason == UNSEALED { UNSEALED_AT_LENGTH } else { reason }
}

const UNSEALED_AT_LENGTH: &str = "it hands over memory that it could cut off while it is read (no memfd with F_SEAL_SHRINK in ordinary \
     pages), as VPP and DPDK do without a copy: create its interface with no-zero-copy (VPP) or zero-copy=no (DPDK), or open this port \
     with trust=yes";
pub(super) const STRANGER: &str = "of a user who is not let in: say users=";
