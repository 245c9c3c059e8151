//! Sources of messages: datagrams and connections at one port, and files (RFC 5655).

mod connections;
#[cfg(feature = "tls")]
mod secure;

use self::connections::Connection;
use super::collect::Collector;
use super::sessions::Session;
use crate::export::Tls;
use linerate_burst::input::open_regular;
use linerate_meter::Flow;
use linerate_pcap::plain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, sockopt};
use std::io::{Error, ErrorKind, Read, Result};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::time::Duration;

/// Requested receive buffer in bytes; the kernel limits it to what the administrator permits.
const BUFFER: usize = 16 << 20;
/// Bytes of datagrams processed in a row before the stop request and connections are checked.
const ROW: usize = 1 << 20;
/// Bytes of datagrams processed after the stop request: the whole receive buffer.
const LAST: usize = BUFFER;
/// Interval of checks for the stop request.
const WAIT_NS: i64 = 50_000_000;

/// Receives messages at a port.
pub struct Listener {
    /// `None` over TLS.
    datagrams: Option<UdpSocket>,
    listener: TcpListener,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
    /// Number of accepted connections.
    connected: u64,
    /// Idle timeout of connections when others need their slot.
    silent: Duration,
    #[cfg(feature = "tls")]
    secure: Option<secure::TlsAcceptor>,
}

/// Binds UDP and TCP to the same port. For port 0 the system chooses one, which may be in use for the other protocol:
/// then it retries.
fn both(address: SocketAddr) -> Result<(UdpSocket, TcpListener)> {
    let mut choices = if address.port() == 0 { 16 } else { 1 };
    loop {
        let datagrams = UdpSocket::bind(address)?;
        choices -= 1;
        match TcpListener::bind(datagrams.local_addr()?) {
            Err(error) if error.kind() == ErrorKind::AddrInUse && choices > 0 => {}
            listener => return Ok((datagrams, listener?)),
        }
    }
}

impl Listener {
    /// Binds to `HOST:PORT`, or to all local addresses without a host, over UDP and TCP.
    ///
    /// # Errors
    /// The address is invalid or in use.
    pub fn bind(at: &str) -> Result<Self> {
        Listener::first_of(at, "ipfix", Listener::at)
    }

    /// Binds over TLS (RFC 7011, 10.4 and 11), thus only for connections; with a CA, exporters must present a
    /// certificate of it. `notify` receives rate-limited notices about rejected peers.
    ///
    /// # Errors
    /// As for [`bind`](Listener::bind); a file cannot be read or is invalid; `Unsupported`: built without TLS.
    pub fn bind_secure(at: &str, tls: &Tls, notify: fn(String)) -> Result<Self> {
        #[cfg(feature = "tls")]
        {
            let door = secure::TlsAcceptor::new(tls, notify)?;
            let mut listener =
                Listener::first_of(at, "ipfix+tls", |address| Listener::over(None, TcpListener::bind(address)?))?;
            listener.secure = Some(door);
            Ok(listener)
        }
        #[cfg(not(feature = "tls"))]
        {
            let _ = (at, tls, notify);
            crate::export::secure::without()
        }
    }

    fn first_of(at: &str, scheme: &str, open: impl Fn(SocketAddr) -> Result<Self>) -> Result<Self> {
        let wrong = || {
            Error::new(
                ErrorKind::InvalidInput,
                format!("{at:?}: invalid address; expected {scheme}://HOST:PORT or {scheme}://:PORT"),
            )
        };
        let (host, port) = at.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let addresses: Vec<SocketAddr> = match host {
            // Both IP versions, if IPv6 is available.
            "" => vec![(Ipv6Addr::UNSPECIFIED, port).into(), (Ipv4Addr::UNSPECIFIED, port).into()],
            host => (host, port).to_socket_addrs()?.collect(),
        };
        let mut last = wrong();
        for address in addresses {
            match open(address) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = error,
            }
        }
        Err(Error::new(last.kind(), format!("{scheme}://{at}: {last}")))
    }

    fn at(address: SocketAddr) -> Result<Self> {
        let (datagrams, listener) = both(address)?;
        // Needs CAP_NET_ADMIN; the default size works too.
        if sockopt::set_socket_recv_buffer_size_force(&datagrams, BUFFER).is_err() {
            let _ = sockopt::set_socket_recv_buffer_size(&datagrams, BUFFER);
        }
        Listener::over(Some(datagrams), listener)
    }

    fn over(datagrams: Option<UdpSocket>, listener: TcpListener) -> Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Listener {
            datagrams,
            listener,
            connections: Vec::new(),
            buffer: vec![0; 1 << 16],
            connected: 0,
            silent: connections::SILENT,
            #[cfg(feature = "tls")]
            secure: None,
        })
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// System errors.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Receives until `goes_on` returns false; it is called several times per second.
    ///
    /// # Errors
    /// Receiving failed for good.
    pub fn run(
        &mut self,
        collector: &mut Collector,
        out: &mut dyn FnMut(&Flow),
        goes_on: &mut dyn FnMut(&Collector) -> bool,
    ) -> Result<()> {
        while goes_on(collector) {
            let ready = self.wait()?;
            if ready.datagrams {
                self.take_datagrams(ROW, collector, out)?;
            }
            for place in ready.connections.into_iter().rev() {
                if !self.take_stream(place, collector, out) {
                    self.leave(place, collector);
                }
            }
            if ready.listener {
                self.accept(collector);
            }
            #[cfg(feature = "tls")]
            self.close_slow(collector);
        }
        // Datagrams that arrived before the stop request.
        self.take_datagrams(LAST, collector, out)
    }

    fn wait(&self) -> Result<Ready> {
        let mut fds = vec![PollFd::new(&self.listener, PollFlags::IN)];
        fds.extend(self.connections.iter().map(|connection| PollFd::new(&connection.stream, connection.wanted())));
        fds.extend(self.datagrams.iter().map(|datagrams| PollFd::new(datagrams, PollFlags::IN)));
        match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: WAIT_NS })) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let connections = (0..self.connections.len()).filter(|place| is_ready[place + 1]).collect();
        let datagrams = is_ready.get(self.connections.len() + 1).copied().unwrap_or_default();
        Ok(Ready { datagrams, listener: is_ready[0], connections })
    }

    /// Processes queued datagrams up to a number of bytes; an empty one counts too.
    fn take_datagrams(&mut self, bytes: usize, collector: &mut Collector, out: &mut dyn FnMut(&Flow)) -> Result<()> {
        let mut left = bytes;
        while left > 0 {
            let Some(datagrams) = &self.datagrams else { return Ok(()) };
            let received = rustix::net::recvfrom(datagrams, self.buffer.as_mut_slice(), RecvFlags::DONTWAIT);
            let (bytes, from) = match received {
                Ok((bytes, _, from)) => (bytes, from),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNREFUSED) => continue,
                Err(error) => return Err(error.into()),
            };
            left = left.saturating_sub(bytes.max(1));
            let Some(from) = from.and_then(|from| SocketAddr::try_from(from).ok()) else { continue };
            collector.take(Session::Datagrams(from), &self.buffer[..bytes], out);
        }
        Ok(())
    }
}

struct Ready {
    datagrams: bool,
    listener: bool,
    connections: Vec<usize>,
}

/// Takes whole messages off the buffer; returns false, and counts the error, for malformed data.
fn take_messages(bytes: &mut Vec<u8>, session: Session, collector: &mut Collector, out: &mut dyn FnMut(&Flow)) -> bool {
    let mut taken = 0;
    while let Some(head) = bytes.get(taken..taken + 4) {
        let (version, length) = (u16::from_be_bytes([head[0], head[1]]), u16::from_be_bytes([head[2], head[3]]));
        if version != 10 || length < 16 {
            collector.refuse();
            return false;
        }
        let Some(message) = bytes.get(taken..taken + usize::from(length)) else { break };
        collector.take(session, message, out);
        taken += usize::from(length);
    }
    bytes.drain(..taken);
    true
}

/// Reads a file of messages, also compressed; `number` must be unique. Calls `goes_on` periodically.
///
/// # Errors
/// The file cannot be read or is malformed; records before the error were processed.
pub fn read_file(
    path: &str,
    number: u64,
    collector: &mut Collector,
    out: &mut dyn FnMut(&Flow),
    goes_on: &mut dyn FnMut(&Collector) -> bool,
) -> Result<()> {
    let describe = |error: Error| Error::new(error.kind(), format!("{path}: {error}"));
    let damaged = |text: &str| Error::new(ErrorKind::InvalidData, format!("{path}: {text}"));
    let mut source = plain(Box::new(open_regular(path).map_err(describe)?)).map_err(describe)?;
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    let (session, mut is_first) = (Session::File(number), true);
    while goes_on(collector) {
        let count = match source.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(describe(error)),
        };
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(&buffer[..count]);
        if !take_messages(&mut bytes, session, collector, out) {
            let text = if is_first {
                "not an IPFIX file: messages start with 00 0a"
            } else {
                "damaged: no message at the expected offset"
            };
            return Err(damaged(text));
        }
        is_first = false;
    }
    collector.end(session);
    if bytes.is_empty() {
        return Ok(());
    }
    collector.refuse();
    Err(damaged("truncated within a message"))
}
