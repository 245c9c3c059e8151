//! Blocks of a receive ring owned by this process, and the frames shown from them.
//!
//! Unsafe for one call, [`PacketBlocks::shown`]: the guarantee that no shown frame is in a released block rests on the
//! private fields here and nowhere else.
#![allow(unsafe_code)]

use super::packet_ring::{CardTimes, PacketRing, Walk};
use crate::clocks::ClockMapping;
use linerate_burst::{Burst, Desc};
use std::collections::VecDeque;

/// Maximum descs shown at a time, and the number below which more are added.
const SHOWN: usize = 1024;
const REFILL: usize = 256;

/// A receive ring read in order: frames are shown, consumed, and their blocks released.
pub(crate) struct PacketBlocks {
    ring: PacketRing,
    /// Frames walked; those before `consumed` are consumed.
    descs: Vec<Desc>,
    consumed: usize,
    /// The block being walked: the last one of `held`.
    walk: Option<Walk>,
    /// The block that the kernel hands over next.
    next: u32,
    /// Blocks not released, oldest first, each with the number of its frames in `descs`, not consumed.
    held: VecDeque<(u32, usize)>,
    /// Frames with an invalid header, which were skipped.
    bad: u64,
    /// Times of a card that stamps frames.
    card: Option<CardTimes>,
}

impl PacketBlocks {
    /// Reads a new ring from its first block.
    pub(crate) fn new(ring: PacketRing) -> Self {
        PacketBlocks {
            ring,
            descs: Vec::with_capacity(SHOWN),
            consumed: 0,
            walk: None,
            next: 0,
            held: VecDeque::new(),
            bad: 0,
            card: None,
        }
    }

    /// Shows more frames if few are left. `super_frame` as for [`PacketRing::walk`]. Returns the number of new frames,
    /// at the end of those shown, and whether the ring has no more.
    pub(crate) fn refill(&mut self, super_frame: u32) -> (usize, bool) {
        if self.descs.len() - self.consumed >= REFILL {
            return (0, false);
        }
        self.descs.drain(..self.consumed);
        self.consumed = 0;
        let old = self.descs.len();
        while self.descs.len() < SHOWN {
            let Some(mut walk) = self.walk.take().or_else(|| self.open_next()) else {
                return (self.descs.len() - old, true);
            };
            let before = self.descs.len();
            let (ring, descs, card) = (&mut self.ring, &mut self.descs, &mut self.card);
            let walked = match card {
                None => ring.walk::<false>(&mut walk, descs, SHOWN, super_frame, card),
                Some(_) => ring.walk::<true>(&mut walk, descs, SHOWN, super_frame, card),
            };
            if let Some((_, frames)) = self.held.back_mut() {
                *frames += self.descs.len() - before;
            }
            match walked {
                Ok(()) if walk.left > 0 => self.walk = Some(walk),
                Ok(()) => {}
                Err(_) => self.bad += u64::from(walk.left),
            }
            self.release_consumed();
        }
        (self.descs.len() - old, false)
    }

    /// Returns the descs of the frames shown.
    pub(crate) fn descs(&self) -> &[Desc] {
        &self.descs[self.consumed..]
    }

    /// Returns the frames shown.
    pub(crate) fn shown(&self) -> Burst<'_> {
        // SAFETY: the descs not consumed are from walks of blocks in `held`: only `release_consumed` releases blocks,
        // and only those without such descs.
        unsafe { self.ring.burst(self.descs()) }
    }

    /// Consumes the first frames shown.
    ///
    /// # Panics
    /// If fewer are shown.
    pub(crate) fn consume(&mut self, frames: usize) {
        assert!(frames <= self.descs().len(), "{frames} frames consumed, {} shown", self.descs().len());
        self.consumed += frames;
        let mut left = frames;
        for (_, unconsumed) in &mut self.held {
            let taken = left.min(*unconsumed);
            *unconsumed -= taken;
            left -= taken;
        }
        self.release_consumed();
    }

    /// Returns the number of frames that were skipped for an invalid header.
    pub(crate) fn bad(&self) -> u64 {
        self.bad
    }

    /// Sets the conversion of card times to host times for the next frames.
    pub(crate) fn set_line(&mut self, line: ClockMapping) {
        let missing = self.unstamped();
        self.card = Some(CardTimes { line, missing });
    }

    /// Returns the number of frames that the card did not stamp.
    pub(crate) fn unstamped(&self) -> u64 {
        self.card.map_or(0, |card| card.missing)
    }

    fn open_next(&mut self) -> Option<Walk> {
        // A held block has the status USER too: it is owned already, not newly ready.
        if self.held.len() == self.ring.blocks() as usize || !self.ring.is_ready(self.next) {
            return None;
        }
        let walk = self.ring.open(self.next);
        self.held.push_back((self.next, 0));
        self.next = (self.next + 1) % self.ring.blocks();
        Some(walk)
    }

    /// Releases the oldest blocks that have no frames left, except the one being walked.
    fn release_consumed(&mut self) {
        while let Some((block, 0)) = self.held.front().copied() {
            if self.held.len() == 1 && self.walk.is_some() {
                break;
            }
            self.ring.release(block);
            self.held.pop_front();
        }
    }
}
