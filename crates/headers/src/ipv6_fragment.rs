//! The fragment header of IPv6 (RFC 8200 section 4.5).

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Malformed, Protocol, ipv6};

/// Bytes of the header.
pub const LEN: usize = 8;

/// A fragment header and its payload.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a header.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, payload) = split(bytes, Protocol::Fragment)?;
        Ok(View { head, payload })
    }

    /// Returns the IP protocol number of the header that the whole packet's fragmentable part starts with.
    pub fn next_header(&self) -> u8 {
        self.head[0]
    }

    /// Returns the offset of the payload in the fragmentable part, in bytes.
    pub fn fragment_offset(&self) -> u16 {
        u16::from_be_bytes([self.head[2], self.head[3]]) & !7
    }

    /// Returns whether fragments follow this one.
    pub fn more_fragments(&self) -> bool {
        self.head[3] & 1 != 0
    }

    /// Returns the identification, common to all fragments of a packet.
    pub fn identification(&self) -> u32 {
        u32::from_be_bytes([self.head[4], self.head[5], self.head[6], self.head[7]])
    }

    /// Returns the payload after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        Header {
            next_header: self.next_header(),
            fragment_offset: self.fragment_offset(),
            more_fragments: self.more_fragments(),
            identification: self.identification(),
        }
    }
}

/// A fragment header; the reserved bits are discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// IP protocol number of the header that the whole packet's fragmentable part starts with.
    pub next_header: u8,
    /// Offset of the payload in the fragmentable part, in bytes; a multiple of 8.
    pub fragment_offset: u16,
    /// True if fragments follow this one.
    pub more_fragments: bool,
    /// Identification, common to all fragments of a packet.
    pub identification: u32,
}

impl Header {
    /// Writes the header to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        if !self.fragment_offset.is_multiple_of(8) {
            return Err(EmitError::Field("a fragment offset is a multiple of 8"));
        }
        let (head, _) = room::<LEN>(out, LEN)?;
        head[0..2].copy_from_slice(&[self.next_header, 0]);
        head[2..4].copy_from_slice(&(self.fragment_offset | u16::from(self.more_fragments)).to_be_bytes());
        head[4..8].copy_from_slice(&self.identification.to_be_bytes());
        Ok(LEN)
    }
}

/// Returns the protocol after the header; unknown for a fragment that is not the first.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    let next = if view.fragment_offset() == 0 { ipv6::next(view.next_header()) } else { Next::Fragment };
    Ok(Step::new(LEN, view.payload.len(), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_header_round_trips() {
        let bytes = [17, 0, 0x05, 0xa9, 0, 0, 0x12, 0x34];
        let header = View::parse(&bytes).unwrap().header();
        assert_eq!(
            header,
            Header { next_header: 17, fragment_offset: 1448, more_fragments: true, identification: 0x1234 }
        );
        let mut out = [0xff; LEN];
        assert_eq!(header.emit(&mut out), Ok(LEN));
        assert_eq!(out, bytes);
        assert!(Header { fragment_offset: 3, ..header }.emit(&mut out).is_err());
        assert_eq!(step(&bytes).unwrap().next, Next::Fragment);
    }
}
