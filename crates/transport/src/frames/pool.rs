//! Idle frames: free ones, and finished ones not fetched yet.

use super::frame::Frame;
use super::memory::Memory;
use super::partial_frame::PartialFrame;
use super::remote::{CopyPath, RemoteMemory};
use super::{Config, FramesError};
use crate::copy::{KernelThroughput, calibrate};
use crate::stream_memory::{Ending, Ends, StreamId};
use linerate_burst::pool::OwnedBytes;
use std::collections::VecDeque;

/// The two queues of a pool.
#[derive(Debug)]
pub(crate) struct Pool {
    config: Config,
    pub way: CopyPath,
    free: Vec<Frame>,
    full: VecDeque<Frame>,
    next: u64,
    /// Missing bytes of all finished frames.
    missing: u64,
}

impl Pool {
    pub(crate) fn new(config: &Config) -> Result<Self, FramesError> {
        config.check()?;
        let none = FramesError::Memory(config.frames, config.size);
        let frame = |_| Some(Frame::new(Memory::new(config.size)?, config.granule));
        let free = (0..config.frames).map(frame).collect::<Option<_>>().ok_or(none)?;
        Ok(Pool::of(config, free, CopyPath::of(config.kernel)))
    }

    /// Creates a pool over external memory.
    pub(crate) fn over(config: &Config, pieces: Vec<OwnedBytes>) -> Result<Self, FramesError> {
        config.check()?;
        if pieces.len() != config.frames || pieces.iter().any(|piece| piece.len() != config.size) {
            return Err(FramesError::Pieces(config.frames, config.size));
        }
        let frame = |(place, piece)| Frame::new(Memory::over(piece, Some(place)), config.granule);
        let free = (0..).zip(pieces).map(frame).collect();
        Ok(Pool::of(config, free, CopyPath::of(config.kernel)))
    }

    /// Creates a pool with no local memory: `beyond` receives bytes in blocks.
    pub(crate) fn beyond(config: &Config, beyond: Box<dyn RemoteMemory>) -> Result<Self, FramesError> {
        config.check()?;
        let count = u32::try_from(config.frames).map_err(|_| FramesError::Frames(config.frames, config.size))?;
        let frame = |place| Frame::new(Memory::beyond(config.size, place), config.granule);
        Ok(Pool::of(config, (0..count).map(frame).collect(), CopyPath::beyond(beyond)))
    }

    fn of(config: &Config, free: Vec<Frame>, way: CopyPath) -> Self {
        Pool { config: *config, way, free, full: VecDeque::new(), next: 0, missing: 0 }
    }

    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the number of free frames.
    #[inline]
    pub(crate) fn free(&self) -> usize {
        self.free.len()
    }

    /// Returns the number of finished frames not fetched yet.
    pub(crate) fn waiting(&self) -> usize {
        self.full.len()
    }

    pub(crate) fn finished(&self) -> u64 {
        self.next
    }

    pub(crate) fn missing(&self) -> u64 {
        self.missing
    }

    /// Measures the copy kernels on free frames, and selects the fastest.
    pub(crate) fn calibrate(&mut self, piece: usize, clock: &dyn Fn() -> u64) -> Vec<KernelThroughput> {
        if self.way.is_beyond() {
            return Vec::new();
        }
        let mut memory: Vec<&mut [u8]> = self.free.iter_mut().map(|frame| frame.memory.bytes_mut()).collect();
        let found = calibrate(&mut memory, piece, clock);
        if let Some(fastest) = found.first() {
            // A frame in progress was filled by the old kernel, and will be finished with the fence of the new one.
            self.config.kernel.fence();
            (self.config.kernel, self.way.kernel) = (fastest.kernel, fastest.kernel);
        }
        found
    }

    /// Takes a free frame.
    pub(crate) fn begin(&mut self, stream: StreamId, ends: &Ends, number: u64) -> Option<PartialFrame> {
        Some(PartialFrame::new(self.free.pop()?, stream, ends, number, &self.config))
    }

    /// Finishes a frame at length `len`.
    pub(crate) fn finish(&mut self, filling: PartialFrame, len: usize, ending: Option<Ending>) {
        let frame = filling.finish(&self.config, len, ending, self.next);
        self.next += 1;
        self.missing += frame.meta.missing;
        self.way.finished();
        self.full.push_back(frame);
    }

    /// Reports the end of a stream at a frame boundary, by a frame without memory.
    pub(crate) fn finish_without(&mut self, stream: StreamId, ends: &Ends, number: u64, ending: Ending) {
        let frame = Frame::new(Memory::default(), self.config.granule);
        let filling = PartialFrame::new(frame, stream, ends, number, &self.config);
        self.finish(filling, 0, Some(ending));
    }

    /// Returns an empty frame.
    pub(crate) fn cancel(&mut self, filling: PartialFrame) {
        self.free.push(filling.cancel());
    }

    #[inline]
    pub(crate) fn full(&mut self) -> Option<Frame> {
        self.full.pop_front()
    }

    /// Frees the oldest finished frame not fetched yet. Returns the number of stream bytes lost.
    pub(crate) fn reclaim(&mut self) -> Option<u64> {
        let oldest = self.full.iter().position(|frame| frame.memory.len() > 0 && frame.meta.ending.is_none())?;
        let frame = self.full.remove(oldest)?;
        let bytes = frame.meta.len as u64 - frame.meta.missing;
        self.way.forget(frame.memory.place);
        self.free.push(frame);
        Some(bytes)
    }

    /// Takes back a fetched frame; ignores those without memory or of another size, which are not of this pool.
    pub(crate) fn return_frame(&mut self, frame: Frame) {
        if frame.memory.len() == self.config.size && self.config.size > 0 {
            self.free.push(frame);
        }
    }
}

#[cfg(test)]
impl Pool {
    /// Returns the number of finished frames with memory: not mere reports of an end.
    pub(crate) fn waiting_with_memory(&self) -> usize {
        self.full.iter().filter(|frame| frame.memory.len() > 0).count()
    }
}
