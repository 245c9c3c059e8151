//! IPv6 (RFC 8200); its extension headers have files of their own.

use crate::error::{room, split};
use crate::registry::{NO_NEXT_HEADER, Next, Step};
use crate::{EmitError, Flaw, Malformed, Number, Protocol, Pseudo};
use std::net::Ipv6Addr;

/// Bytes of the header.
pub const LEN: usize = 40;
/// The largest flow label.
pub const MAX_FLOW_LABEL: u32 = 0xf_ffff;

/// An IPv6 packet.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    payload: &'a [u8],
    cut: bool,
}

impl<'a> View<'a> {
    /// Parses a packet; the header must be complete, the payload may be truncated.
    #[inline(always)]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, rest) = split::<LEN>(bytes, Protocol::Ipv6)?;
        if head[0] >> 4 != 6 {
            return Err(Malformed { protocol: Protocol::Ipv6, flaw: Flaw::Version });
        }
        let payload = match u16::from_be_bytes([head[4], head[5]]) {
            // A jumbogram, or segmentation offload: a packet that carries something has a length.
            0 if head[6] != NO_NEXT_HEADER => rest.len(),
            length => length.into(),
        };
        Ok(View { head, payload: rest.get(..payload).unwrap_or(rest), cut: payload > rest.len() })
    }

    /// Returns the differentiated services code point and ECN bits (RFC 2474, RFC 3168).
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        self.head[0] << 4 | self.head[1] >> 4
    }

    /// Returns the flow label, 20 bits (RFC 6437).
    #[inline]
    pub fn flow_label(&self) -> u32 {
        u32::from_be_bytes([0, self.head[1], self.head[2], self.head[3]]) & MAX_FLOW_LABEL
    }

    /// Returns the payload length field, which includes extension headers; 0 also in jumbograms.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        u16::from_be_bytes([self.head[4], self.head[5]])
    }

    /// Returns the IP protocol number of the header after this one.
    #[inline]
    pub fn next_header(&self) -> u8 {
        self.head[6]
    }

    /// Returns the hop limit.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.head[7]
    }

    /// Returns the source address.
    #[inline]
    pub fn source(&self) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.head[8..24]);
        octets.into()
    }

    /// Returns the destination address.
    #[inline]
    pub fn destination(&self) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.head[24..40]);
        octets.into()
    }

    /// Returns the payload, extension headers included, up to its length or the end of the bytes.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns whether the payload is truncated.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns the pseudo-header for the checksum of the payload, if no routing header has segments left.
    #[inline]
    pub fn pseudo(&self) -> Pseudo {
        Pseudo::V6 { source: self.source(), destination: self.destination() }
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        Header {
            traffic_class: self.traffic_class(),
            flow_label: self.flow_label(),
            next_header: self.next_header(),
            hop_limit: self.hop_limit(),
            source: self.source(),
            destination: self.destination(),
        }
    }
}

/// An IPv6 header; the payload length is computed when it is emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Differentiated services code point and ECN bits.
    pub traffic_class: u8,
    /// Flow label, at most [`MAX_FLOW_LABEL`].
    pub flow_label: u32,
    /// IP protocol number of the header after this one.
    pub next_header: u8,
    /// Hops the packet may take.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

impl Header {
    /// Creates a header for a payload that starts with the header `next_header`: 64 hops, addresses unspecified.
    pub fn new(next_header: u8) -> Self {
        Header {
            traffic_class: 0,
            flow_label: 0,
            next_header,
            hop_limit: 64,
            source: Ipv6Addr::UNSPECIFIED,
            destination: Ipv6Addr::UNSPECIFIED,
        }
    }

    /// Writes the header of a packet with `payload` bytes of payload, extension headers included, to the
    /// front of `out`; returns its length.
    pub fn emit(&self, payload: usize, out: &mut [u8]) -> Result<usize, EmitError> {
        let Ok(payload) = u16::try_from(payload) else {
            return Err(EmitError::Field("an IPv6 payload has at most 65535 bytes"));
        };
        if self.flow_label > MAX_FLOW_LABEL {
            return Err(EmitError::Field("a flow label has 20 bits"));
        }
        let (head, _) = room::<LEN>(out, LEN)?;
        let word = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label;
        head[0..4].copy_from_slice(&word.to_be_bytes());
        head[4..6].copy_from_slice(&payload.to_be_bytes());
        head[6] = self.next_header;
        head[7] = self.hop_limit;
        head[8..24].copy_from_slice(&self.source.octets());
        head[24..40].copy_from_slice(&self.destination.octets());
        Ok(LEN)
    }
}

/// Returns the protocol after the header.
#[inline(always)]
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    Ok(Step::new(LEN, view.payload.len(), next(view.next_header())))
}

/// Returns the protocol selected by a next header field.
#[inline(always)]
pub(crate) fn next(number: u8) -> Next {
    if number == NO_NEXT_HEADER { Next::End } else { Next::Number(Number::IpProtocol(number)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_header_round_trips() {
        let mut bytes = [0u8; LEN + 1];
        bytes[..8].copy_from_slice(&[0x6a, 0xb1, 0x23, 0x45, 0, 1, 59, 255]);
        bytes[8..24].copy_from_slice(&"fe80::1".parse::<Ipv6Addr>().unwrap().octets());
        bytes[24..40].copy_from_slice(&"ff02::2".parse::<Ipv6Addr>().unwrap().octets());
        let header = View::parse(&bytes).unwrap().header();
        assert_eq!((header.traffic_class, header.flow_label, header.hop_limit), (0xab, 0x1_2345, 255));
        assert_eq!((header.source.to_string(), header.destination.to_string()), ("fe80::1".into(), "ff02::2".into()));
        let mut out = [0; LEN];
        assert_eq!(header.emit(1, &mut out), Ok(LEN));
        assert_eq!(out, bytes[..LEN]);
        assert!(header.emit(65_536, &mut out).is_err());
        assert!(Header { flow_label: 1 << 20, ..header }.emit(1, &mut out).is_err());
    }

    #[test]
    fn the_length_bounds_the_payload() {
        let mut bytes = [0u8; LEN + 6];
        for (next_header, length, payload, cut) in
            [(6, 4, 4, false), (6, 9, 6, true), (6, 0, 6, false), (NO_NEXT_HEADER, 0, 0, false)]
        {
            Header::new(next_header).emit(length, &mut bytes).unwrap();
            let view = View::parse(&bytes).unwrap();
            assert_eq!((view.payload().len(), view.is_cut()), (payload, cut));
        }
        bytes[0] = 0x40;
        assert_eq!(View::parse(&bytes).unwrap_err().flaw, Flaw::Version);
    }
}
