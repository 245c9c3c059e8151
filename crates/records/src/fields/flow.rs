//! Fields of every record.

use super::Get::{Address, Bool, Id, List, Mac, Name, Text, Time, U8, U16, U32, U64};
use super::Part::{End, Flow, Headers, Side};
use super::{Field, Get, Part, always, maybe, null};
use linerate_burst::Nanos;
use linerate_meter::Flow as Record;
use std::borrow::Cow;

pub(super) const FIELDS: &[Field] = &[
    always(
        Flow,
        "id",
        Id(|flow, _| Some(flow.id)),
        "64 bits made of the key and a secret, in hexadecimal: the same for all records of a conversation. The secret is another one in each run, so that nobody can make flows whose ids meet; `--id-seed TEXT` makes it of a text, and ids the same wherever that is the same: several sensors, several runs",
    )
    .iana(&[148]),
    always(
        Flow,
        "community_id",
        Text(|flow, _| Some(Cow::Owned(flow.community_id(0)))),
        "Community ID v1, seed 0: `1:` and SHA-1 of addresses, protocol and ports in base64, as other tools have it. ICMP by type and that of the answer; protocols but TCP, UDP, SCTP and ICMP, and `orphan_fragments`, without ports",
    )
    .zeek(&["community_id"]),
    always(Flow, "first_time_ns", Time(|flow, _| Some(flow.first())), "earliest packet, UTC")
        .unit("ns")
        .iana(&[156])
        .argus("stime")
        .zeek_like("ts")
        .tstat("first"),
    always(Flow, "last_time_ns", Time(|flow, _| Some(flow.last())), "latest packet, UTC")
        .unit("ns")
        .iana(&[157])
        .argus("ltime")
        .tstat("last"),
    always(
        Flow,
        "duration_ns",
        U64(|flow, _| Some(flow.last().0.saturating_sub(flow.first().0))),
        "from the earliest to the latest packet",
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
        "port; type and code of ICMP; 0 where there are none",
    )
    .elements_of(0, &[7], &[11])
    .remark("ICMP: 32, 139")
    .argus("sport, dport")
    .zeek(&["id.orig_p", "id.resp_p"])
    .tstat("c_port, s_port"),
    always(
        Flow,
        "protocol",
        U8(|flow, _| Some(flow.protocol)),
        "IP protocol number; that behind the extension headers of IPv6, and behind AH also in IPv4",
    )
    .iana(&[4])
    .argus("proto")
    .zeek(&["ip_proto"])
    .tstat("(by file)"),
    maybe(
        Headers,
        "vlan",
        U16(|flow, _| tag(flow, 0)),
        "the outermost tag directly in front of the first packet: of an inner flow that in the tunnel",
    )
    .iana(&[243])
    .remark("58")
    .argus("svlan")
    .zeek(&["vlan"]),
    maybe(Headers, "inner_vlan", U16(|flow, _| tag(flow, 1)), "the tag behind that one; a third one is not told")
        .iana(&[245])
        .zeek(&["inner_vlan"]),
    maybe(
        Headers,
        "tunnel.kind",
        Name(|flow, _| Some(flow.tunnel?.kind.name())),
        "what an inner flow travelled in",
    ),
    maybe(
        Headers,
        "tunnel.id",
        U32(|flow, _| Some(flow.tunnel?.id)),
        "VNI or GRE key, 0 where there is none (also IP in IP, GTP-U, Teredo)",
    )
    .iana(&[351]),
    maybe(
        Headers,
        "tunnel.parent",
        Id(|flow, _| Some(flow.tunnel?.parent)),
        "`id` of the outer flow of the first packet; VXLAN, Geneve and GTP-U have others, one each way at least. Bytes with the tunnel's headers are those of the outer flow",
    )
    .zeek_like("tunnel_parents"),
    always(Side, "*.packets", U64(|flow, side| Some(flow.sides[side].packets)), "packets; each fragment is one")
        .unit("packets")
        .iana(&[2])
        .argus("spkts, dpkts")
        .zeek(&["orig_pkts", "resp_pkts"])
        .tstat("c_pkts_all, s_pkts_all"),
    always(
        Side,
        "*.frame_bytes",
        U64(|flow, side| Some(flow.sides[side].frame_bytes)),
        "whole frames as on the wire, padding but no FCS",
    )
    .unit("bytes")
    .iana(&[352])
    .argus("sbytes, dbytes"),
    always(
        Side,
        "*.packet_bytes",
        U64(|flow, side| Some(flow.sides[side].packet_bytes)),
        "IP packets by their length field, no padding (as much as the frame has room for, and all of it where the length is 0, as segmentation offload leaves it)",
    )
    .unit("bytes")
    .iana(&[1])
    .zeek(&["orig_ip_bytes", "resp_ip_bytes"]),
    always(
        Side,
        "*.payload_bytes",
        U64(|flow, side| Some(flow.sides[side].payload_bytes)),
        "behind the transport header: TCP by data offset, UDP, UDP-Lite and ICMP 8, SCTP 12, others all of the packet; each time it is sent. Where the transport header is cut off or damaged (TCP with an offset below 5), what is behind its least length",
    )
    .unit("bytes")
    .elements_of(0, &[231], &[232])
    .argus("sappbytes, dappbytes")
    .zeek_like("orig_bytes, resp_bytes: by sequence numbers")
    .tstat("c_bytes_all, s_bytes_all"),
    null(Side, "*.first_time_ns", Time(|flow, side| time(flow, side, 0)), "earliest packet of this direction, UTC")
        .unit("ns")
        .iana(&[156])
        .tstat("c_first"),
    null(Side, "*.last_time_ns", Time(|flow, side| time(flow, side, 1)), "latest packet of this direction, UTC")
        .unit("ns")
        .iana(&[157])
        .tstat("c_last"),
    always(
        Side,
        "*.tcp_flags",
        U8(|flow, side| Some(flow.sides[side].tcp_flags)),
        "all flags seen: FIN 1, SYN 2, RST 4, PSH 8, ACK 16, URG 32, ECE 64, CWR 128",
    )
    .iana(&[6])
    .argus("flgs")
    .zeek_like("history")
    .tstat("c_syn_cnt, ..."),
    always(Side, "*.ttl_min", U8(|flow, side| Some(flow.sides[side].ttl[0])), "least time to live, hop limit")
        .iana(&[52])
        .argus("sttl, dttl")
        .tstat("c_ttl_min"),
    always(Side, "*.ttl_max", U8(|flow, side| Some(flow.sides[side].ttl[1])), "greatest time to live, hop limit")
        .iana(&[53])
        .tstat("c_ttl_max"),
    always(Side, "*.dscp", U8(|flow, side| Some(flow.sides[side].tos >> 2)), "of the first packet")
        .iana(&[195])
        .argus("stos, dtos"),
    always(
        Side,
        "*.dscp_changed",
        Bool(|flow, side| Some(flow.sides[side].dscp_changed)),
        "whether other packets had another DSCP",
    ),
    always(Side, "*.ect", Bool(|flow, side| Some(flow.sides[side].ect)), "a packet had ECT(0) or ECT(1)"),
    always(Side, "*.ce", Bool(|flow, side| Some(flow.sides[side].ce)), "a packet had CE: congestion experienced"),
    maybe(
        End,
        "*.mac",
        Mac(|flow, side| Some(flow.macs?[side])),
        "of this side, as the flow's first frame has it, in the Ethernet header next to the packet: of an inner flow the one in the tunnel. With `--macs`; none on links without addresses",
    )
    .elements_of(0, &[56], &[80])
    .argus("smac, dmac")
    .zeek(&["orig_l2_addr", "resp_l2_addr"]),
    maybe(
        End,
        "*.mpls_labels",
        List(labels),
        "labels directly in front of the direction's first packet, outermost first, at most four; explicit null (0) is left out",
    )
    .iana(&[70, 71, 72, 73])
    .remark("label of")
    .argus("smpls, dmpls"),
    maybe(
        End,
        "*.teid",
        U32(|flow, side| flow.teids[side]),
        "GTP-U: of the direction's first packet, that of the end that receives it",
    ),
    always(Flow, "end_reason", Name(|flow, _| Some(flow.end.name())), "see above")
        .iana(&[136])
        .remark("`evicted`: 5, lack of resources")
        .argus("cause"),
    always(Flow, "direction", Name(|flow, _| Some(flow.direction.name())), "see above")
        .iana(&[239])
        .argus("dir")
        .zeek_like("history `^`"),
    always(Part::Quality, "quality", Get::Quality(|flow| flow.quality), "see below; of columns each bit is one, as `quality_midstream`"),
    maybe(
        Headers,
        "extension_headers",
        U8(|flow, _| Some(flow.extensions).filter(|bits| *bits != 0)),
        "IPv6, a bit each: hop-by-hop 1, routing 2, fragment 4, destination 8, AH 16, mobility 32, HIP 64, shim6 128",
    )
    .remark("64, deprecated by RFC 9740, tells first and later fragments apart"),
    always(Flow, "flows", U64(|flow, _| Some(flow.flows)), "flows in the record: more than 1 for a flood")
        .unit("flows")
        .iana(&[3]),
    maybe(
        Flow,
        "exporter.address",
        Address(|flow, _| flow.exporter.as_ref()?.address),
        "who has sent the record, of those that `--from ipfix` takes; of a file it is not known",
    )
    .iana(&[130, 131]),
    maybe(
        Flow,
        "exporter.domain",
        U32(|flow, _| Some(flow.exporter.as_ref()?.domain)),
        "the observation domain there, source id of NetFlow v9; with the address it tells exporters apart",
    )
    .iana(&[149]),
    maybe(
        Flow,
        "exporter.ingress",
        U32(|flow, _| interface(flow, 0)),
        "the interface of the exporter that packets came in by, as it numbers them (SNMP)",
    )
    .iana(&[10]),
    maybe(Flow, "exporter.egress", U32(|flow, _| interface(flow, 1)), "that by which they went out")
        .iana(&[14]),
];

fn interface(flow: &Record, which: usize) -> Option<u32> {
    Some(flow.exporter.as_ref()?.interfaces[which]).filter(|number| *number != 0)
}

fn tag(flow: &Record, number: usize) -> Option<u16> {
    Some(flow.vlans[number]).filter(|vlan| *vlan != 0)
}

/// The first time of a direction, or the last one.
fn time(flow: &Record, side: usize, which: usize) -> Option<Nanos> {
    let side = &flow.sides[side];
    Some([side.first, side.last][which]).filter(|_| side.has_time())
}

fn labels(flow: &Record, side: usize, list: &mut Vec<u64>) -> bool {
    list.extend(flow.mpls[side].iter().take_while(|label| **label != 0).map(|label| u64::from(*label)));
    !list.is_empty()
}
