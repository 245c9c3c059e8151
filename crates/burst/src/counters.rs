//! Every counter and drop reason, declared once. A counter has one owner stage, one name and one sentence.
//! Help texts, JSON, tables and docs are generated from the table below.

mod stage;
#[macro_use]
mod frames;
#[macro_use]
mod tcp;
#[macro_use]
mod send;
#[macro_use]
mod switch;
#[macro_use]
mod export;

pub use self::stage::{Stage, Unit};

/// The part of a counter in the packet accounting of its stage. Stages count packets (frames) or records, see [`Unit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Entered the stage.
    Received,
    /// Left the stage for the next one.
    Delivered,
    /// Not delivered, as requested by the user (filters, limits).
    Refused,
    /// Not delivered although they should have been: loss.
    Lost,
    /// Information outside the identity `received = delivered + refused + lost`.
    Note,
}

macro_rules! counters {
    ($($(#[doc = $sentence:literal])+ $variant:ident = $stage:ident, $kind:ident, $name:literal;)+) => {
        /// One counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Count { $($(#[doc = $sentence])+ $variant,)+ }

        impl Count {
            /// All counters, in the order of the data path.
            pub const ALL: &'static [Count] = &[$(Count::$variant,)+];

            /// Returns the name used in text and JSON; unique within its stage.
            pub fn name(self) -> &'static str {
                match self { $(Count::$variant => $name,)+ }
            }

            /// Returns the stage that owns the counter.
            pub fn stage(self) -> Stage {
                match self { $(Count::$variant => Stage::$stage,)+ }
            }

            /// Returns its part in the packet accounting.
            pub fn kind(self) -> Kind {
                match self { $(Count::$variant => Kind::$kind,)+ }
            }

            /// Returns the description that help, tables and Prometheus print.
            pub fn sentence(self) -> &'static str {
                match self { $(Count::$variant => concat!($($sentence),+).trim_ascii(),)+ }
            }
        }
    };
}

export_rows! {
    /// Packets that the interface received while the port was open (rx_packets).
    NicReceived = Nic, Note, "received";
    /// Packets that the card or its driver dropped for lack of buffers while the port was open (rx_missed_errors; with xdp: also rx_xdp_drops of virtio_net above those of our program), before any capture could see them.
    NicMissed = Nic, Lost, "nic_missed";
    /// Packets that arrived damaged while the port was open (rx_errors: bad FCS, wrong length).
    NicErrors = Nic, Lost, "nic_errors";
    /// Times the driver had no buffer for a packet while the port was open (rx_nombuf of DPDK); nic_missed includes the packets lost by this, if the driver counts them.
    NicNoBuffer = Nic, Note, "no_buffer";
    /// Packets that the driver or the network stack dropped on reception (rx_dropped); includes packets that only the capture wanted, so it is not a loss by itself.
    NicDropped = Nic, Note, "rx_dropped";
    /// Packets that the interface sent while the port was open (tx_packets).
    NicSent = Nic, Note, "sent";
    /// Packets that the driver dropped on transmission while the port was open (tx_dropped).
    NicSendDropped = Nic, Note, "tx_dropped";

    /// Packets that reached the receive queue, including lost ones.
    Received = Receive, Received, "received";
    /// Packets handed to the merge.
    Delivered = Receive, Delivered, "delivered";
    /// Packets dropped because the receive ring was full: the reader was too slow or the ring too small.
    RingFull = Receive, Lost, "ring_full";
    /// Packets dropped because the kernel had no free buffer: the reader was too slow, or the packet is longer than a buffer.
    NoBuffer = Receive, Lost, "no_buffer";
    /// Packets whose position in the ring the kernel described wrongly; never seen with a correct kernel.
    BadRecord = Receive, Lost, "bad_record";
    /// Packets that the filter did not select, on a port whose kernel applies the filter and counts them.
    KernelFiltered = Receive, Refused, "kernel_filtered";
    /// Queues whose filter runs in the kernel without a count of rejected packets: no counter includes these packets.
    FilterUncounted = Receive, Note, "filter_uncounted";
    /// VLAN-tagged packets that the filter would have selected without the tag, on a port that receives packets directly into their destination and does not see tags.
    VlanUnseen = Receive, Refused, "vlan_unseen";
    /// Packets that the writer of a shared ring skipped for this reader because the reader was too slow.
    Skipped = Receive, Lost, "skipped";
    /// Packets of a shared ring whose position the writer described wrongly; never seen with a correct writer.
    BadDesc = Receive, Lost, "bad_desc";
    /// Slots of a memif ring that the writer overwrote before they were read; at most the ring size each time.
    PeerOverrun = Receive, Lost, "peer_overrun";
    /// Buffers of a memif ring that were not full although their flags announce a next buffer; treated as the last buffer of their packet.
    StaleNext = Receive, Note, "stale_next";
    /// Peers of a memif port that were rejected or disconnected; the details give the reason.
    PeerRefused = Receive, Note, "peers_refused";
    /// Packets lost before they reached the shared ring since this reader attached, as reported by its writer.
    UpstreamLost = Receive, Note, "upstream_lost";
    /// Times the kernel stopped storing packets because every block was in use.
    Freezes = Receive, Note, "freezes";
    /// Super-frames: packets that GRO or GSO had merged before the capture saw them.
    SuperFrames = Receive, Note, "super_frames";
    /// Packets whose VLAN tag was restored.
    VlanRestored = Receive, Note, "vlan_restored";
    /// Packets whose transport checksum the sender had left to hardware.
    ChecksumPartial = Receive, Note, "checksum_partial";
    /// Times the kernel needed a buffer and the fill ring was empty.
    FillEmpty = Receive, Note, "fill_empty";
    /// Packets that arrived in several buffers and were joined.
    Joined = Receive, Note, "joined";
    /// Packets without the requested hardware timestamp; they carry the kernel's timestamp.
    StampMissing = Receive, Note, "stamp_missing";
    /// Packets without a timestamp; they carry the time at which they were read.
    Unstamped = Receive, Note, "unstamped";
    /// Packets that the interfaces of a capture file had seen when it was made, from its interface statistics.
    FileSeen = Receive, Note, "file_seen";
    /// Packets lost in the card, the driver or the kernel when a capture file was made, from its interface statistics.
    FileDropped = Receive, Note, "file_dropped";
    /// Items of a capture file other than packets (names, secrets, options, custom blocks, comments on statistics) that were not copied to the output: no room, invalid, of unknown type, or not to be copied.
    FileNotCopied = Receive, Note, "not_copied";
    /// Packets of a capture file whose time was changed: times before 1970 or after July 2554 are set to the first or last possible time; a sub-second field of a pcap file beyond one second is carried over.
    TimeChanged = Receive, Note, "time_changed";
    /// Times the interface went down while the port was open.
    LinkDown = Receive, Note, "link_down";
    /// Packets that `faulty` dropped as requested by `drop=` and `burst=`.
    FaultDropped = Receive, Refused, "fault_dropped";
    /// Packets that `faulty` dropped because its queue was full at the requested `rate=`.
    FaultQueue = Receive, Refused, "fault_queue";
    /// Copies of packets that `faulty` made; they are counted as received too.
    FaultRepeated = Receive, Note, "fault_repeated";
    /// Packets that `faulty` delayed so that later ones overtook them.
    FaultReordered = Receive, Note, "fault_reordered";
    /// Packets in which `faulty` flipped bits.
    FaultCorrupted = Receive, Note, "fault_corrupted";
    /// Packets that `faulty` truncated.
    FaultTruncated = Receive, Note, "fault_truncated";
    /// Packets to which `faulty` appended bytes.
    FaultPadded = Receive, Note, "fault_padded";
    /// Packets whose transport checksum, left to hardware, was filled in by `faulty` as hardware would have.
    ChecksumFilled = Receive, Note, "checksum_filled";

    /// Packets taken from all lanes.
    MergeReceived = Merge, Received, "received";
    /// Packets emitted in time order.
    MergeDelivered = Merge, Delivered, "delivered";
    /// Packets out of time order, usually older than one already emitted, possibly of the same port; they are emitted at once and flagged, not dropped.
    Late = Merge, Note, "late";
    /// Late packets whose time was ahead of this machine's clock while live ports were open: wrong timestamps, or packets from before the clock was set back.
    Ahead = Merge, Note, "ahead";
    /// Times the merge stopped waiting for a pipe or a shared ring that lagged too far behind live ports; its packets are late from then on.
    Stalls = Merge, Note, "stalls";
    /// Times the clock of this machine was set forward or back; packets from before and after are not in time order.
    ClockSteps = Merge, Note, "clock_steps";

    /// Packets examined by the filter and the limits.
    SelectReceived = Select, Received, "received";
    /// Packets handed to the outputs.
    SelectDelivered = Select, Delivered, "delivered";
    /// Packets that the filter did not select.
    Filtered = Select, Refused, "filtered";
    /// Packets that belong to another shard than the requested one.
    OtherShard = Select, Refused, "other_shard";
    /// Packets equal to one kept within the deduplication window. Packets counted as `late` are compared only with those in the window that ends at the latest time, so copies of them may be delivered.
    Duplicate = Select, Refused, "duplicate";
    /// Packets beyond the requested count or time.
    PastLimit = Select, Refused, "past_limit";
    /// Packets truncated to the requested length or after the requested header; they are delivered.
    Sliced = Select, Note, "sliced";
    /// Packets that deduplication forgot early because too many arrived within the window: copies of them are delivered.
    DedupForgotten = Select, Note, "dedup_forgotten";
    /// Packets not delivered because their consumer panicked (a bug).
    SelectDied = Select, Lost, "consumer_panicked";

    /// Packets for the block ring.
    ShareReceived = Share, Received, "received";
    /// Packets made available to readers.
    Shared = Share, Delivered, "delivered";
    /// Packets lost because no block was free before the run ended: lossless readers held all blocks.
    NoBlock = Share, Lost, "no_block";

    /// Packets committed since the reader attached.
    ReaderReceived = Reader, Received, "received";
    /// Packets in blocks that the reader returned, and packets in other blocks that it gave a verdict on.
    ReaderFinished = Reader, Delivered, "finished";
    /// Packets in blocks reclaimed from the reader when it detached, died or was evicted.
    ReaderReclaimed = Reader, Refused, "reclaimed";
    /// Packets in blocks that the reader still held at the end.
    ReaderOutstanding = Reader, Refused, "outstanding";
    /// Packets that a lossy reader was not shown because it was too slow.
    ReaderSkipped = Reader, Refused, "skipped";
    /// Times the writer waited until the reader returned a block.
    ReaderWaits = Reader, Note, "waits";
    /// Time that the writer waited for the reader, in microseconds.
    ReaderWaitedUs = Reader, Note, "waited_us";
    /// Packets lost before the ring while the writer waited for the reader; sampled ten times per second.
    ReaderUpstreamLost = Reader, Note, "upstream_lost";

    /// Packets handed to the flow meters.
    MeterReceived = Meter, Received, "received";
    /// Packets counted in a flow record.
    Metered = Meter, Delivered, "metered";
    /// Packets of interfaces with an unknown link type; they cannot be parsed.
    MeterUnknownLink = Meter, Refused, "unknown_link";
    /// Packets without an IP header among their first 16 headers.
    MeterNotIp = Meter, Refused, "not_ip";
    /// Packets that announce an IP packet whose header is truncated or inconsistent.
    MeterMalformed = Meter, Refused, "malformed";
    /// Packets not metered because their meter panicked (a bug).
    MeterDied = Meter, Lost, "meter_panicked";

    /// Packets examined for TCP segments.
    FollowReceived = Follow, Received, "received";
    /// Packets with a segment of a connection whose bytes are in streams, or were there already.
    Followed = Follow, Delivered, "followed";
    /// Packets of interfaces with an unknown link type; they cannot be parsed.
    FollowUnknownLink = Follow, Refused, "unknown_link";
    /// Packets without a TCP segment.
    FollowNotTcp = Follow, Refused, "not_tcp";
    /// Packets that announce an IP packet or a TCP segment whose header is truncated or inconsistent.
    FollowMalformed = Follow, Refused, "malformed";
    /// Packets with a wrong TCP checksum, if checksums are verified.
    FollowBadChecksum = Follow, Refused, "bad_checksum";
    /// Packets with a fragment of an IP packet that carries TCP: fragments are not reassembled, so their bytes are missing.
    FollowFragment = Follow, Lost, "fragment";
    /// Packets with stream bytes that were not written because writing failed or the limit on files was reached.
    FollowUnwritten = Follow, Lost, "unwritten";
    /// Packets with stream bytes that were not written because the reader of the pipe had closed it.
    FollowUnread = Follow, Refused, "reader_gone";
    /// Gaps in streams: ranges of bytes that were not received.
    FollowGaps = Follow, Note, "gaps";
    /// Connections evicted while they were open.
    FollowEvicted = Follow, Note, "evicted";
    /// Packets not followed because their stream follower panicked (a bug).
    FollowDied = Follow, Lost, "follower_panicked";

    /// Packets examined for trailers.
    CheckReceived = Check, Received, "received";
    /// Packets with trailers, or of known streams.
    Checked = Check, Delivered, "checked";
    /// Packets that lost their trailer.
    CheckDamaged = Check, Refused, "damaged";
    /// Packets whose end was not captured.
    CheckCut = Check, Refused, "cut";
    /// Packets with a trailer, of streams beyond the memory limit.
    CheckOverLimit = Check, Refused, "over_limit";
    /// Packets that belong to no known stream.
    CheckForeign = Check, Refused, "foreign";
    /// Packets not checked because their check panicked (a bug).
    CheckDied = Check, Lost, "check_panicked";

    /// Packets received from the receiving port, or from the rules of a switch.
    VerdictReceived = Verdict, Received, "received";
    /// Packets that pass, changed or not.
    VerdictPassed = Verdict, Delivered, "delivered";
    /// Packets that the inspector dropped.
    VerdictDropped = Verdict, Refused, "dropped";
    /// Packets dropped because no verdict arrived in time, or too many were waiting for theirs (fail-closed).
    VerdictLate = Verdict, Lost, "no_verdict";
    /// Passed packets that the inspector changed.
    VerdictChanged = Verdict, Note, "changed";
    /// Packets that waited for a verdict.
    VerdictHeld = Verdict, Note, "held";
    /// Passed packets whose verdict did not arrive in time, or that found no room to wait (fail-open).
    VerdictFailedOpen = Verdict, Note, "failed_open";
    /// Verdicts for packets that were not waiting for one.
    VerdictUnknown = Verdict, Note, "unknown_verdicts";
    /// Packets that the engine of `inline` passed unchanged.
    InlinePassed = Verdict, Delivered, "passed";
    /// Packets that the engine passed with other bytes.
    InlineReplaced = Verdict, Delivered, "replaced";
    /// Packets passed by the policy, without a verdict.
    InlinePolicyPassed = Verdict, Delivered, "policy_passed";
    /// Packets that the engine blocked.
    InlineBlocked = Verdict, Refused, "blocked";
    /// Packets dropped by the policy, without a verdict.
    InlinePolicyDropped = Verdict, Lost, "policy_dropped";
    /// Super-frames and truncated packets: they cannot be forwarded.
    InlineUnfit = Verdict, Lost, "unfit";
    /// Packets of a switch lost because no block of the ring was free.
    InlineNoBlock = Verdict, Lost, "no_block";
    /// Packets still undecided when the run ended.
    InlineUndecided = Verdict, Lost, "undecided";
    /// Packets left to the policy because no engine was attached, or because it detached while they were in flight.
    InlineNoEngine = Verdict, Note, "no_engine";
    /// Packets left to the policy because the engine was too slow.
    InlineOverload = Verdict, Note, "overload";
    /// Packets left to the policy because the engine held them too long, or held more than the limit.
    InlineHeldTooLong = Verdict, Note, "held_too_long";
    /// Packets that the engine held for a while.
    InlineHeld = Verdict, Note, "held_back";
    /// Packets of flows that the engine had whitelisted or blacklisted before; they count as passed or blocked.
    InlineListed = Verdict, Note, "listed";
    /// Verdicts that arrived after the policy had acted; they have no effect.
    InlineLate = Verdict, Note, "late_verdicts";
    /// Packets that the engine returned as replacements or additions and that were not used: too late, or for a packet that it did not replace.
    InlineUnused = Verdict, Note, "unused_answers";
    /// Whitelist or blacklist requests of the engine that were not stored: the table was full, or the packet belongs to no flow.
    InlineUnlisted = Verdict, Note, "unlisted";
    /// Engines that attached, one after the other.
    InlineEngines = Verdict, Note, "engines";

    /// Packets taken from the queues of one port.
    ForwardReceived = Forward, Received, "received";
    /// Packets handed to the other port.
    Forwarded = Forward, Delivered, "delivered";
    /// Packets that one port received truncated, as packet: does with super-frames; they are not forwarded.
    ForwardTruncated = Forward, Lost, "truncated";
    /// Received packets that the engine of `inline` injected.
    ForwardInjected = Forward, Note, "injected";
    /// Packets injected by the engine of `inline` beyond the `--inject-limit` per second.
    ForwardInjectLimit = Forward, Lost, "inject_limit";
    /// Packets that arrived while the other port was down.
    ForwardDown = Forward, Lost, "port_down";
    /// Copies of packets for a switch port whose queue was full.
    ForwardFull = Forward, Lost, "port_full";
    /// Packets that the other port did not accept before the run ended.
    ForwardUnsent = Forward, Refused, "unsent";

    /// Packets handed to the output.
    WriteReceived = Write, Received, "received";
    /// Packets completely written.
    Written = Write, Delivered, "delivered";
    /// Packets not written because writing failed (disk full, pipe closed by its reader).
    WriteFailed = Write, Lost, "write_failed";
    /// Packets not written to a pcap file from the first one of a second link type on: a pcap file holds one link type; use pcapng.
    LinkTypeMixed = Write, Lost, "link_type_mixed";
    /// Packets not written to a pcap file from the first one of an unregistered link type on: no program would open such a file; use pcapng.
    LinkTypeUnknown = Write, Lost, "link_type_unknown";
    /// Packets later than 2106, the last time that a pcap file can hold, which they were given instead; pcapng reaches 2554.
    TimeBeyond = Write, Note, "time_beyond";
    /// Packets whose comments were dropped before they were written: more than 65,535 packets with comments, or 64 MiB of comments, were pending.
    CommentsForgotten = Write, Note, "comments_forgotten";
    /// Packets older than requested when a trigger fired, or for which no trigger fired.
    NotTriggered = Write, Refused, "not_triggered";
    /// Packets counted as not_triggered that were recent enough, but were dropped because memory was full.
    BeforeCrowded = Write, Note, "before_crowded";
    /// Times a trigger started writing.
    Triggers = Write, Note, "triggers";
    /// Recording files started.
    WriteFiles = Write, Note, "files";
    /// Recording files deleted, oldest first, to keep within the requested limit.
    FilesRemoved = Write, Note, "files_removed";
    /// Packets not written because their output panicked (a bug).
    OutputDied = Write, Lost, "output_panicked";

    /// Packets to be printed.
    PrintReceived = Print, Received, "received";
    /// Packets printed to standard output.
    Printed = Print, Delivered, "printed";
    /// Packets of a live capture with other outputs that were not printed because the reader of standard output was too slow.
    PrintSlow = Print, Lost, "reader_too_slow";
    /// Packets not printed because standard output was closed by its reader, or because writing failed (disk full; reported as an error).
    PrintUnread = Print, Refused, "reader_gone";
    /// Packets not printed because the printer panicked (a bug).
    PrintDied = Print, Lost, "printer_panicked";

    /// Flow records received in messages of exporters.
    CollectReceived = Collect, Received, "received";
    /// Flow records delivered.
    Collected = Collect, Delivered, "delivered";
    /// Exporter sessions: a source address and port of datagrams, a connection, or a file; one that pauses for long may count twice.
    CollectSessions = Collect, Note, "exporters";
    /// Connections closed: too many at a time, idle for too long while others waited, or TLS negotiation failed.
    CollectRefused = Collect, Note, "connections_refused";
    /// IPFIX and NetFlow v9 messages received.
    CollectMessages = Collect, Note, "messages";
    /// Records without an IP address, which are not flows: only MAC addresses, or data about the exporter itself.
    CollectOthers = Collect, Note, "other_records";
    /// Messages that are damaged or of another protocol; records before the damage count.
    CollectMalformed = Collect, Note, "malformed";
    /// Record sets that cannot be decoded because their template has not been received.
    CollectUnknown = Collect, Note, "unknown_template";
    /// Elements in flow templates that are not read because no field corresponds to them; each template's are reported once.
    CollectUnread = Collect, Note, "elements_not_read";
    /// Templates evicted because the table was full.
    CollectNoRoom = Collect, Note, "templates_no_room";
    /// IPFIX records sent and not received, by sequence numbers.
    CollectMissing = Collect, Note, "missing_records";
    /// NetFlow v9 messages sent and not received, by sequence numbers.
    CollectMissingMessages = Collect, Note, "missing_messages";
}

#[cfg(test)]
mod tests;
