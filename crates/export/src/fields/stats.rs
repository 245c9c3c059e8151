//! Fields at level `stats`.

use super::Getter::{F64, List, U8, U16, U64};
use super::Part::{Stats, StatsSide};
use super::{Field, always, maybe};
use linerate_meter::{Flow, PacketStats, StatsSide as Side, SummaryStatistics};

/// Private enterprise number of CESNET.
const CESNET: u32 = 8057;

pub(super) const FIELDS: &[Field] = &[
    always(
        Stats,
        "stats.packet_times_ns",
        List(|flow, _, list| each(flow, list, |packet| packet.time)),
        "times of the first packets, since the flow's first packet",
    )
    .unit("ns")
    .elements_of(CESNET, &[1014], &[]),
    always(
        Stats,
        "stats.packet_from_orig",
        List(|flow, _, list| each(flow, list, |packet| packet.from_originator.into())),
        "for each of them: 1 if sent by the originator, else 0",
    )
    .elements_of(CESNET, &[1016], &[]),
    always(
        Stats,
        "stats.packet_payload_bytes",
        List(|flow, _, list| each(flow, list, |packet| packet.payload.into())),
        "for each of them: bytes after the transport header; 32,767 also for more",
    )
    .unit("bytes")
    .elements_of(CESNET, &[1013], &[]),
    always(
        Stats,
        "stats.packet_tcp_flags",
        List(|flow, _, list| each(flow, list, |packet| packet.tcp_flags.into())),
        "for each of them: TCP flags",
    )
    .elements_of(CESNET, &[1015], &[]),
    maybe(
        StatsSide,
        "*.stats.lengths.min",
        U64(|flow, side| Some(lengths(flow, side)?.min)),
        "minimum length of IP packets",
    )
    .unit("bytes")
    .iana(&[25])
    .argus("sminsz"),
    maybe(
        StatsSide,
        "*.stats.lengths.max",
        U64(|flow, side| Some(lengths(flow, side)?.max)),
        "maximum length of IP packets; 65,535 also for more",
    )
    .unit("bytes")
    .iana(&[26])
    .argus("smaxsz"),
    maybe(
        StatsSide,
        "*.stats.lengths.mean",
        F64(|flow, side| Some(lengths(flow, side)?.mean)),
        "mean length of IP packets",
    )
    .unit("bytes")
    .argus("smeansz"),
    maybe(
        StatsSide,
        "*.stats.lengths.deviation",
        F64(|flow, side| Some(lengths(flow, side)?.deviation)),
        "standard deviation of IP packet lengths",
    )
    .unit("bytes"),
    maybe(
        StatsSide,
        "*.stats.gaps.min_ns",
        U64(|flow, side| Some(gaps(flow, side)?.min)),
        "minimum time between packets of this direction; absent with fewer than two packets, or if all gaps are 0",
    )
    .unit("ns"),
    maybe(
        StatsSide,
        "*.stats.gaps.max_ns",
        U64(|flow, side| Some(gaps(flow, side)?.max)),
        "maximum time between packets",
    )
    .unit("ns"),
    maybe(
        StatsSide,
        "*.stats.gaps.mean_ns",
        F64(|flow, side| Some(gaps(flow, side)?.mean)),
        "mean time between packets",
    )
    .unit("ns")
    .argus("sintpkt"),
    maybe(
        StatsSide,
        "*.stats.gaps.deviation_ns",
        F64(|flow, side| Some(gaps(flow, side)?.deviation)),
        "standard deviation of the time between packets",
    )
    .unit("ns"),
    always(
        StatsSide,
        "*.stats.length_histogram",
        List(|flow, side, list| of(flow, side).is_some_and(|of| bins(&of.length_histogram, list))),
        "packets per payload size in eight bins: up to 15 bytes, 31, 63, 127, 255, 511, 1,023, more",
    )
    .unit("packets")
    .elements_of(CESNET, &[1060], &[1062]),
    always(
        StatsSide,
        "*.stats.gap_histogram",
        List(|flow, side, list| of(flow, side).is_some_and(|of| bins(&of.gap_histogram, list))),
        "packets per gap in ms, with the same bins",
    )
    .unit("packets")
    .elements_of(CESNET, &[1061], &[1063]),
    always(
        StatsSide,
        "*.stats.ip_flags",
        U8(|flow, side| Some(of(flow, side)?.ip_flags)),
        "IP flags of the first packet",
    )
    .iana(&[197]),
    always(
        StatsSide,
        "*.stats.first_window",
        U16(|flow, side| Some(of(flow, side)?.first_window)),
        "TCP window of the first packet, unscaled",
    )
    .iana(&[186])
    .argus("swin"),
    always(
        StatsSide,
        "*.stats.tcp_options",
        U64(|flow, side| Some(of(flow, side)?.tcp_options)),
        "kinds of TCP options seen, as bits",
    )
    .iana(&[209])
    .tstat("c_tm_opt, c_sack_opt, c_win_scl"),
    always(
        StatsSide,
        "*.stats.syn_bytes",
        U16(|flow, side| Some(of(flow, side)?.syn_bytes)),
        "length of the IP packet of the first SYN",
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

/// `None` without packets.
fn lengths(flow: &Flow, side: usize) -> Option<&SummaryStatistics> {
    Some(&of(flow, side)?.lengths).filter(|lengths| **lengths != SummaryStatistics::default())
}

/// `None` with fewer than two packets, or if all have the same time.
fn gaps(flow: &Flow, side: usize) -> Option<&SummaryStatistics> {
    Some(&of(flow, side)?.gaps).filter(|gaps| **gaps != SummaryStatistics::default())
}
