//! Datagrams of the kernel's UDP, each with its place in the stream in front.

use super::connection::{is_passing, open};
use super::{LOOK, Source, Watched, Way, pin};
use crate::netns::within;
use crate::sys::outgoing;
use linerate_generate::Rate;
use rustix::net::sockopt::{Timeout, ip_mtu, ipv6_mtu, set_socket_timeout};
use rustix::net::{SendFlags, SocketType, connect, getsockname, send};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// The byte offset of what follows, big-endian.
pub(super) const HEAD: usize = 8;
/// What the kernel cuts at a time: datagrams, and their bytes.
const MOST_CUT: usize = 64;
const MOST_BYTES: usize = 65_000;
/// Longer ones are not chosen by themselves.
const USUAL_MTU: u32 = 9000;
/// What is due together is no more than this long.
const TOGETHER: Duration = Duration::from_micros(100);

/// How fast, how much.
#[derive(Clone, Copy, Debug)]
pub struct Paced {
    /// How fast; by frames of Ethernet.
    pub rate: Rate,
    /// No more than so many bytes of payload.
    pub bytes: Option<u64>,
    /// No longer than this.
    pub duration: Option<Duration>,
    /// The processor its thread stays on.
    pub cpu: Option<usize>,
}

/// Where datagrams go.
#[derive(Debug)]
pub struct Datagrams {
    socket: OwnedFd,
    size: usize,
    /// So many are handed over at a time.
    batch: usize,
    /// The kernel cuts them.
    is_cut: bool,
    overhead: u64,
}

/// What became of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct DatagramsSent {
    /// How many.
    pub datagrams: u64,
    /// Bytes of payload, without their places.
    pub bytes: u64,
    /// Those that the other host said nobody there wants.
    pub refused: u64,
    /// How long it took.
    pub elapsed: Duration,
}

impl Datagrams {
    /// Those of this size, their place among it; none is what the way takes without fragments.
    ///
    /// # Errors
    /// If there is no way there, or the size is none.
    pub fn open(to: SocketAddr, way: &Way, size: Option<usize>) -> io::Result<Self> {
        let socket = within(way.netns.as_deref(), || open(to, SocketType::DGRAM, way))?;
        connect(&socket, &to)?;
        set_socket_timeout(&socket, Timeout::Send, Some(LOOK))?;
        let (mtu, head) = if to.is_ipv4() { (ip_mtu(&socket)?, 28) } else { (ipv6_mtu(&socket)?, 48) };
        let fits = mtu.min(USUAL_MTU).saturating_sub(head) as usize;
        let size = size.unwrap_or(fits);
        let most = 65_535 - if to.is_ipv4() { 28 } else { 8 };
        if size <= HEAD || size > most {
            return Err(io::Error::other(format!(
                "datagrams have {} to {most} bytes, their place among them",
                HEAD + 1
            )));
        }
        let batch = (MOST_BYTES / size).clamp(1, MOST_CUT);
        let is_cut =
            batch > 1 && size <= (mtu - head) as usize && outgoing::cut_datagrams(socket.as_fd(), size as u16).is_ok();
        let batch = if is_cut { batch } else { 1 };
        Ok(Datagrams { socket, size, batch, is_cut, overhead: u64::from(head) + 14 })
    }

    /// Bytes of a datagram, its place among them.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Where they come from.
    ///
    /// # Errors
    /// Those of the system.
    pub fn local(&self) -> io::Result<SocketAddr> {
        Ok(getsockname(&self.socket)?.try_into()?)
    }

    /// Sends. What was sent, and why no more could be: the source cannot be read, or the kernel sends no more.
    pub fn send(
        &mut self,
        source: &mut impl Source,
        paced: Paced,
        watched: Watched<'_>,
    ) -> (DatagramsSent, Option<io::Error>) {
        let mut sent = DatagramsSent::default();
        let began = Instant::now();
        let result = paced.cpu.map_or(Ok(()), pin).and_then(|()| self.go(source, paced, watched, &mut sent));
        sent.elapsed = began.elapsed();
        (sent, result.err())
    }

    fn go(
        &mut self,
        source: &mut impl Source,
        paced: Paced,
        watched: Watched<'_>,
        sent: &mut DatagramsSent,
    ) -> io::Result<()> {
        let began = Instant::now();
        let frame = self.size as u64 + self.overhead;
        let due = |datagrams: u64| match paced.rate {
            Rate::Top => Duration::ZERO,
            rate => Duration::from_nanos(rate.nanos(datagrams, datagrams * frame)),
        };
        let together = (1..=self.batch).rev().find(|count| due(*count as u64) <= TOGETHER).unwrap_or(1);
        let mut buffer = vec![0; together * self.size];
        let mut is_over = false;
        let is_late = || paced.duration.is_some_and(|duration| began.elapsed() >= duration);
        let ends = || watched.is_stopped() || is_late();
        while !is_over && !watched.is_stopped() {
            let wait = due(sent.datagrams).saturating_sub(began.elapsed());
            if !wait.is_zero() {
                std::thread::sleep(wait.min(LOOK));
                continue;
            }
            if is_late() {
                break;
            }
            let left = paced.bytes.map_or(u64::MAX, |bytes| bytes - sent.bytes);
            let filled;
            (filled, is_over) = self.fill(&mut buffer, source, sent.bytes, left, &ends)?;
            self.hand_over(&buffer[..filled], sent, watched)?;
        }
        Ok(())
    }

    /// Datagrams side by side: their bytes in the buffer, and whether these are the last. Only the last of all is shorter; whole
    /// ones do not wait for another of which the source has nothing yet.
    fn fill(
        &self,
        buffer: &mut [u8],
        source: &mut impl Source,
        offset: u64,
        left: u64,
        ends: &impl Fn() -> bool,
    ) -> io::Result<(usize, bool)> {
        let (mut filled, mut payload) = (0, 0);
        for datagram in buffer.chunks_exact_mut(self.size) {
            let (head, body) = datagram.split_at_mut(HEAD);
            let room = usize::try_from(left - payload).map_or(body.len(), |left| left.min(body.len()));
            let at = offset + payload;
            head.copy_from_slice(&at.to_be_bytes());
            let mut made = 0;
            while made < room {
                match source.next(at + made as u64, &mut body[made..room]) {
                    Ok(0) => break,
                    Ok(more) => made += more,
                    Err(error) if !is_passing(&error) => return Err(error),
                    Err(_) if ends() => break,
                    Err(_) if made == 0 && filled > 0 => return Ok((filled, false)),
                    Err(_) => {}
                }
            }
            if made == 0 {
                return Ok((filled, true));
            }
            filled += HEAD + made;
            payload += made as u64;
            if made < body.len() {
                return Ok((filled, true));
            }
        }
        Ok((filled, false))
    }

    /// Hands all of them to the kernel, unless the run ends first.
    fn hand_over(&mut self, bytes: &[u8], sent: &mut DatagramsSent, watched: Watched<'_>) -> io::Result<()> {
        if self.is_cut {
            match self.pass(bytes, sent, watched) {
                // It cuts none where nobody behind it calculates checksums, or encrypts (before Linux 6.11 and with IPsec), or where
                // the way has become too narrow for them in one packet: it takes each by itself then.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE)) => {
                    outgoing::cut_datagrams(self.socket.as_fd(), 0)?;
                    self.is_cut = false;
                }
                result => return result,
            }
        }
        bytes.chunks(self.size).try_for_each(|datagram| self.pass(datagram, sent, watched))
    }

    /// One, or several that the kernel cuts. That nobody wants those before is told by the next one, which is then sent again.
    fn pass(&self, bytes: &[u8], sent: &mut DatagramsSent, watched: Watched<'_>) -> io::Result<()> {
        while !watched.is_stopped() {
            match send(&self.socket, bytes, SendFlags::NOSIGNAL).map_err(io::Error::from) {
                Ok(_) => {
                    let datagrams = bytes.len().div_ceil(self.size);
                    let payload = bytes.len() - datagrams * HEAD;
                    sent.datagrams += datagrams as u64;
                    sent.bytes += payload as u64;
                    watched.add(payload);
                    break;
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => sent.refused += 1,
                Err(error) if is_passing(&error) => {}
                // The interface's queue is full.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => std::thread::sleep(TOGETHER),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
