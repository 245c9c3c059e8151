//! The writer: fills blocks, publishes what is committed, takes back what readers have finished.
//!
//! Whatever readers do, nothing here waits for them: what they write is checked against [`Slots`], and a reader that breaks
//! the protocol is put out.

use crate::address::Address;
use crate::arena::{Arena, Created, Options};
use crate::control::Control;
use crate::credentials::Access;
use crate::door::{Door, Seat, Seats, Visitor, Who};
use crate::error::Error;
use crate::index::{self, Overrun, Pusher, Taker};
use crate::layout::{INTERFACES, READERS};
use crate::slots::{Slots, Tally, bits};
use linerate_burst::{Block, Committed, Interface, LinkType, Nanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// How often the writer looks for readers that have gone.
const LOOK: Duration = Duration::from_millis(10);
/// Departures kept until somebody asks.
const DEPARTURES: usize = 1024;

/// The one who fills the ring.
#[derive(Debug)]
pub struct Writer {
    arena: Arena,
    blocks: Vec<Block>,
    slots: Slots,
    readers: [Option<Attached>; READERS as usize],
    interfaces: Vec<Interface>,
    /// Blocks closed so far.
    sequence: u64,
    horizon: Nanos,
    looked: Nanos,
    departures: Vec<Departure>,
    seats: Arc<Seats>,
    notes: Vec<String>,
}

/// A reader as the writer knows it.
#[derive(Debug)]
struct Attached {
    seat: Seat,
    socket: OwnedFd,
    control: Control,
    who: Who,
    published: Pusher,
    returned: Taker,
    /// Frames skipped, as it was last told.
    told: u64,
}

/// A reader, and what became of the frames for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Its number while it is attached.
    pub reader: u32,
    /// Who it is.
    pub who: Who,
    /// Whether the writer waits for it.
    pub lossless: bool,
    /// Its frames.
    pub tally: Tally,
}

/// A reader that is not attached any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// The reader as it was last.
    pub report: Report,
    /// Why it was put out; `None` if it left or died.
    pub put_out: Option<String>,
}

impl Writer {
    /// Makes a ring and shares it under a name, or at a path if the name has a `/`. The door may be run by another thread.
    pub fn create(name: &str, access: Access, options: &Options, now: Nanos) -> Result<(Writer, Door), Error> {
        let listener = Address::parse(name)?.listen(access.has_others(), access.owner)?;
        let Created { arena, blocks, fd, notes } = Arena::create(options, now)?;
        let (shape, generation, seats) = (*arena.shape(), arena.generation(), Arc::new(Seats::default()));
        let door = Door::new(listener, access, fd, shape, generation, seats.clone());
        let writer = Writer {
            arena,
            blocks,
            slots: Slots::new(shape.slots),
            readers: [const { None }; READERS as usize],
            interfaces: Vec::new(),
            sequence: 0,
            horizon: Nanos::ZERO,
            looked: now,
            departures: Vec::new(),
            seats,
            notes,
        };
        Ok((writer, door))
    }

    /// Of what memory the ring is and why, a line each, for people.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Frames of 60 bytes, the shortest on Ethernet, that all blocks together hold.
    pub fn room(&self) -> u64 {
        let shape = self.arena.shape();
        u64::from(shape.slots) * shape.layout.frames() as u64
    }

    /// Bytes of the ring.
    pub fn bytes(&self) -> usize {
        self.arena.shape().bytes()
    }

    /// Says where frames are seen: those already said, and perhaps more behind them. Before the first frame that
    /// names a new one is committed.
    pub fn set_interfaces(&mut self, interfaces: &[Interface]) -> Result<(), Error> {
        if interfaces.len() > INTERFACES as usize {
            let reason = format!("{} interfaces: a ring holds {INTERFACES}", interfaces.len());
            return Err(Error::Invalid(reason));
        }
        if interfaces.len() > self.interfaces.len() {
            self.arena.add_interfaces(self.interfaces.len(), interfaces);
            self.interfaces.extend_from_slice(&interfaces[self.interfaces.len()..]);
        }
        Ok(())
    }

    /// The block to be filled: the open one, or a free one; `None` while every block is held by readers.
    #[inline]
    pub fn block(&mut self) -> Option<&mut Block> {
        let slot = match self.slots.current() {
            Some(slot) => slot,
            None => self.open()?,
        };
        Some(&mut self.blocks[slot as usize])
    }

    /// The block being filled, to be read.
    pub fn current(&self) -> Option<&Block> {
        self.slots.current().map(|slot| &self.blocks[slot as usize])
    }

    /// Lets readers see what is in the open block, and wakes those that sleep. Without new frames only the horizon and
    /// the count of drops move.
    pub fn commit(&mut self, state: &Committed) {
        let new = self.commit_frames(state);
        self.horizon = self.horizon.max(state.horizon);
        self.arena.set_drops(state.drops);
        self.arena.set_horizon(self.horizon);
        if new {
            self.wake_all();
        }
    }

    /// Closes the open block: the next frame goes to another one. Frames that were not committed are gone.
    pub fn close_block(&mut self) {
        if let Some(slot) = self.slots.current()
            && self.slots.frames(slot) > 0
        {
            self.blocks[slot as usize].close();
            self.sequence += 1;
        }
        self.slots.close();
    }

    /// What is to be done once a round: takes back what readers have finished, and now and then looks for readers that
    /// have gone.
    pub fn tick(&mut self, now: Nanos) {
        self.arena.beat(now);
        self.take_back();
        if now.since(self.looked) >= LOOK || now < self.looked {
            self.looked = now;
            self.look_for_the_gone();
        }
    }

    /// A reader that was let in at the door gets what is committed from now on.
    pub fn admit(&mut self, visitor: Visitor) {
        let Visitor { seat, socket, control, who, lossless, quota } = visitor;
        let number = seat.number;
        self.slots.join(number, lossless, quota);
        let (published, returned) = (Pusher::default(), Taker::default());
        self.readers[number as usize] = Some(Attached { seat, socket, control, who, published, returned, told: 0 });
    }

    /// Every reader, and what became of the frames for it.
    pub fn readers(&self) -> Vec<Report> {
        bits(self.slots.present()).filter_map(|number| self.report(number)).collect()
    }

    /// Who holds blocks while none is free: those that the writer waits for first, then whoever holds most.
    pub fn waits_for(&self) -> Vec<Report> {
        let mut holders: Vec<Report> = self.readers().into_iter().filter(|report| report.tally.held > 0).collect();
        holders.sort_by_key(|report| (!report.lossless, std::cmp::Reverse(report.tally.held)));
        holders
    }

    /// Readers that have left, died or were put out since this was last asked.
    pub fn take_departures(&mut self) -> Vec<Departure> {
        std::mem::take(&mut self.departures)
    }

    /// The writer waits for this reader no more; it keeps what it holds, and may lose what comes.
    pub fn demote(&mut self, reader: u32) {
        if let Some(Some(attached)) = self.readers.get(reader as usize) {
            attached.control.set_lossless(false);
            self.slots.demote(reader);
        }
    }

    /// Takes back all that a reader holds and closes its connection. What it is just looking at may change under it.
    pub fn put_out(&mut self, reader: u32, reason: impl Into<String>) {
        if (reader as usize) < self.readers.len() {
            self.part(reader, Some(reason.into()));
        }
    }

    /// Frames committed so far.
    pub fn committed(&self) -> u64 {
        self.slots.committed()
    }

    /// Ends the stream in order: readers get what is committed, then its end.
    pub fn finish(mut self) {
        self.end();
    }

    /// Like [`Writer::finish`], for a writer that goes on to see readers give blocks back, and go.
    pub fn end(&mut self) {
        self.close_block();
        self.arena.set_horizon(Nanos::MAX);
        self.arena.end();
        self.wake_all();
    }

    fn open(&mut self) -> Option<u32> {
        if !self.slots.any_free() {
            self.take_back();
        }
        let slot = self.slots.open()?;
        self.blocks[slot as usize].open(self.sequence, self.slots.committed());
        Some(slot)
    }

    /// Whether there were new frames.
    fn commit_frames(&mut self, state: &Committed) -> bool {
        let Some(slot) = self.slots.current() else { return false };
        let block = &mut self.blocks[slot as usize];
        let shown = self.slots.frames(slot);
        let new = block.len() as u32 - shown;
        if shown == 0 && new > 0 {
            let interface = block.descs().first().map_or(0, |desc| usize::from(desc.interface));
            block.begin(self.interfaces.get(interface).map_or(LinkType::ETHERNET, |interface| interface.link));
        }
        if shown > 0 || new > 0 {
            block.commit(state);
        }
        if new == 0 {
            return false;
        }
        let readers = &mut self.readers;
        self.slots.commit(new, |reader, place| {
            if let Some(attached) = &mut readers[reader as usize] {
                let entry = u64::from(place.slot) | u64::from(place.from) << 32;
                attached.published.push(&attached.control.published(), entry);
            }
        });
        true
    }

    /// Those for whom frames were skipped are told and woken too: they may have something to give back.
    fn wake_all(&mut self) {
        for number in bits(self.slots.present()) {
            let Some(attached) = &mut self.readers[number as usize] else { continue };
            let (frames, slots) = self.slots.skipped(number);
            if attached.told != frames {
                attached.told = frames;
                attached.control.set_skipped(frames, slots);
            }
        }
        index::shown();
        for number in bits(self.slots.present()) {
            let Some(attached) = &self.readers[number as usize] else { continue };
            if index::must_wake(attached.control.sleeping()) {
                match send(&attached.socket, b"w", SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    // A reader that does not listen finds what it missed in the socket.
                    Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {}
                    Err(_) => self.looked = Nanos::ZERO,
                }
            }
        }
    }

    fn take_back(&mut self) {
        for number in bits(self.slots.present()) {
            while let Some(attached) = &mut self.readers[number as usize] {
                let most = u64::from(self.slots.held(number));
                let slot = match attached.returned.take(&attached.control.returned(), most) {
                    Ok(None) => break,
                    Ok(Some(slot)) => slot,
                    Err(Overrun) => {
                        self.part(number, Some("it broke the protocol: it gave back more than it holds".into()));
                        break;
                    }
                };
                if let Err(violation) = self.slots.give_back(number, slot) {
                    self.part(number, Some(format!("it broke the protocol: {violation}")));
                }
            }
        }
    }

    fn look_for_the_gone(&mut self) {
        let (numbers, mut polled): (Vec<u32>, Vec<PollFd<'_>>) = self
            .readers
            .iter()
            .flatten()
            .map(|attached| (attached.seat.number, PollFd::new(&attached.socket, PollFlags::empty())))
            .unzip();
        if numbers.is_empty() || poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) == Ok(0) {
            return;
        }
        let gone = |fd: &PollFd<'_>| fd.revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
        let gone: Vec<u32> =
            numbers.iter().zip(&polled).filter(|(_, fd)| gone(fd)).map(|(number, _)| *number).collect();
        gone.into_iter().for_each(|number| self.part(number, None));
    }

    /// A reader is attached no more.
    fn part(&mut self, number: u32, put_out: Option<String>) {
        let Some(mut report) = self.report(number) else { return };
        let Some(attached) = self.readers[number as usize].take() else { return };
        if put_out.is_some() {
            attached.control.set_put_out();
        }
        report.tally = self.slots.leave(number);
        if self.departures.len() < DEPARTURES {
            self.departures.push(Departure { report, put_out });
        }
    }

    fn report(&self, number: u32) -> Option<Report> {
        let who = self.readers[number as usize].as_ref()?.who.clone();
        let (lossless, tally) = (self.slots.is_lossless(number), self.slots.tally(number));
        Some(Report { reader: number, who, lossless, tally })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.seats.end();
    }
}
