//! Fields from level `tcp`.

use super::Getter::{Bool, F64, Name, Text, U8, U16, U32, U64};
use super::Part::{Tcp, TcpSide};
use super::{Field, always, maybe};
use linerate_meter::{Flow, Rtt, TcpSide as Side};
use std::borrow::Cow;

pub(super) const FIELDS: &[Field] = &[
    always(Tcp, "tcp.state", Name(|flow, _| Some(flow.tcp.as_ref()?.state.name())), "connection state, see above")
        .argus("state")
        .zeek_like("conn_state"),
    always(
        Tcp,
        "tcp.history",
        Text(|flow, _| Some(Cow::Borrowed(&flow.tcp.as_ref()?.history.0))),
        "connection history, one letter per event, see above",
    )
    .zeek_like("history"),
    maybe(
        Tcp,
        "tcp.syn_to_syn_ack_ns",
        U64(|flow, _| flow.tcp.as_ref()?.syn_to_syn_ack),
        "handshake round-trip time between sensor and responder (SYN to SYN-ACK)",
    )
    .unit("ns")
    .argus("synack"),
    maybe(
        Tcp,
        "tcp.syn_ack_to_ack_ns",
        U64(|flow, _| flow.tcp.as_ref()?.syn_ack_to_ack),
        "handshake round-trip time between sensor and originator (SYN-ACK to ACK)",
    )
    .unit("ns")
    .argus("ackdat"),
    maybe(TcpSide, "*.tcp.isn", U32(|flow, side| of(flow, side)?.isn), "initial sequence number, of the first SYN")
        .iana(&[184])
        .argus("stcpb, dtcpb"),
    maybe(
        TcpSide,
        "*.tcp.mss",
        U16(|flow, side| of(flow, side)?.mss),
        "maximum segment size option of the SYN (RFC 9293, 3.7.1)",
    )
    .unit("bytes")
    .tstat("c_mss"),
    maybe(
        TcpSide,
        "*.tcp.window_scale",
        U8(|flow, side| of(flow, side)?.window_scale),
        "window scale option of the SYN (RFC 7323, 2): shift count",
    )
    .tstat("c_win_scl"),
    always(
        TcpSide,
        "*.tcp.sack_permitted",
        Bool(|flow, side| Some(of(flow, side)?.sack_permitted)),
        "SACK permitted option of the SYN (RFC 2018)",
    )
    .tstat("c_sack_opt"),
    always(
        TcpSide,
        "*.tcp.timestamps",
        Bool(|flow, side| Some(of(flow, side)?.timestamps)),
        "timestamps option of the SYN (RFC 7323, 3)",
    )
    .tstat("c_tm_opt"),
    always(
        TcpSide,
        "*.tcp.window_min",
        U32(|flow, side| Some(of(flow, side)?.window[0])),
        "minimum receive window, see above",
    )
    .unit("bytes")
    .argus("swin, dwin")
    .tstat("c_win_min"),
    always(
        TcpSide,
        "*.tcp.window_max",
        U32(|flow, side| Some(of(flow, side)?.window[1])),
        "maximum receive window, see above",
    )
    .unit("bytes")
    .tstat("c_win_max"),
    always(
        TcpSide,
        "*.tcp.zero_windows",
        U64(|flow, side| Some(of(flow, side)?.zero_windows)),
        "segments with a zero window, see above",
    )
    .unit("packets")
    .zeek_like("history `w`")
    .tstat("c_win_0"),
    always(
        TcpSide,
        "*.tcp.rtt.count",
        U64(|flow, side| Some(of(flow, side)?.rtt.count)),
        "number of RTT samples (data to acknowledgement), see above",
    )
    .tstat("c_rtt_cnt"),
    maybe(TcpSide, "*.tcp.rtt.min_ns", U64(|flow, side| Some(rtt(flow, side)?.min)), "minimum RTT")
        .unit("ns")
        .argus("tcprtt")
        .tstat("c_rtt_min"),
    maybe(TcpSide, "*.tcp.rtt.max_ns", U64(|flow, side| Some(rtt(flow, side)?.max)), "maximum RTT")
        .unit("ns")
        .tstat("c_rtt_max"),
    maybe(TcpSide, "*.tcp.rtt.mean_ns", F64(|flow, side| Some(rtt(flow, side)?.mean)), "mean RTT")
        .unit("ns")
        .tstat("c_rtt_avg"),
    maybe(
        TcpSide,
        "*.tcp.rtt.deviation_ns",
        F64(|flow, side| Some(rtt(flow, side)?.deviation)),
        "standard deviation of the RTT",
    )
    .unit("ns")
    .tstat("c_rtt_std"),
    always(
        TcpSide,
        "*.tcp.retransmitted.timeout",
        U64(|flow, side| Some(of(flow, side)?.retransmitted.timeout)),
        "retransmissions after a timeout",
    )
    .unit("packets")
    .argus("sretrans, dretrans")
    .zeek_like("history `t`")
    .tstat("c_pkts_rto"),
    always(
        TcpSide,
        "*.tcp.retransmitted.fast",
        U64(|flow, side| Some(of(flow, side)?.retransmitted.fast)),
        "retransmissions after duplicate acknowledgements",
    )
    .unit("packets")
    .tstat("c_pkts_fs"),
    always(
        TcpSide,
        "*.tcp.retransmitted.spurious",
        U64(|flow, side| Some(of(flow, side)?.retransmitted.spurious)),
        "retransmissions of acknowledged data",
    )
    .unit("packets")
    .tstat("c_pkts_unrto"),
    always(
        TcpSide,
        "*.tcp.retransmitted.unseen",
        U64(|flow, side| Some(of(flow, side)?.retransmitted.unseen)),
        "retransmissions of data that the sensor never saw: lost before it",
    )
    .unit("packets")
    .tstat("c_pkts_ooo"),
    always(
        TcpSide,
        "*.tcp.retransmitted_bytes",
        U64(|flow, side| Some(of(flow, side)?.retransmitted_bytes)),
        "retransmitted payload that was seen before",
    )
    .unit("bytes")
    .tstat("c_bytes_retx"),
    always(
        TcpSide,
        "*.tcp.out_of_order",
        U64(|flow, side| Some(of(flow, side)?.out_of_order)),
        "out-of-order segments, see above",
    )
    .unit("packets")
    .tstat("c_pkts_reor"),
    always(
        TcpSide,
        "*.tcp.copies",
        U64(|flow, side| Some(of(flow, side)?.copies)),
        "duplicates of a packet, made by the network or a mirror port, see above",
    )
    .unit("packets")
    .tstat("c_pkts_dup"),
    always(
        TcpSide,
        "*.tcp.duplicate_acks",
        U64(|flow, side| Some(of(flow, side)?.duplicate_acks)),
        "duplicate acknowledgements, see above",
    )
    .unit("packets"),
    always(
        TcpSide,
        "*.tcp.keep_alives",
        U64(|flow, side| Some(of(flow, side)?.keep_alives)),
        "keep-alive segments, just below the next sequence number, see above",
    )
    .unit("packets"),
    always(
        TcpSide,
        "*.tcp.window_probes",
        U64(|flow, side| Some(of(flow, side)?.window_probes)),
        "zero window probes of one byte, see above",
    )
    .unit("packets"),
    always(TcpSide, "*.tcp.gaps", U64(|flow, side| Some(of(flow, side)?.gaps)), "gaps in the sequence space"),
    always(TcpSide, "*.tcp.gap_bytes", U64(|flow, side| Some(of(flow, side)?.gap_bytes)), "bytes missing in gaps")
        .unit("bytes")
        .argus("sgap, dgap")
        .zeek_like("missed_bytes"),
];

fn of(flow: &Flow, side: usize) -> Option<&Side> {
    Some(&flow.tcp.as_ref()?.sides[side])
}

/// `None` rather than 0 without samples, so that averages over flows ignore it.
fn rtt(flow: &Flow, side: usize) -> Option<&Rtt> {
    Some(&of(flow, side)?.rtt).filter(|rtt| rtt.count > 0)
}
