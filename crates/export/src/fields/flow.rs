//! Fields at all levels.

use super::Getter::{Address, Bool, Id, List, Mac, Name, Text, Time, U8, U16, U32, U64};
use super::Part::{End, Flow, Headers, Side};
use super::{Field, Getter, Part, always, maybe, null};
use linerate_burst::Nanos;
use linerate_meter::{Flow as Record, Quality};
use std::borrow::Cow;

pub(super) const FIELDS: &[Field] = &[
    always(
        Flow,
        "id",
        Id(|flow, _| Some(flow.id)),
        "flow id: 64-bit keyed hash of the flow key, in hexadecimal; the same in all records of a conversation. The hash key is random per run, so that colliding flows cannot be crafted; `--id-seed TEXT` derives it from a text, for the same ids on several sensors or in several runs",
    )
    .iana(&[148]),
    always(
        Flow,
        "community_id",
        Text(|flow, _| Some(Cow::Owned(flow.community_id(0)))),
        "Community ID v1, seed 0: `1:` and the base64 SHA-1 of addresses, protocol and ports, as in other tools. ICMP uses the message type and its reply type as ports; protocols other than TCP, UDP, SCTP and ICMP, and `orphan_fragments`, have no ports",
    )
    .zeek(&["community_id"]),
    always(Flow, "first_time_ns", Time(|flow, _| Some(flow.first())), "time of the earliest packet, UTC")
        .unit("ns")
        .iana(&[156])
        .argus("stime")
        .zeek_like("ts")
        .tstat("first"),
    always(Flow, "last_time_ns", Time(|flow, _| Some(flow.last())), "time of the latest packet, UTC")
        .unit("ns")
        .iana(&[157])
        .argus("ltime")
        .tstat("last"),
    always(
        Flow,
        "duration_ns",
        U64(|flow, _| Some(flow.last().0.saturating_sub(flow.first().0))),
        "time from the earliest to the latest packet",
    )
    .unit("ns")
    .iana(&[161])
    .remark("ms")
    .argus("dur")
    .zeek_like("duration")
    .tstat("durat"),
    always(End, "*_address", Address(|flow, side| Some(flow.ends[side].address)), "address")
        .elements_of(0, &[8, 27], &[12, 28])
        .argus("saddr, daddr")
        .zeek(&["id.orig_h", "id.resp_h"])
        .tstat("c_ip, s_ip"),
    always(
        End,
        "*_port",
        U16(|flow, side| Some(flow.ends[side].port)),
        "port; ICMP type and code; 0 for protocols without ports",
    )
    .elements_of(0, &[7], &[11])
    .remark("ICMP: 32, 139")
    .argus("sport, dport")
    .zeek_like("id.orig_p, id.resp_p")
    .tstat("c_port, s_port"),
    always(
        Flow,
        "protocol",
        U8(|flow, _| Some(flow.protocol)),
        "IP protocol number: the one after IPv6 extension headers, and after AH also in IPv4",
    )
    .iana(&[4])
    .argus("proto")
    .zeek(&["ip_proto"])
    .tstat("(by file)"),
    maybe(
        Headers,
        "vlan",
        U16(|flow, _| tag(flow, 0)),
        "outermost VLAN ID next to the IP header of the first packet; for an inner flow the tag inside the tunnel",
    )
    .iana(&[243])
    .remark("58")
    .argus("svlan")
    .zeek(&["vlan"]),
    maybe(Headers, "inner_vlan", U16(|flow, _| tag(flow, 1)), "VLAN ID of the second tag; further tags are not recorded")
        .iana(&[245])
        .zeek(&["inner_vlan"]),
    maybe(
        Headers,
        "tunnel.kind",
        Name(|flow, _| Some(flow.tunnel?.kind.name())),
        "tunnel type of an inner flow",
    ),
    maybe(
        Headers,
        "tunnel.id",
        U32(|flow, _| Some(flow.tunnel?.id)),
        "VNI or GRE key; 0 without one (also IP in IP, GTP-U, Teredo)",
    )
    .iana(&[351]),
    maybe(
        Headers,
        "tunnel.parent",
        Id(|flow, _| Some(flow.tunnel?.parent)),
        "`id` of the outer flow of the first packet; VXLAN, Geneve and GTP-U use at least one outer flow per direction. Bytes including tunnel headers are counted in the outer flow",
    )
    .zeek_like("tunnel_parents"),
    always(Side, "*.packets", U64(|flow, side| Some(flow.sides[side].packets)), "packets; each fragment counts as one")
        .unit("packets")
        .iana(&[2])
        .argus("spkts, dpkts")
        .zeek(&["orig_pkts", "resp_pkts"])
        .tstat("c_pkts_all, s_pkts_all"),
    always(
        Side,
        "*.frame_bytes",
        U64(|flow, side| Some(flow.sides[side].frame_bytes)),
        "frame bytes on the wire, with padding, without FCS",
    )
    .unit("bytes")
    .iana(&[352])
    .argus("sbytes, dbytes"),
    always(
        Side,
        "*.packet_bytes",
        U64(|flow, side| Some(flow.sides[side].packet_bytes)),
        "IP bytes by the length field, without padding (limited to the frame; the rest of the frame if the length is 0, as with segmentation offload)",
    )
    .unit("bytes")
    .iana(&[1])
    .zeek(&["orig_ip_bytes", "resp_ip_bytes"]),
    null(
        Side,
        "*.payload_bytes",
        U64(|flow, side| Some(flow.sides[side].payload_bytes).filter(|_| !flow.quality.contains(Quality::PAYLOAD_UNKNOWN))),
        "bytes after the transport header (TCP by data offset; UDP, UDP-Lite and ICMP 8 bytes, SCTP 12, other protocols none), retransmissions included. If the transport header is truncated or malformed (TCP with an offset below 5), bytes after its minimum length",
    )
    .unit("bytes")
    .elements_of(0, &[231], &[232])
    .argus("sappbytes, dappbytes")
    .zeek_like("orig_bytes, resp_bytes: by sequence numbers")
    .tstat("c_bytes_all, s_bytes_all"),
    null(Side, "*.first_time_ns", Time(|flow, side| time(flow, side, 0)), "time of the earliest packet of this direction, UTC")
        .unit("ns")
        .iana(&[156])
        .tstat("c_first"),
    null(Side, "*.last_time_ns", Time(|flow, side| time(flow, side, 1)), "time of the latest packet of this direction, UTC")
        .unit("ns")
        .iana(&[157])
        .tstat("c_last"),
    always(
        Side,
        "*.tcp_flags",
        U8(|flow, side| Some(flow.sides[side].tcp_flags)),
        "union of TCP flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128",
    )
    .iana(&[6])
    .argus("flgs")
    .zeek_like("history")
    .tstat("c_syn_cnt, ..."),
    always(Side, "*.ttl_min", U8(|flow, side| Some(flow.sides[side].ttl[0])), "minimum TTL or hop limit")
        .iana(&[52])
        .argus("sttl, dttl")
        .tstat("c_ttl_min"),
    always(Side, "*.ttl_max", U8(|flow, side| Some(flow.sides[side].ttl[1])), "maximum TTL or hop limit")
        .iana(&[53])
        .tstat("c_ttl_max"),
    always(Side, "*.dscp", U8(|flow, side| Some(flow.sides[side].tos >> 2)), "DSCP of the first packet")
        .iana(&[195])
        .argus("stos, dtos"),
    always(
        Side,
        "*.dscp_changed",
        Bool(|flow, side| Some(flow.sides[side].dscp_changed)),
        "true if other packets had a different DSCP",
    ),
    always(Side, "*.ect", Bool(|flow, side| Some(flow.sides[side].ect)), "true if a packet had ECT(0) or ECT(1)"),
    always(Side, "*.ce", Bool(|flow, side| Some(flow.sides[side].ce)), "true if a packet had CE (congestion experienced)"),
    maybe(
        End,
        "*.mac",
        Mac(|flow, side| Some(flow.macs?[side])),
        "MAC address of this endpoint in the flow's first frame, from the Ethernet header next to the packet (for an inner flow the one inside the tunnel). With `--macs`; absent on links without MAC addresses",
    )
    .elements_of(0, &[56], &[80])
    .argus("smac, dmac")
    .zeek(&["orig_l2_addr", "resp_l2_addr"]),
    maybe(
        End,
        "*.mpls_labels",
        List(labels),
        "MPLS labels next to the IP header of the direction's first packet, outermost first, at most four, without explicit null (0)",
    )
    .iana(&[70, 71, 72, 73])
    .remark("label of")
    .argus("smpls, dmpls"),
    maybe(
        End,
        "*.teid",
        U32(|flow, side| flow.teids[side]),
        "GTP-U tunnel endpoint id in the direction's first packet, assigned by the receiver",
    ),
    always(Flow, "end_reason", Name(|flow, _| Some(flow.end.name())), "reason why the record was exported, see above")
        .iana(&[136])
        .remark("`evicted`: 5, lack of resources")
        .argus("cause"),
    always(Flow, "direction", Name(|flow, _| Some(flow.direction.name())), "how the originator was determined, see above")
        .iana(&[239])
        .argus("dir")
        .zeek_like("history `^`"),
    always(Part::Quality, "quality", Getter::Quality(|flow| flow.quality), "limits of the measurement, see below; one column per bit, such as `quality_midstream`"),
    maybe(
        Headers,
        "extension_headers",
        U8(|flow, _| Some(flow.extensions).filter(|bits| *bits != 0)),
        "IPv6 extension headers, as bits: hop-by-hop 1, routing 2, fragment 4, destination 8, AH 16, mobility 32, HIP 64, shim6 128",
    )
    .remark("64, deprecated by RFC 9740, distinguishes first and later fragments"),
    always(Flow, "flows", U64(|flow, _| Some(flow.flows)), "number of flows in the record; more than 1 for a flood")
        .unit("flows")
        .iana(&[3]),
    maybe(
        Flow,
        "exporter.address",
        Address(|flow, _| flow.exporter.as_ref()?.address),
        "address of the exporter, for records received by `linerate collect`; unknown for files",
    )
    .iana(&[130, 131]),
    maybe(
        Flow,
        "exporter.domain",
        U32(|flow, _| Some(flow.exporter.as_ref()?.domain)),
        "observation domain id of the exporter (NetFlow v9: source id); identifies an exporter together with its address",
    )
    .iana(&[149]),
    maybe(
        Flow,
        "exporter.ingress",
        U32(|flow, _| interface(flow, 0)),
        "ingress interface of the exporter (SNMP ifIndex)",
    )
    .iana(&[10]),
    maybe(Flow, "exporter.egress", U32(|flow, _| interface(flow, 1)), "egress interface of the exporter (SNMP ifIndex)")
        .iana(&[14]),
];

fn interface(flow: &Record, which: usize) -> Option<u32> {
    Some(flow.exporter.as_ref()?.interfaces[which]).filter(|number| *number != 0)
}

fn tag(flow: &Record, number: usize) -> Option<u16> {
    Some(flow.vlans[number]).filter(|vlan| *vlan != 0)
}

/// Returns the first (0) or last (1) packet time of a direction.
fn time(flow: &Record, side: usize, which: usize) -> Option<Nanos> {
    let side = &flow.sides[side];
    Some([side.first, side.last][which]).filter(|_| side.has_time())
}

fn labels(flow: &Record, side: usize, list: &mut Vec<u64>) -> bool {
    list.extend(flow.mpls[side].iter().take_while(|label| **label != 0).map(|label| u64::from(*label)));
    !list.is_empty()
}
