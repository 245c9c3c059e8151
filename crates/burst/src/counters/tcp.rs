//! Counters of the TCP endpoint, after the rows passed in.

macro_rules! tcp_rows {
    ($($before:tt)*) => {
        frame_rows! {
            $($before)*

            /// Packets examined for TCP segments to own addresses.
            TcpReceived = Tcp, Received, "received";
            /// Segments of a connection, or that open one, that carried valid new data or control.
            TcpTaken = Tcp, Delivered, "accepted";
            /// Packets that are not TCP segments to own addresses.
            TcpOtherAddress = Tcp, Refused, "other_address";
            /// Segments that are truncated or whose lengths are inconsistent.
            TcpMalformed = Tcp, Refused, "malformed";
            /// Segments with a wrong TCP or IPv4 header checksum.
            TcpBadChecksum = Tcp, Refused, "bad_checksum";
            /// Segments whose source is not the address of one other host, or that were sent to a broadcast or multicast address.
            TcpMartian = Tcp, Refused, "martian";
            /// Fragments of IP packets that carry TCP; they are not reassembled.
            TcpFragment = Tcp, Lost, "fragments";
            /// Segments of no connection: answered by a reset, unless resets are disabled.
            TcpNoConnection = Tcp, Refused, "no_connection";
            /// SYN segments beyond the limit on connections; their senders retransmit them.
            TcpFull = Tcp, Lost, "connections_full";
            /// SYN segments of streams for which no frame of memory was free; their senders retransmit them.
            TcpNoFrame = Tcp, Lost, "no_buffer";
            /// Segments without new data: retransmissions or keepalive probes.
            TcpOld = Tcp, Refused, "duplicate";
            /// Segments entirely beyond the receive window.
            TcpBeyond = Tcp, Refused, "beyond_window";
            /// Segments that would have made more gaps in a stream than are kept.
            TcpTooManyGaps = Tcp, Lost, "too_many_gaps";
            /// Segments with data after the end of their stream.
            TcpAfterFin = Tcp, Refused, "after_fin";
            /// Segments without an acknowledgement, or that acknowledge data never sent.
            TcpBadAck = Tcp, Refused, "wrong_ack";
            /// Segments with a timestamp older than the last one, from before a sequence number wrap (PAWS).
            TcpStale = Tcp, Refused, "old_timestamp";
            /// Segments without a timestamp, in connections that negotiated timestamps.
            TcpNoTimestamp = Tcp, Refused, "no_timestamp";
            /// Resets whose sequence number is not exactly the next one expected.
            TcpBadReset = Tcp, Refused, "wrong_reset";
            /// SYN segments within a connection, or segments with an invalid combination of control bits.
            TcpBadSyn = Tcp, Refused, "wrong_syn";
            /// Bytes placed in streams.
            TcpBytes = Tcp, Note, "bytes";
            /// Bytes received again.
            TcpDuplicateBytes = Tcp, Note, "duplicate_bytes";
            /// Segments with data after a gap.
            TcpOutOfOrder = Tcp, Note, "out_of_order";
            /// Segments with urgent data, which is treated as ordinary data.
            TcpUrgent = Tcp, Note, "urgent";
            /// Segments of a connection that arrived from other MAC addresses or VLANs than before; replies follow the new ones.
            TcpAddressChanged = Tcp, Note, "address_changed";
            /// Packets whose scattered payload was copied into one piece.
            TcpGathered = Tcp, Note, "gathered";
            /// SYN segments that request a connection.
            TcpSyns = Tcp, Note, "syns";
            /// Connections established.
            TcpConnections = Tcp, Note, "connections";
            /// Established connections whose stream is complete.
            TcpComplete = Tcp, Note, "complete";
            /// Established connections that the peer reset.
            TcpReset = Tcp, Note, "reset";
            /// Established connections closed by the idle timeout.
            TcpIdleTimeout = Tcp, Note, "idle_timeout";
            /// Established connections still open when the run ended.
            TcpStopped = Tcp, Note, "stopped";
            /// Connections whose handshake the peer did not complete.
            TcpHalfOpen = Tcp, Note, "never_confirmed";
            /// SYN segments answered without storing state (SYN cookies), because too many connections were open.
            TcpCookies = Tcp, Note, "cookies";
            /// Connections established by a SYN cookie.
            TcpCookiesTaken = Tcp, Note, "cookies_taken";
            /// Acknowledgements sent.
            TcpAcks = Tcp, Note, "acks";
            /// Acknowledgements that announced a zero window.
            TcpZeroWindows = Tcp, Note, "zero_windows";
            /// Acknowledgements sent only to reopen the window.
            TcpWindowUpdates = Tcp, Note, "window_updates";
            /// Challenge acknowledgements sent for segments that may be forged.
            TcpChallenges = Tcp, Note, "challenges";
            /// Challenge acknowledgements not sent because of their rate limit.
            TcpUnchallenged = Tcp, Note, "unchallenged";
            /// Resets sent for unknown or abandoned connections.
            TcpResetsSent = Tcp, Note, "resets_sent";
            /// SYN and FIN segments retransmitted.
            TcpRetransmitted = Tcp, Note, "retransmitted";
            /// Segments dropped because the send queue was full or the port did not accept them.
            TcpUnsent = Tcp, Note, "unsent";
        }
    };
}
