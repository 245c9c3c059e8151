//! The IP encapsulating security payload (RFC 4303), whose contents after the header are encrypted.

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Malformed, Protocol};

/// Bytes of the header.
pub const LEN: usize = 8;

/// An ESP packet.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a packet: the payload of an IP packet, or of a UDP datagram with NAT traversal (RFC 3948), which cannot
    /// be identified with certainty.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, payload) = split(bytes, Protocol::Esp)?;
        Ok(View { head, payload })
    }

    /// Returns the security parameters index.
    pub fn spi(&self) -> u32 {
        u32::from_be_bytes([self.head[0], self.head[1], self.head[2], self.head[3]])
    }

    /// Returns the sequence number of the packet in its security association.
    pub fn sequence(&self) -> u32 {
        u32::from_be_bytes([self.head[4], self.head[5], self.head[6], self.head[7]])
    }

    /// Returns the payload after the header: encrypted payload, trailer and integrity check value.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        Header { spi: self.spi(), sequence: self.sequence() }
    }
}

/// An ESP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Security parameters index.
    pub spi: u32,
    /// Sequence number of the packet in its security association.
    pub sequence: u32,
}

impl Header {
    /// Writes the header to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let (head, _) = room::<LEN>(out, LEN)?;
        head[0..4].copy_from_slice(&self.spi.to_be_bytes());
        head[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        Ok(LEN)
    }
}

/// Returns the length of the header; nothing readable follows.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    Ok(Step::new(LEN, View::parse(bytes)?.payload.len(), Next::End))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_header_round_trips() {
        let bytes = [0, 0, 0x12, 0x34, 0, 0, 0, 7, 0xee];
        let view = View::parse(&bytes).unwrap();
        assert_eq!((view.header(), view.payload()), (Header { spi: 0x1234, sequence: 7 }, &[0xee][..]));
        let mut out = [9; LEN];
        assert_eq!(view.header().emit(&mut out), Ok(LEN));
        assert_eq!(out, bytes[..LEN]);
        assert!(View::parse(&bytes[..7]).is_err() && view.header().emit(&mut out[..7]).is_err());
    }
}
