//! The IP authentication header (RFC 4302).

use crate::error::{room, split};
use crate::registry::Step;
use crate::{EmitError, Flaw, Malformed, Protocol, ipv6};

/// Bytes of the header without the integrity check value.
pub const LEN: usize = 12;
/// Bytes of the longest integrity check value.
pub const MAX_CHECK: usize = (u8::MAX as usize + LENGTH_BIAS) * UNIT - LEN;

/// Unit of the length field, in bytes.
const UNIT: usize = 4;
/// Units that the length field omits.
const LENGTH_BIAS: usize = 2;

/// An authentication header and its payload.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    check: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a header, which must be complete.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let flawed = |flaw| Malformed { protocol: Protocol::Ah, flaw };
        let (head, rest) = split::<LEN>(bytes, Protocol::Ah)?;
        let length = (usize::from(head[1]) + LENGTH_BIAS) * UNIT;
        let check = length.checked_sub(LEN).ok_or(flawed(Flaw::HeaderLength))?;
        let (check, payload) = rest.split_at_checked(check).ok_or(flawed(Flaw::Short))?;
        Ok(View { head, check, payload })
    }

    /// Returns the IP protocol number of the header after this one.
    pub fn next_header(&self) -> u8 {
        self.head[0]
    }

    /// Returns the length of the header in bytes, check value included.
    pub fn header_len(&self) -> usize {
        LEN + self.check.len()
    }

    /// Returns the security parameters index.
    pub fn spi(&self) -> u32 {
        u32::from_be_bytes([self.head[4], self.head[5], self.head[6], self.head[7]])
    }

    /// Returns the sequence number of the packet in its security association.
    pub fn sequence(&self) -> u32 {
        u32::from_be_bytes([self.head[8], self.head[9], self.head[10], self.head[11]])
    }

    /// Returns the integrity check value, padding included.
    pub fn check(&self) -> &'a [u8] {
        self.check
    }

    /// Returns the payload after the header, in clear.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header<'a> {
        Header { next_header: self.next_header(), spi: self.spi(), sequence: self.sequence(), check: self.check }
    }
}

/// An authentication header; its length is computed when it is emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// IP protocol number of the header after this one.
    pub next_header: u8,
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number of the packet in its security association.
    pub sequence: u32,
    /// Integrity check value: a multiple of 4 bytes (after IPv6 4 more than a multiple of 8), at most
    /// [`MAX_CHECK`].
    pub check: &'a [u8],
}

impl Header<'_> {
    /// Writes the header to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        if !self.check.len().is_multiple_of(UNIT) || self.check.len() > MAX_CHECK {
            return Err(EmitError::Field("an integrity check value has a multiple of 4 bytes, at most 1016"));
        }
        let length = LEN + self.check.len();
        let (head, check) = room::<LEN>(out, length)?;
        head[0..4].copy_from_slice(&[self.next_header, (length / UNIT - LENGTH_BIAS) as u8, 0, 0]);
        head[4..8].copy_from_slice(&self.spi.to_be_bytes());
        head[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        check.copy_from_slice(self.check);
        Ok(length)
    }
}

/// Returns the protocol after the header.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    Ok(Step::new(view.header_len(), view.payload.len(), ipv6::next(view.next_header())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_with_96_bit_check_value_round_trips() {
        let mut bytes = [0xab; 25];
        bytes[..12].copy_from_slice(&[6, 4, 0, 0, 0, 0, 0x01, 0x02, 0, 0, 0, 9]);
        let view = View::parse(&bytes).unwrap();
        assert_eq!((view.next_header(), view.spi(), view.sequence(), view.header_len()), (6, 0x102, 9, 24));
        assert_eq!((view.check(), view.payload()), (&[0xab; 12][..], &[0xab][..]));
        let mut out = [9; 24];
        assert_eq!(view.header().emit(&mut out), Ok(24));
        assert_eq!(out, bytes[..24]);
        assert_eq!(View::parse(&bytes[..23]).unwrap_err().flaw, Flaw::Short);
        bytes[1] = 0;
        assert_eq!(View::parse(&bytes).unwrap_err().flaw, Flaw::HeaderLength);
    }

    #[test]
    fn oversized_check_values_are_rejected() {
        for length in [1, 6, MAX_CHECK + 4] {
            let header = Header { next_header: 6, spi: 1, sequence: 1, check: &vec![0; length] };
            assert!(matches!(header.emit(&mut [0; 2048]), Err(EmitError::Field(_))), "{length}");
        }
        let longest = Header { next_header: 6, spi: 1, sequence: 1, check: &[1; MAX_CHECK] };
        let mut out = [0; 2048];
        assert_eq!(longest.emit(&mut out), Ok(LEN + MAX_CHECK));
        assert_eq!(View::parse(&out).unwrap().header(), longest);
    }
}
