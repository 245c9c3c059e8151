//! Cisco HDLC: the frames of Cisco's serial lines. Described in RFC 1547 section 4.3.1 and, for its numbers, the
//! `LINKTYPE_C_HDLC` page of tcpdump.org.

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Malformed, Number, Protocol};

/// Bytes of the header.
pub const LEN: usize = 4;

/// Address of a unicast frame.
pub const UNICAST: u8 = 0x0f;
/// Address of a broadcast frame.
pub const BROADCAST: u8 = 0x8f;
/// Type field of the line's keep-alives (SLARP).
pub const KEEP_ALIVE: u16 = 0x8035;

/// A Cisco HDLC frame, without flags and FCS.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a frame.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, payload) = split(bytes, Protocol::Chdlc)?;
        Ok(View { head, payload })
    }

    /// Returns [`UNICAST`] or [`BROADCAST`].
    pub fn address(&self) -> u8 {
        self.head[0]
    }

    /// Returns the EtherType of the payload, or [`KEEP_ALIVE`].
    pub fn ether_type(&self) -> u16 {
        u16::from_be_bytes([self.head[2], self.head[3]])
    }

    /// Returns the payload after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        Header { address: self.address(), ether_type: self.ether_type() }
    }
}

/// A Cisco HDLC header; its control byte is always 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`UNICAST`] or [`BROADCAST`].
    pub address: u8,
    /// EtherType of the payload, or [`KEEP_ALIVE`].
    pub ether_type: u16,
}

impl Header {
    /// Writes the header to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let (head, _) = room::<LEN>(out, LEN)?;
        let [high, low] = self.ether_type.to_be_bytes();
        *head = [self.address, 0, high, low];
        Ok(LEN)
    }
}

/// Returns the protocol after the header.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    Ok(Step::new(LEN, view.payload.len(), Next::Number(Number::EtherType(view.ether_type()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_header_round_trips() {
        let bytes = [0x0f, 0, 0x08, 0x00, 0x45];
        let view = View::parse(&bytes).unwrap();
        assert_eq!((view.header(), view.payload()), (Header { address: UNICAST, ether_type: 0x0800 }, &[0x45][..]));
        let mut out = [9; LEN];
        assert_eq!(view.header().emit(&mut out), Ok(LEN));
        assert_eq!(out, bytes[..LEN]);
        assert!(View::parse(&bytes[..3]).is_err() && view.header().emit(&mut out[..3]).is_err());
    }
}
