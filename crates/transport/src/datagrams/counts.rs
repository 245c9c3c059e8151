//! Counters of datagrams.

use linerate_burst::{Account, Count};

/// Counters of datagrams and frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Datagrams received.
    pub received: u64,
    /// Datagrams with bytes stored in frames.
    pub placed: u64,
    /// Bytes stored in frames.
    pub bytes: u64,
    /// Duplicates.
    pub repeated: u64,
    /// Datagrams for finished frames.
    pub late: u64,
    /// Datagrams too far from the last position.
    pub sequence_jump: u64,
    /// Datagrams too short for their header, or of an invalid length.
    pub malformed: u64,
    /// Datagrams with a wrong checksum.
    pub bad_checksum: u64,
    /// Fragments, which are not reassembled.
    pub fragments: u64,
    /// Super-frames of several datagrams.
    pub joined: u64,
    /// Valid datagrams that carry no data.
    pub no_data: u64,
    /// Datagrams dropped because no frame was free, or their frame would have more than 65,536 gaps.
    pub no_frame: u64,
    /// Datagrams of streams above the maximum number.
    pub no_stream: u64,
    /// Restarts of senders.
    pub restarts: u64,
    /// Frames dropped in favour of newer ones, and bytes received in them.
    pub reclaimed: u64,
    /// See `reclaimed`.
    pub reclaimed_bytes: u64,
    /// Frames that received nothing.
    pub skipped: u64,
    /// Finished frames.
    pub frames: u64,
    /// Bytes missing in finished frames.
    pub missing: u64,
}

impl Counts {
    /// Adds the counters.
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
            .add(Count::DatagramsSequenceJump, self.sequence_jump)
            .add(Count::DatagramsNoFrame, self.no_frame)
            .add(Count::DatagramsNoStream, self.no_stream)
            .add(Count::DatagramsRestarts, self.restarts)
            .add(Count::DatagramsReclaimed, self.reclaimed)
            .add(Count::DatagramsSkipped, self.skipped)
            .add(Count::DatagramsMissing, self.missing);
    }
}
