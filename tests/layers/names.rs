//! tshark's names of the protocols that linerate dissects.

/// Extent of a protocol's item in tshark's tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Covers {
    /// The header, as in linerate's layers.
    Header,
    /// The whole message; only its start can be compared.
    Message,
}

use Covers::{Header, Message};

/// tshark's name, linerate's name, and the extent of the item.
pub(crate) const NAMES: &[(&str, &str, Covers)] = &[
    ("eth", "ethernet", Header),
    ("llc", "llc", Header),
    ("vlan", "vlan", Header),
    ("ieee8021ad", "vlan", Header),
    ("mpls", "mpls", Header),
    ("pppoes", "pppoe", Header),
    ("pppoed", "pppoe", Message),
    ("ppp", "ppp", Header),
    ("arp", "arp", Message),
    ("ip", "ipv4", Header),
    ("ipv6", "ipv6", Header),
    ("ipv6.hopopts", "hop_by_hop", Header),
    ("ipv6.routing", "routing", Header),
    ("ipv6.fraghdr", "fragment", Header),
    ("ipv6.dstopts", "destination_options", Header),
    ("mipv6", "mobility", Header),
    ("hip", "hip", Header),
    ("shim6", "shim6", Header),
    ("ah", "ah", Header),
    ("esp", "esp", Message),
    ("tcp", "tcp", Header),
    ("udp", "udp", Header),
    ("udplite", "udp_lite", Header),
    ("sctp", "sctp", Message),
    ("icmp", "icmp", Message),
    ("icmpv6", "icmpv6", Message),
    ("igmp", "igmp", Message),
    ("gre", "gre", Header),
    ("erspan", "erspan", Message),
    ("vxlan", "vxlan", Header),
    ("vxlan_gpe", "vxlan", Header),
    ("geneve", "geneve", Header),
    ("gtp", "gtp_u", Header),
    ("teredo", "teredo", Message),
    ("null", "null", Header),
    ("sll", "sll", Header),
    ("sll", "sll2", Header),
    ("chdlc", "chdlc", Header),
    ("pwethcw", "pseudowire", Header),
    ("pwmcw", "pseudowire", Header),
    ("pwach", "pseudowire", Header),
];

/// Protocols for which tshark shows several items and linerate one header.
pub(crate) const PARTS: &[&str] = &["mpls", "sctp"];

/// tshark dissectors without a header that the protocols above depend on.
pub(crate) const HELPERS: &[&str] = &[
    "frame",
    "eth_maybefcs",
    "eth_withoutfcs",
    "eth_withfcs",
    "ethertype",
    "raw",
    "data",
    "ppp_hdlc",
    "ipv6.routing.type.rt0",
    "udpencap",
    "pwethheuristic",
    "pwethnocw",
];
