//! Connections of exporters over TLS.

use super::Listener;
use crate::export::Tls;
use crate::ipfix::Collector;
use linerate_meter::Flow;
use linerate_tls::{Server, Session};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::io::{Error, ErrorKind, Result};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Timeout of the TLS handshake, and maximum number of pending handshakes.
const AGREEING: Duration = Duration::from_secs(10);
const MOST_AGREEING: usize = 64;
/// Minimum interval between notices about rejected peers.
const TELL: Duration = Duration::from_secs(10);

/// TLS acceptor of a listener.
pub(super) struct TlsAcceptor {
    server: Server,
    notify: fn(String),
    /// Time of the last notice, and number of rejections since then.
    last: Option<Instant>,
    unreported: u64,
}

/// TLS session of a connection.
pub(super) struct TlsSession {
    session: Session,
    since: Instant,
}

impl TlsAcceptor {
    pub(super) fn new(tls: &Tls, notify: fn(String)) -> Result<Self> {
        if tls.cert.is_none() {
            let text = "a TLS listener needs a certificate; set --tls cert=FILE,key=FILE";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        Ok(TlsAcceptor { server: Server::new(&tls.files())?, notify, last: None, unreported: 0 })
    }

    fn refuse(&mut self, stream: &TcpStream, why: &str) {
        if self.last.is_some_and(|last| last.elapsed() < TELL) {
            self.unreported += 1;
            return;
        }
        let who = stream.peer_addr().map_or_else(|_| "an exporter".to_owned(), |address| address.to_string());
        let more = match std::mem::take(&mut self.unreported) {
            0 => String::new(),
            unreported => format!("; {unreported} others since the last notice"),
        };
        self.last = Some(Instant::now());
        (self.notify)(format!("{who}: connection rejected: {why}{more}"));
    }
}

impl TlsSession {
    pub(super) fn wants_write(&self) -> bool {
        self.session.wants_write()
    }
}

impl Listener {
    /// Starts the TLS session of a new connection.
    pub(super) fn start_tls(&mut self, stream: &TcpStream) -> Result<Option<TlsSession>> {
        let Some(door) = &mut self.secure else { return Ok(None) };
        let agreeing = self.connections.iter().filter_map(|connection| connection.secure.as_ref());
        if agreeing.filter(|inside| inside.session.is_handshaking()).count() >= MOST_AGREEING {
            door.refuse(stream, "too many unauthenticated connections");
            return Err(ErrorKind::ConnectionRefused.into());
        }
        // Through a system call that the sandbox permits.
        fcntl_setfl(stream, fcntl_getfl(stream)? | OFlags::NONBLOCK)?;
        Ok(Some(TlsSession { session: door.server.session()?, since: Instant::now() }))
    }

    /// Reads from a connection; false: it has ended, or must be closed.
    pub(super) fn take_secure(&mut self, place: usize, collector: &mut Collector, out: &mut dyn FnMut(&Flow)) -> bool {
        let (Some(door), connection) = (&mut self.secure, &mut self.connections[place]) else { return false };
        let Some(inside) = &mut connection.secure else { return false };
        let goes_on = match inside.session.take(&connection.stream, &mut connection.bytes) {
            Ok(goes_on) => goes_on,
            Err(error) => {
                if inside.session.is_handshaking() || error.kind() == ErrorKind::PermissionDenied {
                    door.refuse(&connection.stream, &error.to_string());
                }
                false
            }
        };
        if !connection.take_messages(collector, out) {
            return false;
        }
        if !goes_on && !connection.bytes.is_empty() {
            collector.refuse();
        }
        goes_on
    }

    /// Closes connections whose handshake takes too long.
    pub(super) fn close_slow(&mut self, collector: &mut Collector) {
        let Some(door) = &mut self.secure else { return };
        // They have no session that must be removed.
        self.connections.retain(|connection| {
            let inside = connection.secure.as_ref();
            let is_slow = inside.is_some_and(|it| it.session.is_handshaking() && it.since.elapsed() > AGREEING);
            if is_slow {
                door.refuse(&connection.stream, "TLS handshake timed out after 10 s");
                collector.count_rejected();
            }
            !is_slow
        });
    }
}
