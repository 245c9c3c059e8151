//! Tunnels.

use crate::read::{part, u32_at};
use crate::text::{Text, put};
use crate::walk::LinePrinter;
use linerate_headers::gre::Header;
use linerate_headers::{Layer, Stop, erspan, esp, geneve, gre, gtp_u, vxlan};

pub(crate) fn gre(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let Ok(view) = gre::View::parse(walk.from(layer)) else { return };
    let text = &mut walk.text;
    match view.header() {
        Header::Routing(routing) => {
            text.str("GREv0");
            routing.key.iter().for_each(|key| put!(text, ", key={key:#x}"));
            routing.sequence.iter().for_each(|number| put!(text, ", seq {number}"));
        }
        Header::Pptp(pptp) => {
            put!(text, "GREv1, call {}", pptp.call);
            pptp.sequence.iter().for_each(|number| put!(text, ", seq {number}"));
            pptp.acknowledgement.iter().for_each(|number| put!(text, ", ack {number}"));
        }
    }
    text.str(", length ");
    walk.text.dec(walk.end.saturating_sub(layer.offset as usize) as u64);
    if matches!(walk.layers.stop(), Stop::Unknown(_)) && walk.layers.as_slice().last() == Some(layer) {
        put!(walk.text, ": gre-proto-{:#x}", view.protocol());
    }
    walk.text.gap(": ");
}

pub(crate) fn erspan(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let Ok(view) = erspan::View::parse(walk.from(layer)) else { return };
    let (kind, session) = match view.header() {
        erspan::Header::Type2 { session, .. } => ("II", session),
        erspan::Header::Type3 { session, .. } => ("III", session),
    };
    put!(walk.text, "ERSPAN type {kind}, session {}, vlan {}", session.number, session.vlan);
    walk.text.gap(": ");
}

pub(crate) fn vxlan(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let Ok(view) = vxlan::View::parse(walk.from(layer)) else { return };
    let flags = view.flags();
    let name = if flags & vxlan::FLAG_PROTOCOL != 0 { "VXLAN-GPE" } else { "VXLAN" };
    let set = if flags & vxlan::FLAG_VNI != 0 { "I" } else { "." };
    put!(walk.text, "{name}, flags [{set}] ({flags:#04x}), vni {}", view.vni());
    walk.text.gap(": ");
}

pub(crate) fn geneve(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let Ok(view) = geneve::View::parse(walk.from(layer)) else { return };
    let flags = match (view.critical(), view.control()) {
        (true, true) => "OC",
        (true, false) => "C",
        (false, true) => "O",
        (false, false) => "none",
    };
    put!(walk.text, "Geneve, Flags [{flags}], vni {:#x}", view.vni());
    if view.header_len() > geneve::LEN {
        put!(walk.text, ", options [{} bytes]", view.header_len() - geneve::LEN);
    }
    walk.text.gap(": ");
}

pub(crate) fn gtp_u(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let Ok(view) = gtp_u::View::parse(walk.from(layer)) else { return };
    let name = match view.message() {
        gtp_u::ECHO_REQUEST => "echo request",
        2 => "echo response",
        26 => "error indication",
        31 => "supported extension headers",
        254 => "end marker",
        gtp_u::USER_DATA => "G-PDU",
        _ => "message unknown",
    };
    put!(walk.text, "GTP-U, {name}, teid {:#x}", view.teid());
    view.sequence().iter().for_each(|number| put!(walk.text, ", seq {number}"));
    put!(walk.text, ", length {}", walk.length_after(layer));
    walk.text.gap(": ");
}

pub(crate) fn esp(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let Ok(view) = esp::View::parse(walk.from(layer)) else { return };
    let length = walk.end.saturating_sub(layer.offset as usize);
    write_esp(&mut walk.text, view.spi(), view.sequence(), length);
}

fn write_esp(text: &mut Text<'_>, spi: u32, sequence: u32, length: usize) {
    put!(text, "ESP(spi={spi:#010x},seq={sequence:#x}), length {length}");
}

/// Writes NAT traversal over UDP (RFC 3948); `bytes` may be truncated.
pub(crate) fn esp_in_udp(text: &mut Text<'_>, bytes: &[u8], length: usize) -> bool {
    match (bytes, u32_at(bytes, 0), u32_at(bytes, 4)) {
        ([0xff], ..) if length == 1 => text.str("isakmp-nat-keep-alive"),
        (_, Some(0), _) => {
            text.str("NONESP-encap: ");
            return isakmp(text, bytes.get(4..).unwrap_or_default(), length.saturating_sub(4));
        }
        (_, Some(spi), Some(sequence)) => {
            text.str("UDP-encap: ");
            write_esp(text, spi, sequence, length);
        }
        _ => return false,
    }
    true
}

/// Writes the header of a key exchange message.
pub(crate) fn isakmp(text: &mut Text<'_>, bytes: &[u8], length: usize) -> bool {
    let Some([version, exchange]) = part::<2>(bytes, 17) else { return false };
    let name = match exchange {
        1 => "base",
        2 => "ident",
        4 => "agg",
        5 => "inf",
        6 => "config",
        32 => "quick",
        34 => "ikev2_init",
        35 => "ikev2_auth",
        36 => "child_sa",
        37 => "inf2",
        _ => "exchange unknown",
    };
    put!(text, "isakmp {}.{}, {name}, length {length}", version >> 4, version & 15);
    true
}
