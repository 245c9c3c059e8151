//! The sending side: frames are copied into the buffers of a ring, over as many as they need.

use super::device::Claim;
use super::receive::LOOK_AFTER;
use super::ringer::Ringer;
use super::session::{End, Session, ring_bell};
use crate::sys::memif_memory::{NEXT, Slot};
use linerate_burst::{Burst, Count, Ledger, MAX_FRAME, Nanos, Stage};
use linerate_port::{PortError, Sent, TxQueue};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::{Duration, Instant};

/// A link header: shorter ones are no frames.
const ETHERNET: usize = 14;
/// How long the last frames may take to be read once this end closes, and how long without one being read.
const LINGER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_millis(50));

/// How long a frame waits for more buffers than the other end has ever posted at a time.
const PATIENCE: Duration = Duration::from_secs(1);

/// One send queue.
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
    /// Frames that a peer had not read when it went, and how often one went.
    unread: u64,
    downs: u64,
}

/// The ring of a connection, as it is written.
struct Outlet {
    session: Arc<Session>,
    end: End,
    ringer: Ringer,
    /// The next slot to be written, and the first that the other end does not know of yet.
    next: u16,
    told: u16,
    /// The most slots that were free at a time.
    room: u16,
    /// Since when a frame waits for more than that, though all of it is free.
    waits: Option<Instant>,
    /// What lies in the ring: slots and bytes of each frame.
    under_way: VecDeque<(u16, u32)>,
    slots: u32,
}

/// What became of a frame.
enum Became {
    Copied,
    TooLong,
    /// There is no room now.
    Waits,
    /// The other end has broken a rule.
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

    /// Takes up another connection where this one has ended.
    #[inline]
    fn take_up(&mut self) {
        let changes = self.claim.device.changes();
        if changes != self.changes {
            self.changes = changes;
            self.part();
            self.outlet = self.claim.device.session().and_then(|session| Outlet::new(session, self.number));
        }
    }

    /// Whether there is a connection to send to, or will be one.
    #[inline]
    fn look(&mut self) -> Result<(), PortError> {
        self.take_up();
        if self.outlet.is_some() {
            return Ok(());
        }
        self.claim.device.step();
        let name = || self.claim.device.wish.name.clone();
        match self.claim.device.history() {
            (false, Some(reason)) => Err(PortError::broken(name(), format!("the server refuses: {reason}"))),
            _ if self.sent.frames > 0 && self.downs > 0 => Err(PortError::Down { port: name() }),
            _ => Ok(()),
        }
    }

    /// The connection has ended: what the other end had not read is lost.
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
    /// The ring of that number, if the connection has one.
    fn new(session: Arc<Session>, number: usize) -> Option<Outlet> {
        let end = session.rings.1.get(number)?.clone();
        let bell = Arc::clone(&end.bell);
        let Ok(ringer) = Ringer::start(move || ring_bell(&bell)) else {
            session.break_off("no thread for its bell: those of earlier peers wait");
            return None;
        };
        let room = if session.is_client { end.ring.size() } else { 0 };
        Some(Outlet { session, end, ringer, next: 0, told: 0, room, waits: None, under_way: VecDeque::new(), slots: 0 })
    }

    /// How many slots are free; none where the other end cannot be where it says.
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
    fn put(&mut self, frame: &[u8], free: u16) -> Became {
        let Outlet { session, end, next, .. } = self;
        let mut slots = 0;
        let mut rest = frame;
        while !rest.is_empty() {
            if slots == free {
                return self.has_no_room(free);
            }
            let position = next.wrapping_add(slots);
            let slot = if session.is_client { end.buffer(position, session.buffer) } else { end.ring.slot(position) };
            let Some(region) = session.region(&slot) else { return Became::Broken("a buffer that lies in no region") };
            let some = rest.len().min(slot.length as usize);
            if some == 0 {
                return Became::Broken("a buffer without room");
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
        Became::Copied
    }

    /// A frame needs more slots than are free. Where not even an empty ring has room there never will be any; a peer that posts fewer
    /// buffers than its ring has slots posts the others later, or never.
    fn has_no_room(&mut self, free: u16) -> Became {
        if free == self.end.ring.size() {
            return Became::TooLong;
        }
        if free < self.room || free == 0 {
            return Became::Waits;
        }
        let since = *self.waits.get_or_insert_with(Instant::now);
        if since.elapsed() < PATIENCE {
            return Became::Waits;
        }
        self.waits = None;
        Became::TooLong
    }

    /// Lets the other end see what was copied, and wakes it if it sleeps.
    fn tell(&mut self) {
        if self.told == self.next {
            return;
        }
        self.told = self.next;
        let ring = &self.end.ring;
        if self.session.is_client {
            ring.set_head(self.next)
        } else {
            ring.set_tail(self.next)
        };
        // It looks how far we are after it has said that it sleeps; we the other way round.
        fence(Ordering::SeqCst);
        if !ring.is_masked() {
            self.ringer.ring();
        }
        self.settle();
    }

    /// Forgets the frames that the other end has read.
    fn settle(&mut self) {
        let Some(free) = self.free() else { return };
        // Those of a server are read once their buffers are posted again.
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
            outlet.session.break_off("a position that cannot be");
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
                Became::Copied => {
                    free -= outlet.next.wrapping_sub(before);
                    self.sent.frames += 1;
                    self.sent.bytes += frame.len() as u64;
                }
                Became::TooLong => self.too_long += 1,
                Became::Waits => {
                    self.full += 1;
                    break;
                }
                Became::Broken(reason) => {
                    outlet.session.break_off(reason);
                    break;
                }
            }
            done += 1;
        }
        outlet.tell();
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
    /// Memory goes with the connection on some peers: what they were sent last they get time to read.
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
