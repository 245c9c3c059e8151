//! Streams that are to begin while others are sent.

use super::UNLIMITED;
use super::clock::Clock;
use crate::plan::Plan;
use crate::stream::{Next, Order, Stream, StreamSet, Wrong};
use crate::trailer::Key;

/// Streams that are to [begin](crate::Action::Begin), analysed by whoever tells it: a sender has only to take them over.
#[derive(Debug)]
pub struct Batch {
    /// What their frames are.
    pub(crate) plan: Plan,
    /// When they are due, and how many there are.
    pub(super) streams: Vec<(Clock, u64)>,
    /// What follows each, where they follow one another; else empty.
    pub(super) nexts: Vec<Next>,
    pub(crate) key: Key,
}

impl Batch {
    /// Of streams that are sent all at once, each at its own rate. Trailers of all streams have this key from then on.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn new(streams: Vec<Stream>, key: Key) -> Result<Self, Wrong> {
        let set = StreamSet { streams, order: Order::Interleaved, rate: None, key };
        set.check()?;
        let clock = |stream: &Stream| (Clock::new(stream, stream.rate, u64::MAX), stream.count.unwrap_or(UNLIMITED));
        Ok(Batch { plan: Plan::of(&set), streams: set.streams.iter().map(clock).collect(), nexts: Vec::new(), key })
    }

    /// The same of streams that follow one another, each at its own rate, as [`Stream::next`] says. They are told to stop, pause and
    /// the like all together.
    ///
    /// # Errors
    /// What is wrong with one of them; one that is not the last of all and has no end.
    pub fn sequence(streams: Vec<Stream>, key: Key) -> Result<Self, Wrong> {
        let set = StreamSet { streams, order: Order::Sequential, rate: None, key };
        set.check()?;
        let nexts = set.streams.iter().map(|stream| stream.next).collect();
        Ok(Batch { nexts, ..Batch::new(set.streams, key)? })
    }
}

impl PartialEq for Batch {
    /// Each is like itself alone.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}
