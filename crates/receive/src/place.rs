//! Where the bytes of streams go.
//!
//! Whoever understands a protocol finds out which bytes of a stream a packet brings, and hands them to a [`Place`] that takes them to
//! their final address: each byte once, in any order. The place says how much room there is, which is what a TCP window promises.

use linerate_burst::Nanos;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;

/// A stream of this run, by the order in which they began; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Whose bytes a stream brings, and where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Who sends.
    pub from: SocketAddr,
    /// Who receives.
    pub to: SocketAddr,
}

/// The payload of a packet, or a part of it.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Bytes in somebody's buffer, to be copied.
    Bytes(&'a [u8]),
    /// Bytes that were read straight into the memory of the place, to where it expected them: a part of what was read last.
    Read {
        /// From which byte of it on.
        from: usize,
        /// How many bytes.
        len: usize,
    },
}

impl<'a> Payload<'a> {
    /// How many bytes there are.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Read { len, .. } => *len,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A part of it.
    ///
    /// # Panics
    /// If there are not as many.
    #[inline]
    pub fn part(&self, part: Range<usize>) -> Payload<'a> {
        match self {
            Payload::Bytes(bytes) => Payload::Bytes(&bytes[part]),
            Payload::Read { from, len } => {
                assert!(part.start <= part.end && part.end <= *len, "{part:?} of {len}");
                Payload::Read { from: from + part.start, len: part.end - part.start }
            }
        }
    }
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its sender said that this is all (FIN), and all of it is there.
    Complete,
    /// Its sender reset it.
    Reset,
    /// Nothing came for too long.
    Silent,
    /// The run ended first.
    Stopped,
}

/// Memory that takes the bytes of streams.
pub trait Place {
    /// A stream begins; false if there is no room for one more, and then nothing of it comes.
    fn begin(&mut self, stream: StreamId, ends: &Ends, now: Nanos) -> bool;

    /// How much room a stream has when it begins. Its sender is told of no more before that.
    fn first_room(&self) -> u64 {
        u64::MAX
    }

    /// The first byte of a stream for which there is no room. Never moves back: it was promised to the sender.
    fn room(&self, stream: StreamId) -> u64;

    /// Takes bytes that were not there before, to their offset in the stream. They end at [`Place::room`] at most.
    fn place(&mut self, stream: StreamId, offset: u64, payload: Payload<'_>, now: Nanos);

    /// Puts a copy of bytes that are not to be taken yet behind `to`. Whoever has packets read straight to their place knows where.
    fn copy_out(&self, payload: Payload<'_>, to: &mut Vec<u8>) {
        if let Payload::Bytes(bytes) = payload {
            to.extend_from_slice(bytes);
        }
    }

    /// All bytes below this offset are there. After each change of it, before the sender is told.
    fn advance(&mut self, stream: StreamId, edge: u64, now: Nanos);

    /// The stream is over; bytes behind its edge that did not come will not come any more.
    fn end(&mut self, stream: StreamId, ending: Ending, now: Nanos);
}
