//! The receiving side: one lane per ring. Each frame is copied once, to memory of this process, and its buffer is
//! returned at once.

use super::device::Claim;
use super::session::{RingEnd, Session, silence};
use crate::sys::memif_memory::NEXT;
use linerate_burst::{
    Burst, Count, Desc, Flags, Horizon, Interface, Ledger, LinkType, MAX_FRAME, Nanos, Stage, StampSource, TAIL,
};
use linerate_port::{Head, PortError, RxOptions, RxQueue};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

/// Batch: frames, and the bytes after which no more are copied.
const FRAMES: usize = 512;
const BYTES: usize = 256 << 10;
/// Interval at which the connection is serviced.
pub(super) const LOOK_AFTER: Duration = Duration::from_millis(1);

pub(super) struct MemifRx {
    subject: String,
    interfaces: [Interface; 1],
    claim: Arc<Claim>,
    number: usize,
    snap: usize,
    intake: Option<Intake>,
    /// Value of the device's change counter at the last check.
    changes: u64,
    looked: Nanos,
    memory: Vec<u8>,
    shown: Vec<Desc>,
    consumed: usize,
    counts: RxCounts,
    is_detached: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct RxCounts {
    delivered: u64,
    bad: u64,
    overrun: u64,
    joined: u64,
    stale: u64,
    downs: u64,
}

/// The receive state of a connection's ring.
struct Intake {
    session: Arc<Session>,
    end: RingEnd,
    /// Next slot to read, and first slot that is not returned.
    next: u16,
    given: u16,
    /// Position where reading ends, after the connection has ended or the port was detached.
    last: Option<u16>,
    /// Length of a full buffer, if known.
    full: Option<u32>,
    /// True if the ring's interrupt is unmasked.
    is_asleep: AtomicBool,
}

/// A frame read from the ring.
struct Frame {
    slots: u16,
    kept: usize,
    wire: usize,
    is_bad: bool,
    /// A buffer that was not full had the flag NEXT.
    is_stale: bool,
}

impl MemifRx {
    pub(super) fn new(subject: String, claim: Arc<Claim>, number: usize, options: &RxOptions) -> Self {
        MemifRx {
            interfaces: [Interface::new(claim.device.config.target.clone(), LinkType::ETHERNET, StampSource::User)],
            subject,
            number,
            snap: if options.snap == 0 { MAX_FRAME } else { options.snap as usize },
            intake: None,
            changes: 0,
            looked: Nanos::ZERO,
            memory: vec![0; BYTES + MAX_FRAME + 2 * TAIL],
            shown: Vec::with_capacity(FRAMES),
            consumed: 0,
            counts: RxCounts::default(),
            is_detached: false,
            claim,
        }
    }

    fn unconsumed(&self) -> usize {
        self.shown.len() - self.consumed
    }

    /// Services the connection, and switches to the next one after this one has ended and is read.
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
            .and_then(|session| Intake::new(session, self.number, self.claim.device.config.any_chains));
        match self.claim.device.history() {
            (false, Some(reason)) => {
                Err(PortError::broken(&self.claim.device.config.name, format!("refused by the server: {reason}")))
            }
            _ if had => {
                self.counts.downs += 1;
                Err(PortError::Down { port: self.claim.device.config.name.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Copies frames from the ring, as far as there is room.
    fn receive_frames(&mut self, now: Nanos) {
        let MemifRx { intake: Some(intake), memory, shown, counts, snap, .. } = self else { return };
        intake.wake_up();
        let end = intake.last.unwrap_or_else(|| intake.end());
        // The position comes from the peer: a ring holds no more frames than it has slots, wherever its writer claims
        // to be.
        let size = intake.end.ring.size();
        let Some(mut waiting) = intake.waiting(end) else {
            // Overwritten frames are mixed with others: none can be trusted.
            counts.overrun += u64::from(size);
            (intake.next, intake.given) = (end, end.wrapping_sub(size));
            return intake.return_slots();
        };
        if waiting == 0 {
            return;
        }
        // Bad frames take no room, but copying their good part costs time: bound it too.
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
        // If the writer has passed this reader in the meantime, it overwrote what was being copied.
        let end = intake.end();
        if end.wrapping_sub(began) > size && intake.last.is_none() {
            let overrun = u64::from(end.wrapping_sub(intake.next)) + shown.len() as u64;
            counts.overrun += overrun.min(u64::from(size) - (counts.bad - bad));
            shown.clear();
            (intake.next, intake.given) = (end, end.wrapping_sub(size));
        }
        intake.return_slots();
    }
}

impl Intake {
    /// Returns the state of a ring, if the connection has it.
    fn new(session: Arc<Session>, number: usize, any_chains: bool) -> Option<Intake> {
        let end = session.rings.0.get(number)?.clone();
        end.ring.set_masked(true);
        let full = end.full.filter(|_| !any_chains);
        let intake = Intake { session, end, next: 0, given: 0, last: None, full, is_asleep: AtomicBool::new(false) };
        if intake.session.is_client {
            // All buffers are empty: post them to the server.
            intake.end.ring.set_head(intake.end.ring.size());
        }
        Some(intake)
    }

    /// Returns the peer's position.
    #[inline]
    fn end(&self) -> u16 {
        if self.session.is_client { self.end.ring.tail() } else { self.end.ring.head() }
    }

    /// Returns the number of slots up to a position; `None` if it exceeds the ring.
    #[inline]
    fn waiting(&self, end: u16) -> Option<u16> {
        Some(end.wrapping_sub(self.next)).filter(|waiting| *waiting <= self.end.ring.size())
    }

    /// Reads the next frame, of at least one `waiting` slot.
    #[inline]
    fn frame(&self, waiting: u16, to: &mut [u8], snap: usize) -> Frame {
        let Intake { session, end, next, full, .. } = self;
        let mut frame = Frame { slots: 0, kept: 0, wire: 0, is_bad: false, is_stale: false };
        loop {
            let position = next.wrapping_add(frame.slots);
            // Each slot is loaded once: only this value counts.
            let mut slot = end.ring.slot(position);
            if session.is_client {
                // Positions of our own buffers are computed, not read back.
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
            // The flag may be left from an earlier frame (DPDK up to 25.11): follow it only after full buffers.
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

    /// Returns all slots that are read to the peer.
    fn return_slots(&mut self) {
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

    /// Returns the descriptor to wait on; one that is readable if a frame arrived before the peer saw the unmasked
    /// interrupt.
    fn sleep<'a>(&'a self, ready: BorrowedFd<'a>) -> BorrowedFd<'a> {
        if !self.is_asleep.swap(true, Ordering::Relaxed) {
            self.end.ring.set_masked(false);
        }
        // The peer moves its position, then checks the mask; this end does the reverse.
        fence(Ordering::SeqCst);
        if self.end() == self.next { self.end.bell.as_fd() } else { ready }
    }

    /// Masks the ring's interrupt.
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
            self.receive_frames(now);
        }
        let is_read = |intake: &Intake| intake.last.is_some_and(|last| last == intake.next);
        let ended = self.is_detached && self.unconsumed() == 0 && self.intake.as_ref().is_none_or(is_read);
        let descs = &self.shown[self.consumed..];
        let port = || PortError::broken(&self.subject, "a frame is outside its memory (a bug)");
        let burst = Burst::over(&self.memory, descs).map_err(|_| port())?;
        // Later reads have a later time; frames that are shown must not be overtaken by the horizon.
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
        let RxCounts { delivered, bad, overrun, joined, stale, downs } = self.counts;
        let received = delivered + self.unconsumed() as u64 + bad + overrun;
        // All rings share the connection: count it once.
        let refused = if self.number == 0 { self.claim.device.reasons(&self.subject, ledger) } else { 0 };
        let account = ledger.account(Stage::Receive, &self.subject);
        account.add(Count::Received, received).add(Count::Delivered, delivered);
        account.add(Count::BadDesc, bad).add(Count::PeerOverrun, overrun);
        account.add(Count::Joined, joined).add(Count::StaleNext, stale);
        account.add(Count::LinkDown, downs).add(Count::PeerRefused, refused);
    }
}
