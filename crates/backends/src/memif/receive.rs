//! The receiving side: a ring, a lane. Each frame is copied once, to memory of this process, and its buffer is given back at once.

use super::device::Claim;
use super::session::{End, Session, silence};
use crate::sys::memif_memory::NEXT;
use linerate_burst::{
    Burst, Count, Desc, Flags, Horizon, Interface, Ledger, LinkType, MAX_FRAME, Nanos, Stage, StampSource, TAIL,
};
use linerate_port::{Head, PortError, RxOptions, RxQueue};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

/// What is shown at a time: frames, and the bytes after which no more is taken.
const FRAMES: usize = 512;
const BYTES: usize = 256 << 10;
/// How often the connection is looked after.
pub(super) const LOOK_AFTER: Duration = Duration::from_millis(1);

/// One lane.
pub(super) struct MemifRx {
    subject: String,
    interfaces: [Interface; 1],
    claim: Arc<Claim>,
    number: usize,
    snap: usize,
    intake: Option<Intake>,
    /// What the device had counted when it was last asked.
    changes: u64,
    looked: Nanos,
    memory: Vec<u8>,
    shown: Vec<Desc>,
    consumed: usize,
    counts: Counts,
    is_detached: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    delivered: u64,
    bad: u64,
    overrun: u64,
    joined: u64,
    stale: u64,
    downs: u64,
}

/// The ring of a connection, as it is read.
struct Intake {
    session: Arc<Session>,
    end: End,
    /// The next slot to be read, and the first that is not given back.
    next: u16,
    given: u16,
    /// Where reading ends: the connection has, or nothing more is wanted.
    last: Option<u16>,
    /// How long a full buffer is, where that is known.
    full: Option<u32>,
    /// Whether the peer was told that we sleep.
    is_asleep: AtomicBool,
}

/// A frame that was read.
struct Frame {
    slots: u16,
    kept: usize,
    wire: usize,
    is_bad: bool,
    /// A buffer that was not full said that the frame goes on.
    is_stale: bool,
}

impl MemifRx {
    pub(super) fn new(subject: String, claim: Arc<Claim>, number: usize, options: &RxOptions) -> Self {
        MemifRx {
            interfaces: [Interface::new(claim.device.wish.target.clone(), LinkType::ETHERNET, StampSource::User)],
            subject,
            number,
            snap: if options.snap == 0 { MAX_FRAME } else { options.snap as usize },
            intake: None,
            changes: 0,
            looked: Nanos::ZERO,
            memory: vec![0; BYTES + MAX_FRAME + 2 * TAIL],
            shown: Vec::with_capacity(FRAMES),
            consumed: 0,
            counts: Counts::default(),
            is_detached: false,
            claim,
        }
    }

    fn unconsumed(&self) -> usize {
        self.shown.len() - self.consumed
    }

    /// Looks after the connection, and takes up another where this one has ended and is read.
    fn look(&mut self, now: Nanos) -> Result<(), PortError> {
        if now.since(self.looked) >= LOOK_AFTER || now < self.looked {
            self.looked = now;
            self.claim.device.step();
        }
        let changes = self.claim.device.changes();
        if changes == self.changes || self.is_detached {
            return Ok(());
        }
        if let Some(intake) = &mut self.intake {
            let last = *intake.last.get_or_insert(intake.end());
            if intake.next != last {
                return Ok(());
            }
        }
        let had = self.intake.take().is_some();
        self.changes = changes;
        self.intake = self
            .claim
            .device
            .session()
            .and_then(|session| Intake::new(session, self.number, self.claim.device.wish.any_chains));
        match self.claim.device.history() {
            (false, Some(reason)) => {
                Err(PortError::broken(&self.claim.device.wish.name, format!("the server refuses: {reason}")))
            }
            _ if had => {
                self.counts.downs += 1;
                Err(PortError::Down { port: self.claim.device.wish.name.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Copies what is there, as far as there is room.
    fn take_in(&mut self, now: Nanos) {
        let MemifRx { intake: Some(intake), memory, shown, counts, snap, .. } = self else { return };
        intake.wake_up();
        let end = intake.last.unwrap_or_else(|| intake.end());
        // A position is the peer's word: a ring holds no more frames than it has slots, wherever its writer claims to be.
        let size = intake.end.ring.size();
        let Some(mut waiting) = intake.waiting(end) else {
            // What lies there is a mixture of frames: nobody can say which are whole.
            counts.overrun += u64::from(size);
            (intake.next, intake.given) = (end, end.wrapping_sub(size));
            return intake.give_back();
        };
        if waiting == 0 {
            return;
        }
        // Bad frames take no room, and are copied as far as they are good: they are work all the same.
        let (began, bad, mut used, mut copied) = (intake.next, counts.bad, 0, 0);
        while waiting > 0 && shown.len() < FRAMES && copied < BYTES {
            let frame = intake.frame(waiting, &mut memory[used..], *snap);
            copied += frame.kept;
            waiting -= frame.slots;
            intake.next = intake.next.wrapping_add(frame.slots);
            counts.stale += u64::from(frame.is_stale);
            if frame.is_bad {
                counts.bad += 1;
                continue;
            }
            let is_joined = frame.slots > 1;
            counts.joined += u64::from(is_joined);
            let flags = if is_joined { Flags::JOINED } else { Flags::NONE };
            shown.push(Desc { wire: frame.wire as u32, flags, ..Desc::new(now, used as u32, frame.kept as u32) });
            used += frame.kept;
        }
        // Where the writer has passed this reader meanwhile, it wrote over what was being copied.
        let end = intake.end();
        if end.wrapping_sub(began) > size && intake.last.is_none() {
            let overrun = u64::from(end.wrapping_sub(intake.next)) + shown.len() as u64;
            counts.overrun += overrun.min(u64::from(size) - (counts.bad - bad));
            shown.clear();
            (intake.next, intake.given) = (end, end.wrapping_sub(size));
        }
        intake.give_back();
    }
}

impl Intake {
    /// The ring of that number, if the connection has one.
    fn new(session: Arc<Session>, number: usize, any_chains: bool) -> Option<Intake> {
        let end = session.rings.0.get(number)?.clone();
        end.ring.set_masked(true);
        let full = end.full.filter(|_| !any_chains);
        let intake = Intake { session, end, next: 0, given: 0, last: None, full, is_asleep: AtomicBool::new(false) };
        if intake.session.is_client {
            // All buffers are empty: the server may fill them.
            intake.end.ring.set_head(intake.end.ring.size());
        }
        Some(intake)
    }

    /// How far the other end is.
    #[inline]
    fn end(&self) -> u16 {
        if self.session.is_client { self.end.ring.tail() } else { self.end.ring.head() }
    }

    /// Slots up to there; none if that is more than the ring has.
    #[inline]
    fn waiting(&self, end: u16) -> Option<u16> {
        Some(end.wrapping_sub(self.next)).filter(|waiting| *waiting <= self.end.ring.size())
    }

    /// The next frame, of the `waiting` slots that there are at least one.
    #[inline]
    fn frame(&self, waiting: u16, to: &mut [u8], snap: usize) -> Frame {
        let Intake { session, end, next, full, .. } = self;
        let mut frame = Frame { slots: 0, kept: 0, wire: 0, is_bad: false, is_stale: false };
        loop {
            let position = next.wrapping_add(frame.slots);
            // Each is looked at once: what it says now is what counts.
            let mut slot = end.ring.slot(position);
            if session.is_client {
                // Where our buffers are is ours to know.
                let own = end.buffer(position, session.buffer);
                frame.is_bad |= slot.length > own.length;
                (slot.region, slot.offset) = (own.region, own.offset);
            }
            frame.slots += 1;
            let length = slot.length as usize;
            frame.wire += length;
            match session.region(&slot) {
                Some(region) if !frame.is_bad && frame.wire <= MAX_FRAME => {
                    let some = length.min(snap - frame.kept);
                    region.copy_out(slot.offset, some, &mut to[frame.kept..]);
                    frame.kept += some;
                }
                _ => frame.is_bad = true,
            }
            if slot.flags & NEXT == 0 {
                break;
            }
            // The flag may be left from a frame before (DPDK up to 25.11): frames go on behind full buffers alone.
            if full.is_some_and(|full| full != slot.length) {
                frame.is_stale = true;
                break;
            }
            if frame.slots == waiting {
                frame.is_bad = true;
                break;
            }
        }
        frame.is_bad |= frame.wire == 0;
        frame
    }

    /// Lets the other end have all slots that are read.
    fn give_back(&mut self) {
        let ring = &self.end.ring;
        if !self.session.is_client {
            return ring.set_tail(self.next);
        }
        while self.given != self.next {
            ring.set_slot(self.given, self.end.buffer(self.given, self.session.buffer));
            self.given = self.given.wrapping_add(1);
        }
        ring.set_head(self.next.wrapping_add(ring.size()));
    }

    /// What to wait on; what is readable already if something came before the other end knew that we sleep.
    fn sleep<'a>(&'a self, ready: BorrowedFd<'a>) -> BorrowedFd<'a> {
        if !self.is_asleep.swap(true, Ordering::Relaxed) {
            self.end.ring.set_masked(false);
        }
        // It looks whether we sleep after it has said how far it is; we the other way round.
        fence(Ordering::SeqCst);
        if self.end() == self.next { self.end.bell.as_fd() } else { ready }
    }

    /// Has the other end ring no more.
    fn wake_up(&self) {
        if self.is_asleep.load(Ordering::Relaxed) {
            self.is_asleep.store(false, Ordering::Relaxed);
            self.end.ring.set_masked(true);
            silence(&self.end.bell);
        }
    }
}

impl RxQueue for MemifRx {
    fn fill(&mut self, now: Nanos) -> Result<Head<'_>, PortError> {
        if self.unconsumed() == 0 {
            self.shown.clear();
            self.consumed = 0;
            self.look(now)?;
            self.take_in(now);
        }
        let is_read = |intake: &Intake| intake.last.is_some_and(|last| last == intake.next);
        let ended = self.is_detached && self.unconsumed() == 0 && self.intake.as_ref().is_none_or(is_read);
        let descs = &self.shown[self.consumed..];
        let port = || PortError::broken(&self.subject, "a bug: a frame outside its memory");
        let burst = Burst::over(&self.memory, descs).map_err(|_| port())?;
        // What is read later has a later time; what is shown and was read before is not overtaken.
        let horizon = if ended { Horizon::Ended } else { Horizon::At(descs.first().map_or(now, |desc| desc.time)) };
        Ok(Head { burst, horizon, interfaces: &self.interfaces })
    }

    fn consume(&mut self, frames: usize) {
        let shown = self.unconsumed();
        assert!(frames <= shown, "{frames} frames consumed, {shown} shown");
        self.consumed += frames;
        self.counts.delivered += frames as u64;
    }

    fn detach(&mut self) {
        self.is_detached = true;
        if let Some(intake) = &mut self.intake {
            intake.last.get_or_insert(intake.end());
        }
    }

    fn wake(&self) -> Option<BorrowedFd<'_>> {
        Some(match &self.intake {
            Some(intake) => intake.sleep(self.claim.device.ready()),
            None => self.claim.device.awaited(),
        })
    }

    fn counters(&self, ledger: &mut Ledger) {
        let Counts { delivered, bad, overrun, joined, stale, downs } = self.counts;
        let received = delivered + self.unconsumed() as u64 + bad + overrun;
        // The connection is one of all rings.
        let refused = if self.number == 0 { self.claim.device.reasons(&self.subject, ledger) } else { 0 };
        let account = ledger.account(Stage::Receive, &self.subject);
        account.add(Count::Received, received).add(Count::Delivered, delivered);
        account.add(Count::BadDesc, bad).add(Count::PeerOverrun, overrun);
        account.add(Count::Joined, joined).add(Count::StaleNext, stale);
        account.add(Count::LinkDown, downs).add(Count::PeerRefused, refused);
    }
}
