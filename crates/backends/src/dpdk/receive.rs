//! The receiving side.

use crate::sys::dpdk_device::PluginRxQueue;
use crate::sys::dpdk_plugin::Stamps;
use linerate_burst::{Burst, Count, Horizon, Interface, Ledger, Nanos, Stage};
use linerate_port::{Head, PortError, RxQueue};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Maximum delay of frames stamped by a card.
pub(super) const LAG: Duration = Duration::from_millis(1);

pub(super) struct DpdkRx {
    subject: String,
    interfaces: [Interface; 1],
    queue: PluginRxQueue,
    snap: u32,
    lag: Duration,
    shown: usize,
    consumed: usize,
    /// Frames that the plugin has read, and shows next.
    waiting: usize,
    /// Highest horizon so far.
    horizon: Nanos,
    delivered: u64,
    joined: u64,
    tagged: u64,
    unstamped: u64,
    is_detached: bool,
}

impl DpdkRx {
    pub(super) fn new(subject: String, interface: Interface, queue: PluginRxQueue, snap: u32, lag: Duration) -> Self {
        DpdkRx {
            subject,
            interfaces: [interface],
            queue,
            snap: if snap == 0 { u32::MAX } else { snap },
            lag,
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

    /// Reads frames, and shows them in place.
    fn receive_frames(&mut self, now: Nanos) -> Result<(), PortError> {
        let taken = self.queue.take(self.snap, now);
        (self.shown, self.consumed, self.waiting) = (taken.frames, 0, taken.waiting);
        self.joined += taken.joined;
        self.tagged += taken.tagged;
        self.unstamped += taken.unstamped;
        self.horizon = match self.queue.device().info.stamps() {
            // Later reads have a later time.
            Stamps::Poll => now,
            Stamps::ByCard => now.before(self.lag),
            Stamps::Driver => self.burst()?.descs().iter().map(|desc| desc.time).max().unwrap_or(Nanos::ZERO),
        }
        .max(self.horizon);
        Ok(())
    }

    /// Returns the frames that are shown and not consumed.
    fn burst(&self) -> Result<Burst<'_>, PortError> {
        let burst = self.queue.burst(self.consumed..self.shown);
        burst.map_err(|error| PortError::broken(&self.subject, format!("invalid desc from the plugin: {error}")))
    }

    fn unconsumed(&self) -> usize {
        self.shown - self.consumed
    }
}

impl RxQueue for DpdkRx {
    fn fill(&mut self, now: Nanos) -> Result<Head<'_>, PortError> {
        if self.unconsumed() == 0 {
            self.receive_frames(now)?;
        }
        let has_ended = self.is_detached && self.unconsumed() == 0 && self.waiting == 0;
        let burst = self.burst()?;
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
