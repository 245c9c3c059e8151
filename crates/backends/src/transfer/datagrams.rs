//! Datagrams of the kernel's UDP, each prefixed by its offset in the stream.

use super::connection::{is_passing, open};
use super::{ConnectOptions, LOOK, Source, TransferControl, pin};
use crate::netns::within;
use crate::sys::inet_socket;
use linerate_generate::Rate;
use rustix::net::sockopt::{Timeout, ip_mtu, ipv6_mtu, set_socket_timeout};
use rustix::net::{SendFlags, SocketType, connect, getsockname, send};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// Bytes of the prefix: the offset of the payload, big-endian.
pub(super) const HEAD: usize = 8;
/// Limits of segmentation offload in the kernel: datagrams, and their bytes.
const MOST_CUT: usize = 64;
const MOST_BYTES: usize = 65_000;
/// Maximum default datagram size.
const USUAL_MTU: u32 = 9000;
/// Maximum duration of a batch.
const TOGETHER: Duration = Duration::from_micros(100);

/// Rate and amount.
#[derive(Clone, Copy, Debug)]
pub struct DatagramPlan {
    /// Rate, measured in Ethernet frames.
    pub rate: Rate,
    /// Maximum bytes of payload.
    pub bytes: Option<u64>,
    /// Maximum duration.
    pub duration: Option<Duration>,
    /// Processor of its thread.
    pub cpu: Option<usize>,
}

/// A UDP socket and its options.
#[derive(Debug)]
pub struct Datagrams {
    socket: OwnedFd,
    size: usize,
    /// Datagrams per system call.
    batch: usize,
    /// True if the kernel segments a batch.
    is_cut: bool,
    overhead: u64,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct DatagramResult {
    /// Number of datagrams.
    pub datagrams: u64,
    /// Bytes of payload, without prefixes.
    pub bytes: u64,
    /// Datagrams refused by the peer (port unreachable).
    pub refused: u64,
    /// Duration.
    pub elapsed: Duration,
}

impl Datagrams {
    /// Opens a socket for datagrams of this size, including the prefix; by default the path MTU.
    ///
    /// # Errors
    /// If the destination is unreachable, or the size is invalid.
    pub fn open(to: SocketAddr, way: &ConnectOptions, size: Option<usize>) -> io::Result<Self> {
        let socket = within(way.netns.as_deref(), || open(to, SocketType::DGRAM, way))?;
        connect(&socket, &to)?;
        set_socket_timeout(&socket, Timeout::Send, Some(LOOK))?;
        let (mtu, head) = if to.is_ipv4() { (ip_mtu(&socket)?, 28) } else { (ipv6_mtu(&socket)?, 48) };
        let fits = mtu.min(USUAL_MTU).saturating_sub(head) as usize;
        let size = size.unwrap_or(fits);
        let most = 65_535 - if to.is_ipv4() { 28 } else { 8 };
        if size <= HEAD || size > most {
            return Err(io::Error::other(format!(
                "invalid datagram size; expected {} to {most} bytes including the prefix",
                HEAD + 1
            )));
        }
        let batch = (MOST_BYTES / size).clamp(1, MOST_CUT);
        let is_cut = batch > 1
            && size <= (mtu - head) as usize
            && inet_socket::cut_datagrams(socket.as_fd(), size as u16).is_ok();
        let batch = if is_cut { batch } else { 1 };
        Ok(Datagrams { socket, size, batch, is_cut, overhead: u64::from(head) + 14 })
    }

    /// Returns the bytes of a datagram, including the prefix.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// Those of the system.
    pub fn local(&self) -> io::Result<SocketAddr> {
        Ok(getsockname(&self.socket)?.try_into()?)
    }

    /// Sends datagrams. Returns the counts, and an error of the source or the kernel.
    pub fn send(
        &mut self,
        source: &mut impl Source,
        paced: DatagramPlan,
        watched: TransferControl<'_>,
    ) -> (DatagramResult, Option<io::Error>) {
        let mut sent = DatagramResult::default();
        let began = Instant::now();
        let result = paced.cpu.map_or(Ok(()), pin).and_then(|()| self.go(source, paced, watched, &mut sent));
        sent.elapsed = began.elapsed();
        (sent, result.err())
    }

    fn go(
        &mut self,
        source: &mut impl Source,
        paced: DatagramPlan,
        watched: TransferControl<'_>,
        sent: &mut DatagramResult,
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
            self.send_batch(&buffer[..filled], sent, watched)?;
        }
        Ok(())
    }

    /// Fills the buffer with datagrams; returns their bytes, and whether these are the last. Only the very last one is
    /// shorter; complete ones do not wait for more data of the source.
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

    /// Sends all of them, unless the run ends first.
    fn send_batch(&mut self, bytes: &[u8], sent: &mut DatagramResult, watched: TransferControl<'_>) -> io::Result<()> {
        if self.is_cut {
            match self.pass(bytes, sent, watched) {
                // The kernel cannot segment without checksum offload, or with encryption (before Linux 6.11 and with
                // IPsec), or after the path MTU has shrunk: send one at a time then.
                Err(error) if matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EMSGSIZE)) => {
                    inet_socket::cut_datagrams(self.socket.as_fd(), 0)?;
                    self.is_cut = false;
                }
                result => return result,
            }
        }
        bytes.chunks(self.size).try_for_each(|datagram| self.pass(datagram, sent, watched))
    }

    /// Sends a datagram, or several that the kernel segments. A refusal of earlier ones is reported by the next call,
    /// which is then repeated.
    fn pass(&self, bytes: &[u8], sent: &mut DatagramResult, watched: TransferControl<'_>) -> io::Result<()> {
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
