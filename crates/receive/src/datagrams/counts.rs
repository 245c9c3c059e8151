//! What happened to datagrams, counted.

use linerate_burst::{Account, Count};

/// What became of datagrams, and of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams that came.
    pub received: u64,
    /// Those with bytes that are in frames.
    pub placed: u64,
    /// Those whose bytes were there already.
    pub repeated: u64,
    /// Those for frames that were finished.
    pub late: u64,
    /// Those too far from the last one.
    pub out_of_line: u64,
    /// Those too short for their header, or of a length that they must not have.
    pub malformed: u64,
    /// Those with a wrong checksum.
    pub bad_checksum: u64,
    /// Fragments of datagrams, which are not put together.
    pub fragments: u64,
    /// Super-frames of several datagrams.
    pub joined: u64,
    /// Those that are in order and carry no data.
    pub no_data: u64,
    /// Those for which no frame was free, or which would have made more than 65,536 gaps in theirs.
    pub no_frame: u64,
    /// Those of streams beyond the greatest number.
    pub no_stream: u64,
    /// Times that a sender began anew.
    pub restarts: u64,
    /// Frames that were dropped for newer ones, and bytes that had come to them.
    pub reclaimed: u64,
    /// See `reclaimed`.
    pub reclaimed_bytes: u64,
    /// Frames of which nothing came.
    pub skipped: u64,
    /// Frames that were finished.
    pub frames: u64,
    /// Bytes in these that did not come.
    pub missing: u64,
}

impl Counts {
    /// Adds what was counted.
    pub fn add_to(&self, account: &mut Account) {
        account
            .add(Count::DatagramsReceived, self.received)
            .add(Count::DatagramsPlaced, self.placed)
            .add(Count::DatagramsRepeated, self.repeated)
            .add(Count::DatagramsNoData, self.no_data)
            .add(Count::DatagramsMalformed, self.malformed)
            .add(Count::DatagramsBadChecksum, self.bad_checksum)
            .add(Count::DatagramsFragment, self.fragments)
            .add(Count::DatagramsJoined, self.joined)
            .add(Count::DatagramsLate, self.late)
            .add(Count::DatagramsOutOfLine, self.out_of_line)
            .add(Count::DatagramsNoFrame, self.no_frame)
            .add(Count::DatagramsNoStream, self.no_stream)
            .add(Count::DatagramsRestarts, self.restarts)
            .add(Count::DatagramsReclaimed, self.reclaimed)
            .add(Count::DatagramsSkipped, self.skipped)
            .add(Count::DatagramsMissing, self.missing);
    }
}
