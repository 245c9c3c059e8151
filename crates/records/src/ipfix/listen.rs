//! Where messages come from: datagrams and connections at one port, and files (RFC 5655).

#[cfg(feature = "tls")]
mod secure;

use super::collect::Collector;
use crate::export::Tls;
use linerate_meter::Flow;
use linerate_record::plain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{Error, ErrorKind, Read, Result};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::AsFd;

/// The most connections at a time, and the most addresses whose datagrams are told apart.
const CONNECTIONS: usize = 256;
const SENDERS: usize = 1 << 16;
/// What the kernel is asked to keep of datagrams that wait; it gives what an administrator allows.
const BUFFER: usize = 16 << 20;
/// Datagrams that are taken in a row, before anybody else is looked at.
const ROW: usize = 256;
/// The same in the end: more than the kernel keeps.
const LAST: usize = 1 << 17;
/// How long is waited before it is asked whether to go on.
const WAIT_NS: i64 = 50_000_000;

/// Takes messages at a port.
pub struct Listener {
    /// Over TLS there are none.
    datagrams: Option<UdpSocket>,
    listener: TcpListener,
    connections: Vec<Connection>,
    senders: HashMap<SocketAddr, u64>,
    sessions: u64,
    buffer: Vec<u8>,
    /// Connections that there was no room for.
    refused: u64,
    #[cfg(feature = "tls")]
    secure: Option<secure::Door>,
}

struct Connection {
    stream: TcpStream,
    session: u64,
    /// What came of a message that is not complete.
    bytes: Vec<u8>,
    #[cfg(feature = "tls")]
    secure: Option<secure::Inside>,
}

impl Listener {
    /// At `HOST:PORT`, all addresses of this machine without a host, over UDP and TCP.
    ///
    /// # Errors
    /// There is no such address, or somebody else listens there.
    pub fn bind(at: &str) -> Result<Self> {
        Listener::first_of(at, "ipfix", Listener::at)
    }

    /// The same over TLS (RFC 7011, 10.4 and 11), so by connections alone; with a CA exporters have to bring a certificate of it. `told` is
    /// called with who was refused and why, now and then.
    ///
    /// # Errors
    /// As of [`bind`](Listener::bind); a file cannot be read, or is not what it should be; `Unsupported`: there is no TLS here.
    pub fn bind_secure(at: &str, tls: &Tls, told: fn(String)) -> Result<Self> {
        #[cfg(feature = "tls")]
        {
            let door = secure::Door::new(tls, told)?;
            let mut listener =
                Listener::first_of(at, "ipfix+tls", |address| Listener::over(None, TcpListener::bind(address)?))?;
            listener.secure = Some(door);
            Ok(listener)
        }
        #[cfg(not(feature = "tls"))]
        {
            let _ = (at, tls, told);
            crate::export::secure::without()
        }
    }

    fn first_of(at: &str, scheme: &str, open: impl Fn(SocketAddr) -> Result<Self>) -> Result<Self> {
        let wrong = || {
            Error::new(
                ErrorKind::InvalidInput,
                format!("{at:?}: write it as {scheme}://HOST:PORT, or {scheme}://:PORT"),
            )
        };
        let (host, port) = at.rsplit_once(':').ok_or_else(wrong)?;
        let port: u16 = port.parse().map_err(|_| wrong())?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let addresses: Vec<SocketAddr> = match host {
            // Both, where there is IPv6.
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
        let datagrams = UdpSocket::bind(address)?;
        // With port 0 both have the one that was chosen.
        let listener = TcpListener::bind(datagrams.local_addr()?)?;
        // Only an administrator may have so much; what there is serves too.
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
            senders: HashMap::new(),
            sessions: 0,
            buffer: vec![0; 1 << 16],
            refused: 0,
            #[cfg(feature = "tls")]
            secure: None,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// How many sent something.
    pub fn exporters(&self) -> u64 {
        self.sessions
    }

    /// Connections that were closed at once, as there were too many.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Takes what comes until `goes_on` says no, which is asked some times a second.
    ///
    /// # Errors
    /// Nothing can be received any more.
    pub fn run(
        &mut self,
        collector: &mut Collector,
        out: &mut dyn FnMut(&Flow),
        goes_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        while goes_on() {
            let ready = self.wait()?;
            if ready.datagrams {
                self.take_datagrams(ROW, collector, out)?;
            }
            if ready.listener {
                self.accept();
            }
            for place in ready.connections.into_iter().rev() {
                if !self.take_stream(place, collector, out) {
                    let gone = self.connections.swap_remove(place);
                    collector.end(|session| session == gone.session);
                }
            }
            #[cfg(feature = "tls")]
            self.leave_slow();
        }
        // What had arrived by then.
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

    fn take_datagrams(&mut self, most: usize, collector: &mut Collector, out: &mut dyn FnMut(&Flow)) -> Result<()> {
        for _ in 0..most {
            let Some(datagrams) = &self.datagrams else { return Ok(()) };
            let received = rustix::net::recvfrom(datagrams, self.buffer.as_mut_slice(), RecvFlags::DONTWAIT);
            let (bytes, from) = match received {
                Ok((bytes, _, from)) => (bytes, from),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR | Errno::CONNREFUSED) => continue,
                Err(error) => return Err(error.into()),
            };
            let Some(from) = from.and_then(|from| SocketAddr::try_from(from).ok()) else { continue };
            let session = match self.senders.get(&from) {
                Some(session) => *session,
                None => self.new_sender(from, collector),
            };
            collector.take(session, false, &self.buffer[..bytes], out);
        }
        Ok(())
    }

    /// Of more than can be told apart nobody is known any more.
    fn new_sender(&mut self, from: SocketAddr, collector: &mut Collector) -> u64 {
        if self.senders.len() == SENDERS {
            let gone: HashSet<u64> = self.senders.drain().map(|(_, session)| session).collect();
            collector.end(|session| gone.contains(&session));
        }
        self.sessions += 1;
        self.senders.insert(from, self.sessions);
        self.sessions
    }

    fn accept(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            if self.connections.len() == CONNECTIONS {
                self.refused += 1;
                continue;
            }
            #[cfg(feature = "tls")]
            let secure = match self.begin_secure(&stream) {
                Ok(secure) => secure,
                Err(_) => {
                    self.refused += 1;
                    continue;
                }
            };
            self.sessions += 1;
            self.connections.push(Connection {
                stream,
                session: self.sessions,
                bytes: Vec::new(),
                #[cfg(feature = "tls")]
                secure,
            });
        }
    }

    /// Takes what a connection has; false: it has ended, or what it says is no message.
    fn take_stream(&mut self, place: usize, collector: &mut Collector, out: &mut dyn FnMut(&Flow)) -> bool {
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
        take_messages(&mut connection.bytes, connection.session, collector, out)
    }
}

impl Connection {
    /// What it is waited for.
    fn wanted(&self) -> PollFlags {
        #[cfg(feature = "tls")]
        if self.secure.as_ref().is_some_and(|inside| inside.wants_write()) {
            return PollFlags::IN | PollFlags::OUT;
        }
        PollFlags::IN
    }
}

struct Ready {
    datagrams: bool,
    listener: bool,
    connections: Vec<usize>,
}

/// Takes whole messages off; false, and the damage is counted, where there is none.
fn take_messages(bytes: &mut Vec<u8>, session: u64, collector: &mut Collector, out: &mut dyn FnMut(&Flow)) -> bool {
    let mut taken = 0;
    while let Some(head) = bytes.get(taken..taken + 4) {
        let (version, length) = (u16::from_be_bytes([head[0], head[1]]), u16::from_be_bytes([head[2], head[3]]));
        if version != 10 || length < 16 {
            collector.refuse();
            return false;
        }
        let Some(message) = bytes.get(taken..taken + usize::from(length)) else { break };
        collector.take(session, true, message, out);
        taken += usize::from(length);
    }
    bytes.drain(..taken);
    true
}

/// Reads a file of messages, also compressed; `session` is one that nothing else has. Asks `goes_on` now and then.
///
/// # Errors
/// It cannot be read, or is none; what stood in front of the damage was taken.
pub fn read_file(
    path: &str,
    session: u64,
    collector: &mut Collector,
    out: &mut dyn FnMut(&Flow),
    goes_on: &mut dyn FnMut() -> bool,
) -> Result<()> {
    let told = |error: Error| Error::new(error.kind(), format!("{path}: {error}"));
    let damaged = |text: &str| Error::new(ErrorKind::InvalidData, format!("{path}: {text}"));
    let is_regular = std::fs::metadata(path).map_err(told)?.is_file();
    if !is_regular {
        return Err(Error::new(ErrorKind::InvalidInput, format!("{path}: no regular file")));
    }
    let mut source = plain(Box::new(File::open(path).map_err(told)?)).map_err(told)?;
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 1 << 16]);
    let mut is_first = true;
    while goes_on() {
        let count = match source.read(&mut buffer) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(told(error)),
        };
        if count == 0 {
            break;
        }
        bytes.extend_from_slice(&buffer[..count]);
        if !take_messages(&mut bytes, session, collector, out) {
            let text = if is_first {
                "no file of IPFIX: messages of it begin with 00 0a"
            } else {
                "damaged: no message where one was to begin"
            };
            return Err(damaged(text));
        }
        is_first = false;
    }
    collector.end(|own| own == session);
    if bytes.is_empty() {
        return Ok(());
    }
    collector.refuse();
    Err(damaged("it ends within a message"))
}
