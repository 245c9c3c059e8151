//! Counters of sequenced datagrams and of frames of memory, after the rows passed in.

macro_rules! frame_rows {
    ($($before:tt)*) => {
        counters! {
            $($before)*

            /// Datagrams examined for a sequence number.
            DatagramsReceived = Datagrams, Received, "received";
            /// Datagrams whose bytes were placed in frames of memory.
            DatagramsPlaced = Datagrams, Delivered, "placed";
            /// Datagrams whose bytes were already placed.
            DatagramsRepeated = Datagrams, Refused, "duplicate";
            /// Datagrams without data of their own, such as those that describe other data.
            DatagramsNoData = Datagrams, Refused, "no_data";
            /// Datagrams too short for their header, or of an invalid length.
            DatagramsMalformed = Datagrams, Refused, "malformed";
            /// Datagrams with a wrong UDP or IPv4 header checksum.
            DatagramsBadChecksum = Datagrams, Refused, "bad_checksum";
            /// Fragments of datagrams; they are not reassembled.
            DatagramsFragment = Datagrams, Lost, "fragments";
            /// Super-frames that several datagrams were merged into on the way, so that their boundaries are unknown (ethtool -K INTERFACE gro off).
            DatagramsJoined = Datagrams, Lost, "joined";
            /// Datagrams for a frame of memory that was already finished.
            DatagramsLate = Datagrams, Lost, "late";
            /// Datagrams whose sequence number is too far from the previous one, too few in a row for a restart of the sender.
            DatagramsSequenceJump = Datagrams, Lost, "sequence_jump";
            /// Datagrams for which no frame of memory was free, or which would have made more than 65,536 gaps in theirs.
            DatagramsNoFrame = Datagrams, Lost, "no_buffer";
            /// Datagrams of senders beyond the limit on streams.
            DatagramsNoStream = Datagrams, Lost, "streams_full";
            /// Times a sender restarted at another sequence number.
            DatagramsRestarts = Datagrams, Note, "restarts";
            /// Finished frames of memory dropped in favour of newer ones before they were fetched.
            DatagramsReclaimed = Datagrams, Note, "frames_dropped";
            /// Frames of memory skipped because none of their data arrived.
            DatagramsSkipped = Datagrams, Note, "frames_skipped";
            /// Bytes missing in finished frames of memory.
            DatagramsMissing = Datagrams, Note, "missing_bytes";

            /// Frames of memory handed to their destination.
            StoreReceived = Store, Received, "received";
            /// Frames of memory that their destination accepted.
            Stored = Store, Delivered, "stored";
            /// Frames of memory that arrived when their destination failed, or after.
            StoreFailed = Store, Lost, "store_failed";
            /// Frames of memory not stored because their destination panicked (a bug).
            StoreDied = Store, Lost, "store_panicked";
            /// Frames of memory that no reader of the shared ring had returned when the run ended.
            StoreNotReturned = Store, Lost, "not_returned";
            /// Finished frames of memory dropped in favour of newer ones before they were fetched (receive --drop oldest): their reader was too slow.
            StoreDroppedOldest = Store, Lost, "dropped_oldest";
            /// Processes that attached to read shared frames of memory.
            StoreReaders = Store, Note, "readers";
            /// Processes rejected as readers of shared frames of memory: another reader was attached, or they lack permission.
            StoreRefusedReaders = Store, Note, "readers_refused";
            /// Readers of shared frames of memory that were evicted because they returned frames that they did not hold.
            StoreReadersEvicted = Store, Note, "readers_evicted";
            /// Times a frame of memory was handed to a reader.
            StoreHanded = Store, Note, "handed";
            /// Times a frame of memory waited for the next reader because its reader detached without returning it.
            StoreRedelivered = Store, Note, "redelivered";
        }
    };
}
