//! Transport headers.

use super::Format::{Flags, Hex, Ipv4, Number};
use super::link::boxed;
use super::{Field, Form, Kind, Part, PartValues, also, always, behind, field, found, part};
use crate::build::{Echo6, Header, PayloadInfo, Problem};
use crate::options::Options;
use crate::tcp_option::{TcpOption, encode};
use crate::{EmitError, Protocol, Pseudo, esp, icmp, icmpv6, igmp, sctp, tcp, udp, udp_lite};

/// Default ports: from an unregistered port to that of the discard protocol (RFC 863).
const SOURCE_PORT: u16 = 49152;
const DISCARD: u16 = 9;

const SPORT: Field = field("sport", 0, 16, Number);
const DPORT: Field = field("dport", 16, 16, Number);
const TYPE: Field = field("type", 0, 8, Number);
const CODE: Field = field("code", 8, 8, Number);

pub(super) const KINDS: &[Kind] = &[
    Kind {
        names: &["tcp"],
        protocol: Protocol::Tcp,
        below: "ip",
        parts: TCP_PARTS,
        fields: TCP_FIELDS,
        fits: always,
        make: segment,
    },
    Kind {
        names: &["udp"],
        protocol: Protocol::Udp,
        below: "ip",
        parts: &[],
        fields: &[SPORT, DPORT, field("len", 32, 16, Number), field("checksum", 48, 16, Hex)],
        fits: always,
        make: |_| boxed(Datagram),
    },
    Kind {
        names: &["udplite"],
        protocol: Protocol::UdpLite,
        below: "ip",
        parts: &[],
        fields: &[SPORT, DPORT, field("coverage", 32, 16, Number), field("checksum", 48, 16, Hex)],
        fits: always,
        make: |_| boxed(udp_lite::Header { source_port: SOURCE_PORT, destination_port: DISCARD, coverage: 0 }),
    },
    Kind {
        names: &["sctp"],
        protocol: Protocol::Sctp,
        below: "ip",
        parts: &[],
        fields: &[SPORT, DPORT, field("tag", 32, 32, Hex), field("checksum", 64, 32, Hex)],
        fits: always,
        make: |_| boxed(sctp::Header { source_port: SOURCE_PORT, destination_port: DISCARD, tag: 1 }),
    },
    Kind {
        names: &["icmp"],
        protocol: Protocol::Icmp,
        below: "ip",
        parts: &[],
        fields: &[
            TYPE,
            CODE,
            field("checksum", 16, 16, Hex),
            field("id", 32, 16, Number),
            field("seq", 48, 16, Number),
            also(field("gateway", 32, 32, Ipv4)),
            also(field("mtu", 48, 16, Number)),
        ],
        fits: always,
        make: |_| {
            let rest = icmp::Echo { identifier: 1, sequence: 0 }.into();
            boxed(icmp::Header { kind: icmp::ECHO_REQUEST, code: 0, rest })
        },
    },
    Kind {
        names: &["icmp6", "icmpv6"],
        protocol: Protocol::Icmpv6,
        below: "ip6",
        parts: &[part("id", Form::Present), part("seq", Form::Present)],
        fields: &[
            TYPE,
            CODE,
            field("checksum", 16, 16, Hex),
            field("id", 32, 16, Number),
            field("seq", 48, 16, Number),
        ],
        fits: always,
        make: |given| {
            let header = icmpv6::Header { kind: icmpv6::ECHO_REQUEST, code: 0 };
            match given.has("id") || given.has("seq") {
                true => boxed(Echo6 { header, echo: icmp::Echo { identifier: 1, sequence: 0 } }),
                false => boxed(header),
            }
        },
    },
    Kind {
        names: &["igmp"],
        protocol: Protocol::Igmp,
        below: "ip",
        parts: &[],
        fields: &[
            field("type", 0, 8, Hex),
            field("max_resp", 8, 8, Number),
            field("checksum", 16, 16, Hex),
            field("group", 32, 32, Ipv4),
        ],
        fits: always,
        make: |_| boxed(igmp::Header { kind: igmp::REPORT_2, max_response: 0, rest: [239, 0, 0, 1] }),
    },
    Kind {
        names: &["esp"],
        protocol: Protocol::Esp,
        below: "ip",
        parts: &[],
        fields: &[field("spi", 0, 32, Hex), field("seq", 32, 32, Number)],
        fits: always,
        make: |_| boxed(esp::Header { spi: 256, sequence: 0 }),
    },
];

/// A UDP header to the port of the next header, or to that of discard.
struct Datagram;

impl Datagram {
    fn header(behind: Option<Protocol>) -> udp::Header {
        let destination_port = if behind.is_none() { DISCARD } else { 0 };
        udp::Header { source_port: SOURCE_PORT, destination_port }
    }
}

impl Header for Datagram {
    fn protocol(&self) -> Protocol {
        Protocol::Udp
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        Datagram::header(behind.protocol).write(behind, out)
    }

    fn complete(&self, message: &mut [u8], addresses: Option<Pseudo>) -> Result<(), Problem> {
        Datagram::header(None).complete(message, addresses)
    }
}

const TCP_PARTS: &[Part] = &[
    part("options", Form::Bytes(|header| behind(header, tcp::LEN))),
    part("mss", Form::Within),
    part("sack_ok", Form::Within),
    part("timestamps", Form::Within),
    part("ts_val", Form::Within),
    part("ts_ecr", Form::Within),
    part("wscale", Form::Within),
];

const TCP_FIELDS: &[Field] = &[
    SPORT,
    DPORT,
    field("seq", 32, 32, Number),
    field("ack", 64, 32, Number),
    field("data_offset", 96, 4, Number),
    field("flags", 100, 12, Flags(&["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ae"])),
    field("window", 112, 16, Number),
    field("checksum", 128, 16, Hex),
    field("urgent", 144, 16, Number),
    also(field("ae", 103, 1, Number)),
    also(field("cwr", 104, 1, Number)),
    also(field("ece", 105, 1, Number)),
    also(field("urg", 106, 1, Number)),
    also(field("psh", 108, 1, Number)),
    also(field("rst", 109, 1, Number)),
    also(field("syn", 110, 1, Number)),
    also(field("fin", 111, 1, Number)),
    found("mss", |header| option(header, 2), 16, 16, Number),
    found("wscale", |header| option(header, 3), 16, 8, Number),
    found("ts_val", |header| option(header, 8), 16, 32, Number),
    found("ts_ecr", |header| option(header, 8), 48, 32, Number),
];

/// Creates a segment with the options given by name, in the order of Linux, or as bytes.
fn segment<'a>(given: PartValues<'_, 'a>) -> Result<Box<dyn Header + 'a>, EmitError> {
    const FULL: EmitError = EmitError::Field("TCP options have at most 40 bytes");
    let timestamps = ["timestamps", "ts_val", "ts_ecr"].iter().any(|name| given.has(name));
    let named = [
        given.has("mss").then_some(TcpOption::MaximumSegmentSize(1460)),
        given.has("sack_ok").then_some(TcpOption::SackPermitted),
        timestamps.then_some(TcpOption::Timestamps { value: 0, echo: 0 }),
        given.has("wscale").then_some(TcpOption::WindowScale(7)),
    ];
    let named: Vec<TcpOption<'_>> = named.into_iter().flatten().collect();
    let options = match (given.bytes("options"), &named[..]) {
        (Some(bytes), []) => Options::new(bytes).ok_or(FULL)?,
        (Some(_), _) => return Err(EmitError::Field("TCP options are given by name or as bytes, not both")),
        (None, named) => encode(named).ok_or(FULL)?,
    };
    let flags = tcp::Flags::ACK;
    let ports = tcp::Header { source_port: SOURCE_PORT, destination_port: DISCARD, ..tcp::Header::default() };
    boxed(tcp::Header { flags, window: u16::MAX, options, ..ports })
}

/// Returns the offset of the first option of a kind in a TCP header.
fn option(header: &[u8], kind: u8) -> Option<usize> {
    let mut at = tcp::LEN;
    loop {
        match *header.get(at..)? {
            [found, ..] if found == kind => return Some(at),
            [1, ..] => at += 1,
            [kind, length, ..] if kind > 1 && length > 1 => at += usize::from(length),
            _ => return None,
        }
    }
}
