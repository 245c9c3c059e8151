//! Frames that nobody fills: free ones, and finished ones that nobody has fetched.

use super::filling::Filling;
use super::frame::Frame;
use super::memory::Memory;
use super::{Config, FramesError};
use crate::place::{Ending, Ends, StreamId};
use std::collections::VecDeque;

/// The two rings of a pool.
#[derive(Debug)]
pub(crate) struct Pool {
    config: Config,
    free: Vec<Frame>,
    full: VecDeque<Frame>,
    next: u64,
    /// Bytes that did not come, of all finished frames.
    missing: u64,
}

impl Pool {
    pub fn new(config: &Config) -> Result<Self, FramesError> {
        config.check()?;
        let frame = |_| Frame::new(Memory::new(config.size), config.granule);
        let free = (0..config.frames).map(frame).collect();
        Ok(Pool { config: *config, free, full: VecDeque::new(), next: 0, missing: 0 })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How many frames are free.
    #[inline]
    pub fn free(&self) -> usize {
        self.free.len()
    }

    /// How many are finished, and have not been fetched.
    pub fn waiting(&self) -> usize {
        self.full.len()
    }

    pub fn finished(&self) -> u64 {
        self.next
    }

    pub fn missing(&self) -> u64 {
        self.missing
    }

    /// A free frame, to be filled.
    pub fn begin(&mut self, stream: StreamId, ends: &Ends, number: u64) -> Option<Filling> {
        Some(Filling::new(self.free.pop()?, stream, ends, number, &self.config))
    }

    /// The frame is finished with byte `len`.
    pub fn finish(&mut self, filling: Filling, len: usize, ending: Option<Ending>) {
        let frame = filling.finish(&self.config, len, ending, self.next);
        self.next += 1;
        self.missing += frame.meta.missing;
        self.full.push_back(frame);
    }

    /// A stream ended where no frame begins: one without memory says so.
    pub fn finish_without(&mut self, stream: StreamId, ends: &Ends, number: u64, ending: Ending) {
        let frame = Frame::new(Memory::default(), self.config.granule);
        let filling = Filling::new(frame, stream, ends, number, &self.config);
        self.finish(filling, 0, Some(ending));
    }

    /// Nothing came to this frame.
    pub fn give_up(&mut self, filling: Filling) {
        self.free.push(filling.give_up());
    }

    /// The next finished frame.
    #[inline]
    pub fn full(&mut self) -> Option<Frame> {
        self.full.pop_front()
    }

    /// Takes a frame back that was fetched; those without memory, and those of another size, are none of this pool.
    pub fn give_back(&mut self, frame: Frame) {
        if frame.memory.len() == self.config.size && self.config.size > 0 {
            self.free.push(frame);
        }
    }
}

#[cfg(test)]
impl Pool {
    /// Finished frames that are not just the news of an end.
    pub fn waiting_with_memory(&self) -> usize {
        self.full.iter().filter(|frame| frame.memory.len() > 0).count()
    }
}
