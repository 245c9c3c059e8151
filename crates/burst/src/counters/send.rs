//! The rows of what is sent, and of answers to questions about addresses, behind those in front of them.

macro_rules! send_rows {
    ($($before:tt)*) => {
        tcp_rows! {
            $($before)*

            /// Frames handed to the queue.
            SendReceived = Send, Received, "received";
            /// Frames the kernel or the other end accepted.
            Sent = Send, Delivered, "delivered";
            /// Frames longer than the interface can send (MTU).
            TooLong = Send, Lost, "too_long";
            /// Frames shorter than a link header.
            TooShort = Send, Lost, "too_short";
            /// Frames of which the file holds only the beginning; they are not sent.
            SendTruncated = Send, Refused, "truncated";
            /// Frames the driver dropped: no carrier, or its queue was full.
            SendDropped = Send, Lost, "driver_dropped";
            /// Frames the kernel refused for another reason.
            SendRefused = Send, Lost, "send_refused";
            /// Frames in a memif ring that its reader had not taken when it went.
    SendPeerGone = Send, Lost, "peer_gone";
    /// Frames handed over that were not sent before the run ended.
            SendUnsent = Send, Refused, "unsent";
            /// Times the interface went down while there was something to send; sending went on when it was back.
            SendLinkDown = Send, Note, "link_down";
            /// Times the queue was full and sending had to wait.
            SendFull = Send, Note, "queue_full";
            /// Readers of a ring that were evicted: they held everybody up for too long, or broke the protocol.
            SendEvicted = Send, Note, "readers_evicted";
            /// Frames that `faulty` dropped by plan: `drop=` and `burst=`.
            SendFaultDropped = Send, Refused, "fault_dropped";
            /// Frames that found the queue of `faulty` full at the `rate=` asked for.
            SendFaultQueue = Send, Refused, "fault_queue";
            /// Copies of frames that `faulty` made: they are counted as received as well.
            SendFaultRepeated = Send, Note, "fault_repeated";
            /// Frames that `faulty` let later ones pass.
            SendFaultReordered = Send, Note, "fault_reordered";
            /// Frames in which `faulty` turned bits over.
            SendFaultCorrupted = Send, Note, "fault_corrupted";
            /// Frames that `faulty` cut.
            SendFaultTruncated = Send, Note, "fault_truncated";
            /// Frames that `faulty` put bytes behind.
            SendFaultPadded = Send, Note, "fault_padded";
            /// Frames whose transport checksum, left to hardware, `faulty` filled in as hardware would have.
            SendChecksumFilled = Send, Note, "checksum_filled";

            /// Frames looked at: all that may be a question, or the answer to one.
            AnswerReceived = Answer, Received, "received";
            /// Frames that were answered, or that answered a question.
            Answered = Answer, Delivered, "answered";
            /// Frames that ask for nothing, or ask somebody else.
            AnswerOther = Answer, Refused, "not_asked";
            /// Frames that are cut, fragments, have a wrong checksum, or break a rule for such messages.
            AnswerMalformed = Answer, Refused, "malformed";
            /// Frames whose source is no address of one other station.
            AnswerMartian = Answer, Refused, "martian";
            /// Frames that ask more often than is answered.
            AnswerLimited = Answer, Refused, "rate_limited";
            /// Frames whose answer found no room, because the port took nothing.
            AnswerFull = Answer, Lost, "queue_full";
            /// ARP requests answered.
            AnsweredArp = Answer, Note, "arp";
            /// Neighbor solicitations answered.
            AnsweredNeighbor = Answer, Note, "neighbor";
            /// Echo requests (ping) answered, ICMP and ICMPv6.
            AnsweredEcho = Answer, Note, "echo";
            /// Next hops whose MAC address was found.
            AnswerResolved = Answer, Note, "resolved";
            /// ARP requests and neighbor solicitations sent to find next hops.
            AnswerAsked = Answer, Note, "asked";
            /// Own addresses that were told unasked when the run began.
    AnswerAnnounced = Answer, Note, "announced";
    /// Frames from another station that uses an address answered for.
            AnswerConflict = Answer, Note, "conflict";
            /// Answers and questions that the port did not take.
            AnswerUnsent = Answer, Note, "unsent";
        }
    };
}
