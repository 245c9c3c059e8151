//! Fields at level `stats`.

use super::Get::{F64, List, U8, U16, U64};
use super::Part::{Stats, StatsSide};
use super::{Field, always, maybe};
use linerate_meter::{Flow, PacketStats, StatsSide as Side, Summary};

/// The enterprise of CESNET, whose elements these are.
const CESNET: u32 = 8057;

pub(super) const FIELDS: &[Field] = &[
    always(
        Stats,
        "stats.packet_times_ns",
        List(|flow, _, list| each(flow, list, |packet| packet.time)),
        "of the first packets: since the flow's first packet",
    )
    .unit("ns")
    .elements_of(CESNET, &[1014], &[]),
    always(
        Stats,
        "stats.packet_from_orig",
        List(|flow, _, list| each(flow, list, |packet| packet.from_originator.into())),
        "1 where the originator sent it, else 0",
    )
    .elements_of(CESNET, &[1016], &[]),
    always(
        Stats,
        "stats.packet_payload_bytes",
        List(|flow, _, list| each(flow, list, |packet| packet.payload.into())),
        "bytes behind the transport header; 32,767 stands for that and more",
    )
    .unit("bytes")
    .elements_of(CESNET, &[1013], &[]),
    always(
        Stats,
        "stats.packet_tcp_flags",
        List(|flow, _, list| each(flow, list, |packet| packet.tcp_flags.into())),
        "TCP flags",
    )
    .elements_of(CESNET, &[1015], &[]),
    maybe(
        StatsSide,
        "*.stats.lengths.min",
        U64(|flow, side| Some(lengths(flow, side)?.min)),
        "IP packets: the shortest",
    )
    .unit("bytes")
    .iana(&[25])
    .argus("sminsz"),
    maybe(
        StatsSide,
        "*.stats.lengths.max",
        U64(|flow, side| Some(lengths(flow, side)?.max)),
        "the longest; 65,535 stands for that and more",
    )
    .unit("bytes")
    .iana(&[26])
    .argus("smaxsz"),
    maybe(
        StatsSide,
        "*.stats.lengths.mean",
        F64(|flow, side| Some(lengths(flow, side)?.mean)),
        "mean of their lengths",
    )
    .unit("bytes")
    .argus("smeansz"),
    maybe(
        StatsSide,
        "*.stats.lengths.deviation",
        F64(|flow, side| Some(lengths(flow, side)?.deviation)),
        "their standard deviation",
    )
    .unit("bytes"),
    maybe(
        StatsSide,
        "*.stats.gaps.min_ns",
        U64(|flow, side| Some(gaps(flow, side)?.min)),
        "time between packets of this direction, the least; not there where there is none, or all are 0",
    )
    .unit("ns"),
    maybe(StatsSide, "*.stats.gaps.max_ns", U64(|flow, side| Some(gaps(flow, side)?.max)), "the greatest").unit("ns"),
    maybe(StatsSide, "*.stats.gaps.mean_ns", F64(|flow, side| Some(gaps(flow, side)?.mean)), "their mean")
        .unit("ns")
        .argus("sintpkt"),
    maybe(
        StatsSide,
        "*.stats.gaps.deviation_ns",
        F64(|flow, side| Some(gaps(flow, side)?.deviation)),
        "their standard deviation",
    )
    .unit("ns"),
    always(
        StatsSide,
        "*.stats.length_histogram",
        List(|flow, side, list| of(flow, side).is_some_and(|of| bins(&of.length_histogram, list))),
        "packets in eight bins: payload to 15 bytes, 31, 63, 127, 255, 511, 1,023, more",
    )
    .unit("packets")
    .elements_of(CESNET, &[1060], &[1062]),
    always(
        StatsSide,
        "*.stats.gap_histogram",
        List(|flow, side, list| of(flow, side).is_some_and(|of| bins(&of.gap_histogram, list))),
        "gaps in ms by the same limits",
    )
    .unit("packets")
    .elements_of(CESNET, &[1061], &[1063]),
    always(StatsSide, "*.stats.ip_flags", U8(|flow, side| Some(of(flow, side)?.ip_flags)), "of the first packet")
        .iana(&[197]),
    always(
        StatsSide,
        "*.stats.first_window",
        U16(|flow, side| Some(of(flow, side)?.first_window)),
        "of the first packet, as it is in the header",
    )
    .iana(&[186])
    .argus("swin"),
    always(
        StatsSide,
        "*.stats.tcp_options",
        U64(|flow, side| Some(of(flow, side)?.tcp_options)),
        "kinds seen, a bit each",
    )
    .iana(&[209])
    .tstat("c_tm_opt, c_sack_opt, c_win_scl"),
    always(
        StatsSide,
        "*.stats.syn_bytes",
        U16(|flow, side| Some(of(flow, side)?.syn_bytes)),
        "of the IP packet of the first SYN",
    )
    .unit("bytes")
    .elements_of(CESNET, &[902], &[]),
];

fn each(flow: &Flow, list: &mut Vec<u64>, get: fn(&PacketStats) -> u64) -> bool {
    let Some(stats) = &flow.stats else { return false };
    list.extend(stats.packets.iter().map(get));
    true
}

fn bins(bins: &[u64; 8], list: &mut Vec<u64>) -> bool {
    list.extend(bins);
    true
}

fn of(flow: &Flow, side: usize) -> Option<&Side> {
    Some(&flow.stats.as_ref()?.sides[side])
}

/// Absent where there was no packet.
fn lengths(flow: &Flow, side: usize) -> Option<&Summary> {
    Some(&of(flow, side)?.lengths).filter(|lengths| **lengths != Summary::default())
}

/// Absent where there were no two packets, or all at one time.
fn gaps(flow: &Flow, side: usize) -> Option<&Summary> {
    Some(&of(flow, side)?.gaps).filter(|gaps| **gaps != Summary::default())
}
