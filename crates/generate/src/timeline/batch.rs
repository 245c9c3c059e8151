//! Streams to begin while others are sent.

use super::UNLIMITED;
use super::clock::Clock;
use crate::plan::Plan;
use crate::stream::{Next, Order, Stream, StreamError, StreamSet};
use crate::trailer::Key;

/// Streams that are to [begin](crate::Action::Begin), analysed in advance: a sender has only to take them over.
#[derive(Debug)]
pub struct Batch {
    /// Frames of the streams.
    pub(crate) plan: Plan,
    /// Clock and frame count of each.
    pub(super) streams: Vec<(Clock, u64)>,
    /// Successor of each in a sequence; else empty.
    pub(super) nexts: Vec<Next>,
    pub(crate) key: Key,
}

impl Batch {
    /// Creates a batch of interleaved streams, each at its own rate. Trailers of all streams use this key from then on.
    ///
    /// # Errors
    /// If one of them is invalid.
    pub fn new(streams: Vec<Stream>, key: Key) -> Result<Self, StreamError> {
        let set = StreamSet { streams, order: Order::Interleaved, rate: None, key };
        set.check()?;
        let clock = |stream: &Stream| (Clock::new(stream, stream.rate, u64::MAX), stream.count.unwrap_or(UNLIMITED));
        Ok(Batch { plan: Plan::of(&set), streams: set.streams.iter().map(clock).collect(), nexts: Vec::new(), key })
    }

    /// Creates a batch of streams in sequence, each at its own rate, in the order of [`Stream::next`]. They can only be
    /// stopped, paused and so on together.
    ///
    /// # Errors
    /// If one of them is invalid, or one that is not the last of all is endless.
    pub fn sequence(streams: Vec<Stream>, key: Key) -> Result<Self, StreamError> {
        let set = StreamSet { streams, order: Order::Sequential, rate: None, key };
        set.check()?;
        let nexts = set.streams.iter().map(|stream| stream.next).collect();
        Ok(Batch { nexts, ..Batch::new(set.streams, key)? })
    }
}

impl PartialEq for Batch {
    /// Compares by identity.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}
