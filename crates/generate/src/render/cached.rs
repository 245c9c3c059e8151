//! Frames made once and offered repeatedly.

use crate::Run;
use crate::stream::{Order, StreamError, StreamSet};
use linerate_burst::{Desc, Nanos, TAIL};

/// First frames of each stream.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    memory: Vec<u8>,
    /// Offset and length of each frame.
    frames: Vec<(u32, u32)>,
    /// First frame and number of frames of each stream.
    streams: Vec<(usize, u64)>,
}

/// Maximum memory of kept frames, in bytes.
const MEMORY: usize = 1 << 30;

impl Kept {
    /// Makes `frames` frames of each stream of a set that was checked.
    pub(super) fn new(set: &StreamSet, frames: u64) -> Result<Self, StreamError> {
        let mut kept = Kept { memory: Vec::new(), frames: Vec::new(), streams: Vec::new() };
        for (index, stream) in set.streams.iter().enumerate() {
            let wrong = |what| StreamError::Stream { index, name: stream.name.clone(), what };
            if stream.variants.iter().any(|variant| variant.trailer.is_some()) {
                return Err(wrong("frames with a trailer cannot be kept, because each is different".to_owned()));
            }
            // In a sequence a stream may be entered again.
            let most = if set.order == Order::Interleaved { stream.count.unwrap_or(frames) } else { frames };
            let count = most.min(frames);
            kept.streams.push((kept.frames.len(), count));
            for number in 0..count {
                let frame = stream.frame(number, 0, &set.key);
                let start = kept.memory.len().next_multiple_of(64);
                if start + frame.len() > MEMORY {
                    return Err(wrong(format!("kept frames exceed {} MiB; keep fewer", MEMORY >> 20)));
                }
                kept.memory.resize(start, 0);
                kept.memory.extend_from_slice(&frame);
                kept.frames.push((start as u32, frame.len() as u32));
            }
        }
        kept.memory.resize(kept.memory.len() + TAIL, 0);
        Ok(kept)
    }

    /// Returns the memory of the frames.
    pub(super) fn memory(&self) -> &[u8] {
        &self.memory
    }

    /// Points `descs` at the frames of these runs.
    pub(super) fn show(&self, runs: &[Run], now: Nanos, descs: &mut [Desc]) {
        let mut descs = descs.iter_mut();
        for run in runs {
            let (first, count) = self.streams[run.first.stream as usize];
            let (mut within, step) = (run.first.number % count, run.step % count);
            for (_, desc) in run.numbers().zip(&mut descs) {
                let (offset, length) = self.frames[first + within as usize];
                *desc = Desc::new(now, offset, length);
                within += step;
                within -= if within >= count { count } else { 0 };
            }
        }
    }
}
