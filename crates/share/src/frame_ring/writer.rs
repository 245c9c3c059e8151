//! The writer: hands finished frames to a reader, and takes them back.
//!
//! Nothing here waits for a reader; the frames that it returns are checked against [`Slots`].

use super::arena::{Arena, NewFrameArena, Options};
use super::metadata::FrameMetadata;
use super::slots::Slots;
use crate::acceptor::{Acceptor, Client, ReaderIdentity};
use crate::address::Address;
use crate::control::Control;
use crate::credentials::Access;
use crate::error::Error;
use crate::handshake::{Offer, RingKind};
use crate::index::{self, Overrun, Pusher, Taker};
use crate::registrations::{Registration, Registrations};
use linerate_burst::Nanos;
use linerate_burst::pool::OwnedBytes;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// Interval at which the writer checks whether its reader is gone.
const LOOK: Duration = Duration::from_millis(10);
/// Maximum number of events kept for [`Writer::take_events`]; readers may attach and detach at any rate.
const EVENTS: usize = 64;

/// Counters of a writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriterCounts {
    /// Readers attached.
    pub readers: u64,
    /// Readers evicted because they broke the protocol.
    pub evicted: u64,
    /// Times a frame was handed to a reader.
    pub handed: u64,
    /// Frames that readers returned.
    pub returned: u64,
    /// Times a frame waited for the next reader because its reader was gone.
    pub redelivered: u64,
    /// Events dropped because too many were pending.
    pub dropped_events: u64,
}

/// The process that fills frames.
#[derive(Debug)]
pub struct Writer {
    arena: Arena,
    slots: Slots,
    /// Number of readers that each entry was handed to.
    offered: Vec<u32>,
    reader: Option<AttachedReader>,
    /// Returned entries that were not fetched yet.
    back: VecDeque<u32>,
    registrations: Arc<Registrations>,
    looked: Nanos,
    is_over: bool,
    counts: WriterCounts,
    events: Vec<String>,
    notes: Vec<String>,
}

/// The reader, from the writer's side.
#[derive(Debug)]
struct AttachedReader {
    _registration: Registration,
    socket: OwnedFd,
    control: Control,
    who: ReaderIdentity,
    published: Pusher,
    returned: Taker,
    end_sent: bool,
}

impl Writer {
    /// Allocates memory for frames and shares it under a name, or at a path if the name has a `/`. Returns the writer,
    /// the acceptor, which another thread may run, and the frames in the order of their numbers.
    ///
    /// # Errors
    /// If the name is taken, or the memory is not available.
    pub fn create(
        name: &str,
        access: Access,
        options: &Options,
        now: Nanos,
    ) -> Result<(Writer, Acceptor, Vec<OwnedBytes>), Error> {
        let access = Access { lossless: true, ..access };
        let listener = Address::parse(name)?.listen(access.allows_others(), access.owner)?;
        let NewFrameArena { arena, pieces, fd, notes } = Arena::create(options, now)?;
        let registrations = Arc::new(Registrations::default());
        let shape = arena.shape();
        let entries = shape.entries;
        let offer = Offer { kind: RingKind::Frames, slots: entries, arena_bytes: shape.bytes, verdicts: None };
        let acceptor = Acceptor::new(listener, access, fd, offer, arena.generation(), registrations.clone());
        let writer = Writer {
            arena,
            slots: Slots::new(entries),
            offered: vec![0; entries as usize],
            reader: None,
            back: VecDeque::new(),
            registrations,
            looked: now,
            is_over: false,
            counts: WriterCounts::default(),
            events: Vec::new(),
            notes,
        };
        Ok((writer, acceptor, pieces))
    }

    /// Returns the choices of memory and their reasons, one line each, for users.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the entry for a frame: that of its memory, or one for a notice without memory; `None` if all of those
    /// are in use.
    pub fn entry(&self, frame: Option<u32>) -> Option<u32> {
        frame.or_else(|| self.slots.free_from(self.arena.shape().frames))
    }

    /// Offers a finished frame to the reader; returns false if its entry is in use, or does not exist.
    pub fn offer(&mut self, entry: u32, about: &FrameMetadata, gaps: &[Range<u64>], bitmap: &[u64]) -> bool {
        if !self.slots.offer(entry) {
            return false;
        }
        self.offered[entry as usize] = 0;
        self.arena.write(entry, about, gaps, bitmap);
        self.publish();
        true
    }

    /// Returns the entry of a frame that is free again.
    #[inline]
    pub fn returned(&mut self) -> Option<u32> {
        if self.back.is_empty() {
            self.take_back();
        }
        self.back.pop_front()
    }

    /// Performs periodic work: checks whether the reader is still there.
    pub fn tick(&mut self, now: Nanos) {
        if now.since(self.looked) < LOOK && now >= self.looked {
            return;
        }
        self.looked = now;
        self.arena.update_heartbeat(now);
        if self.reader.as_ref().is_some_and(has_disconnected) {
            self.part(None);
        }
    }

    /// Attaches a reader from the acceptor: it gets all waiting frames, and those offered from now on.
    pub fn admit(&mut self, client: Client) {
        // The acceptor admits one at a time: the reader before is gone, which is noticed here at the latest.
        self.part(None);
        let Client { registration, socket, control, who, .. } = client;
        self.counts.readers += 1;
        self.reader = Some(AttachedReader {
            _registration: registration,
            socket,
            control,
            who,
            published: Pusher::default(),
            returned: Taker::default(),
            end_sent: false,
        });
        self.publish();
    }

    /// Ends the ring: no more frames will be offered. The reader, and later ones, learn it after the last frame.
    pub fn end(&mut self) {
        self.is_over = true;
        self.publish();
    }

    /// Returns the attached reader.
    pub fn reader(&self) -> Option<&ReaderIdentity> {
        self.reader.as_ref().map(|reader| &reader.who)
    }

    /// Returns the number of frames that the reader holds, and of those that wait.
    pub fn out(&self) -> (usize, usize) {
        (self.slots.held(), self.slots.waiting())
    }

    /// Returns the counters.
    pub fn counts(&self) -> WriterCounts {
        self.counts
    }

    /// Returns the events since the last call, for users.
    pub fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// Hands the waiting frames to the reader, and wakes it.
    fn publish(&mut self) {
        let Some(reader) = &mut self.reader else { return };
        let mut is_new = false;
        while let Some(entry) = self.slots.next() {
            let offered = &mut self.offered[entry as usize];
            self.arena.set_offered(entry, *offered);
            *offered = offered.saturating_add(1);
            self.counts.handed += 1;
            reader.published.push(&reader.control.published(), u64::from(entry));
            is_new = true;
        }
        if self.is_over && !reader.end_sent {
            reader.control.set_ended();
            (reader.end_sent, is_new) = (true, true);
        }
        if !is_new {
            return;
        }
        index::shown();
        if index::must_wake(reader.control.sleeping()) {
            match send(&reader.socket, b"w", SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                // A reader with a full socket buffer finds earlier wake-ups there.
                Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {}
                Err(_) => self.looked = Nanos::ZERO,
            }
        }
    }

    /// Processes the frames that the reader returned.
    fn take_back(&mut self) {
        while let Some(reader) = &mut self.reader {
            let most = self.slots.held() as u64;
            let violation = match reader.returned.take(&reader.control.returned(), most) {
                Ok(None) => return,
                Ok(Some(entry)) => match self.slots.return_slot(entry) {
                    Ok(entry) => {
                        self.arena.set_free(entry);
                        self.counts.returned += 1;
                        self.back.push_back(entry);
                        continue;
                    }
                    Err(violation) => violation.words(),
                },
                Err(Overrun) => "it returned more frames than it holds",
            };
            return self.part(Some(violation));
        }
    }

    /// Detaches or evicts the reader; the frames that it holds wait for the next one.
    fn part(&mut self, why: Option<&str>) {
        if why.is_none() {
            self.take_back();
        }
        let Some(reader) = self.reader.take() else { return };
        if why.is_some() {
            reader.control.set_evicted();
            self.counts.evicted += 1;
        }
        let _ = shutdown(&reader.socket, Shutdown::Both);
        let again = self.slots.leave().len();
        self.counts.redelivered += again as u64;
        let ReaderIdentity { name, pid, uid } = &reader.who;
        let left = why.map_or_else(|| "left".to_owned(), |why| format!("was evicted: {why}"));
        let had = match again {
            0 => String::new(),
            again => format!("; {again} frames that it held are offered again"),
        };
        if why.is_some() || again > 0 {
            self.report(format!("reader {name:?} (pid {pid}, user {uid}) {left}{had}"));
        }
    }

    fn report(&mut self, event: String) {
        if self.events.len() < EVENTS { self.events.push(event) } else { self.counts.dropped_events += 1 }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.registrations.end();
    }
}

/// Returns whether the peer has closed its socket. Data that a reader sends is ignored.
fn has_disconnected(reader: &AttachedReader) -> bool {
    let mut polled = [PollFd::new(&reader.socket, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
        && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}
