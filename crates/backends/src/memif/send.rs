//! The sending side: frames are copied into the buffers of a ring, several per frame where needed.

use super::device::Claim;
use super::notifier::Ringer;
use super::receive::LOOK_AFTER;
use super::session::{RingEnd, Session, ring_bell};
use crate::sys::memif_memory::{NEXT, Slot};
use linerate_burst::{Burst, Count, Ledger, MAX_FRAME, Nanos, Stage};
use linerate_port::{PortError, Sent, TxQueue};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

/// Bytes of a link header; a shorter frame is invalid.
const ETHERNET: usize = 14;
/// Maximum time for the peer to read the last frames on close, in total and without progress.
const LINGER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(50));

/// Time that a frame waits for more buffers than the peer has ever posted at a time.
const PATIENCE: Duration = Duration::from_secs(1);

pub(super) struct MemifTx {
    subject: String,
    claim: Arc<Claim>,
    number: usize,
    outlet: Option<Outlet>,
    changes: u64,
    looked: Nanos,
    sent: Sent,
    too_long: u64,
    too_short: u64,
    full: u64,
    /// Frames that a peer had not read when it disconnected, and the number of disconnects.
    unread: u64,
    downs: u64,
}

/// The transmit state of a connection's ring.
struct Outlet {
    session: Arc<Session>,
    end: RingEnd,
    ringer: Ringer,
    /// Next slot to write, and first slot that is not published to the peer.
    next: u16,
    published: u16,
    /// Maximum number of free slots seen at a time.
    room: u16,
    /// Time since when a frame waits for more than that, while all slots are free.
    waits: Option<Instant>,
    /// Slots and bytes of each frame in the ring.
    under_way: VecDeque<(u16, u32)>,
    slots: u32,
}

/// Outcome of a frame.
enum PutOutcome {
    Copied,
    TooLong,
    /// No free slots at present.
    Waits,
    /// The peer has broken a rule of the protocol.
    Broken(&'static str),
}

impl MemifTx {
    pub(super) fn new(subject: String, claim: Arc<Claim>, number: usize) -> Self {
        MemifTx {
            subject,
            claim,
            number,
            outlet: None,
            changes: 0,
            looked: Nanos::ZERO,
            sent: Sent::default(),
            too_long: 0,
            too_short: 0,
            full: 0,
            unread: 0,
            downs: 0,
        }
    }

    /// Switches to the next connection after this one has ended.
    #[inline]
    fn take_up(&mut self) {
        let changes = self.claim.device.changes();
        if changes != self.changes {
            self.changes = changes;
            self.part();
            self.outlet = self.claim.device.session().and_then(|session| Outlet::new(session, self.number));
        }
    }

    /// Checks whether there is a connection to send to, or will be one.
    #[inline]
    fn look(&mut self) -> Result<(), PortError> {
        self.take_up();
        if self.outlet.is_some() {
            return Ok(());
        }
        self.claim.device.step();
        let name = || self.claim.device.config.name.clone();
        match self.claim.device.history() {
            (false, Some(reason)) => Err(PortError::broken(name(), format!("refused by the server: {reason}"))),
            _ if self.sent.frames > 0 && self.downs > 0 => Err(PortError::Down { port: name() }),
            _ => Ok(()),
        }
    }

    /// Closes the ring of a connection that has ended: frames that the peer had not read are lost.
    fn part(&mut self) {
        let Some(mut outlet) = self.outlet.take() else { return };
        outlet.settle();
        self.downs += 1;
        self.unread += outlet.under_way.len() as u64;
        self.sent.frames -= outlet.under_way.len() as u64;
        self.sent.bytes -= outlet.under_way.iter().map(|(_, bytes)| u64::from(*bytes)).sum::<u64>();
    }

    fn received(&self) -> u64 {
        self.sent.frames + self.too_long + self.too_short + self.unread
    }
}

impl Outlet {
    /// Opens a ring, if the connection has it.
    fn new(session: Arc<Session>, number: usize) -> Option<Outlet> {
        let end = session.rings.1.get(number)?.clone();
        let bell = Arc::clone(&end.bell);
        let Ok(ringer) = Ringer::start(move || ring_bell(&bell)) else {
            session.break_off("no thread left to ring its bell: threads of earlier peers are blocked");
            return None;
        };
        let room = if session.is_client { end.ring.size() } else { 0 };
        Some(Outlet {
            session,
            end,
            ringer,
            next: 0,
            published: 0,
            room,
            waits: None,
            under_way: VecDeque::new(),
            slots: 0,
        })
    }

    /// Returns the number of free slots; `None` if the peer's position is invalid.
    #[inline]
    fn free(&mut self) -> Option<u16> {
        let (ring, is_client) = (&self.end.ring, self.session.is_client);
        let between = if is_client { self.next.wrapping_sub(ring.tail()) } else { ring.head().wrapping_sub(self.next) };
        if between > ring.size() {
            return None;
        }
        let free = if is_client { ring.size() - between } else { between };
        if free > self.room {
            (self.room, self.waits) = (free, None);
        }
        Some(free)
    }

    /// Copies a frame into the buffers of the next slots.
    #[inline]
    fn put(&mut self, frame: &[u8], free: u16) -> PutOutcome {
        let Outlet { session, end, next, .. } = self;
        let mut slots = 0;
        let mut rest = frame;
        while !rest.is_empty() {
            if slots == free {
                return self.handle_full_ring(free);
            }
            let position = next.wrapping_add(slots);
            let slot = if session.is_client { end.buffer(position, session.buffer) } else { end.ring.slot(position) };
            let Some(region) = session.region(&slot) else { return PutOutcome::Broken("a buffer outside the regions") };
            let some = rest.len().min(slot.length as usize);
            if some == 0 {
                return PutOutcome::Broken("an empty buffer");
            }
            region.copy_in(slot.offset, &rest[..some]);
            rest = &rest[some..];
            let flags = if rest.is_empty() { 0 } else { NEXT };
            let filled = Slot { flags, length: some as u32, ..slot };
            if session.is_client {
                end.ring.set_slot(position, filled)
            } else {
                end.ring.set_length(position, filled)
            };
            slots += 1;
        }
        self.next = self.next.wrapping_add(slots);
        self.under_way.push_back((slots, frame.len() as u32));
        self.slots += u32::from(slots);
        self.waits = None;
        PutOutcome::Copied
    }

    /// Handles a frame that needs more slots than are free. If even an empty ring is too short the frame is dropped; a
    /// peer that posts fewer buffers than its ring has slots may post the others later, or never.
    fn handle_full_ring(&mut self, free: u16) -> PutOutcome {
        if free == self.end.ring.size() {
            return PutOutcome::TooLong;
        }
        if free < self.room || free == 0 {
            return PutOutcome::Waits;
        }
        let since = *self.waits.get_or_insert_with(Instant::now);
        if since.elapsed() < PATIENCE {
            return PutOutcome::Waits;
        }
        self.waits = None;
        PutOutcome::TooLong
    }

    /// Publishes copied frames to the peer, and wakes it if it sleeps.
    fn publish(&mut self) {
        if self.published == self.next {
            return;
        }
        self.published = self.next;
        let ring = &self.end.ring;
        if self.session.is_client {
            ring.set_head(self.next)
        } else {
            ring.set_tail(self.next)
        };
        // The peer sets its mask, then checks our position; this end does the reverse.
        fence(Ordering::SeqCst);
        if !ring.is_masked() {
            self.ringer.ring();
        }
        self.settle();
    }

    /// Removes the frames that the peer has read from the queue.
    fn settle(&mut self) {
        let Some(free) = self.free() else { return };
        // Frames to a client are read once their buffers are posted again.
        let unread = u32::from(self.room - free);
        while let Some((slots, _)) = self.under_way.front()
            && self.slots - u32::from(*slots) >= unread
        {
            self.slots -= u32::from(*slots);
            self.under_way.pop_front();
        }
    }
}

impl TxQueue for MemifTx {
    fn send(&mut self, burst: Burst<'_>) -> Result<usize, PortError> {
        self.look()?;
        let Some(outlet) = &mut self.outlet else { return Ok(0) };
        let Some(mut free) = outlet.free() else {
            outlet.session.break_off("invalid ring position");
            self.claim.device.step();
            return Ok(0);
        };
        let mut done = 0;
        for (_, frame) in burst.iter() {
            if frame.len() < ETHERNET || frame.len() > MAX_FRAME {
                *(if frame.len() < ETHERNET { &mut self.too_short } else { &mut self.too_long }) += 1;
                done += 1;
                continue;
            }
            let before = outlet.next;
            match outlet.put(frame, free) {
                PutOutcome::Copied => {
                    free -= outlet.next.wrapping_sub(before);
                    self.sent.frames += 1;
                    self.sent.bytes += frame.len() as u64;
                }
                PutOutcome::TooLong => self.too_long += 1,
                PutOutcome::Waits => {
                    self.full += 1;
                    break;
                }
                PutOutcome::Broken(reason) => {
                    outlet.session.break_off(reason);
                    break;
                }
            }
            done += 1;
        }
        outlet.publish();
        Ok(done)
    }

    fn flush(&mut self, now: Nanos) -> Result<bool, PortError> {
        if now.since(self.looked) >= LOOK_AFTER || now < self.looked {
            self.looked = now;
            self.claim.device.step();
            self.take_up();
        }
        Ok(true)
    }

    fn sent(&self) -> Sent {
        self.sent
    }

    fn counters(&self, ledger: &mut Ledger) {
        if self.number == 0 {
            self.claim.device.reasons(&self.subject, ledger);
        }
        let account = ledger.account(Stage::Send, &self.subject);
        account.add(Count::SendReceived, self.received()).add(Count::Sent, self.sent.frames);
        account.add(Count::TooLong, self.too_long).add(Count::TooShort, self.too_short);
        account.add(Count::SendPeerGone, self.unread).add(Count::SendFull, self.full);
    }
}

impl Drop for MemifTx {
    /// Waits for the peer to read the last frames: some peers unmap the memory when the connection closes.
    fn drop(&mut self) {
        let began = Instant::now();
        let mut moved = (began, usize::MAX);
        while let Some(outlet) = &mut self.outlet {
            outlet.settle();
            let left = outlet.under_way.len();
            if left < moved.1 {
                moved = (Instant::now(), left);
            }
            let is_over = self.claim.device.changes() != self.changes;
            if left == 0 || is_over || moved.0.elapsed() > LINGER.1 || began.elapsed() > LINGER.0 {
                break;
            }
            std::thread::sleep(Duration::from_micros(100));
            self.claim.device.step();
        }
    }
}
