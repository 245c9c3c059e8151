//! Sources of a queue's frames: a program hands them to a socket, writes them into an area, or counts them.

use super::ProgramCounts;
use crate::sys::area::Segment;
use crate::sys::bpf_ringbuf::Bell;
use crate::sys::xsk_frames::{FrameParams, XskFrames};
use crate::sys::xsk_socket::XskSocket;
use crate::xdp::attach::Attachment;
use crate::xdp::program::{SHORTEST, Word};
use crate::xdp::tally::Tally;
use linerate_burst::{Account, Burst, Count, Nanos};
use linerate_port::FrameTally;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Interval at which a program that writes frames is polled: each poll takes a cache line away from it, which costs it
/// more than a frame (measured on a veth: 4.0 M frames/s polled continuously, 11.4 every 100 us).
const ASK_AFTER: Duration = Duration::from_micros(20);

/// The same for a program that counts.
const COUNT_AFTER: Duration = Duration::from_millis(1);

/// Time that a reader without deadline sleeps between polls, instead of reading the clock: the processor that receives
/// the frames is often its hyper-thread sibling, and slowed by that too.
const NAP: Duration = Duration::from_micros(100);

/// Number of frames above which the program is not polled.
const ENOUGH: usize = 1024;

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

/// Source of a queue's frames.
pub(crate) trait Intake: Send {
    /// Returns the frames that are shown.
    fn shown(&self) -> Burst<'_>;

    /// Shows more frames, if any; returns whether these are all.
    fn refill(&mut self, queue: &Queue, now: Nanos, is_detached: bool) -> bool;

    /// Consumes the first frames shown.
    fn consume(&mut self, queue: &Queue, frames: usize);

    /// Returns the descriptor to wait on.
    fn wake(&self, queue: &Queue) -> Option<BorrowedFd<'_>>;

    /// Adds the counters of received frames; delivered ones are added by the caller.
    fn counters(&self, counted: &ProgramCounts, account: &mut Account);

    /// Returns the time of the last poll.
    fn looked(&self, now: Nanos) -> Nanos {
        now
    }

    /// Sets the program's clock minus UTC, in nanoseconds, modulo 2^64.
    fn set_ahead(&mut self, _queue: &Queue, _nanos: u64) {}

    /// Returns a pending error.
    fn take_error(&self) -> io::Result<()> {
        Ok(())
    }

    /// Returns the time to wait before the next poll, while frames arrive.
    fn poll_interval(&self) -> Option<Duration> {
        None
    }

    /// Returns the counts of frames that are not shown.
    fn tallied(&self) -> Option<&FrameTally> {
        None
    }

    /// Returns the segment, if frames are written into one.
    fn segment(&self) -> Option<&Segment> {
        None
    }

    /// Returns the segment, mutably.
    fn segment_mut(&mut self) -> Option<&mut Segment> {
        None
    }
}

/// An AF_XDP socket and its memory.
pub(crate) struct SocketIntake {
    frames: XskFrames,
    socket: Arc<XskSocket>,
    reading: FrameParams,
    /// True if system calls drive the card's queue.
    busy_poll: bool,
}

impl SocketIntake {
    /// Creates an intake; frames longer than `super_frame` are super-frames.
    pub(crate) fn new((frames, socket): (XskFrames, Arc<XskSocket>), super_frame: u32, busy_poll: bool) -> Self {
        let reading = FrameParams { ahead: 0, now: Nanos::ZERO, stamped: true, super_frame };
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

    fn counters(&self, counted: &ProgramCounts, account: &mut Account) {
        let (statistics, counts) = (self.socket.statistics(), self.frames.counts());
        account.add(Count::Received, counted.head);
        account.add(Count::RingFull, statistics.ring_full).add(Count::NoBuffer, statistics.dropped);
        account.add(Count::FillEmpty, statistics.fill_empty).add(Count::BadRecord, counts.bad);
        account.add(Count::Joined, counts.joined).add(Count::SuperFrames, counts.super_frames);
        account.add(Count::VlanRestored, counts.vlan_restored).add(Count::Unstamped, counts.unstamped);
    }

    fn set_ahead(&mut self, _: &Queue, nanos: u64) {
        self.reading.ahead = nanos;
    }

    fn take_error(&self) -> io::Result<()> {
        self.socket.take_error()
    }
}

/// A segment that the program writes frames into.
pub(crate) struct AreaIntake {
    segment: Segment,
    /// Wakes the reader.
    bell: Arc<Bell>,
    /// Time of the last poll.
    asked: Nanos,
}

impl AreaIntake {
    /// Creates an intake with at most `snap` bytes of a frame; 0 for all.
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
            let head = queue.get(Word::Head);
            self.segment.set_head(head, queue.get(Word::Spilled));
        }
        self.segment.waiting() == self.segment.shown().len()
    }

    fn consume(&mut self, queue: &Queue, frames: usize) {
        self.segment.consume(frames);
        publish_released(&self.segment, queue);
    }

    /// Requests a wake-up from the program.
    fn wake(&self, queue: &Queue) -> Option<BorrowedFd<'_>> {
        queue.set(Word::Sleeps, 1);
        fence(Ordering::SeqCst);
        // Frames that arrived before cause no wake-up. (A program may check the flag nanoseconds before its frame is
        // visible here; waits are limited to some milliseconds.)
        let has_come = self.segment.seen() != queue.get(Word::Head);
        Some(if has_come { self.bell.ready() } else { self.bell.fd() })
    }

    fn counters(&self, counted: &ProgramCounts, account: &mut Account) {
        account.add(Count::Received, counted.head + counted.full + counted.bad + counted.filtered);
        account.add(Count::KernelFiltered, counted.filtered);
        account.add(Count::RingFull, counted.full).add(Count::BadRecord, counted.bad);
        account.add(Count::SuperFrames, counted.super_frames).add(Count::VlanRestored, counted.tagged);
    }

    /// Frames since the last poll could be older than those that arrive now.
    fn looked(&self, now: Nanos) -> Nanos {
        self.asked.min(now)
    }

    fn set_ahead(&mut self, queue: &Queue, nanos: u64) {
        queue.set(Word::Ahead, nanos);
    }

    fn poll_interval(&self) -> Option<Duration> {
        Some(NAP)
    }

    fn segment(&self) -> Option<&Segment> {
        Some(&self.segment)
    }

    fn segment_mut(&mut self) -> Option<&mut Segment> {
        Some(&mut self.segment)
    }
}

/// Publishes the released positions to the program.
pub(super) fn publish_released(segment: &Segment, queue: &Queue) {
    let (tail, freed) = segment.position();
    Word::FREED.into_iter().zip(freed).for_each(|(word, freed)| queue.set(word, freed));
    queue.set(Word::Tail, tail);
}

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

    /// Never signalled: no frame is shown.
    fn wake(&self, _: &Queue) -> Option<BorrowedFd<'_>> {
        Some(self.bell.fd())
    }

    fn counters(&self, counted: &ProgramCounts, account: &mut Account) {
        account.add(Count::Received, self.tallied.frames);
        account.add(Count::SuperFrames, counted.super_frames).add(Count::VlanRestored, counted.tagged);
    }

    fn tallied(&self) -> Option<&FrameTally> {
        Some(&self.tallied)
    }
}
