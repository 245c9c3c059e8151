//! Counters of sending, and of replies to ARP, neighbor discovery and ping, after the rows passed in.

macro_rules! send_rows {
    ($($before:tt)*) => {
        tcp_rows! {
            $($before)*

            /// Packets handed to the queue.
            SendReceived = Send, Received, "received";
            /// Packets that the kernel or the peer accepted.
            Sent = Send, Delivered, "delivered";
            /// Packets longer than the interface can send (MTU).
            TooLong = Send, Lost, "too_long";
            /// Packets shorter than a link header.
            TooShort = Send, Lost, "too_short";
            /// Packets of which the file holds only the beginning; they are not sent.
            SendTruncated = Send, Refused, "truncated";
            /// Packets that the driver dropped: no carrier, or its queue was full.
            SendDropped = Send, Lost, "driver_dropped";
            /// Packets that the kernel rejected for another reason.
            SendRefused = Send, Lost, "send_refused";
            /// Packets in a memif ring that its reader had not taken when it disconnected.
    SendPeerGone = Send, Lost, "peer_gone";
    /// Packets handed over and not sent before the run ended.
            SendUnsent = Send, Refused, "unsent";
            /// Times the interface went down while packets were waiting; sending continued when it was up again.
            SendLinkDown = Send, Note, "link_down";
            /// Times the queue was full and sending had to wait.
            SendFull = Send, Note, "queue_full";
            /// Readers of a ring that were evicted: they blocked the writer for too long, or broke the protocol.
            SendEvicted = Send, Note, "readers_evicted";
            /// Packets that `faulty` dropped as requested by `drop=` and `burst=`.
            SendFaultDropped = Send, Refused, "fault_dropped";
            /// Packets that `faulty` dropped because its queue was full at the requested `rate=`.
            SendFaultQueue = Send, Refused, "fault_queue";
            /// Copies of packets that `faulty` made; they are counted as received too.
            SendFaultRepeated = Send, Note, "fault_repeated";
            /// Packets that `faulty` delayed so that later ones overtook them.
            SendFaultReordered = Send, Note, "fault_reordered";
            /// Packets in which `faulty` flipped bits.
            SendFaultCorrupted = Send, Note, "fault_corrupted";
            /// Packets that `faulty` truncated.
            SendFaultTruncated = Send, Note, "fault_truncated";
            /// Packets to which `faulty` appended bytes.
            SendFaultPadded = Send, Note, "fault_padded";
            /// Packets whose transport checksum, left to hardware, was filled in by `faulty` as hardware would have.
            SendChecksumFilled = Send, Note, "checksum_filled";

            /// Packets examined: all that may be a request, or the reply to one.
            AnswerReceived = Answer, Received, "received";
            /// Packets that were answered, or that answered a request.
            Answered = Answer, Delivered, "answered";
            /// Packets that are not requests, or are requests for other addresses.
            AnswerOther = Answer, Refused, "other";
            /// Packets that are truncated, fragments, have a wrong checksum, or violate the rules for such messages.
            AnswerMalformed = Answer, Refused, "malformed";
            /// Packets whose source is not the address of one other station.
            AnswerMartian = Answer, Refused, "martian";
            /// Requests beyond the reply rate limit.
            AnswerLimited = Answer, Refused, "rate_limited";
            /// Packets whose reply was dropped because the send queue was full.
            AnswerFull = Answer, Lost, "queue_full";
            /// ARP requests answered.
            AnsweredArp = Answer, Note, "arp";
            /// Neighbor solicitations answered.
            AnsweredNeighbor = Answer, Note, "neighbor";
            /// Echo requests (ping) answered, ICMP and ICMPv6.
            AnsweredEcho = Answer, Note, "echo";
            /// Next hops whose MAC address was resolved.
            AnswerResolved = Answer, Note, "resolved";
            /// ARP requests and neighbor solicitations sent to resolve next hops.
            AnswerRequestsSent = Answer, Note, "requests_sent";
            /// Own addresses announced at the start of the run (gratuitous ARP, unsolicited advertisements).
    AnswerAnnounced = Answer, Note, "announced";
    /// Packets from another station that uses one of the own addresses.
            AnswerConflict = Answer, Note, "conflict";
            /// Replies and requests that the port did not accept.
            AnswerUnsent = Answer, Note, "unsent";
        }
    };
}
