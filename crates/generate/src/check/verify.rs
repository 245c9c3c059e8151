//! Verifies the checksums of a frame.

use crate::trailer::Tail;
use linerate_burst::Flags;
use linerate_headers::registry::{ICMP, ICMPV6, SCTP, TCP, UDP, UDP_LITE};
use linerate_headers::{Layers, Link, Protocol, Pseudo, Role, Stop, Sum, dissect};
use linerate_headers::{icmp, icmpv6, ipv4, ipv6, sctp, tcp, udp, udp_lite};

/// Result of the checksums and lengths of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// A checksum covers the end of the payload, and all up to that one are right.
    Right,
    /// A checksum is wrong, a length exceeds the frame, or a header contradicts itself.
    Wrong,
    /// No checksum covers the end of the payload (no IP, UDP without checksum, a fragment, encryption), or it is
    /// partial.
    Open,
}

/// Verifies the checksums of IP headers and of their payloads, from the outermost inwards, up to the first that covers
/// the end of the payload. `tail` is that of the frame, `flags` those of its descriptor.
#[inline(always)]
pub(super) fn verify(link: Link, frame: &[u8], tail: &Tail, flags: Flags, layers: &mut Layers) -> Verdict {
    let Some(start) = tail.packet else { return through(link, frame, layers) };
    let Some(packet) = frame.get(start..tail.end) else { return Verdict::Wrong };
    match outermost(packet, flags.contains(Flags::CHECKSUM_PARTIAL)) {
        Some(verdict) => verdict,
        None => through(link, frame, layers),
    }
}

/// Verifies a packet whose first header names its transport; `None` if it needs dissection.
#[inline(always)]
fn outermost(packet: &[u8], unfinished: bool) -> Option<Verdict> {
    if packet.first()? >> 4 == 4 {
        let ip = ipv4::View::parse(packet).ok()?;
        if !ip.is_checksum_right() {
            return Some(Verdict::Wrong);
        }
        if unfinished || ip.is_fragment() {
            return Some(Verdict::Open);
        }
        transport(ip.protocol(), ip.payload(), &ip.pseudo())
    } else {
        let ip = ipv6::View::parse(packet).ok()?;
        if unfinished {
            return Some(Verdict::Open);
        }
        transport(ip.next_header(), ip.payload(), &ip.pseudo())
    }
}

/// Verifies a whole message; `None` if no checksum covers all of it.
#[inline(always)]
fn transport(protocol: u8, message: &[u8], pseudo: &Pseudo) -> Option<Verdict> {
    // The sum over a message with a right checksum is 0.
    let sums_up = |sum: Sum| sum.with(message).checksum() == 0;
    let with_addresses = || sums_up(pseudo.sum(protocol, message.len() as u32));
    let right = match protocol {
        UDP => {
            let [_, _, _, _, long, length, sum @ ..]: &[u8; udp::LEN] = message.first_chunk()?;
            let length = usize::from(u16::from_be_bytes([*long, *length]));
            if length != message.len() && length != 0 {
                return Some(Verdict::Wrong);
            }
            if *sum == [0; 2] && matches!(pseudo, Pseudo::V4 { .. }) {
                return None;
            }
            *sum != [0; 2] && with_addresses()
        }
        TCP => tcp::View::parse(message).is_ok() && with_addresses(),
        ICMP => icmp::View::parse(message).is_ok() && sums_up(Sum::ZERO),
        ICMPV6 => icmpv6::View::parse(message).is_ok() && with_addresses(),
        SCTP => sctp::View::parse(message).is_ok_and(|packet| packet.is_checksum_right()),
        UDP_LITE => {
            let datagram = udp_lite::View::parse(message).ok()?;
            let covered = usize::from(datagram.coverage());
            match datagram.is_checksum_right(pseudo) {
                true if covered != 0 && covered != message.len() => return None,
                right => right,
            }
        }
        _ => return None,
    };
    Some(if right { Verdict::Right } else { Verdict::Wrong })
}

/// Verifies any frame, one IP header after the other.
#[inline(never)]
fn through(link: Link, frame: &[u8], layers: &mut Layers) -> Verdict {
    dissect(link, frame, layers);
    let broken = matches!(layers.stop(), Stop::Malformed(..) | Stop::Truncated(_));
    let layers = layers.as_slice();
    for (index, layer) in layers.iter().enumerate() {
        let Some(packet) = frame.get(layer.offset as usize..) else { break };
        let (pseudo, end) = match layer.protocol {
            Protocol::Ipv4 => match ipv4::View::parse(packet) {
                Ok(ip) if !ip.is_checksum_right() || ip.is_cut() => return Verdict::Wrong,
                Ok(ip) if ip.is_fragment() => return Verdict::Open,
                Ok(ip) => (ip.pseudo(), ip.header_len() + ip.payload().len()),
                Err(_) => return Verdict::Wrong,
            },
            Protocol::Ipv6 => match ipv6::View::parse(packet) {
                Ok(ip) if ip.is_cut() => return Verdict::Wrong,
                Ok(ip) => (ip.pseudo(), ipv6::LEN + ip.payload().len()),
                Err(_) => return Verdict::Wrong,
            },
            _ => continue,
        };
        let mut extensions = layers[index + 1..].iter().take_while(|layer| layer.protocol.role() == Role::Extension);
        if !extensions.all(|layer| is_plain(layer.protocol)) {
            return Verdict::Open;
        }
        let next = layers[index + 1..].iter().find(|layer| layer.protocol.role() != Role::Extension);
        let Some((next, protocol)) = next.and_then(|next| Some((next, number(next.protocol)?))) else {
            continue;
        };
        let message = packet.get((next.offset - layer.offset) as usize..end).unwrap_or_default();
        if let Some(verdict) = transport(protocol, message, &pseudo) {
            return verdict;
        }
    }
    if broken { Verdict::Wrong } else { Verdict::Open }
}

/// Returns whether the checksum after an extension header is that of the packet as it is: not of a part of it, nor for
/// another destination.
fn is_plain(protocol: Protocol) -> bool {
    !matches!(protocol, Protocol::Fragment | Protocol::Routing | Protocol::Shim6)
}

/// Returns the IP protocol of a header with a checksum.
fn number(protocol: Protocol) -> Option<u8> {
    Some(match protocol {
        Protocol::Udp => UDP,
        Protocol::Tcp => TCP,
        Protocol::Icmp => ICMP,
        Protocol::Icmpv6 => ICMPV6,
        Protocol::Sctp => SCTP,
        Protocol::UdpLite => UDP_LITE,
        _ => return None,
    })
}
