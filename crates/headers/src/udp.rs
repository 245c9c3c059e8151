//! UDP (RFC 768).

use crate::checksum;
use crate::error::{room, split};
use crate::registry::{self, Step};
use crate::{EmitError, Flaw, Malformed, Protocol, Pseudo, Sum, lookup};

/// Bytes of the header.
pub const LEN: usize = 8;

/// Offset of the checksum field.
const CHECKSUM: usize = 6;

/// A UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    payload: &'a [u8],
    cut: bool,
}

impl<'a> View<'a> {
    /// Parses a datagram: the payload of an IP packet.
    #[inline(always)]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, rest) = split::<LEN>(bytes, Protocol::Udp)?;
        let payload = match u16::from_be_bytes([head[4], head[5]]) {
            0 => rest.len(), // a jumbogram, or segmentation offload
            length => {
                let too_short = Malformed { protocol: Protocol::Udp, flaw: Flaw::TotalLength };
                usize::from(length).checked_sub(LEN).ok_or(too_short)?
            }
        };
        Ok(View { head, payload: rest.get(..payload).unwrap_or(rest), cut: payload > rest.len() })
    }

    /// Returns the source port.
    #[inline]
    pub fn source_port(&self) -> u16 {
        u16::from_be_bytes([self.head[0], self.head[1]])
    }

    /// Returns the destination port.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        u16::from_be_bytes([self.head[2], self.head[3]])
    }

    /// Returns the length field: bytes of header and payload.
    #[inline]
    pub fn length(&self) -> u16 {
        u16::from_be_bytes([self.head[4], self.head[5]])
    }

    /// Returns the checksum field; 0 if the sender computed none.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.head[6], self.head[7]])
    }

    /// Returns whether the checksum is correct, or absent over IPv4 (over IPv6 it is mandatory, RFC 8200 section 8.1);
    /// meaningless for a datagram that is truncated or a fragment.
    pub fn is_checksum_right(&self, pseudo: &Pseudo) -> bool {
        if self.checksum() == 0 {
            return matches!(pseudo, Pseudo::V4 { .. });
        }
        self.sum(pseudo).checksum() == 0
    }

    /// Returns the checksum that the datagram should have.
    pub fn correct_checksum(&self, pseudo: &Pseudo) -> u16 {
        on_wire(self.sum(pseudo).corrected(self.checksum()))
    }

    fn sum(&self, pseudo: &Pseudo) -> Sum {
        let length = LEN + self.payload.len();
        pseudo.sum(registry::UDP, length as u32).with(self.head).with(self.payload)
    }

    /// Returns the payload, up to its length or the end of the bytes.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns whether the payload is truncated; also true for the first fragment of a datagram.
    #[inline]
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        Header { source_port: self.source_port(), destination_port: self.destination_port() }
    }
}

/// A UDP header; its length is computed when it is emitted, the checksum by [`fill_checksum`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

impl Header {
    /// Writes the header of a datagram with `payload` bytes of payload, and a checksum of zero (none), to
    /// the front of `out`; returns its length.
    pub fn emit(&self, payload: usize, out: &mut [u8]) -> Result<usize, EmitError> {
        let Some(length) = payload.checked_add(LEN).and_then(|length| u16::try_from(length).ok()) else {
            return Err(EmitError::Field("a UDP datagram has at most 65535 bytes"));
        };
        let (head, _) = room::<LEN>(out, LEN)?;
        head[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        head[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        head[4..6].copy_from_slice(&length.to_be_bytes());
        head[6..8].copy_from_slice(&[0, 0]);
        Ok(LEN)
    }
}

/// Computes the checksum of a complete datagram (header and payload) and writes it into its header.
///
/// ```
/// use linerate_headers::{Pseudo, udp};
/// let mut datagram = *b"--------hello";
/// udp::Header { source_port: 7, destination_port: 9 }.emit(5, &mut datagram)?;
/// let pseudo = Pseudo::V4 { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into() };
/// udp::fill_checksum(&mut datagram, &pseudo)?;
/// assert!(udp::View::parse(&datagram)?.is_checksum_right(&pseudo));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn fill_checksum(datagram: &mut [u8], pseudo: &Pseudo) -> Result<(), EmitError> {
    let (head, _) = room::<LEN>(datagram, LEN)?;
    head[CHECKSUM..CHECKSUM + 2].fill(0);
    let checksum = on_wire(pseudo.checksum(registry::UDP, datagram));
    datagram[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Returns the checksum field after a covered word changed from `old` to `new`; no checksum stays none.
#[inline]
pub fn update_checksum(field: u16, old: u16, new: u16) -> u16 {
    if field == 0 { 0 } else { on_wire(checksum::update(field, old, new)) }
}

/// A checksum of 0 is sent in its other form, since 0 means none.
#[inline]
fn on_wire(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

/// Returns the protocol selected by the ports.
#[inline(always)]
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    let next = lookup::protocol_by_ports(view.destination_port(), view.source_port());
    Ok(Step::new(LEN, view.payload.len(), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PSEUDO: Pseudo =
        Pseudo::V4 { source: std::net::Ipv4Addr::LOCALHOST, destination: std::net::Ipv4Addr::LOCALHOST };

    #[test]
    fn the_length_bounds_the_payload() {
        let mut bytes = [0u8; 12];
        for (length, expected) in [
            (0, Ok((4, false))),
            (7, Err(Flaw::TotalLength)),
            (8, Ok((0, false))),
            (12, Ok((4, false))),
            (13, Ok((4, true))),
        ] {
            bytes[4..6].copy_from_slice(&u16::to_be_bytes(length));
            let seen = View::parse(&bytes).map(|view| (view.payload().len(), view.is_cut()));
            assert_eq!(seen.map_err(|error| error.flaw), expected, "{length}");
        }
    }

    #[test]
    fn zero_checksum_is_sent_as_ffff_and_absent_stays_absent() {
        let mut datagram = [0u8; 10];
        Header::default().emit(2, &mut datagram).unwrap();
        fill_checksum(&mut datagram, &PSEUDO).unwrap();
        let checksum = View::parse(&datagram).unwrap().checksum();
        // Putting the checksum into the payload makes the sum 0xffff, the checksum 0.
        datagram[8..].copy_from_slice(&checksum.to_be_bytes());
        fill_checksum(&mut datagram, &PSEUDO).unwrap();
        let view = View::parse(&datagram).unwrap();
        assert_eq!(view.checksum(), 0xffff);
        assert!(view.is_checksum_right(&PSEUDO));
        assert_eq!(update_checksum(checksum, 0, checksum), 0xffff);
        assert_eq!(update_checksum(0xffff, checksum, 0), checksum);
        assert_eq!(update_checksum(0, 1, 2), 0);
        datagram[9] ^= 1;
        assert!(!View::parse(&datagram).unwrap().is_checksum_right(&PSEUDO));
    }

    #[test]
    fn unrepresentable_values_are_rejected() {
        assert!(matches!(Header::default().emit(65_528, &mut [0; 8]), Err(EmitError::Field(_))));
        assert_eq!(Header::default().emit(65_527, &mut [0; 8]), Ok(8));
        assert!(fill_checksum(&mut [0; 7], &PSEUDO).is_err());
    }
}
