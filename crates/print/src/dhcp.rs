//! DHCP, and BOOTP before it.

use crate::read::{part, take};
use crate::text::{Text, put};

/// Offsets of fields in the message.
const HARDWARE_LENGTH: usize = 2;
const OWN: usize = 16;
const HARDWARE: usize = 28;
const OPTIONS: usize = 240;
const MAGIC: [u8; 4] = [99, 130, 83, 99];

const HOST_NAME: u8 = 12;
const REQUESTED: u8 = 50;
const KIND: u8 = 53;
const SERVER: u8 = 54;
const END: u8 = 255;
const KINDS: [&str; 9] = ["", "Discover", "Offer", "Request", "Decline", "ACK", "NACK", "Release", "Inform"];
/// Maximum bytes of a host name.
const LONGEST: usize = 64;

/// Writes a message of `length` bytes, possibly truncated; returns false if it is not DHCP.
pub(crate) fn write(text: &mut Text<'_>, message: &[u8], length: usize) -> bool {
    let operation = match message.first() {
        Some(1) => "Request",
        Some(2) => "Reply",
        _ => return false,
    };
    text.str("BOOTP/DHCP, ");
    text.str(operation);
    let hardware = message.get(HARDWARE_LENGTH).copied().map_or(0, usize::from);
    if operation == "Request"
        && (1..=16).contains(&hardware)
        && let Some(address) = message.get(HARDWARE..HARDWARE + hardware)
    {
        text.str(" from ");
        text.mac(address);
    }
    put!(text, ", length {length}");
    if part(message, OPTIONS - MAGIC.len()) == Some(MAGIC) {
        options(text, message.get(OPTIONS..).unwrap_or_default());
    }
    if let Some(own) = part::<4>(message, OWN).filter(|own| *own != [0; 4]) {
        text.str(", yours ");
        text.ipv4(own);
    }
    true
}

fn options(text: &mut Text<'_>, mut bytes: &[u8]) -> Option<()> {
    // A 64 KiB message has room for thousands of options.
    while !text.is_full() {
        let [kind] = *take(&mut bytes, 1)? else { return None };
        if kind == 0 {
            continue;
        }
        if kind == END {
            return None;
        }
        let [length] = *take(&mut bytes, 1)? else { return None };
        let value = take(&mut bytes, usize::from(length))?;
        match (kind, value) {
            (KIND, [kind]) => {
                text.str(", ");
                text.str(KINDS.get(usize::from(*kind)).filter(|name| !name.is_empty()).unwrap_or(&"unknown"));
            }
            (REQUESTED, [a, b, c, d]) => {
                text.str(", asks for ");
                text.ipv4([*a, *b, *c, *d]);
            }
            (SERVER, [a, b, c, d]) => {
                text.str(", server ");
                text.ipv4([*a, *b, *c, *d]);
            }
            (HOST_NAME, name) => {
                text.str(", host \"");
                text.wire(name, LONGEST);
                text.str("\"");
            }
            _ => {}
        }
    }
    None
}
