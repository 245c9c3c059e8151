//! The receiving side.

use crate::sys::dpdk_device::{Area, Receiving};
use crate::sys::dpdk_plugin::Stamps;
use linerate_burst::{Count, Horizon, Interface, Ledger, Nanos, Stage};
use linerate_port::{Head, PortError, RxQueue};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// What is shown at a time: frames, and room for the bytes of so many of an ordinary length.
const FRAMES: usize = 512;
const BYTES: usize = FRAMES * 2048;
/// How late frames may be that a card has stamped.
pub(super) const LAG: Duration = Duration::from_millis(1);

/// One lane.
pub(super) struct DpdkRx {
    subject: String,
    interfaces: [Interface; 1],
    queue: Receiving,
    snap: u32,
    lag: Duration,
    area: Area,
    shown: usize,
    consumed: usize,
    /// Frames that the plugin has read, and shows next.
    waiting: usize,
    /// The furthest horizon so far.
    horizon: Nanos,
    delivered: u64,
    joined: u64,
    tagged: u64,
    unstamped: u64,
    is_detached: bool,
}

impl DpdkRx {
    pub fn new(subject: String, interface: Interface, queue: Receiving, snap: u32, lag: Duration) -> Self {
        DpdkRx {
            subject,
            interfaces: [interface],
            queue,
            snap: if snap == 0 { u32::MAX } else { snap },
            lag,
            area: Area::new(BYTES, FRAMES),
            shown: 0,
            consumed: 0,
            waiting: 0,
            horizon: Nanos::ZERO,
            delivered: 0,
            joined: 0,
            tagged: 0,
            unstamped: 0,
            is_detached: false,
        }
    }

    /// Reads what is there, as far as there is room.
    fn take_in(&mut self, now: Nanos) -> Result<(), PortError> {
        let taken = self.queue.take(&mut self.area, self.snap, now);
        (self.shown, self.consumed, self.waiting) = (taken.frames, 0, taken.waiting);
        self.joined += taken.joined;
        self.tagged += taken.tagged;
        self.unstamped += taken.unstamped;
        let burst = self.area.burst(0..self.shown);
        let burst = burst.map_err(|error| PortError::broken(&self.subject, format!("the plugin is wrong: {error}")))?;
        self.horizon = match self.queue.device().info.stamps() {
            // What is read later has a later time.
            Stamps::Poll => now,
            Stamps::ByCard => now.before(self.lag),
            Stamps::Driver => burst.descs().iter().map(|desc| desc.time).max().unwrap_or(Nanos::ZERO),
        }
        .max(self.horizon);
        Ok(())
    }

    fn unconsumed(&self) -> usize {
        self.shown - self.consumed
    }
}

impl RxQueue for DpdkRx {
    fn fill(&mut self, now: Nanos) -> Result<Head<'_>, PortError> {
        if self.unconsumed() == 0 {
            self.take_in(now)?;
        }
        let has_ended = self.is_detached && self.unconsumed() == 0 && self.waiting == 0;
        let burst = self.area.burst(self.consumed..self.shown);
        let burst = burst.map_err(|error| PortError::broken(&self.subject, format!("the plugin is wrong: {error}")))?;
        let horizon = if has_ended { Horizon::Ended } else { Horizon::At(self.horizon) };
        Ok(Head { burst, horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        let shown = self.unconsumed();
        assert!(frames <= shown, "{frames} frames consumed, {shown} shown");
        self.consumed += frames;
        self.delivered += frames as u64;
    }

    fn detach(&mut self) {
        self.is_detached = true;
        self.queue.detach();
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn counters(&self, ledger: &mut Ledger) {
        let account = ledger.account(Stage::Receive, &self.subject);
        account.add(Count::Received, self.delivered + self.unconsumed() as u64).add(Count::Delivered, self.delivered);
        account.add(Count::Joined, self.joined).add(Count::VlanRestored, self.tagged);
        account.add(Count::Unstamped, self.unstamped);
    }
}
