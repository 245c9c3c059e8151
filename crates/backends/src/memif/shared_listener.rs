//! The listening socket of one or more interfaces, and connections that have not named their interface yet.
//!
//! A name has one listener in a process, for any number of interfaces. With one interface, its [`Device`] accepts
//! clients itself. With several, a connection is pending here until its first message (INIT) names an id, and is then
//! handed to that interface; silent connections delay nothing. Each port of the interfaces services it.

use super::config::MemifConfig;
use super::device::{Admission, CLIENTS, Device, MAKING, NEWS, PendingConnection, USER_DENIED};
use super::message::Message;
use super::session::Server;
use super::socket::{Listener, ReadOutcome, read_message, send_disconnect, send_message};
use linerate_burst::Ledger;
use linerate_port::events;
use rustix::net::{SocketFlags, accept_with};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Instant;

/// Maximum number of pending connections. Above it the oldest is closed: real clients send INIT at once.
const MOST_PENDING: usize = 16;

/// The listening socket of some interfaces.
#[derive(Debug)]
pub(super) struct SharedListener {
    pub listener: Listener,
    /// Allowed users and rings, the same for all interfaces, and the id of the first one.
    config: MemifConfig,
    /// True if it ever had more than one interface.
    is_shared: AtomicBool,
    inside: Mutex<ListenerState>,
}

#[derive(Debug, Default)]
struct ListenerState {
    devices: Vec<Weak<Device>>,
    pending: VecDeque<PendingConnection>,
    /// Times that each reason rejected a peer.
    reasons: BTreeMap<&'static str, u64>,
    news: u32,
}

impl SharedListener {
    pub(super) fn new(config: &MemifConfig) -> Result<SharedListener, String> {
        let (is_shared, inside) = Default::default();
        Ok(SharedListener { listener: Listener::new(config)?, config: config.clone(), is_shared, inside })
    }

    /// Adds an interface.
    pub(super) fn add(&self, device: &Arc<Device>) {
        let mut inside = self.lock();
        inside.devices.retain(|device| device.strong_count() > 0);
        inside.devices.push(Arc::downgrade(device));
        self.is_shared.fetch_or(inside.devices.len() > 1, Ordering::Relaxed);
    }

    /// Returns whether a client must name its interface before it is handed on.
    pub(super) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// Services pending connections, unless another thread does.
    pub(super) fn step(&self) {
        let mut inside = match self.inside.try_lock() {
            Ok(inside) => inside,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let inside = &mut *inside;
        let devices: Vec<Arc<Device>> = inside.devices.iter().filter_map(Weak::upgrade).collect();
        self.accept(inside, &devices);
        for pending in std::mem::take(&mut inside.pending) {
            let (pending, reason) = match read_first_message(pending, &devices) {
                PendingOutcome::Gone => continue,
                PendingOutcome::Waits(pending) => {
                    inside.pending.push_back(pending);
                    continue;
                }
                PendingOutcome::Refused(pending, reason) => (pending, reason),
            };
            self.refuse(inside, &pending, reason);
        }
    }

    fn accept(&self, inside: &mut ListenerState, devices: &[Arc<Device>]) {
        for _ in 0..CLIENTS {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let Ok(socket) = accept_with(&self.listener.socket, flags) else { return };
            let pending = PendingConnection { socket, since: Instant::now(), first: None };
            if !devices.iter().any(|device| device.is_allowed(pending.socket.as_fd())) {
                self.refuse(inside, &pending, USER_DENIED);
            } else if send_message(pending.socket.as_fd(), &Server::hello(&self.config), None).is_ok() {
                inside.pending.push_back(pending);
            }
            if inside.pending.len() > MOST_PENDING
                && let Some(first) = inside.pending.pop_front()
            {
                self.refuse(inside, &first, "no INIT before newer connections arrived");
            }
        }
    }

    fn refuse(&self, inside: &mut ListenerState, pending: &PendingConnection, reason: &'static str) {
        send_disconnect(pending.socket.as_fd(), reason);
        *inside.reasons.entry(reason).or_default() += 1;
        let rest = if inside.news + 1 == NEWS { "; further messages are suppressed" } else { "" };
        if inside.news < NEWS {
            events::report(format!("{}: peer rejected: {reason}{rest}", self.config.name));
        }
        inside.news = inside.news.saturating_add(1);
    }

    /// Adds the number of times that each reason rejected a peer, to the account of the first interface; returns their
    /// sum.
    pub(super) fn reasons(&self, id: u32, subject: &str, ledger: &mut Ledger) -> u64 {
        if id != self.config.id {
            return 0;
        }
        let reasons = &self.lock().reasons;
        for (reason, times) in reasons {
            ledger.add_detail(subject, &format!("refused: {reason}"), *times);
        }
        reasons.values().sum()
    }

    fn lock(&self) -> MutexGuard<'_, ListenerState> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for SharedListener {
    fn drop(&mut self) {
        self.lock().pending.iter().for_each(|pending| send_disconnect(pending.socket.as_fd(), "the port was closed"));
    }
}

enum PendingOutcome {
    Gone,
    Waits(PendingConnection),
    Refused(PendingConnection, &'static str),
}

/// Reads the first message of a pending connection, and hands it to the interface that it names.
fn read_first_message(mut pending: PendingConnection, devices: &[Arc<Device>]) -> PendingOutcome {
    if pending.first.is_none() {
        match read_message(pending.socket.as_fd()) {
            ReadOutcome::Nothing if pending.since.elapsed() > MAKING => {
                return PendingOutcome::Refused(pending, "took too long");
            }
            ReadOutcome::Nothing => return PendingOutcome::Waits(pending),
            ReadOutcome::Gone | ReadOutcome::Message(Message::Disconnect { .. }, _) => return PendingOutcome::Gone,
            ReadOutcome::Noise(reason) => return PendingOutcome::Refused(pending, reason),
            ReadOutcome::Message(message, fds) => pending.first = Some((message, fds)),
        }
    }
    let Some((Message::Init { id, .. }, _)) = &pending.first else {
        return PendingOutcome::Refused(pending, "the first message is not INIT");
    };
    let Some(device) = devices.iter().find(|device| device.config.id == *id) else {
        return PendingOutcome::Refused(pending, "ID not found");
    };
    match device.admit(pending) {
        Admission::Taken => PendingOutcome::Gone,
        Admission::Later(pending) => PendingOutcome::Waits(pending),
        Admission::Connected(pending) => PendingOutcome::Refused(pending, "already connected"),
    }
}
