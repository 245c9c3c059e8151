//! The receiving side: a lane over one queue's socket, or over its segment of an area.

mod holding;

use super::attach::Attachment;
use super::program::{SHORTEST, Word};
use super::tally::Tally;
use crate::rtnl::{IFF_UP, Rtnetlink};
use crate::sys::area::Segment;
use crate::sys::bell::Bell;
use crate::sys::xsk_frames::{Reading, XskFrames};
use crate::sys::xsk_socket::XskSocket;
use linerate_burst::{Burst, Count, Horizon, Interface, Ledger, LinkType, Nanos, Stage, StampSource};
use linerate_port::{Head, Holding, PortError, RxQueue, Tallied};
use rustix::time::{ClockId, DynamicClockId, Timespec, clock_gettime, clock_gettime_dynamic};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// How often an idle queue asks what has become of its interface.
const LOOK_AFTER: Duration = Duration::from_millis(10);
/// How often the difference between the clocks is read.
const CLOCKS_AFTER: Duration = Duration::from_secs(1);
/// After no more frames are taken, how long one may take that was on its way: a poll of the card's queue, on a
/// processor that was taken away meanwhile.
const DETACH_MARGIN: Duration = Duration::from_millis(10);

/// How often a program that writes frames is asked for more: each look takes a line of memory away from it, which costs it more
/// than the frame (measured on a veth: 4.0 M frames/s looked at all the time, 11.4 every 100 us).
const ASK_AFTER: Duration = Duration::from_micros(20);

/// How long a reader that is in no hurry waits meanwhile, instead of looking at the clock: the processor that brings the frames is
/// often the other half of its own, and is slowed by that too.
const NAP: Duration = Duration::from_micros(100);

/// Frames of which no more are asked for.
const ENOUGH: usize = 1024;

/// Where a lane's frames lie.
pub enum Frames {
    /// In the memory of a socket.
    Socket(XskFrames, Arc<XskSocket>),
    /// Where the program wrote them.
    Segment(Segment),
    /// Nowhere: they are counted.
    Tally(Tally),
}

/// One lane.
pub struct XdpRx {
    subject: String,
    interfaces: [Interface; 1],
    frames: Frames,
    attachment: Arc<Attachment>,
    queue: u32,
    interface: u32,
    netlink: Rtnetlink,
    lag: Duration,
    busy_poll: bool,
    reading: Reading,
    /// What the program had counted for this queue when it was opened.
    base: Counted,
    /// When a program that writes frames was asked last.
    asked: Nanos,
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
    /// Its frames.
    pub frames: Frames,
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
    /// Most bytes of a frame that are wanted; 0 for all.
    pub snap: u32,
}

impl XdpRx {
    /// A lane; frames come once it is started.
    pub fn new(parts: Parts) -> Self {
        if matches!(parts.frames, Frames::Segment(_)) {
            let snap = if parts.snap == 0 { 0 } else { parts.snap.max(SHORTEST as u32) };
            parts.attachment.set(Word::Snap, parts.queue, snap.into());
        }
        XdpRx {
            base: Counted::of(&parts.attachment, parts.queue),
            asked: Nanos::ZERO,
            interfaces: [Interface::new(&parts.interface, LinkType::ETHERNET, StampSource::Xdp)],
            subject: parts.subject,
            frames: parts.frames,
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
            let newest = self.frames.shown().descs().last().map_or(Nanos::ZERO, |desc| desc.time);
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
        let (Some(flags), Ok(())) = (flags, self.frames.take_error()) else {
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

    /// Tells the program what it may write again.
    fn give_back(&self) {
        if let Frames::Segment(segment) = &self.frames {
            let (tail, freed) = segment.position();
            self.attachment.set(Word::Freed, self.queue, freed);
            self.attachment.set(Word::Tail, self.queue, tail);
        }
    }

    /// Shows more frames if there are more; whether that is all there is.
    fn refill(&mut self, now: Nanos) -> bool {
        if now >= self.clocks_read.after(CLOCKS_AFTER) || now < self.clocks_read {
            self.clocks_read = now;
            self.reading.tai_offset = tai_offset();
            if matches!(self.frames, Frames::Segment(_)) {
                self.attachment.set(Word::Ahead, self.queue, self.reading.tai_offset);
            }
        }
        match &mut self.frames {
            Frames::Socket(frames, socket) => {
                self.reading.now = now;
                self.reading.stamped = self.attachment.get(Word::Unstamped, self.queue) == 0;
                let drained = frames.refill(&self.reading);
                if drained && (self.busy_poll || frames.needs_wakeup()) {
                    socket.kick_receive();
                }
                drained
            }
            Frames::Segment(segment) => {
                let is_due = now >= self.asked.after(ASK_AFTER) || now < self.asked || self.detached.is_some();
                if segment.waiting() < ENOUGH && is_due {
                    self.asked = now;
                    self.attachment.bell().into_iter().for_each(Bell::quiet);
                    segment.set_head(self.attachment.get(Word::Head, self.queue));
                }
                segment.waiting() == segment.shown().len()
            }
            Frames::Tally(tally) => {
                tally.read(&self.attachment, self.queue);
                true
            }
        }
    }
}

impl Frames {
    fn shown(&self) -> Burst<'_> {
        match self {
            Frames::Socket(frames, _) => frames.shown(),
            Frames::Segment(segment) => segment.shown(),
            Frames::Tally(_) => Burst::EMPTY,
        }
    }

    fn take_error(&self) -> io::Result<()> {
        match self {
            Frames::Socket(_, socket) => socket.take_error(),
            Frames::Segment(_) | Frames::Tally(_) => Ok(()),
        }
    }
}

/// What the program has counted for a queue.
#[derive(Clone, Copy, Default)]
struct Counted {
    head: u64,
    full: u64,
    bad: u64,
    tagged: u64,
    super_frames: u64,
    filtered: u64,
}

impl Counted {
    fn of(attachment: &Attachment, queue: u32) -> Self {
        let get = |word| attachment.get(word, queue);
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
        self.attachment.set_open(self.queue, true);
    }

    fn fill(&mut self, now: Nanos) -> Result<Head<'_>, PortError> {
        let drained = self.refill(now);
        // What was not asked for could still be older than what comes now.
        let seen = if matches!(self.frames, Frames::Segment(_)) { self.asked.min(now) } else { now };
        let horizon = self.horizon(seen, drained);
        let is_empty = self.frames.shown().is_empty();
        if drained && self.detached.is_none() && is_empty {
            self.look(now)?;
        }
        if self.removed && horizon == Horizon::Ended && is_empty {
            self.removed = false;
            return Err(PortError::removed(&self.subject));
        }
        Ok(Head { burst: self.frames.shown(), horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        match &mut self.frames {
            Frames::Socket(own, _) => own.consume(frames),
            Frames::Segment(segment) => segment.consume(frames),
            Frames::Tally(_) => assert_eq!(frames, 0, "no frame is shown"),
        }
        self.give_back();
        self.delivered += frames as u64;
    }

    fn detach(&mut self) {
        if self.detached.is_none() {
            self.attachment.set_open(self.queue, false);
            self.detached = Some(Nanos::ZERO);
        }
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        match &self.frames {
            Frames::Socket(_, socket) => Some(socket.fd().as_fd()),
            // Nothing comes that anybody would be woken for.
            Frames::Tally(_) => self.attachment.bell().map(Bell::fd),
            Frames::Segment(segment) => {
                self.attachment.set(Word::Sleeps, self.queue, 1);
                fence(Ordering::SeqCst);
                // What came meanwhile will wake nobody. (That the program has looked whether somebody sleeps, and its frame is
                // seen here only later, is a matter of nanoseconds; no wait is longer than some milliseconds.)
                let has_come = segment.seen() != self.attachment.get(Word::Head, self.queue);
                self.attachment.bell().map(|bell| if has_come { bell.ready() } else { bell.fd() })
            }
        }
    }

    fn tallied(&self) -> Option<&Tallied> {
        match &self.frames {
            Frames::Tally(tally) => Some(&tally.tallied),
            Frames::Socket(..) | Frames::Segment(_) => None,
        }
    }

    fn nap(&self) -> Option<Duration> {
        matches!(self.frames, Frames::Segment(_)).then_some(NAP)
    }

    fn holding(&mut self) -> Option<&mut dyn Holding> {
        matches!(self.frames, Frames::Segment(_)).then_some(self as &mut dyn Holding)
    }

    fn counters(&self, ledger: &mut Ledger) {
        let counted = Counted::of(&self.attachment, self.queue).since(self.base);
        let account = ledger.account(Stage::Receive, &self.subject);
        account.add(Count::Delivered, self.delivered).add(Count::LinkDown, self.downs);
        match &self.frames {
            Frames::Socket(frames, socket) => {
                let (statistics, counts) = (socket.statistics(), frames.counts());
                account.add(Count::Received, counted.head);
                account.add(Count::RingFull, statistics.ring_full).add(Count::NoBuffer, statistics.dropped);
                account.add(Count::FillEmpty, statistics.fill_empty).add(Count::BadRecord, counts.bad);
                account.add(Count::Joined, counts.joined).add(Count::SuperFrames, counts.super_frames);
                account.add(Count::VlanRestored, counts.vlan_restored).add(Count::Unstamped, counts.unstamped);
            }
            Frames::Segment(_) => {
                account.add(Count::Received, counted.head + counted.full + counted.bad + counted.filtered);
                account.add(Count::KernelFiltered, counted.filtered);
                account.add(Count::RingFull, counted.full).add(Count::BadRecord, counted.bad);
                account.add(Count::SuperFrames, counted.super_frames).add(Count::VlanRestored, counted.tagged);
            }
            Frames::Tally(tally) => {
                account.add(Count::Received, tally.tallied.frames).add(Count::Delivered, tally.tallied.frames);
                account.add(Count::SuperFrames, counted.super_frames).add(Count::VlanRestored, counted.tagged);
            }
        }
    }
}

impl Drop for XdpRx {
    fn drop(&mut self) {
        // Whoever sends through this socket keeps it open, and the program would go on to feed it.
        self.attachment.set_open(self.queue, false);
        if !matches!(self.frames, Frames::Socket(..)) {
            self.attachment.set(Word::Read, self.queue, 0);
        }
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
