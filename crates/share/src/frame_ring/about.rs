//! What is known of a frame beside its bytes.

use linerate_burst::Nanos;
use std::net::SocketAddr;

/// A frame, as the table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// A running number, over all frames of the run, in the order in which they were finished.
    pub id: u64,
    /// Whose bytes it holds.
    pub stream: u32,
    /// Who sends.
    pub from: SocketAddr,
    /// Who receives.
    pub to: SocketAddr,
    /// Which frame of its stream it is, from 0 on.
    pub number: u64,
    /// Where in the stream its first byte is.
    pub offset: u64,
    /// Bytes of it that belong to the stream.
    pub len: u64,
    /// Bytes among these that did not come.
    pub missing: u64,
    /// The CRC-32C of its bytes as they lie in memory, if it was asked for.
    pub crc32c: Option<u32>,
    /// When the first of its bytes came; zero if none did.
    pub first: Nanos,
    /// When the last of them came.
    pub last: Nanos,
    /// Datagrams for it that came twice.
    pub repeated: u32,
    /// Datagrams for its stream that came too late.
    pub late: u32,
    /// How its stream ended, if this is the last of it.
    pub ending: Option<Ending>,
    /// To how many readers it was handed before, who left without giving it back.
    pub offered: u32,
    /// Whether there are more gaps than the list has room for: the last one reaches to the end of the last of them then.
    pub is_coarse: bool,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its sender said that this is all.
    Complete,
    /// Its sender reset it.
    Reset,
    /// Nothing came for too long.
    Silent,
    /// The run ended first.
    Stopped,
}

impl Ending {
    const ALL: [Ending; 4] = [Ending::Complete, Ending::Reset, Ending::Silent, Ending::Stopped];

    /// The number that stands for it; 0 is for none.
    pub(super) fn number(ending: Option<Ending>) -> u32 {
        let place = Ending::ALL.iter().position(|one| Some(*one) == ending);
        place.map_or(0, |place| place as u32 + 1)
    }

    /// What a number stands for; an error if for nothing.
    pub(super) fn of(number: u32) -> Result<Option<Ending>, &'static str> {
        let ending = number.checked_sub(1).map(|place| Ending::ALL.get(place as usize).copied());
        match ending {
            Some(None) => Err("a stream ended in a way that there is not"),
            known => Ok(known.flatten()),
        }
    }
}
