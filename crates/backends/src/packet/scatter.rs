//! Frames read one at a time, directly to their destination: a socket without a ring.
//!
//! Frames in the blocks of a ring must be copied once more. Here the kernel copies the headers of a frame to one buffer
//! and its payload to another, which is as fast as its own TCP receiver for super-frames: 64 KiB per call.
//!
//! The kernel strips VLAN tags, and such a simple read does not return them. Tagged frames are only counted.

use super::PacketConfig;
use crate::sys::packet_socket::PacketSocket;
use crate::virtio;
use linerate_burst::{Burst, Count, Flags, Horizon, Interface, Ledger, Nanos, Stage};
use linerate_filter::Insn;
use linerate_port::{Head, InterfaceInfo, PortError, RxQueue, ScatterQueue, ScatteredFrame};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};

/// Length to which a tagged frame is truncated; shorter than any frame.
const TAGGED: usize = 1;
/// Maximum tagged frames skipped per call.
const MOST_TAGGED: usize = 256;
/// Receive buffer: a reader that is away for a few milliseconds loses nothing at 100 Gb/s.
const BUFFER: u32 = 64 << 20;

pub(super) struct ScatterRx {
    subject: String,
    interfaces: [Interface; 1],
    socket: PacketSocket,
    delivered: u64,
    super_frames: u64,
    partial: u64,
    /// Frames with a VLAN tag, which are only counted.
    tagged: u64,
    downs: u64,
    /// Frames that matched the filter, and dropped ones; the kernel resets its own counters.
    statistics: Cell<(u64, u64)>,
    /// Number of kernel filters of this queue that do not count rejected packets.
    uncounted_filter: u64,
    is_detached: bool,
    /// True if all frames from before the detach are read.
    is_dry: bool,
}

impl ScatterRx {
    /// Opens a socket bound to an interface.
    pub(super) fn open(
        interface: Interface,
        subject: String,
        found: &InterfaceInfo,
        wanted: &mut PacketConfig,
        promiscuous: bool,
    ) -> io::Result<ScatterRx> {
        let socket = PacketSocket::open(found.index)?;
        socket.attach(&[Insn::ret(0)])?;
        socket.set(libc::PACKET_VNET_HDR, 1)?;
        socket.set(libc::PACKET_IGNORE_OUTGOING, 1)?;
        socket.set_receive_buffer(BUFFER)?;
        if promiscuous {
            socket.set_promiscuous()?;
        }
        fcntl_setfl(socket.fd(), OFlags::NONBLOCK)?;
        socket.bind(true)?;
        socket.statistics()?;
        wanted.filter.attach_untagged_to(&socket, TAGGED as u32)?;
        Ok(ScatterRx {
            subject,
            interfaces: [interface],
            socket,
            delivered: 0,
            super_frames: 0,
            partial: 0,
            tagged: 0,
            downs: 0,
            statistics: Cell::default(),
            uncounted_filter: wanted.filter.rejects_uncounted(),
            is_detached: false,
            is_dry: false,
        })
    }

    /// Returns a note on the receive buffer if it is smaller than requested.
    pub(super) fn note(&self) -> Option<String> {
        // The kernel includes its overhead, and doubles the requested size.
        let room = self.socket.receive_buffer().ok().filter(|room| *room < 2 * BUFFER)? / 2;
        Some(format!(
            "the receive buffer has {} of {} KiB without CAP_NET_ADMIN; run sysctl -w net.core.rmem_max={BUFFER}",
            room >> 10,
            BUFFER >> 10
        ))
    }

    /// Translates the error of a system call.
    fn failed(&mut self, error: Errno) -> Result<Option<ScatteredFrame>, PortError> {
        let port = self.subject.clone();
        match error {
            Errno::AGAIN | Errno::INTR => {
                self.is_dry = self.is_detached;
                Ok(None)
            }
            Errno::NETDOWN if self.socket.interface_exists() => {
                self.downs += 1;
                Err(PortError::Down { port })
            }
            Errno::NETDOWN | Errno::NODEV => Err(PortError::removed(port)),
            other => Err(PortError::broken(port, other.to_string())),
        }
    }
}

impl ScatterQueue for ScatterRx {
    fn read(&mut self, pieces: &mut [IoSliceMut<'_>]) -> Result<Option<ScatteredFrame>, PortError> {
        for _ in 0..MOST_TAGGED {
            let read = match virtio::read_frame(self.socket.fd(), pieces) {
                Ok(read) if read.len == TAGGED => {
                    self.tagged += 1;
                    continue;
                }
                Ok(read) => read,
                Err(error) => return self.failed(error),
            };
            self.delivered += 1;
            self.super_frames += u64::from(read.flags.contains(Flags::SUPER_FRAME));
            self.partial += u64::from(read.flags.contains(Flags::CHECKSUM_PARTIAL));
            return Ok(Some(read));
        }
        Ok(None)
    }
}

impl RxQueue for ScatterRx {
    fn fill(&mut self, now: Nanos) -> Result<Head<'_>, PortError> {
        let horizon = if self.is_dry { Horizon::Ended } else { Horizon::At(now) };
        Ok(Head { burst: Burst::EMPTY, horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        assert_eq!(frames, 0, "no frame was shown");
    }

    fn detach(&mut self) {
        if !self.is_detached {
            self.is_detached = self.socket.attach(&[Insn::ret(0)]).is_ok();
        }
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd().as_fd())
    }

    fn counters(&self, ledger: &mut Ledger) {
        let (mut received, mut dropped) = self.statistics.get();
        if let Ok(new) = self.socket.statistics() {
            (received, dropped) = (received + new.received, dropped + new.dropped);
        }
        self.statistics.set((received, dropped));
        let account = ledger.account(Stage::Receive, &self.subject);
        account.add(Count::Received, received).add(Count::Delivered, self.delivered);
        if self.tagged > 0 {
            account.add(Count::VlanUnseen, self.tagged);
        }
        account.add(Count::RingFull, dropped).add(Count::LinkDown, self.downs);
        account.add(Count::SuperFrames, self.super_frames).add(Count::ChecksumPartial, self.partial);
        account.add(Count::FilterUncounted, self.uncounted_filter);
    }

    fn scatter(&mut self) -> Option<&mut dyn ScatterQueue> {
        Some(self)
    }
}
