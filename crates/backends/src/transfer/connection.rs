//! A connection of the kernel's TCP, and which of its bytes were acknowledged.

use super::{LOOK, Watched, Way};
use crate::netns::within;
use crate::sys::outgoing::{self, TcpInfo};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::{
    Timeout, set_socket_send_buffer_size, set_socket_send_buffer_size_force, set_socket_timeout, set_tcp_congestion,
    set_tcp_nodelay, socket_error, socket_send_buffer_size, tcp_congestion,
};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, bind, connect, recv, send, shutdown,
};
use rustix::net::{getsockname, socket_with};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Without stamps of the kernel: how often to look whether all was acknowledged.
const GLANCE: Duration = Duration::from_micros(50);
/// How long to wait for what is on its way when the run is asked to end.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long a stamp may be behind the count.
const STAMP: Duration = Duration::from_millis(10);

/// A connection.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    peer: SocketAddr,
    written: u64,
    silence: Option<Duration>,
    /// Whether the kernel stamps acknowledgements.
    is_stamped: bool,
    /// So many bytes were written when the last one was marked, whose stamp is still to come.
    marked: Option<u64>,
}

/// When a chunk began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    at: Instant,
    utc: u64,
}

impl Connection {
    /// Connects.
    ///
    /// # Errors
    /// Why not; [`super::explain`] says what that means.
    pub fn open(to: SocketAddr, way: &Way) -> io::Result<Self> {
        let socket = within(way.netns.as_deref(), || {
            let socket = open(to, SocketType::STREAM, way)?;
            if let Some(name) = &way.congestion {
                set_tcp_congestion(&socket, name).map_err(|error| congestion_error(name, error))?;
            }
            Ok(socket)
        })?;
        establish(&socket, to, way)?;
        set_tcp_nodelay(&socket, true)?;
        set_socket_timeout(&socket, Timeout::Send, Some(LOOK))?;
        let is_stamped = outgoing::tell_acknowledgements(socket.as_fd()).is_ok();
        Ok(Connection { socket, peer: to, written: 0, silence: way.silence, is_stamped, marked: None })
    }

    /// Whom it leads to.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Where it comes from.
    ///
    /// # Errors
    /// Those of the system.
    pub fn local(&self) -> io::Result<SocketAddr> {
        Ok(getsockname(&self.socket)?.try_into()?)
    }

    /// The congestion control and the send buffer that it has.
    ///
    /// # Errors
    /// Those of the system.
    pub fn manner(&self) -> io::Result<(String, usize)> {
        Ok((tcp_congestion(&self.socket)?, socket_send_buffer_size(&self.socket)?))
    }

    /// Bytes handed to the kernel.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Of these, what the other end has acknowledged; it keeps its value when the connection is gone.
    pub fn acknowledged(&self) -> u64 {
        // The end of the stream counts as a byte of it until it is acknowledged.
        let outstanding = outgoing::unacknowledged(self.socket.as_fd()).unwrap_or(self.written);
        self.written.saturating_sub(outstanding)
    }

    /// What the kernel says of it.
    pub fn info(&self) -> TcpInfo {
        outgoing::tcp_info(self.socket.as_fd()).unwrap_or_default()
    }

    /// Says that this was all.
    pub(super) fn close(&mut self) -> io::Result<Patience> {
        shutdown(&self.socket, Shutdown::Write)?;
        Ok(Patience::new(self.silence, self.acknowledged()))
    }

    /// Waits until that is acknowledged. Bytes that came from the other end, which nobody reads.
    pub(super) fn leave(&mut self, patience: Patience, ends: &mut Farewell, watched: Watched<'_>) -> io::Result<u64> {
        self.settle_by(Self::now(), patience, ends, watched)?;
        // What lies there unread would have the kernel reset the connection when it is closed.
        let (mut unread, mut buffer) = (0, [0; 4096]);
        while let Ok((got @ 1.., _)) = recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
            unread += got as u64;
        }
        Ok(unread)
    }

    pub(super) fn begin(&self) -> Begun {
        Self::now()
    }

    /// Hands all of it to the kernel, unless the run ends first.
    pub(super) fn write(&mut self, bytes: &[u8], is_last: bool, watched: Watched<'_>) -> io::Result<()> {
        let mut bytes = bytes;
        let mut patience = Patience::new(self.silence, 0);
        while !bytes.is_empty() {
            let is_marked = is_last && self.is_stamped;
            let written = if is_marked {
                outgoing::write_marked(self.socket.as_fd(), bytes)
            } else {
                send(&self.socket, bytes, SendFlags::NOSIGNAL).map_err(io::Error::from)
            };
            match written {
                Ok(written) => {
                    self.written += written as u64;
                    watched.add(written);
                    bytes = &bytes[written..];
                    if is_marked {
                        self.marked = Some(self.written);
                    }
                }
                Err(error) if is_passing(&error) => {
                    if watched.is_stopped() {
                        break;
                    }
                    patience.check(self.acknowledged())?;
                }
                Err(error) => return Err(self.reason(error)),
            }
        }
        Ok(())
    }

    /// Waits until all is acknowledged; how long it took since then. None if the run ended first.
    pub(super) fn settle(&mut self, since: Begun, watched: Watched<'_>) -> io::Result<Option<Duration>> {
        self.settle_by(since, Patience::new(self.silence, 0), &mut Farewell::default(), watched)
    }

    fn settle_by(
        &mut self,
        since: Begun,
        mut patience: Patience,
        ends: &mut Farewell,
        watched: Watched<'_>,
    ) -> io::Result<Option<Duration>> {
        let (mut stamp, mut settled) = (None, None);
        loop {
            while let Some(one) = outgoing::acknowledged_at(self.socket.as_fd())? {
                // What the kernel took in several goes is marked at the end of each.
                if self.marked == Some(self.written) && self.written.wrapping_sub(1) as u32 == one.place {
                    (stamp, self.marked) = (Some(one.at), None);
                }
            }
            let outstanding = outgoing::unacknowledged(self.socket.as_fd())?;
            if outstanding == 0 {
                // The count is right a moment before the stamp is there.
                let since_then = *settled.get_or_insert_with(Instant::now);
                if self.marked != Some(self.written) || since_then.elapsed() > STAMP {
                    self.marked = None;
                    return Ok(Some(took(since, stamp, since_then)));
                }
            }
            if let Err(error) = socket_error(&self.socket)? {
                return Err(error.into());
            }
            if watched.is_stopped() && ends.is_over() {
                return Ok(None);
            }
            patience.check(self.written.saturating_sub(outstanding))?;
            self.wait(if outstanding == 0 { Duration::from_millis(1) } else { LOOK })?;
        }
    }

    /// Until the kernel has something to say.
    fn wait(&self, longest: Duration) -> io::Result<()> {
        let longest = if self.is_stamped { longest } else { GLANCE };
        let timeout = Timespec { tv_sec: longest.as_secs() as _, tv_nsec: longest.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.socket, PollFlags::empty())];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A connection that is reset says so once, and then that it is none.
    fn reason(&self, error: io::Error) -> io::Error {
        match socket_error(&self.socket) {
            Ok(Err(first)) => first.into(),
            _ => error,
        }
    }

    fn now() -> Begun {
        let utc = clock_gettime(ClockId::Realtime);
        Begun { at: Instant::now(), utc: utc.tv_sec as u64 * 1_000_000_000 + utc.tv_nsec as u64 }
    }
}

/// By the stamp where there is one. Somebody who sets the clock meanwhile makes no chunk longer than it was.
fn took(since: Begun, stamp: Option<u64>, settled: Instant) -> Duration {
    let most = settled.saturating_duration_since(since.at);
    let by_stamp = stamp.and_then(|stamp| stamp.checked_sub(since.utc)).map(Duration::from_nanos);
    by_stamp.unwrap_or(most).min(most)
}

/// Until when what is on its way is waited for once the run is asked to end.
#[derive(Debug, Default)]
pub(super) struct Farewell(Option<Instant>);

impl Farewell {
    /// It begins when this is first asked.
    fn is_over(&mut self) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() > FAREWELL
    }
}

/// How long nothing may be acknowledged.
#[derive(Debug)]
pub(super) struct Patience {
    most: Option<Duration>,
    last: (u64, Instant),
}

impl Patience {
    fn new(most: Option<Duration>, acknowledged: u64) -> Self {
        Patience { most, last: (acknowledged, Instant::now()) }
    }

    fn check(&mut self, acknowledged: u64) -> io::Result<()> {
        if acknowledged != self.last.0 {
            self.last = (acknowledged, Instant::now());
        }
        match self.most {
            Some(most) if self.last.1.elapsed() > most => {
                let text = format!("nothing was acknowledged for {} s", most.as_secs_f64());
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
            _ => Ok(()),
        }
    }
}

/// A socket with the buffer and the address it is to have.
pub(super) fn open(to: SocketAddr, kind: SocketType, way: &Way) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    if let Some(bytes) = way.buffer {
        set_socket_send_buffer_size_force(&socket, bytes).or_else(|_| set_socket_send_buffer_size(&socket, bytes))?;
    }
    if let Some(source) = way.source {
        bind(&socket, &SocketAddr::new(source, 0))
            .map_err(|error| io::Error::new(io::Error::from(error).kind(), format!("from {source}: {error}")))?;
    }
    Ok(socket)
}

fn establish(socket: &OwnedFd, to: SocketAddr, way: &Way) -> io::Result<()> {
    use rustix::io::Errno;
    rustix::io::ioctl_fionbio(socket, true)?;
    match connect(socket, &to) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            let ends = Instant::now() + way.patience;
            loop {
                let mut fds = [PollFd::new(socket, PollFlags::OUT)];
                let ready = match poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() })) {
                    Err(Errno::INTR) => 0,
                    result => result?,
                };
                if ready > 0 {
                    socket_error(socket)??;
                    break;
                }
                if Instant::now() >= ends {
                    let text = format!("no answer within {} s", way.patience.as_secs_f64());
                    return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                }
            }
        }
        Err(error) => return Err(error.into()),
    }
    rustix::io::ioctl_fionbio(socket, false)?;
    Ok(())
}

pub(super) fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn congestion_error(name: &str, error: rustix::io::Errno) -> io::Error {
    let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    io::Error::other(format!("congestion control {name:?}: {error}; this kernel has {}", known.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    /// As of a chunk of which the kernel took a part, and the rest when there was room.
    #[test]
    fn the_stamp_of_an_earlier_byte_is_not_that_of_the_last_one() {
        const LATER: Duration = Duration::from_millis(50);
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let way = Way { patience: Duration::from_secs(10), ..Way::default() };
            let mut connection = Connection::open(listener.local_addr().unwrap(), &way).unwrap();
            let mut peer = listener.accept().unwrap().0;
            let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
            let watched = Watched { stop: &stop, written: &written };
            let begun = connection.begin();
            connection.write(b"first", true, watched).unwrap();
            while connection.acknowledged() < 5 {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(LATER);
            connection.write(b"and last", false, watched).unwrap();
            assert!(connection.settle(begun, watched).unwrap().unwrap() >= LATER, "{address}");
            // Each stamp says whose it is.
            connection.write(b"more", true, watched).unwrap();
            let place = loop {
                if let Some(one) = outgoing::acknowledged_at(connection.socket.as_fd()).unwrap() {
                    break one.place;
                }
                assert!(begun.at.elapsed() < Duration::from_secs(10), "{address}: no stamp comes");
            };
            assert_eq!(u64::from(place) + 1, connection.written(), "{address}");
            peer.set_nonblocking(true).unwrap();
            assert_eq!(peer.read(&mut [0; 100]).unwrap(), 17, "{address}");
        }
    }
}
