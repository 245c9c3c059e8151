//! Copying frames out of many lanes into one block, in the order of a merge.
//!
//! Unsafe because it copies whole vectors, over the end of a frame at both sides: every burst has [`TAIL`] readable bytes
//! behind its frames, every block as many writable ones behind its end. What is written behind a frame is
//! written again by the next.
#![allow(unsafe_code)]

use crate::memory::Memory;
use crate::{Burst, Desc, Pick, RECORD_HEADER, TAIL};

/// Copies the frames that `picks` name to the end of a block, which has `frames` frames and its next record at `next`.
/// Returns how many found room, and where the next record goes then.
#[inline]
pub(crate) fn gather(
    memory: &mut Memory,
    (frames, next): (usize, usize),
    lanes: &[Burst<'_>],
    picks: &[Pick],
    mut finish: impl FnMut(&mut Desc, &[u8], Pick),
) -> (usize, usize) {
    let mut at = next;
    for (taken, pick) in picks.iter().enumerate() {
        let burst = &lanes[pick.lane()];
        let source = &burst.descs()[pick.index()];
        let frame = burst.frame(pick.index());
        let room = memory.layout().bytes - TAIL - at;
        if RECORD_HEADER + source.captured as usize > room || frames + taken == memory.layout().frames {
            return (taken, at);
        }
        let mut desc = *source;
        finish(&mut desc, frame, *pick);
        desc.captured = desc.captured.min(source.captured);
        desc.offset = (at + RECORD_HEADER) as u32;
        memory.write(frames + taken, at, &desc, &frame[..desc.captured as usize]);
        at += RECORD_HEADER + desc.captured as usize;
    }
    (picks.len(), at)
}
