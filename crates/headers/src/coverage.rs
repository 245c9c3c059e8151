//! Coverage of each checksum of a frame, so that checksums can be updated after bytes are changed.
//!
//! It is derived from the positions and contents of the headers, so it works for frames that were [built](crate::build)
//! as for complete frames that were received.

use crate::build::last_segment;
use crate::checksum::Sum;
use crate::{Crc32c, Layer, Layers, Protocol, Role, ipv4, registry, udp_lite};

/// Position of a header in a frame, and the end of its contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderSpan {
    /// Its protocol.
    pub protocol: Protocol,
    /// Offset of its first byte in the frame.
    pub offset: usize,
    /// Bytes of the header.
    pub length: usize,
    /// Offset of the end of its contents in the frame: bytes after it do not belong to it.
    pub end: usize,
}

/// A checksum of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// Its offset: 2 bytes of an Internet checksum, 4 of a CRC. They count as 0.
    pub offset: usize,
    /// Its algorithm.
    pub kind: Kind,
    /// Start and end of each part that it covers, in order. A part of odd length is padded with a zero byte.
    pub parts: Vec<(usize, usize)>,
}

/// Algorithm of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// RFC 1071.
    Internet {
        /// Value to add: the parts that are not in the frame (protocol and length of a pseudo-header).
        plus: u16,
        /// True if 0 is written as 0xffff, since 0 stands for no checksum (RFC 768).
        no_zero: bool,
    },
    /// CRC-32C, lowest byte first (RFC 9260 appendix A).
    Crc32c,
}

impl Coverage {
    /// Computes the checksum and writes it into the frame. Parts outside the frame count as empty.
    pub fn fill(&self, frame: &mut [u8]) {
        let length = self.length();
        if let Some(place) = self.place(frame) {
            place.fill(0);
        }
        let parts = self.parts.iter().filter_map(|&(start, end)| frame.get(start..end));
        let mut checksum = [0; 4];
        match self.kind {
            Kind::Internet { plus, no_zero } => {
                let sum = parts.fold(Sum::ZERO.with_word(plus), Sum::with);
                let value = match sum.checksum() {
                    0 if no_zero => 0xffff,
                    value => value,
                };
                checksum[..2].copy_from_slice(&value.to_be_bytes());
            }
            Kind::Crc32c => checksum = parts.fold(Crc32c::NEW, Crc32c::with).value().to_le_bytes(),
        }
        if let Some(place) = self.place(frame) {
            place.copy_from_slice(&checksum[..length]);
        }
    }

    fn place<'a>(&self, frame: &'a mut [u8]) -> Option<&'a mut [u8]> {
        frame.get_mut(self.offset..)?.get_mut(..self.length())
    }

    /// Returns the length of the checksum in bytes.
    pub fn length(&self) -> usize {
        self.kind.length()
    }
}

impl Kind {
    /// Returns the length of such a checksum in bytes.
    pub fn length(&self) -> usize {
        match self {
            Kind::Internet { .. } => 2,
            Kind::Crc32c => 4,
        }
    }
}

/// Returns the headers of a frame that was dissected into `layers`.
pub fn placed(frame: &[u8], layers: &Layers) -> Vec<HeaderSpan> {
    let mut end = frame.len();
    let mut place = |layer: &Layer| {
        let (offset, length) = (layer.offset as usize, usize::from(layer.length));
        let step = frame.get(offset..end).and_then(|bytes| (layer.protocol.row().step)(bytes).ok());
        end = step.map_or(end, |step| offset + step.header + step.payload);
        HeaderSpan { protocol: layer.protocol, offset, length, end }
    };
    layers.as_slice().iter().map(&mut place).collect()
}

/// Returns the checksums of a frame, an inner one before an outer one that covers it.
///
/// Absent optional ones (for UDP: 0) are omitted, and so are those that cover addresses without a preceding IP header.
/// Each checksum of a fragment covers the contents of the frame.
pub fn checksums(frame: &[u8], placed: &[HeaderSpan]) -> Vec<Coverage> {
    (0..placed.len()).rev().filter_map(|index| checksum(frame, placed, index)).collect()
}

fn checksum(frame: &[u8], placed: &[HeaderSpan], index: usize) -> Option<Coverage> {
    let at = placed[index];
    let header = frame.get(at.offset..at.offset + at.length)?;
    let own = |offset: usize, end: usize| {
        let kind = Kind::Internet { plus: 0, no_zero: false };
        Coverage { offset: at.offset + offset, kind, parts: vec![(at.offset, end)] }
    };
    let with_addresses = |offset: usize, number: u8, length: usize, no_zero: bool| {
        let plus = Sum::ZERO.with(&(length as u32).to_be_bytes()).with_word(number.into()).folded();
        let mut parts = addresses(frame, &placed[..index])?;
        parts.push((at.offset, at.offset + length));
        Some(Coverage { offset: at.offset + offset, kind: Kind::Internet { plus, no_zero }, parts })
    };
    let (head, all) = (at.offset + at.length, at.end - at.offset);
    match at.protocol {
        Protocol::Ipv4 => Some(own(10, head)),
        Protocol::Icmp | Protocol::Igmp => Some(own(2, at.end)),
        Protocol::Shim6 => (header.get(2)? & 0x80 == 0).then(|| own(4, head)),
        Protocol::Gre => (header.first()? & 0x80 != 0).then(|| own(4, at.end)),
        Protocol::Sctp => Some(Coverage { kind: Kind::Crc32c, ..own(8, at.end) }),
        Protocol::Mobility => with_addresses(4, registry::MOBILITY, at.length, false),
        Protocol::Hip => with_addresses(4, registry::HIP, at.length, false),
        Protocol::Tcp => with_addresses(16, registry::TCP, all, false),
        Protocol::Icmpv6 => with_addresses(2, registry::ICMPV6, all, false),
        Protocol::Udp => match header.get(6..8)? {
            [0, 0] => None,
            _ => with_addresses(6, registry::UDP, all, true),
        },
        Protocol::UdpLite => {
            let covered = match usize::from(u16::from_be_bytes([*header.get(4)?, *header.get(5)?])) {
                0 => all,
                coverage => coverage,
            };
            let mut whole = with_addresses(6, registry::UDP_LITE, all, true)?;
            whole.parts.last_mut()?.1 = at.offset + covered;
            (udp_lite::LEN..=all).contains(&covered).then_some(whole)
        }
        _ => None,
    }
}

/// Returns the positions of the addresses that the checksum of the next header covers: in the preceding IP header, with
/// only its extensions in between, or in a routing header (RFC 8200 section 8.1).
fn addresses(frame: &[u8], outer: &[HeaderSpan]) -> Option<Vec<(usize, usize)>> {
    let mut routed = None;
    for at in outer.iter().rev() {
        match at.protocol {
            Protocol::Ipv4 => return Some(vec![(at.offset + 12, at.offset + ipv4::LEN)]),
            Protocol::Ipv6 => {
                let destination = routed.unwrap_or(at.offset + 24);
                return Some(vec![(at.offset + 8, at.offset + 24), (destination, destination + 16)]);
            }
            Protocol::Routing => {
                let data = frame.get(at.offset + 2..at.offset + at.length)?;
                routed = routed.or(last_segment(data).map(|from| at.offset + 2 + from));
            }
            protocol if protocol.role() == Role::Extension => {}
            _ => return None,
        }
    }
    None
}
