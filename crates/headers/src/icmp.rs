//! ICMP (RFC 792).

use crate::checksum::Sum;
use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Malformed, Protocol};

/// Bytes of the header: type, code, checksum, and four whose meaning depends on the type.
pub const LEN: usize = 8;
/// Type of an echo reply.
pub const ECHO_REPLY: u8 = 0;
/// Type of an echo request.
pub const ECHO_REQUEST: u8 = 8;

/// Offset of the checksum field.
const CHECKSUM: usize = 2;

/// An ICMP message.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a message: the payload of an IPv4 packet.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, payload) = split(bytes, Protocol::Icmp)?;
        Ok(View { head, payload })
    }

    /// Returns the type of the message.
    #[inline]
    pub fn kind(&self) -> u8 {
        self.head[0]
    }

    /// Returns the code, within the type.
    #[inline]
    pub fn code(&self) -> u8 {
        self.head[1]
    }

    /// Returns the checksum field.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.head[2], self.head[3]])
    }

    /// Returns whether the checksum is correct; meaningless for a message that is truncated or a fragment.
    pub fn is_checksum_right(&self) -> bool {
        Sum::of(self.head).with(self.payload).checksum() == 0
    }

    /// Returns the last four bytes of the header; [`Echo::from`] reads those of an echo.
    #[inline]
    pub fn rest(&self) -> [u8; 4] {
        let [_, _, _, _, a, b, c, d] = *self.head;
        [a, b, c, d]
    }

    /// Returns the payload after the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        Header { kind: self.kind(), code: self.code(), rest: self.rest() }
    }
}

/// An ICMP header; the checksum is computed by [`fill_checksum`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type of the message.
    pub kind: u8,
    /// Code, within the type.
    pub code: u8,
    /// Four bytes whose meaning depends on the type.
    pub rest: [u8; 4],
}

impl Header {
    /// Writes the header, with a checksum of zero, to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let (head, _) = room::<LEN>(out, LEN)?;
        let [a, b, c, d] = self.rest;
        *head = [self.kind, self.code, 0, 0, a, b, c, d];
        Ok(LEN)
    }
}

/// The last four bytes of an echo's header, in ICMP and ICMPv6.
///
/// ```
/// use linerate_headers::icmp::{self, Echo};
/// let echo = Echo { identifier: 7, sequence: 1 };
/// let mut message = [0; 8];
/// icmp::Header { kind: icmp::ECHO_REQUEST, code: 0, rest: echo.into() }.emit(&mut message)?;
/// icmp::fill_checksum(&mut message)?;
/// let view = icmp::View::parse(&message)?;
/// assert_eq!((Echo::from(view.rest()), view.checksum()), (echo, 0xf7f7));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Identifies the sender's sequence of echoes.
    pub identifier: u16,
    /// Sequence number of the echo.
    pub sequence: u16,
}

impl From<[u8; 4]> for Echo {
    fn from([a, b, c, d]: [u8; 4]) -> Self {
        Echo { identifier: u16::from_be_bytes([a, b]), sequence: u16::from_be_bytes([c, d]) }
    }
}

impl From<Echo> for [u8; 4] {
    fn from(echo: Echo) -> Self {
        let ([a, b], [c, d]) = (echo.identifier.to_be_bytes(), echo.sequence.to_be_bytes());
        [a, b, c, d]
    }
}

/// Computes the checksum of a complete message (header and payload) and writes it into its header.
pub fn fill_checksum(message: &mut [u8]) -> Result<(), EmitError> {
    let (head, _) = room::<LEN>(message, LEN)?;
    head[CHECKSUM..CHECKSUM + 2].fill(0);
    let checksum = Sum::of(message).checksum();
    message[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Returns the length of the header; the payload follows.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    Ok(Step::new(LEN, View::parse(bytes)?.payload.len(), Next::End))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_echo_request_is_parsed() {
        let message = [8, 0, 0xf7, 0xff - 8 - 6, 0, 1, 0, 13, 0, 0];
        let view = View::parse(&message).unwrap();
        assert!(view.is_checksum_right());
        assert_eq!((view.kind(), Echo::from(view.rest())), (ECHO_REQUEST, Echo { identifier: 1, sequence: 13 }));
        let mut out = [9; 10];
        view.header().emit(&mut out).unwrap();
        out[8..].fill(0);
        fill_checksum(&mut out).unwrap();
        assert_eq!(out, message);
        assert!(View::parse(&message[..7]).is_err() && fill_checksum(&mut out[..7]).is_err());
    }
}
