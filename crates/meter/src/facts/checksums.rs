//! Verification of transport checksums.

use linerate_headers::{Layer, Protocol, Pseudo, icmp, icmpv6, ipv4, ipv6, ipv6_extension, registry, tcp, udp};
use std::net::Ipv6Addr;

/// The home address option (RFC 6275, 6.3), and the only option of one byte (RFC 8200, 4.2).
const HOME_ADDRESS: u8 = 0xc9;
const PAD_1: u8 = 0;
/// Routing headers whose last address is the destination: the source route (RFC 2460, 4.4) and that to a mobile node
/// (RFC 6275, 6.4).
const ENDS_WITH_LAST: [u8; 2] = [0, 2];
/// Bytes in front of their addresses.
const ROUTING: usize = 8;

/// Returns whether the checksum of a complete packet that is not a fragment is wrong: header, extension headers,
/// protocol and message.
pub(super) fn is_wrong(frame: &[u8], header: &Layer, extensions: &[Layer], (protocol, message): (u8, &[u8])) -> bool {
    let Some(pseudo) = pseudo(frame, header, extensions) else { return false };
    match protocol {
        registry::TCP => tcp::View::parse(message).is_ok_and(|view| !view.is_checksum_right(&pseudo)),
        registry::UDP => {
            udp::View::parse(message).is_ok_and(|view| view.checksum() != 0 && !view.is_checksum_right(&pseudo))
        }
        registry::ICMP => icmp::View::parse(message).is_ok_and(|view| !view.is_checksum_right()),
        registry::ICMPV6 => icmpv6::View::parse(message).is_ok_and(|view| !view.is_checksum_right(&pseudo)),
        _ => false,
    }
}

/// Returns the pseudo-header with the addresses of the sender and of the final destination (RFC 8200, 8.1; RFC 6275,
/// 11.3.1); `None` where the latter is not known.
fn pseudo(frame: &[u8], header: &Layer, extensions: &[Layer]) -> Option<Pseudo> {
    let bytes = frame.get(header.offset as usize..)?;
    if header.protocol == Protocol::Ipv4 {
        return Some(ipv4::View::parse(bytes).ok()?.pseudo());
    }
    let view = ipv6::View::parse(bytes).ok()?;
    let (mut source, mut destination) = (view.source(), view.destination());
    for layer in extensions {
        let parsed = ipv6_extension::View::parse(layer.protocol, frame.get(layer.offset as usize..)?);
        match (layer.protocol, parsed) {
            (Protocol::Routing, Ok(routing)) if routing.segments_left() > 0 => destination = last_address(&routing)?,
            (Protocol::DestinationOptions, Ok(options)) => source = home_address(options.data()).unwrap_or(source),
            _ => {}
        }
    }
    Some(Pseudo::V6 { source, destination })
}

fn last_address(routing: &ipv6_extension::View<'_>) -> Option<Ipv6Addr> {
    let has_addresses = routing.header_len() > ROUTING && routing.header_len() % 16 == ROUTING;
    let last = routing.data().last_chunk::<16>().filter(|_| has_addresses)?;
    ENDS_WITH_LAST.contains(&routing.routing_type()).then_some(Ipv6Addr::from(*last))
}

fn home_address(mut options: &[u8]) -> Option<Ipv6Addr> {
    loop {
        options = match options {
            [PAD_1, rest @ ..] => rest,
            [HOME_ADDRESS, 16, rest @ ..] => return rest.first_chunk::<16>().map(|address| Ipv6Addr::from(*address)),
            [_, length, rest @ ..] => rest.get(usize::from(*length)..)?,
            _ => return None,
        };
    }
}
