//! IGMP: version 1 (RFC 1112 appendix I), 2 (RFC 2236) and 3 (RFC 3376).

use crate::checksum::Sum;
use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Malformed, Protocol};
use std::net::Ipv4Addr;

/// Bytes common to all messages.
pub const LEN: usize = 8;

/// Type of a query of any version.
pub const QUERY: u8 = 0x11;
/// Type of a report of version 2.
pub const REPORT_2: u8 = 0x16;
/// Type of a report of version 3.
pub const REPORT_3: u8 = 0x22;

/// Bytes of a group record without sources.
const RECORD: usize = 8;
/// Bytes after the first 8 of a query of version 3, in front of its sources.
const QUERY_3: usize = 4;
/// Offset of the checksum field.
const CHECKSUM: usize = 2;

/// An IGMP message.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a message: the payload of an IPv4 packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, payload) = split(bytes, Protocol::Igmp)?;
        Ok(View { head, payload })
    }

    /// Returns [`QUERY`], [`REPORT_2`] or another type.
    pub fn kind(&self) -> u8 {
        self.head[0]
    }

    /// Returns the maximum response time of a query, in tenths of a second; from 128 on in version 3 encoded as in RFC
    /// 3376 section 4.1.1. 0 in version 1.
    pub fn max_response(&self) -> u8 {
        self.head[1]
    }

    /// Returns the checksum field.
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.head[2], self.head[3]])
    }

    /// Returns whether the checksum is correct; meaningless for a message that is truncated or a fragment.
    pub fn is_checksum_right(&self) -> bool {
        Sum::of(self.head).with(self.payload).checksum() == 0
    }

    /// Returns the group, for all messages except [`REPORT_3`].
    pub fn group(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = *self.head;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Returns the captured sources of a query of version 3; none for other messages.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = Ipv4Addr> + use<'a> {
        let listed = match self.payload {
            [_, _, high, low, sources @ ..] if self.kind() == QUERY => take(sources, u16::from_be_bytes([*high, *low])),
            _ => &[],
        };
        listed.iter().map(|octets| Ipv4Addr::from(*octets))
    }

    /// Returns the group records of a [`REPORT_3`]; none for other messages. The list ends at the first that does not
    /// fit.
    pub fn records(&self) -> Records<'a> {
        let [.., high, low] = *self.head;
        let left = if self.kind() == REPORT_3 { u16::from_be_bytes([high, low]) } else { 0 };
        Records { rest: self.payload, left }
    }

    /// Returns everything after the first 8 bytes.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the first 8 bytes as a value.
    pub fn header(&self) -> Header {
        let [.., a, b, c, d] = *self.head;
        Header { kind: self.kind(), max_response: self.max_response(), rest: [a, b, c, d] }
    }
}

/// Record of one group in a report of version 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Type: 1 to 6 (RFC 3376 section 4.2.12).
    pub kind: u8,
    /// The group.
    pub group: Ipv4Addr,
    /// Addresses of sources, 4 bytes each.
    pub sources: &'a [[u8; 4]],
}

impl Record<'_> {
    /// Writes the record to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let Ok(count) = u16::try_from(self.sources.len()) else {
            return Err(EmitError::Field("a group record has at most 65535 sources"));
        };
        let sources = self.sources.as_flattened();
        let (head, behind) = room::<RECORD>(out, RECORD + sources.len())?;
        head[0..2].copy_from_slice(&[self.kind, 0]);
        head[2..4].copy_from_slice(&count.to_be_bytes());
        head[4..8].copy_from_slice(&self.group.octets());
        behind.copy_from_slice(sources);
        Ok(RECORD + sources.len())
    }
}

/// Iterates over the records of a report of version 3.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    left: u16,
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let ([kind, auxiliary, high, low, a, b, c, d], rest) = self.rest.split_first_chunk::<RECORD>()?;
        let (sources, rest) = rest.split_at_checked(4 * usize::from(u16::from_be_bytes([*high, *low])))?;
        self.rest = rest.get(4 * usize::from(*auxiliary)..)?;
        Some(Record { kind: *kind, group: Ipv4Addr::new(*a, *b, *c, *d), sources: sources.as_chunks().0 })
    }
}

/// The first 8 bytes of a message; the checksum is computed by [`fill_checksum`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`QUERY`], [`REPORT_2`] or another type.
    pub kind: u8,
    /// As [`View::max_response`].
    pub max_response: u8,
    /// The group; for a [`REPORT_3`] two zero bytes and the number of records.
    pub rest: [u8; 4],
}

impl Header {
    /// Writes the header, with a checksum of zero, to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let (head, _) = room::<LEN>(out, LEN)?;
        let [a, b, c, d] = self.rest;
        *head = [self.kind, self.max_response, 0, 0, a, b, c, d];
        Ok(LEN)
    }
}

/// Fields of a query of version 3 after its header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query<'a> {
    /// Flags and the querier's robustness, as on the wire (RFC 3376 sections 4.1.5 and 4.1.6).
    pub flags: u8,
    /// The querier's interval, in seconds, encoded as in section 4.1.7.
    pub interval: u8,
    /// Addresses of sources, 4 bytes each.
    pub sources: &'a [[u8; 4]],
}

impl Query<'_> {
    /// Writes it to the front of `out`, after a header; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let Ok(count) = u16::try_from(self.sources.len()) else {
            return Err(EmitError::Field("a query has at most 65535 sources"));
        };
        let sources = self.sources.as_flattened();
        let (head, behind) = room::<QUERY_3>(out, QUERY_3 + sources.len())?;
        let [high, low] = count.to_be_bytes();
        *head = [self.flags, self.interval, high, low];
        behind.copy_from_slice(sources);
        Ok(QUERY_3 + sources.len())
    }
}

/// Computes the checksum of a complete message and writes it into its header.
pub fn fill_checksum(message: &mut [u8]) -> Result<(), EmitError> {
    let (head, _) = room::<LEN>(message, LEN)?;
    head[CHECKSUM..CHECKSUM + 2].fill(0);
    let checksum = Sum::of(message).checksum();
    message[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Returns the first `count` addresses, or as many as were captured.
fn take(bytes: &[u8], count: u16) -> &[[u8; 4]] {
    let (addresses, _) = bytes.as_chunks();
    addresses.get(..count.into()).unwrap_or(addresses)
}

/// Returns the length of the header; everything after the first 8 bytes is payload.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    Ok(Step::new(LEN, View::parse(bytes)?.payload.len(), Next::End))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_2_report_round_trips() {
        let header = Header { kind: REPORT_2, max_response: 0, rest: [239, 1, 2, 3] };
        let mut out = [9; LEN];
        assert_eq!(header.emit(&mut out), Ok(LEN));
        fill_checksum(&mut out).unwrap();
        // 0x1600 + 0xef01 + 0x0203 = 0x10704, folded 0x0705, complemented.
        assert_eq!(out, [0x16, 0, 0xf8, 0xfa, 239, 1, 2, 3]);
        let view = View::parse(&out).unwrap();
        assert!(view.is_checksum_right());
        assert_eq!((view.header(), view.group(), view.records().count()), (header, [239, 1, 2, 3].into(), 0));
        assert!(!View::parse(&[0x16; LEN]).unwrap().is_checksum_right());
        assert!(View::parse(&out[..7]).is_err() && fill_checksum(&mut out[..7]).is_err());
    }

    #[test]
    fn queries_of_version_3_list_sources() {
        let query = Query { flags: 2, interval: 125, sources: &[[10, 0, 0, 1], [10, 0, 0, 2]] };
        let mut message = [9; LEN + 12];
        Header { kind: QUERY, max_response: 100, rest: [239, 1, 2, 3] }.emit(&mut message).unwrap();
        assert_eq!(query.emit(&mut message[LEN..]), Ok(12));
        fill_checksum(&mut message).unwrap();
        let view = View::parse(&message).unwrap();
        assert!(view.is_checksum_right());
        assert!(view.sources().eq([[10, 0, 0, 1], [10, 0, 0, 2]].map(Ipv4Addr::from)));
        assert_eq!(View::parse(&message[..LEN + 11]).unwrap().sources().len(), 1, "as far as they are there");
        assert_eq!(View::parse(&message[..LEN]).unwrap().sources().len(), 0, "version 2");
    }

    #[test]
    fn reports_of_version_3_list_records() {
        let records = [
            Record { kind: 4, group: [239, 1, 2, 3].into(), sources: &[] },
            Record { kind: 1, group: [239, 1, 2, 4].into(), sources: &[[10, 0, 0, 1]] },
        ];
        let mut message = [0; LEN + 8 + 12];
        Header { kind: REPORT_3, max_response: 0, rest: [0, 0, 0, 2] }.emit(&mut message).unwrap();
        assert_eq!(records[0].emit(&mut message[8..]), Ok(8));
        assert_eq!(records[1].emit(&mut message[16..]), Ok(12));
        assert!(View::parse(&message).unwrap().records().eq(records));
        assert_eq!(View::parse(&message[..27]).unwrap().records().count(), 1);
        message[9] = 1; // auxiliary data of 4 bytes
        assert!(View::parse(&message).unwrap().records().eq([records[0]]), "no room for another");
        message[7] = 0;
        assert_eq!(View::parse(&message).unwrap().records().count(), 0);
    }
}
