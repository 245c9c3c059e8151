//! Shim6, which moves the packets of multihomed hosts between addresses (RFC 5533 section 5).

use crate::error::{room, split};
use crate::registry::Step;
use crate::{EmitError, Flaw, Malformed, Protocol, ipv6};

/// Bytes of the shortest header; every length is a multiple of it.
pub const UNIT: usize = 8;
/// Bytes of the longest control message after the first two bytes of the header.
pub const MAX_MESSAGE: usize = 256 * UNIT - FRONT;
/// The largest context tag.
pub const MAX_TAG: u64 = (1 << 47) - 1;

/// Bytes before the tag or message.
const FRONT: usize = 2;
/// The bit that marks data, as opposed to control.
const DATA: u8 = 0x80;

/// A shim6 header and its payload.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: Header<'a>,
    length: usize,
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a header, which must be complete.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, _) = split::<UNIT>(bytes, Protocol::Shim6)?;
        let length = (usize::from(head[1]) + 1) * UNIT;
        let short = Malformed { protocol: Protocol::Shim6, flaw: Flaw::Short };
        let (header, payload) = bytes.split_at_checked(length).ok_or(short)?;
        let ([next_header, _], message) = split::<FRONT>(header, Protocol::Shim6)?;
        let next_header = *next_header;
        let [_, _, a, b, c, d, e, f] = *head;
        let header = if a & DATA == 0 {
            Header::Control { next_header, message }
        } else if length == UNIT {
            Header::Data { next_header, tag: u64::from_be_bytes([0, 0, a & !DATA, b, c, d, e, f]) }
        } else {
            return Err(Malformed { protocol: Protocol::Shim6, flaw: Flaw::HeaderLength });
        };
        Ok(View { header, length, payload })
    }

    /// Returns the length of the header in bytes: a multiple of 8.
    pub fn header_len(&self) -> usize {
        self.length
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header<'a> {
        self.header
    }

    /// Returns the payload after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A shim6 header; its length is computed when it is emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header<'a> {
    /// Header of a packet whose addresses were changed (section 5.2).
    Data {
        /// IP protocol number of the header after this one.
        next_header: u8,
        /// Context tag of the receiver, at most [`MAX_TAG`].
        tag: u64,
    },
    /// A message of the protocol itself (section 5.3).
    Control {
        /// IP protocol number of the header after this one: 59, none.
        next_header: u8,
        /// From the type on, checksum included: 6 bytes more than a multiple of 8, at most [`MAX_MESSAGE`].
        message: &'a [u8],
    },
}

impl Header<'_> {
    /// Returns the IP protocol number of the header after this one.
    pub fn next_header(&self) -> u8 {
        match *self {
            Header::Data { next_header, .. } | Header::Control { next_header, .. } => next_header,
        }
    }

    /// Writes the header to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let tagged;
        let message = match *self {
            Header::Data { tag, .. } if tag > MAX_TAG => return Err(EmitError::Field("a context tag has 47 bits")),
            Header::Data { tag, .. } => {
                tagged = (tag | u64::from(DATA) << 40).to_be_bytes();
                &tagged[FRONT..]
            }
            Header::Control { message: [0x80..=0xff, ..], .. } => {
                return Err(EmitError::Field("the type of a shim6 message has 7 bits"));
            }
            Header::Control { message, .. } => message,
        };
        let length = FRONT + message.len();
        if !length.is_multiple_of(UNIT) || message.len() > MAX_MESSAGE {
            return Err(EmitError::Field("a shim6 header has a multiple of 8 bytes, at most 2048"));
        }
        let (head, behind) = room::<FRONT>(out, length)?;
        *head = [self.next_header(), (length / UNIT - 1) as u8];
        behind.copy_from_slice(message);
        Ok(length)
    }
}

/// Returns the protocol after the header.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    Ok(Step::new(view.length, view.payload.len(), ipv6::next(view.header.next_header())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_round_trip() {
        let data = [17, 0, 0x80, 0, 0, 0, 0x12, 0x34];
        let control = [59, 1, 1, 0, 0xab, 0xcd, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
        for (bytes, header) in [
            (&data[..], Header::Data { next_header: 17, tag: 0x1234 }),
            (&control[..], Header::Control { next_header: 59, message: &control[2..] }),
        ] {
            let packet = [bytes, &[0xee]].concat();
            let view = View::parse(&packet).unwrap();
            assert_eq!((view.header(), view.header_len(), view.payload()), (header, bytes.len(), &[0xee][..]));
            let mut out = vec![9; bytes.len()];
            assert_eq!(header.emit(&mut out), Ok(bytes.len()));
            assert_eq!(out, bytes);
            assert_eq!(View::parse(&bytes[..bytes.len() - 1]).unwrap_err().flaw, Flaw::Short);
        }
        let long = [17, 1, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(View::parse(&long).unwrap_err().flaw, Flaw::HeaderLength);
    }

    #[test]
    fn values_beyond_the_header_are_rejected() {
        for header in [
            Header::Data { next_header: 17, tag: 1 << 47 },
            Header::Control { next_header: 59, message: &[0x80, 0, 0, 0, 0, 0] },
            Header::Control { next_header: 59, message: &[1, 0, 0, 0] },
            Header::Control { next_header: 59, message: &[1; MAX_MESSAGE + 8] },
        ] {
            assert!(matches!(header.emit(&mut [0; 4096]), Err(EmitError::Field(_))));
        }
    }
}
