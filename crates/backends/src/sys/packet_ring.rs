//! The receive rings of AF_PACKET, exchanged between kernel and process: blocks of frames (TPACKET_V3), or slots of one
//! frame each (TPACKET_V2), which are handled as blocks of one frame (linux/if_packet.h;
//! Documentation/networking/packet_mmap.rst).
//!
//! Unsafe because the ring is memory that the kernel writes. The rule that makes it sound: while a block's status is
//! USER, the kernel does not touch it, so its bytes are ours until [`PacketRing::release`].
#![allow(unsafe_code)]

use super::packet_socket::PacketSocket;
use crate::clocks::ClockMapping;
use linerate_burst::{Burst, Desc, Flags, MAX_FRAME, Nanos, TAIL, prefetch_address};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes that the kernel leaves free before each frame, to restore a VLAN tag.
const RESERVE: u32 = 16;
const TPACKET_V2: u32 = 1;
const TPACKET_V3: u32 = 2;
const PAGE: usize = 4096;
const VLAN_TAG: usize = 4;
const MAC_ADDRESSES: usize = 12;
const TPID_8021Q: u16 = 0x8100;

/// `sll_pkttype` of frames that this host sends.
const PACKET_OUTGOING: u8 = 4;
/// Bytes of struct tpacket3_hdr and the struct sockaddr_ll after it.
const HEADERS: u32 = 48 + 20;
/// The same of struct tpacket2_hdr.
const SLOT_HEADERS: u32 = 32 + 20;
/// Bytes that the kernel needs in a slot before an Ethernet frame: headers, alignment, and the reserve.
pub(crate) const SLOT_OVERHEAD: u32 = 96;
/// Slots are allocated by the kernel in blocks of this size.
pub(crate) const SLOT_BLOCK: u32 = 64 << 10;

/// Distance of prefetches, and bytes of a cache line.
const FRAMES_AHEAD: usize = 4;
const LINE: usize = 64;

/// A restored VLAN tag must not make a frame longer than any part of linerate handles.
const LONGEST: u32 = MAX_FRAME as u32 - VLAN_TAG as u32;

const STATUS_USER: u32 = 1;
const STATUS_LOSING: u32 = 1 << 2;
const STATUS_CSUM_NOT_READY: u32 = 1 << 3;
const STATUS_VLAN_VALID: u32 = 1 << 4;
const STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
const STATUS_CSUM_VALID: u32 = 1 << 7;
const STATUS_GSO_TCP: u32 = 1 << 8;
const STATUS_RAW_HARDWARE: u32 = 1 << 31;

/// Layout of a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    /// Bytes of a block, a multiple of the page size; or of a slot, a power of two up to 64 KiB.
    pub block_bytes: u32,
    /// Number of blocks or slots.
    pub blocks: u32,
    /// Time after which a block that is not full is handed over; `None` for slots, which are handed over at once.
    pub timeout_ms: Option<u32>,
}

/// A ring mapped into this process.
pub(crate) struct PacketRing {
    base: *mut u8,
    mapped: usize,
    layout: Layout,
}

// SAFETY: the mapping belongs only to this value; nothing about it is tied to a thread.
unsafe impl Send for PacketRing {}

/// A walk through the frames of one block that is ours.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    block: u32,
    /// Offset of the next frame header from the start of the block.
    next: u32,
    /// Frames still to come.
    pub left: u32,
    /// Flags of all frames of the block.
    flags: Flags,
}

/// Times of a card that stamps frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CardTimes {
    /// Conversion to host times.
    pub line: ClockMapping,
    /// Frames that it did not stamp: they have the kernel's stamp in host time.
    pub missing: u64,
}

impl CardTimes {
    /// Returns the time of a frame, whose status names the source of the stamp.
    fn of(&mut self, status: u32, time: Nanos) -> Nanos {
        if status & STATUS_RAW_HARDWARE != 0 {
            return self.line.to_host(time);
        }
        self.missing += 1;
        time
    }
}

/// A frame header that exceeds its block.
#[derive(Debug)]
pub(crate) struct BadRecord;

impl PacketRing {
    /// Sets a ring up on a socket that is not bound yet, and maps it.
    pub(crate) fn new(socket: &PacketSocket, layout: Layout) -> io::Result<Self> {
        socket.set(libc::PACKET_VERSION, if layout.timeout_ms.is_some() { TPACKET_V3 } else { TPACKET_V2 })?;
        socket.set(libc::PACKET_RESERVE, RESERVE)?;
        if let Some(timeout_ms) = layout.timeout_ms {
            let request = libc::tpacket_req3 {
                tp_block_size: layout.block_bytes,
                tp_block_nr: layout.blocks,
                tp_frame_size: 2048,
                tp_frame_nr: layout.block_bytes / 2048 * layout.blocks,
                tp_retire_blk_tov: timeout_ms,
                tp_sizeof_priv: 0,
                tp_feature_req_word: 0,
            };
            socket.set_raw(libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        } else {
            let request = libc::tpacket_req {
                tp_block_size: SLOT_BLOCK,
                tp_block_nr: layout.blocks / (SLOT_BLOCK / layout.block_bytes),
                tp_frame_size: layout.block_bytes,
                tp_frame_nr: layout.blocks,
            };
            socket.set_raw(libc::SOL_PACKET, libc::PACKET_RX_RING, &request)?;
        }
        let bytes = layout.block_bytes as usize * layout.blocks as usize;
        // A page of zeros after the ring, so that TAIL bytes after its last frame may be read.
        let mapped = bytes + PAGE;
        const { assert!(TAIL <= PAGE) };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                mapped,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let ring = PacketRing { base: base.cast(), mapped, layout };
        // SAFETY: replaces the front of the mapping just made, which nothing points into yet.
        let front = unsafe {
            libc::mmap(
                base,
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED | libc::MAP_POPULATE,
                socket.fd().as_raw_fd(),
                0,
            )
        };
        if front == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(ring) }
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> u32 {
        self.layout.blocks
    }

    /// Returns whether the kernel has handed a block over.
    #[inline]
    pub(crate) fn is_ready(&self, block: u32) -> bool {
        self.status(block).load(Ordering::Acquire) & STATUS_USER != 0
    }

    /// Starts a walk through a block that is ready.
    pub(crate) fn open(&self, block: u32) -> Walk {
        debug_assert!(self.is_ready(block));
        // struct tpacket_block_desc: version, offset_to_priv, block_status, num_pkts, offset_to_first_pkt.
        // Loss of frames is a flag of a block or slot.
        let losing = self.status(block).load(Ordering::Relaxed) & STATUS_LOSING != 0;
        let flags = if losing { Flags::LOSING } else { Flags::NONE };
        match self.layout.timeout_ms {
            Some(_) => Walk { block, left: self.word(block, 12), next: self.word(block, 16), flags },
            None => Walk { block, left: 1, next: 0, flags },
        }
    }

    /// Appends the descs of the next frames of a walk until there are `limit`, and restores VLAN tags. Frames longer on
    /// the wire than `super_frame` bytes are flagged as such. `STAMPED` if a card stamps them, so that other walks do
    /// not check for it.
    pub(crate) fn walk<const STAMPED: bool>(
        &mut self,
        walk: &mut Walk,
        descs: &mut Vec<Desc>,
        limit: usize,
        super_frame: u32,
        card: &mut Option<CardTimes>,
    ) -> Result<(), BadRecord> {
        while walk.left > 0 && descs.len() < limit {
            let header = self.header(walk).ok_or(BadRecord)?;
            self.prefetch_header(walk, header.next);
            let block_start = walk.block * self.layout.block_bytes;
            let mut flags = flags_of(header.status) | walk.flags;
            let mut offset = block_start + walk.next + u32::from(header.mac);
            let (mut captured, mut wire) = (header.captured.min(LONGEST), header.wire);
            if header.status & STATUS_VLAN_VALID != 0 {
                wire += VLAN_TAG as u32;
                if captured as usize >= MAC_ADDRESSES {
                    self.restore_vlan(offset as usize, &header);
                    offset -= VLAN_TAG as u32;
                    captured += VLAN_TAG as u32;
                    flags |= Flags::VLAN_RESTORED;
                }
            }
            if header.kind == PACKET_OUTGOING {
                flags |= Flags::OUTGOING;
            }
            if header.wire > super_frame {
                flags |= Flags::SUPER_FRAME;
            }
            let mut time = Nanos::from_parts(header.seconds.into(), header.nanos.into());
            if STAMPED && let Some(card) = card {
                time = card.of(header.status, time);
            }
            descs.push(Desc { captured, wire, flags, ..Desc::new(time, offset, captured) });
            walk.left -= 1;
            walk.next = walk.next.saturating_add(header.next);
        }
        Ok(())
    }

    /// Returns frames of this ring as a burst.
    ///
    /// # Safety
    /// The descs are from [`PacketRing::walk`] and their blocks have not been released.
    pub(crate) unsafe fn burst<'a>(&'a self, descs: &'a [Desc]) -> Burst<'a> {
        // SAFETY: `walk` checked that each frame is inside its block, the kernel does not touch those blocks until they
        // are released (the caller's guarantee), and a page follows the last block.
        unsafe { Burst::from_raw(self.base, descs) }
    }

    /// Hands a block back to the kernel.
    pub(crate) fn release(&mut self, block: u32) {
        self.status(block).store(0, Ordering::Release);
    }

    fn status(&self, block: u32) -> &AtomicU32 {
        assert!(block < self.layout.blocks);
        let at = if self.layout.timeout_ms.is_some() { 8 } else { 0 };
        // SAFETY: inside the mapping (just checked) and aligned (a block starts on a page, a slot at a power of two);
        // kernel and process both access this word, atomically.
        unsafe { AtomicU32::from_ptr(self.base.add(self.start(block) + at).cast()) }
    }

    fn start(&self, block: u32) -> usize {
        block as usize * self.layout.block_bytes as usize
    }

    /// Returns a 32-bit word of a block that is ours, 0 if it is outside.
    #[inline]
    fn word(&self, block: u32, at: u32) -> u32 {
        if at as usize + 4 > self.layout.block_bytes as usize {
            return 0;
        }
        // SAFETY: inside the block (just checked), which is ours, so it is not written now.
        unsafe { self.base.add(self.start(block) + at as usize).cast::<u32>().read_unaligned() }
    }

    /// Returns the header of the frame that a walk has reached, if header and frame are inside the block.
    #[inline]
    fn header(&self, walk: &Walk) -> Option<Header> {
        let limit = self.layout.block_bytes;
        let headers = if self.layout.timeout_ms.is_some() { HEADERS } else { SLOT_HEADERS };
        if walk.next > limit - headers {
            return None;
        }
        let word = |index: u32| self.word(walk.block, walk.next + 4 * index);
        let header = if self.layout.timeout_ms.is_some() { Header::of_block(word) } else { Header::of_slot(word) };
        let end = u64::from(walk.next) + u64::from(header.mac) + u64::from(header.captured);
        (end <= u64::from(limit) && u32::from(header.mac) >= headers + VLAN_TAG as u32).then_some(header)
    }

    /// Prefetches the header of a later frame, if the frames before it are as long as that of a walk: each header names
    /// the next one, so the processor cannot fetch it ahead by itself. Headers may begin anywhere in a cache line.
    #[inline]
    fn prefetch_header(&self, walk: &Walk, step: u32) {
        let ahead = self.start(walk.block) + walk.next as usize + FRAMES_AHEAD * step as usize;
        prefetch_address(self.base.wrapping_add(ahead));
        prefetch_address(self.base.wrapping_add(ahead + LINE - 1));
    }

    /// Moves the two MAC addresses forward by four bytes and writes the tag after them.
    fn restore_vlan(&mut self, frame: usize, header: &Header) {
        let known = header.status & STATUS_VLAN_TPID_VALID != 0;
        let tpid = if known { header.vlan_tpid } else { TPID_8021Q };
        // SAFETY: `frame` starts at least VLAN_TAG bytes after its own headers and holds at least two addresses (both
        // checked by the caller), so the bytes from VLAN_TAG before it to MAC_ADDRESSES after are in this frame's own
        // room inside a block that is ours.
        let room = unsafe { std::slice::from_raw_parts_mut(self.base.add(frame - VLAN_TAG), VLAN_TAG + MAC_ADDRESSES) };
        room.copy_within(VLAN_TAG.., 0);
        room[MAC_ADDRESSES..MAC_ADDRESSES + 2].copy_from_slice(&tpid.to_be_bytes());
        room[MAC_ADDRESSES + 2..].copy_from_slice(&header.vlan_tci.to_be_bytes());
    }
}

impl Drop for PacketRing {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`; bursts borrow the ring, so none is left.
        unsafe { libc::munmap(self.base.cast(), self.mapped) };
    }
}

struct Header {
    next: u32,
    seconds: u32,
    nanos: u32,
    captured: u32,
    wire: u32,
    status: u32,
    mac: u16,
    vlan_tci: u16,
    vlan_tpid: u16,
    kind: u8,
}

impl Header {
    /// Reads a header by its words. struct tpacket3_hdr: next_offset, sec, nsec, snaplen, len, status, mac:net, rxhash,
    /// vlan_tci, vlan_tpid:padding; struct sockaddr_ll follows: family:protocol, ifindex, hatype:pkttype:halen.
    #[inline]
    fn of_block(word: impl Fn(u32) -> u32) -> Self {
        Header {
            next: word(0),
            seconds: word(1),
            nanos: word(2),
            captured: word(3),
            wire: word(4),
            status: word(5),
            mac: word(6) as u16,
            vlan_tci: word(8) as u16,
            vlan_tpid: word(9) as u16,
            kind: (word(14) >> 16) as u8,
        }
    }

    /// The same of struct tpacket2_hdr: status, len, snaplen, mac:net, sec, nsec, vlan_tci:vlan_tpid, padding; then
    /// struct sockaddr_ll.
    #[inline]
    fn of_slot(word: impl Fn(u32) -> u32) -> Self {
        Header {
            next: 0,
            seconds: word(4),
            nanos: word(5),
            captured: word(2),
            wire: word(1),
            status: word(0),
            mac: word(3) as u16,
            vlan_tci: word(6) as u16,
            vlan_tpid: (word(6) >> 16) as u16,
            kind: (word(10) >> 16) as u8,
        }
    }
}

#[inline]
fn flags_of(status: u32) -> Flags {
    let flag = |bit, flag| if status & bit != 0 { flag } else { Flags::NONE };
    flag(STATUS_CSUM_NOT_READY, Flags::CHECKSUM_PARTIAL)
        | flag(STATUS_CSUM_VALID, Flags::CHECKSUM_VALID)
        | flag(STATUS_GSO_TCP, Flags::SUPER_FRAME)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clocks::{ClockReading, Relation};

    /// Words of `tp_status` as written by kernels: stamped by the card, by the kernel, not stamped.
    #[test]
    fn status_names_the_timestamp_source() {
        let ahead = ClockReading { card: Nanos(37_000_000_500), host: Nanos(500) };
        let mut card = CardTimes { line: Relation::new(ahead).line(), missing: 0 };
        let time = Nanos(37_000_000_777);
        assert_eq!((card.of(0x8000_0081, time), card.missing), (Nanos(777), 0), "TP_STATUS_TS_RAW_HARDWARE");
        assert_eq!((card.of(0x2000_0001, Nanos(9)), card.missing), (Nanos(9), 1), "TP_STATUS_TS_SOFTWARE");
        assert_eq!((card.of(0x0000_0001, Nanos(10)), card.missing), (Nanos(10), 2));
    }
}
