//! The writer: fills blocks, publishes what is committed, takes back what readers have finished.
//!
//! Whatever readers do, nothing here waits for them: what they write is checked against [`Slots`], and a reader that breaks
//! the protocol is evicted. How readers go is told in `detach`.

mod decided;
mod detach;

use crate::acceptor::{Acceptor, Client, Who};
use crate::address::Address;
use crate::arena::{Arena, Created, Options};
use crate::control::Control;
use crate::credentials::Access;
use crate::error::Error;
use crate::handshake::{Kind, Offer};
use crate::index::{self, Pusher, Taker};
use crate::layout::{INTERFACES, READERS};
use crate::registrations::{Registration, Registrations};
use crate::slots::{Slots, Tally, bits};
use linerate_burst::{Block, Committed, Interface, LinkType, Nanos};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

pub use self::decided::Deciding;

/// How often the writer looks for readers that have gone.
const LOOK: Duration = Duration::from_millis(10);

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
    /// Readers that were evicted and have not hung up, for each of which a block is kept.
    kept: Vec<Attached>,
    departures: Vec<Departure>,
    /// The reader that decides.
    engine: Option<decided::Engine>,
    /// The next one, as long as the writer has not done with the last.
    next_engine: Option<Client>,
    wait: Wait,
    registrations: Arc<Registrations>,
    notes: Vec<String>,
}

/// How long the writer has been waiting for a free block.
#[derive(Debug, Default)]
struct Wait {
    /// How long lossless readers may keep it waiting in one go; `None` for ever.
    patience: Option<Duration>,
    /// Whether a block was asked for and none was free.
    wanted: bool,
    so_far: Duration,
    ticked: Nanos,
}

/// A reader as the writer knows it.
#[derive(Debug)]
struct Attached {
    registration: Registration,
    socket: OwnedFd,
    /// Of who decides: the process, whose children may keep the socket when it is dead.
    process: Option<OwnedFd>,
    control: Arc<Control>,
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
    /// Why it was evicted; `None` if it left or died.
    pub evict: Option<String>,
}

impl Writer {
    /// Makes a ring and shares it under a name, or at a path if the name has a `/`. The acceptor may be run by another thread.
    pub fn create(name: &str, access: Access, options: &Options, now: Nanos) -> Result<(Writer, Acceptor), Error> {
        let listener = Address::parse(name)?.listen(access.has_others(), access.owner)?;
        let Created { arena, blocks, fd, notes } = Arena::create(options, now)?;
        let (shape, generation, registrations) =
            (*arena.shape(), arena.generation(), Arc::new(Registrations::default()));
        let offer = Offer { kind: Kind::Blocks, slots: shape.slots, arena_bytes: shape.bytes(), verdicts: Some(shape) };
        let acceptor = Acceptor::new(listener, access, fd, offer, generation, registrations.clone());
        let writer = Writer {
            arena,
            blocks,
            slots: Slots::new(shape.slots),
            readers: [const { None }; READERS as usize],
            interfaces: Vec::new(),
            sequence: 0,
            horizon: Nanos::ZERO,
            looked: now,
            kept: Vec::new(),
            departures: Vec::new(),
            engine: None,
            next_engine: None,
            wait: Wait { ticked: now, ..Wait::default() },
            registrations,
            notes,
        };
        Ok((writer, acceptor))
    }

    /// How long lossless readers may keep the writer waiting in one go, as [`Writer::tick`] sees it: after that those that hold the
    /// blocks are evicted. `None`, the default: without a limit.
    pub fn set_patience(&mut self, patience: Option<Duration>) {
        self.wait.patience = patience;
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
            None => {
                let opened = self.open();
                self.wait.wanted = opened.is_none();
                opened?
            }
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

    /// What is to be done once a round: takes back what readers have finished, loses patience with those who keep the
    /// writer waiting, and now and then looks for readers that have gone.
    pub fn tick(&mut self, now: Nanos) {
        self.arena.beat(now);
        self.take_back();
        self.bear(now);
        if now.since(self.looked) >= LOOK || now < self.looked {
            self.looked = now;
            self.look_for_the_gone();
        }
    }

    /// A reader that was let in at the acceptor gets what is committed from now on.
    pub fn admit(&mut self, client: Client) {
        if client.inline && self.engine.is_some() {
            self.next_engine = Some(client);
            return;
        }
        let Client { registration, socket, control, who, lossless, inline, quota } = client;
        let (number, control) = (registration.number, Arc::new(control));
        let process = if inline { detach::process_of(&who, &socket) } else { None };
        if inline {
            self.slots.join_engine(number);
            self.engine = Some(decided::Engine::new(number, control.clone(), who.clone()));
        } else {
            self.slots.join(number, lossless, quota);
        }
        self.readers[number as usize] = Some(Attached {
            registration,
            socket,
            process,
            control,
            who,
            published: Pusher::default(),
            returned: Taker::default(),
            told: 0,
        });
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
        self.reset_verdicts(slot);
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

    fn report(&self, number: u32) -> Option<Report> {
        let who = self.readers[number as usize].as_ref()?.who.clone();
        let (lossless, mut tally) = (self.slots.is_lossless(number), self.slots.tally(number));
        let decided = self.decided_by(number);
        (tally.finished, tally.outstanding) = (tally.finished + decided, tally.outstanding - decided);
        Some(Report { reader: number, who, lossless, tally })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.registrations.end();
    }
}
