//! The rows of the TCP endpoint, behind those in front of it.

macro_rules! tcp_rows {
    ($($before:tt)*) => {
        frame_rows! {
            $($before)*

            /// Frames looked at for TCP segments to own addresses.
            TcpReceived = Tcp, Received, "received";
            /// Segments that belong to a connection, or begin one, and brought what they should.
            TcpTaken = Tcp, Delivered, "taken";
            /// Frames that are no TCP segments to own addresses.
            TcpNotMine = Tcp, Refused, "not_mine";
            /// Segments that are cut, or whose lengths contradict each other.
            TcpMalformed = Tcp, Refused, "malformed";
            /// Segments with a wrong checksum, of TCP or of the IPv4 header.
            TcpBadChecksum = Tcp, Refused, "bad_checksum";
            /// Segments whose source is no address of one other host, or which were sent to all stations.
            TcpMartian = Tcp, Refused, "martian";
            /// Fragments of IP packets with TCP; they are not put together.
            TcpFragment = Tcp, Lost, "fragments";
            /// Segments of no connection: answered by a reset, or by nothing if that was asked for.
            TcpNoConnection = Tcp, Refused, "no_connection";
            /// Segments that would have begun one connection more than are allowed; their senders try again for a while.
            TcpFull = Tcp, Lost, "connections_full";
            /// Segments that would have begun a stream for which no frame of memory was free; their senders try again for a while.
            TcpNoFrame = Tcp, Lost, "no_frame";
            /// Segments with nothing that was not there already: sent again, or to ask whether anybody is there.
            TcpOld = Tcp, Refused, "already_there";
            /// Segments with nothing but what is beyond the window.
            TcpBeyond = Tcp, Refused, "beyond_window";
            /// Segments that would have made more gaps in a stream than are kept.
            TcpTooManyGaps = Tcp, Lost, "too_many_gaps";
            /// Segments with data behind the end of their stream.
            TcpBehindEnd = Tcp, Refused, "behind_end";
            /// Segments without an acknowledgement, or of what was never sent.
            TcpBadAck = Tcp, Refused, "wrong_ack";
            /// Segments with a timestamp older than the last, of an earlier round of sequence numbers.
            TcpStale = Tcp, Refused, "old_timestamp";
            /// Segments without a timestamp, in connections that agreed on them.
            TcpNoTimestamp = Tcp, Refused, "no_timestamp";
            /// Resets that do not fit exactly where their stream is.
            TcpBadReset = Tcp, Refused, "wrong_reset";
            /// Segments that ask for a connection where one is, or whose control bits make no sense.
            TcpBadSyn = Tcp, Refused, "wrong_syn";
            /// Bytes that were placed.
            TcpBytes = Tcp, Note, "bytes";
            /// Bytes that came again.
            TcpBytesAgain = Tcp, Note, "bytes_again";
            /// Segments with data behind a gap.
            TcpOutOfOrder = Tcp, Note, "out_of_order";
            /// Segments that had urgent data, which is data like other.
            TcpUrgent = Tcp, Note, "urgent";
            /// Segments of a connection that came by another way than before (MAC addresses, VLANs); answers go back that way.
            TcpMoved = Tcp, Note, "moved";
            /// Frames whose payload had been read elsewhere, and was wanted in one piece.
            TcpGathered = Tcp, Note, "gathered";
            /// Segments that ask for a connection.
            TcpSyns = Tcp, Note, "syns";
            /// Connections that were established.
            TcpConnections = Tcp, Note, "connections";
            /// Of these, streams that are complete.
            TcpComplete = Tcp, Note, "complete";
            /// Of these, connections that were reset by the other end.
            TcpReset = Tcp, Note, "reset";
            /// Of these, connections given up because nothing came for too long.
            TcpSilent = Tcp, Note, "silent";
            /// Of these, connections that were there when the run ended.
            TcpStopped = Tcp, Note, "stopped";
            /// Connections that the other end did not confirm.
            TcpHalfOpen = Tcp, Note, "never_confirmed";
            /// Questions for a connection that were answered without keeping anything of them (SYN cookies), because so many were open.
            TcpCookies = Tcp, Note, "cookies";
            /// Connections that were established by such an answer.
            TcpCookiesTaken = Tcp, Note, "cookies_taken";
            /// Acknowledgements sent.
            TcpAcks = Tcp, Note, "acks";
            /// Of these, such as said that there is no room.
            TcpZeroWindows = Tcp, Note, "zero_windows";
            /// Of these, such as said only that there is room again.
            TcpWindowUpdates = Tcp, Note, "window_updates";
            /// Of these, answers to segments that may be forged.
            TcpChallenges = Tcp, Note, "challenges";
            /// Such answers that were not sent, as they would have been too many.
            TcpUnchallenged = Tcp, Note, "unchallenged";
            /// Resets sent, to those who are not known or were given up.
            TcpResetsSent = Tcp, Note, "resets_sent";
            /// Beginnings and ends of connections that were sent again.
            TcpSentAgain = Tcp, Note, "sent_again";
            /// Segments that found no room on their way out, or that the port did not take.
            TcpUnsent = Tcp, Note, "unsent";
        }
    };
}
