//! GTP-U, the user plane of mobile networks: version 1 (3GPP TS 29.281), with its extension headers.

use crate::error::{count, room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Flaw, Malformed, Number, Protocol};

/// Bytes of the shortest header.
pub const LEN: usize = 8;

/// UDP port.
pub const PORT: u16 = 2152;

/// Message type of user data (a G-PDU).
pub const USER_DATA: u8 = 255;
/// Message type of an echo request.
pub const ECHO_REQUEST: u8 = 1;

/// Bytes of sequence number, N-PDU number and type of the first extension.
const OPTIONAL: usize = 4;
/// Unit of the lengths of extensions, in bytes.
const UNIT: usize = 4;
/// Version 1, protocol type GTP.
const VERSION: u8 = 0x30;
const VERSION_MASK: u8 = 0xf0;
const EXTENDED: u8 = 0x04;
const SEQUENCE: u8 = 0x02;
const N_PDU: u8 = 0x01;

/// Every message of TS 29.281 table 6.1-1: echo and its reply, error indication, supported extension headers, tunnel
/// status, end marker, user data.
const MESSAGES: [u8; 7] = [ECHO_REQUEST, 2, 26, 31, 253, 254, USER_DATA];

/// A GTP-U message.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    optional: Option<&'a [u8; OPTIONAL]>,
    extensions: &'a [u8],
    payload: &'a [u8],
    cut: bool,
}

impl<'a> View<'a> {
    /// Parses a message; all extension headers must be complete, the payload may be truncated.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let flawed = |flaw| Malformed { protocol: Protocol::GtpU, flaw };
        let (head, rest) = split::<LEN>(bytes, Protocol::GtpU)?;
        if head[0] & VERSION_MASK != VERSION {
            return Err(flawed(Flaw::Version));
        }
        let length = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let (body, cut) = (rest.get(..length).unwrap_or(rest), length > rest.len());
        if head[0] & (EXTENDED | SEQUENCE | N_PDU) == 0 {
            return Ok(View { head, optional: None, extensions: &[], payload: body, cut });
        }
        // Bytes after the length field's end do not count.
        let flaw = if cut { Flaw::Short } else { Flaw::TotalLength };
        let (optional, behind) = body.split_first_chunk::<OPTIONAL>().ok_or(flawed(flaw))?;
        let first = if head[0] & EXTENDED != 0 { optional[3] } else { 0 };
        let length = extensions_len(first, behind).ok_or(flawed(flaw))?;
        let (extensions, payload) = behind.split_at_checked(length).ok_or(flawed(flaw))?;
        Ok(View { head, optional: Some(optional), extensions, payload, cut })
    }

    /// Returns the length of the header in bytes, extension headers included.
    pub fn header_len(&self) -> usize {
        LEN + self.optional.map_or(0, |_| OPTIONAL) + self.extensions.len()
    }

    /// Returns [`USER_DATA`], [`ECHO_REQUEST`] or another message.
    pub fn message(&self) -> u8 {
        self.head[1]
    }

    /// Returns the tunnel endpoint identifier, of the receiver.
    pub fn teid(&self) -> u32 {
        u32::from_be_bytes([self.head[4], self.head[5], self.head[6], self.head[7]])
    }

    /// Returns the sequence number, if its flag is set.
    pub fn sequence(&self) -> Option<u16> {
        let [high, low, ..] = self.optional.filter(|_| self.head[0] & SEQUENCE != 0)?;
        Some(u16::from_be_bytes([*high, *low]))
    }

    /// Returns the N-PDU number, if its flag is set.
    pub fn n_pdu(&self) -> Option<u8> {
        self.optional.filter(|_| self.head[0] & N_PDU != 0).map(|optional| optional[2])
    }

    /// Returns the extension headers, in order: type and content (without length and next type).
    pub fn extensions(&self) -> Extensions<'a> {
        Extensions { kind: self.first_extension(), rest: self.extensions }
    }

    /// Returns the user's packet, or the information elements; up to its length or the end of the bytes.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns whether the payload is truncated.
    pub fn is_cut(&self) -> bool {
        self.cut
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header<'a> {
        Header {
            message: self.message(),
            teid: self.teid(),
            sequence: self.sequence(),
            n_pdu: self.n_pdu(),
            first_extension: self.first_extension(),
            extensions: self.extensions,
        }
    }

    fn first_extension(&self) -> u8 {
        self.optional.filter(|_| self.head[0] & EXTENDED != 0).map_or(0, |optional| optional[3])
    }
}

/// Iterates over the extension headers of a message.
#[derive(Clone, Debug)]
pub struct Extensions<'a> {
    kind: u8,
    rest: &'a [u8],
}

impl<'a> Iterator for Extensions<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let kind = self.kind;
        if kind == 0 {
            return None;
        }
        let length = usize::from(*self.rest.first()?) * UNIT;
        let (extension, rest) = self.rest.split_at_checked(length)?;
        let [_, content @ .., next] = extension else { return None };
        (self.kind, self.rest) = (*next, rest);
        Some((kind, content))
    }
}

/// A GTP-U header; its length field is computed when it is emitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header<'a> {
    /// [`USER_DATA`], [`ECHO_REQUEST`] or another message.
    pub message: u8,
    /// Tunnel endpoint identifier, of the receiver.
    pub teid: u32,
    /// The sequence number.
    pub sequence: Option<u16>,
    /// The N-PDU number.
    pub n_pdu: Option<u8>,
    /// Type of the first extension header; 0 if absent.
    pub first_extension: u8,
    /// The extension headers as on the wire: length in units of 4 bytes, content, type of the next (0: none).
    pub extensions: &'a [u8],
}

impl Header<'_> {
    /// Writes the header of a message with `payload` bytes of payload to the front of `out`; returns its length.
    pub fn emit(&self, payload: usize, out: &mut [u8]) -> Result<usize, EmitError> {
        if extensions_len(self.first_extension, self.extensions) != Some(self.extensions.len()) {
            return Err(EmitError::Field("GTP-U extension headers fill their bytes and end with type 0"));
        }
        let extended = self.first_extension != 0;
        let optional = extended || self.sequence.is_some() || self.n_pdu.is_some();
        let length = LEN + if optional { OPTIONAL } else { 0 } + self.extensions.len();
        let Some(said) = payload.checked_add(length - LEN).and_then(|said| u16::try_from(said).ok()) else {
            return Err(EmitError::Field("a GTP-U message has at most 65535 bytes after the first 8"));
        };
        let (head, behind) = room::<LEN>(out, length)?;
        let flags = if extended { EXTENDED } else { 0 }
            | if self.sequence.is_some() { SEQUENCE } else { 0 }
            | if self.n_pdu.is_some() { N_PDU } else { 0 };
        head[0..2].copy_from_slice(&[VERSION | flags, self.message]);
        head[2..4].copy_from_slice(&said.to_be_bytes());
        head[4..8].copy_from_slice(&self.teid.to_be_bytes());
        let (fields, extensions) = behind.split_at_mut(if optional { OPTIONAL } else { 0 });
        let [high, low] = self.sequence.unwrap_or(0).to_be_bytes();
        let all = [high, low, self.n_pdu.unwrap_or(0), self.first_extension];
        fields.copy_from_slice(&all[..fields.len()]);
        extensions.copy_from_slice(self.extensions);
        Ok(length)
    }
}

/// Returns the length of the extension headers at the start of `bytes`, of which the first is a `kind`.
fn extensions_len(mut kind: u8, bytes: &[u8]) -> Option<usize> {
    let mut length = 0;
    while kind != 0 {
        count(1);
        let units = *bytes.get(length)?;
        length += usize::from(units) * UNIT;
        // A header without a unit has no next type.
        kind = if units == 0 { return None } else { *bytes.get(length - 1)? };
    }
    Some(length)
}

/// Returns the protocol after the header: for user data an IP packet, identified by its version, or a frame of unknown
/// type. Only a port identifies this header, so its message type must be a defined one.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    if !MESSAGES.contains(&view.message()) {
        return Err(Malformed { protocol: Protocol::GtpU, flaw: Flaw::Reserved });
    }
    let next = match view.payload.first().map(|byte| byte >> 4) {
        Some(version @ (4 | 6)) if view.message() == USER_DATA => Next::Number(Number::IpVersion(version)),
        _ => Next::End,
    };
    Ok(Step::new(view.header_len(), view.payload.len(), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_data_with_an_extension_header_round_trips() {
        // A PDU session container (type 0x85) of one unit, as 5G base stations send it.
        let bytes = [0x34, 0xff, 0, 9, 0, 0, 0, 7, 0, 0, 0, 0x85, 1, 0x10, 9, 0, 0x45, 0xee];
        let view = View::parse(&bytes).unwrap();
        assert_eq!((view.message(), view.teid(), view.header_len()), (USER_DATA, 7, 16));
        assert_eq!((view.sequence(), view.n_pdu()), (None, None));
        assert!(view.extensions().eq([(0x85, &[0x10, 9][..])]));
        assert_eq!((view.payload(), view.is_cut()), (&[0x45][..], false));
        assert_eq!(step(&bytes).unwrap().next, Next::Number(Number::IpVersion(4)));
        let mut out = [9; 16];
        assert_eq!(view.header().emit(1, &mut out), Ok(16));
        assert_eq!(out, bytes[..16]);
        assert_eq!(View::parse(&bytes[..15]).unwrap_err().flaw, Flaw::Short);
    }

    #[test]
    fn an_echo_has_a_sequence_number_and_no_packet() {
        let bytes = [0x32, 1, 0, 5, 0, 0, 0, 0, 0x12, 0x34, 0, 0, 0x45];
        let view = View::parse(&bytes).unwrap();
        assert_eq!((view.sequence(), view.header_len(), view.payload()), (Some(0x1234), 12, &[0x45][..]));
        assert_eq!(step(&bytes).unwrap().next, Next::End);
        let mut out = [9; 12];
        assert_eq!(view.header().emit(1, &mut out), Ok(12));
        assert_eq!(out, bytes[..12]);
    }

    #[test]
    fn contradictory_fields_are_rejected() {
        let flaw = |bytes: &[u8]| View::parse(bytes).unwrap_err().flaw;
        assert_eq!(flaw(&[0x48, 0xff, 0, 0, 0, 0, 0, 0]), Flaw::Version);
        assert_eq!(flaw(&[0x20, 0xff, 0, 0, 0, 0, 0, 0]), Flaw::Version, "GTP prime");
        assert_eq!(flaw(&[0x32, 0xff, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0]), Flaw::TotalLength);
        assert_eq!(flaw(&[0x34, 0xff, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]), Flaw::TotalLength, "no unit");
        assert_eq!(flaw(&[0x34, 0xff, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0]), Flaw::TotalLength);
        let open = Header { first_extension: 1, extensions: &[1, 0, 0, 1], ..Header::default() };
        assert!(matches!(open.emit(0, &mut [0; 64]), Err(EmitError::Field(_))));
        assert!(matches!(Header::default().emit(65_536, &mut [0; 64]), Err(EmitError::Field(_))));
    }

    #[test]
    fn unknown_message_types_fail_the_heuristic() {
        for (bytes, plausible) in [
            ([0x30, 254, 0, 0, 0, 0, 0, 1], true),
            ([0x30, 3, 0, 0, 0, 0, 0, 1], false),
            ([0x38, 254, 0, 0, 0, 0, 0, 1], true),
        ] {
            assert_eq!(step(&bytes).is_ok(), plausible);
        }
    }

    #[test]
    fn a_chain_of_extension_headers_is_walked_once() {
        let mut bytes = vec![0x34, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 1];
        bytes.extend([1, 0, 0, 1].repeat(16_000));
        let last = bytes.len() - 1;
        bytes[last] = 0;
        let view = View::parse(&bytes).unwrap();
        assert_eq!((view.extensions().count(), view.header_len()), (16_000, 12 + 64_000));
        bytes[last] = 1;
        assert_eq!(View::parse(&bytes).unwrap_err().flaw, Flaw::Short);
    }
}
