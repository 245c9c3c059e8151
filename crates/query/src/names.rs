//! Column names for users.

use crate::columns::{Id, all, of_name};

/// Column or columns of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedColumns {
    /// One column.
    One(Id),
    /// The originator's and the responder's.
    Both([Id; 2]),
}

/// Aliases of nfdump and our own.
const OTHERS: [(&str, &str); 16] = [
    ("ip", "address"),
    ("host", "address"),
    ("srcip", "orig_address"),
    ("dstip", "resp_address"),
    ("srcaddr", "orig_address"),
    ("dstaddr", "resp_address"),
    ("src", "orig_address"),
    ("dst", "resp_address"),
    ("srcport", "orig_port"),
    ("dstport", "resp_port"),
    ("proto", "protocol"),
    ("bytes", "frame_bytes"),
    ("flags", "tcp_flags"),
    ("duration", "duration_ns"),
    ("first", "first_time"),
    ("last", "last_time"),
];

/// Resolves a name: of a column, a JSON path, either without its direction, or with `src_` and `dst_`.
pub fn named(name: &str) -> Option<NamedColumns> {
    let name = name.to_ascii_lowercase().replace('.', "_");
    let name = OTHERS.iter().find(|(other, _)| *other == name).map_or(name.as_str(), |(_, own)| own);
    let sided = [("src_", "orig_"), ("dst_", "resp_")].into_iter();
    let sided = sided.filter_map(|(from, to)| Some(format!("{to}{}", name.strip_prefix(from)?))).next();
    let name = sided.as_deref().unwrap_or(name);
    let find = |name: &str| {
        of_name(name)
            .or_else(|| of_name(&format!("{name}_ns")))
            .or_else(|| of_name(name.strip_suffix("_ns").filter(|name| name.ends_with("_time"))?))
    };
    // The bytes that are usually meant for a direction.
    let name = match name {
        "orig_bytes" => "orig_frame_bytes",
        "resp_bytes" => "resp_frame_bytes",
        name => name,
    };
    let both = || {
        let [one, other] = ["orig_", "resp_"].map(|side| find(&format!("{side}{name}")));
        Some(NamedColumns::Both([one?, other?]))
    };
    find(name).map(NamedColumns::One).or_else(both)
}

/// Names of fields in other tools.
const USUAL: [(&str, &str); 23] = [
    ("sni", "tls_server_name"),
    ("server_name", "tls_server_name"),
    ("src", "orig_address"),
    ("srcip", "orig_address"),
    ("src_ip", "orig_address"),
    ("id.orig_h", "orig_address"),
    ("dst", "resp_address"),
    ("dstip", "resp_address"),
    ("dst_ip", "resp_address"),
    ("id.resp_h", "resp_address"),
    ("ip", "address"),
    ("host", "address"),
    ("sport", "orig_port"),
    ("id.orig_p", "orig_port"),
    ("dport", "resp_port"),
    ("id.resp_p", "resp_port"),
    ("state", "tcp_state"),
    ("conn_state", "tcp_state"),
    ("history", "tcp_history"),
    ("orig_pkts", "orig_packets"),
    ("resp_pkts", "resp_packets"),
    ("ts", "first_time"),
    ("uid", "id"),
];

/// Returns the field of a name in other tools.
pub(crate) fn usual(name: &str) -> Option<String> {
    USUAL.iter().find(|(usual, _)| usual.eq_ignore_ascii_case(name)).map(|(_, field)| (*field).to_owned())
}

/// Returns all names of fields.
pub(crate) fn known() -> impl Iterator<Item = String> {
    let short = |name: &str| name.strip_prefix("orig_").map(str::to_owned);
    let columns = all().iter().flat_map(move |column| [Some(column.name.clone()), short(&column.name)]);
    columns.flatten().chain(OTHERS.iter().map(|(other, _)| (*other).to_owned()))
}

/// IP protocol numbers with names in filters, as in pcap-filter.
pub const PROTOCOLS: [(&str, u8); 16] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmp6", 58),
    ("icmpv6", 58),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("sctp", 132),
];

/// Returns the name of a protocol, or its number.
pub fn protocol(number: u64) -> String {
    let known = PROTOCOLS.iter().find(|(_, known)| u64::from(*known) == number);
    known.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
}

/// Ports with names in filters.
pub(crate) const SERVICES: [(&str, u16); 18] = [
    ("ftp", 21),
    ("ssh", 22),
    ("telnet", 23),
    ("smtp", 25),
    ("domain", 53),
    ("dns", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("http", 80),
    ("pop3", 110),
    ("ntp", 123),
    ("imap", 143),
    ("snmp", 161),
    ("bgp", 179),
    ("ldap", 389),
    ("https", 443),
    ("syslog", 514),
    ("imaps", 993),
];
