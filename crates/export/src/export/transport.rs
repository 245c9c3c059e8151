//! Sockets to a collector.

use super::secure::{Secure, Stream};
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Send timeout before a collector counts as unreachable.
const PATIENCE: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(3);
/// Timeout of the TLS handshake.
const AGREEING: Duration = Duration::from_secs(10);
/// Timeout for a collector to close after receiving everything.
const CLOSING: Duration = Duration::from_secs(2);
/// Interval between name lookups for an unreachable collector.
const ASK: Duration = Duration::from_secs(5);
/// Delay before a datagram is sent again when the kernel's buffer is full.
const WAIT: Duration = Duration::from_millis(1);

static RECONNECTS: AtomicBool = AtomicBool::new(false);

/// Returns whether an exporter may reconnect after startup: a sandboxed process must permit it.
pub fn reconnects() -> bool {
    RECONNECTS.load(Ordering::Relaxed)
}

/// Records that an exporter may reconnect.
pub(super) fn allow_reconnects() {
    RECONNECTS.store(true, Ordering::Relaxed);
}

/// Transport of messages to a collector.
pub(super) trait MessageTransport: Send {
    /// Sends a whole message.
    fn send(&mut self, message: &[u8]) -> Result<()>;

    /// Retries an unreachable collector; false: it still is.
    fn again(&mut self) -> Result<bool>;

    /// Returns whether the collector closed, or its host rejected the last message, as far as known now.
    fn is_rejected(&mut self) -> bool;

    /// Returns whether the peer may have lost or never received templates.
    fn may_lose_templates(&self) -> bool;

    /// Closes the transport; nothing more is sent.
    fn end(&mut self);
}

/// Returns whether an error means that a collector is currently unreachable.
pub(super) fn is_unreachable(error: &Error) -> bool {
    use ErrorKind::*;
    matches!(
        error.kind(),
        ConnectionRefused
            | ConnectionReset
            | ConnectionAborted
            | BrokenPipe
            | NotConnected
            | TimedOut
            | HostUnreachable
            | NetworkUnreachable
            | NetworkDown
            | WriteZero
    )
}

/// UDP transport.
pub(super) struct Udp {
    socket: UdpSocket,
    host: String,
    port: u16,
    /// Time of the last name lookup.
    asked: Instant,
}

impl Udp {
    pub(super) fn open(host: &str, port: u16) -> Result<Self> {
        if !is_address(host) {
            allow_reconnects();
        }
        let address = addresses(host, port)?.remove(0);
        let own: SocketAddr = match address {
            SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
            SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
        };
        let socket = UdpSocket::bind(own)?;
        socket.connect(address)?;
        Ok(Udp { socket, host: host.to_owned(), port, asked: Instant::now() })
    }

    /// Resolves the host again, as its address may have changed.
    fn look_again(&mut self) {
        if self.asked.elapsed() < ASK || is_address(&self.host) {
            return;
        }
        self.asked = Instant::now();
        let Ok(is_ipv4) = self.socket.local_addr().map(|own| own.is_ipv4()) else { return };
        let found = addresses(&self.host, self.port).unwrap_or_default();
        if let Some(address) = found.into_iter().find(|address| address.is_ipv4() == is_ipv4) {
            // On failure the address stays the same.
            let _ = self.socket.connect(address);
        }
    }
}

impl MessageTransport for Udp {
    fn send(&mut self, message: &[u8]) -> Result<()> {
        let begun = Instant::now();
        loop {
            match self.socket.send(message) {
                Ok(_) => return Ok(()),
                // The kernel's buffer is full (ENOBUFS).
                Err(error) if error.raw_os_error() == Some(105) && begun.elapsed() < PATIENCE => {
                    std::thread::sleep(WAIT)
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn again(&mut self) -> Result<bool> {
        self.look_again();
        // Discards the error of the previous attempt.
        let _ = self.socket.take_error();
        Ok(true)
    }

    fn is_rejected(&mut self) -> bool {
        !matches!(self.socket.take_error(), Ok(None))
    }

    fn may_lose_templates(&self) -> bool {
        true
    }

    fn end(&mut self) {}
}

/// TCP or TLS transport.
pub(super) struct Tcp {
    host: String,
    port: u16,
    addresses: Vec<SocketAddr>,
    /// Time of the last name lookup.
    asked: Instant,
    secure: Secure,
    stream: Option<Stream>,
}

impl Tcp {
    pub(super) fn open(host: &str, port: u16, secure: Secure) -> Result<Self> {
        allow_reconnects();
        let (found, asked) = (addresses(host, port)?, Instant::now());
        let mut line = Tcp { host: host.to_owned(), port, addresses: found, asked, secure, stream: None };
        line.connect()?;
        Ok(line)
    }

    fn connect(&mut self) -> Result<()> {
        let mut last = Error::from(ErrorKind::AddrNotAvailable);
        for address in &self.addresses {
            match TcpStream::connect_timeout(address, CONNECT) {
                Ok(socket) => {
                    socket.set_write_timeout(Some(Duration::from_secs(1)))?;
                    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
                    let begun = Instant::now();
                    let begun = self.secure.begin(&self.host, socket, || begun.elapsed() < AGREEING);
                    match begun.and_then(|mut stream| stream.await_alert().map(|()| stream)) {
                        Ok(stream) => {
                            self.stream = Some(stream);
                            return Ok(());
                        }
                        Err(error) => last = error,
                    }
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }
}

impl MessageTransport for Tcp {
    fn send(&mut self, mut message: &[u8]) -> Result<()> {
        let Some(stream) = &mut self.stream else { return Err(ErrorKind::NotConnected.into()) };
        let mut since = Instant::now();
        loop {
            let wrote = if message.is_empty() { stream.flush().map(|()| 0) } else { stream.write(message) };
            match wrote {
                Ok(_) if message.is_empty() => return Ok(()),
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => {
                    message = &message[count..];
                    since = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && since.elapsed() < PATIENCE => {}
                Err(error) => {
                    // A message may be partially sent: nothing can follow it.
                    self.stream = None;
                    let kind = if error.kind() == ErrorKind::WouldBlock { ErrorKind::TimedOut } else { error.kind() };
                    return Err(Error::new(kind, error));
                }
            }
        }
    }

    fn again(&mut self) -> Result<bool> {
        self.stream = None;
        // The address may have changed; without an answer the old one may still be valid.
        if self.asked.elapsed() >= ASK && !is_address(&self.host) {
            self.asked = Instant::now();
            self.addresses = addresses(&self.host, self.port).unwrap_or(std::mem::take(&mut self.addresses));
        }
        match self.connect() {
            Ok(()) => Ok(true),
            // A certificate error may be temporary.
            Err(error) if is_unreachable(&error) || self.secure.is_on() => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Collectors never send: readable data or an end of stream means closed. Without this check the first write to a
    /// connection that the peer has closed would be lost.
    fn is_rejected(&mut self) -> bool {
        let is_closed = self.stream.as_mut().is_none_or(Stream::is_closed);
        if is_closed {
            self.stream = None;
        }
        is_closed
    }

    fn may_lose_templates(&self) -> bool {
        false
    }

    /// Waits for the collector to close too, which confirms that it read everything.
    fn end(&mut self) {
        let Some(mut stream) = self.stream.take() else { return };
        let until = Instant::now() + CLOSING;
        // Bounded by the timeout; the result does not matter.
        stream.end();
        let _ = stream.socket().set_read_timeout(Some(CLOSING));
        while Instant::now() < until && stream.read(&mut [0; 512]).is_ok_and(|count| count > 0) {}
    }
}

fn is_address(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok()
}

fn addresses(host: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let found: Vec<SocketAddr> = (host, port).to_socket_addrs()?.collect();
    if found.is_empty() { Err(Error::new(ErrorKind::NotFound, "host has no address")) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// The address of a host name changes.
    #[test]
    fn unreachable_hosts_are_resolved_again() {
        let collector = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = collector.local_addr().unwrap().port();
        let (before, asked) = ((Ipv4Addr::new(127, 0, 0, 99), port), Instant::now().checked_sub(ASK).unwrap());
        let host = "localhost".to_owned();
        let mut line = Tcp { host, port, addresses: vec![before.into()], asked, secure: Secure::No, stream: None };
        assert!(line.again().unwrap());
        let (socket, mut buffer) = (UdpSocket::bind("127.0.0.1:0").unwrap(), [0; 8]);
        let port = socket.local_addr().unwrap().port();
        let mut line = Udp::open("localhost", port).unwrap();
        line.socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        line.socket.connect((Ipv4Addr::new(127, 0, 0, 99), port)).unwrap();
        line.asked = asked;
        assert!(line.again().unwrap());
        line.send(b"here").unwrap();
        socket.set_read_timeout(Some(CLOSING)).unwrap();
        assert_eq!(socket.recv(&mut buffer).unwrap(), 4);
    }
}
