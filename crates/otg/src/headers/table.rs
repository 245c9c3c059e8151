//! Table of all headers and fields.

use super::{Field, Header};
use crate::pattern::Kind::{self, Bits, Ipv4, Ipv6, Mac};

pub(super) const fn set(otg: &'static str, name: &'static str, kind: Kind, usual: u128) -> Field {
    Field { otg, name, kind, usual: Some(usual) }
}

const fn auto(otg: &'static str, name: &'static str, kind: Kind) -> Field {
    Field { otg, name, kind, usual: None }
}

/// Field with only one supported value.
const fn only(otg: &'static str, bits: u32, usual: u128) -> Field {
    Field { otg, name: "", kind: Bits(bits), usual: Some(usual) }
}

/// All headers, except `custom`, which is raw bytes.
pub const HEADERS: &[Header] = &[
    Header {
        otg: "ethernet",
        name: "eth",
        fields: &[
            set("dst", "dst", Mac, 0),
            set("src", "src", Mac, 0),
            auto("ether_type", "type", Bits(16)),
            only("pfc_queue", 3, 0),
        ],
        checksum: None,
    },
    Header {
        otg: "vlan",
        name: "vlan",
        fields: &[
            set("priority", "prio", Bits(3), 0),
            set("cfi", "dei", Bits(1), 0),
            set("id", "id", Bits(12), 1),
            // Determined by the header before the tag: see `tag`.
            auto("tpid", "tpid", Bits(16)),
        ],
        checksum: None,
    },
    Header {
        otg: "mpls",
        name: "mpls",
        fields: &[
            set("label", "label", Bits(20), 16),
            set("traffic_class", "tc", Bits(3), 0),
            auto("bottom_of_stack", "bos", Bits(1)),
            set("time_to_live", "ttl", Bits(8), 64),
        ],
        checksum: None,
    },
    Header {
        otg: "ipv4",
        name: "ip",
        fields: &[
            auto("version", "version", Bits(4)),
            auto("header_length", "ihl", Bits(4)),
            auto("total_length", "len", Bits(16)),
            set("identification", "id", Bits(16), 0),
            set("reserved", "rf", Bits(1), 0),
            set("dont_fragment", "df", Bits(1), 0),
            set("more_fragments", "mf", Bits(1), 0),
            set("fragment_offset", "frag_offset", Bits(13), 0),
            set("time_to_live", "ttl", Bits(8), 64),
            auto("protocol", "proto", Bits(8)),
            set("src", "src", Ipv4, 0),
            set("dst", "dst", Ipv4, 0),
        ],
        checksum: Some(("header_checksum", "checksum")),
    },
    Header {
        otg: "ipv6",
        name: "ip6",
        fields: &[
            auto("version", "version", Bits(4)),
            set("traffic_class", "tc", Bits(8), 0),
            set("flow_label", "flow", Bits(20), 0),
            auto("payload_length", "len", Bits(16)),
            auto("next_header", "proto", Bits(8)),
            set("hop_limit", "ttl", Bits(8), 64),
            set("src", "src", Ipv6, 0),
            set("dst", "dst", Ipv6, 0),
        ],
        checksum: None,
    },
    Header {
        otg: "tcp",
        name: "tcp",
        fields: &[
            set("src_port", "sport", Bits(16), 0),
            set("dst_port", "dport", Bits(16), 0),
            set("seq_num", "seq", Bits(32), 0),
            set("ack_num", "ack", Bits(32), 0),
            // The default of the model, 0, is invalid for receivers.
            auto("data_offset", "data_offset", Bits(4)),
            set("ecn_ns", "flags&0x100", Bits(1), 0),
            set("ecn_cwr", "flags&0x80", Bits(1), 0),
            set("ecn_echo", "flags&0x40", Bits(1), 0),
            set("ctl_urg", "flags&0x20", Bits(1), 0),
            set("ctl_ack", "flags&0x10", Bits(1), 0),
            set("ctl_psh", "flags&0x8", Bits(1), 0),
            set("ctl_rst", "flags&0x4", Bits(1), 0),
            set("ctl_syn", "flags&0x2", Bits(1), 0),
            set("ctl_fin", "flags&0x1", Bits(1), 0),
            set("window", "window", Bits(16), 0),
        ],
        checksum: Some(("checksum", "checksum")),
    },
    Header {
        otg: "udp",
        name: "udp",
        fields: &[
            set("src_port", "sport", Bits(16), 0),
            set("dst_port", "dport", Bits(16), 0),
            auto("length", "len", Bits(16)),
        ],
        checksum: Some(("checksum", "checksum")),
    },
    Header {
        otg: "icmp",
        name: "icmp",
        fields: &[
            set("type", "type", Bits(8), 8),
            set("code", "code", Bits(8), 0),
            set("identifier", "id", Bits(16), 0),
            set("sequence_number", "seq", Bits(16), 0),
        ],
        checksum: Some(("checksum", "checksum")),
    },
    Header {
        otg: "icmpv6",
        name: "icmp6",
        fields: &[
            set("identifier", "id", Bits(16), 0),
            set("sequence_number", "seq", Bits(16), 0),
            set("type", "type", Bits(8), 128),
            set("code", "code", Bits(8), 0),
        ],
        checksum: Some(("checksum", "checksum")),
    },
    Header {
        otg: "arp",
        name: "arp",
        fields: &[
            set("hardware_type", "htype", Bits(16), 1),
            set("protocol_type", "ptype", Bits(16), 2048),
            set("hardware_length", "hlen", Bits(8), 6),
            set("protocol_length", "plen", Bits(8), 4),
            set("operation", "op", Bits(16), 1),
            set("sender_hardware_addr", "sha", Mac, 0),
            set("sender_protocol_addr", "spa", Ipv4, 0),
            set("target_hardware_addr", "tha", Mac, 0),
            set("target_protocol_addr", "tpa", Ipv4, 0),
        ],
        checksum: None,
    },
    Header {
        otg: "vxlan",
        name: "vxlan",
        fields: &[
            set("flags", "flags", Bits(8), 8),
            set("reserved0", "extension", Bits(24), 0),
            set("vni", "vni", Bits(24), 0),
            set("reserved1", "reserved", Bits(8), 0),
        ],
        checksum: None,
    },
    Header {
        otg: "gre",
        name: "gre",
        fields: &[
            only("reserved0", 12, 0),
            only("version", 3, 0),
            auto("protocol", "type", Bits(16)),
            only("reserved1", 16, 0),
        ],
        checksum: Some(("checksum", "checksum")),
    },
    Header {
        otg: "gtpv1",
        name: "gtpu",
        fields: &[
            only("version", 3, 1),
            only("protocol_type", 1, 1),
            only("reserved", 1, 0),
            auto("message_length", "len", Bits(16)),
            set("teid", "teid", Bits(32), 0),
        ],
        checksum: None,
    },
];
