//! The receiving side: a lane over one queue of a program.

mod held_frames;
mod intake;

pub(super) use self::intake::{AreaIntake, Intake, Queue, SocketIntake};

use super::program::Word;
use crate::rtnl::{IFF_UP, Rtnetlink};
use linerate_burst::{Count, Horizon, Interface, Ledger, LinkType, Nanos, Stage, StampSource};
use linerate_port::{FrameTally, Head, HoldQueue, PortError, RxQueue};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Interval at which an idle queue checks its interface.
const LOOK_AFTER: Duration = Duration::from_millis(10);
/// Interval at which the difference between the clocks is read.
const CLOCKS_AFTER: Duration = Duration::from_secs(1);
/// Time that a frame in flight may take after the program stopped taking frames: a poll of the card's queue, on a
/// processor that was preempted.
const DETACH_MARGIN: Duration = Duration::from_millis(10);

pub(super) struct XdpRx {
    subject: String,
    interfaces: [Interface; 1],
    intake: Box<dyn Intake>,
    queue: Queue,
    interface: u32,
    netlink: Rtnetlink,
    lag: Duration,
    /// Counts of the program when this queue was opened.
    base: ProgramCounts,
    delivered: u64,
    downs: u64,
    is_down: bool,
    looked: Nanos,
    clocks_read: Nanos,
    /// The program's clock minus UTC.
    ahead: u64,
    /// Time since when no frames are taken; zero until the first fill after that.
    detached: Option<Nanos>,
    /// True if the interface is gone and this is still to be reported: its frames are shown first.
    removed: bool,
}

/// Parts of a lane.
pub(super) struct Parts {
    /// Name in the packet accounting and in errors.
    pub subject: String,
    pub interface: String,
    /// Source of its frames.
    pub intake: Box<dyn Intake>,
    /// The queue, and the program that feeds it.
    pub queue: Queue,
    /// Index of the interface.
    pub index: u32,
    /// Netlink socket to query the interface.
    pub netlink: Rtnetlink,
    /// Maximum time from a frame's timestamp until it is visible.
    pub lag: Duration,
}

impl XdpRx {
    /// Creates a lane; frames arrive once it is started.
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { subject, interface, intake, queue, index, netlink, lag } = parts;
        XdpRx {
            subject,
            interfaces: [Interface::new(&interface, LinkType::ETHERNET, StampSource::Xdp)],
            intake,
            interface: index,
            netlink,
            lag,
            base: ProgramCounts::of(&queue),
            queue,
            delivered: 0,
            downs: 0,
            is_down: false,
            looked: Nanos::ZERO,
            clocks_read: Nanos::ZERO,
            ahead: 0,
            detached: None,
            removed: false,
        }
    }

    /// Returns the horizon of the lane. A frame is stamped a little before it can be seen.
    fn horizon(&mut self, now: Nanos, drained: bool) -> Horizon {
        if !drained {
            let newest = self.intake.shown().descs().last().map_or(Nanos::ZERO, |desc| desc.time);
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

    /// Checks the interface at intervals.
    fn look(&mut self, now: Nanos) -> Result<(), PortError> {
        // Check at once after the clock was set back.
        if now >= self.looked && now < self.looked.after(LOOK_AFTER) {
            return Ok(());
        }
        self.looked = now;
        let flags = self.netlink.flags(self.interface);
        let (Some(flags), Ok(())) = (flags, self.intake.take_error()) else {
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

    /// Updates the difference between the program's clock and UTC.
    fn follow_clock(&mut self) {
        self.ahead = self.queue.attachment.clock().ahead(self.ahead);
        self.intake.set_ahead(&self.queue, self.ahead);
    }

    /// Shows more frames, if any; returns whether these are all.
    fn refill(&mut self, now: Nanos) -> bool {
        if now >= self.clocks_read.after(CLOCKS_AFTER) || now < self.clocks_read {
            self.clocks_read = now;
            self.follow_clock();
        }
        self.intake.refill(&self.queue, now, self.detached.is_some())
    }
}

/// Counts of a program for a queue.
#[derive(Clone, Copy, Default)]
pub(super) struct ProgramCounts {
    head: u64,
    full: u64,
    bad: u64,
    tagged: u64,
    super_frames: u64,
    filtered: u64,
}

impl ProgramCounts {
    fn of(queue: &Queue) -> Self {
        let get = |word| queue.get(word);
        ProgramCounts {
            // `head` last: losses must never exceed the frames received.
            full: get(Word::Full),
            bad: get(Word::Bad),
            tagged: get(Word::Tagged),
            super_frames: get(Word::SuperFrames),
            filtered: get(Word::Filtered),
            head: get(Word::Head),
        }
    }

    fn since(self, base: ProgramCounts) -> Self {
        ProgramCounts {
            head: self.head - base.head,
            full: self.full - base.full,
            bad: self.bad - base.bad,
            tagged: self.tagged - base.tagged,
            super_frames: self.super_frames - base.super_frames,
            filtered: self.filtered - base.filtered,
        }
    }
}

impl RxQueue for XdpRx {
    fn start(&mut self) {
        self.follow_clock();
        self.queue.set(Word::Open, 1);
    }

    fn fill(&mut self, now: Nanos) -> Result<Head<'_>, PortError> {
        let drained = self.refill(now);
        let horizon = self.horizon(self.intake.looked(now), drained);
        let is_empty = self.intake.shown().is_empty();
        if drained && self.detached.is_none() && is_empty {
            self.look(now)?;
        }
        if self.removed && horizon == Horizon::Ended && is_empty {
            self.removed = false;
            return Err(PortError::removed(&self.subject));
        }
        Ok(Head { burst: self.intake.shown(), horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        self.intake.consume(&self.queue, frames);
        self.delivered += frames as u64;
    }

    fn detach(&mut self) {
        if self.detached.is_none() {
            self.queue.set(Word::Open, 0);
            self.detached = Some(Nanos::ZERO);
        }
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        self.intake.wake(&self.queue)
    }

    fn poll_interval(&self) -> Option<Duration> {
        self.intake.poll_interval()
    }

    fn tallied(&self) -> Option<&FrameTally> {
        self.intake.tallied()
    }

    fn holding(&mut self) -> Option<&mut dyn HoldQueue> {
        self.intake.segment().is_some().then_some(self as &mut dyn HoldQueue)
    }

    fn counters(&self, ledger: &mut Ledger) {
        let counted = ProgramCounts::of(&self.queue).since(self.base);
        let account = ledger.account(Stage::Receive, &self.subject);
        let tallied = self.intake.tallied().map_or(0, |tallied| tallied.frames);
        account.add(Count::Delivered, self.delivered + tallied).add(Count::LinkDown, self.downs);
        self.intake.counters(&counted, account);
    }
}

impl Drop for XdpRx {
    fn drop(&mut self) {
        // A sender may keep this socket open, and the program would continue to feed it.
        self.queue.set(Word::Open, 0);
        self.queue.set(Word::Read, 0);
        // An unused sending side would keep the queue occupied.
        self.queue.attachment.idle_senders().remove(&self.queue.number);
    }
}
