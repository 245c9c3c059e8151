//! Every column. A name is the path of the field in JSON, its parts joined by `_`; docs/flows.md tells what each means.

use crate::get::Get;
use arrow_array::{ArrayRef, new_null_array};
use arrow_schema::{Field, Schema};
use linerate_meter::{Flow, Quality, Rtt, Side, Stats, StatsSide, Summary, Tcp, TcpSide};
use std::fmt::Write;

/// From flows to the values of a column.
type Make = Box<dyn Fn(&[&Flow]) -> ArrayRef + Send>;

/// One column of a file.
pub(crate) struct Column {
    pub field: Field,
    /// Its values for these flows.
    pub array: Make,
}

/// A column of a part of a flow.
struct Row<T: 'static> {
    name: &'static str,
    nullable: bool,
    get: Get<T>,
}

const fn always<T>(name: &'static str, get: Get<T>) -> Row<T> {
    Row { name, nullable: false, get }
}

const fn maybe<T>(name: &'static str, get: Get<T>) -> Row<T> {
    Row { name, nullable: true, get }
}

/// The names of all columns, in their order.
pub fn column_names() -> Vec<String> {
    columns().into_iter().map(|column| column.field.name().clone()).collect()
}

/// The schema of all files, whatever the level: what a level does not have is null.
pub fn schema() -> Schema {
    Schema::new(columns().into_iter().map(|column| column.field).collect::<Vec<_>>())
}

/// All columns, in their order.
pub(crate) fn columns() -> Vec<Column> {
    let mut columns = Vec::new();
    add(&mut columns, "", FLOW, true, |flow| Some(flow));
    for (side, name) in ["orig_", "resp_"].into_iter().enumerate() {
        add(&mut columns, name, ENDS[side], true, |flow| Some(flow));
        add(&mut columns, name, SIDE, true, move |flow| Some(&flow.sides[side]));
    }
    add(&mut columns, "quality_", QUALITY, true, |flow| Some(flow));
    add(&mut columns, "tcp_", TCP, false, |flow| flow.tcp.as_ref());
    for (side, name) in ["orig_tcp_", "resp_tcp_"].into_iter().enumerate() {
        add(&mut columns, name, TCP_SIDE, false, move |flow| Some(&flow.tcp.as_ref()?.sides[side]));
    }
    add(&mut columns, "stats_", STATS, false, |flow| flow.stats.as_ref());
    for (side, name) in ["orig_stats_", "resp_stats_"].into_iter().enumerate() {
        add(&mut columns, name, STATS_SIDE, false, move |flow| Some(&flow.stats.as_ref()?.sides[side]));
    }
    columns
}

/// Adds the columns of a part that `pick` finds in a flow; `present` says that every flow has it.
fn add<T>(
    columns: &mut Vec<Column>,
    prefix: &str,
    rows: &'static [Row<T>],
    present: bool,
    pick: impl Fn(&Flow) -> Option<&T> + Copy + Send + 'static,
) {
    columns.extend(rows.iter().map(|row| {
        let data_type = row.get.data_type();
        let field = Field::new(format!("{prefix}{}", row.name), data_type.clone(), row.nullable || !present);
        let array = move |flows: &[&Flow]| {
            if !present && flows.iter().all(|flow| pick(flow).is_none()) {
                return new_null_array(&data_type, flows.len());
            }
            row.get.array(flows.iter().map(|flow| pick(flow)))
        };
        Column { field, array: Box::new(array) }
    }));
}

const FLOW: &[Row<Flow>] = &[
    always("id", Get::U64(|flow| Some(flow.id))),
    always("community_id", Get::Text(|flow, text| write!(text, "{}", flow.community_id(0)).is_ok())),
    always("first_time", Get::Time(|flow| Some(flow.first()))),
    always("last_time", Get::Time(|flow| Some(flow.last()))),
    always("duration_ns", Get::U64(|flow| Some(flow.last().0.saturating_sub(flow.first().0)))),
    always("protocol", Get::U8(|flow| Some(flow.protocol))),
    always("end_reason", Get::Name(|flow| Some(flow.end.name()))),
    always("direction", Get::Name(|flow| Some(flow.direction.name()))),
    always("flows", Get::U64(|flow| Some(flow.flows))),
    maybe("vlan", Get::U16(|flow| Some(flow.vlans[0]).filter(|vlan| *vlan != 0))),
    maybe("inner_vlan", Get::U16(|flow| Some(flow.vlans[1]).filter(|vlan| *vlan != 0))),
    maybe("tunnel_kind", Get::Name(|flow| flow.tunnel.map(|tunnel| tunnel.kind.name()))),
    maybe("tunnel_id", Get::U32(|flow| flow.tunnel.map(|tunnel| tunnel.id))),
    maybe("tunnel_parent", Get::U64(|flow| flow.tunnel.map(|tunnel| tunnel.parent))),
    maybe("extension_headers", Get::U8(|flow| Some(flow.extensions).filter(|bits| *bits != 0))),
];

/// What is kept of each end beside its packets.
const ENDS: [&[Row<Flow>]; 2] = [
    &[
        always("address", Get::Text(|flow, text| address(flow, 0, text))),
        always("port", Get::U16(|flow| Some(flow.ends[0].port))),
        maybe("mac", Get::Text(|flow, text| mac(flow, 0, text))),
        maybe("mpls_labels", Get::List(|flow, list| labels(flow, 0, list))),
        maybe("teid", Get::U32(|flow| flow.teids[0])),
    ],
    &[
        always("address", Get::Text(|flow, text| address(flow, 1, text))),
        always("port", Get::U16(|flow| Some(flow.ends[1].port))),
        maybe("mac", Get::Text(|flow, text| mac(flow, 1, text))),
        maybe("mpls_labels", Get::List(|flow, list| labels(flow, 1, list))),
        maybe("teid", Get::U32(|flow| flow.teids[1])),
    ],
];

fn address(flow: &Flow, side: usize, text: &mut String) -> bool {
    write!(text, "{}", flow.ends[side].address).is_ok()
}

fn mac(flow: &Flow, side: usize, text: &mut String) -> bool {
    flow.macs.is_some_and(|macs| write!(text, "{}", macs[side]).is_ok())
}

fn labels(flow: &Flow, side: usize, list: &mut Vec<u64>) {
    list.extend(flow.mpls[side].iter().take_while(|label| **label != 0).map(|label| u64::from(*label)));
}

const SIDE: &[Row<Side>] = &[
    always("packets", Get::U64(|side| Some(side.packets))),
    always("frame_bytes", Get::U64(|side| Some(side.frame_bytes))),
    always("packet_bytes", Get::U64(|side| Some(side.packet_bytes))),
    always("payload_bytes", Get::U64(|side| Some(side.payload_bytes))),
    maybe("first_time", Get::Time(|side| Some(side.first).filter(|_| side.packets > 0))),
    maybe("last_time", Get::Time(|side| Some(side.last).filter(|_| side.packets > 0))),
    always("tcp_flags", Get::U8(|side| Some(side.tcp_flags))),
    always("ttl_min", Get::U8(|side| Some(side.ttl[0]))),
    always("ttl_max", Get::U8(|side| Some(side.ttl[1]))),
    always("dscp", Get::U8(|side| Some(side.tos >> 2))),
    always("dscp_changed", Get::Bool(|side| Some(side.dscp_changed))),
    always("ect", Get::Bool(|side| Some(side.ect))),
    always("ce", Get::Bool(|side| Some(side.ce))),
];

const QUALITY: &[Row<Flow>] = &[
    always("truncated", Get::Bool(|flow| Some(flow.quality.contains(Quality::TRUNCATED)))),
    always("bad_checksum", Get::Bool(|flow| Some(flow.quality.contains(Quality::BAD_CHECKSUM)))),
    always("sensor_loss", Get::Bool(|flow| Some(flow.quality.contains(Quality::SENSOR_LOSS)))),
    always("fragments", Get::Bool(|flow| Some(flow.quality.contains(Quality::FRAGMENTS)))),
    always("orphan_fragments", Get::Bool(|flow| Some(flow.quality.contains(Quality::ORPHAN_FRAGMENTS)))),
    always("out_of_time", Get::Bool(|flow| Some(flow.quality.contains(Quality::OUT_OF_TIME)))),
    always("super_frames", Get::Bool(|flow| Some(flow.quality.contains(Quality::SUPER_FRAMES)))),
    always("midstream", Get::Bool(|flow| Some(flow.quality.contains(Quality::MIDSTREAM)))),
    always("one_way", Get::Bool(|flow| Some(flow.quality.contains(Quality::ONE_WAY)))),
    always("continued", Get::Bool(|flow| Some(flow.quality.contains(Quality::CONTINUED)))),
    always("evicted", Get::Bool(|flow| Some(flow.quality.contains(Quality::EVICTED)))),
    always("doubtful_end", Get::Bool(|flow| Some(flow.quality.contains(Quality::DOUBTFUL_END)))),
];

const TCP: &[Row<Tcp>] = &[
    maybe("state", Get::Name(|tcp| Some(tcp.state.name()))),
    maybe("history", Get::Text(|tcp, text| write!(text, "{}", tcp.history.0).is_ok())),
    maybe("syn_to_syn_ack_ns", Get::U64(|tcp| tcp.syn_to_syn_ack)),
    maybe("syn_ack_to_ack_ns", Get::U64(|tcp| tcp.syn_ack_to_ack)),
];

const TCP_SIDE: &[Row<TcpSide>] = &[
    maybe("isn", Get::U32(|side| side.isn)),
    maybe("mss", Get::U16(|side| side.mss)),
    maybe("window_scale", Get::U8(|side| side.window_scale)),
    maybe("sack_permitted", Get::Bool(|side| Some(side.sack_permitted))),
    maybe("timestamps", Get::Bool(|side| Some(side.timestamps))),
    maybe("window_min", Get::U32(|side| Some(side.window[0]))),
    maybe("window_max", Get::U32(|side| Some(side.window[1]))),
    maybe("zero_windows", Get::U64(|side| Some(side.zero_windows))),
    maybe("rtt_count", Get::U64(|side| Some(side.rtt.count))),
    maybe("rtt_min_ns", Get::U64(|side| Some(rtt(side)?.min))),
    maybe("rtt_max_ns", Get::U64(|side| Some(rtt(side)?.max))),
    maybe("rtt_mean_ns", Get::F64(|side| Some(rtt(side)?.mean))),
    maybe("rtt_deviation_ns", Get::F64(|side| Some(rtt(side)?.deviation))),
    maybe("retransmitted_timeout", Get::U64(|side| Some(side.retransmitted.timeout))),
    maybe("retransmitted_fast", Get::U64(|side| Some(side.retransmitted.fast))),
    maybe("retransmitted_spurious", Get::U64(|side| Some(side.retransmitted.spurious))),
    maybe("retransmitted_unseen", Get::U64(|side| Some(side.retransmitted.unseen))),
    maybe("retransmitted_bytes", Get::U64(|side| Some(side.retransmitted_bytes))),
    maybe("out_of_order", Get::U64(|side| Some(side.out_of_order))),
    maybe("copies", Get::U64(|side| Some(side.copies))),
    maybe("duplicate_acks", Get::U64(|side| Some(side.duplicate_acks))),
    maybe("keep_alives", Get::U64(|side| Some(side.keep_alives))),
    maybe("window_probes", Get::U64(|side| Some(side.window_probes))),
    maybe("gaps", Get::U64(|side| Some(side.gaps))),
    maybe("gap_bytes", Get::U64(|side| Some(side.gap_bytes))),
];

/// Null and not 0 where nothing was measured, so that averages over flows leave it out.
fn rtt(side: &TcpSide) -> Option<&Rtt> {
    Some(&side.rtt).filter(|rtt| rtt.count > 0)
}

const STATS: &[Row<Stats>] = &[
    maybe("packet_times_ns", Get::List(|stats, list| list.extend(stats.packets.iter().map(|packet| packet.time)))),
    maybe(
        "packet_from_orig",
        Get::List(|stats, list| list.extend(stats.packets.iter().map(|packet| u64::from(packet.from_originator)))),
    ),
    maybe(
        "packet_payload_bytes",
        Get::List(|stats, list| list.extend(stats.packets.iter().map(|packet| u64::from(packet.payload)))),
    ),
    maybe(
        "packet_tcp_flags",
        Get::List(|stats, list| list.extend(stats.packets.iter().map(|packet| u64::from(packet.tcp_flags)))),
    ),
];

const STATS_SIDE: &[Row<StatsSide>] = &[
    maybe("lengths_min", Get::U64(|side| Some(lengths(side)?.min))),
    maybe("lengths_max", Get::U64(|side| Some(lengths(side)?.max))),
    maybe("lengths_mean", Get::F64(|side| Some(lengths(side)?.mean))),
    maybe("lengths_deviation", Get::F64(|side| Some(lengths(side)?.deviation))),
    maybe("gaps_min_ns", Get::U64(|side| Some(gaps(side)?.min))),
    maybe("gaps_max_ns", Get::U64(|side| Some(gaps(side)?.max))),
    maybe("gaps_mean_ns", Get::F64(|side| Some(gaps(side)?.mean))),
    maybe("gaps_deviation_ns", Get::F64(|side| Some(gaps(side)?.deviation))),
    maybe("length_histogram", Get::List(|side, list| list.extend(side.length_histogram))),
    maybe("gap_histogram", Get::List(|side, list| list.extend(side.gap_histogram))),
    maybe("ip_flags", Get::U8(|side| Some(side.ip_flags))),
    maybe("first_window", Get::U16(|side| Some(side.first_window))),
    maybe("tcp_options", Get::U64(|side| Some(side.tcp_options))),
    maybe("syn_bytes", Get::U16(|side| Some(side.syn_bytes))),
];

/// Null where there was no packet.
fn lengths(side: &StatsSide) -> Option<&Summary> {
    Some(&side.lengths).filter(|lengths| **lengths != Summary::default())
}

/// Null where there were no two packets, or all at one time.
fn gaps(side: &StatsSide) -> Option<&Summary> {
    Some(&side.gaps).filter(|gaps| **gaps != Summary::default())
}
