//! Memory for the bytes of streams.
//!
//! A protocol finds out which bytes of a stream a packet carries, and passes them to a [`Place`], which stores them at
//! their final address: each byte once, in any order. The place reports its free room, which becomes the TCP receive
//! window.

use linerate_burst::Nanos;
use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;

/// Stream of this run, numbered in order of their start; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u32);

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Addresses of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Sender.
    pub from: SocketAddr,
    /// Receiver.
    pub to: SocketAddr,
}

/// Payload of a packet, or a part of it.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// Bytes in a buffer, to be copied.
    Bytes(&'a [u8]),
    /// Bytes read straight into the memory of the place, where it expected them: a part of the last read.
    Read {
        /// Offset in the last read.
        from: usize,
        /// Number of bytes.
        len: usize,
    },
}

impl<'a> Payload<'a> {
    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Read { len, .. } => *len,
        }
    }

    /// Returns whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a part of it.
    ///
    /// # Panics
    /// If the range is out of bounds.
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

/// Reason for the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The sender closed it (FIN), and all data was received.
    Complete,
    /// The sender reset it.
    Reset,
    /// Idle timeout.
    Silent,
    /// The run stopped.
    Stopped,
}

/// Memory that stores the bytes of streams.
pub trait Place {
    /// Starts a stream; false if no room is left for another one, in which case nothing of it follows.
    fn begin(&mut self, stream: StreamId, ends: &Ends, now: Nanos) -> bool;

    /// Returns the room that a stream has at its start, which bounds its first window.
    fn first_room(&self) -> u64 {
        u64::MAX
    }

    /// Returns the first byte of a stream beyond its room. Never decreases: it was promised to the sender.
    fn room(&self, stream: StreamId) -> u64;

    /// Stores new bytes at their offset in the stream. They end at [`Place::room`] at most.
    fn place(&mut self, stream: StreamId, offset: u64, payload: Payload<'_>, now: Nanos);

    /// Appends a copy of bytes that cannot be stored yet to `to`. A place that packets are read into knows where they
    /// are.
    fn copy_out(&self, payload: Payload<'_>, to: &mut Vec<u8>) {
        if let Payload::Bytes(bytes) = payload {
            to.extend_from_slice(bytes);
        }
    }

    /// Reports that all bytes below this offset are stored. Called after each change, before the acknowledgement.
    fn advance(&mut self, stream: StreamId, edge: u64, now: Nanos);

    /// Ends a stream; missing bytes beyond its edge will not arrive.
    fn end(&mut self, stream: StreamId, ending: Ending, now: Nanos);
}
