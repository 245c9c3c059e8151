//! Links, tags, labels, and ARP.

use super::Format::{Hex, Ipv4, Mac, Number};
use super::{Form, Kind, PartValues, also, always, field, found, part};
use crate::build::{Header, ServiceTag};
use crate::{
    EmitError, MacAddr, Protocol, arp, chdlc, ethernet, llc, mpls, null, ppp, pppoe, pseudowire, sll, sll2, vlan,
};

/// Default source of frames: MAC addresses that were assigned locally.
pub(super) const SOURCE_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const DESTINATION_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// EtherType of experiments (IEEE 802), for an empty payload.
pub(super) const EXPERIMENT: u16 = 0x88b5;
/// Unassigned service access point.
const UNUSED_SAP: u8 = 0xfc;

const TAG: vlan::Header = vlan::Header { id: 1, priority: 0, drop_eligible: false, ether_type: EXPERIMENT };
const TAG_FIELDS: &[super::Field] = &[
    field("prio", 0, 3, Number),
    field("dei", 3, 1, Number),
    field("id", 4, 12, Number),
    field("type", 16, 16, Hex),
    also(field("tci", 0, 16, Hex)),
];

pub(super) const KINDS: &[Kind] = &[
    Kind {
        names: &["eth", "ethernet"],
        protocol: Protocol::Ethernet,
        below: "",
        parts: &[],
        fields: &[field("dst", 0, 48, Mac), field("src", 48, 48, Mac), field("type", 96, 16, Hex)],
        fits: always,
        make: |_| {
            let (destination, source) = (DESTINATION_MAC, SOURCE_MAC);
            boxed(ethernet::Header { destination, source, ether_type: EXPERIMENT })
        },
    },
    Kind {
        names: &["vlan", "dot1q"],
        protocol: Protocol::Vlan,
        below: "eth",
        parts: &[],
        fields: TAG_FIELDS,
        fits: always,
        make: |_| boxed(TAG),
    },
    Kind {
        names: &["qinq", "dot1ad"],
        protocol: Protocol::Vlan,
        below: "eth",
        parts: &[],
        fields: TAG_FIELDS,
        fits: always,
        make: |_| boxed(ServiceTag(TAG)),
    },
    Kind {
        names: &["snap"],
        protocol: Protocol::Llc,
        below: "eth",
        parts: &[],
        fields: &[
            field("dsap", 0, 8, Hex),
            field("ssap", 8, 8, Hex),
            field("control", 16, 8, Hex),
            field("oui", 24, 24, Hex),
            field("type", 48, 16, Hex),
        ],
        fits: |header| header.len() == llc::SNAP_LEN,
        make: |_| boxed(llc::Header::Snap(llc::Snap { organization: [0; 3], protocol: EXPERIMENT })),
    },
    Kind {
        names: &["llc"],
        protocol: Protocol::Llc,
        below: "eth",
        parts: &[part("control", Form::Number)],
        fields: &[
            field("dsap", 0, 8, Hex),
            field("ssap", 8, 8, Hex),
            found("control", |header| (header.len() == llc::LEN).then_some(2), 0, 8, Hex),
            field("control", 16, 16, Hex),
        ],
        fits: always,
        make: plain,
    },
    Kind {
        names: &["mpls"],
        protocol: Protocol::Mpls,
        below: "eth",
        parts: &[],
        fields: &[
            field("label", 0, 20, Number),
            field("tc", 20, 3, Number),
            field("bos", 23, 1, Number),
            field("ttl", 24, 8, Number),
        ],
        fits: always,
        make: |_| boxed(mpls::Entry { label: 16, traffic_class: 0, ttl: 64 }),
    },
    Kind {
        names: &["pw", "pwcw"],
        protocol: Protocol::Pseudowire,
        below: "mpls",
        parts: &[],
        fields: &[field("nibble", 0, 4, Number), field("flags", 4, 12, Hex), field("seq", 16, 16, Number)],
        fits: |header| header.first().is_some_and(|first| first >> 4 == 0),
        make: |_| boxed(pseudowire::Header::Data { flags: 0, sequence: 0 }),
    },
    Kind {
        names: &["ach", "pwach"],
        protocol: Protocol::Pseudowire,
        below: "mpls",
        parts: &[],
        fields: &[
            field("nibble", 0, 4, Number),
            field("version", 4, 4, Number),
            field("reserved", 8, 8, Hex),
            field("channel", 16, 16, Hex),
        ],
        fits: always,
        make: |_| boxed(pseudowire::Header::Channel { version: 0, channel: 0x7fff }),
    },
    Kind {
        names: &["pppoe"],
        protocol: Protocol::Pppoe,
        below: "eth",
        parts: &[part("code", Form::Number)],
        fields: &[
            field("version", 0, 4, Number),
            field("type", 4, 4, Number),
            field("code", 8, 8, Hex),
            field("session", 16, 16, Number),
            field("len", 32, 16, Number),
        ],
        fits: always,
        make: |given| boxed(pppoe::Header { code: byte(given, "code", pppoe::SESSION_DATA)?, session: 1 }),
    },
    Kind {
        names: &["ppp"],
        protocol: Protocol::Ppp,
        below: "pppoe",
        parts: &[part("framed", Form::Present), part("compressed", Form::Present)],
        fields: &[
            found("framed", |header| (header.len() > 2).then_some(0), 0, 16, Hex),
            found("proto", |header| header.len().checked_sub(2).filter(|at| at % 2 == 0), 0, 16, Hex),
            found("proto", |header| header.len().checked_sub(1), 0, 8, Hex),
            also(found("compressed", |header| header.len().checked_sub(1).filter(|at| at % 2 == 0), 0, 8, Hex)),
        ],
        fits: always,
        make: |given| {
            let (framed, compressed) = (given.has("framed"), given.has("compressed"));
            boxed(ppp::Header { framed, compressed, protocol: ppp::IPV4 })
        },
    },
    Kind {
        names: &["null", "loopback"],
        protocol: Protocol::Null,
        below: "",
        parts: &[part("big_endian", Form::Present)],
        fields: &[
            found("family", family, 0, 8, Number),
            also(found("big_endian", |header| family(header).filter(|at| *at == 3), 0, 8, Number)),
        ],
        fits: always,
        make: |given| boxed(null::Header { family: null::IPV4, big_endian: given.has("big_endian") }),
    },
    Kind {
        names: &["sll"],
        protocol: Protocol::Sll,
        below: "",
        parts: &[],
        fields: &[
            field("pkttype", 0, 16, Number),
            field("hatype", 16, 16, Number),
            field("halen", 32, 16, Number),
            field("src", 48, 48, Mac),
            field("unused", 96, 16, Hex),
            field("type", 112, 16, Hex),
        ],
        fits: always,
        make: |_| {
            let (hardware_type, address) = (1, [2, 0, 0, 0, 0, 1, 0, 0]);
            boxed(sll::Header { packet_type: 0, hardware_type, address_len: 6, address, protocol: EXPERIMENT })
        },
    },
    Kind {
        names: &["sll2"],
        protocol: Protocol::Sll2,
        below: "",
        parts: &[],
        fields: &[
            field("type", 0, 16, Hex),
            field("reserved", 16, 16, Hex),
            field("ifindex", 32, 32, Number),
            field("hatype", 64, 16, Number),
            field("pkttype", 80, 8, Number),
            field("halen", 88, 8, Number),
            field("src", 96, 48, Mac),
            field("unused", 144, 16, Hex),
        ],
        fits: always,
        make: |_| {
            let address = [2, 0, 0, 0, 0, 1, 0, 0];
            let (protocol, packet_type, address_len) = (EXPERIMENT, 0, 6);
            boxed(sll2::Header { protocol, interface: 1, hardware_type: 1, packet_type, address_len, address })
        },
    },
    Kind {
        names: &["chdlc"],
        protocol: Protocol::Chdlc,
        below: "",
        parts: &[],
        fields: &[field("address", 0, 8, Hex), field("control", 8, 8, Hex), field("type", 16, 16, Hex)],
        fits: always,
        make: |_| boxed(chdlc::Header { address: chdlc::UNICAST, ether_type: EXPERIMENT }),
    },
    Kind {
        names: &["arp"],
        protocol: Protocol::Arp,
        below: "eth",
        parts: &[],
        fields: &[
            field("htype", 0, 16, Number),
            field("ptype", 16, 16, Hex),
            field("hlen", 32, 8, Number),
            field("plen", 40, 8, Number),
            field("op", 48, 16, Number),
            field("sha", 64, 48, Mac),
            field("spa", 112, 32, Ipv4),
            field("tha", 144, 48, Mac),
            field("tpa", 192, 32, Ipv4),
        ],
        fits: |header| header.len() == arp::LEN,
        make: |_| {
            let (sender_ip, target_ip) = (super::network::SOURCE_4, super::network::DESTINATION_4);
            let (sender_mac, target_mac) = (SOURCE_MAC, MacAddr([0; 6]));
            boxed(arp::Packet { operation: arp::REQUEST, sender_mac, sender_ip, target_mac, target_ip })
        },
    },
];

/// Creates a control field of one byte if its lowest bits require it, else of two.
fn plain<'a>(given: PartValues<'_, 'a>) -> Result<Box<dyn Header + 'a>, EmitError> {
    let control = match given.number("control").unwrap_or(3) {
        control @ 0..=0xff if control & 3 == 3 => llc::Control::Unnumbered(control as u8),
        control @ 0..=0xffff => llc::Control::Numbered((control as u16).to_be_bytes()),
        _ => return Err(EmitError::Field("an LLC control field has at most 16 bits")),
    };
    boxed(llc::Header::Plain(llc::Plain { destination_sap: UNUSED_SAP, source_sap: UNUSED_SAP, control }))
}

/// Returns the offset of the byte of an address family that is not 0.
fn family(header: &[u8]) -> Option<usize> {
    match header {
        [0, _, _, last] if *last != 0 => Some(3),
        _ => Some(0),
    }
}

pub(super) fn boxed<'a>(header: impl Header + 'a) -> Result<Box<dyn Header + 'a>, EmitError> {
    Ok(Box::new(header))
}

pub(super) fn byte(given: PartValues<'_, '_>, name: &str, usual: u8) -> Result<u8, EmitError> {
    let value = given.number(name).map_or(Ok(usual), u8::try_from);
    value.map_err(|_| EmitError::Field("the number must be at most 255"))
}
