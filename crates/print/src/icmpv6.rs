//! ICMPv6, including neighbor discovery.

use crate::read::{part, u16_at, u32_at};
use crate::tcp::pseudo;
use crate::text::{Text, put};
use crate::walk::LinePrinter;
use linerate_headers::{Layer, icmpv6, ndp, registry};

/// Bytes before the packet that an error quotes, and before an address.
const BEFORE: usize = 4;
const ERRORS: std::ops::RangeInclusive<u8> = 1..=4;

pub(crate) fn write(walk: &mut LinePrinter<'_, '_>, layer: &Layer) {
    let Ok(view) = icmpv6::View::parse(walk.from(layer)) else { return };
    walk.text.str("ICMP6, ");
    let (kind, code, body) = (view.kind(), view.code(), view.body());
    if message(&mut walk.text, kind, code, body).is_none() {
        walk.text.str("[|icmp6]");
    }
    walk.text.str(", length ");
    let length = walk.end.saturating_sub(layer.offset as usize);
    walk.text.dec(length as u64);
    if walk.options.verbose {
        let is_wrong = |packet| !view.is_checksum_right(&pseudo(&packet));
        if walk.options.verifies() && walk.is_whole(layer.offset as usize) && walk.packet.is_some_and(is_wrong) {
            put!(walk.text, ", bad cksum {:#06x}", view.checksum());
        }
        if ERRORS.contains(&kind) {
            walk.text.gap(": ");
            walk.quote(body.get(BEFORE..).unwrap_or_default());
        }
    }
}

/// Writes a message; nothing if its fixed part is truncated.
fn message(text: &mut Text<'_>, kind: u8, code: u8, body: &[u8]) -> Option<()> {
    let address = |at: usize| part::<16>(body, at);
    match kind {
        1 => unreachable(text, code, body)?,
        2 => put!(text, "packet too big, mtu {}", u32_at(body, 0)?),
        3 => match code {
            0 => {
                text.str("time exceeded in-transit for ");
                text.ipv6(address(BEFORE + 24)?);
            }
            1 => text.str("ip6 reassembly time exceeded"),
            other => put!(text, "time exceeded, unknown code {other}"),
        },
        4 => {
            let what = match code {
                0 => "erroneous",
                1 => "next header",
                2 => "option",
                3 => "incomplete header chain",
                _ => "code unknown",
            };
            put!(text, "parameter problem, {what} - octet {}", u32_at(body, 0)?);
        }
        icmpv6::ECHO_REQUEST => put!(text, "echo request, id {}, seq {}", u16_at(body, 0)?, u16_at(body, 2)?),
        icmpv6::ECHO_REPLY => put!(text, "echo reply, id {}, seq {}", u16_at(body, 0)?, u16_at(body, 2)?),
        130 => group(text, "multicast listener query", body, body.len() >= 24)?,
        131 => group(text, "multicast listener report", body, false)?,
        132 => group(text, "multicast listener done", body, false)?,
        133 => text.str("router solicitation"),
        134 => text.str("router advertisement"),
        ndp::SOLICITATION => {
            text.str("neighbor solicitation, who has ");
            text.ipv6(address(BEFORE)?);
        }
        ndp::ADVERTISEMENT => {
            text.str("neighbor advertisement, tgt is ");
            text.ipv6(address(BEFORE)?);
        }
        137 => {
            text.str("redirect, ");
            text.ipv6(address(BEFORE + 16)?);
            text.str(" to ");
            text.ipv6(address(BEFORE)?);
        }
        143 => put!(text, "multicast listener report v2, {} group record(s)", u16_at(body, 2)?),
        other => put!(text, "type-#{other}"),
    }
    Some(())
}

fn group(text: &mut Text<'_>, name: &str, body: &[u8], is_v2: bool) -> Option<()> {
    text.str(name);
    text.str(if is_v2 { " v2 [gaddr " } else { " addr: " });
    text.ipv6(part(body, BEFORE)?);
    text.str(if is_v2 { "]" } else { "" });
    Some(())
}

/// Writes the destination of the quoted packet.
fn unreachable(text: &mut Text<'_>, code: u8, body: &[u8]) -> Option<()> {
    text.str("destination unreachable, ");
    let destination = part::<16>(body, BEFORE + 24);
    let what = match code {
        0 => "unreachable route ",
        1 => "unreachable prohibited ",
        2 => "beyond scope ",
        3 => "unreachable address ",
        4 => "unreachable port, ",
        5 => "source address failed policy, ",
        6 => "reject route to ",
        other => {
            put!(text, "code-#{other} ");
            ""
        }
    };
    text.str(what);
    text.ipv6(destination?);
    let number = *body.get(BEFORE + 6)?;
    if code == 4 {
        let name = match number {
            registry::TCP => "tcp",
            registry::UDP => "udp",
            _ => "transport",
        };
        put!(text, " {name} port {}", u16_at(body, BEFORE + 42)?);
    }
    Some(())
}
