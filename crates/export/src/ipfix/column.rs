//! Elements of a record and their order.
//!
//! The order serves collectors: nfcapd treats most reverse elements as forward ones, and later elements of a template
//! win; so all reverse ones come first. Times are in milliseconds, which every collector reads, and in full records
//! also in nanoseconds after them. TCP flags have one byte, the only size that pmacct reads. VLANs start with element
//! 58, which every collector reads.

use super::enterprise::{RESPONDER, number};
use super::times::{millis, ntp};
use super::{Profile, Version};
use crate::fields::{Field, Getter, Part, REVERSE, fields};
use linerate_headers::registry;
use linerate_meter::{Direction, Flow, Level, Protocol, Side};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Variable length (RFC 7011, 7).
pub(super) const VARIABLE: u16 = u16::MAX;
/// Maximum bytes of a text: the limit of a one-byte length. And lower limits for records that would exceed a message.
pub(super) const MOST_TEXTS: [usize; 3] = [254, 48, 8];

/// Fields with comma-separated texts, which are truncated after a whole item.
const LISTS: [&str; 2] = ["tls.alpn", "dns.addresses"];

/// Element of a record.
pub(super) struct Column {
    /// Private enterprise number; 0: IANA.
    pub enterprise: u32,
    pub element: u16,
    pub length: u16,
    value: Source,
    /// Direction of the value in records with both: 0 that of the record, 1 the reverse.
    other: usize,
}

/// Source of a value.
#[derive(Clone, Copy)]
enum Source {
    /// Appends exactly the column's length, given the flow and a direction.
    Fixed(fn(&Flow, usize, &mut Vec<u8>)),
    /// Value of a field.
    Field(&'static Field),
}

/// Kind of record, which determines its columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kind {
    pub ipv6: bool,
    pub biflow: bool,
    /// True for several flows in one record.
    pub flood: bool,
    pub icmp: bool,
    pub tcp: bool,
    pub stats: bool,
    /// Application protocol of its names.
    pub service: Option<Protocol>,
    /// True if it has the name to which the originator resolved the responder's address.
    pub resolved: bool,
    /// True if another exporter metered it.
    pub relayed: bool,
    /// True if its times exceed the NetFlow v9 uptime clock, so that 21 and 22 are omitted.
    pub absolute: bool,
}

impl Kind {
    /// Returns the kind of record of a flow.
    pub(super) fn of(flow: &Flow, profile: &Profile) -> Kind {
        Kind {
            ipv6: flow.ends.iter().any(|end| end.address.is_ipv6()),
            biflow: profile.biflow && flow.sides.iter().all(Side::has_time),
            flood: flow.flows != 1,
            icmp: matches!(flow.protocol, registry::ICMP | registry::ICMPV6),
            tcp: profile.full && flow.tcp.is_some(),
            stats: profile.full && flow.stats.is_some(),
            service: flow.names.as_ref().filter(|_| profile.full).and_then(|names| names.protocol()),
            resolved: profile.full && flow.names.as_ref().is_some_and(|names| names.resolved[0].is_some()),
            relayed: profile.full && flow.exporter.is_some(),
            absolute: false,
        }
    }

    /// Returns the id of its template: constant for the same layout in each run.
    pub(super) fn template(self, profile: &Profile) -> u16 {
        let Kind { ipv6, biflow, flood, icmp, tcp, stats, resolved, relayed, absolute, .. } = self;
        let bits = [ipv6, biflow, flood, icmp, tcp, stats, profile.full, resolved, relayed, absolute];
        // Names have separate templates: some collectors drop all records of a template with an unknown element.
        let service = self.service.map_or(0, |service| 1024 * service as u16);
        256 + service + bits.iter().enumerate().map(|(place, bit)| u16::from(*bit) << place).sum::<u16>()
    }

    /// Returns its columns in order.
    pub(super) fn columns(self, profile: &Profile) -> Vec<Column> {
        let mut columns = Vec::new();
        if self.biflow {
            let reverse = |column: Column| Column { enterprise: REVERSE, other: 1, ..column };
            columns.extend(self.counts(profile).into_iter().map(reverse));
            if self.icmp {
                columns.push(reverse(self.icmp()));
            }
            columns.extend(self.of_fields(profile, 1));
            columns.push(fixed(239, 1, |flow, _, to| to.push(u8::from(flow.direction != Direction::FirstPacket))));
        }
        if self.biflow || profile.full {
            columns.push(fixed(148, 8, |flow, _, to| to.extend(flow.id.to_be_bytes())));
        }
        columns.extend(self.key());
        if profile.full && !self.biflow {
            // Biflow direction: the source is the originator, or the responder.
            columns.push(fixed(239, 1, |_, side, to| to.push(side as u8 + 1)));
        }
        columns.extend(self.counts(profile));
        columns.push(fixed(136, 1, |flow, _, to| to.push(flow.end as u8)));
        if self.flood {
            columns.push(fixed(3, 8, |flow, _, to| to.extend(flow.flows.to_be_bytes())));
        }
        if profile.full {
            columns.extend(self.of_fields(profile, 0));
        }
        columns
    }

    /// Returns the columns of the flow key.
    fn key(self) -> Vec<Column> {
        let mut columns = match self.ipv6 {
            false => vec![
                fixed(8, 4, |flow, side, to| to.extend(narrow(flow.ends[side].address))),
                fixed(12, 4, |flow, side, to| to.extend(narrow(flow.ends[1 - side].address))),
            ],
            true => vec![
                fixed(27, 16, |flow, side, to| to.extend(wide(flow.ends[side].address))),
                fixed(28, 16, |flow, side, to| to.extend(wide(flow.ends[1 - side].address))),
            ],
        };
        columns.extend([
            fixed(7, 2, |flow, side, to| to.extend(port(flow, side))),
            fixed(11, 2, |flow, side, to| to.extend(port(flow, 1 - side))),
        ]);
        if self.icmp {
            columns.push(self.icmp());
        }
        columns.push(fixed(4, 1, |flow, _, to| to.push(flow.protocol)));
        columns.push(fixed(58, 2, |flow, _, to| to.extend(flow.vlans[0].to_be_bytes())));
        columns
    }

    /// Returns the counters of each direction, part of every record.
    fn counts(self, profile: &Profile) -> Vec<Column> {
        let mut columns = vec![
            fixed(6, 1, |flow, side, to| to.push(flow.sides[side].tcp_flags)),
            fixed(5, 1, |flow, side, to| to.push(flow.sides[side].tos)),
        ];
        if profile.full || profile.biflow {
            columns.push(fixed(52, 1, |flow, side, to| to.push(flow.sides[side].ttl[0])));
            columns.push(fixed(53, 1, |flow, side, to| to.push(flow.sides[side].ttl[1])));
        }
        if profile.version == Version::V9 && !self.absolute {
            // Milliseconds relative to the start of this process; replaced when sent.
            columns
                .push(fixed(22, 4, |flow, side, to| to.extend((millis(flow.sides[side].first) as u32).to_be_bytes())));
            columns
                .push(fixed(21, 4, |flow, side, to| to.extend((millis(flow.sides[side].last) as u32).to_be_bytes())));
        }
        columns.extend([
            fixed(152, 8, |flow, side, to| to.extend(millis(flow.sides[side].first).to_be_bytes())),
            fixed(153, 8, |flow, side, to| to.extend(millis(flow.sides[side].last).to_be_bytes())),
            fixed(2, 8, |flow, side, to| to.extend(flow.sides[side].packets.to_be_bytes())),
            fixed(1, 8, |flow, side, to| to.extend(flow.sides[side].packet_bytes.to_be_bytes())),
        ]);
        columns
    }

    fn icmp(self) -> Column {
        fixed(if self.ipv6 { 139 } else { 32 }, 2, |flow, side, to| to.extend(icmp_message(flow, side)))
    }

    /// Returns the columns of all other fields with elements, for a direction.
    fn of_fields(self, profile: &Profile, other: usize) -> Vec<Column> {
        let mut columns = Vec::new();
        if !profile.full {
            return columns;
        }
        for field in fields() {
            let is_in = match field.part.level() {
                Level::Counters if field.path == "resp.resolved" => self.resolved,
                Level::Counters if field.path.starts_with("exporter.") => self.relayed,
                Level::Counters if field.part == Part::Names => self.has_names(field.path),
                Level::Counters => true,
                Level::Tcp => self.tcp,
                Level::Stats => self.stats,
            };
            if is_in && (other == 0 || field.is_of_sides()) {
                columns.extend(self.of_field(field, profile, other));
            }
        }
        columns
    }

    /// Returns whether a field belongs to the service; QUIC also has the fields of TLS.
    fn has_names(self, path: &str) -> bool {
        let group = path.split('.').next().unwrap_or(path);
        self.service.is_some_and(|service| {
            group == "service" || group == service.name() || service == Protocol::Quic && group == Protocol::Tls.name()
        })
    }

    /// Returns the columns of a field, except for those in every record.
    fn of_field(self, field: &'static Field, profile: &Profile, other: usize) -> Vec<Column> {
        let column = |enterprise, element| {
            let length = length(field.get);
            Column { enterprise, element, length, value: Source::Field(field), other }
        };
        match field.path {
            path if EVERYWHERE.contains(&path) => Vec::new(),
            "*.mpls_labels" => mpls(other),
            "*.mac" if other == 1 => Vec::new(),
            "*.mac" => vec![column(0, 56), Column { other: 1, ..column(0, 80) }],
            "exporter.address" => vec![
                fixed(130, 4, |flow, _, to| to.extend(narrow(exporter(flow, false)))),
                fixed(131, 16, |flow, _, to| to.extend(wide(exporter(flow, true)))),
            ],
            "tunnel.id" => vec![fixed(351, 8, |flow, _, to| to.extend(segment(flow).to_be_bytes()))],
            path => match number(path) {
                Some(own) => vec![column(profile.enterprise, own | if other == 1 { RESPONDER } else { 0 })],
                None if matches!(field.get, Getter::List(_)) => Vec::new(),
                None => field.elements(other).map(|(enterprise, element)| column(enterprise, element)).collect(),
            },
        }
    }
}

/// Fields in every record, or derived from those.
const EVERYWHERE: [&str; 16] = [
    "id",
    "community_id",
    "first_time_ns",
    "last_time_ns",
    "duration_ns",
    "*_address",
    "*_port",
    "protocol",
    "*.packets",
    "*.packet_bytes",
    "*.tcp_flags",
    "*.dscp",
    "*.ttl_min",
    "*.ttl_max",
    "end_reason",
    "flows",
];

fn fixed(element: u16, length: u16, put: fn(&Flow, usize, &mut Vec<u8>)) -> Column {
    Column { enterprise: 0, element, length, value: Source::Fixed(put), other: 0 }
}

impl Column {
    /// Appends the value of a flow, in a record of this direction; texts are limited to `most` bytes.
    #[inline]
    pub(super) fn put(&self, flow: &Flow, side: usize, most: usize, to: &mut Vec<u8>) {
        let side = side ^ self.other;
        match self.value {
            Source::Fixed(put) => put(flow, side, to),
            Source::Field(field) => put_field(field, flow, side, most, to),
        }
    }
}

/// Returns the length of a field's values.
fn length(get: Getter) -> u16 {
    match get {
        Getter::U8(_) | Getter::Bool(_) => 1,
        Getter::U16(_) | Getter::Quality(_) => 2,
        Getter::U32(_) => 4,
        Getter::U64(_) | Getter::F64(_) | Getter::Time(_) | Getter::Id(_) => 8,
        Getter::Mac(_) => 6,
        Getter::Address(_) => 16,
        Getter::Name(_) | Getter::Text(_) | Getter::List(_) => VARIABLE,
    }
}

/// Appends a value; absent ones are 0 or empty.
fn put_field(field: &Field, flow: &Flow, side: usize, most: usize, to: &mut Vec<u8>) {
    match field.get {
        Getter::U8(get) => to.push(get(flow, side).unwrap_or_default()),
        Getter::U16(get) => to.extend(get(flow, side).unwrap_or_default().to_be_bytes()),
        Getter::U32(get) => to.extend(get(flow, side).unwrap_or_default().to_be_bytes()),
        Getter::U64(get) | Getter::Id(get) => to.extend(get(flow, side).unwrap_or_default().to_be_bytes()),
        Getter::F64(get) => to.extend(get(flow, side).unwrap_or_default().to_be_bytes()),
        // RFC 7011, 6.1.5.
        Getter::Bool(get) => to.push(if get(flow, side) == Some(true) { 1 } else { 2 }),
        Getter::Time(get) => to.extend(ntp(get(flow, side).unwrap_or_default()).to_be_bytes()),
        Getter::Name(get) => put_text(get(flow, side).unwrap_or_default().as_bytes(), most, to),
        Getter::Text(get) => put_text(of_whole(field, &get(flow, side).unwrap_or_default(), most), most, to),
        Getter::Mac(get) => to.extend(get(flow, side).map_or([0; 6], |mac| mac.0)),
        Getter::Address(get) => to.extend(get(flow, side).map_or([0; 16], wide)),
        Getter::Quality(get) => to.extend(get(flow).0.to_be_bytes()),
        Getter::List(_) => put_text(&[], most, to),
    }
}

/// Returns a text, truncated after a whole item if it is a list.
fn of_whole<'a>(field: &Field, text: &'a str, most: usize) -> &'a [u8] {
    let ends = text.match_indices(',').map(|(place, _)| place).chain([text.len()]).take_while(|end| *end <= most);
    &text.as_bytes()[..if LISTS.contains(&field.path) { ends.last().unwrap_or(0) } else { text.len() }]
}

/// Appends a text with its variable length (RFC 7011, 7), limited to `most` bytes.
fn put_text(text: &[u8], most: usize, to: &mut Vec<u8>) {
    let text = &text[..text.len().min(most)];
    to.push(text.len() as u8);
    to.extend_from_slice(text);
}

/// Returns the columns of MPLS labels: label, traffic class, bottom of stack.
fn mpls(other: usize) -> Vec<Column> {
    let put: [fn(&Flow, usize, &mut Vec<u8>); 4] = [
        |flow, side, to| to.extend(label(flow, side, 0)),
        |flow, side, to| to.extend(label(flow, side, 1)),
        |flow, side, to| to.extend(label(flow, side, 2)),
        |flow, side, to| to.extend(label(flow, side, 3)),
    ];
    let enterprise = if other == 1 { REVERSE } else { 0 };
    let columns = put.into_iter().zip(70..).map(|(put, element)| fixed(element, 3, put));
    columns.map(|column| Column { enterprise, other, ..column }).collect()
}

fn label(flow: &Flow, side: usize, place: usize) -> [u8; 3] {
    let labels = &flow.mpls[side];
    let is_last = labels.get(place + 1).is_none_or(|next| *next == 0) && labels[place] != 0;
    let [_, bytes @ ..] = (labels[place] << 4 | u32::from(is_last)).to_be_bytes();
    bytes
}

/// Returns layer2SegmentId (351): the tunnel type in the upper byte, 1 VXLAN, 2 NVGRE.
fn segment(flow: &Flow) -> u64 {
    use linerate_meter::TunnelKind::{Gre, Vxlan};
    let Some(tunnel) = flow.tunnel else { return 0 };
    let kind = match tunnel.kind {
        Vxlan => 1,
        Gre => 2,
        _ => 0,
    };
    u64::from(tunnel.id) | kind << 56
}

/// Returns the exporter's address as IPv4 or IPv6; unspecified if it is of the other version, or unknown.
fn exporter(flow: &Flow, is_wide: bool) -> IpAddr {
    let address = flow.exporter.as_ref().and_then(|exporter| exporter.address);
    let none = if is_wide { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    address.filter(|address| address.is_ipv6() == is_wide).unwrap_or(none)
}

fn narrow(address: IpAddr) -> [u8; 4] {
    match address {
        IpAddr::V4(address) => address.octets(),
        IpAddr::V6(_) => [0; 4],
    }
}

fn wide(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// Returns the port; 0 for ICMP, which has element 32 or 139.
fn port(flow: &Flow, side: usize) -> [u8; 2] {
    let is_icmp = matches!(flow.protocol, registry::ICMP | registry::ICMPV6);
    if is_icmp { [0; 2] } else { flow.ends[side].port.to_be_bytes() }
}

/// ICMP and ICMPv6 requests with their replies.
const PAIRS: [&[[u8; 2]]; 2] = [
    &[[8, 0], [13, 14], [15, 16], [17, 18], [10, 9]],
    &[[128, 129], [133, 134], [135, 136], [130, 131], [139, 140], [144, 145]],
];

/// Returns type and code that a side sends: the originator's port is the type, the responder's the code.
fn icmp_message(flow: &Flow, side: usize) -> [u8; 2] {
    let [kind, code] = flow.ends.map(|end| end.port.to_be_bytes()[1]);
    if side == 0 { [kind, code] } else { [icmp_reply(flow.protocol, kind), code] }
}

/// Returns the reply type of a request.
pub(super) fn icmp_reply(protocol: u8, kind: u8) -> u8 {
    let pairs = PAIRS[usize::from(protocol == registry::ICMPV6)];
    pairs.iter().find(|pair| pair[0] == kind).map_or(kind, |pair| pair[1])
}

/// Returns the request type of a reply.
pub(super) fn icmp_request(protocol: u8, kind: u8) -> u8 {
    let pairs = PAIRS[usize::from(protocol == registry::ICMPV6)];
    pairs.iter().find(|pair| pair[1] == kind).map_or(kind, |pair| pair[0])
}
