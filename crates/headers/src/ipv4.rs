//! IPv4 (RFC 791).

use crate::checksum::Sum;
use crate::error::{room, split};
use crate::options::{Iter, Options};
use crate::registry::{Next, Step};
use crate::{EmitError, Flaw, Malformed, Number, Protocol, Pseudo};
use std::net::Ipv4Addr;

/// Bytes of a header without options.
pub const LEN: usize = 20;

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_MASK: u16 = 0x1fff;

/// An IPv4 packet.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    options: &'a [u8],
    payload: &'a [u8],
    cut: bool,
}

impl<'a> View<'a> {
    /// Parses a packet; the header must be complete, the payload may be truncated.
    #[inline(always)]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let flawed = |flaw| Malformed { protocol: Protocol::Ipv4, flaw };
        let (head, rest) = split::<LEN>(bytes, Protocol::Ipv4)?;
        if head[0] >> 4 != 4 {
            return Err(flawed(Flaw::Version));
        }
        let header = usize::from(head[0] & 0x0f) * 4;
        let options = header.checked_sub(LEN).ok_or(flawed(Flaw::HeaderLength))?;
        let (options, rest) = rest.split_at_checked(options).ok_or(flawed(Flaw::Short))?;
        let payload = match u16::from_be_bytes([head[2], head[3]]) {
            0 => rest.len(), // segmentation offload
            total => usize::from(total).checked_sub(header).ok_or(flawed(Flaw::TotalLength))?,
        };
        Ok(View { head, options, payload: rest.get(..payload).unwrap_or(rest), cut: payload > rest.len() })
    }

    /// Returns the length of the header in bytes, options included: 20 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        LEN + self.options.len()
    }

    /// Returns the differentiated services code point and ECN bits (RFC 2474, RFC 3168).
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        self.head[1]
    }

    /// Returns the total length field; 0 if left to segmentation offload.
    #[inline]
    pub fn total_len(&self) -> u16 {
        u16::from_be_bytes([self.head[2], self.head[3]])
    }

    /// Returns the identification, common to all fragments of a packet.
    #[inline]
    pub fn identification(&self) -> u16 {
        u16::from_be_bytes([self.head[4], self.head[5]])
    }

    /// Returns whether routers must not fragment the packet.
    #[inline]
    pub fn dont_fragment(&self) -> bool {
        self.fragment_word() & DONT_FRAGMENT != 0
    }

    /// Returns whether fragments follow this one.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.fragment_word() & MORE_FRAGMENTS != 0
    }

    /// Returns the offset of the payload in the reassembled packet, in bytes.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        (self.fragment_word() & OFFSET_MASK) << 3
    }

    /// Returns whether this is one fragment of several.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.fragment_word() & (MORE_FRAGMENTS | OFFSET_MASK) != 0
    }

    /// Returns the time to live, in hops.
    #[inline]
    pub fn ttl(&self) -> u8 {
        self.head[8]
    }

    /// Returns the IP protocol number of the payload.
    #[inline]
    pub fn protocol(&self) -> u8 {
        self.head[9]
    }

    /// Returns the header checksum field.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.head[10], self.head[11]])
    }

    /// Returns whether the header checksum is correct.
    #[inline]
    pub fn is_checksum_right(&self) -> bool {
        Sum::of(self.head).with(self.options).checksum() == 0
    }

    /// Returns the checksum that the header should have.
    pub fn correct_checksum(&self) -> u16 {
        Sum::of(self.head).with(self.options).corrected(self.checksum())
    }

    /// Returns the source address.
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        let [.., a, b, c, d, _, _, _, _] = *self.head;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Returns the destination address.
    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = *self.head;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Returns the options, in order.
    #[inline]
    pub fn options(&self) -> Iter<'a> {
        Iter::over(self.options)
    }

    /// Returns the payload, up to the total length or the end of the bytes.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns whether the payload is truncated.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns the pseudo-header for the checksum of the payload.
    #[inline]
    pub fn pseudo(&self) -> Pseudo {
        Pseudo::V4 { source: self.source(), destination: self.destination() }
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        Header {
            traffic_class: self.traffic_class(),
            identification: self.identification(),
            dont_fragment: self.dont_fragment(),
            more_fragments: self.more_fragments(),
            fragment_offset: self.fragment_offset(),
            ttl: self.ttl(),
            protocol: self.protocol(),
            source: self.source(),
            destination: self.destination(),
            // A header length of four bits leaves at most the 40 bytes that options hold.
            options: Options::new(self.options).unwrap_or_default(),
        }
    }

    #[inline]
    fn fragment_word(&self) -> u16 {
        u16::from_be_bytes([self.head[6], self.head[7]])
    }
}

/// An IPv4 header; lengths and checksum are computed when it is emitted. The reserved flag is discarded.
///
/// ```
/// use linerate_headers::{ipv4, registry};
/// let header = ipv4::Header {
///     source: [10, 0, 0, 1].into(),
///     destination: [10, 0, 0, 2].into(),
///     ..ipv4::Header::new(registry::UDP)
/// };
/// let mut packet = [0; 28];
/// let length = header.emit(8, &mut packet)?;
/// let view = ipv4::View::parse(&packet)?;
/// assert!(view.is_checksum_right());
/// assert_eq!((length, view.total_len(), view.header()), (20, 28, header));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Differentiated services code point and ECN bits.
    pub traffic_class: u8,
    /// Identification, common to all fragments of a packet.
    pub identification: u16,
    /// True if routers must not fragment the packet.
    pub dont_fragment: bool,
    /// True if fragments follow this one.
    pub more_fragments: bool,
    /// Offset of the payload in the reassembled packet, in bytes; a multiple of 8.
    pub fragment_offset: u16,
    /// Time to live, in hops.
    pub ttl: u8,
    /// IP protocol number of the payload.
    pub protocol: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Options.
    pub options: Options,
}

impl Header {
    /// Creates a header for a payload of IP protocol `protocol`: 64 hops, not fragmented, addresses unspecified.
    pub fn new(protocol: u8) -> Self {
        Header {
            traffic_class: 0,
            identification: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol,
            source: Ipv4Addr::UNSPECIFIED,
            destination: Ipv4Addr::UNSPECIFIED,
            options: Options::NONE,
        }
    }

    /// Writes the header of a packet with `payload` bytes of payload to the front of `out`, checksum
    /// included; returns its length.
    pub fn emit(&self, payload: usize, out: &mut [u8]) -> Result<usize, EmitError> {
        let options = self.options.as_bytes();
        let length = LEN + options.len();
        let Some(total) = payload.checked_add(length).and_then(|total| u16::try_from(total).ok()) else {
            return Err(EmitError::Field("an IPv4 packet has at most 65535 bytes"));
        };
        if !self.fragment_offset.is_multiple_of(8) {
            return Err(EmitError::Field("a fragment offset is a multiple of 8"));
        }
        let (head, behind) = room::<LEN>(out, length)?;
        let flags = u16::from(self.dont_fragment) << 14 | u16::from(self.more_fragments) << 13;
        head[0] = 0x40 | (length / 4) as u8;
        head[1] = self.traffic_class;
        head[2..4].copy_from_slice(&total.to_be_bytes());
        head[4..6].copy_from_slice(&self.identification.to_be_bytes());
        head[6..8].copy_from_slice(&(flags | self.fragment_offset >> 3).to_be_bytes());
        head[8] = self.ttl;
        head[9] = self.protocol;
        head[10..12].copy_from_slice(&[0, 0]);
        head[12..16].copy_from_slice(&self.source.octets());
        head[16..20].copy_from_slice(&self.destination.octets());
        behind.copy_from_slice(options);
        let checksum = Sum::of(head).with(options).checksum();
        head[10..12].copy_from_slice(&checksum.to_be_bytes());
        Ok(length)
    }
}

/// Returns the protocol after the header; unknown for a fragment that is not the first.
#[inline(always)]
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    let first = view.fragment_word() & OFFSET_MASK == 0;
    let next = if first { Next::Number(Number::IpProtocol(view.protocol())) } else { Next::Fragment };
    Ok(Step::new(view.header_len(), view.payload.len(), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet() -> [u8; 32] {
        let mut bytes = [7; 32];
        let header = Header { options: Options::new(&[1, 148, 2]).unwrap_or_default(), ..Header::new(6) };
        header.emit(4, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn the_total_length_bounds_the_payload() {
        let mut bytes = packet();
        let view = View::parse(&bytes).unwrap();
        assert_eq!((view.header_len(), view.payload(), view.is_cut()), (24, &[7; 4][..], false));
        let view = View::parse(&bytes[..26]).unwrap();
        assert_eq!((view.payload(), view.is_cut()), (&[7; 2][..], true));
        bytes[2..4].fill(0);
        assert_eq!(View::parse(&bytes).unwrap().payload().len(), 8, "all that is there");
    }

    #[test]
    fn contradictory_lengths_are_rejected() {
        let bytes = packet();
        let flaw = |at: usize, byte: u8| {
            let mut bytes = bytes;
            bytes[at] = byte;
            View::parse(&bytes).map(|_| ()).unwrap_err().flaw
        };
        assert_eq!(flaw(0, 0x44), Flaw::HeaderLength);
        assert_eq!(flaw(0, 0x65), Flaw::Version);
        assert_eq!(flaw(0, 0x4f), Flaw::Short);
        assert_eq!(flaw(3, 23), Flaw::TotalLength);
        assert_eq!(View::parse(&bytes[..19]).unwrap_err().flaw, Flaw::Short);
    }

    #[test]
    fn fragments_are_recognised() {
        let mut bytes = packet();
        for (word, first, more, offset) in
            [(0x4000, true, false, 0), (0x2000, true, true, 0), (0x00b9, false, false, 1480)]
        {
            bytes[6..8].copy_from_slice(&u16::to_be_bytes(word));
            let view = View::parse(&bytes).unwrap();
            assert_eq!((view.more_fragments(), view.fragment_offset()), (more, offset));
            assert_eq!(view.is_fragment(), word != 0x4000);
            assert_eq!(step(&bytes).unwrap().next == Next::Fragment, !first);
        }
    }

    #[test]
    fn unrepresentable_values_are_rejected() {
        let header = Header::new(6);
        assert!(matches!(header.emit(65_516, &mut [0; 20]), Err(EmitError::Field(_))));
        assert!(matches!(header.emit(usize::MAX, &mut [0; 20]), Err(EmitError::Field(_))));
        assert!(matches!(Header { fragment_offset: 4, ..header }.emit(0, &mut [0; 20]), Err(EmitError::Field(_))));
        assert_eq!(header.emit(65_515, &mut [0; 20]), Ok(20));
        assert_eq!(header.emit(0, &mut [0; 19]), Err(EmitError::NoRoom { need: 20 }));
    }
}
