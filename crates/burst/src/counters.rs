//! Every counter and drop reason, declared once. A counter has one owner stage, one name and one sentence.
//! Help, JSON, tables and docs come from the table below.

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

/// What a counter says about the frames, or records, it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They came in.
    Received,
    /// They were handed on.
    Delivered,
    /// They were not handed on, because the user asked for that.
    Refused,
    /// They were not handed on, and should have been: loss.
    Lost,
    /// Something worth knowing that is no part of the identity.
    Note,
}

macro_rules! counters {
    ($($(#[doc = $sentence:literal])+ $variant:ident = $stage:ident, $kind:ident, $name:literal;)+) => {
        /// One counter.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Count { $($(#[doc = $sentence])+ $variant,)+ }

        impl Count {
            /// Every counter there is, in the order of the data path.
            pub const ALL: &'static [Count] = &[$(Count::$variant,)+];

            /// The name used in text and JSON; unique within its stage.
            pub fn name(self) -> &'static str {
                match self { $(Count::$variant => $name,)+ }
            }

            /// The stage that owns it.
            pub fn stage(self) -> Stage {
                match self { $(Count::$variant => Stage::$stage,)+ }
            }

            /// What it says about the frames it counts.
            pub fn kind(self) -> Kind {
                match self { $(Count::$variant => Kind::$kind,)+ }
            }

            /// One sentence for people.
            pub fn sentence(self) -> &'static str {
                match self { $(Count::$variant => concat!($($sentence),+).trim_ascii(),)+ }
            }
        }
    };
}

export_rows! {
    /// Frames the interface counted in while the port was open (rx_packets).
    NicReceived = Nic, Note, "received";
    /// Frames the card missed for lack of buffers while the port was open (rx_missed_errors): lost before any capture could see them.
    NicMissed = Nic, Lost, "nic_missed";
    /// Frames that arrived damaged while the port was open (rx_errors: bad FCS, wrong length).
    NicErrors = Nic, Lost, "nic_errors";
    /// Times the driver found no buffer for a frame while the port was open (rx_nombuf of DPDK); what that cost is among those missed, where the driver counts it.
    NicNoBuffer = Nic, Note, "no_buffer";
    /// Frames the driver or the network stack dropped on reception (rx_dropped); among them those that nothing but the capture wanted, so no loss by itself.
    NicDropped = Nic, Note, "rx_dropped";
    /// Frames the interface counted out while the port was open (tx_packets).
    NicSent = Nic, Note, "sent";
    /// Frames the driver dropped on transmission while the port was open (tx_dropped).
    NicSendDropped = Nic, Note, "tx_dropped";

    /// Frames that reached the queue, lost ones included.
    Received = Receive, Received, "received";
    /// Frames handed to the merge.
    Delivered = Receive, Delivered, "delivered";
    /// Frames that found the receive ring full: the reader was too slow or the ring too small.
    RingFull = Receive, Lost, "ring_full";
    /// Frames the kernel found no buffer for: the reader was too slow, or the frame is longer than a buffer.
    NoBuffer = Receive, Lost, "no_buffer";
    /// Frames whose place in the ring the kernel described wrongly; never seen on a sound kernel.
    BadRecord = Receive, Lost, "bad_record";
    /// Frames that the filter text did not select, of a port that has the kernel apply it and count.
    KernelFiltered = Receive, Refused, "kernel_filtered";
    /// Queues whose filter runs in the kernel, which does not count the packets that it rejects: no counter includes them.
    FilterUncounted = Receive, Note, "filter_uncounted";
    /// Frames with a VLAN tag that the filter would have selected without it, at a port that reads frames to their place and does not see tags.
    VlanUnseen = Receive, Refused, "vlan_unseen";
    /// Frames that the writer of a shared ring did not hand to this reader, because it was too slow.
    Skipped = Receive, Lost, "skipped";
    /// Frames of a shared ring whose place the writer described wrongly; never seen with a sound writer.
    BadDesc = Receive, Lost, "bad_desc";
    /// Slots of a memif ring that its writer overwrote before they were read; at most the size of the ring each time.
    PeerOverrun = Receive, Lost, "peer_overrun";
    /// Buffers of a memif ring that were not full and said that their frame goes on in the next one: taken as its end.
    StaleNext = Receive, Note, "stale_next";
    /// Peers of a memif port that were not let in, or were put out; the details say why.
    PeerRefused = Receive, Note, "peers_refused";
    /// Frames lost on the way to a shared ring since this reader came, as its writer says.
    UpstreamLost = Receive, Note, "upstream_lost";
    /// Times the kernel stopped storing frames because every block was in use.
    Freezes = Receive, Note, "freezes";
    /// Frames that GRO or GSO had put together before the capture saw them.
    SuperFrames = Receive, Note, "super_frames";
    /// Frames whose VLAN tag was put back.
    VlanRestored = Receive, Note, "vlan_restored";
    /// Frames whose transport checksum the sender had left to hardware.
    ChecksumPartial = Receive, Note, "checksum_partial";
    /// Times the kernel looked for a buffer and found none.
    FillEmpty = Receive, Note, "fill_empty";
    /// Frames that came in several buffers and were joined.
    Joined = Receive, Note, "joined";
    /// Frames that the card was to stamp and did not: they have the kernel's stamp.
    StampMissing = Receive, Note, "stamp_missing";
    /// Frames without a stamp, which got the time they were read at.
    Unstamped = Receive, Note, "unstamped";
    /// Frames that the interfaces of a capture file had seen when it was made, by its interface statistics.
    FileSeen = Receive, Note, "file_seen";
    /// Frames that were lost when a capture file was made, in the card, the driver or the kernel, by its interface statistics.
    FileDropped = Receive, Note, "file_dropped";
    /// What a capture file says beyond frames (names, secrets, options, custom blocks, comments on statistics) and was not kept for another file: there was no room for more of it, it makes no sense, or it is of a kind that is not known or must not be copied.
    FileLeftOut = Receive, Note, "file_left_out";
    /// Frames of a capture file with another time than it says: recorded before 1970 or after July 2554, they have the first or the last time that there is; microseconds or nanoseconds of a pcap file beyond a second are carried.
    TimeChanged = Receive, Note, "time_changed";
    /// Times the interface went down while the port was open.
    LinkDown = Receive, Note, "link_down";
    /// Frames that `faulty` dropped by plan: `drop=` and `burst=`.
    FaultDropped = Receive, Refused, "fault_dropped";
    /// Frames that found the queue of `faulty` full at the `rate=` asked for.
    FaultQueue = Receive, Refused, "fault_queue";
    /// Copies of frames that `faulty` made: they are counted as received as well.
    FaultRepeated = Receive, Note, "fault_repeated";
    /// Frames that `faulty` let later ones pass.
    FaultReordered = Receive, Note, "fault_reordered";
    /// Frames in which `faulty` turned bits over.
    FaultCorrupted = Receive, Note, "fault_corrupted";
    /// Frames that `faulty` cut.
    FaultTruncated = Receive, Note, "fault_truncated";
    /// Frames that `faulty` put bytes behind.
    FaultPadded = Receive, Note, "fault_padded";
    /// Frames whose transport checksum, left to hardware, `faulty` filled in as hardware would have.
    ChecksumFilled = Receive, Note, "checksum_filled";

    /// Frames taken from all lanes.
    MergeReceived = Merge, Received, "received";
    /// Frames emitted in time order.
    MergeDelivered = Merge, Delivered, "delivered";
    /// Frames out of their order, most of them older than what was already emitted, also by one of the same port; they are emitted at once and flagged, not dropped.
    Late = Merge, Note, "late";
    /// Late frames whose time was ahead of the clock of this machine, beside live ports: of a wrong time, or from before the clock went back.
    Ahead = Merge, Note, "ahead";
    /// Times a pipe or a shared ring fell so far behind live ports that these did not wait for it any longer; its frames come late then.
    Stalls = Merge, Note, "stalls";
    /// Times somebody set the clock of this machine, forward or back; frames from before and after are not in order of time.
    ClockSteps = Merge, Note, "clock_steps";

    /// Frames looked at by the filter and the limits.
    SelectReceived = Select, Received, "received";
    /// Frames handed to the outputs.
    SelectDelivered = Select, Delivered, "delivered";
    /// Frames the filter text did not select.
    Filtered = Select, Refused, "filtered";
    /// Frames that belong to another shard than the one asked for.
    OtherShard = Select, Refused, "other_shard";
    /// Frames equal to one that was kept within the window of deduplication. Those that are `late` are compared with what was kept in the window up to the latest time alone, so copies of them may be delivered.
    Duplicate = Select, Refused, "duplicate";
    /// Frames beyond the count or time asked for.
    PastLimit = Select, Refused, "past_limit";
    /// Frames cut to the length, or behind the header, asked for; they are delivered.
    Sliced = Select, Note, "sliced";
    /// Frames that deduplication forgot before their time, because too many came within the window: copies of them are delivered.
    DedupForgotten = Select, Note, "dedup_forgotten";
    /// Frames for a consumer that had died of a bug of this program, or was about to.
    SelectDied = Select, Lost, "consumer_died";

    /// Frames for the block ring.
    ShareReceived = Share, Received, "received";
    /// Frames that readers may look at.
    Shared = Share, Delivered, "delivered";
    /// Frames for which no block came free before the run ended: lossless readers held all.
    NoBlock = Share, Lost, "no_block";

    /// Frames committed since the reader attached.
    ReaderReceived = Reader, Received, "received";
    /// Frames in blocks that the reader gave back, and frames in other blocks that it gave a verdict on.
    ReaderFinished = Reader, Delivered, "finished";
    /// Frames in blocks taken back from the reader when it left, died or was evicted.
    ReaderReclaimed = Reader, Refused, "reclaimed";
    /// Frames in blocks that the reader still held at the end.
    ReaderOutstanding = Reader, Refused, "outstanding";
    /// Frames that a lossy reader was not shown, because it was too slow.
    ReaderSkipped = Reader, Refused, "skipped";
    /// Times everybody waited until the reader gave a block back.
    ReaderWaits = Reader, Note, "waits";
    /// For how long everybody waited for the reader, in microseconds.
    ReaderWaitedUs = Reader, Note, "waited_us";
    /// Frames lost in front of the ring while everybody waited for the reader; looked up ten times a second.
    ReaderLost = Reader, Note, "lost_meanwhile";

    /// Frames handed to the meters.
    MeterReceived = Meter, Received, "received";
    /// Frames that are in a record.
    Metered = Meter, Delivered, "metered";
    /// Frames of interfaces whose link type is not known, so that nobody can say what is in them.
    MeterUnknownLink = Meter, Refused, "unknown_link";
    /// Frames without an IP packet among their first 16 headers.
    MeterNotIp = Meter, Refused, "not_ip";
    /// Frames that announce an IP packet whose header is cut off or contradicts itself.
    MeterMalformed = Meter, Refused, "malformed";
    /// Frames for a meter that had died of a bug of this program, or was about to.
    MeterDied = Meter, Lost, "meter_died";

    /// Frames looked at for TCP segments.
    FollowReceived = Follow, Received, "received";
    /// Frames with a segment of a connection, whose bytes are in streams, or were there before.
    Followed = Follow, Delivered, "followed";
    /// Frames of interfaces whose link type is not known, so that nobody can say what is in them.
    FollowUnknownLink = Follow, Refused, "unknown_link";
    /// Frames without a TCP segment.
    FollowNotTcp = Follow, Refused, "not_tcp";
    /// Frames that announce an IP packet or a TCP segment whose header is cut off or contradicts itself.
    FollowMalformed = Follow, Refused, "malformed";
    /// Frames with a wrong TCP checksum, where these are asked for.
    FollowBadChecksum = Follow, Refused, "bad_checksum";
    /// Frames with a fragment of an IP packet with a TCP segment: fragments are not put together, so what they bring is missing.
    FollowFragment = Follow, Lost, "fragment";
    /// Frames with bytes of streams that were not written, because writing failed, or there were as many files as there may be.
    FollowUnwritten = Follow, Lost, "unwritten";
    /// Frames with bytes that nobody reads, as the reader of the pipe had gone.
    FollowUnread = Follow, Refused, "reader_gone";
    /// Gaps in streams: bytes that did not come, at one place each.
    FollowGaps = Follow, Note, "gaps";
    /// Connections that gave way to others while they were open.
    FollowEvicted = Follow, Note, "evicted";
    /// Frames for a follower of streams that had died of a bug of this program, or was about to.
    FollowDied = Follow, Lost, "follower_died";

    /// Frames looked at for trailers.
    CheckReceived = Check, Received, "received";
    /// Frames with trailers, or of streams that are known.
    Checked = Check, Delivered, "checked";
    /// Frames that lost their trailer.
    CheckDamaged = Check, Refused, "damaged";
    /// Frames whose end was not captured.
    CheckCut = Check, Refused, "cut";
    /// Frames with a trailer, of streams that there was no memory for.
    CheckOverLimit = Check, Refused, "over_limit";
    /// Frames of somebody else.
    CheckForeign = Check, Refused, "foreign";
    /// Frames for a check that had died of a bug of this program, or was about to.
    CheckDied = Check, Lost, "check_died";

    /// Frames that came from the receiving port, or from the rules of a switch.
    VerdictReceived = Verdict, Received, "received";
    /// Frames that pass, changed or not.
    VerdictPassed = Verdict, Delivered, "delivered";
    /// Frames that the inspector dropped.
    VerdictDropped = Verdict, Refused, "dropped";
    /// Frames that were dropped because no verdict came in time, or too many waited for theirs (fail closed).
    VerdictLate = Verdict, Lost, "no_verdict";
    /// Of those that pass, frames that the inspector has changed.
    VerdictChanged = Verdict, Note, "changed";
    /// Frames that waited for a verdict.
    VerdictHeld = Verdict, Note, "held";
    /// Of those that pass, frames whose verdict did not come in time, or for which there was no room to wait (fail open).
    VerdictFailedOpen = Verdict, Note, "failed_open";
    /// Verdicts for frames that waited for none.
    VerdictUnknown = Verdict, Note, "unknown_verdicts";
    /// Frames that the engine of `inline` lets pass as they came.
    InlinePassed = Verdict, Delivered, "passed";
    /// Frames that the engine lets pass with other bytes.
    InlineReplaced = Verdict, Delivered, "replaced";
    /// Frames that passed without a verdict: the policy says so.
    InlinePolicyPassed = Verdict, Delivered, "policy_passed";
    /// Frames that the engine blocked.
    InlineBlocked = Verdict, Refused, "blocked";
    /// Frames that were dropped without a verdict: the policy says so.
    InlinePolicyDropped = Verdict, Lost, "policy_dropped";
    /// Super-frames, and frames of which only the beginning came: they cannot be sent on.
    InlineUnfit = Verdict, Lost, "unfit";
    /// Frames of a switch for which no block of the ring was free.
    InlineNoBlock = Verdict, Lost, "no_block";
    /// Frames whose fate was open when the run ended.
    InlineUndecided = Verdict, Lost, "undecided";
    /// Of those the policy was asked about, frames for which no engine was there, or that were under way when it went.
    InlineNoEngine = Verdict, Note, "no_engine";
    /// Of those, frames that the engine was too slow for.
    InlineOverload = Verdict, Note, "overload";
    /// Of those, frames that the engine held for too long, or beyond the most that may be held.
    InlineHeldTooLong = Verdict, Note, "held_too_long";
    /// Frames that the engine held for a while.
    InlineHeld = Verdict, Note, "held_back";
    /// Frames of flows that the engine had white- or blacklisted before; they count as passed or blocked.
    InlineListed = Verdict, Note, "listed";
    /// Verdicts that came when the policy had acted already; they change nothing.
    InlineLate = Verdict, Note, "late_verdicts";
    /// Frames that the engine handed back, to replace one or to be sent beside it, too late or for one that it did not replace.
    InlineUnused = Verdict, Note, "unused_answers";
    /// Flows that the engine white- or blacklisted and there was no room to remember, or frames of no flow.
    InlineUnlisted = Verdict, Note, "unlisted";
    /// Engines that came, one after the other.
    InlineEngines = Verdict, Note, "engines";

    /// Frames taken from the queues of one port.
    ForwardReceived = Forward, Received, "received";
    /// Frames handed to the other port.
    Forwarded = Forward, Delivered, "delivered";
    /// Frames of which the one port had only the beginning; they are not sent on.
    ForwardTruncated = Forward, Lost, "truncated";
    /// Of those received, frames that the engine of `inline` made itself.
    ForwardInjected = Forward, Note, "injected";
    /// Frames that the engine of `inline` made itself, more in a second than `--inject-limit` lets go.
    ForwardInjectLimit = Forward, Lost, "inject_limit";
    /// Frames that came while the other port was down.
    ForwardDown = Forward, Lost, "port_down";
    /// Copies of frames for a port of the switch that was full.
    ForwardFull = Forward, Lost, "port_full";
    /// Frames that the other port did not take before the run ended.
    ForwardUnsent = Forward, Refused, "unsent";

    /// Frames handed to the output.
    WriteReceived = Write, Received, "received";
    /// Frames completely written.
    Written = Write, Delivered, "delivered";
    /// Frames not written because writing failed (disk full, reader of the pipe gone).
    WriteFailed = Write, Lost, "write_failed";
    /// Frames not written to a pcap file from the first one of a second link type on: such a file holds one; pcapng holds any.
    LinkTypeMixed = Write, Lost, "link_type_mixed";
    /// Frames not written to a pcap file from the first one of a link type that is not registered on: no program would open such a file; pcapng holds any.
    LinkTypeUnknown = Write, Lost, "link_type_unknown";
    /// Frames of a time behind the last that a pcap file can hold, in 2106, which they got instead; pcapng reaches 2554.
    TimeBeyond = Write, Note, "time_beyond";
    /// Frames whose comments were forgotten before they could be written: more than 65,535 frames with comments, or 64 MiB of these, were on their way.
    CommentsForgotten = Write, Note, "comments_forgotten";
    /// Frames that were older than asked for when a trigger came, or for which none came.
    NotTriggered = Write, Refused, "not_triggered";
    /// Frames among these that were young enough, but had to go as memory was full.
    BeforeCrowded = Write, Note, "before_crowded";
    /// Times that a trigger began to have frames written.
    Triggers = Write, Note, "triggers";
    /// Files of a recording that were begun.
    WriteFiles = Write, Note, "files";
    /// Files of a recording that were removed again, the oldest first, to keep to what was asked for.
    FilesRemoved = Write, Note, "files_removed";
    /// Frames for an output that had died of a bug of this program, or was about to.
    OutputDied = Write, Lost, "output_died";

    /// Frames that were to be printed.
    PrintReceived = Print, Received, "received";
    /// Frames with a line on standard output.
    Printed = Print, Delivered, "printed";
    /// Frames without a line, because whoever reads the lines of a live capture with other outputs was too slow.
    PrintSlow = Print, Lost, "reader_too_slow";
    /// Frames without a line, because standard output takes no more: its reader has gone, or, which is an error and said, it is a file and the disk is full.
    PrintUnread = Print, Refused, "reader_gone";
    /// Frames for a printer that had died of a bug of this program, or was about to.
    PrintDied = Print, Lost, "printer_died";

    /// Flow records that came in messages of exporters.
    CollectReceived = Collect, Received, "received";
    /// Flow records that were handed on.
    Collected = Collect, Delivered, "delivered";
    /// Sessions of exporters: an address and port that datagrams come from, a connection, a file; one that was silent for long may be two.
    CollectSessions = Collect, Note, "exporters";
    /// Connections that were closed: too many at a time, silent for too long while others waited, or TLS was not agreed on.
    CollectRefused = Collect, Note, "connections_refused";
    /// Messages that came, of IPFIX and NetFlow v9.
    CollectMessages = Collect, Note, "messages";
    /// Records without an IP address, which are no flows: MAC addresses alone, or what exporters tell of themselves.
    CollectOthers = Collect, Note, "other_records";
    /// Messages that are damaged or of another protocol; what stands in front of the damage counts.
    CollectMalformed = Collect, Note, "malformed";
    /// Sets of records that nobody can read, as their template did not come, or not yet.
    CollectUnknown = Collect, Note, "unknown_template";
    /// Elements in templates of flows that are not read, as no field says the same; each template's are named once.
    CollectUnread = Collect, Note, "elements_not_read";
    /// Templates that gave way to others for want of room.
    CollectNoRoom = Collect, Note, "templates_no_room";
    /// Records of IPFIX that were sent and did not come, by its sequence numbers.
    CollectMissing = Collect, Note, "missing_records";
    /// Messages of NetFlow v9 that were sent and did not come, by its sequence numbers.
    CollectMissingMessages = Collect, Note, "missing_messages";
}

#[cfg(test)]
mod tests;
