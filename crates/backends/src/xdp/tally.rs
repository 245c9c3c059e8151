//! Counts of a program that shows no frames.

use super::attach::Attachment;
use super::program::Word;
use super::receive::Queue;
use crate::sys::bpf_ringbuf::Bell;
use linerate_burst::{Nanos, Sizes};
use linerate_port::FrameTally;
use std::sync::Arc;

/// The counts of a queue since it was opened.
pub(super) struct Tally {
    before: FrameTally,
    /// Values of the last read.
    pub tallied: FrameTally,
    /// Time of the last read.
    pub asked: Nanos,
    /// Descriptor to wait on; never signalled.
    pub bell: Arc<Bell>,
}

impl Tally {
    /// Starts to count.
    pub(super) fn new(queue: &Queue, bell: Arc<Bell>) -> Self {
        queue.set(Word::Least, u64::MAX);
        queue.set(Word::Most, 0);
        Tally {
            before: read(&queue.attachment, queue.number),
            tallied: FrameTally::default(),
            asked: Nanos::ZERO,
            bell,
        }
    }

    /// Reads the counts.
    pub(super) fn read(&mut self, attachment: &Attachment, queue: u32) {
        let (now, before) = (read(attachment, queue), &self.before);
        let mut sizes = now.sizes;
        sizes.0.iter_mut().zip(before.sizes.0).for_each(|(size, before)| *size -= before);
        self.tallied = FrameTally {
            frames: now.frames - before.frames,
            bytes: now.bytes - before.bytes,
            lengths: now.lengths,
            sizes,
        };
    }
}

/// Reads the counts while the program runs: those of the frame in progress may be incomplete.
fn read(attachment: &Attachment, queue: u32) -> FrameTally {
    let sizes = Sizes(attachment.sizes(queue));
    let (least, most) = (attachment.get(Word::Least, queue), attachment.get(Word::Most, queue));
    let (bytes, frames) = (attachment.get(Word::Bytes, queue), attachment.get(Word::Head, queue));
    FrameTally { frames, bytes, lengths: (least <= most).then_some((least as u32, most as u32)), sizes }
}
