//! ARP.

use crate::text::{Text, put};
use crate::walk::LinePrinter;
use linerate_headers::{Layer, arp, ethernet};

const RARP_REQUEST: u16 = 3;
const RARP_REPLY: u16 = 4;
const INVERSE_REQUEST: u16 = 8;
const INVERSE_REPLY: u16 = 9;

pub(crate) fn write(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let Ok(view) = arp::View::parse(walk.from(layer)) else { return };
    let text = &mut walk.text;
    // The link-layer header names it already.
    if !walk.options.link {
        text.str("ARP, ");
    }
    let is_usual = view.protocol_type() == ethernet::IPV4 && view.sender_protocol().len() == 4;
    if !is_usual {
        put!(text, "hardware type {}, protocol {:#06x}, ", view.hardware_type(), view.protocol_type());
    }
    match view.operation() {
        arp::REQUEST => {
            text.str("Request who-has ");
            address(text, view.target_protocol());
            let is_known = view.target_hardware().iter().any(|byte| *byte != 0);
            if is_known {
                text.str(" (");
                text.mac(view.target_hardware());
                text.str(")");
            }
            text.str(" tell ");
            address(text, view.sender_protocol());
        }
        arp::REPLY => {
            text.str("Reply ");
            address(text, view.sender_protocol());
            text.str(" is-at ");
            text.mac(view.sender_hardware());
        }
        operation @ (RARP_REQUEST | INVERSE_REQUEST) => {
            text.str(if operation == RARP_REQUEST { "Reverse" } else { "Inverse" });
            text.str(" Request who-is ");
            text.mac(view.target_hardware());
            text.str(" tell ");
            text.mac(view.sender_hardware());
        }
        RARP_REPLY => {
            text.str("Reverse Reply ");
            text.mac(view.target_hardware());
            text.str(" at ");
            address(text, view.target_protocol());
        }
        INVERSE_REPLY => {
            text.str("Inverse Reply ");
            text.mac(view.sender_hardware());
            text.str(" at ");
            address(text, view.sender_protocol());
        }
        other => put!(text, "operation {other}"),
    }
    text.str(", length ");
    let length = walk.end.saturating_sub(layer.offset as usize);
    walk.text.dec(length as u64);
}

/// Writes a protocol address, of IPv4 or any other.
fn address(text: &mut Text<'_>, bytes: &[u8]) {
    match bytes.try_into() {
        Ok(address) => text.ipv4(address),
        Err(_) => text.mac(bytes),
    }
}
