//! The three blocks that hold a frame.

use super::block::{HEAD, Order};
use super::option::{Kept, copy, options};
use super::time::Clock;
use crate::error::Fault;
use crate::origin::Notes;
use linerate_burst::{Desc, Flags, MAX_FRAME, Nanos};

/// `epb_flags`, `pack_flags`: direction, FCS length, link-layer errors.
const FLAGS: u16 = 2;
const DIRECTION: u32 = 0b11;
const OUTBOUND: u32 = 0b10;
const LINK_ERRORS: u32 = 0xffff_0000;
/// The bit of `epb_flags` for a wrong checksum of the link layer.
const CRC_ERROR: u32 = 1 << 24;

/// Options of a frame that are kept beside comments: hash, drop count, packet number, queue.
const KEPT: [Kept; 4] = [(3, 1), (4, 8), (5, 8), (6, 4)];

/// In a desc, for now: its frame has a note.
pub(super) const NOTED: u16 = u16::MAX;

/// What the frames of one interface have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane {
    /// Index into the interfaces of the whole file.
    pub index: u16,
    pub clock: Clock,
    /// Longest captured length; 0 for no limit.
    pub snap: u32,
}

/// Finds the interface of a frame among those of its section.
#[inline]
fn lane(lanes: &[Lane], id: u32) -> Result<&Lane, Fault> {
    lanes.get(id as usize).ok_or_else(|| {
        Fault::damaged(format!("a frame of interface {id} in a section with {} interfaces", lanes.len()))
    })
}

/// An enhanced packet block: `body` begins at `at` of the memory.
#[inline]
pub(super) fn enhanced(body: &[u8], at: usize, order: Order, lanes: &[Lane]) -> Result<Desc, Fault> {
    let Some([id, high, low, captured, wire]) = order.words::<5>(body) else {
        return Err(Fault::damaged("an enhanced packet block that is too short"));
    };
    framed(&body[20..], at + 20, order, lane(lanes, id)?, [high, low, captured, wire])
}

/// An obsolete packet block: as an enhanced one, but with 16 bits for the interface and 16 for drops.
pub(super) fn obsolete(body: &[u8], at: usize, order: Order, lanes: &[Lane]) -> Result<Desc, Fault> {
    let (Some(words), Some(id)) = (order.words::<5>(body), body.first_chunk::<2>()) else {
        return Err(Fault::damaged("a packet block that is too short"));
    };
    let [_, high, low, captured, wire] = words;
    framed(&body[20..], at + 20, order, lane(lanes, order.u16(*id).into())?, [high, low, captured, wire])
}

/// A simple packet block, which knows neither time nor interface: it is of the first one, and takes the
/// time of the frame before it, so that the order of the file stays the order in time.
pub(super) fn simple(body: &[u8], at: usize, order: Order, lanes: &[Lane], last: Nanos) -> Result<Desc, Fault> {
    let Some([wire]) = order.words::<1>(body) else {
        return Err(Fault::damaged("a simple packet block that is too short"));
    };
    let lane = lane(lanes, 0)?;
    let captured = if lane.snap == 0 { wire } else { wire.min(lane.snap) };
    check_length(captured, body.len() - 4)?;
    Ok(Desc { wire, interface: lane.index, ..Desc::new(last, (at + 4) as u32, captured) })
}

/// The frame at the front of `bytes`, with options behind it.
#[inline]
fn framed(bytes: &[u8], at: usize, order: Order, lane: &Lane, words: [u32; 4]) -> Result<Desc, Fault> {
    let [high, low, captured, wire] = words;
    check_length(captured, bytes.len())?;
    let time = lane.clock.time(u64::from(high) << 32 | u64::from(low));
    let mut desc = Desc { wire, interface: lane.index, ..Desc::new(time, at as u32, captured) };
    let behind = (captured as usize).next_multiple_of(4);
    if bytes.len() > behind + 4 {
        (desc.flags, desc.note) = look_at(&bytes[behind..], order);
    }
    Ok(desc)
}

/// The flags that the options of a frame give it, and [`NOTED`] if they say more than flags.
fn look_at(bytes: &[u8], order: Order) -> (Flags, u16) {
    let mut note = 0;
    let mut word = 0;
    for (code, value) in options(bytes, order) {
        match <[u8; 4]>::try_from(value) {
            Ok(value) if code == FLAGS => word = order.u32(value),
            _ => note = NOTED,
        }
    }
    (flags(word), note)
}

/// Keeps what options say of the frame in the body that `desc` was made of; returns how many make no sense.
#[cold]
pub(super) fn keep_note(desc: &mut Desc, body: &[u8], order: Order, notes: &Notes) -> u64 {
    let options = 20 + (desc.captured as usize).next_multiple_of(4);
    let mut kept = Vec::new();
    let senseless = copy(body.get(options..).unwrap_or_default(), order, &KEPT, &mut kept);
    desc.note = if kept.is_empty() { 0 } else { notes.push(desc.time, &kept) };
    senseless
}

#[inline]
fn check_length(captured: u32, room: usize) -> Result<(), Fault> {
    if captured as usize > MAX_FRAME {
        return Err(Fault::too_long(captured));
    }
    if captured as usize > room {
        return Err(Fault::damaged(format!("a frame of {captured} bytes in a block with room for {room}")));
    }
    Ok(())
}

fn flags(word: u32) -> Flags {
    let mut flags = Flags::NONE;
    if word & DIRECTION == OUTBOUND {
        flags |= Flags::OUTGOING;
    }
    if word & LINK_ERRORS != 0 {
        flags |= Flags::DAMAGED;
    }
    flags
}

/// The `epb_flags` option that says what can be said of a frame, if anything: its code and its word.
/// Which link-layer error damaged a frame is not kept; the bit of a wrong checksum stands for all.
#[inline]
pub(super) fn flags_option(flags: Flags) -> Option<(u16, u32)> {
    let outbound = if flags.contains(Flags::OUTGOING) { OUTBOUND } else { 0 };
    let damaged = if flags.contains(Flags::DAMAGED) { CRC_ERROR } else { 0 };
    (outbound | damaged != 0).then_some((FLAGS, outbound | damaged))
}

/// Where the frame of an enhanced packet block lies behind the block's begin.
pub(super) const ENHANCED_FRAME: usize = HEAD + 20;
