//! The three block types that hold a frame.

use super::block::{HEAD, Order, TRAILER};
use super::option::{KnownOption, PAIR, READ, VERDICT, are_complete, copy, has, options, push};
use super::time::Clock;
use crate::error::Fault;
use crate::origin::Notes;
use linerate_burst::{Desc, Flags, MAX_FRAME, Nanos};

/// `epb_flags`, `pack_flags`: direction, FCS length, link-layer errors.
const FLAGS: u16 = 2;
/// `epb_dropcount`.
const DROPS: u16 = 4;
const DIRECTION: u32 = 0b11;
const INBOUND: u32 = 0b01;
const OUTBOUND: u32 = 0b10;
const FCS_LENGTH: u32 = 0x1e0;
const FCS_SHIFT: u32 = 5;
const LINK_ERRORS: u32 = 0xffff_0000;
/// Bit of `epb_flags`: wrong link-layer checksum.
const CRC_ERROR: u32 = 1 << 24;

/// Known options of a frame, besides comments: flags, hash, drop count, packet number, queue, verdict, process and
/// thread.
const KEPT: [KnownOption; 7] = [(FLAGS, READ), (3, 1), (DROPS, 8), (5, 8), (6, 4), (7, VERDICT), (8, PAIR)];

/// Temporary value in a desc: its frame has a note.
pub(super) const NOTED: u16 = u16::MAX;

/// Common properties of the frames of an interface.
#[derive(Clone, Copy, Debug)]
pub(super) struct InterfaceFormat {
    /// Index into the interfaces of the whole file.
    pub index: u16,
    pub clock: Clock,
    /// Maximum captured length; 0: unlimited.
    pub snap: u32,
    /// Bytes of FCS at the end of its frames, unless a frame gives another length.
    pub fcs: u8,
}

/// Finds the interface of a frame among those of its section.
#[inline]
fn lane(lanes: &[InterfaceFormat], id: u32) -> Result<&InterfaceFormat, Fault> {
    lanes
        .get(id as usize)
        .ok_or_else(|| Fault::damaged(format!("packet of interface {id} in a section with {} interfaces", lanes.len())))
}

/// Parses an enhanced packet block at the start of `rest`, at `at` of the memory, if it is complete, valid and of the most
/// common kind: without options or FCS, of an interface whose clock counts from 1970. Returns its length, too. The
/// result is that of [`enhanced`], in a third of the time.
#[inline(always)]
pub(super) fn plain(rest: &[u8], at: usize, order: Order, lanes: &[InterfaceFormat]) -> Option<(Desc, usize)> {
    let [_, length, id, high, low, captured, wire] = order.words::<7>(rest)?;
    let lane = lanes.get(id as usize).filter(|lane| lane.fcs == 0)?;
    let room = (captured as usize).next_multiple_of(4);
    if captured as usize > MAX_FRAME || length as usize != ENHANCED_FRAME + room + TRAILER {
        return None;
    }
    let trailer = rest.get(ENHANCED_FRAME + room..)?.first_chunk::<TRAILER>()?;
    let time = lane.clock.simple_time(u64::from(high) << 32 | u64::from(low))?;
    let desc = Desc { wire, interface: lane.index, ..Desc::new(time, (at + ENHANCED_FRAME) as u32, captured) };
    (order.u32(*trailer) == length).then_some((desc, length as usize))
}

/// Parses an enhanced packet block; `body` starts at `at` of the memory.
#[inline]
pub(super) fn enhanced(body: &[u8], at: usize, order: Order, lanes: &[InterfaceFormat]) -> Result<Desc, Fault> {
    let Some([id, high, low, captured, wire]) = order.words::<5>(body) else {
        return Err(Fault::damaged("enhanced packet block is too short"));
    };
    framed(&body[20..], at + 20, order, lane(lanes, id)?, [high, low, captured, wire])
}

/// Parses an obsolete packet block: like an enhanced one, but with 16 bits for the interface and 16 for drops.
pub(super) fn obsolete(body: &[u8], at: usize, order: Order, lanes: &[InterfaceFormat]) -> Result<Desc, Fault> {
    let (Some(words), Some(id)) = (order.words::<5>(body), body.first_chunk::<2>()) else {
        return Err(Fault::damaged("packet block is too short"));
    };
    let [_, high, low, captured, wire] = words;
    framed(&body[20..], at + 20, order, lane(lanes, order.u16(*id).into())?, [high, low, captured, wire])
}

/// Parses a simple packet block, which has neither time nor interface: it belongs to the first one, and gets the time
/// of the frame before it, so that file order remains time order.
pub(super) fn simple(
    body: &[u8],
    at: usize,
    order: Order,
    lanes: &[InterfaceFormat],
    last: Nanos,
) -> Result<Desc, Fault> {
    let Some([wire]) = order.words::<1>(body) else {
        return Err(Fault::damaged("simple packet block is too short"));
    };
    let lane = lane(lanes, 0)?;
    let captured = if lane.snap == 0 { wire } else { wire.min(lane.snap) };
    check_length(captured, body.len() - 4)?;
    let mut desc = Desc { wire, interface: lane.index, ..Desc::new(last, (at + 4) as u32, captured) };
    desc.take_fcs_off(lane.fcs);
    Ok(desc)
}

/// Parses the frame at the start of `bytes`, with options after it.
#[inline]
fn framed(bytes: &[u8], at: usize, order: Order, lane: &InterfaceFormat, words: [u32; 4]) -> Result<Desc, Fault> {
    let [high, low, captured, wire] = words;
    check_length(captured, bytes.len())?;
    let time = lane.clock.time(u64::from(high) << 32 | u64::from(low));
    let mut desc = Desc { wire, interface: lane.index, ..Desc::new(time, at as u32, captured) };
    let behind = (captured as usize).next_multiple_of(4);
    let mut fcs = lane.fcs;
    if bytes.len() > behind {
        (desc.flags, desc.note, fcs) = parse_options(&bytes[behind..], order, lane.fcs);
    }
    if fcs != 0 {
        desc.take_fcs_off(fcs);
    }
    Ok(desc)
}

/// Parses the options of a frame: its flags, [`NOTED`] if flags cannot express them, and its FCS length.
fn parse_options(bytes: &[u8], order: Order, usual_fcs: u8) -> (Flags, u16, u8) {
    let mut note = if are_complete(bytes, order) { 0 } else { NOTED };
    let mut word = 0;
    for (code, value) in options(bytes, order) {
        match <[u8; 4]>::try_from(value) {
            Ok(value) if code == FLAGS => word = order.u32(value),
            _ => note = NOTED,
        }
    }
    if !is_expressed_by_flags(word, usual_fcs) {
        note = NOTED;
    }
    let fcs = ((word & FCS_LENGTH) >> FCS_SHIFT) as u8;
    (flags(word), note, if fcs == 0 { usual_fcs } else { fcs })
}

/// Returns whether the flags of a desc, and the FCS of its interface, express all of `epb_flags`.
fn is_expressed_by_flags(word: u32, usual_fcs: u8) -> bool {
    let fcs = (word & FCS_LENGTH) >> FCS_SHIFT;
    word & !(DIRECTION | FCS_LENGTH | CRC_ERROR) == 0
        && word & DIRECTION != DIRECTION
        && (fcs == 0 || usual_fcs == 0 && matches!(fcs, 2 | 4))
}

/// Stores the options of the frame that `desc` was made of; returns the number left out. `of_block` is the usual FCS
/// length, and the number of frames lost before this one according to an obsolete block.
#[cold]
pub(super) fn store_options(desc: &mut Desc, body: &[u8], order: Order, notes: &Notes, of_block: (u8, u64)) -> u64 {
    let (usual_fcs, drops) = of_block;
    let captured = order.words::<5>(body).map_or(0, |words| words[3]);
    let options = body.get(20 + (captured as usize).next_multiple_of(4)..).unwrap_or_default();
    let mut kept = Vec::new();
    let mut left_out = copy(options, order, &KEPT, &mut kept);
    for (_, value) in self::options(options, order).filter(|(code, _)| *code == FLAGS) {
        match <[u8; 4]>::try_from(value).map(|value| order.u32(value)) {
            Ok(word) if is_expressed_by_flags(word, usual_fcs) => {}
            Ok(word) => push(&mut kept, FLAGS, &word.to_ne_bytes()),
            Err(_) => left_out += 1,
        }
    }
    if drops > 0 {
        push(&mut kept, DROPS, &drops.to_ne_bytes());
    }
    desc.note = if kept.is_empty() { 0 } else { notes.push(desc.time, &kept) };
    left_out
}

/// Returns the number of frames lost before that of an obsolete packet block, if known.
pub(super) fn drops(body: &[u8], order: Order) -> u64 {
    match body.get(2..).and_then(|rest| rest.first_chunk::<2>()).map(|drops| order.u16(*drops)) {
        None | Some(u16::MAX) => 0,
        Some(drops) => drops.into(),
    }
}

/// Returns whether a desc cannot represent the time of a frame.
#[cold]
pub(super) fn is_time_changed(body: &[u8], order: Order, clock: Clock) -> bool {
    let ticks = order.words::<3>(body).map(|[_, high, low]| u64::from(high) << 32 | u64::from(low));
    ticks.is_some_and(|ticks| clock.is_beyond(ticks))
}

#[inline]
fn check_length(captured: u32, room: usize) -> Result<(), Fault> {
    if captured as usize > MAX_FRAME {
        return Err(Fault::too_long(captured));
    }
    if captured as usize > room {
        return Err(Fault::damaged(format!("packet of {captured} bytes in a block with room for {room}")));
    }
    Ok(())
}

fn flags(word: u32) -> Flags {
    let mut flags = match word & DIRECTION {
        INBOUND => Flags::INCOMING,
        OUTBOUND => Flags::OUTGOING,
        _ => Flags::NONE,
    };
    if word & LINK_ERRORS != 0 {
        flags |= Flags::DAMAGED;
    }
    flags
}

/// Returns the `epb_flags` option of a frame, if needed: its code and word. A note has the exact link-layer error;
/// without one the bit of a wrong checksum stands for all. `fcs` is an FCS length that differs from the interface's.
#[inline]
pub(super) fn flags_option(flags: Flags, fcs: u32, note: &[u8]) -> Option<(u16, u32)> {
    let direction = match (flags.contains(Flags::OUTGOING), flags.contains(Flags::INCOMING)) {
        (true, _) => OUTBOUND,
        (false, true) => INBOUND,
        (false, false) => 0,
    };
    let damaged = if flags.contains(Flags::DAMAGED) { CRC_ERROR } else { 0 };
    let word = direction | damaged | fcs << FCS_SHIFT;
    (word != 0 && !has(note, FLAGS)).then_some((FLAGS, word))
}

/// Offset of the frame in an enhanced packet block.
pub(super) const ENHANCED_FRAME: usize = HEAD + 20;

#[cfg(test)]
mod tests {
    use super::super::block;
    use super::*;
    use linerate_burst::random::next as random;

    /// Random blocks, most of them valid: what the fast parser accepts, the general one reads in the same way.
    #[test]
    fn plain_blocks_are_parsed_as_others() {
        let format = |index, (resolution, offset), fcs| InterfaceFormat {
            index,
            clock: Clock::new(resolution, offset),
            snap: 0,
            fcs,
        };
        let lanes = [format(7, (6, 0), 0), format(8, (9, 0), 0), format(9, (9, 0), 4), format(10, (9, 5), 0)];
        let (mut state, mut plain_ones) = (1, 0);
        for case in 0..20_000u64 {
            let mut pick = |values: &[u32]| values[random(&mut state) as usize % values.len()];
            let captured = pick(&[0, 1, 59, 60, 61, 64, MAX_FRAME as u32 + 1]);
            let extra = pick(&[0, 0, 0, 0, 4, 8, 1]);
            let length = (ENHANCED_FRAME + TRAILER) as u32 + captured.next_multiple_of(4) + extra;
            let time = [pick(&[0, 0x5_0000, u32::MAX]), pick(&[0, 99, u32::MAX])];
            let words = [block::ENHANCED_PACKET, length, pick(&[0, 0, 1, 1, 2, 3, 4]), time[0], time[1], captured, 60];
            let order = Order { swapped: case % 2 == 1 };
            let word = |word: u32| order.u32(word.to_ne_bytes()).to_ne_bytes();
            let mut bytes: Vec<u8> = words.into_iter().flat_map(word).collect();
            bytes.resize((length as usize).max(ENHANCED_FRAME + TRAILER) - TRAILER, 0);
            bytes.extend(word(length.wrapping_add(pick(&[0, 0, 0, 0, 0, 0, 4]))));
            bytes.truncate(bytes.len() - pick(&[0, 0, 0, 0, 0, 1, 9]) as usize);
            let Some((desc, taken)) = plain(&bytes, 100, order, &lanes) else { continue };
            plain_ones += 1;
            let body = block::body(&bytes[..taken], order).unwrap();
            assert_eq!(enhanced(body, 100 + HEAD, order, &lanes), Ok(desc), "case {case}");
            assert!(!matches!(desc.time, Nanos::ZERO | Nanos::MAX), "case {case}: its time may have to be counted");
        }
        assert!(plain_ones > 2000, "{plain_ones}");
    }
}
