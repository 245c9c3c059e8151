//! Headers between IP and the transport.

use super::Format::{Hex, Ipv6, Number};
use super::link::boxed;
use super::network::{DESTINATION_6, EXPERIMENT, SOURCE_6};
use super::{Field, Form, Kind, PartValues, always, behind, field, part};
use crate::build::Extension;
use crate::{EmitError, Protocol, ah, hip, ipv6_extension, ipv6_fragment, mobility, shim6};

/// PadN over four bytes (RFC 8200 section 4.2).
const PADDING: &[u8] = &[1, 4, 0, 0, 0, 0];
/// Segment lists of one to eight empty segments (RFC 8754): type, segments left, last entry, flags, tag.
static SEGMENTS: [[u8; 6 + 8 * 16]; 8] = segments();
/// A binding refresh request without options (RFC 6275 section 6.1.2): two reserved bytes.
const REFRESH: &[u8] = &[0; 2];
/// A keep-alive (RFC 5534 section 5.1): type, reserved, checksum, reserved, receiver context tag.
const KEEP_ALIVE: &[u8] = &[66, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// An integrity check value of 96 bits.
const CHECK: &[u8] = &[0; 12];

const NEXT: Field = field("proto", 0, 8, Number);
const LENGTH: Field = field("len", 8, 8, Number);
const DATA: super::Part = part("data", Form::Bytes(|header| behind(header, 2)));

pub(super) const KINDS: &[Kind] = &[
    Kind {
        names: &["hbh", "hopopts"],
        protocol: Protocol::HopByHop,
        below: "ip6",
        parts: &[DATA],
        fields: &[NEXT, LENGTH],
        fits: always,
        make: |given| boxed(Extension::HopByHop(extension(given, PADDING))),
    },
    Kind {
        names: &["dstopts"],
        protocol: Protocol::DestinationOptions,
        below: "ip6",
        parts: &[DATA],
        fields: &[NEXT, LENGTH],
        fits: always,
        make: |given| boxed(Extension::Destination(extension(given, PADDING))),
    },
    Kind {
        names: &["routing", "srh"],
        protocol: Protocol::Routing,
        below: "ip6",
        parts: &[DATA, part("segments", Form::Number)],
        fields: &[
            NEXT,
            LENGTH,
            field("type", 16, 8, Number),
            field("segleft", 24, 8, Number),
            field("last_entry", 32, 8, Number),
            field("flags", 40, 8, Hex),
            field("tag", 48, 16, Hex),
            field("addr1", 64, 128, Ipv6),
            field("addr2", 192, 128, Ipv6),
            field("addr3", 320, 128, Ipv6),
            field("addr4", 448, 128, Ipv6),
            field("addr5", 576, 128, Ipv6),
            field("addr6", 704, 128, Ipv6),
            field("addr7", 832, 128, Ipv6),
            field("addr8", 960, 128, Ipv6),
        ],
        fits: always,
        make: |given| {
            let count = given.number("segments").unwrap_or(1);
            let index = usize::try_from(count).ok().and_then(|count| count.checked_sub(1));
            let list = index.and_then(|index| Some(&SEGMENTS.get(index)?[..6 + 16 * (index + 1)]));
            let list = list.ok_or(EmitError::Field("segments are 1 to 8; write others as data"))?;
            boxed(Extension::Routing(extension(given, list)))
        },
    },
    Kind {
        names: &["frag", "fragment"],
        protocol: Protocol::Fragment,
        below: "ip6",
        parts: &[],
        fields: &[
            NEXT,
            field("reserved", 8, 8, Hex),
            field("frag_offset", 16, 13, Number),
            field("res", 29, 2, Number),
            field("mf", 31, 1, Number),
            field("id", 32, 32, Number),
        ],
        fits: always,
        make: |_| {
            let (next_header, fragment_offset, more_fragments) = (EXPERIMENT, 0, false);
            boxed(ipv6_fragment::Header { next_header, fragment_offset, more_fragments, identification: 0 })
        },
    },
    Kind {
        names: &["mobility", "mip6"],
        protocol: Protocol::Mobility,
        below: "ip6",
        parts: &[part("data", Form::Bytes(|header| behind(header, mobility::LEN)))],
        fields: &[
            NEXT,
            LENGTH,
            field("type", 16, 8, Number),
            field("reserved", 24, 8, Hex),
            field("checksum", 32, 16, Hex),
        ],
        fits: always,
        make: |given| {
            let message = given.bytes("data").unwrap_or(REFRESH);
            boxed(mobility::Header { next_header: EXPERIMENT, kind: 0, message })
        },
    },
    Kind {
        names: &["hip"],
        protocol: Protocol::Hip,
        below: "ip6",
        parts: &[part("parameters", Form::Bytes(|header| behind(header, hip::LEN)))],
        fields: &[
            NEXT,
            LENGTH,
            field("fixed", 16, 1, Number),
            field("type", 17, 7, Number),
            field("version", 24, 4, Number),
            field("reserved", 28, 4, Number),
            field("checksum", 32, 16, Hex),
            field("controls", 48, 16, Hex),
            field("src", 64, 128, Ipv6),
            field("dst", 192, 128, Ipv6),
        ],
        fits: always,
        make: |given| {
            let parameters = given.bytes("parameters").unwrap_or_default();
            let (next_header, version, sender, receiver) = (EXPERIMENT, hip::VERSION, SOURCE_6, DESTINATION_6);
            boxed(hip::Header { next_header, kind: 1, version, controls: 0, sender, receiver, parameters })
        },
    },
    Kind {
        names: &["shim6"],
        protocol: Protocol::Shim6,
        below: "ip6",
        parts: &[],
        fields: &[NEXT, LENGTH, field("payload", 16, 1, Number), field("tag", 17, 47, Hex)],
        fits: |header| header.get(2).is_some_and(|kind| kind & 0x80 != 0),
        make: |_| boxed(shim6::Header::Data { next_header: EXPERIMENT, tag: 1 }),
    },
    Kind {
        names: &["shim6_control"],
        protocol: Protocol::Shim6,
        below: "ip6",
        parts: &[part("message", Form::Bytes(|header| behind(header, 2)))],
        fields: &[
            NEXT,
            LENGTH,
            field("payload", 16, 1, Number),
            field("type", 17, 7, Number),
            field("reserved", 24, 8, Hex),
            field("checksum", 32, 16, Hex),
        ],
        fits: always,
        make: |given| {
            let message = given.bytes("message").unwrap_or(KEEP_ALIVE);
            boxed(shim6::Header::Control { next_header: EXPERIMENT, message })
        },
    },
    Kind {
        names: &["ah"],
        protocol: Protocol::Ah,
        below: "ip",
        parts: &[part("icv", Form::Bytes(|header| behind(header, ah::LEN)))],
        fields: &[
            NEXT,
            LENGTH,
            field("reserved", 16, 16, Hex),
            field("spi", 32, 32, Hex),
            field("seq", 64, 32, Number),
        ],
        fits: always,
        make: |given| {
            let check = given.bytes("icv").unwrap_or(CHECK);
            boxed(ah::Header { next_header: EXPERIMENT, spi: 256, sequence: 0, check })
        },
    },
];

fn extension<'a>(given: PartValues<'_, 'a>, usual: &'a [u8]) -> ipv6_extension::Header<'a> {
    ipv6_extension::Header { next_header: EXPERIMENT, data: given.bytes("data").unwrap_or(usual) }
}

const fn segments() -> [[u8; 6 + 8 * 16]; 8] {
    let mut lists = [[0; 6 + 8 * 16]; 8];
    let mut last = 0;
    while last < lists.len() {
        (lists[last][0], lists[last][2]) = (4, last as u8);
        last += 1;
    }
    lists
}
