//! Routing protocols, and other packets of which only the start is decoded.

use crate::names;
use crate::read::part;
use crate::text::put;
use crate::walk::LinePrinter;

const EIGRP: u8 = 88;
const OSPF: u8 = 89;
const PIM: u8 = 103;
const VRRP: u8 = 112;

const OSPF_KINDS: [&str; 5] = ["Hello", "Database Description", "LS-Request", "LS-Update", "LS-Ack"];
const PIM_KINDS: [&str; 9] = [
    "Hello",
    "Register",
    "Register-Stop",
    "Join / Prune",
    "Bootstrap",
    "Assert",
    "Graft",
    "Graft-ACK",
    "Candidate RP Advertisement",
];

/// Writes the payload of an IP packet, by protocol number.
pub(crate) fn write(walk: &mut LinePrinter<'_, '_>, number: u8) {
    let head = part::<6>(walk.remaining(), 0);
    let is_v6 = walk.packet.is_some_and(|packet| packet.is_v6);
    match (number, head) {
        (OSPF, Some([version, kind, ..])) => {
            let kind = kind.checked_sub(1).and_then(|kind| OSPF_KINDS.get(usize::from(kind))).unwrap_or(&"unknown");
            put!(walk.text, "OSPFv{version}, {kind}");
        }
        (PIM, Some([first, ..])) => {
            let kind = PIM_KINDS.get(usize::from(first & 15)).unwrap_or(&"unknown");
            put!(walk.text, "PIMv{}, {kind}", first >> 4);
        }
        (VRRP, Some([first, id, priority, _, high, low])) if first & 15 == 1 => {
            let version = first >> 4;
            put!(walk.text, "VRRPv{version}, Advertisement, vrid {id}, prio {priority}");
            if version == 3 || is_v6 {
                put!(walk.text, ", intvl {}cs", u16::from_be_bytes([high & 15, low]));
            } else {
                put!(
                    walk.text,
                    ", authtype {}, intvl {low}s",
                    ["none", "simple", "ah"].get(usize::from(high)).unwrap_or(&"unknown")
                );
            }
        }
        (EIGRP, Some([_, code, ..])) => {
            let kind = match code {
                1 => "Update",
                3 => "Query",
                4 => "Reply",
                5 => "Hello",
                _ => "unknown",
            };
            put!(walk.text, "EIGRP {kind}");
        }
        _ => match names::ip_protocol(number) {
            Some(name) => walk.text.str(name),
            None => put!(walk.text, "ip-proto-{number}"),
        },
    }
    put!(walk.text, ", length {}", walk.length());
}
