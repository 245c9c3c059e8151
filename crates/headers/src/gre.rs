//! Generic routing encapsulation: version 0 (RFC 2784, with the key and sequence number of RFC 2890 and the
//! source routes of RFC 1701), which NVGRE (RFC 7637) and ERSPAN build on, and version 1 of PPTP (RFC 2637).

use crate::checksum::Sum;
use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Flaw, Malformed, Number, Protocol, erspan};

/// Bytes of the shortest header.
pub const LEN: usize = 4;

/// Protocol type of Ethernet frames: transparent Ethernet bridging.
pub const ETHERNET: u16 = 0x6558;
/// Protocol type of PPP frames, the only one of version 1.
pub const PPP: u16 = 0x880b;

const CHECKSUM: u16 = 0x8000;
const ROUTING: u16 = 0x4000;
const KEY: u16 = 0x2000;
const SEQUENCE: u16 = 0x1000;
const ACKNOWLEDGEMENT: u16 = 0x0080;
const VERSION: u16 = 0x0007;

/// Bytes of the address family, offset and length of a source route entry.
const ROUTE_ENTRY: usize = 4;

/// A GRE packet of either version.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: Header<'a>,
    checksum: u16,
    length: usize,
    packet: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a packet: the payload of an IP packet. A payload of version 1 may be truncated.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let ([a, b, c, d], rest) = split::<LEN>(bytes, Protocol::Gre)?;
        let (flags, protocol) = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
        match flags & VERSION {
            0 => View::parse_routing(flags, protocol, rest, bytes),
            1 => View::parse_pptp(flags, protocol, rest, bytes),
            _ => Err(Malformed { protocol: Protocol::Gre, flaw: Flaw::Version }),
        }
    }

    fn parse_routing(flags: u16, protocol: u16, rest: &'a [u8], packet: &'a [u8]) -> Result<Self, Malformed> {
        let has_offset = flags & (CHECKSUM | ROUTING) != 0;
        let (sum, rest) = optional(has_offset, rest)?;
        let (key, rest) = optional(flags & KEY != 0, rest)?;
        let (sequence, rest) = optional(flags & SEQUENCE != 0, rest)?;
        let routes = if flags & ROUTING != 0 { routes_len(rest)? } else { 0 };
        let (routes, payload) = rest.split_at_checked(routes).ok_or(SHORT)?;
        let [sum, offset] = sum.map_or([0; 2], |word| [(word >> 16) as u16, word as u16]);
        let checksum = flags & CHECKSUM != 0;
        let header = Header::Routing(Routing { protocol, checksum, key, sequence, offset, routes });
        Ok(View { header, checksum: sum, length: packet.len() - payload.len(), packet })
    }

    fn parse_pptp(flags: u16, protocol: u16, rest: &'a [u8], packet: &'a [u8]) -> Result<Self, Malformed> {
        if protocol != PPP || flags & (CHECKSUM | ROUTING | KEY) != KEY {
            return Err(Malformed { protocol: Protocol::Gre, flaw: Flaw::Reserved });
        }
        let (key, rest) = split::<4>(rest, Protocol::Gre)?;
        let (sequence, rest) = optional(flags & SEQUENCE != 0, rest)?;
        let (acknowledgement, payload) = optional(flags & ACKNOWLEDGEMENT != 0, rest)?;
        let header = Header::Pptp(Pptp { call: u16::from_be_bytes([key[2], key[3]]), sequence, acknowledgement });
        let (header_len, said) = (packet.len() - payload.len(), usize::from(u16::from_be_bytes([key[0], key[1]])));
        let packet = packet.get(..header_len + said).unwrap_or(packet);
        Ok(View { header, checksum: 0, length: header_len, packet })
    }

    /// Returns the length of the header in bytes.
    pub fn header_len(&self) -> usize {
        self.length
    }

    /// Returns the protocol of the payload: an EtherType, [`ETHERNET`] or [`PPP`].
    pub fn protocol(&self) -> u16 {
        match self.header {
            Header::Routing(header) => header.protocol,
            Header::Pptp(_) => PPP,
        }
    }

    /// Returns whether the checksum is correct or absent; meaningless for a packet that is truncated or a fragment.
    pub fn is_checksum_right(&self) -> bool {
        !matches!(self.header, Header::Routing(Routing { checksum: true, .. })) || Sum::of(self.packet).checksum() == 0
    }

    /// Returns the checksum field; 0 if absent.
    pub fn checksum(&self) -> u16 {
        self.checksum
    }

    /// Returns the payload after the header; in version 1 up to its length or the end of the bytes.
    pub fn payload(&self) -> &'a [u8] {
        self.packet.get(self.length..).unwrap_or_default()
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header<'a> {
        self.header
    }
}

/// A GRE header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header<'a> {
    /// Version 0.
    Routing(Routing<'a>),
    /// Version 1.
    Pptp(Pptp),
}

/// A header of version 0. Bits that RFC 2784 reserves are discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Routing<'a> {
    /// EtherType of the payload, or [`ETHERNET`].
    pub protocol: u16,
    /// True if it has a checksum; [`fill_checksum`] computes it.
    pub checksum: bool,
    /// Identifies the tunnel or, in NVGRE, the virtual subnet (upper 24 bits).
    pub key: Option<u32>,
    /// Sequence number.
    pub sequence: Option<u32>,
    /// Offset of the active entry of `routes`, in bytes.
    pub offset: u16,
    /// Source route entries as on the wire, with the empty one at their end; empty if absent.
    pub routes: &'a [u8],
}

/// A header of version 1; its length field is computed when it is emitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pptp {
    /// Call ID of the receiver.
    pub call: u16,
    /// Sequence number of a packet with payload.
    pub sequence: Option<u32>,
    /// Highest sequence number received.
    pub acknowledgement: Option<u32>,
}

impl Header<'_> {
    /// Writes the header of a packet with `payload` bytes of payload, with a checksum of zero, to the front of
    /// `out`; returns its length.
    pub fn emit(&self, payload: usize, out: &mut [u8]) -> Result<usize, EmitError> {
        match self {
            Header::Routing(header) => header.emit(out),
            Header::Pptp(header) => header.emit(payload, out),
        }
    }
}

impl Routing<'_> {
    fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let routed = !self.routes.is_empty();
        if routed && routes_len(self.routes) != Ok(self.routes.len()) {
            return Err(EmitError::Field("source route entries end with an empty one"));
        }
        let sum = (self.checksum || routed).then_some(u32::from(self.offset));
        let flags = flag(self.checksum, CHECKSUM)
            | flag(routed, ROUTING)
            | flag(self.key.is_some(), KEY)
            | flag(self.sequence.is_some(), SEQUENCE);
        emit(flags, self.protocol, [sum, self.key, self.sequence], self.routes, out)
    }
}

impl Pptp {
    fn emit(&self, payload: usize, out: &mut [u8]) -> Result<usize, EmitError> {
        let Ok(said) = u16::try_from(payload) else {
            return Err(EmitError::Field("a payload of GRE version 1 has at most 65535 bytes"));
        };
        let key = u32::from(said) << 16 | u32::from(self.call);
        let flags =
            1 | KEY | flag(self.sequence.is_some(), SEQUENCE) | flag(self.acknowledgement.is_some(), ACKNOWLEDGEMENT);
        emit(flags, PPP, [Some(key), self.sequence, self.acknowledgement], &[], out)
    }
}

/// Computes the checksum of a complete packet (header and payload) whose header has one, and writes it there.
pub fn fill_checksum(packet: &mut [u8]) -> Result<(), EmitError> {
    let (head, _) = room::<8>(packet, 8)?;
    if u16::from_be_bytes([head[0], head[1]]) & (CHECKSUM | VERSION) != CHECKSUM {
        return Err(EmitError::Field("this GRE header has no checksum"));
    }
    head[4..6].fill(0);
    let checksum = Sum::of(packet).checksum();
    packet[4..6].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

const SHORT: Malformed = Malformed { protocol: Protocol::Gre, flaw: Flaw::Short };

fn flag(set: bool, bit: u16) -> u16 {
    if set { bit } else { 0 }
}

/// Returns the four bytes of an optional field.
fn optional(present: bool, bytes: &[u8]) -> Result<(Option<u32>, &[u8]), Malformed> {
    if !present {
        return Ok((None, bytes));
    }
    let (field, rest) = split::<4>(bytes, Protocol::Gre)?;
    Ok((Some(u32::from_be_bytes(*field)), rest))
}

/// Returns the length of the source route entries at the start of `bytes`, including the empty one at their end.
fn routes_len(bytes: &[u8]) -> Result<usize, Malformed> {
    let mut length = 0;
    loop {
        let ([a, b, _, data], _) = split::<ROUTE_ENTRY>(bytes.get(length..).unwrap_or_default(), Protocol::Gre)?;
        length += ROUTE_ENTRY + usize::from(*data);
        if [*a, *b, *data] == [0; 3] {
            return Ok(length);
        }
    }
}

fn emit(
    flags: u16,
    protocol: u16,
    fields: [Option<u32>; 3],
    routes: &[u8],
    out: &mut [u8],
) -> Result<usize, EmitError> {
    let fields = fields.into_iter().flatten();
    let length = LEN + 4 * fields.clone().count() + routes.len();
    let (head, rest) = room::<LEN>(out, length)?;
    head[0..2].copy_from_slice(&flags.to_be_bytes());
    head[2..4].copy_from_slice(&protocol.to_be_bytes());
    let (places, behind) = rest.split_at_mut(length - LEN - routes.len());
    for (place, field) in places.as_chunks_mut::<4>().0.iter_mut().zip(fields) {
        *place = field.to_be_bytes();
    }
    behind.copy_from_slice(routes);
    Ok(length)
}

/// Returns the protocol after the header.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    let next = match view.header {
        // A pure acknowledgement.
        Header::Pptp(_) if view.payload().is_empty() => Next::End,
        // The first type of ERSPAN has no header of its own.
        Header::Routing(Routing { protocol: erspan::TYPE_2, sequence: None, .. }) => Next::Protocol(Protocol::Ethernet),
        _ => Next::Number(Number::EtherType(view.protocol())),
    };
    Ok(Step::new(view.length, view.payload().len(), next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flag_adds_its_field() {
        let header = Routing { protocol: 0x0800, ..Routing::default() };
        for (bytes, header) in [
            (&[0, 0, 0x08, 0][..], header),
            (&[0x20, 0, 0x08, 0, 0, 1, 2, 3], Routing { key: Some(0x1_0203), ..header }),
            (&[0x10, 0, 0x08, 0, 0, 0, 0, 9], Routing { sequence: Some(9), ..header }),
            (&[0x80, 0, 0x08, 0, 0x77, 0xff, 0, 0], Routing { checksum: true, ..header }),
            (
                &[0x70, 0, 0x08, 0, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 2, 0, 2, 0, 1, 7, 0, 0, 0, 0],
                Routing { key: Some(1), sequence: Some(2), offset: 4, routes: &[0, 2, 0, 1, 7, 0, 0, 0, 0], ..header },
            ),
        ] {
            let view = View::parse(bytes).unwrap();
            assert_eq!(view.header(), Header::Routing(header));
            assert_eq!((view.header_len(), view.payload(), view.is_checksum_right()), (bytes.len(), &[][..], true));
            let mut out = vec![9; bytes.len()];
            assert_eq!(Header::Routing(header).emit(0, &mut out), Ok(bytes.len()));
            assert_eq!(fill_checksum(&mut out).is_ok(), header.checksum);
            assert_eq!(out, bytes);
            assert_eq!(View::parse(&bytes[..bytes.len() - 1]).unwrap_err().flaw, Flaw::Short);
        }
    }

    #[test]
    fn the_checksum_covers_the_payload() {
        let mut packet = [0x80, 0, 0x08, 0, 0, 0, 0, 0, 1, 2, 3];
        fill_checksum(&mut packet).unwrap();
        assert!(View::parse(&packet).unwrap().is_checksum_right());
        packet[10] = 4;
        assert!(!View::parse(&packet).unwrap().is_checksum_right());
        assert!(fill_checksum(&mut packet[..7]).is_err());
    }

    #[test]
    fn version_1_bounds_its_payload() {
        let bytes = [0x30, 0x81, 0x88, 0x0b, 0, 2, 0, 7, 0, 0, 0, 1, 0, 0, 0, 2, 0xff, 0x03, 0xee];
        let header = Pptp { call: 7, sequence: Some(1), acknowledgement: Some(2) };
        let view = View::parse(&bytes).unwrap();
        assert_eq!((view.header(), view.payload()), (Header::Pptp(header), &[0xff, 0x03][..]));
        let mut out = [9; 16];
        assert_eq!(Header::Pptp(header).emit(2, &mut out), Ok(16));
        assert_eq!(out, bytes[..16]);
        assert_eq!(step(&bytes).unwrap().next, Next::Number(Number::EtherType(PPP)));
        let acknowledges = [0x20, 0x81, 0x88, 0x0b, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0];
        assert_eq!(step(&acknowledges).unwrap().next, Next::End);
    }

    #[test]
    fn contradictory_fields_are_rejected() {
        let flaw = |bytes: &[u8]| View::parse(bytes).unwrap_err().flaw;
        assert_eq!(flaw(&[0, 2, 8, 0]), Flaw::Version);
        assert_eq!(flaw(&[0, 1, 0x88, 0x0b, 0, 0, 0, 0]), Flaw::Reserved);
        assert_eq!(flaw(&[0x20, 1, 0x08, 0x00, 0, 0, 0, 0]), Flaw::Reserved);
        let open = Routing { routes: &[0, 2, 0, 1, 7], ..Routing::default() };
        assert!(matches!(Header::Routing(open).emit(0, &mut [0; 64]), Err(EmitError::Field(_))));
        assert!(matches!(Header::Pptp(Pptp::default()).emit(65_536, &mut [0; 64]), Err(EmitError::Field(_))));
    }

    #[test]
    fn erspan_without_a_sequence_number_has_no_header() {
        assert_eq!(step(&[0, 0, 0x88, 0xbe]).unwrap().next, Next::Protocol(Protocol::Ethernet));
        let next = Next::Number(Number::EtherType(erspan::TYPE_2));
        assert_eq!(step(&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1]).unwrap().next, next);
    }
}
