//! Ethernet II and IEEE 802.3 frames, without preamble and FCS (IEEE 802.3 clause 3).

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, MacAddr, Malformed, Number, Protocol, llc, lookup};

/// Bytes of the header.
pub const LEN: usize = 14;

/// The type field up to here is a length (IEEE 802.3 clause 3.2.6); from 0x0600 on it is an EtherType.
pub const MAX_LENGTH: u16 = 1500;

/// Maximum bytes after the header of a padded frame: 46, and an FCS.
const MOST_PADDED: usize = 50;

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;

/// An Ethernet frame.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a frame; only the header must be complete.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, rest) = split(bytes, Protocol::Ethernet)?;
        let type_field = u16::from_be_bytes([head[12], head[13]]);
        Ok(View { head, payload: bounded(type_field, rest) })
    }

    /// Returns the destination address.
    #[inline]
    pub fn destination(&self) -> MacAddr {
        let [a, b, c, d, e, f, ..] = *self.head;
        MacAddr([a, b, c, d, e, f])
    }

    /// Returns the source address.
    #[inline]
    pub fn source(&self) -> MacAddr {
        let [_, _, _, _, _, _, a, b, c, d, e, f, ..] = *self.head;
        MacAddr([a, b, c, d, e, f])
    }

    /// Returns the type field: an EtherType, or at most [`MAX_LENGTH`] the length of an 802.3 payload.
    #[inline]
    pub fn ether_type(&self) -> u16 {
        u16::from_be_bytes([self.head[12], self.head[13]])
    }

    /// Returns the payload after the header, padding included; in 802.3 frames without padding.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        Header { destination: self.destination(), source: self.source(), ether_type: self.ether_type() }
    }
}

/// An Ethernet header.
///
/// ```
/// use linerate_headers::{MacAddr, ethernet};
/// let header = ethernet::Header {
///     destination: MacAddr::BROADCAST,
///     source: "02:00:00:00:00:01".parse()?,
///     ether_type: ethernet::ARP,
/// };
/// let mut frame = [0; 60];
/// let length = header.emit(&mut frame)?;
/// assert_eq!(ethernet::View::parse(&frame)?.header(), header);
/// assert_eq!(length, 14);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Destination address.
    pub destination: MacAddr,
    /// Source address.
    pub source: MacAddr,
    /// EtherType, or at most [`MAX_LENGTH`] the length of an 802.3 payload.
    pub ether_type: u16,
}

impl Header {
    /// Writes the header to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let (head, _) = room::<LEN>(out, LEN)?;
        head[0..6].copy_from_slice(&self.destination.0);
        head[6..12].copy_from_slice(&self.source.0);
        head[12..14].copy_from_slice(&self.ether_type.to_be_bytes());
        Ok(LEN)
    }
}

/// Returns the protocol after the header.
#[inline(always)]
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    Ok(Step::new(LEN, view.payload.len(), next(view.ether_type())))
}

/// Returns the protocol selected by a type field: 802.3 lengths select LLC.
#[inline(always)]
pub(crate) fn next(type_field: u16) -> Next {
    if type_field <= MAX_LENGTH { Next::Protocol(Protocol::Llc) } else { Next::Number(Number::EtherType(type_field)) }
}

/// Returns whether bytes without a reliable selector are a frame: its type field is known, or is its length without
/// padding.
pub(crate) fn is_likely(bytes: &[u8]) -> bool {
    let Ok((head, rest)) = split::<LEN>(bytes, Protocol::Ethernet) else { return false };
    let type_field = u16::from_be_bytes([head[12], head[13]]);
    let length = usize::from(type_field);
    match next(type_field) {
        Next::Number(number) => lookup::protocol(number).is_some(),
        _ => length >= llc::LEN && (length == rest.len() || length < rest.len() && rest.len() <= MOST_PADDED),
    }
}

/// Returns the payload after a type field: up to the length, if it is one.
#[inline(always)]
pub(crate) fn bounded(type_field: u16, rest: &[u8]) -> &[u8] {
    if type_field <= MAX_LENGTH { rest.get(..type_field.into()).unwrap_or(rest) } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_bounds_the_payload_and_a_type_does_not() {
        let mut frame = [0u8; 60];
        for (field, payload) in [(3, 3), (0, 0), (46, 46), (1500, 46), (1501, 46), (0x0800, 46)] {
            frame[12..14].copy_from_slice(&u16::to_be_bytes(field));
            assert_eq!(View::parse(&frame).unwrap().payload().len(), payload, "{field}");
        }
        assert!(View::parse(&frame[..13]).is_err());
        assert!(View::parse(&frame[..14]).unwrap().payload().is_empty());
    }
}
