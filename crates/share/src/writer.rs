//! The writer: fills blocks, publishes committed frames, takes finished blocks back from readers.
//!
//! Nothing here waits for readers: the numbers that they write are checked against [`Slots`], and a reader that breaks
//! the protocol is evicted. `detach` handles departures.

mod detach;
mod engine;

use crate::acceptor::{Acceptor, Client, ReaderIdentity};
use crate::address::Address;
use crate::arena::{Arena, NewArena, Options};
use crate::control::Control;
use crate::credentials::Access;
use crate::error::Error;
use crate::handshake::{Offer, RingKind};
use crate::index::{self, Pusher, Taker};
use crate::layout::{INTERFACES, READERS};
use crate::registrations::{Registration, Registrations};
use crate::slots::{Slots, Tally, bits};
use linerate_burst::{Block, CommitState, Interface, LinkType, Nanos};
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

pub use self::engine::EngineState;

/// Interval at which the writer checks for readers that are gone.
const LOOK: Duration = Duration::from_millis(10);

/// The process that fills the ring.
#[derive(Debug)]
pub struct Writer {
    arena: Arena,
    blocks: Vec<Block>,
    slots: Slots,
    readers: [Option<AttachedReader>; READERS as usize],
    interfaces: Vec<Interface>,
    /// Blocks closed so far.
    sequence: u64,
    horizon: Nanos,
    looked: Nanos,
    /// Evicted readers that have not closed their socket, for each of which a block is kept.
    kept: Vec<AttachedReader>,
    departures: Vec<Departure>,
    /// The attached engine.
    engine: Option<engine::Engine>,
    /// The next engine, until the writer has finished with the last one.
    next_engine: Option<Client>,
    wait: Wait,
    registrations: Arc<Registrations>,
    notes: Vec<String>,
}

/// Time that the writer has been waiting for a free block.
#[derive(Debug, Default)]
struct Wait {
    /// Time that lossless readers may block the writer at a stretch; `None`: unlimited.
    patience: Option<Duration>,
    /// True if a block was requested and none was free.
    wanted: bool,
    so_far: Duration,
    ticked: Nanos,
}

/// A reader, from the writer's side.
#[derive(Debug)]
struct AttachedReader {
    registration: Registration,
    socket: OwnedFd,
    /// The process of an engine, whose children may keep the socket open after its death.
    process: Option<OwnedFd>,
    control: Arc<Control>,
    who: ReaderIdentity,
    published: Pusher,
    returned: Taker,
    /// Number of skipped frames last published to it.
    skipped_sent: u64,
}

/// A reader and the accounting of its frames.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderReport {
    /// Its number while it is attached.
    pub reader: u32,
    /// Its identity.
    pub who: ReaderIdentity,
    /// True if the writer waits for it.
    pub lossless: bool,
    /// Accounting of its frames.
    pub tally: Tally,
}

/// A reader that has departed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Its last report.
    pub report: ReaderReport,
    /// Reason of its eviction; `None` if it detached or died.
    pub evict: Option<String>,
}

impl Writer {
    /// Creates a ring and shares it under a name, or at a path if the name has a `/`. Another thread may run the
    /// acceptor.
    ///
    /// # Errors
    /// [`Error`].
    pub fn create(name: &str, access: Access, options: &Options, now: Nanos) -> Result<(Writer, Acceptor), Error> {
        let listener = Address::parse(name)?.listen(access.allows_others(), access.owner)?;
        let NewArena { arena, blocks, fd, notes } = Arena::create(options, now)?;
        let (shape, generation, registrations) =
            (*arena.shape(), arena.generation(), Arc::new(Registrations::default()));
        let offer =
            Offer { kind: RingKind::Blocks, slots: shape.slots, arena_bytes: shape.bytes(), verdicts: Some(shape) };
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

    /// Sets the time that lossless readers may block the writer at a stretch, as measured by [`Writer::tick`]: after
    /// that those that hold the blocks are evicted. `None`, the default: unlimited.
    pub fn set_patience(&mut self, patience: Option<Duration>) {
        self.wait.patience = patience;
    }

    /// Returns the choices of memory and their reasons, one line each, for users.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the number of frames of 60 bytes, the shortest on Ethernet, that all blocks together hold.
    pub fn room(&self) -> u64 {
        let shape = self.arena.shape();
        u64::from(shape.slots) * shape.layout.frames() as u64
    }

    /// Returns the size of the ring in bytes.
    pub fn bytes(&self) -> usize {
        self.arena.shape().bytes()
    }

    /// Sets the interfaces: those already set, and possibly more after them. Call it before the first frame of a new
    /// interface is committed.
    ///
    /// # Errors
    /// If there are too many.
    pub fn set_interfaces(&mut self, interfaces: &[Interface]) -> Result<(), Error> {
        if interfaces.len() > INTERFACES as usize {
            let reason = format!("{} interfaces exceed the ring's limit of {INTERFACES}", interfaces.len());
            return Err(Error::Invalid(reason));
        }
        if interfaces.len() > self.interfaces.len() {
            self.arena.add_interfaces(self.interfaces.len(), interfaces);
            self.interfaces.extend_from_slice(&interfaces[self.interfaces.len()..]);
        }
        Ok(())
    }

    /// Returns the block to be filled: the open one, or a free one; `None` while readers hold every block.
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

    /// Returns the block being filled, for reading.
    pub fn current(&self) -> Option<&Block> {
        self.slots.current().map(|slot| &self.blocks[slot as usize])
    }

    /// Publishes the frames in the open block to readers, and wakes those that sleep. Without new frames only the
    /// horizon and the count of drops change.
    pub fn commit(&mut self, state: &CommitState) {
        let new = self.commit_frames(state);
        self.horizon = self.horizon.max(state.horizon);
        self.arena.set_drops(state.drops);
        self.arena.set_horizon(self.horizon);
        if new {
            self.wake_all();
        }
    }

    /// Closes the open block: the next frame goes to another one. Frames that were not committed are discarded.
    pub fn close_block(&mut self) {
        if let Some(slot) = self.slots.current()
            && self.slots.frames(slot) > 0
        {
            self.blocks[slot as usize].close();
            self.sequence += 1;
        }
        self.slots.close();
    }

    /// Performs periodic work, once per batch: takes finished blocks back, evicts lossless readers that block the
    /// writer for too long, and checks from time to time for readers that are gone.
    pub fn tick(&mut self, now: Nanos) {
        self.arena.update_heartbeat(now);
        self.take_back();
        self.evict_blocking_readers(now);
        if now.since(self.looked) >= LOOK || now < self.looked {
            self.looked = now;
            self.remove_gone_readers();
        }
    }

    /// Attaches a reader from the acceptor; it gets the frames committed from now on.
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
            self.engine = Some(engine::Engine::new(number, control.clone(), who.clone()));
        } else {
            self.slots.join(number, lossless, quota);
        }
        self.readers[number as usize] = Some(AttachedReader {
            registration,
            socket,
            process,
            control,
            who,
            published: Pusher::default(),
            returned: Taker::default(),
            skipped_sent: 0,
        });
    }

    /// Returns every reader, with the accounting of its frames.
    pub fn readers(&self) -> Vec<ReaderReport> {
        bits(self.slots.present()).filter_map(|number| self.report(number)).collect()
    }

    /// Returns the holders of blocks while none is free: lossless readers first, then by the number of blocks held.
    pub fn waits_for(&self) -> Vec<ReaderReport> {
        let mut holders: Vec<ReaderReport> =
            self.readers().into_iter().filter(|report| report.tally.held > 0).collect();
        holders.sort_by_key(|report| (!report.lossless, std::cmp::Reverse(report.tally.held)));
        holders
    }

    /// Returns the number of frames committed so far.
    pub fn committed(&self) -> u64 {
        self.slots.committed()
    }

    /// Ends the stream normally: readers get all committed frames, then its end.
    pub fn finish(mut self) {
        self.end();
    }

    /// Ends the stream like [`Writer::finish`], for a writer that still tracks returned blocks and departures.
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

    /// Commits the new frames of the open block; returns whether there were any.
    fn commit_frames(&mut self, state: &CommitState) -> bool {
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

    /// Wakes sleeping readers; also those for which frames were skipped, after publishing the count: they may have
    /// blocks to return.
    fn wake_all(&mut self) {
        for number in bits(self.slots.present()) {
            let Some(attached) = &mut self.readers[number as usize] else { continue };
            let (frames, slots) = self.slots.skipped(number);
            if attached.skipped_sent != frames {
                attached.skipped_sent = frames;
                attached.control.set_skipped(frames, slots);
            }
        }
        index::shown();
        for number in bits(self.slots.present()) {
            let Some(attached) = &self.readers[number as usize] else { continue };
            if index::must_wake(attached.control.sleeping()) {
                match send(&attached.socket, b"w", SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                    // A reader with a full socket buffer finds earlier wake-ups there.
                    Ok(_) | Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => {}
                    Err(_) => self.looked = Nanos::ZERO,
                }
            }
        }
    }

    fn report(&self, number: u32) -> Option<ReaderReport> {
        let who = self.readers[number as usize].as_ref()?.who.clone();
        let (lossless, mut tally) = (self.slots.is_lossless(number), self.slots.tally(number));
        let decided = self.decided_by(number);
        (tally.finished, tally.outstanding) = (tally.finished + decided, tally.outstanding - decided);
        Some(ReaderReport { reader: number, who, lossless, tally })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.registrations.end();
    }
}
