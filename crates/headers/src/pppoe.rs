//! PPP over Ethernet (RFC 2516): discovery, and the session in which PPP runs.

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Flaw, Malformed, Protocol};

/// Bytes of the header.
pub const LEN: usize = 6;

/// EtherType of the discovery stage.
pub const DISCOVERY: u16 = 0x8863;
/// EtherType of the session stage.
pub const SESSION: u16 = 0x8864;

/// The code of the session stage; every other belongs to discovery.
pub const SESSION_DATA: u8 = 0x00;
/// Discovery: search for an access concentrator.
pub const INITIATION: u8 = 0x09;
/// Discovery: request for a session.
pub const REQUEST: u8 = 0x19;

/// Version and type, the only ones defined.
const VERSION_TYPE: u8 = 0x11;

/// A PPPoE packet.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    payload: &'a [u8],
    cut: bool,
}

impl<'a> View<'a> {
    /// Parses a packet; its payload may be truncated.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, rest) = split::<LEN>(bytes, Protocol::Pppoe)?;
        if head[0] != VERSION_TYPE {
            return Err(Malformed { protocol: Protocol::Pppoe, flaw: Flaw::Version });
        }
        let length = usize::from(u16::from_be_bytes([head[4], head[5]]));
        Ok(View { head, payload: rest.get(..length).unwrap_or(rest), cut: length > rest.len() })
    }

    /// Returns [`SESSION_DATA`], or the kind of discovery packet.
    pub fn code(&self) -> u8 {
        self.head[1]
    }

    /// Returns the session; 0 before it is established.
    pub fn session(&self) -> u16 {
        u16::from_be_bytes([self.head[2], self.head[3]])
    }

    /// Returns the PPP without framing, or the tags of discovery; up to its length or the end of the bytes.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns whether the payload is truncated.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns the tags of a discovery packet: type and value. The list ends at the first that does not fit.
    pub fn tags(&self) -> Tags<'a> {
        Tags { rest: if self.code() == SESSION_DATA { &[] } else { self.payload } }
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        Header { code: self.code(), session: self.session() }
    }
}

/// Iterates over the tags of a discovery packet.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Tags<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let ([a, b, high, low], rest) = self.rest.split_first_chunk()?;
        let (value, rest) = rest.split_at_checked(u16::from_be_bytes([*high, *low]).into())?;
        self.rest = rest;
        Some((u16::from_be_bytes([*a, *b]), value))
    }
}

/// A PPPoE header; its length field is computed when it is emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`SESSION_DATA`], or the kind of discovery packet.
    pub code: u8,
    /// The session; 0 before it is established.
    pub session: u16,
}

impl Header {
    /// Writes the header of a packet with `payload` bytes of payload to the front of `out`; returns its length.
    pub fn emit(&self, payload: usize, out: &mut [u8]) -> Result<usize, EmitError> {
        let Ok(length) = u16::try_from(payload) else {
            return Err(EmitError::Field("a PPPoE payload has at most 65535 bytes"));
        };
        let (head, _) = room::<LEN>(out, LEN)?;
        head[0..2].copy_from_slice(&[VERSION_TYPE, self.code]);
        head[2..4].copy_from_slice(&self.session.to_be_bytes());
        head[4..6].copy_from_slice(&length.to_be_bytes());
        Ok(LEN)
    }
}

/// Returns the length of the header: PPP follows in a session; the tags of discovery are payload.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    let next = if view.code() == SESSION_DATA { Next::Protocol(Protocol::Ppp) } else { Next::End };
    Ok(Step::new(LEN, view.payload.len(), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_2516_initiation_round_trips() {
        // Appendix B: a host with one tag, Service-Name, empty; then padding.
        let bytes = [0x11, 0x09, 0, 0, 0, 4, 0x01, 0x01, 0, 0, 0, 0, 0];
        let view = View::parse(&bytes).unwrap();
        assert_eq!(view.header(), Header { code: INITIATION, session: 0 });
        assert_eq!(view.payload().len(), 4, "padding does not count");
        assert!(view.tags().eq([(0x0101, &[][..])]));
        assert_eq!(step(&bytes).unwrap().next, Next::End);
        let mut out = [9; LEN];
        assert_eq!(view.header().emit(4, &mut out), Ok(LEN));
        assert_eq!(out, bytes[..LEN]);
        assert!(view.header().emit(65_536, &mut out).is_err());
    }

    #[test]
    fn a_session_carries_ppp_and_no_tags() {
        let bytes = [0x11, 0, 0, 7, 0, 9, 0xc0, 0x21, 1, 1];
        let view = View::parse(&bytes).unwrap();
        assert_eq!((view.session(), view.payload().len(), view.is_cut()), (7, 4, true));
        assert_eq!((view.tags().count(), step(&bytes).unwrap().next), (0, Next::Protocol(Protocol::Ppp)));
        assert_eq!(View::parse(&[0x21, 0, 0, 7, 0, 0]).unwrap_err().flaw, Flaw::Version);
    }
}
