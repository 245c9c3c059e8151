//! A connection of the kernel's TCP, and its acknowledged bytes.

use super::{ConnectOptions, LOOK, TransferControl};
use crate::netns::within;
use crate::sys::inet_socket::{self, TcpInfo};
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

/// Polling interval without stamps of the kernel.
const GLANCE: Duration = Duration::from_micros(50);
/// Time to wait for data in flight when the run must end.
const FAREWELL: Duration = Duration::from_secs(1);
/// Maximum delay of a stamp after the count.
const STAMP: Duration = Duration::from_millis(10);

/// A TCP connection.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    peer: SocketAddr,
    written: u64,
    silence: Option<Duration>,
    /// True if the kernel stamps acknowledgements.
    is_stamped: bool,
    /// Bytes written up to the last marked one, whose stamp is pending.
    marked: Option<u64>,
}

/// Start of a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChunkStart {
    at: Instant,
    utc: u64,
}

impl Connection {
    /// Connects to a receiver.
    ///
    /// # Errors
    /// If the connection fails; [`super::explain`] has a text for users.
    pub fn open(to: SocketAddr, way: &ConnectOptions) -> io::Result<Self> {
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
        let is_stamped = inet_socket::enable_ack_timestamps(socket.as_fd()).is_ok();
        Ok(Connection { socket, peer: to, written: 0, silence: way.silence, is_stamped, marked: None })
    }

    /// Returns the peer's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Those of the system.
    pub fn local(&self) -> io::Result<SocketAddr> {
        Ok(getsockname(&self.socket)?.try_into()?)
    }

    /// Returns the congestion control and the send buffer size in use.
    ///
    /// # Errors
    /// Those of the system.
    pub fn manner(&self) -> io::Result<(String, usize)> {
        Ok((tcp_congestion(&self.socket)?, socket_send_buffer_size(&self.socket)?))
    }

    /// Returns the bytes handed to the kernel.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Returns the bytes that the peer has acknowledged; keeps its value after the connection is closed.
    pub fn acknowledged(&self) -> u64 {
        // The FIN counts as a byte until it is acknowledged.
        let outstanding = inet_socket::unacknowledged(self.socket.as_fd()).unwrap_or(self.written);
        self.written.saturating_sub(outstanding)
    }

    /// Returns the kernel's information on it.
    pub fn info(&self) -> TcpInfo {
        inet_socket::tcp_info(self.socket.as_fd()).unwrap_or_default()
    }

    /// Closes the sending side.
    pub(super) fn close(&mut self) -> io::Result<AckTimeout> {
        shutdown(&self.socket, Shutdown::Write)?;
        Ok(AckTimeout::new(self.silence, self.acknowledged()))
    }

    /// Waits until that is acknowledged. Returns the bytes that the peer sent, which are discarded.
    pub(super) fn leave(
        &mut self,
        patience: AckTimeout,
        ends: &mut DrainDeadline,
        watched: TransferControl<'_>,
    ) -> io::Result<u64> {
        self.settle_by(Self::now(), patience, ends, watched)?;
        // Unread data would make the kernel reset the connection on close.
        let (mut unread, mut buffer) = (0, [0; 4096]);
        while let Ok((got @ 1.., _)) = recv(&self.socket, &mut buffer, RecvFlags::DONTWAIT) {
            unread += got as u64;
        }
        Ok(unread)
    }

    pub(super) fn begin(&self) -> ChunkStart {
        Self::now()
    }

    /// Writes all bytes to the kernel, unless the run ends first.
    pub(super) fn write(&mut self, bytes: &[u8], is_last: bool, watched: TransferControl<'_>) -> io::Result<()> {
        let mut bytes = bytes;
        let mut patience = AckTimeout::new(self.silence, 0);
        while !bytes.is_empty() {
            let is_marked = is_last && self.is_stamped;
            let written = if is_marked {
                inet_socket::write_marked(self.socket.as_fd(), bytes)
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

    /// Waits until all is acknowledged; returns the time since the start. `None` if the run ended first.
    pub(super) fn settle(&mut self, since: ChunkStart, watched: TransferControl<'_>) -> io::Result<Option<Duration>> {
        self.settle_by(since, AckTimeout::new(self.silence, 0), &mut DrainDeadline::default(), watched)
    }

    fn settle_by(
        &mut self,
        since: ChunkStart,
        mut patience: AckTimeout,
        ends: &mut DrainDeadline,
        watched: TransferControl<'_>,
    ) -> io::Result<Option<Duration>> {
        let (mut stamp, mut settled) = (None, None);
        loop {
            while let Some(one) = inet_socket::acknowledged_at(self.socket.as_fd())? {
                // A write that the kernel took in several parts is marked at the end of each.
                if self.marked == Some(self.written) && self.written.wrapping_sub(1) as u32 == one.place {
                    (stamp, self.marked) = (Some(one.at), None);
                }
            }
            let outstanding = inet_socket::unacknowledged(self.socket.as_fd())?;
            if outstanding == 0 {
                // The count is updated a moment before the stamp is queued.
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

    /// Waits for an event of the kernel.
    fn wait(&self, longest: Duration) -> io::Result<()> {
        let longest = if self.is_stamped { longest } else { GLANCE };
        let timeout = Timespec { tv_sec: longest.as_secs() as _, tv_nsec: longest.subsec_nanos().into() };
        let mut fds = [PollFd::new(&self.socket, PollFlags::empty())];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// A reset is reported once; later errors only report a missing connection.
    fn reason(&self, error: io::Error) -> io::Error {
        match socket_error(&self.socket) {
            Ok(Err(first)) => first.into(),
            _ => error,
        }
    }

    fn now() -> ChunkStart {
        let utc = clock_gettime(ClockId::Realtime);
        ChunkStart { at: Instant::now(), utc: utc.tv_sec as u64 * 1_000_000_000 + utc.tv_nsec as u64 }
    }
}

/// Returns the time by the stamp, if any. Setting the clock in between cannot make a chunk longer than it was.
fn took(since: ChunkStart, stamp: Option<u64>, settled: Instant) -> Duration {
    let most = settled.saturating_duration_since(since.at);
    let by_stamp = stamp.and_then(|stamp| stamp.checked_sub(since.utc)).map(Duration::from_nanos);
    by_stamp.unwrap_or(most).min(most)
}

/// Deadline for data in flight when the run must end.
#[derive(Debug, Default)]
pub(super) struct DrainDeadline(Option<Instant>);

impl DrainDeadline {
    /// Returns whether it has passed; starts at the first call.
    fn is_over(&mut self) -> bool {
        self.0.get_or_insert_with(Instant::now).elapsed() > FAREWELL
    }
}

/// Acknowledgement timeout.
#[derive(Debug)]
pub(super) struct AckTimeout {
    most: Option<Duration>,
    last: (u64, Instant),
}

impl AckTimeout {
    fn new(most: Option<Duration>, acknowledged: u64) -> Self {
        AckTimeout { most, last: (acknowledged, Instant::now()) }
    }

    fn check(&mut self, acknowledged: u64) -> io::Result<()> {
        if acknowledged != self.last.0 {
            self.last = (acknowledged, Instant::now());
        }
        match self.most {
            Some(most) if self.last.1.elapsed() > most => {
                let text = format!("no acknowledgement for {} s", most.as_secs_f64());
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
            _ => Ok(()),
        }
    }
}

/// Opens a socket with the requested buffer and address.
pub(super) fn open(to: SocketAddr, kind: SocketType, way: &ConnectOptions) -> io::Result<OwnedFd> {
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

fn establish(socket: &OwnedFd, to: SocketAddr, way: &ConnectOptions) -> io::Result<()> {
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
    io::Error::other(format!("congestion control {name:?}: {error}; available: {}", known.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::TcpListener;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    /// As for a chunk of which the kernel took a part, and the rest when there was room.
    #[test]
    fn earlier_timestamp_does_not_count_for_the_last_byte() {
        const LATER: Duration = Duration::from_millis(50);
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(address).unwrap();
            let way = ConnectOptions { patience: Duration::from_secs(10), ..ConnectOptions::default() };
            let mut connection = Connection::open(listener.local_addr().unwrap(), &way).unwrap();
            let mut peer = listener.accept().unwrap().0;
            let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
            let watched = TransferControl { stop: &stop, written: &written };
            let begun = connection.begin();
            connection.write(b"first", true, watched).unwrap();
            while connection.acknowledged() < 5 {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(LATER);
            connection.write(b"and last", false, watched).unwrap();
            assert!(connection.settle(begun, watched).unwrap().unwrap() >= LATER, "{address}");
            // Each stamp names its byte.
            connection.write(b"more", true, watched).unwrap();
            let place = loop {
                if let Some(one) = inet_socket::acknowledged_at(connection.socket.as_fd()).unwrap() {
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
