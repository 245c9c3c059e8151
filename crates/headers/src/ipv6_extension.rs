//! IPv6 extension headers of the common form (RFC 8200 sections 4.3 to 4.6): hop-by-hop options, routing
//! and destination options.

use crate::error::{room, split};
use crate::registry::Step;
use crate::{EmitError, Flaw, Malformed, Protocol, ipv6};

/// Bytes of the shortest header; every length is a multiple of it.
pub const UNIT: usize = 8;
/// Bytes of data in the longest header.
pub const MAX_DATA: usize = 256 * UNIT - FIXED;

/// Bytes in front of the data.
const FIXED: usize = 2;

/// An extension header and its payload.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; UNIT],
    data: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a header, which must be complete. `protocol` is used for the error.
    pub fn parse(protocol: Protocol, bytes: &'a [u8]) -> Result<Self, Malformed> {
        const SHORT: Flaw = Flaw::Short;
        let (head, _) = split::<UNIT>(bytes, protocol)?;
        let length = (usize::from(head[1]) + 1) * UNIT;
        let (header, payload) = bytes.split_at_checked(length).ok_or(Malformed { protocol, flaw: SHORT })?;
        let (_, data) = split::<FIXED>(header, protocol)?;
        Ok(View { head, data, payload })
    }

    /// Returns the IP protocol number of the header after this one.
    pub fn next_header(&self) -> u8 {
        self.head[0]
    }

    /// Returns the length of the header in bytes: a multiple of 8.
    pub fn header_len(&self) -> usize {
        FIXED + self.data.len()
    }

    /// Returns the contents: options, or the routing type, segments left and addresses.
    pub fn data(&self) -> &'a [u8] {
        self.data
    }

    /// Returns the routing type; only for a routing header.
    pub fn routing_type(&self) -> u8 {
        self.head[2]
    }

    /// Returns the nodes still to be visited; only for a routing header.
    pub fn segments_left(&self) -> u8 {
        self.head[3]
    }

    /// Returns the payload after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header<'a> {
        Header { next_header: self.next_header(), data: self.data }
    }
}

/// An extension header; its length is computed when it is emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// IP protocol number of the header after this one.
    pub next_header: u8,
    /// Its contents: 6 bytes more than a multiple of 8, at most [`MAX_DATA`]; options are padded with Pad1 (a zero
    /// byte) or PadN.
    pub data: &'a [u8],
}

impl Header<'_> {
    /// Writes the header to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let length = FIXED + self.data.len();
        if !length.is_multiple_of(UNIT) || self.data.len() > MAX_DATA {
            return Err(EmitError::Field("an extension header has a multiple of 8 bytes, at most 2048"));
        }
        let (head, data) = room::<FIXED>(out, length)?;
        *head = [self.next_header, (length / UNIT - 1) as u8];
        data.copy_from_slice(self.data);
        Ok(length)
    }
}

/// Returns the protocol after hop-by-hop options.
pub(crate) fn step_hop_by_hop(bytes: &[u8]) -> Result<Step, Malformed> {
    step(Protocol::HopByHop, bytes)
}

/// Returns the protocol after a routing header.
pub(crate) fn step_routing(bytes: &[u8]) -> Result<Step, Malformed> {
    step(Protocol::Routing, bytes)
}

/// Returns the protocol after destination options.
pub(crate) fn step_destination(bytes: &[u8]) -> Result<Step, Malformed> {
    step(Protocol::DestinationOptions, bytes)
}

fn step(protocol: Protocol, bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(protocol, bytes)?;
    Ok(Step::new(view.header_len(), view.payload.len(), ipv6::next(view.next_header())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_round_trip() {
        for length in [6, 14, MAX_DATA] {
            let data = vec![4; length];
            let header = Header { next_header: 6, data: &data };
            let mut out = vec![9; length + 5];
            assert_eq!(header.emit(&mut out), Ok(length + 2));
            let view = View::parse(Protocol::Routing, &out).unwrap();
            assert_eq!((view.header(), view.payload()), (header, &[9; 3][..]));
            assert_eq!((view.routing_type(), view.segments_left()), (4, 4));
            assert!(View::parse(Protocol::Routing, &out[..length + 1]).is_err());
            assert!(header.emit(&mut out[..length + 1]).is_err());
        }
    }

    #[test]
    fn lengths_not_a_multiple_of_8_are_rejected() {
        for length in [0, 5, 7, MAX_DATA + 8] {
            let header = Header { next_header: 6, data: &vec![0; length] };
            assert!(matches!(header.emit(&mut [0; 4096]), Err(EmitError::Field(_))), "{length}");
        }
    }
}
