//! ICMP.

use crate::read::{part, u16_at};
use crate::text::{Text, put};
use crate::walk::LinePrinter;
use linerate_headers::{Layer, icmp, registry};

const UNREACHABLE: u8 = 3;
const SOURCE_QUENCH: u8 = 4;
const REDIRECT: u8 = 5;
const EXCEEDED: u8 = 11;
const PARAMETER: u8 = 12;

/// Texts per code of [`UNREACHABLE`]: before the address, and after `unreachable`.
const CODES: [(&str, &str); 16] = [
    ("net ", ""),
    ("host ", ""),
    ("", ""),
    ("", ""),
    ("", " - need to frag"),
    ("", " - source route failed"),
    ("net ", " - unknown"),
    ("host ", " - unknown"),
    ("", " - source host isolated"),
    ("net ", " - admin prohibited"),
    ("host ", " - admin prohibited"),
    ("net ", " - tos prohibited"),
    ("host ", " - tos prohibited"),
    ("host ", " - admin prohibited filter"),
    ("host ", " - host precedence violation"),
    ("host ", " - precedence cutoff"),
];

pub(crate) fn write(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let Ok(view) = icmp::View::parse(walk.from(layer)) else { return };
    let text = &mut walk.text;
    text.str("ICMP ");
    let (quoted, code) = (view.payload(), view.code());
    match view.kind() {
        icmp::ECHO_REQUEST => echo(text, "echo request", &view),
        icmp::ECHO_REPLY => echo(text, "echo reply", &view),
        UNREACHABLE => unreachable(text, &view),
        SOURCE_QUENCH => text.str("source quench"),
        REDIRECT => {
            text.str(if code & 2 == 0 { "redirect " } else { "redirect-tos " });
            text.ipv4(part(quoted, 16).unwrap_or_default());
            text.str(if code & 1 == 0 { " to net " } else { " to host " });
            text.ipv4(view.rest());
        }
        9 => text.str("router advertisement"),
        10 => text.str("router solicitation"),
        EXCEEDED => match code {
            0 => text.str("time exceeded in-transit"),
            1 => text.str("ip reassembly time exceeded"),
            other => put!(text, "time exceeded-#{other}"),
        },
        PARAMETER => put!(text, "parameter problem - octet {}", view.rest()[0]),
        13 => echo(text, "time stamp query", &view),
        14 => echo(text, "time stamp reply", &view),
        17 => text.str("address mask request"),
        18 => text.str("address mask reply"),
        other => put!(text, "type-#{other}"),
    }
    text.str(", length ");
    let length = walk.end.saturating_sub(layer.offset as usize);
    walk.text.dec(length as u64);
    if walk.options.verbose {
        if walk.options.verifies() && walk.is_whole(layer.offset as usize) && !view.is_checksum_right() {
            put!(walk.text, ", wrong cksum {:#06x}", view.checksum());
        }
        if matches!(view.kind(), UNREACHABLE | SOURCE_QUENCH | REDIRECT | EXCEEDED | PARAMETER) {
            walk.text.gap(": ");
            walk.quote(quoted);
        }
    }
}

fn echo(text: &mut Text<'_>, name: &str, view: &icmp::View<'_>) {
    let [a, b, c, d] = view.rest();
    text.str(name);
    text.str(", id ");
    text.dec(u16::from_be_bytes([a, b]));
    text.str(", seq ");
    text.dec(u16::from_be_bytes([c, d]));
}

/// Writes the destination of the quoted packet.
fn unreachable(text: &mut Text<'_>, view: &icmp::View<'_>) {
    let quoted = view.payload();
    let Some(destination) = part::<4>(quoted, 16) else { return text.str("unreachable") };
    let Some((before, behind)) = CODES.get(usize::from(view.code())) else {
        text.ipv4(destination);
        return put!(text, " unreachable - #{}", view.code());
    };
    text.str(before);
    text.ipv4(destination);
    let header = usize::from(quoted[0] & 15) * 4;
    match view.code() {
        2 => put!(text, " protocol {}", quoted[9]),
        3 => {
            let port = u16_at(quoted, header + 2).unwrap_or_default();
            match quoted[9] {
                registry::TCP => put!(text, " tcp port {port}"),
                registry::UDP => put!(text, " udp port {port}"),
                other => put!(text, " protocol {other} port {port}"),
            }
        }
        _ => {}
    }
    text.str(" unreachable");
    text.str(behind);
    let [_, _, high, low] = view.rest();
    let mtu = u16::from_be_bytes([high, low]);
    if view.code() == 4 && mtu > 0 {
        put!(text, " (mtu {mtu})");
    }
}
