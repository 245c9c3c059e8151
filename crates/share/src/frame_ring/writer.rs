//! The writer: hands finished frames to a reader, and takes them back.
//!
//! Whatever a reader does, nothing here waits for it; what it gives back is checked against [`Slots`].

use super::about::About;
use super::arena::{Arena, Created, Options};
use super::slots::Slots;
use crate::acceptor::{Acceptor, Client, Who};
use crate::address::Address;
use crate::control::Control;
use crate::credentials::Access;
use crate::error::Error;
use crate::handshake::{Kind, Offer};
use crate::index::{self, Overrun, Pusher, Taker};
use crate::registrations::{Registration, Registrations};
use linerate_burst::Nanos;
use linerate_burst::pool::Piece;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// How often the writer looks whether its reader has gone.
const LOOK: Duration = Duration::from_millis(10);
/// Events kept until somebody asks; readers may come and go as fast as they like.
const EVENTS: usize = 64;

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Readers that came.
    pub readers: u64,
    /// Of these, put out because they broke the protocol.
    pub put_out: u64,
    /// Times that a frame was handed to a reader.
    pub handed: u64,
    /// Frames that readers gave back.
    pub returned: u64,
    /// Times that a frame waited for the next reader because the one who had it was gone.
    pub offered_again: u64,
    /// Events beyond those that are kept.
    pub untold: u64,
}

/// The one who fills frames.
#[derive(Debug)]
pub struct Writer {
    arena: Arena,
    slots: Slots,
    /// To how many readers each entry was handed.
    offered: Vec<u32>,
    reader: Option<Attached>,
    /// Entries that came back and were not asked for yet.
    back: VecDeque<u32>,
    registrations: Arc<Registrations>,
    looked: Nanos,
    is_over: bool,
    counts: Counts,
    events: Vec<String>,
    notes: Vec<String>,
}

/// The reader as the writer knows it.
#[derive(Debug)]
struct Attached {
    _registration: Registration,
    socket: OwnedFd,
    control: Control,
    who: Who,
    published: Pusher,
    returned: Taker,
    was_told: bool,
}

impl Writer {
    /// Makes memory for frames and shares it under a name, or at a path if the name has a `/`. What comes third are the frames
    /// themselves, in the order of their numbers. The acceptor may be run by another thread.
    ///
    /// # Errors
    /// If the name is taken, or there is no such memory.
    pub fn create(
        name: &str,
        access: Access,
        options: &Options,
        now: Nanos,
    ) -> Result<(Writer, Acceptor, Vec<Piece>), Error> {
        let access = Access { lossless: true, ..access };
        let listener = Address::parse(name)?.listen(access.has_others(), access.owner)?;
        let Created { arena, pieces, fd, notes } = Arena::create(options, now)?;
        let registrations = Arc::new(Registrations::default());
        let shape = arena.shape();
        let entries = shape.entries;
        let offer = Offer { kind: Kind::Frames, slots: entries, arena_bytes: shape.bytes, verdicts: None };
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
            counts: Counts::default(),
            events: Vec::new(),
            notes,
        };
        Ok((writer, acceptor, pieces))
    }

    /// Of what memory the frames are and why, a line each, for people.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The entry that a frame would have: that of its memory, or one for news without memory; `None` if all of those are in use.
    pub fn entry(&self, frame: Option<u32>) -> Option<u32> {
        frame.or_else(|| self.slots.free_from(self.arena.shape().frames))
    }

    /// A finished frame is the next reader's; false if its entry is in use, or there is none.
    pub fn offer(&mut self, entry: u32, about: &About, gaps: &[Range<u64>], bitmap: &[u64]) -> bool {
        if !self.slots.offer(entry) {
            return false;
        }
        self.offered[entry as usize] = 0;
        self.arena.write(entry, about, gaps, bitmap);
        self.publish();
        true
    }

    /// The entry of a frame that nobody needs any more.
    #[inline]
    pub fn returned(&mut self) -> Option<u32> {
        if self.back.is_empty() {
            self.take_back();
        }
        self.back.pop_front()
    }

    /// What is to be done now and then: looks whether the reader is there.
    pub fn tick(&mut self, now: Nanos) {
        if now.since(self.looked) < LOOK && now >= self.looked {
            return;
        }
        self.looked = now;
        self.arena.beat(now);
        if self.reader.as_ref().is_some_and(has_gone) {
            self.part(None);
        }
    }

    /// A reader that was let in at the acceptor: it has all that waits, and what is offered from now on.
    pub fn admit(&mut self, client: Client) {
        // The acceptor lets one in at a time; whoever was there before has gone, or it is seen now.
        self.part(None);
        let Client { registration, socket, control, who, .. } = client;
        self.counts.readers += 1;
        self.reader = Some(Attached {
            _registration: registration,
            socket,
            control,
            who,
            published: Pusher::default(),
            returned: Taker::default(),
            was_told: false,
        });
        self.publish();
    }

    /// No more frames will be offered: the reader, and those who come later, learn so behind the last.
    pub fn end(&mut self) {
        self.is_over = true;
        self.publish();
    }

    /// Who reads.
    pub fn reader(&self) -> Option<&Who> {
        self.reader.as_ref().map(|reader| &reader.who)
    }

    /// Frames that a reader has, and those that wait for one.
    pub fn out(&self) -> (usize, usize) {
        (self.slots.held(), self.slots.waiting())
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What was noteworthy since this was last asked.
    pub fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// Hands the reader what waits, and wakes it.
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
        if self.is_over && !reader.was_told {
            reader.control.set_ended();
            (reader.was_told, is_new) = (true, true);
        }
        if !is_new {
            return;
        }
        index::shown();
        if index::must_wake(reader.control.sleeping()) {
            match send(&reader.socket, b"w", SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                // A reader that does not listen finds what it missed in the socket.
                Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {}
                Err(_) => self.looked = Nanos::ZERO,
            }
        }
    }

    /// Takes back what the reader gave back.
    fn take_back(&mut self) {
        while let Some(reader) = &mut self.reader {
            let most = self.slots.held() as u64;
            let violation = match reader.returned.take(&reader.control.returned(), most) {
                Ok(None) => return,
                Ok(Some(entry)) => match self.slots.give_back(entry) {
                    Ok(entry) => {
                        self.arena.set_free(entry);
                        self.counts.returned += 1;
                        self.back.push_back(entry);
                        continue;
                    }
                    Err(violation) => violation.words(),
                },
                Err(Overrun) => "it gave back more than it has",
            };
            return self.part(Some(violation));
        }
    }

    /// The reader has gone, or is put out; what it has waits for the next one.
    fn part(&mut self, why: Option<&str>) {
        if why.is_none() {
            self.take_back();
        }
        let Some(reader) = self.reader.take() else { return };
        if why.is_some() {
            reader.control.set_put_out();
            self.counts.put_out += 1;
        }
        let _ = shutdown(&reader.socket, Shutdown::Both);
        let again = self.slots.leave().len();
        self.counts.offered_again += again as u64;
        let Who { name, pid, uid } = &reader.who;
        let left = why.map_or_else(|| "left".to_owned(), |why| format!("was put out: {why}"));
        let had = match again {
            0 => String::new(),
            again => format!("; {again} frames that it had are offered again"),
        };
        if why.is_some() || again > 0 {
            self.tell(format!("reader {name:?} (pid {pid}, user {uid}) {left}{had}"));
        }
    }

    fn tell(&mut self, event: String) {
        if self.events.len() < EVENTS { self.events.push(event) } else { self.counts.untold += 1 }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.registrations.end();
    }
}

/// Whether the other end of its socket was closed. What a reader sends means nothing.
fn has_gone(reader: &Attached) -> bool {
    let mut polled = [PollFd::new(&reader.socket, PollFlags::empty())];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
        && polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}
