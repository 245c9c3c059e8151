//! The long header of QUIC (RFC 8999, 9000, 9369), on any port.

use crate::read::{take, u32_at};
use crate::text::{Text, put};

/// Maximum bytes of a connection id.
const LONGEST: usize = 20;
const KINDS: [&str; 4] = ["Initial", "0-RTT", "Handshake", "Retry"];
const VERSION_2: u32 = 0x6b33_43cf;

/// Writes the long header at the start of a datagram, if its version is known.
pub(crate) fn write(text: &mut Text<'_>, payload: &[u8]) {
    let _ = header(text, payload);
}

fn header(text: &mut Text<'_>, payload: &[u8]) -> Option<()> {
    let first = *payload.first().filter(|first| *first & 0xc0 == 0xc0)?;
    let version = u32_at(payload, 1)?;
    let mut rest = payload.get(5..)?;
    let mut name = || {
        let length = usize::from(*take(&mut rest, 1)?.first()?);
        take(&mut rest, length).filter(|_| length <= LONGEST)
    };
    let (destination, source) = (name()?, name()?);
    let kind = usize::from(first >> 4 & 3);
    match version {
        1 => put!(text, ": QUIC v1, {}", KINDS[kind]),
        // Version 2 assigns different numbers to the packet types.
        VERSION_2 => put!(text, ": QUIC v2, {}", KINDS[(kind + 3) % 4]),
        0xff00_0000..=0xff00_00ff => put!(text, ": QUIC draft {}, {}", version & 0xff, KINDS[kind]),
        _ => return None,
    }
    for (what, name) in [(", dcid 0x", destination), (", scid 0x", source)] {
        if !name.is_empty() {
            text.str(what);
            text.hex(name);
        }
    }
    Some(())
}
