//! Headers that carry another packet or frame.

use super::Format::{Hex, InvertedIpv4, InvertedPort, Number};
use super::link::{EXPERIMENT, boxed, byte};
use super::{Field, Form, Kind, PartValues, always, behind, field, found, part};
use crate::build::Header;
use crate::{EmitError, Protocol, erspan, geneve, gre, gtp_u, teredo, vxlan};

const SESSION: erspan::Session = erspan::Session { vlan: 0, class: 0, encapsulation: 0, truncated: false, number: 1 };

pub(super) const KINDS: &[Kind] = &[
    Kind {
        names: &["gre"],
        protocol: Protocol::Gre,
        below: "ip",
        parts: &[
            part("checksum", Form::Present),
            part("key", Form::Present),
            part("seq", Form::Present),
            part("routes", Form::Bytes(gre_routes)),
        ],
        fields: GRE_FIELDS,
        fits: |header| header.get(1).is_some_and(|flags| flags & 7 == 0),
        make: |given| {
            let (key, sequence) = (given.has("key").then_some(0), given.has("seq").then_some(0));
            let (checksum, routes) = (given.has("checksum"), given.bytes("routes").unwrap_or_default());
            let header = gre::Routing { protocol: EXPERIMENT, checksum, key, sequence, offset: 0, routes };
            boxed(gre::Header::Routing(header))
        },
    },
    Kind {
        names: &["pptp"],
        protocol: Protocol::Gre,
        below: "ip",
        parts: &[part("seq", Form::Present), part("ack", Form::Present)],
        fields: &[
            field("flags", 0, 16, Hex),
            field("type", 16, 16, Hex),
            field("len", 32, 16, Number),
            field("call", 48, 16, Number),
            found("seq", |header| flag(header, 0, 0x10).map(|()| 8), 0, 32, Number),
            found("ack", |header| flag(header, 1, 0x80).and_then(|()| header.len().checked_sub(4)), 0, 32, Number),
        ],
        fits: always,
        make: |given| {
            let (sequence, acknowledgement) = (given.has("seq").then_some(0), given.has("ack").then_some(0));
            boxed(gre::Header::Pptp(gre::Pptp { call: 1, sequence, acknowledgement }))
        },
    },
    Kind {
        names: &["erspan", "erspan2"],
        protocol: Protocol::Erspan,
        below: "gre(seq)",
        parts: &[],
        fields: &[
            ERSPAN[0],
            ERSPAN[1],
            ERSPAN[2],
            ERSPAN[3],
            ERSPAN[4],
            ERSPAN[5],
            field("reserved", 32, 12, Hex),
            field("index", 44, 20, Number),
        ],
        fits: |header| header.len() == erspan::LEN_2,
        make: |_| boxed(erspan::Header::Type2 { session: SESSION, index: 0 }),
    },
    Kind {
        names: &["erspan3"],
        protocol: Protocol::Erspan,
        below: "gre",
        parts: &[part("platform", Form::Bytes(|header| behind(header, erspan::LEN_3)))],
        fields: &[
            ERSPAN[0],
            ERSPAN[1],
            ERSPAN[2],
            ERSPAN[3],
            ERSPAN[4],
            ERSPAN[5],
            field("timestamp", 32, 32, Number),
            field("sgt", 64, 16, Number),
            field("flags", 80, 16, Hex),
        ],
        fits: always,
        make: |given| {
            let platform = given.bytes("platform").map(<[u8; erspan::PLATFORM_LEN]>::try_from).transpose();
            let platform = platform.map_err(|_| EmitError::Field("the platform's part of ERSPAN has 8 bytes"))?;
            let (session, timestamp, group, flags) = (SESSION, 0, 0, 0x8000);
            boxed(erspan::Header::Type3 { session, timestamp, group, flags, platform })
        },
    },
    Kind {
        names: &["vxlan"],
        protocol: Protocol::Vxlan,
        below: "udp",
        parts: &[],
        fields: VXLAN_FIELDS,
        fits: |header| header.first().is_some_and(|flags| flags & vxlan::FLAG_PROTOCOL == 0),
        make: |_| boxed(vxlan::Header::new(1)),
    },
    Kind {
        names: &["vxlangpe"],
        protocol: Protocol::Vxlan,
        below: "udp",
        parts: &[],
        fields: VXLAN_FIELDS,
        fits: always,
        make: |_| {
            let flags = vxlan::FLAG_VNI | vxlan::FLAG_PROTOCOL;
            boxed(vxlan::Header { flags, ..vxlan::Header::new(1) })
        },
    },
    Kind {
        names: &["geneve"],
        protocol: Protocol::Geneve,
        below: "udp",
        parts: &[part("options", Form::Bytes(|header| behind(header, geneve::LEN)))],
        fields: &[
            field("version", 0, 2, Number),
            field("optlen", 2, 6, Number),
            field("oam", 8, 1, Number),
            field("critical", 9, 1, Number),
            field("res", 10, 6, Number),
            field("type", 16, 16, Hex),
            field("vni", 32, 24, Number),
            field("reserved", 56, 8, Hex),
        ],
        fits: always,
        make: |given| {
            let options = given.bytes("options").unwrap_or_default();
            boxed(geneve::Header { control: false, critical: false, protocol: EXPERIMENT, vni: 1, options })
        },
    },
    Kind {
        names: &["gtpu", "gtp"],
        protocol: Protocol::GtpU,
        below: "udp",
        parts: &[
            part("type", Form::Number),
            part("seq", Form::Present),
            part("npdu", Form::Present),
            part("next_ext", Form::Number),
            part("extensions", Form::Bytes(|header| behind(header, gtp_u::LEN + 4))),
        ],
        fields: &[
            field("flags", 0, 8, Hex),
            field("type", 8, 8, Number),
            field("len", 16, 16, Number),
            field("teid", 32, 32, Hex),
            found("seq", |header| flag(header, 0, 2).map(|()| 8), 0, 16, Number),
            found("npdu", |header| flag(header, 0, 1).map(|()| 10), 0, 8, Number),
            found("next_ext", |header| flag(header, 0, 4).map(|()| 11), 0, 8, Hex),
        ],
        fits: always,
        make: user_plane,
    },
    Kind {
        names: &["teredo"],
        protocol: Protocol::Teredo,
        below: "udp",
        parts: &[part("nonce", Form::Present), part("origin_port", Form::Present), part("origin", Form::Present)],
        fields: &[
            found("nonce", |header| has_empty_auth(header).map(|()| 4), 0, 64, Hex),
            found("confirmation", |header| has_empty_auth(header).map(|()| 12), 0, 8, Number),
            found("origin_port", origin, 16, 16, InvertedPort),
            found("origin", origin, 32, 32, InvertedIpv4),
        ],
        fits: always,
        make: |given| {
            let empty = teredo::Authentication { client: &[], value: &[], nonce: [0; 8], confirmation: 0 };
            let seen = teredo::Origin { port: 1, address: super::network::SOURCE_4 };
            let authentication = given.has("nonce").then_some(empty);
            let origin = (given.has("origin") || given.has("origin_port")).then_some(seen);
            boxed(teredo::Header { authentication, origin })
        },
    },
];

const GRE_FIELDS: &[Field] = &[
    field("flags", 0, 16, Hex),
    field("type", 16, 16, Hex),
    found("checksum", |header| flag(header, 0, 0x80).map(|()| 4), 0, 16, Hex),
    found("offset", |header| flag(header, 0, 0xc0).map(|()| 6), 0, 16, Number),
    found("key", |header| flag(header, 0, 0x20).map(|()| gre_words(header, 0xc0)), 0, 32, Number),
    found("seq", |header| flag(header, 0, 0x10).map(|()| gre_words(header, 0xe0)), 0, 32, Number),
];

const ERSPAN: [Field; 6] = [
    field("version", 0, 4, Number),
    field("vlan", 4, 12, Number),
    field("cos", 16, 3, Number),
    field("encap", 19, 2, Number),
    field("truncated", 21, 1, Number),
    field("session", 22, 10, Number),
];

const VXLAN_FIELDS: &[Field] = &[
    field("flags", 0, 8, Hex),
    field("extension", 8, 24, Hex),
    field("vni", 32, 24, Number),
    field("reserved", 56, 8, Hex),
];

/// Returns whether a bit of a byte is set.
fn flag(header: &[u8], at: usize, bits: u8) -> Option<()> {
    (header.get(at)? & bits != 0).then_some(())
}

/// Returns the length of a GRE header up to the fields of these flags: checksum and offset share one word.
fn gre_words(header: &[u8], flags: u8) -> usize {
    let set = header.first().copied().unwrap_or(0) & flags;
    gre::LEN + 4 * (usize::from(set & 0xc0 != 0) + usize::from(set & 0x20 != 0) + usize::from(set & 0x10 != 0))
}

fn gre_routes(header: &[u8]) -> Option<&[u8]> {
    flag(header, 0, 0x40)?;
    behind(header, gre_words(header, 0xf0))
}

fn user_plane<'a>(given: PartValues<'_, 'a>) -> Result<Box<dyn Header + 'a>, EmitError> {
    let message = byte(given, "type", gtp_u::USER_DATA)?;
    let first_extension = byte(given, "next_ext", 0)?;
    let extensions = given.bytes("extensions").unwrap_or_default();
    let (sequence, n_pdu) = (given.has("seq").then_some(0), given.has("npdu").then_some(0));
    boxed(gtp_u::Header { message, teid: 1, sequence, n_pdu, first_extension, extensions })
}

/// Returns whether an authentication header with empty client and value is present.
fn has_empty_auth(header: &[u8]) -> Option<()> {
    header.starts_with(&[0, 1, 0, 0]).then_some(())
}

/// Returns the offset of the origin indication.
fn origin(header: &[u8]) -> Option<usize> {
    let at = header.len().checked_sub(teredo::ORIGIN_LEN)?;
    header.get(at..)?.starts_with(&[0, 0]).then_some(at)
}
