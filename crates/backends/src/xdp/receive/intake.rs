//! What a program does with the frames of a queue: it hands them to a socket, writes them into an area, or counts them.

use super::Counted;
use crate::sys::area::Segment;
use crate::sys::bell::Bell;
use crate::sys::xsk_frames::{Reading, XskFrames};
use crate::sys::xsk_socket::XskSocket;
use crate::xdp::attach::Attachment;
use crate::xdp::program::{SHORTEST, Word};
use crate::xdp::tally::Tally;
use linerate_burst::{Account, Burst, Count, Nanos};
use linerate_port::Tallied;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// How often a program that writes frames is asked for more: each look takes a line of memory away from it, which costs it more
/// than the frame (measured on a veth: 4.0 M frames/s looked at all the time, 11.4 every 100 us).
const ASK_AFTER: Duration = Duration::from_micros(20);

/// And one that counts.
const COUNT_AFTER: Duration = Duration::from_millis(1);

/// How long a reader that is in no hurry waits meanwhile, instead of looking at the clock: the processor that brings the frames is
/// often the other half of its own, and is slowed by that too.
const NAP: Duration = Duration::from_micros(100);

/// Frames of which no more are asked for.
const ENOUGH: usize = 1024;

/// A queue of a program.
pub(crate) struct Queue {
    pub attachment: Arc<Attachment>,
    pub number: u32,
}

impl Queue {
    pub(crate) fn get(&self, word: Word) -> u64 {
        self.attachment.get(word, self.number)
    }

    pub(crate) fn set(&self, word: Word, value: u64) {
        self.attachment.set(word, self.number, value);
    }
}

/// Where the frames of a queue come in.
pub(crate) trait Intake: Send {
    /// The frames that are shown.
    fn shown(&self) -> Burst<'_>;

    /// Shows more frames if there are more; whether that is all there is.
    fn refill(&mut self, queue: &Queue, now: Nanos, is_detached: bool) -> bool;

    /// Done with the first frames shown.
    fn consume(&mut self, queue: &Queue, frames: usize);

    /// What to wait on.
    fn wake(&self, queue: &Queue) -> Option<BorrowedFd<'_>>;

    /// Adds the counters of what came in, beside what was delivered.
    fn counters(&self, counted: &Counted, account: &mut Account);

    /// When frames were looked for last.
    fn looked(&self, now: Nanos) -> Nanos {
        now
    }

    /// How far International Atomic Time is ahead of UTC, in nanoseconds.
    fn set_ahead(&mut self, _queue: &Queue, _nanos: u64) {}

    /// What is wrong with it.
    fn take_error(&self) -> io::Result<()> {
        Ok(())
    }

    /// How long to wait before the next look, while frames come.
    fn nap(&self) -> Option<Duration> {
        None
    }

    /// What is counted of frames that are not shown.
    fn tallied(&self) -> Option<&Tallied> {
        None
    }

    /// The segment, where frames are written into one.
    fn segment(&self) -> Option<&Segment> {
        None
    }

    /// The same.
    fn segment_mut(&mut self) -> Option<&mut Segment> {
        None
    }
}

/// A socket of AF_XDP, and its memory.
pub(crate) struct SocketIntake {
    frames: XskFrames,
    socket: Arc<XskSocket>,
    reading: Reading,
    /// Calls drive the card's queue.
    busy_poll: bool,
}

impl SocketIntake {
    /// Frames longer than `super_frame` are super-frames.
    pub(crate) fn new((frames, socket): (XskFrames, Arc<XskSocket>), super_frame: u32, busy_poll: bool) -> Self {
        let reading = Reading { tai_offset: 0, now: Nanos::ZERO, stamped: true, super_frame };
        SocketIntake { frames, socket, reading, busy_poll }
    }
}

impl Intake for SocketIntake {
    fn shown(&self) -> Burst<'_> {
        self.frames.shown()
    }

    fn refill(&mut self, queue: &Queue, now: Nanos, _: bool) -> bool {
        self.reading.now = now;
        self.reading.stamped = queue.get(Word::Unstamped) == 0;
        let drained = self.frames.refill(&self.reading);
        if drained && (self.busy_poll || self.frames.needs_wakeup()) {
            self.socket.kick_receive();
        }
        drained
    }

    fn consume(&mut self, _: &Queue, frames: usize) {
        self.frames.consume(frames);
    }

    fn wake(&self, _: &Queue) -> Option<BorrowedFd<'_>> {
        Some(self.socket.fd().as_fd())
    }

    fn counters(&self, counted: &Counted, account: &mut Account) {
        let (statistics, counts) = (self.socket.statistics(), self.frames.counts());
        account.add(Count::Received, counted.head);
        account.add(Count::RingFull, statistics.ring_full).add(Count::NoBuffer, statistics.dropped);
        account.add(Count::FillEmpty, statistics.fill_empty).add(Count::BadRecord, counts.bad);
        account.add(Count::Joined, counts.joined).add(Count::SuperFrames, counts.super_frames);
        account.add(Count::VlanRestored, counts.vlan_restored).add(Count::Unstamped, counts.unstamped);
    }

    fn set_ahead(&mut self, _: &Queue, nanos: u64) {
        self.reading.tai_offset = nanos;
    }

    fn take_error(&self) -> io::Result<()> {
        self.socket.take_error()
    }
}

/// A segment that the program writes frames into.
pub(crate) struct AreaIntake {
    segment: Segment,
    /// What wakes whoever reads it.
    bell: Arc<Bell>,
    /// When the program was asked last.
    asked: Nanos,
}

impl AreaIntake {
    /// Most `snap` bytes of a frame are wanted; 0 for all.
    pub(crate) fn new(segment: Segment, bell: Arc<Bell>, queue: &Queue, snap: u32) -> Self {
        queue.set(Word::Snap, if snap == 0 { 0 } else { snap.max(SHORTEST as u32).into() });
        AreaIntake { segment, bell, asked: Nanos::ZERO }
    }
}

impl Intake for AreaIntake {
    fn shown(&self) -> Burst<'_> {
        self.segment.shown()
    }

    fn refill(&mut self, queue: &Queue, now: Nanos, is_detached: bool) -> bool {
        let is_due = now >= self.asked.after(ASK_AFTER) || now < self.asked || is_detached;
        if self.segment.waiting() < ENOUGH && is_due {
            self.asked = now;
            self.bell.quiet();
            self.segment.set_head(queue.get(Word::Head));
        }
        self.segment.waiting() == self.segment.shown().len()
    }

    fn consume(&mut self, queue: &Queue, frames: usize) {
        self.segment.consume(frames);
        give_back(&self.segment, queue);
    }

    /// The program is to ring from now on.
    fn wake(&self, queue: &Queue) -> Option<BorrowedFd<'_>> {
        queue.set(Word::Sleeps, 1);
        fence(Ordering::SeqCst);
        // What came meanwhile will wake nobody. (That the program has looked whether somebody sleeps, and its frame is
        // seen here only later, is a matter of nanoseconds; no wait is longer than some milliseconds.)
        let has_come = self.segment.seen() != queue.get(Word::Head);
        Some(if has_come { self.bell.ready() } else { self.bell.fd() })
    }

    fn counters(&self, counted: &Counted, account: &mut Account) {
        account.add(Count::Received, counted.head + counted.full + counted.bad + counted.filtered);
        account.add(Count::KernelFiltered, counted.filtered);
        account.add(Count::RingFull, counted.full).add(Count::BadRecord, counted.bad);
        account.add(Count::SuperFrames, counted.super_frames).add(Count::VlanRestored, counted.tagged);
    }

    /// What was not asked for could still be older than what comes now.
    fn looked(&self, now: Nanos) -> Nanos {
        self.asked.min(now)
    }

    fn set_ahead(&mut self, queue: &Queue, nanos: u64) {
        queue.set(Word::Ahead, nanos);
    }

    fn nap(&self) -> Option<Duration> {
        Some(NAP)
    }

    fn segment(&self) -> Option<&Segment> {
        Some(&self.segment)
    }

    fn segment_mut(&mut self) -> Option<&mut Segment> {
        Some(&mut self.segment)
    }
}

/// Tells the program what it may write again.
pub(super) fn give_back(segment: &Segment, queue: &Queue) {
    let (tail, freed) = segment.position();
    queue.set(Word::Freed, freed);
    queue.set(Word::Tail, tail);
}

/// A program that counts.
impl Intake for Tally {
    fn shown(&self) -> Burst<'_> {
        Burst::EMPTY
    }

    fn refill(&mut self, queue: &Queue, now: Nanos, is_detached: bool) -> bool {
        if now >= self.asked.after(COUNT_AFTER) || now < self.asked || is_detached {
            self.asked = now;
            self.read(&queue.attachment, queue.number);
        }
        true
    }

    fn consume(&mut self, _: &Queue, frames: usize) {
        assert_eq!(frames, 0, "no frame is shown");
    }

    /// Nothing comes that anybody would be woken for.
    fn wake(&self, _: &Queue) -> Option<BorrowedFd<'_>> {
        Some(self.bell.fd())
    }

    fn counters(&self, counted: &Counted, account: &mut Account) {
        account.add(Count::Received, self.tallied.frames);
        account.add(Count::SuperFrames, counted.super_frames).add(Count::VlanRestored, counted.tagged);
    }

    fn tallied(&self) -> Option<&Tallied> {
        Some(&self.tallied)
    }
}
