//! The receiving side: a lane over one queue of a program.

mod holding;
mod intake;

pub(super) use self::intake::{AreaIntake, Intake, Queue, SocketIntake};

use super::program::Word;
use crate::rtnl::{IFF_UP, Rtnetlink};
use linerate_burst::{Count, Horizon, Interface, Ledger, LinkType, Nanos, Stage, StampSource};
use linerate_port::{Head, Holding, PortError, RxQueue, Tallied};
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// How often an idle queue asks what has become of its interface.
const LOOK_AFTER: Duration = Duration::from_millis(10);
/// How often the difference between the clocks is read.
const CLOCKS_AFTER: Duration = Duration::from_secs(1);
/// After no more frames are taken, how long one may take that was on its way: a poll of the card's queue, on a
/// processor that was taken away meanwhile.
const DETACH_MARGIN: Duration = Duration::from_millis(10);

/// One lane.
pub(super) struct XdpRx {
    subject: String,
    interfaces: [Interface; 1],
    intake: Box<dyn Intake>,
    queue: Queue,
    interface: u32,
    netlink: Rtnetlink,
    lag: Duration,
    /// What the program had counted for this queue when it was opened.
    base: Counted,
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
pub(super) struct Parts {
    /// For the ledger and for errors.
    pub subject: String,
    /// The interface's name.
    pub interface: String,
    /// Where its frames come in.
    pub intake: Box<dyn Intake>,
    /// Which queue, and the program that feeds it.
    pub queue: Queue,
    /// The interface's number.
    pub index: u32,
    /// To ask about the interface.
    pub netlink: Rtnetlink,
    /// How long after its stamp a frame may show up.
    pub lag: Duration,
}

impl XdpRx {
    /// A lane; frames come once it is started.
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { subject, interface, intake, queue, index, netlink, lag } = parts;
        XdpRx {
            subject,
            interfaces: [Interface::new(&interface, LinkType::ETHERNET, StampSource::Xdp)],
            intake,
            interface: index,
            netlink,
            lag,
            base: Counted::of(&queue),
            queue,
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

    /// Asks now and then what has become of the interface.
    fn look(&mut self, now: Nanos) -> Result<(), PortError> {
        // A clock that was set back is no reason to look the less.
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

    /// Shows more frames if there are more; whether that is all there is.
    fn refill(&mut self, now: Nanos) -> bool {
        if now >= self.clocks_read.after(CLOCKS_AFTER) || now < self.clocks_read {
            self.clocks_read = now;
            self.intake.set_ahead(&self.queue, tai_offset());
        }
        self.intake.refill(&self.queue, now, self.detached.is_some())
    }
}

/// What the program has counted for a queue.
#[derive(Clone, Copy, Default)]
pub(super) struct Counted {
    head: u64,
    full: u64,
    bad: u64,
    tagged: u64,
    super_frames: u64,
    filtered: u64,
}

impl Counted {
    fn of(queue: &Queue) -> Self {
        let get = |word| queue.get(word);
        Counted {
            // Last: what is lost is never more than what is received.
            full: get(Word::Full),
            bad: get(Word::Bad),
            tagged: get(Word::Tagged),
            super_frames: get(Word::SuperFrames),
            filtered: get(Word::Filtered),
            head: get(Word::Head),
        }
    }

    fn since(self, base: Counted) -> Self {
        Counted {
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

    fn nap(&self) -> Option<Duration> {
        self.intake.nap()
    }

    fn tallied(&self) -> Option<&Tallied> {
        self.intake.tallied()
    }

    fn holding(&mut self) -> Option<&mut dyn Holding> {
        self.intake.segment().is_some().then_some(self as &mut dyn Holding)
    }

    fn counters(&self, ledger: &mut Ledger) {
        let counted = Counted::of(&self.queue).since(self.base);
        let account = ledger.account(Stage::Receive, &self.subject);
        let tallied = self.intake.tallied().map_or(0, |tallied| tallied.frames);
        account.add(Count::Delivered, self.delivered + tallied).add(Count::LinkDown, self.downs);
        self.intake.counters(&counted, account);
    }
}

impl Drop for XdpRx {
    fn drop(&mut self) {
        // Whoever sends through this socket keeps it open, and the program would go on to feed it.
        self.queue.set(Word::Open, 0);
        self.queue.set(Word::Read, 0);
        // The sending side of this socket, if nobody came for it: it would keep the queue occupied.
        self.queue.attachment.idle_senders().remove(&self.queue.number);
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
