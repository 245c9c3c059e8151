//! The receiving side: a lane over one queue's socket.

use super::attach::Attachment;
use crate::rtnl::{IFF_UP, Rtnetlink};
use crate::sys::xsk_frames::{Reading, XskFrames};
use crate::sys::xsk_socket::XskSocket;
use linerate_burst::{Count, Horizon, Interface, Ledger, LinkType, Nanos, Stage, StampSource};
use linerate_port::{Head, PortError, RxQueue};
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

/// How often an idle queue asks what has become of its interface.
const LOOK_AFTER: Duration = Duration::from_millis(10);
/// How often the difference between the clocks is read.
const CLOCKS_AFTER: Duration = Duration::from_secs(1);
/// After no more frames are taken, how long one may take that was on its way: a poll of the card's queue, on a
/// processor that was taken away meanwhile.
const DETACH_MARGIN: Duration = Duration::from_millis(10);

/// One lane.
pub struct XdpRx {
    subject: String,
    interfaces: [Interface; 1],
    frames: XskFrames,
    socket: Arc<XskSocket>,
    attachment: Arc<Attachment>,
    queue: u32,
    interface: u32,
    netlink: Rtnetlink,
    lag: Duration,
    busy_poll: bool,
    reading: Reading,
    /// What the program had counted for this queue when it was opened.
    base: u64,
    delivered: u64,
    downs: u64,
    is_down: bool,
    looked: Nanos,
    clocks_read: Nanos,
    /// Since when nothing new is taken in; zero until the first fill after that.
    detached: Option<Nanos>,
    /// The interface is gone, and that is still to be said: what it had brought is shown first.
    removed: bool,
}

/// What a lane is made of.
pub struct Parts {
    /// For the ledger and for errors.
    pub subject: String,
    /// The interface's name.
    pub interface: String,
    /// The frames of the socket.
    pub frames: XskFrames,
    /// The socket, bound.
    pub socket: Arc<XskSocket>,
    /// The program that feeds it.
    pub attachment: Arc<Attachment>,
    /// Which queue.
    pub queue: u32,
    /// The interface's number.
    pub index: u32,
    /// To ask about the interface.
    pub netlink: Rtnetlink,
    /// How long after its stamp a frame may show up.
    pub lag: Duration,
    /// Calls drive the card's queue.
    pub busy_poll: bool,
    /// Frames longer than this are super-frames.
    pub super_frame: u32,
}

impl XdpRx {
    /// A lane; frames come once it is started.
    pub fn new(parts: Parts) -> Self {
        XdpRx {
            base: parts.attachment.redirected(parts.queue),
            interfaces: [Interface::new(&parts.interface, LinkType::ETHERNET, StampSource::Xdp)],
            subject: parts.subject,
            frames: parts.frames,
            socket: parts.socket,
            attachment: parts.attachment,
            queue: parts.queue,
            interface: parts.index,
            netlink: parts.netlink,
            lag: parts.lag,
            busy_poll: parts.busy_poll,
            reading: Reading {
                tai_offset: tai_offset(),
                now: Nanos::ZERO,
                stamped: true,
                super_frame: parts.super_frame,
            },
            delivered: 0,
            downs: 0,
            is_down: false,
            looked: Nanos::ZERO,
            clocks_read: Nanos::ZERO,
            detached: None,
            removed: false,
        }
    }

    /// How far the lane is complete. A frame is stamped a little before it can be seen.
    fn horizon(&mut self, now: Nanos, drained: bool) -> Horizon {
        if !drained {
            let newest = self.frames.descs().last().map_or(Nanos::ZERO, |desc| desc.time);
            return Horizon::At(newest.min(now).before(self.lag));
        }
        if let Some(since) = &mut self.detached {
            if *since == Nanos::ZERO || now < *since {
                *since = now;
            }
            if now.since(*since) > DETACH_MARGIN {
                return Horizon::Ended;
            }
        }
        Horizon::At(now.before(self.lag))
    }

    /// Asks now and then what has become of the interface.
    fn look(&mut self, now: Nanos) -> Result<(), PortError> {
        // A clock that was set back is no reason to look the less.
        if now >= self.looked && now < self.looked.after(LOOK_AFTER) {
            return Ok(());
        }
        self.looked = now;
        let flags = self.netlink.flags(self.interface);
        let (Some(flags), Ok(())) = (flags, self.socket.take_error()) else {
            self.removed = true;
            self.detached = Some(Nanos::ZERO);
            return Ok(());
        };
        let down = flags & IFF_UP == 0;
        let went_down = down && !self.is_down;
        self.is_down = down;
        self.downs += u64::from(went_down);
        if went_down { Err(PortError::Down { port: self.subject.clone() }) } else { Ok(()) }
    }

    fn wake_kernel(&self) {
        if self.busy_poll || self.frames.needs_wakeup() {
            self.socket.kick_receive();
        }
    }
}

impl RxQueue for XdpRx {
    fn start(&mut self) {
        self.attachment.set_open(self.queue, true);
    }

    fn fill(&mut self, now: Nanos) -> Result<Head<'_>, PortError> {
        if now >= self.clocks_read.after(CLOCKS_AFTER) || now < self.clocks_read {
            self.clocks_read = now;
            self.reading.tai_offset = tai_offset();
        }
        self.reading.now = now;
        self.reading.stamped = !self.attachment.lacks_metadata(self.queue);
        let drained = self.frames.refill(&self.reading);
        if drained {
            self.wake_kernel();
        }
        let horizon = self.horizon(now, drained);
        if drained && self.detached.is_none() && self.frames.descs().is_empty() {
            self.look(now)?;
        }
        if self.removed && horizon == Horizon::Ended && self.frames.descs().is_empty() {
            self.removed = false;
            return Err(PortError::removed(&self.subject));
        }
        Ok(Head { burst: self.frames.shown(), horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        self.frames.consume(frames);
        self.delivered += frames as u64;
    }

    fn detach(&mut self) {
        if self.detached.is_none() {
            self.attachment.set_open(self.queue, false);
            self.detached = Some(Nanos::ZERO);
        }
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd().as_fd())
    }

    fn counters(&self, ledger: &mut Ledger) {
        let statistics = self.socket.statistics();
        let counts = self.frames.counts();
        let account = ledger.account(Stage::Receive, &self.subject);
        account.add(Count::Received, self.attachment.redirected(self.queue) - self.base);
        account.add(Count::Delivered, self.delivered);
        account.add(Count::RingFull, statistics.ring_full).add(Count::NoBuffer, statistics.dropped);
        account.add(Count::FillEmpty, statistics.fill_empty);
        account.add(Count::BadRecord, counts.bad).add(Count::LinkDown, self.downs);
        account.add(Count::Joined, counts.joined).add(Count::SuperFrames, counts.super_frames);
        account.add(Count::VlanRestored, counts.vlan_restored).add(Count::Unstamped, counts.unstamped);
    }
}

impl Drop for XdpRx {
    fn drop(&mut self) {
        // Whoever sends through this socket keeps it open, and the program would go on to feed it.
        self.attachment.set_open(self.queue, false);
        // The sending side of this socket, if nobody came for it: it would keep the queue occupied.
        self.attachment.idle_senders().remove(&self.queue);
    }
}

/// How far International Atomic Time is ahead of UTC on this machine: whole seconds, 0 where nobody has told
/// the kernel.
fn tai_offset() -> u64 {
    let nanos = |time: Timespec| i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec);
    let Ok(tai) = clock_gettime_dynamic(DynamicClockId::Tai) else { return 0 };
    let ahead = nanos(tai) - nanos(clock_gettime(ClockId::Realtime));
    ((ahead + 500_000_000).div_euclid(1_000_000_000).max(0) * 1_000_000_000) as u64
}
