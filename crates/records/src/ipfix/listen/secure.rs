//! Exporters that come over TLS.

use super::Listener;
use crate::export::Tls;
use crate::ipfix::Collector;
use linerate_meter::Flow;
use linerate_tls::{Server, Session};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::io::{Error, ErrorKind, Result};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// How long one may take to say who it is, and how many may be at that at a time.
const AGREEING: Duration = Duration::from_secs(10);
const MOST_AGREEING: usize = 64;
/// How often it is told that somebody was refused.
const TELL: Duration = Duration::from_secs(10);

/// Where they come in.
pub(super) struct Door {
    server: Server,
    told: fn(String),
    /// When somebody was told of last, and how many were not since then.
    last: Option<Instant>,
    untold: u64,
}

/// What a connection has beside its socket.
pub(super) struct Inside {
    session: Session,
    since: Instant,
}

impl Door {
    pub(super) fn new(tls: &Tls, told: fn(String)) -> Result<Self> {
        if tls.cert.is_none() {
            let text = "who listens by TLS shows a certificate: --tls cert=FILE,key=FILE";
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        Ok(Door { server: Server::new(&tls.files())?, told, last: None, untold: 0 })
    }

    fn refuse(&mut self, stream: &TcpStream, why: &str) {
        if self.last.is_some_and(|last| last.elapsed() < TELL) {
            self.untold += 1;
            return;
        }
        let who = stream.peer_addr().map_or_else(|_| "an exporter".to_owned(), |address| address.to_string());
        let more = match std::mem::take(&mut self.untold) {
            0 => String::new(),
            untold => format!("; so were {untold} others before"),
        };
        self.last = Some(Instant::now());
        (self.told)(format!("{who} is refused: {why}{more}"));
    }
}

impl Inside {
    pub(super) fn wants_write(&self) -> bool {
        self.session.wants_write()
    }
}

impl Listener {
    /// What a new connection has beside its socket.
    pub(super) fn begin_secure(&mut self, stream: &TcpStream) -> Result<Option<Inside>> {
        let Some(door) = &mut self.secure else { return Ok(None) };
        let agreeing = self.connections.iter().filter_map(|connection| connection.secure.as_ref());
        if agreeing.filter(|inside| inside.session.is_handshaking()).count() >= MOST_AGREEING {
            door.refuse(stream, "too many connections have not said who they are");
            return Err(ErrorKind::ConnectionRefused.into());
        }
        // By the call that a confined process may make.
        fcntl_setfl(stream, fcntl_getfl(stream)? | OFlags::NONBLOCK)?;
        Ok(Some(Inside { session: door.server.session()?, since: Instant::now() }))
    }

    /// Takes what a connection has; false: it has ended, or is not to go on.
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

    /// Leaves those alone that take too long to say who they are.
    pub(super) fn leave_slow(&mut self, collector: &mut Collector) {
        let Some(door) = &mut self.secure else { return };
        // Nothing came of them yet: no session has to be ended.
        self.connections.retain(|connection| {
            let inside = connection.secure.as_ref();
            let is_slow = inside.is_some_and(|it| it.session.is_handshaking() && it.since.elapsed() > AGREEING);
            if is_slow {
                door.refuse(&connection.stream, "it did not agree on TLS within 10 s");
                collector.turn_away();
            }
            !is_slow
        });
    }
}
