//! Sending in place: the kernel copies frames from the area that a program wrote them into, without an skb (see
//! [`xdp_live`](crate::xdp_live)).
//!
//! The peer decides whether an interface can do that: a veth's peer needs an XDP program or GRO. The kernel is
//! therefore polled regularly, and AF_XDP, which copies, sends the rest.

use crate::drivers;
use crate::rtnl::{XDP_SENDS, XdpFeatures};
use crate::sys::area::Area;
use crate::sys::bpf::Map;
use crate::xdp_live::interface::{Interface, LEAST_FRAME};
use crate::xdp_live::loaded_program;
use crate::xdp_live::ring::{FRAMES, Ring};
use crate::xdp_live::shared_state::LiveCounts;
use linerate_burst::{Account, Count, Nanos};
use linerate_port::{HeldFrame, InterfaceInfo, PortError, Region, Sent};
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which the interface is polled.
const ASK_AFTER: Duration = Duration::from_millis(500);

/// Resources to send in place, created when the interface is opened.
pub(super) struct InPlaceResources {
    interface: Interface,
    index: u32,
    features: XdpFeatures,
    devmap: Map,
}

impl InPlaceResources {
    /// Opens them; `None` if the kernel does not report the interface's features, or lacks in-place sending. Call it
    /// inside the interface's namespace.
    pub(super) fn new(subject: &str, found: &InterfaceInfo) -> Option<Self> {
        if drivers::damages(found).is_some() {
            return None;
        }
        let interface = Interface::new(subject.to_owned(), &found.name, &found.driver).ok()?;
        let (features, devmap) = (XdpFeatures::new()?, loaded_program::devmap(found.index).ok()?);
        Some(InPlaceResources { interface, index: found.index, features, devmap })
    }

    fn sends(&self) -> bool {
        self.features.of(self.index).is_some_and(|features| features & XDP_SENDS != 0)
    }
}

/// Frames of an area, sent in place.
pub(super) struct InPlaceSender {
    way: InPlaceResources,
    area: Arc<Area>,
    ring: Ring,
    /// Frames in the ring.
    waiting: Vec<HeldFrame>,
    /// Result of the last check whether the interface supports it, and its time.
    sends: bool,
    asked: Nanos,
    /// True if the kernel denies it to this process.
    is_refused: bool,
    received: u64,
    sent: Sent,
}

impl InPlaceSender {
    /// Loads the program that sends from an area.
    pub(super) fn new(way: InPlaceResources, area: Arc<Area>) -> io::Result<Self> {
        let ring = Ring::over(&way.devmap, &area)?;
        let way = InPlaceResources { interface: way.interface.limited(ring.longest_live()), ..way };
        let (sends, sent) = (way.sends(), Sent::default());
        Ok(InPlaceSender {
            way,
            area,
            ring,
            waiting: Vec::new(),
            sends,
            asked: Nanos::ZERO,
            is_refused: false,
            received: 0,
            sent,
        })
    }

    /// Returns whether frames of this region can be sent.
    pub(super) fn is_over(&self, region: &Region) -> bool {
        region.memory::<Area>().is_some_and(|area| Arc::ptr_eq(&area, &self.area))
    }

    /// Checks regularly whether the interface supports it.
    pub(super) fn look(&mut self, now: Nanos) {
        if !self.is_refused && (now >= self.asked.after(ASK_AFTER) || now < self.asked) {
            self.asked = now;
            self.sends = self.way.sends();
        }
    }

    /// Returns whether a frame of this length can be sent now, given room.
    pub(super) fn suits(&self, length: usize) -> bool {
        self.sends && (LEAST_FRAME..=self.way.interface.longest_live()).contains(&length)
    }

    /// Copies the bytes of a frame.
    pub(super) fn copy(&self, held: &HeldFrame, to: &mut Vec<u8>) {
        to.resize(held.desc.captured as usize, 0);
        self.area.copy_out(held.desc.offset as usize, to);
    }

    /// Returns whether one more frame can be queued.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < FRAMES
    }

    /// Queues frames; the caller checks for room.
    pub(super) fn extend(&mut self, frames: impl IntoIterator<Item = HeldFrame>) {
        for held in frames {
            let is_taken = self.ring.push_placed(held.desc.offset as usize, held.desc.captured as usize);
            assert!(is_taken, "no more are taken than there is room for");
            self.received += 1;
            self.waiting.push(held);
        }
    }

    /// Sends all queued frames; their memory goes to `done`. If the kernel denies it to this process, unsent frames go
    /// to `rest`, and in-place sending is disabled.
    pub(super) fn run(&mut self, done: &mut Vec<HeldFrame>, rest: &mut Vec<HeldFrame>) -> Result<(), PortError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let (before, bytes) = (self.ring.counts(), self.ring.bytes());
        let result = self.ring.run();
        let after = self.ring.counts();
        let (frames, made) = (after.sent - before.sent, after.made - before.made);
        self.sent.frames += frames;
        self.sent.bytes += (u128::from(bytes) * u128::from(frames) / u128::from(made.max(1))) as u64;
        let left = self.waiting.split_off(self.waiting.len() - self.ring.waiting());
        done.append(&mut self.waiting);
        if result.is_err() {
            // As before Linux 6.5, which needs CAP_BPF for each call.
            (self.sends, self.is_refused) = (false, true);
            self.received -= left.len() as u64;
            self.ring.clear();
            rest.extend(left);
            return Ok(());
        }
        let judged = self.way.interface.check_counts(self.ring.state(), before, after);
        if judged.is_err() {
            // The peer has changed: use AF_XDP until the next check.
            self.sends = false;
        }
        match judged {
            Err(PortError::Broken { .. }) if self.way.interface.longest().is_ok() => Ok(()),
            judged => judged,
        }
    }

    /// Returns the frames and bytes sent.
    pub(super) fn sent(&self) -> Sent {
        self.sent
    }

    /// Adds to the account of the queue.
    pub(super) fn counters(&self, account: &mut Account) {
        let kernel = self.ring.counts();
        let kernel = LiveCounts { made: kernel.made + kernel.failed, ..kernel };
        account.add(Count::SendReceived, self.received).add(Count::Sent, kernel.sent);
        account.add(Count::SendDropped, kernel.dropped).add(Count::SendRefused, kernel.refused());
        account.add(Count::TooLong, kernel.too_long).add(Count::SendUnsent, self.waiting.len() as u64);
    }
}
