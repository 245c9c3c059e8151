//! One connection, from its first message on: the handshake, the checks of the peer's messages, and the memory that
//! results.
//!
//! ```text
//!  server  HELLO      ACK              ACK            ACK        CONNECTED
//!  client       INIT      ADD_REGION..      ADD_RING..    CONNECT
//! ```
//!
//! The client owns and lays out the memory; the server maps it. A message that is out of order or inconsistent closes
//! the connection with a reason. Memory that is not mapped is never accessed, and memory that could be truncated is
//! never mapped.

use super::config::MemifConfig;
use super::message::{Message, RingLocation, SECRET, VERSION};
use crate::sys::memif_memory::{MOST_LOG2, Region, Ring, Slot};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{
    CWD, MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate, memfd_create, readlinkat,
};
use rustix::io::{ReadWriteFlags, preadv2};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};

/// Sent to a client whose memory could be truncated. A message has room for 95 bytes.
pub(super) const UNSEALED: &str =
    "unsealed memory (F_SEAL_SHRINK): set no-zero-copy (DPDK: zero-copy=no), or here trust=yes";
/// Guard after the last buffer: some peers copy whole buffers of their own, however long the posted one is.
const GUARD: u64 = 64 << 10;
/// Maximum number of regions of a connection.
const MOST_REGIONS: usize = 256;
/// File system of memory files that can be sealed (linux/magic.h).
const TMPFS: i64 = 0x0102_1994;

/// A ring and the eventfd that wakes its reader.
#[derive(Clone, Debug)]
pub(super) struct RingEnd {
    pub ring: Ring,
    pub bell: Arc<OwnedFd>,
    /// Offset of a client's buffers in region 0.
    pub buffers: u32,
    /// Length of a full buffer, if known.
    pub full: Option<u32>,
}

/// An established connection.
#[derive(Debug)]
pub(super) struct Session {
    pub regions: Vec<Arc<Region>>,
    /// Receive rings and transmit rings.
    pub rings: (Vec<RingEnd>, Vec<RingEnd>),
    /// True if this end is the client, which owns the buffers.
    pub is_client: bool,
    /// Bytes of a client's buffers.
    pub buffer: u32,
    /// Name that the peer sent.
    pub peer: String,
    broken: OnceLock<&'static str>,
}

impl Session {
    /// Records that the peer has broken a rule; the device closes the connection.
    pub(super) fn break_off(&self, reason: &'static str) {
        let _ = self.broken.set(reason);
    }

    /// Returns why the connection must be closed, if it must.
    pub(super) fn broken(&self) -> Option<&'static str> {
        self.broken.get().copied()
    }

    /// Returns the region that contains all bytes of a slot, if one does.
    #[inline]
    pub(super) fn region(&self, slot: &Slot) -> Option<&Region> {
        self.regions
            .get(usize::from(slot.region))
            .filter(|region| region.has(slot.offset, slot.length))
            .map(|region| &**region)
    }
}

/// Wakes the reader of a ring, unless its eventfd is full: it has not read since. A hostile peer can make this wait:
/// see
/// [`Ringer`](super::notifier::Ringer).
pub(super) fn ring_bell(bell: &OwnedFd) {
    let mut polled = [PollFd::new(bell, PollFlags::OUT)];
    if poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok()
        && polled[0].revents().contains(PollFlags::OUT)
    {
        // A failed write is harmless: the reader polls later.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}

/// Clears a bell. The peer may have set it to blocking and read it before: this read does not wait.
pub(super) fn silence(bell: &OwnedFd) {
    let mut count = [0; 8];
    let where_it_is = u64::MAX;
    let _ = preadv2(bell, &mut [IoSliceMut::new(&mut count)], where_it_is, ReadWriteFlags::NOWAIT);
}

/// The next step after a message.
#[derive(Debug)]
pub(super) enum NextStep {
    /// Send this, with a descriptor if there is one.
    Respond(Message, Option<Arc<OwnedFd>>),
    /// Send this if anything; then the connection is established.
    Establish(Option<Message>, Box<Session>),
}

/// A handshake in progress.
#[derive(Debug)]
pub(super) enum Handshake {
    Server(Server),
    Client(Box<Client>),
}

impl Handshake {
    /// Handles a message with its descriptors. An error closes the connection, and is sent to the peer.
    pub(super) fn take(
        &mut self,
        message: Message,
        fds: Vec<OwnedFd>,
        config: &MemifConfig,
    ) -> Result<NextStep, &'static str> {
        match self {
            Handshake::Server(server) => server.take(message, fds, config),
            Handshake::Client(client) => client.take(message, fds, config),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Server {
    is_begun: bool,
    peer: String,
    regions: Vec<Arc<Region>>,
    bytes: u64,
    to_server: Vec<RingEnd>,
    to_client: Vec<RingEnd>,
}

impl Server {
    /// Returns the first message of a server.
    pub(super) fn hello(config: &MemifConfig) -> Message {
        Message::Hello {
            name: "linerate".into(),
            versions: (VERSION, VERSION),
            most_region: MOST_REGIONS as u16 - 1,
            most_to_client: config.rings.1 - 1,
            most_to_server: config.rings.0 - 1,
            most_log2: MOST_LOG2,
        }
    }

    fn take(&mut self, message: Message, fds: Vec<OwnedFd>, config: &MemifConfig) -> Result<NextStep, &'static str> {
        let wanted = usize::from(matches!(message, Message::AddRegion { .. } | Message::AddRing(_)));
        if fds.len() != wanted {
            return Err("wrong number of descriptors");
        }
        let said = match (message, fds.into_iter().next()) {
            (Message::Init { version, id, mode, secret, name }, _) if !self.is_begun => {
                check(version == VERSION, "unsupported version: expected 2.0")?;
                check(id == config.id, "ID not found")?;
                check(mode == 0, "only Ethernet")?;
                check(config.secret == [0; SECRET] || secret != [0; SECRET], "secret required")?;
                check(config.secret == [0; SECRET] || secret == config.secret, "incorrect secret")?;
                (self.is_begun, self.peer) = (true, name);
                Message::Ack
            }
            _ if !self.is_begun => return Err("the first message is not INIT"),
            (Message::AddRegion { index, bytes }, Some(fd)) => {
                self.add_region(index, bytes, fd.as_fd(), config)?;
                Message::Ack
            }
            (Message::AddRing(place), Some(fd)) => {
                self.add_ring(place, fd, config)?;
                Message::Ack
            }
            (Message::Connect { .. }, _) => {
                check(!self.to_server.is_empty() || !self.to_client.is_empty(), "no ring")?;
                // Values from before are not ours. The peer writes frames as soon as it receives CONNECTED.
                self.to_server.iter().chain(&self.to_client).for_each(|end| end.ring.set_tail(0));
                self.to_server.iter_mut().for_each(|end| end.full = end.capacity());
                let session = Session {
                    regions: std::mem::take(&mut self.regions),
                    rings: (std::mem::take(&mut self.to_server), std::mem::take(&mut self.to_client)),
                    is_client: false,
                    buffer: 0,
                    peer: std::mem::take(&mut self.peer),
                    broken: OnceLock::new(),
                };
                let connected = Message::Connected { name: "linerate".into() };
                return Ok(NextStep::Establish(Some(connected), Box::new(session)));
            }
            _ => return Err("unexpected message"),
        };
        Ok(NextStep::Respond(said, None))
    }

    fn add_region(
        &mut self,
        index: u16,
        bytes: u64,
        fd: BorrowedFd<'_>,
        config: &MemifConfig,
    ) -> Result<(), &'static str> {
        check(usize::from(index) == self.regions.len() && self.regions.len() < MOST_REGIONS, "invalid region index")?;
        check(bytes > 0 && bytes <= config.memory.saturating_sub(self.bytes), "more memory than allowed: set memory=")?;
        if !config.trusts {
            check(is_sealed(fd), UNSEALED)?;
        }
        let there = fstat(fd).map_or(0, |file| u64::try_from(file.st_size).unwrap_or(0));
        check(bytes <= there, "a region's file is shorter than the region")?;
        let region = Region::map(fd, bytes).map_err(|_| "a region cannot be mapped")?;
        self.bytes += bytes;
        self.regions.push(Arc::new(region));
        Ok(())
    }

    fn add_ring(&mut self, place: RingLocation, fd: OwnedFd, config: &MemifConfig) -> Result<(), &'static str> {
        let (ends, most) = match place.to_server {
            true => (&mut self.to_server, config.rings.0),
            false => (&mut self.to_client, config.rings.1),
        };
        check(place.index < most, "invalid ring index")?;
        check(usize::from(place.index) == ends.len(), "unexpected ring index")?;
        check(place.private == 0, "private headers are not supported")?;
        check(is_bell(fd.as_fd()), "a ring needs an eventfd")?;
        let region = self.regions.get(usize::from(place.region)).ok_or("invalid region index")?;
        let ring = Ring::new(region, place.offset, place.log2).ok_or("invalid ring size or offset")?;
        check(ring.is_ring(), "a ring without its cookie")?;
        ends.push(RingEnd { ring, bell: Arc::new(fd), buffers: 0, full: None });
        Ok(())
    }
}

#[derive(Debug)]
pub(super) struct Client {
    /// Messages still to be sent, in reverse order; `None` before HELLO.
    to_say: Option<Vec<(Message, Option<Arc<OwnedFd>>)>>,
    peer: String,
    session: Option<Box<Session>>,
}

impl Client {
    pub(super) fn new() -> Client {
        Client { to_say: None, peer: String::new(), session: None }
    }

    fn take(&mut self, message: Message, fds: Vec<OwnedFd>, config: &MemifConfig) -> Result<NextStep, &'static str> {
        check(fds.is_empty(), "wrong number of descriptors")?;
        match (message, &mut self.to_say) {
            (Message::Hello { name, versions, most_to_client, most_to_server, most_log2, .. }, None) => {
                check((versions.0..=versions.1).contains(&VERSION), "no common version: expected 2.0")?;
                check(most_log2 > 0, "rings without descriptors")?;
                self.peer = name;
                let rings = (
                    config.rings.0.min(most_to_client.saturating_add(1)),
                    config.rings.1.min(most_to_server.saturating_add(1)),
                );
                self.allocate_regions(rings, config.log2.min(most_log2), config)
                    .map_err(|_| "no memory for the rings")?;
                let init = Message::Init {
                    version: VERSION,
                    id: config.id,
                    mode: 0,
                    secret: config.secret,
                    name: "linerate".into(),
                };
                Ok(NextStep::Respond(init, None))
            }
            (Message::Ack, Some(to_say)) => {
                let (message, fd) = to_say.pop().ok_or("unexpected ACK")?;
                Ok(NextStep::Respond(message, fd))
            }
            (Message::Connected { .. }, Some(to_say)) if to_say.is_empty() => {
                let mut session = self.session.take().ok_or("connected twice")?;
                session.peer = std::mem::take(&mut self.peer);
                Ok(NextStep::Establish(None, session))
            }
            _ => Err("unexpected message"),
        }
    }

    /// Allocates the memory, and queues the messages that describe it.
    fn allocate_regions(&mut self, (inward, outward): (u16, u16), log2: u8, config: &MemifConfig) -> io::Result<()> {
        let count = u64::from(inward) + u64::from(outward);
        let (rings, buffers) = (count * Ring::bytes(log2) as u64, (u64::from(config.buffer)) << log2);
        let bytes = rings + count * buffers + GUARD;
        u32::try_from(bytes).map_err(|_| io::ErrorKind::InvalidInput)?;
        let fd = memfd_create("memif", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&fd, bytes)?;
        fcntl_add_seals(&fd, SealFlags::SHRINK)?;
        let region = Arc::new(Region::map(fd.as_fd(), bytes)?);
        let mut messages = vec![(Message::AddRegion { index: 0, bytes }, Some(Arc::new(fd)))];
        let mut ends = (Vec::new(), Vec::new());
        // Rings to the server first: peers expect this order.
        let directions = (0..outward).map(|index| (true, index)).chain((0..inward).map(|index| (false, index)));
        for (number, (to_server, index)) in directions.enumerate() {
            let offset = (number * Ring::bytes(log2)) as u32;
            let ring = Ring::new(&region, offset, log2).ok_or(io::ErrorKind::InvalidInput)?;
            ring.prepare();
            let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
            let place = RingLocation { to_server, index, region: 0, offset, log2, private: 0 };
            messages.push((Message::AddRing(place), Some(Arc::clone(&bell))));
            let full = Some(config.buffer);
            let end = RingEnd { ring, bell, buffers: (rings + number as u64 * buffers) as u32, full };
            end.empty(config.buffer);
            if to_server { ends.1.push(end) } else { ends.0.push(end) }
        }
        messages.push((Message::Connect { name: "linerate".into() }, None));
        messages.reverse();
        self.to_say = Some(messages);
        let (regions, peer) = (vec![region], String::new());
        let session =
            Session { regions, rings: ends, is_client: true, buffer: config.buffer, peer, broken: OnceLock::new() };
        self.session = Some(Box::new(session));
        Ok(())
    }
}

impl RingEnd {
    /// Returns an empty buffer at a position, of a client.
    #[inline]
    pub(super) fn buffer(&self, position: u16, bytes: u32) -> Slot {
        Slot { flags: 0, region: 0, length: bytes, offset: self.buffers + self.ring.index(position) as u32 * bytes }
    }

    /// Returns the length of the peer's buffers, before it has used one. A client that copies has set it in each
    /// descriptor; others have not.
    fn capacity(&self) -> Option<u32> {
        let lengths = || (0..self.ring.size()).map(|position| self.ring.slot(position).length);
        lengths().next().filter(|first| *first > 0 && lengths().all(|length| length == *first))
    }

    /// Sets all slots to their empty buffers, so that the peer knows the length of a full one.
    fn empty(&self, bytes: u32) {
        (0..self.ring.size()).for_each(|position| self.ring.set_slot(position, self.buffer(position, bytes)));
    }
}

/// Returns whether the memory of a file cannot be truncated, which would kill this process on access: ordinary pages,
/// and sealed.
fn is_sealed(fd: BorrowedFd<'_>) -> bool {
    fcntl_get_seals(fd).is_ok_and(|seals| seals.contains(SealFlags::SHRINK))
        && fstatfs(fd).is_ok_and(|system| system.f_type == TMPFS)
}

/// Returns whether it is an eventfd. Its link is read, not the file: a file of a hostile peer may block for ever.
fn is_bell(fd: BorrowedFd<'_>) -> bool {
    let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
    readlinkat(CWD, link, Vec::new()).is_ok_and(|name| name.as_bytes() == b"anon_inode:[eventfd]")
}

fn check(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
}
