//! Frames read one at a time, straight to where they are wanted: a socket without a ring.
//!
//! What a ring stores in blocks of its own has to be copied from there once more. Here the kernel copies the headers of a frame to one
//! place and its payload to another, which is as fast as its own TCP receiver where super-frames come: 64 KiB a call.
//!
//! The kernel takes VLAN tags out, and a read as simple as this one does not tell which. Frames that had one are counted, no more.

use super::Wanted;
use crate::sys::packet_socket::PacketSocket;
use crate::virtio;
use linerate_burst::{Burst, Count, Flags, Horizon, Interface, Ledger, Nanos, Stage};
use linerate_filter::Insn;
use linerate_port::{Found, Head, PortError, RxQueue, Scatter, Scattered};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::Errno;
use std::cell::Cell;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd};

/// As so many bytes comes what had a VLAN tag; shorter than any frame.
const TAGGED: usize = 1;
/// So many of these are passed over at once.
const MOST_TAGGED: usize = 256;
/// What the kernel may keep for us: a reader that is away for a few milliseconds loses nothing at 100 Gb/s.
const BUFFER: u32 = 64 << 20;

/// The one lane of such a port.
pub(super) struct ScatterRx {
    subject: String,
    interfaces: [Interface; 1],
    socket: PacketSocket,
    delivered: u64,
    super_frames: u64,
    partial: u64,
    /// Frames that had a tag, of which nothing else is known.
    tagged: u64,
    downs: u64,
    /// Frames that passed the filter, and those for which there was no room; the kernel resets its own.
    statistics: Cell<(u64, u64)>,
    /// Filters of this queue that do not count what they reject.
    uncounted_filter: u64,
    is_detached: bool,
    /// Nothing is left of what had come before that.
    is_dry: bool,
}

impl ScatterRx {
    /// A bound socket of an interface.
    pub(super) fn open(
        interface: Interface,
        subject: String,
        found: &Found,
        wanted: &mut Wanted,
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

    /// What is to be said of the room for what is not read yet, if it is less than was asked for.
    pub(super) fn note(&self) -> Option<String> {
        // The kernel counts its own part of the memory too, and doubles what is asked for.
        let room = self.socket.receive_buffer().ok().filter(|room| *room < 2 * BUFFER)? / 2;
        Some(format!(
            "the buffer has {} of {} KiB, as CAP_NET_ADMIN is missing: sysctl -w net.core.rmem_max={BUFFER}",
            room >> 10,
            BUFFER >> 10
        ))
    }

    /// What a failed call says of the interface.
    fn failed(&mut self, error: Errno) -> Result<Option<Scattered>, PortError> {
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

impl Scatter for ScatterRx {
    fn read(&mut self, pieces: &mut [IoSliceMut<'_>]) -> Result<Option<Scattered>, PortError> {
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

    fn scatter(&mut self) -> Option<&mut dyn Scatter> {
        Some(self)
    }
}
