//! Connections of exporters: their number is limited, and idle ones cannot block others.

use super::{Listener, take_messages};
use crate::ipfix::{Collector, Session};
use linerate_meter::Flow;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Maximum number of connections, and of those per host.
const CONNECTIONS: usize = 256;
const OF_HOST: usize = 64;
/// Idle time after which a connection is closed when the limit is reached.
pub(super) const SILENT: Duration = Duration::from_secs(10);

pub(super) struct Connection {
    pub stream: TcpStream,
    pub session: Session,
    /// Bytes of an incomplete message.
    pub bytes: Vec<u8>,
    /// Time of its last message, or of its start.
    pub received_at: Instant,
    #[cfg(feature = "tls")]
    pub secure: Option<super::secure::TlsSession>,
}

impl Listener {
    pub(super) fn accept(&mut self, collector: &mut Collector) {
        while let Ok((stream, from)) = self.listener.accept() {
            self.connected += 1;
            let session = Session::Connection(self.connected, from.ip());
            if !self.has_room(session, collector) {
                collector.count_rejected();
                continue;
            }
            #[cfg(feature = "tls")]
            let secure = match self.start_tls(&stream) {
                Ok(secure) => secure,
                Err(_) => {
                    collector.count_rejected();
                    continue;
                }
            };
            self.connections.push(Connection {
                stream,
                session,
                bytes: Vec::new(),
                received_at: Instant::now(),
                #[cfg(feature = "tls")]
                secure,
            });
        }
    }

    /// Returns whether there is a free slot, if necessary by closing an idle connection: of the same host if that is at
    /// its limit.
    fn has_room(&mut self, session: Session, collector: &mut Collector) -> bool {
        let is_of_host = |connection: &Connection| connection.session.host() == session.host();
        let is_host_full = self.connections.iter().filter(|one| is_of_host(one)).count() >= OF_HOST;
        if !is_host_full && self.connections.len() < CONNECTIONS {
            return true;
        }
        let all = self.connections.iter().enumerate().filter(|(_, one)| !is_host_full || is_of_host(one));
        match all.min_by_key(|(_, one)| one.received_at).filter(|(_, one)| one.received_at.elapsed() >= self.silent) {
            Some((place, _)) => {
                collector.count_rejected();
                self.leave(place, collector);
                true
            }
            None => false,
        }
    }

    /// Closes a connection.
    pub(super) fn leave(&mut self, place: usize, collector: &mut Collector) {
        let gone = self.connections.swap_remove(place);
        collector.end(gone.session);
    }

    /// Reads from a connection; false: it has ended, or sent malformed data.
    pub(super) fn take_stream(&mut self, place: usize, collector: &mut Collector, out: &mut dyn FnMut(&Flow)) -> bool {
        #[cfg(feature = "tls")]
        if self.secure.is_some() {
            return self.take_secure(place, collector, out);
        }
        let connection = &mut self.connections[place];
        let received = recv(connection.stream.as_fd(), self.buffer.as_mut_slice(), RecvFlags::DONTWAIT);
        let count = match received {
            Ok((count, _)) => count,
            Err(Errno::AGAIN | Errno::INTR) => return true,
            Err(_) => 0,
        };
        if count == 0 {
            if !connection.bytes.is_empty() {
                collector.refuse();
            }
            return false;
        }
        connection.bytes.extend_from_slice(&self.buffer[..count]);
        connection.take_messages(collector, out)
    }
}

impl Connection {
    /// Takes whole messages off its buffer; false for malformed data.
    pub(super) fn take_messages(&mut self, collector: &mut Collector, out: &mut dyn FnMut(&Flow)) -> bool {
        let before = self.bytes.len();
        let goes_on = take_messages(&mut self.bytes, self.session, collector, out);
        if self.bytes.len() < before {
            self.received_at = Instant::now();
        }
        goes_on
    }

    /// Returns the poll events that it waits for.
    pub(super) fn wanted(&self) -> PollFlags {
        #[cfg(feature = "tls")]
        if self.secure.as_ref().is_some_and(|inside| inside.wants_write()) {
            return PollFlags::IN | PollFlags::OUT;
        }
        PollFlags::IN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipfix::{ENTERPRISE, Limits};
    use std::io::{Read, Write};

    /// Message without sets.
    const EMPTY: [u8; 16] = [0, 10, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

    #[test]
    fn idle_connections_are_closed_and_active_ones_stay() {
        let mut listener = Listener::bind("127.0.0.1:0").unwrap();
        let mut collector = Collector::new(Limits::default(), ENTERPRISE);
        let at = listener.address().unwrap();
        let connect = || TcpStream::connect(at).unwrap();
        let mut speaks = connect();
        let silent: Vec<TcpStream> = (0..OF_HOST - 1).map(|_| connect()).collect();
        let mut turn = |listener: &mut Listener| {
            for _ in 0..3 {
                let mut once = Some(());
                listener.run(&mut collector, &mut |_| (), &mut |_| once.take().is_some()).unwrap();
            }
            collector.found()
        };
        turn(&mut listener);
        assert_eq!(listener.connections.len(), OF_HOST);
        // New connections are not closed.
        let mut late = connect();
        assert_eq!((turn(&mut listener).refused, listener.connections.len()), (1, OF_HOST));
        assert_eq!(late.read(&mut [0; 1]).unwrap_or(0), 0, "it is closed");
        listener.silent = Duration::ZERO;
        speaks.write_all(&EMPTY).unwrap();
        turn(&mut listener);
        let mut next = connect();
        turn(&mut listener);
        next.write_all(&EMPTY).unwrap();
        let found = turn(&mut listener);
        assert_eq!((found.refused, found.messages, found.sessions), (2, 2, 2), "{found:?}");
        // The active one is still open.
        speaks.write_all(&EMPTY).unwrap();
        assert_eq!(turn(&mut listener).messages, 3);
        drop(silent);
    }
}
