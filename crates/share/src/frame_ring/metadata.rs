//! Metadata of a frame of memory.

use linerate_burst::Nanos;
use std::net::SocketAddr;

/// A frame, as recorded in the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameMetadata {
    /// A sequence number over all frames of the run, in the order in which they were finished.
    pub id: u64,
    /// The stream of its bytes.
    pub stream: u32,
    /// Sender of the stream.
    pub from: SocketAddr,
    /// Receiver of the stream.
    pub to: SocketAddr,
    /// Index of the frame in its stream, from 0.
    pub number: u64,
    /// Offset of its first byte in the stream.
    pub offset: u64,
    /// Bytes that belong to the stream.
    pub len: u64,
    /// Number of these bytes that were not received.
    pub missing: u64,
    /// CRC-32C of its bytes in memory, if requested.
    pub crc32c: Option<u32>,
    /// Time of the first byte received; zero if there was none.
    pub first: Nanos,
    /// Time of the last byte received.
    pub last: Nanos,
    /// Duplicate datagrams for it.
    pub repeated: u32,
    /// Datagrams for its stream that arrived too late.
    pub late: u32,
    /// The way in which its stream ended, if this is the last frame.
    pub ending: Option<Ending>,
    /// Number of readers that it was handed to before, and that detached without returning it.
    pub offered: u32,
    /// True if there are more gaps than the list has room for: its last entry then reaches to the end of the last gap.
    pub is_coarse: bool,
}

/// The way in which a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its sender finished it.
    Complete,
    /// Its sender reset it.
    Reset,
    /// The idle timeout expired.
    Silent,
    /// The run ended first.
    Stopped,
}

impl Ending {
    const ALL: [Ending; 4] = [Ending::Complete, Ending::Reset, Ending::Silent, Ending::Stopped];

    /// Returns its number; 0 stands for none.
    pub(super) fn number(ending: Option<Ending>) -> u32 {
        let place = Ending::ALL.iter().position(|one| Some(*one) == ending);
        place.map_or(0, |place| place as u32 + 1)
    }

    /// Returns the ending of a number.
    ///
    /// # Errors
    /// If the number is unknown.
    pub(super) fn of(number: u32) -> Result<Option<Ending>, &'static str> {
        let ending = number.checked_sub(1).map(|place| Ending::ALL.get(place as usize).copied());
        match ending {
            Some(None) => Err("a stream has an unknown ending"),
            known => Ok(known.flatten()),
        }
    }
}
