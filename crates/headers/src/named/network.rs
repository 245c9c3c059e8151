//! IP.

use super::Format::{Hex, Ipv4, Ipv6, Number};
use super::link::boxed;
use super::{Form, Kind, also, always, behind, field, part};
use crate::options::Options;
use crate::{EmitError, Protocol, ipv4, ipv6};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Addresses for tests of devices (RFC 2544 appendix C.2.2, RFC 5180 section 8).
pub(super) const SOURCE_4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub(super) const DESTINATION_4: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 2);
pub(super) const SOURCE_6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 1);
pub(super) const DESTINATION_6: Ipv6Addr = Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 2);
/// IP protocol of experiments (RFC 3692), for an empty payload.
pub(super) const EXPERIMENT: u8 = 253;

pub(super) const KINDS: &[Kind] = &[
    Kind {
        names: &["ip", "ip4", "ipv4"],
        protocol: Protocol::Ipv4,
        below: "eth",
        parts: &[part("options", Form::Bytes(|header| behind(header, ipv4::LEN)))],
        fields: &[
            field("version", 0, 4, Number),
            field("ihl", 4, 4, Number),
            field("dscp", 8, 6, Number),
            field("ecn", 14, 2, Number),
            field("len", 16, 16, Number),
            field("id", 32, 16, Number),
            field("rf", 48, 1, Number),
            field("df", 49, 1, Number),
            field("mf", 50, 1, Number),
            field("frag_offset", 51, 13, Number),
            field("ttl", 64, 8, Number),
            field("proto", 72, 8, Number),
            field("checksum", 80, 16, Hex),
            field("src", 96, 32, Ipv4),
            field("dst", 128, 32, Ipv4),
            also(field("tos", 8, 8, Hex)),
            also(field("flags", 48, 3, Number)),
        ],
        fits: always,
        make: |given| {
            let options = Options::new(given.bytes("options").unwrap_or_default());
            let options = options.ok_or(EmitError::Field("IPv4 options have at most 40 bytes"))?;
            let (source, destination) = (SOURCE_4, DESTINATION_4);
            boxed(ipv4::Header { source, destination, options, ..ipv4::Header::new(EXPERIMENT) })
        },
    },
    Kind {
        names: &["ip6", "ipv6"],
        protocol: Protocol::Ipv6,
        below: "eth",
        parts: &[],
        fields: &[
            field("version", 0, 4, Number),
            field("dscp", 4, 6, Number),
            field("ecn", 10, 2, Number),
            field("flow", 12, 20, Hex),
            field("len", 32, 16, Number),
            field("proto", 48, 8, Number),
            field("ttl", 56, 8, Number),
            field("src", 64, 128, Ipv6),
            field("dst", 192, 128, Ipv6),
            also(field("tc", 4, 8, Hex)),
            also(field("nxt", 48, 8, Number)),
            also(field("hlim", 56, 8, Number)),
        ],
        fits: always,
        make: |_| {
            let (source, destination) = (SOURCE_6, DESTINATION_6);
            boxed(ipv6::Header { source, destination, ..ipv6::Header::new(EXPERIMENT) })
        },
    },
];
