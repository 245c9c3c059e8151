//! The rows of sequenced datagrams and of frames of memory, behind those in front of them.

macro_rules! frame_rows {
    ($($before:tt)*) => {
        counters! {
            $($before)*

            /// Datagrams whose payload was looked at for a sequence number.
            DatagramsReceived = Datagrams, Received, "received";
            /// Datagrams with bytes that went to frames of memory.
            DatagramsPlaced = Datagrams, Delivered, "placed";
            /// Datagrams whose bytes were there already.
            DatagramsRepeated = Datagrams, Refused, "already_there";
            /// Datagrams about the data of others, without data of their own.
            DatagramsNoData = Datagrams, Refused, "no_data";
            /// Datagrams too short for their header, or of a length that they must not have.
            DatagramsMalformed = Datagrams, Refused, "malformed";
            /// Datagrams with a wrong checksum, of UDP or of the IPv4 header.
            DatagramsBadChecksum = Datagrams, Refused, "bad_checksum";
            /// Fragments of datagrams; they are not put together.
            DatagramsFragment = Datagrams, Lost, "fragments";
            /// Super-frames that several datagrams were joined to on the way: where each begins is not told (ethtool -K INTERFACE gro off).
            DatagramsJoined = Datagrams, Lost, "joined";
            /// Datagrams for a frame of memory that was finished without them.
            DatagramsLate = Datagrams, Lost, "late";
            /// Datagrams too far from the one before, of a sender that went on from there.
            DatagramsOutOfLine = Datagrams, Lost, "out_of_line";
            /// Datagrams for which no frame of memory was free, or which would have made more than 65,536 gaps in theirs.
            DatagramsNoFrame = Datagrams, Lost, "no_frame";
            /// Datagrams of more senders than streams are kept for.
            DatagramsNoStream = Datagrams, Lost, "streams_full";
            /// Times that a sender began anew somewhere else in its sequence.
            DatagramsRestarts = Datagrams, Note, "restarts";
            /// Frames of memory that were finished and then dropped for newer ones, as nobody had fetched them.
            DatagramsReclaimed = Datagrams, Note, "frames_dropped";
            /// Frames of memory that never were, as nothing came for them.
            DatagramsSkipped = Datagrams, Note, "frames_skipped";
            /// Bytes that did not come, in frames of memory that were finished.
            DatagramsMissing = Datagrams, Note, "missing_bytes";

            /// Frames of memory handed to their destination.
            StoreReceived = Store, Received, "received";
            /// Frames of memory that their destination has taken.
            Stored = Store, Delivered, "stored";
            /// Frames of memory that came after their destination had failed, or as it did.
            StoreFailed = Store, Lost, "store_failed";
            /// Frames of memory for a destination that had died of a bug of this program, or was about to.
            StoreDied = Store, Lost, "store_died";
            /// Frames of memory that no reader of a shared ring of them had given back when the run ended.
            StoreUntaken = Store, Lost, "untaken";
            /// Finished frames of memory that nobody had fetched and that gave way to newer ones (receive --drop oldest): whoever takes
            /// frames was too slow.
            StoreGaveWay = Store, Lost, "gave_way";
            /// Processes that came to read shared frames of memory.
            StoreReaders = Store, Note, "readers";
            /// Processes that were not let in to read shared frames of memory: another one had them, or they may not.
            StoreRefusedReaders = Store, Note, "readers_refused";
            /// Readers of shared frames of memory that were put out, as they gave back what they did not have.
            StorePutOut = Store, Note, "readers_put_out";
            /// Times that a frame of memory was handed to a reader.
            StoreHanded = Store, Note, "handed";
            /// Times that a frame of memory waited for the next reader because the one who had it had gone without giving it back.
            StoreOfferedAgain = Store, Note, "offered_again";
        }
    };
}
