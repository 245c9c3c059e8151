//! The word before the payload of a pseudowire over MPLS (RFC 4385): the control word of data, the associated channel
//! header of its maintenance.

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Flaw, Malformed, Number, Protocol, ethernet};

/// Bytes of the word.
pub const LEN: usize = 4;

/// Channel type of IPv4 in an associated channel (RFC 4385 section 6).
pub const CHANNEL_IPV4: u16 = 0x0021;
/// Channel type of IPv6 in an associated channel.
pub const CHANNEL_IPV6: u16 = 0x0057;

/// The first four bits of a data word.
const DATA: u8 = 0;
/// The first four bits of a maintenance word.
const CHANNEL: u8 = 1;

/// The word and its payload.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: Header,
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses the word after a label stack.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let ([kind, low, high, end], payload) = split::<LEN>(bytes, Protocol::Pseudowire)?;
        let last = u16::from_be_bytes([*high, *end]);
        let header = match kind >> 4 {
            DATA => Header::Data { flags: u16::from_be_bytes([*kind, *low]), sequence: last },
            CHANNEL => Header::Channel { version: kind & 0xf, channel: last },
            _ => return Err(Malformed { protocol: Protocol::Pseudowire, flaw: Flaw::Version }),
        };
        Ok(View { header, payload })
    }

    /// Returns the word as a value.
    pub fn header(&self) -> Header {
        self.header
    }

    /// Returns the payload after the word.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The word before the payload of a pseudowire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Control word of data.
    Data {
        /// Flags, fragmentation and length, 12 bits; all zero for Ethernet (RFC 4448 section 4.6).
        flags: u16,
        /// Sequence number; 0 if unused.
        sequence: u16,
    },
    /// Associated channel header of maintenance. Its reserved byte is discarded.
    Channel {
        /// Version, 4 bits, 0 so far.
        version: u8,
        /// Protocol of the channel, such as [`CHANNEL_IPV4`].
        channel: u16,
    },
}

impl Header {
    /// Writes the word to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let (first, last) = match *self {
            Header::Data { flags: 0x1000.., .. } => {
                return Err(EmitError::Field("a control word has 12 bits of flags"));
            }
            Header::Channel { version: 0x10.., .. } => return Err(EmitError::Field("a channel version has 4 bits")),
            Header::Data { flags, sequence } => (flags, sequence),
            Header::Channel { version, channel } => (0x1000 | u16::from(version) << 8, channel),
        };
        let (head, _) = room::<LEN>(out, LEN)?;
        head[0..2].copy_from_slice(&first.to_be_bytes());
        head[2..4].copy_from_slice(&last.to_be_bytes());
        Ok(LEN)
    }
}

/// Returns the protocol after the word. Data has no type; it is mostly Ethernet.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    let next = match view.header {
        Header::Data { .. } => Next::Protocol(Protocol::Ethernet),
        Header::Channel { channel: CHANNEL_IPV4, .. } => Next::Number(Number::IpVersion(4)),
        Header::Channel { channel: CHANNEL_IPV6, .. } => Next::Number(Number::IpVersion(6)),
        Header::Channel { .. } => Next::End,
    };
    Ok(Step::new(LEN, view.payload.len(), next))
}

/// Returns whether a payload that may begin with the word is an Ethernet frame without one: it looks like a frame, and
/// the bytes after the word do not.
pub(crate) fn is_plain_ethernet(payload: &[u8]) -> bool {
    ethernet::is_likely(payload) && !ethernet::is_likely(payload.get(LEN..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for (bytes, header) in [
            ([0x00, 0x00, 0x12, 0x34], Header::Data { flags: 0, sequence: 0x1234 }),
            ([0x0a, 0xbc, 0, 1], Header::Data { flags: 0xabc, sequence: 1 }),
            ([0x10, 0, 0x00, 0x21], Header::Channel { version: 0, channel: CHANNEL_IPV4 }),
        ] {
            assert_eq!(View::parse(&bytes).unwrap().header(), header);
            let mut out = [9; LEN];
            assert_eq!(header.emit(&mut out), Ok(LEN));
            assert_eq!(out, bytes);
        }
        assert_eq!(View::parse(&[0x20, 0, 0, 0]).unwrap_err().flaw, Flaw::Version);
        assert!(Header::Data { flags: 0x1000, sequence: 0 }.emit(&mut [0; 4]).is_err());
        assert!(Header::Channel { version: 16, channel: 0 }.emit(&mut [0; 4]).is_err());
    }

    #[test]
    fn frames_without_a_word_are_recognised_by_type_field() {
        let mut frame = [0u8; 32];
        assert!(!is_plain_ethernet(&frame));
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        assert!(is_plain_ethernet(&frame));
        frame[16..18].copy_from_slice(&[0x08, 0x06]);
        assert!(!is_plain_ethernet(&frame), "ambiguous: the standard requires the word");
        assert!(!is_plain_ethernet(&frame[..13]));
    }
}
