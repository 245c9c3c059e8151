//! ICMPv6 (RFC 4443).

use crate::error::{room, split};
use crate::registry::{self, Next, Step};
use crate::{EmitError, Malformed, Protocol, Pseudo};

/// Bytes of the header: type, code, checksum. Some messages have no more (RFC 4443 section 2.1 leaves
/// the body to the type).
pub const LEN: usize = 4;
/// Type of an echo request.
pub const ECHO_REQUEST: u8 = 128;
/// Type of an echo reply.
pub const ECHO_REPLY: u8 = 129;

/// Offset of the checksum field.
const CHECKSUM: usize = 2;

/// An ICMPv6 message.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    body: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a message: the payload of an IPv6 packet.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, body) = split(bytes, Protocol::Icmpv6)?;
        Ok(View { head, body })
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
    pub fn is_checksum_right(&self, pseudo: &Pseudo) -> bool {
        let length = LEN + self.body.len();
        pseudo.sum(registry::ICMPV6, length as u32).with(self.head).with(self.body).checksum() == 0
    }

    /// Returns the message body; the first four bytes of an echo's are an [`crate::icmp::Echo`].
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        Header { kind: self.kind(), code: self.code() }
    }
}

/// An ICMPv6 header; the checksum is computed by [`fill_checksum`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type of the message.
    pub kind: u8,
    /// Code, within the type.
    pub code: u8,
}

impl Header {
    /// Writes the header, with a checksum of zero, to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let (head, _) = room::<LEN>(out, LEN)?;
        *head = [self.kind, self.code, 0, 0];
        Ok(LEN)
    }
}

/// Computes the checksum of a complete message (header and body) and writes it into its header.
pub fn fill_checksum(message: &mut [u8], pseudo: &Pseudo) -> Result<(), EmitError> {
    let (head, _) = room::<LEN>(message, LEN)?;
    head[CHECKSUM..CHECKSUM + 2].fill(0);
    let checksum = pseudo.checksum(registry::ICMPV6, message);
    message[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Returns the length of the header; the body follows.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    Ok(Step::new(LEN, View::parse(bytes)?.body.len(), Next::End))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::icmp::Echo;
    use std::net::Ipv6Addr;

    #[test]
    fn echo_request_round_trips() {
        let pseudo = Pseudo::V6 { source: Ipv6Addr::LOCALHOST, destination: Ipv6Addr::LOCALHOST };
        let mut message = [0; 8];
        Header { kind: ECHO_REQUEST, code: 0 }.emit(&mut message).unwrap();
        message[4..].copy_from_slice(&<[u8; 4]>::from(Echo { identifier: 2, sequence: 3 }));
        fill_checksum(&mut message, &pseudo).unwrap();
        // 1 + 1 (addresses) + 8 (length) + 58 (next header) + 0x8000 + 2 + 3 = 0x8049, complemented.
        assert_eq!(message, [128, 0, 0x7f, 0xb6, 0, 2, 0, 3]);
        let view = View::parse(&message).unwrap();
        assert!(view.is_checksum_right(&pseudo));
        assert_eq!((view.header(), view.body()), (Header { kind: ECHO_REQUEST, code: 0 }, &[0, 2, 0, 3][..]));
        assert!(View::parse(&message[..3]).is_err() && fill_checksum(&mut message[..3], &pseudo).is_err());
    }
}
