//! Scripted peer that sends and writes arbitrary messages. It shares no code with the backend; its memory is written
//! with `pwrite`, so it needs no mapping.

use linerate_backends::{open_rx, open_tx};
use linerate_burst::{Count, Ledger, Nanos};
use linerate_engine::clock::now;
use linerate_port::{PortError, RxOptions, RxPort, Spec, TxOptions, TxPort};
use linerate_tests::support::wait_until;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, pread, pwrite};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, recvmsg, sendmsg,
    shutdown, socket_with,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Log2 of the descriptors of the peer's rings; bytes of its buffers.
pub(super) const LOG2: u8 = 3;
pub(super) const SLOTS: u16 = 1 << LOG2;
pub(super) const BUFFER: u32 = 256;
/// Offsets of its rings and their buffers: to the server, to the client.
pub(super) const RINGS: [u32; 2] = [0, 128 + 16 * SLOTS as u32];
pub(super) const BUFFERS: [u32; 2] = [4096, 4096 + SLOTS as u32 * BUFFER];
/// Bytes of its region.
pub(super) const REGION: u64 = 16384;
/// Flag of a descriptor: the frame continues in the next buffer.
pub(super) const NEXT: u16 = 1;

/// Returns a unique name.
pub(super) fn name() -> String {
    static USED: AtomicU32 = AtomicU32::new(0);
    format!("linerate-memif-{}-{}", std::process::id(), USED.fetch_add(1, Ordering::Relaxed))
}

/// Port under test, both directions.
pub(super) struct Port {
    pub rx: RxPort,
    pub tx: TxPort,
    time: Nanos,
}

impl Port {
    pub(super) fn open(text: &str) -> Port {
        let spec = Spec::parse(text).unwrap();
        let rx = open_rx(&spec, &RxOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let tx = open_tx(&spec, &TxOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        Port { rx, tx, time: now() }
    }

    /// Advances time by a millisecond, and returns the received frames or the error.
    pub(super) fn step(&mut self) -> Result<Vec<Vec<u8>>, PortError> {
        self.time = self.time.after(Duration::from_millis(1));
        let mut frames: Vec<Vec<u8>> = Vec::new();
        for queue in &mut self.rx.queues {
            let head = queue.fill(self.time)?;
            let shown = head.burst.len();
            frames.extend(head.burst.iter().map(|(_, frame)| frame.to_vec()));
            queue.consume(shown);
        }
        self.tx.queues[0].flush(self.time)?;
        Ok(frames)
    }

    /// Services the connection without reading its rings.
    pub(super) fn service(&mut self) {
        self.time = self.time.after(Duration::from_millis(1));
        self.tx.queues[0].flush(self.time).unwrap();
    }

    /// Advances time by some milliseconds, ignoring errors.
    pub(super) fn settle(&mut self) {
        (0..4).for_each(|_| drop(self.step()));
    }

    /// Returns its counters, and checks their balance.
    pub(super) fn ledger(&self) -> Ledger {
        let mut ledger = Ledger::new();
        self.rx.queues.iter().for_each(|queue| queue.counters(&mut ledger));
        self.tx.queues[0].counters(&mut ledger);
        assert_eq!(ledger.imbalances(), [], "{ledger:#?}");
        ledger
    }

    pub(super) fn count(&self, count: Count) -> u64 {
        self.ledger().total(count)
    }
}

/// Control socket, sequenced packets, nonblocking.
pub(super) struct Socket(OwnedFd);

impl Socket {
    /// Connects to this abstract name.
    pub(super) fn connect(name: &str) -> Socket {
        let socket = seqpacket();
        connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        Socket(socket)
    }

    /// Listens on this abstract name.
    pub(super) fn listen(name: &str) -> Socket {
        let socket = seqpacket();
        bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
        listen(&socket, 4).unwrap();
        Socket(socket)
    }

    /// Accepts the next connection, if there is one.
    pub(super) fn accept(&self) -> Option<Socket> {
        accept_with(&self.0, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok().map(Socket)
    }

    /// Sends a message with descriptors.
    pub(super) fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut rights = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(rights.push(SendAncillaryMessage::ScmRights(fds)));
        }
        let _ = sendmsg(&self.0, &[IoSlice::new(bytes)], &mut rights, SendFlags::NOSIGNAL);
    }

    /// Receives a message: `None` if none is pending, no bytes if the other end has closed.
    pub(super) fn receive(&self) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        let mut bytes = [0; 256];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut rights = RecvAncillaryBuffer::new(&mut space);
        match recvmsg(&self.0, &mut [IoSliceMut::new(&mut bytes)], &mut rights, RecvFlags::CMSG_CLOEXEC) {
            Err(Errno::AGAIN) => None,
            Err(_) => Some((Vec::new(), Vec::new())),
            Ok(message) => {
                let fds = rights.drain().filter_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(fds) => Some(fds),
                    _ => None,
                });
                Some((bytes[..message.bytes].to_vec(), fds.flatten().collect()))
            }
        }
    }

    /// Receives the next message, and returns its kind.
    pub(super) fn kind(&self) -> Option<u16> {
        self.receive().map(|(bytes, _)| if bytes.is_empty() { 0 } else { u16::from_ne_bytes([bytes[0], bytes[1]]) })
    }

    /// Returns the reason that the other end gave before it closed the connection.
    pub(super) fn closing_reason(&self) -> String {
        let mut reason = String::new();
        let mut is_closed = false;
        // A process that another test starts has a copy of each socket until it executes its program.
        wait_until("the other end has closed the connection", || {
            while let Some((bytes, _)) = self.receive() {
                is_closed = bytes.is_empty();
                match bytes.first() {
                    None => break,
                    Some(8) => reason = String::from_utf8_lossy(&bytes[6..]).trim_end_matches('\0').to_owned(),
                    Some(_) => {}
                }
            }
            is_closed
        });
        reason
    }
}

impl Drop for Socket {
    /// Disconnects also where a process that another test starts has a copy.
    fn drop(&mut self) {
        let _ = shutdown(&self.0, Shutdown::Both);
    }
}

fn seqpacket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None).unwrap()
}

/// Builds a message of this kind, with these parts at their offsets.
pub(super) fn message(kind: u16, parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; 128];
    bytes[..2].copy_from_slice(&kind.to_ne_bytes());
    parts.iter().for_each(|(at, part)| bytes[*at..at + part.len()].copy_from_slice(part));
    bytes
}

pub(super) fn ack() -> Vec<u8> {
    message(1, &[])
}

/// Builds a HELLO of a server that accepts two rings per direction.
pub(super) fn hello() -> Vec<u8> {
    let halves: Vec<u8> = [0x200u16, 0x200, 255, 1, 1].iter().flat_map(|half| half.to_ne_bytes()).collect();
    message(2, &[(34, &halves), (44, &[14])])
}

pub(super) fn init(version: u16, id: u32, mode: u8, secret: &[u8]) -> Vec<u8> {
    message(3, &[(2, &version.to_ne_bytes()), (4, &id.to_ne_bytes()), (8, &[mode]), (9, secret), (33, b"fake")])
}

pub(super) fn add_region(index: u16, bytes: u64) -> Vec<u8> {
    message(4, &[(2, &index.to_ne_bytes()), (4, &bytes.to_ne_bytes())])
}

pub(super) fn add_ring(to_server: bool, index: u16, region: u16, offset: u32, log2: u8) -> Vec<u8> {
    let flags = u16::from(to_server).to_ne_bytes();
    let (index, region, offset) = (index.to_ne_bytes(), region.to_ne_bytes(), offset.to_ne_bytes());
    message(5, &[(2, &flags), (4, &index), (6, &region), (8, &offset), (12, &[log2])])
}

pub(super) fn connect_message() -> Vec<u8> {
    message(6, &[])
}

pub(super) fn connected() -> Vec<u8> {
    message(7, &[(2, b"fake")])
}

/// Shared memory of a client.
pub(super) struct Memory(pub OwnedFd);

impl Memory {
    /// Creates a region with a ring per direction; its descriptors announce the buffer lengths.
    pub(super) fn new(sealed: bool) -> Memory {
        let memory = Memory(memfd_create("memif of a test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap());
        ftruncate(&memory.0, REGION).unwrap();
        if sealed {
            fcntl_add_seals(&memory.0, SealFlags::SHRINK).unwrap();
        }
        for (ring, buffers) in RINGS.into_iter().zip(BUFFERS) {
            memory.put(ring, &0x03E3_1F20u32.to_ne_bytes());
            (0..SLOTS).for_each(|slot| memory.desc(ring, slot, (0, 0, BUFFER, buffers + u32::from(slot) * BUFFER)));
        }
        memory
    }

    pub(super) fn put(&self, at: u32, bytes: &[u8]) {
        assert_eq!(pwrite(&self.0, bytes, at.into()).unwrap(), bytes.len());
    }

    pub(super) fn get<const N: usize>(&self, at: u32) -> [u8; N] {
        let mut bytes = [0; N];
        assert_eq!(pread(&self.0, &mut bytes, at.into()).unwrap(), N);
        bytes
    }

    pub(super) fn half(&self, at: u32) -> u16 {
        u16::from_ne_bytes(self.get(at))
    }

    pub(super) fn head(&self, ring: u32, head: u16) {
        self.put(ring + 6, &head.to_ne_bytes());
    }

    pub(super) fn tail(&self, ring: u32, tail: u16) {
        self.put(ring + 64, &tail.to_ne_bytes());
    }

    /// Writes a descriptor: flags, region, length, offset.
    pub(super) fn desc(&self, ring: u32, slot: u16, (flags, region, length, offset): (u16, u16, u32, u32)) {
        let at = ring + 128 + 16 * u32::from(slot % SLOTS);
        let bytes = [&flags.to_ne_bytes()[..], &region.to_ne_bytes(), &length.to_ne_bytes(), &offset.to_ne_bytes()];
        self.put(at, &bytes.concat());
    }

    /// Returns the length and flags of a descriptor.
    pub(super) fn length(&self, ring: u32, slot: u16) -> (u32, u16) {
        let at = ring + 128 + 16 * u32::from(slot % SLOTS);
        (u32::from_ne_bytes(self.get(at + 4)), self.half(at))
    }

    /// Writes bytes to the buffer of a slot to the server.
    pub(super) fn fill(&self, slot: u16, bytes: &[u8]) {
        self.put(BUFFERS[0] + u32::from(slot % SLOTS) * BUFFER, bytes);
    }

    /// Writes a frame to the server over as many buffers as needed, and returns the next slot; the head is unchanged.
    pub(super) fn frame(&self, mut slot: u16, bytes: &[u8]) -> u16 {
        let chunks: Vec<&[u8]> = bytes.chunks(BUFFER as usize).collect();
        for (index, chunk) in chunks.iter().enumerate() {
            self.fill(slot, chunk);
            let flags = if index + 1 < chunks.len() { NEXT } else { 0 };
            let offset = BUFFERS[0] + u32::from(slot % SLOTS) * BUFFER;
            self.desc(RINGS[0], slot, (flags, 0, chunk.len() as u32, offset));
            slot = slot.wrapping_add(1);
        }
        slot
    }
}

/// Client of a port.
pub(super) struct Client {
    pub socket: Socket,
    pub memory: Memory,
    pub bells: [OwnedFd; 2],
}

impl Client {
    /// Returns the messages of a connection setup, in order.
    pub(super) fn steps(&self) -> Vec<(Vec<u8>, Vec<BorrowedFd<'_>>)> {
        vec![
            (init(0x200, 0, 0, b""), vec![]),
            (add_region(0, REGION), vec![self.memory.0.as_fd()]),
            (add_ring(true, 0, 0, RINGS[0], LOG2), vec![self.bells[0].as_fd()]),
            (add_ring(false, 0, 0, RINGS[1], LOG2), vec![self.bells[1].as_fd()]),
            (connect_message(), vec![]),
        ]
    }

    pub(super) fn new(name: &str, memory: Memory) -> Client {
        let bell = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        Client { socket: Socket::connect(name), memory, bells: [bell(), bell()] }
    }

    /// Connects, and posts all buffers.
    pub(super) fn connected(name: &str, port: &mut Port) -> Client {
        Client::connected_by(name, port, Port::settle)
    }

    /// Connects to this interface; `serve` lets the ports process the messages.
    pub(super) fn connected_to(name: &str, id: u32, mut serve: impl FnMut()) -> Client {
        let client = Client::new(name, Memory::new(true));
        serve();
        assert_eq!(client.socket.kind(), Some(2), "no hello");
        for (index, (bytes, fds)) in client.steps().iter().enumerate() {
            let own = init(0x200, id, 0, b"");
            client.socket.send(if index == 0 { &own } else { bytes }, fds);
            serve();
            assert_eq!(client.socket.kind(), Some(if index == 4 { 7 } else { 1 }), "step {index}");
        }
        client.memory.head(RINGS[1], SLOTS);
        client
    }

    /// Connects; `serve` lets the port process the messages.
    pub(super) fn connected_by(name: &str, port: &mut Port, serve: fn(&mut Port)) -> Client {
        let client = Client::new(name, Memory::new(true));
        serve(port);
        assert_eq!(client.socket.kind(), Some(2), "no hello");
        for (index, (bytes, fds)) in client.steps().iter().enumerate() {
            client.socket.send(bytes, fds);
            serve(port);
            let answer = client.socket.kind();
            assert_eq!(answer, Some(if index == 4 { 7 } else { 1 }), "step {index}: {:?}", port.ledger());
        }
        client.memory.head(RINGS[1], SLOTS);
        client
    }
}

/// Returns a frame of this length that starts with this byte.
pub(super) fn frame(first: u8, length: usize) -> Vec<u8> {
    (0..length).map(|at| first.wrapping_add((at / 7) as u8)).collect()
}
