//! The receiving side: a lane over one socket and its ring.

use super::config::{LINK_OVERHEAD, PacketConfig};
use crate::clocks::CardClock;
use crate::sys::packet_blocks::PacketBlocks;
use crate::sys::packet_ring::PacketRing;
use crate::sys::packet_socket::{PacketSocket, Statistics};
use linerate_burst::{Count, Flags, Horizon, Interface, Ledger, Nanos, Stage};
use linerate_filter::Insn;
use linerate_port::{Head, PortError, RxQueue};
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// Interval of polls while blocks arrive: short of their timeout.
const POLL_INTERVAL: Duration = Duration::from_micros(250);
/// Interval at which an idle queue checks whether its interface still exists.
const LOOK_AFTER: Duration = Duration::from_millis(10);
/// Margin beyond three block timeouts: a timer may be late on a busy machine.
const DETACH_MARGIN: Duration = Duration::from_millis(10);

/// Flags that are counted per frame.
const FLAGGED: [(Flags, Count); 3] = [
    (Flags::SUPER_FRAME, Count::SuperFrames),
    (Flags::VLAN_RESTORED, Count::VlanRestored),
    (Flags::CHECKSUM_PARTIAL, Count::ChecksumPartial),
];

pub(super) struct PacketRx {
    subject: String,
    interfaces: [Interface; 1],
    socket: PacketSocket,
    blocks: PacketBlocks,
    timing: Timing,
    /// Number of kernel filters of this queue that do not count rejected packets.
    uncounted_filter: u64,
    super_frame: u32,
    delivered: u64,
    flagged: [u64; FLAGGED.len()],
    downs: u64,
    /// Time of the last check for socket errors.
    looked: Nanos,
    /// Time since when no frames are taken; zero until the first fill after that.
    detached: Option<Nanos>,
    /// True if the interface is gone and this is still to be reported: its frames are shown first.
    removed: bool,
    statistics: Cell<Statistics>,
    /// Clock of a card that stamps frames.
    clock: Option<Arc<CardClock>>,
}

/// Times of a lane.
#[derive(Clone, Copy)]
pub(super) struct Timing {
    /// Maximum time from a frame's timestamp until it is visible.
    pub lag: Duration,
    /// Time after which the kernel hands over a block that is not full.
    pub block_timeout: Duration,
}

impl PacketRx {
    /// Creates a lane over a bound socket; frames longer than `mtu` are super-frames.
    pub(super) fn new(
        interface: Interface,
        subject: String,
        socket: PacketSocket,
        ring: PacketRing,
        wanted: &PacketConfig,
        mtu: u32,
        clock: Option<Arc<CardClock>>,
    ) -> Self {
        PacketRx {
            subject,
            interfaces: [interface],
            socket,
            blocks: PacketBlocks::new(ring),
            timing: wanted.timing,
            uncounted_filter: wanted.filter.rejects_uncounted(),
            super_frame: mtu.saturating_add(LINK_OVERHEAD),
            delivered: 0,
            flagged: [0; FLAGGED.len()],
            downs: 0,
            looked: Nanos::ZERO,
            detached: None,
            removed: false,
            statistics: Cell::default(),
            clock,
        }
    }

    fn count_flags(&mut self, new: usize) {
        let descs = self.blocks.descs();
        for desc in descs[descs.len() - new..].iter().filter(|desc| desc.flags != Flags::NONE) {
            for (count, (flag, _)) in self.flagged.iter_mut().zip(FLAGGED) {
                *count += u64::from(desc.flags.contains(flag));
            }
        }
    }

    /// Returns the horizon of the lane. Frames are stamped before they are stored, so one as old as `lag` may still
    /// appear.
    fn horizon(&mut self, now: Nanos, drained: bool) -> Horizon {
        if !drained {
            let newest = self.blocks.descs().last().map_or(Nanos::ZERO, |desc| desc.time);
            return Horizon::At(newest.min(now).before(self.timing.lag));
        }
        if let Some(since) = &mut self.detached {
            if *since == Nanos::ZERO || now < *since {
                *since = now;
            }
            // The last block is handed over after its timeout.
            if now.since(*since) > 3 * self.timing.block_timeout + DETACH_MARGIN {
                return Horizon::Ended;
            }
        }
        Horizon::At(now.before(self.timing.lag))
    }

    /// Checks the interface at intervals.
    fn look(&mut self, now: Nanos) -> Result<(), PortError> {
        // Check at once after the clock was set back.
        if now >= self.looked && now < self.looked.after(LOOK_AFTER) {
            return Ok(());
        }
        self.looked = now;
        let port = self.subject.clone();
        let down = match self.socket.take_error() {
            Ok(()) => false,
            Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => true,
            Err(error) => return Err(PortError::broken(port, error.to_string())),
        };
        self.downs += u64::from(down);
        // The kernel does not report the removal of an interface that was down.
        if self.downs > 0 && !self.socket.interface_exists() {
            self.removed = true;
            self.detached = Some(Nanos::ZERO);
            return Ok(());
        }
        if down { Err(PortError::Down { port }) } else { Ok(()) }
    }

    /// Returns the kernel's counters since the port was opened; reading resets the kernel's own.
    fn statistics(&self) -> Statistics {
        let mut sum = self.statistics.get();
        if let Ok(new) = self.socket.statistics() {
            sum.received += new.received;
            sum.dropped += new.dropped;
            sum.freezes += new.freezes;
        }
        self.statistics.set(sum);
        sum
    }
}

impl RxQueue for PacketRx {
    fn fill(&mut self, now: Nanos) -> Result<Head<'_>, PortError> {
        if let Some(clock) = &self.clock {
            self.blocks.set_line(clock.line(now));
        }
        let (new, drained) = self.blocks.refill(self.super_frame);
        self.count_flags(new);
        let horizon = self.horizon(now, drained);
        if drained && self.detached.is_none() && self.blocks.descs().is_empty() {
            self.look(now)?;
        }
        if self.removed && horizon == Horizon::Ended && self.blocks.descs().is_empty() {
            self.removed = false;
            return Err(PortError::removed(&self.subject));
        }
        Ok(Head { burst: self.blocks.shown(), horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        self.blocks.consume(frames);
        self.delivered += frames as u64;
    }

    fn detach(&mut self) {
        // Packets that the filter rejects are not counted as received either.
        if self.detached.is_none() && self.socket.attach(&[Insn::ret(0)]).is_ok() {
            self.detached = Some(Nanos::ZERO);
        }
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd().as_fd())
    }

    fn poll_interval(&self) -> Option<Duration> {
        // Blocks are handed over at intervals; frames in slots are visible at once.
        (!self.timing.block_timeout.is_zero()).then_some(POLL_INTERVAL)
    }

    fn counters(&self, ledger: &mut Ledger) {
        let statistics = self.statistics();
        let account = ledger.account(Stage::Receive, &self.subject);
        account.add(Count::Received, statistics.received).add(Count::Delivered, self.delivered);
        account.add(Count::RingFull, statistics.dropped).add(Count::Freezes, statistics.freezes);
        account.add(Count::BadRecord, self.blocks.bad()).add(Count::LinkDown, self.downs);
        account.add(Count::StampMissing, self.blocks.unstamped()).add(Count::FilterUncounted, self.uncounted_filter);
        for (frames, (_, count)) in self.flagged.into_iter().zip(FLAGGED) {
            account.add(count, frames);
        }
    }
}
