//! The word in front of what a pseudowire carries over MPLS (RFC 4385): the control word of data, the
//! associated channel header of its maintenance.

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{Flaw, Malformed, Number, Protocol, Unfit, ethernet};

/// Bytes of the word.
pub const LEN: usize = 4;

/// Channel type of IPv4 in an associated channel (RFC 4385 section 6).
pub const CHANNEL_IPV4: u16 = 0x0021;
/// Channel type of IPv6 in an associated channel.
pub const CHANNEL_IPV6: u16 = 0x0057;

/// The first four bits in front of data.
const DATA: u8 = 0;
/// The first four bits in front of maintenance.
const CHANNEL: u8 = 1;

/// The word and what is behind it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: Header,
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Looks at the word behind a label stack.
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

    /// The word as a value.
    pub fn header(&self) -> Header {
        self.header
    }

    /// Everything behind the word.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The word in front of what a pseudowire carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Of data: the control word.
    Data {
        /// Flags, fragmentation and length, 12 bits; all zero where Ethernet is carried (RFC 4448
        /// section 4.6).
        flags: u16,
        /// Counts the packets; 0 where they are not counted.
        sequence: u16,
    },
    /// Of maintenance: the associated channel header. Its reserved byte is not kept.
    Channel {
        /// Version, 4 bits, 0 so far.
        version: u8,
        /// What the channel carries, as [`CHANNEL_IPV4`].
        channel: u16,
    },
}

impl Header {
    /// Writes the word to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, Unfit> {
        let (first, last) = match *self {
            Header::Data { flags: 0x1000.., .. } => return Err(Unfit::Field("a control word has 12 bits of flags")),
            Header::Channel { version: 0x10.., .. } => return Err(Unfit::Field("a channel version has 4 bits")),
            Header::Data { flags, sequence } => (flags, sequence),
            Header::Channel { version, channel } => (0x1000 | u16::from(version) << 8, channel),
        };
        let (head, _) = room::<LEN>(out, LEN)?;
        head[0..2].copy_from_slice(&first.to_be_bytes());
        head[2..4].copy_from_slice(&last.to_be_bytes());
        Ok(LEN)
    }
}

/// What follows the word. Nothing says what data is; Ethernet by far the most often.
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

/// Whether a payload that may begin with the word is an Ethernet frame without one: it looks like a frame, and what is
/// behind the word does not.
pub(crate) fn is_plain_ethernet(payload: &[u8]) -> bool {
    ethernet::is_likely(payload) && !ethernet::is_likely(payload.get(LEN..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_read_and_write() {
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
    fn frames_without_a_word_are_told_by_their_type_field() {
        let mut frame = [0u8; 32];
        assert!(!is_plain_ethernet(&frame));
        frame[12..14].copy_from_slice(&[0x08, 0x00]);
        assert!(is_plain_ethernet(&frame));
        frame[16..18].copy_from_slice(&[0x08, 0x06]);
        assert!(!is_plain_ethernet(&frame), "both could be: the standard asks for the word");
        assert!(!is_plain_ethernet(&frame[..13]));
    }
}
