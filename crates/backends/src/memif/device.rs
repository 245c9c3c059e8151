//! One end of one interface: the socket, the current connection, and the ports of this process that use it.
//!
//! No thread serves it. The sending and receiving queues service the connection about once a millisecond
//! ([`Device::step`]), with a bounded amount of work a call. A queue holds a reference to the memory that it reads, so
//! memory is unmapped only after the last reader.

mod claim;

pub(super) use self::claim::Claim;

use super::config::MemifConfig;
use super::message::Message;
use super::session::{Client, Handshake, NextStep, Server, Session, UNSEALED};
use super::shared_listener::SharedListener;
use super::socket::{ReadOutcome, connected, read_message, send_disconnect, send_message};
use crate::sys::peer;
use linerate_burst::Ledger;
use linerate_port::events;
use rustix::net::{SocketFlags, accept_with};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// Interval between connection attempts of a client.
const RETRY: Duration = Duration::from_millis(250);
/// Handshake timeout: a silent peer must not block others.
pub(super) const MAKING: Duration = Duration::from_secs(5);
/// Maximum number of messages, and of clients, per call of [`Device::step`].
const MESSAGES: usize = 512;
pub(super) const CLIENTS: usize = 4;
/// Maximum number of messages reported per end: peers may connect and disconnect as fast as they like.
pub(super) const NEWS: u32 = 100;

#[derive(Debug)]
pub(super) struct Device {
    pub config: MemifConfig,
    /// Listening socket of a server.
    listener: Option<Arc<SharedListener>>,
    /// Never readable, to wait on without a connection; and always readable.
    never: OwnedFd,
    ready: OwnedFd,
    /// User of this process at open; it may change later.
    own: u32,
    /// Incremented when a connection is established, and when it ends.
    changes: AtomicU64,
    control: Mutex<Control>,
    /// Directions in use: receiving, sending.
    used: [AtomicBool; 2],
}

#[derive(Debug)]
struct Control {
    state: State,
    /// Time of a client's next attempt.
    next: Instant,
    /// True if a connection was ever established.
    has_stood: bool,
    /// Reason by which a server refused this client before the first connection: a retry would fail again.
    refusal: Option<String>,
    /// Times that each reason ended a connection or a handshake.
    reasons: BTreeMap<&'static str, u64>,
    /// True if the client has reported that no server listens, since it was last connected.
    has_missed: bool,
    /// Messages reported so far.
    news: u32,
}

#[derive(Debug)]
enum State {
    Disconnected,
    Handshake { socket: OwnedFd, making: Handshake, since: Instant, first: Option<ReceivedMessage> },
    Established { socket: OwnedFd, session: Arc<Session> },
}

/// A message received before its interface was known.
pub(super) type ReceivedMessage = (Message, Vec<OwnedFd>);

/// A pending connection: accepted, HELLO sent.
#[derive(Debug)]
pub(super) struct PendingConnection {
    pub socket: OwnedFd,
    pub since: Instant,
    /// Its first message, if received.
    pub first: Option<ReceivedMessage>,
}

/// Outcome of handing a pending connection to an interface.
pub(super) enum Admission {
    Taken,
    /// The connection is being serviced by another thread.
    Later(PendingConnection),
    /// The interface has another peer.
    Connected(PendingConnection),
}

/// Reason why a connection ends.
enum CloseReason {
    /// The peer has closed the socket.
    Gone,
    /// The peer sent DISCONNECT with this reason.
    Disconnect(String),
    /// The peer has broken a rule of the protocol.
    Broken(&'static str),
}

impl Device {
    /// Returns the folder of the socket's file.
    pub(super) fn folder(&self) -> Option<OwnedFd> {
        self.listener.as_ref()?.listener.folder()
    }

    /// Returns a number that changes when a connection is established or ends.
    #[inline]
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Returns the established connection.
    pub(super) fn session(&self) -> Option<Arc<Session>> {
        match &self.control().state {
            State::Established { session, .. } => Some(Arc::clone(session)),
            _ => None,
        }
    }

    /// Returns whether a connection was ever established, and why a server refuses this client.
    pub(super) fn history(&self) -> (bool, Option<String>) {
        let control = self.control();
        (control.has_stood, control.refusal.clone())
    }

    /// Returns the descriptor to wait on without a connection.
    pub(super) fn awaited(&self) -> BorrowedFd<'_> {
        // Messages are read every millisecond; a silent client delays nothing.
        self.listener.as_ref().map_or(self.never.as_fd(), |listener| listener.listener.socket.as_fd())
    }

    /// Returns a descriptor that is always readable.
    pub(super) fn ready(&self) -> BorrowedFd<'_> {
        self.ready.as_fd()
    }

    /// Adds the number of times that each reason ended a connection; returns their sum.
    pub(super) fn reasons(&self, subject: &str, ledger: &mut Ledger) -> u64 {
        let control = self.control();
        control
            .reasons
            .iter()
            .for_each(|(reason, times)| ledger.add_detail(subject, &format!("refused: {reason}"), *times));
        let own: u64 = control.reasons.values().sum();
        drop(control);
        own + self.listener.as_ref().map_or(0, |listener| listener.reasons(self.config.id, subject, ledger))
    }

    /// Services the connection, unless another thread does.
    pub(super) fn step(&self) {
        self.step_own();
        // Pending connections are handed to other interfaces: call this without a lock on a connection.
        self.listener.iter().filter(|listener| listener.is_shared()).for_each(|listener| listener.step());
    }

    fn step_own(&self) {
        let Some(mut control) = self.try_control() else { return };
        let control = &mut *control;
        // Close first: it frees the interface for a new peer.
        self.read_messages(control);
        self.accept(control);
        if matches!(control.state, State::Disconnected) && self.listener.is_none() && Instant::now() >= control.next {
            self.connect(control);
        }
    }

    /// Reads messages of the peer, and closes the connection if it has ended.
    fn read_messages(&self, control: &mut Control) {
        let Some(ending) = self.listen(control) else { return };
        let was = std::mem::replace(&mut control.state, State::Disconnected);
        control.next = Instant::now() + RETRY;
        let (State::Handshake { socket, .. } | State::Established { socket, .. }) = &was else { return };
        let has_stood = matches!(was, State::Established { .. });
        match ending {
            CloseReason::Gone => self.report_disconnect(control, has_stood, ""),
            // An established connection ends this way in order.
            CloseReason::Disconnect(reason) if has_stood => self.report_disconnect(control, has_stood, &reason),
            CloseReason::Disconnect(reason) => {
                *control.reasons.entry("refused by the peer").or_default() += 1;
                self.stop_retrying(control, reason);
            }
            CloseReason::Broken(reason) => {
                send_disconnect(socket.as_fd(), reason);
                *control.reasons.entry(reason).or_default() += 1;
                self.report_disconnect(control, has_stood, reason);
                if !has_stood {
                    self.report(control, &format!("peer rejected: {}", at_length(reason)));
                }
            }
        }
        if has_stood {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Reports the end of an established connection.
    fn report_disconnect(&self, control: &mut Control, has_stood: bool, reason: &str) {
        if has_stood {
            let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
            let next = if self.config.is_server { "waiting for the next client" } else { "reconnecting" };
            self.report(control, &format!("peer disconnected{reason}: {next}"));
        }
    }

    /// Reports an event at once, up to [`NEWS`] of them.
    fn report(&self, control: &mut Control, what: &str) {
        let rest = if control.news + 1 == NEWS { "; further messages are suppressed" } else { "" };
        if control.news < NEWS {
            events::report(format!("{}: {what}{rest}", self.config.name));
        }
        control.news = control.news.saturating_add(1);
    }

    /// Stops retrying before the first connection: the server would refuse again.
    fn stop_retrying(&self, control: &mut Control, reason: String) {
        if !control.has_stood && self.listener.is_none() {
            control.refusal = Some(reason);
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Accepts clients.
    fn accept(&self, control: &mut Control) {
        let Some(listener) = self.listener.as_ref().filter(|listener| !listener.is_shared()) else { return };
        for _ in 0..CLIENTS {
            let Ok(socket) = accept_with(&listener.listener.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
            else {
                return;
            };
            let refusal = if !self.is_allowed(socket.as_fd()) {
                Some(USER_DENIED)
            } else if !matches!(control.state, State::Disconnected) {
                Some("already connected")
            } else {
                None
            };
            if let Some(reason) = refusal {
                send_disconnect(socket.as_fd(), reason);
                *control.reasons.entry(reason).or_default() += 1;
                self.report(control, &format!("peer rejected: {reason}"));
            } else if send_message(socket.as_fd(), &Server::hello(&self.config), None).is_ok() {
                let making = Handshake::Server(Server::default());
                control.state = State::Handshake { socket, making, since: Instant::now(), first: None };
            }
        }
    }

    /// Takes a pending connection whose first message names this interface.
    pub(super) fn admit(&self, pending: PendingConnection) -> Admission {
        let Some(mut control) = self.try_control() else { return Admission::Later(pending) };
        if !matches!(control.state, State::Disconnected) {
            return Admission::Connected(pending);
        }
        let PendingConnection { socket, since, first } = pending;
        control.state = State::Handshake { socket, making: Handshake::Server(Server::default()), since, first };
        Admission::Taken
    }

    fn connect(&self, control: &mut Control) {
        control.next = Instant::now() + RETRY;
        match connected(&self.config) {
            Ok(None) if !std::mem::replace(&mut control.has_missed, true) => {
                self.report(control, "no server is listening: retrying 4 times a second; no traffic until then");
            }
            Ok(None) => {}
            Ok(Some(socket)) if self.is_allowed(socket.as_fd()) => {
                let making = Handshake::Client(Box::new(Client::new()));
                control.state = State::Handshake { socket, making, since: Instant::now(), first: None };
            }
            Ok(Some(_)) => {
                *control.reasons.entry(USER_DENIED).or_default() += 1;
                self.stop_retrying(control, format!("peer rejected: {USER_DENIED}"));
            }
            Err(error) => {
                *control.reasons.entry("cannot connect to its socket").or_default() += 1;
                self.stop_retrying(control, error.to_string());
            }
        }
    }

    /// Handles messages of the peer; returns why the connection ends, if it does.
    fn listen(&self, control: &mut Control) -> Option<CloseReason> {
        for _ in 0..MESSAGES {
            let Control { state, .. } = control;
            let (socket, making, first) = match state {
                State::Disconnected => return None,
                State::Handshake { since, .. } if since.elapsed() > MAKING => {
                    return Some(CloseReason::Broken("took too long"));
                }
                State::Handshake { socket, making, first, .. } => (&*socket, Some(making), first.take()),
                State::Established { session, .. } if session.broken().is_some() => {
                    return session.broken().map(CloseReason::Broken);
                }
                State::Established { socket, .. } => (&*socket, None, None),
            };
            let received =
                first.map_or_else(|| read_message(socket.as_fd()), |(message, fds)| ReadOutcome::Message(message, fds));
            let (message, fds) = match received {
                ReadOutcome::Nothing => return None,
                ReadOutcome::Gone => return Some(CloseReason::Gone),
                ReadOutcome::Noise(reason) => return Some(CloseReason::Broken(reason)),
                ReadOutcome::Message(Message::Disconnect { text, .. }, _) => {
                    return Some(CloseReason::Disconnect(text));
                }
                ReadOutcome::Message(message, fds) => (message, fds),
            };
            let Some(making) = making else { return Some(CloseReason::Broken("unexpected message")) };
            let (answer, session) = match making.take(message, fds, &self.config) {
                Ok(NextStep::Respond(answer, fd)) => (Some((answer, fd)), None),
                Ok(NextStep::Establish(answer, session)) => (answer.map(|answer| (answer, None)), Some(session)),
                Err(reason) => return Some(CloseReason::Broken(reason)),
            };
            if let Some((answer, fd)) = answer
                && send_message(socket.as_fd(), &answer, fd.as_ref().map(|fd| fd.as_fd())).is_err()
            {
                return Some(CloseReason::Gone);
            }
            let Some(session) = session else { continue };
            self.stand(control, *session);
        }
        None
    }

    /// Establishes the connection.
    fn stand(&self, control: &mut Control, session: Session) {
        let State::Handshake { socket, .. } = std::mem::replace(&mut control.state, State::Disconnected) else {
            return;
        };
        let is_awaited = std::mem::take(&mut control.has_missed) || control.has_stood;
        if is_awaited || self.config.is_server {
            let peer = if session.peer.is_empty() { "an unnamed peer" } else { &session.peer };
            self.report(control, &format!("connected with {peer}"));
        }
        (control.has_stood, control.refusal) = (true, None);
        control.state = State::Established { socket, session: Arc::new(session) };
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Returns whether the user of the peer is allowed.
    pub(super) fn is_allowed(&self, socket: BorrowedFd<'_>) -> bool {
        peer::user(socket).is_some_and(|user| user == 0 || user == self.own || self.config.users.contains(&user))
    }

    /// Locks the state; `None` if another thread services the connection.
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
        if let State::Handshake { socket, .. } | State::Established { socket, .. } = &self.control().state {
            send_disconnect(socket.as_fd(), "the port was closed");
        }
    }
}

/// Returns a reason in full, where the message to the peer has a shorter one.
fn at_length(reason: &'static str) -> &'static str {
    if reason == UNSEALED { UNSEALED_AT_LENGTH } else { reason }
}

const UNSEALED_AT_LENGTH: &str = "its memory could be truncated while it is read (not a memfd with F_SEAL_SHRINK in \
     ordinary pages), as VPP and DPDK do without a copy: create its interface with no-zero-copy (VPP) or zero-copy=no \
     (DPDK), or open this port with trust=yes";
pub(super) const USER_DENIED: &str = "its user is not allowed; set users=";
