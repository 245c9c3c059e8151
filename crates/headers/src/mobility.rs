//! The mobility header of IPv6 (RFC 6275 section 6.1).

use crate::error::{room, split};
use crate::registry::{self, Step};
use crate::{EmitError, Flaw, Malformed, Protocol, Pseudo, ipv6};

/// Bytes of the header without its message.
pub const LEN: usize = 6;
/// Bytes of the longest message.
pub const MAX_MESSAGE: usize = 256 * UNIT - LEN;

/// Unit of the length field in bytes, and length of the shortest header.
const UNIT: usize = 8;
/// Offset of the checksum field.
const CHECKSUM: usize = 4;

/// A mobility header and its payload.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    message: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a header, which must be complete.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, rest) = split::<LEN>(bytes, Protocol::Mobility)?;
        let message = (usize::from(head[1]) + 1) * UNIT - LEN;
        let short = Malformed { protocol: Protocol::Mobility, flaw: Flaw::Short };
        let (message, payload) = rest.split_at_checked(message).ok_or(short)?;
        Ok(View { head, message, payload })
    }

    /// Returns the IP protocol number of the header after this one: so far always 59, none.
    pub fn next_header(&self) -> u8 {
        self.head[0]
    }

    /// Returns the length of the header in bytes, message included: a multiple of 8.
    pub fn header_len(&self) -> usize {
        LEN + self.message.len()
    }

    /// Returns the type of the message.
    pub fn kind(&self) -> u8 {
        self.head[2]
    }

    /// Returns the checksum field.
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.head[4], self.head[5]])
    }

    /// Returns whether the checksum is correct.
    pub fn is_checksum_right(&self, pseudo: &Pseudo) -> bool {
        let sum = pseudo.sum(registry::MOBILITY, self.header_len() as u32);
        sum.with(self.head).with(self.message).checksum() == 0
    }

    /// Returns the message, options included.
    pub fn message(&self) -> &'a [u8] {
        self.message
    }

    /// Returns the payload after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header<'a> {
        Header { next_header: self.next_header(), kind: self.kind(), message: self.message }
    }
}

/// A mobility header; its length is computed when it is emitted, the checksum by [`fill_checksum`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// IP protocol number of the header after this one.
    pub next_header: u8,
    /// Type of the message.
    pub kind: u8,
    /// The message: 2 bytes more than a multiple of 8, at most [`MAX_MESSAGE`].
    pub message: &'a [u8],
}

impl Header<'_> {
    /// Writes the header, with a checksum of zero, to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let length = LEN + self.message.len();
        if !length.is_multiple_of(UNIT) || self.message.len() > MAX_MESSAGE {
            return Err(EmitError::Field("a mobility header has a multiple of 8 bytes, at most 2048"));
        }
        let (head, message) = room::<LEN>(out, length)?;
        *head = [self.next_header, (length / UNIT - 1) as u8, self.kind, 0, 0, 0];
        message.copy_from_slice(self.message);
        Ok(length)
    }
}

/// Computes the checksum of a complete header, message included, and writes it there.
pub fn fill_checksum(header: &mut [u8], pseudo: &Pseudo) -> Result<(), EmitError> {
    let (head, _) = room::<LEN>(header, LEN)?;
    head[CHECKSUM..].fill(0);
    let checksum = pseudo.checksum(registry::MOBILITY, header);
    header[CHECKSUM..LEN].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
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
    fn home_test_init_round_trips() {
        // RFC 6275 section 6.1.3: type 1, two reserved bytes, a cookie of 8.
        let pseudo = Pseudo::V6 { source: 1.into(), destination: 2.into() };
        let header = Header { next_header: 59, kind: 1, message: &[0, 0, 0, 0, 0, 0, 0, 0, 0, 7] };
        let mut bytes = [9; 17];
        assert_eq!(header.emit(&mut bytes), Ok(16));
        fill_checksum(&mut bytes[..16], &pseudo).unwrap();
        // 1 + 2 + 16 + 135 + 0x3b01 + 0x0100 + 7 = 0x3ca2, complemented.
        assert_eq!(bytes[..8], [59, 1, 1, 0, 0xc3, 0x5d, 0, 0]);
        let view = View::parse(&bytes).unwrap();
        assert!(view.is_checksum_right(&pseudo));
        assert_eq!((view.header(), view.payload()), (header, &[9][..]));
        bytes[15] = 8;
        assert!(!View::parse(&bytes).unwrap().is_checksum_right(&pseudo));
        assert_eq!(View::parse(&bytes[..15]).unwrap_err().flaw, Flaw::Short);
    }

    #[test]
    fn oversized_messages_are_rejected() {
        for length in [0, 1, 9, MAX_MESSAGE + 8] {
            let header = Header { next_header: 59, kind: 1, message: &vec![0; length] };
            assert!(matches!(header.emit(&mut [0; 4096]), Err(EmitError::Field(_))), "{length}");
        }
    }
}
