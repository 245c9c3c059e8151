//! Fields from level `tcp` on.

use super::Get::{Bool, F64, Name, Text, U8, U16, U32, U64};
use super::Part::{Tcp, TcpSide};
use super::{Field, always, maybe};
use linerate_meter::{Flow, Rtt, TcpSide as Side};
use std::borrow::Cow;

pub(super) const FIELDS: &[Field] = &[
    always(
        Tcp,
        "tcp.state",
        Name(|flow, _| Some(flow.tcp.as_ref()?.state.name())),
        "how far the connection got, see above",
    )
    .argus("state")
    .zeek_like("conn_state"),
    always(
        Tcp,
        "tcp.history",
        Text(|flow, _| Some(Cow::Borrowed(&flow.tcp.as_ref()?.history.0))),
        "what happened, a letter each, see above",
    )
    .zeek(&["history"]),
    maybe(
        Tcp,
        "tcp.syn_to_syn_ack_ns",
        U64(|flow, _| flow.tcp.as_ref()?.syn_to_syn_ack),
        "handshake: from the sensor to the responder and back",
    )
    .unit("ns")
    .argus("synack"),
    maybe(
        Tcp,
        "tcp.syn_ack_to_ack_ns",
        U64(|flow, _| flow.tcp.as_ref()?.syn_ack_to_ack),
        "handshake: from the sensor to the originator and back",
    )
    .unit("ns")
    .argus("ackdat"),
    maybe(TcpSide, "*.tcp.isn", U32(|flow, side| of(flow, side)?.isn), "sequence number of the first SYN")
        .iana(&[184])
        .argus("stcpb, dtcpb"),
    maybe(TcpSide, "*.tcp.mss", U16(|flow, side| of(flow, side)?.mss), "option of the SYN (RFC 9293, 3.7.1)")
        .unit("bytes")
        .tstat("c_mss"),
    maybe(
        TcpSide,
        "*.tcp.window_scale",
        U8(|flow, side| of(flow, side)?.window_scale),
        "option of the SYN (RFC 7323, 2): bits that windows are shifted by",
    )
    .tstat("c_win_scl"),
    always(
        TcpSide,
        "*.tcp.sack_permitted",
        Bool(|flow, side| Some(of(flow, side)?.sack_permitted)),
        "option of the SYN (RFC 2018)",
    )
    .tstat("c_sack_opt"),
    always(
        TcpSide,
        "*.tcp.timestamps",
        Bool(|flow, side| Some(of(flow, side)?.timestamps)),
        "option of the SYN (RFC 7323, 3)",
    )
    .tstat("c_tm_opt"),
    always(TcpSide, "*.tcp.window_min", U32(|flow, side| Some(of(flow, side)?.window[0])), "least window, see above")
        .unit("bytes")
        .argus("swin, dwin")
        .tstat("c_win_min"),
    always(
        TcpSide,
        "*.tcp.window_max",
        U32(|flow, side| Some(of(flow, side)?.window[1])),
        "greatest window, see above",
    )
    .unit("bytes")
    .tstat("c_win_max"),
    always(
        TcpSide,
        "*.tcp.zero_windows",
        U64(|flow, side| Some(of(flow, side)?.zero_windows)),
        "segments that announced a window of 0, see above",
    )
    .unit("packets")
    .zeek_like("history `w`")
    .tstat("c_win_0"),
    always(
        TcpSide,
        "*.tcp.rtt.count",
        U64(|flow, side| Some(of(flow, side)?.rtt.count)),
        "times from data to its acknowledgement, see above; how many were measured",
    )
    .tstat("c_rtt_cnt"),
    maybe(TcpSide, "*.tcp.rtt.min_ns", U64(|flow, side| Some(rtt(flow, side)?.min)), "the least")
        .unit("ns")
        .argus("tcprtt")
        .tstat("c_rtt_min"),
    maybe(TcpSide, "*.tcp.rtt.max_ns", U64(|flow, side| Some(rtt(flow, side)?.max)), "the greatest")
        .unit("ns")
        .tstat("c_rtt_max"),
    maybe(TcpSide, "*.tcp.rtt.mean_ns", F64(|flow, side| Some(rtt(flow, side)?.mean)), "their mean")
        .unit("ns")
        .tstat("c_rtt_avg"),
    maybe(
        TcpSide,
        "*.tcp.rtt.deviation_ns",
        F64(|flow, side| Some(rtt(flow, side)?.deviation)),
        "their standard deviation",
    )
    .unit("ns")
    .tstat("c_rtt_std"),
    always(
        TcpSide,
        "*.tcp.retransmitted.timeout",
        U64(|flow, side| Some(of(flow, side)?.retransmitted.timeout)),
        "segments sent again, by class: after a silence",
    )
    .unit("packets")
    .argus("sretrans, dretrans")
    .zeek_like("history `t`")
    .tstat("c_pkts_rto"),
    always(
        TcpSide,
        "*.tcp.retransmitted.fast",
        U64(|flow, side| Some(of(flow, side)?.retransmitted.fast)),
        "after duplicate acknowledgements",
    )
    .unit("packets")
    .tstat("c_pkts_fs"),
    always(
        TcpSide,
        "*.tcp.retransmitted.spurious",
        U64(|flow, side| Some(of(flow, side)?.retransmitted.spurious)),
        "although acknowledged already",
    )
    .unit("packets")
    .tstat("c_pkts_unrto"),
    always(
        TcpSide,
        "*.tcp.retransmitted.unseen",
        U64(|flow, side| Some(of(flow, side)?.retransmitted.unseen)),
        "lost before the sensor, and never seen here before",
    )
    .unit("packets")
    .tstat("c_pkts_ooo"),
    always(
        TcpSide,
        "*.tcp.retransmitted_bytes",
        U64(|flow, side| Some(of(flow, side)?.retransmitted_bytes)),
        "payload seen before",
    )
    .unit("bytes")
    .tstat("c_bytes_retx"),
    always(
        TcpSide,
        "*.tcp.out_of_order",
        U64(|flow, side| Some(of(flow, side)?.out_of_order)),
        "segments that came behind later ones, see above",
    )
    .unit("packets")
    .tstat("c_pkts_reor"),
    always(
        TcpSide,
        "*.tcp.copies",
        U64(|flow, side| Some(of(flow, side)?.copies)),
        "copies of one packet that the network or a mirror made, see above",
    )
    .unit("packets")
    .tstat("c_pkts_dup"),
    always(
        TcpSide,
        "*.tcp.duplicate_acks",
        U64(|flow, side| Some(of(flow, side)?.duplicate_acks)),
        "acknowledgements that repeat the one before, see above",
    )
    .unit("packets"),
    always(
        TcpSide,
        "*.tcp.keep_alives",
        U64(|flow, side| Some(of(flow, side)?.keep_alives)),
        "segments right below what comes next, see above",
    )
    .unit("packets"),
    always(
        TcpSide,
        "*.tcp.window_probes",
        U64(|flow, side| Some(of(flow, side)?.window_probes)),
        "segments of one byte into a window of 0, see above",
    )
    .unit("packets"),
    always(TcpSide, "*.tcp.gaps", U64(|flow, side| Some(of(flow, side)?.gaps)), "times something was missing"),
    always(TcpSide, "*.tcp.gap_bytes", U64(|flow, side| Some(of(flow, side)?.gap_bytes)), "bytes that never came")
        .unit("bytes")
        .argus("sgap, dgap")
        .zeek_like("missed_bytes"),
];

fn of(flow: &Flow, side: usize) -> Option<&Side> {
    Some(&flow.tcp.as_ref()?.sides[side])
}

/// Absent and not 0 where nothing was measured, so that averages over flows leave it out.
fn rtt(flow: &Flow, side: usize) -> Option<&Rtt> {
    Some(&of(flow, side)?.rtt).filter(|rtt| rtt.count > 0)
}
