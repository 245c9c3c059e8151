//! A second implementation of the protocol of `docs/block-ring.md`, from its numbers: a reader and a writer that do
//! whatever a test requires. They share no code with the crate.
#![allow(dead_code)]

use crate::support::{Ring, frame, time};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use rustix::net::*;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::time::Duration;

/// Offsets of the arena.
pub(crate) mod arena {
    pub(crate) const SLOTS: usize = 36;
    pub(crate) const SLOTS_OFFSET: usize = 40;
    pub(crate) const SLOT_BYTES: usize = 48;
    pub(crate) const HORIZON: usize = 264;
    pub(crate) const STATE: usize = 280;
    pub(crate) const INTERFACES: usize = 284;
    pub(crate) const TABLE: usize = 4096;
}

/// Offsets of the control memory.
pub(crate) mod control {
    pub(crate) const CAPACITY: usize = 24;
    pub(crate) const PUBLISHED: usize = 128;
    pub(crate) const RETURNED: usize = 256;
    pub(crate) const SLEEPING: usize = 384;
    pub(crate) const RINGS: usize = 512;
}

/// A mapping of a whole file.
pub(crate) struct Map {
    base: *mut u8,
    pub bytes: usize,
}

// SAFETY: it is accessed only by atomics.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    pub(crate) fn new(fd: BorrowedFd<'_>, write: bool) -> rustix::io::Result<Map> {
        let bytes = fstat(fd)?.st_size as usize;
        let access = if write { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe { mmap(null_mut(), bytes, access, MapFlags::SHARED, fd, 0)? };
        Ok(Map { base: base.cast(), bytes })
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.base
    }

    pub(crate) fn byte(&self, at: usize) -> &AtomicU8 {
        assert!(at < self.bytes);
        // SAFETY: inside the mapping.
        unsafe { AtomicU8::from_ptr(self.base.add(at)) }
    }

    pub(crate) fn word(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= self.bytes && at.is_multiple_of(4));
        // SAFETY: inside the mapping, at a multiple of 4.
        unsafe { AtomicU32::from_ptr(self.base.add(at).cast()) }
    }

    pub(crate) fn long(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= self.bytes && at.is_multiple_of(8));
        // SAFETY: inside the mapping, at a multiple of 8.
        unsafe { AtomicU64::from_ptr(self.base.add(at).cast()) }
    }

    pub(crate) fn copy(&self, at: usize, length: usize) -> Vec<u8> {
        (at..at + length).map(|at| self.byte(at).load(Relaxed)).collect()
    }

    pub(crate) fn put(&self, at: usize, bytes: &[u8]) {
        bytes.iter().enumerate().for_each(|(index, byte)| self.byte(at + index).store(*byte, Relaxed));
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`.
        unsafe { munmap(self.base.cast(), self.bytes).unwrap() };
    }
}

pub(crate) fn address(name: &str) -> SocketAddrUnix {
    SocketAddrUnix::new_abstract_name(format!("linerate/{name}").as_bytes()).unwrap()
}

pub(crate) fn socket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

/// Returns a socket connected to a ring, before the hello.
pub(crate) fn connected(name: &str) -> OwnedFd {
    let socket = socket();
    connect(&socket, &address(name)).unwrap();
    socket
}

pub(crate) fn hello(major: u32, lossless: bool, quota: u32) -> [u8; 128] {
    let mut hello = [0; 128];
    hello[..4].copy_from_slice(b"LRHi");
    hello[4..8].copy_from_slice(&major.to_ne_bytes());
    hello[12..16].copy_from_slice(&u32::from(lossless).to_ne_bytes());
    hello[16..20].copy_from_slice(&quota.to_ne_bytes());
    hello[20..24].copy_from_slice(&3u32.to_ne_bytes());
    hello[32..35].copy_from_slice(b"raw");
    hello
}

/// Receives the next message, without blocking, with its descriptors; `None` if none is waiting, and no bytes if the
/// peer has closed the socket.
pub(crate) fn read_message(socket: &OwnedFd) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let (mut bytes, mut space) = ([0; 600], [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))]);
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let message = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut rights, flags).ok()?;
    let fds = rights.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    Some((bytes[..message.bytes].to_vec(), fds.collect()))
}

/// Sends a message, with descriptors.
pub(crate) fn send_message(socket: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(rights.push(SendAncillaryMessage::ScmRights(fds)));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    // The peer may have closed the socket.
    let _ = sendmsg(socket, &[IoSlice::new(bytes)], &mut rights, flags);
}

/// Receives a rejection: the status and the text.
pub(crate) fn refusal(socket: &OwnedFd) -> (u32, String) {
    let (bytes, fds) = read_message(socket).or_else(|| read_message(socket)).expect("an answer");
    assert!(fds.is_empty() && bytes.len() == 512, "{} bytes", bytes.len());
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    (word(12), String::from_utf8(bytes[64..64 + word(48) as usize].to_vec()).unwrap())
}

/// A reader that does whatever a test requires.
pub(crate) struct RawReader {
    pub socket: OwnedFd,
    pub arena_fd: OwnedFd,
    pub arena: Map,
    pub control: Map,
    pub taken: u64,
    pub returned: u64,
}

impl RawReader {
    pub(crate) fn attach(ring: &mut Ring, lossless: bool, quota: u32) -> RawReader {
        let socket = connected(&ring.name);
        send_message(&socket, &hello(1, lossless, quota), &[]);
        ring.let_in();
        let (bytes, fds) = read_message(&socket).expect("an answer");
        assert_eq!((&bytes[..4], &bytes[12..16]), (&b"LRWe"[..], &[0; 4][..]));
        let [arena_fd, control] = fds.try_into().expect("two descriptors");
        let arena = Map::new(arena_fd.as_fd(), false).unwrap();
        let control = Map::new(control.as_fd(), true).unwrap();
        assert_eq!(&arena.copy(0, 8), b"LINERATE");
        RawReader { socket, arena_fd, arena, control, taken: 0, returned: 0 }
    }

    /// Takes the next published block, and the index of its first frame.
    pub(crate) fn take(&mut self) -> Option<(u32, u32)> {
        if self.control.long(control::PUBLISHED).load(Acquire) == self.taken {
            return None;
        }
        let mask = u64::from(self.control.word(control::CAPACITY).load(Relaxed)) - 1;
        let entry = self.control.long(control::RINGS + (self.taken & mask) as usize * 8).load(Relaxed);
        self.taken += 1;
        Some((entry as u32, (entry >> 32) as u32))
    }

    /// Puts an entry into the ring of returned blocks, without counting it.
    pub(crate) fn put(&mut self, entry: u64) {
        let capacity = u64::from(self.control.word(control::CAPACITY).load(Relaxed));
        let at = capacity + (self.returned & (capacity - 1));
        self.control.long(control::RINGS + at as usize * 8).store(entry, Relaxed);
    }

    /// Returns a block, or any other number.
    pub(crate) fn give(&mut self, entry: u64) {
        self.put(entry);
        self.returned += 1;
        self.control.long(control::RETURNED).store(self.returned, Release);
    }

    /// Returns the offset of a block.
    pub(crate) fn block(&self, slot: u32) -> usize {
        let bytes = self.arena.long(arena::SLOT_BYTES).load(Relaxed);
        (self.arena.long(arena::SLOTS_OFFSET).load(Relaxed) + u64::from(slot) * bytes) as usize
    }

    /// Returns whether a block is closed, and its number of committed frames.
    pub(crate) fn progress(&self, slot: u32) -> (bool, u32) {
        let closed = self.arena.word(self.block(slot) + 108).load(Acquire) == 1;
        (closed, self.arena.word(self.block(slot) + 64).load(Acquire))
    }

    /// Returns a frame of a block.
    pub(crate) fn frame(&self, slot: u32, index: u32) -> Vec<u8> {
        let desc = self.block(slot) + 128 + index as usize * 32;
        let word = |at| self.arena.word(desc + at).load(Relaxed) as usize;
        self.arena.copy(self.block(slot) + word(8), word(12))
    }
}

/// A writer that does whatever a test requires, for one reader.
pub(crate) struct RawWriter {
    pub listener: OwnedFd,
    pub arena_fd: OwnedFd,
    pub control_fd: OwnedFd,
    pub arena: Map,
    pub control: Map,
    pub socket: Option<OwnedFd>,
    pub published: u64,
}

/// Number of blocks of a raw writer, and bytes of each.
pub(crate) const RAW_SLOTS: u32 = 4;
pub(crate) const RAW_BYTES: usize = 512 << 10;
/// Number of descs of such a block, and offset of its records: (512 KiB - 192) / (32 + 16 + 60), rounded up to a page.
pub(crate) const RAW_FRAMES: u32 = 4852;
pub(crate) const RAW_BODY: u32 = 155_648;

impl RawWriter {
    pub(crate) fn new(name: &str) -> RawWriter {
        let listener = socket();
        bind(&listener, &address(name)).unwrap();
        listen(&listener, 1).unwrap();
        let make = |bytes: usize| {
            let fd = memfd_create("raw", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&fd, bytes as u64).unwrap();
            fcntl_add_seals(&fd, SealFlags::SHRINK).unwrap();
            let map = Map::new(fd.as_fd(), true).unwrap();
            (fd, map)
        };
        let (arena_fd, arena) = make((2 << 20) + RAW_SLOTS as usize * RAW_BYTES);
        let (control_fd, control) = make(4096);
        let writer = RawWriter { listener, arena_fd, control_fd, arena, control, socket: None, published: 0 };
        writer.put_headers();
        writer
    }

    /// Writes the headers that a valid ring needs.
    pub(crate) fn put_headers(&self) {
        let arena = &self.arena;
        arena.put(0, b"LINERATE");
        let words = [(8, 0x0102_0304), (12, 1), (20, 4096), (24, 4096), (28, 512), (32, 1024), (36, RAW_SLOTS)];
        words.iter().for_each(|(at, value)| arena.word(*at).store(*value, Relaxed));
        [(64, RAW_FRAMES), (68, RAW_BODY), (72, 4096), (76, u32::MAX), (arena::STATE, 1), (arena::INTERFACES, 1)]
            .iter()
            .for_each(|(at, value)| arena.word(*at).store(*value, Relaxed));
        [(40, 2 << 20), (48, RAW_BYTES as u64), (56, arena.bytes as u64), (80, 77)]
            .iter()
            .for_each(|(at, value)| arena.long(*at).store(*value, Relaxed));
        arena.word(arena::TABLE).store(1, Relaxed);
        let control = &self.control;
        control.put(0, b"LINERATE");
        [(8, 1), (24, RAW_SLOTS), (28, 512), (32, 512 + RAW_SLOTS * 8), (152, 1)]
            .iter()
            .for_each(|(at, value)| control.word(*at).store(*value, Relaxed));
        control.long(16).store(77, Relaxed);
    }

    pub(crate) fn accept(&mut self) {
        let socket = accept_with(&self.listener, SocketFlags::CLOEXEC).unwrap();
        // A reader in another process may send its hello long after it has connected.
        let hello = (0..10_000).find_map(|_| {
            std::thread::sleep(Duration::from_millis(1));
            read_message(&socket)
        });
        assert_eq!(hello.unwrap().0.len(), 128);
        self.socket = Some(socket);
    }

    pub(crate) fn answer(&self) -> [u8; 512] {
        let mut welcome = [0; 512];
        welcome[..4].copy_from_slice(b"LRWe");
        welcome[4..8].copy_from_slice(&1u32.to_ne_bytes());
        welcome[24..32].copy_from_slice(&77u64.to_ne_bytes());
        welcome
    }

    /// Accepts a connection and sends the welcome.
    pub(crate) fn welcome(&mut self) {
        self.accept();
        let fds = [self.arena_fd.as_fd(), self.control_fd.as_fd()];
        send_message(self.socket.as_ref().unwrap(), &self.answer(), &fds);
    }

    pub(crate) fn block(&self, slot: u32) -> usize {
        (2 << 20) + slot as usize * RAW_BYTES
    }

    /// Fills a block with frames as a valid writer would, from the first index on.
    pub(crate) fn fill(&self, slot: u32, first: u64, frames: u32) {
        let block = self.block(slot);
        let mut at = RAW_BODY as usize;
        for index in 0..frames {
            let id = first + u64::from(index);
            let frame = frame(id);
            let desc = block + 128 + index as usize * 32;
            self.arena.long(desc).store(time(id).0, Relaxed);
            self.arena.word(desc + 8).store(at as u32 + 16, Relaxed);
            self.arena.word(desc + 12).store(frame.len() as u32, Relaxed);
            self.arena.word(desc + 16).store(0, Relaxed);
            self.arena.word(desc + 20).store(0, Relaxed);
            self.arena.word(desc + 24).store(0xffff, Relaxed);
            self.arena.word(desc + 28).store(id as u32, Relaxed);
            self.arena.put(block + at + 16, &frame);
            at += 16 + frame.len();
        }
        self.arena.word(block + 64).store(frames, Release);
        self.arena.word(block + 108).store(1, Release);
    }

    pub(crate) fn publish(&mut self, entry: u64) {
        let at = control::RINGS + (self.published % u64::from(RAW_SLOTS)) as usize * 8;
        self.control.long(at).store(entry, Relaxed);
        self.published += 1;
        self.control.long(control::PUBLISHED).store(self.published, SeqCst);
    }
}
