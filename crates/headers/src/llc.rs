//! The LLC header of 802.3 frames (IEEE 802.2) with its SNAP extension (IEEE 802, RFC 1042).

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Malformed, Number, Protocol};

/// Bytes of an unnumbered LLC header.
pub const LEN: usize = 3;
/// Bytes of an LLC header with SNAP.
pub const SNAP_LEN: usize = 8;
/// The service access point of SNAP.
pub const SNAP_SAP: u8 = 0xaa;

/// The service access point of IPv4 (RFC 1042 replaced it by SNAP).
pub const IPV4_SAP: u8 = 0x06;

/// Unnumbered information, the control byte of connectionless LLC.
const UNNUMBERED_INFORMATION: u8 = 0x03;

/// The organization whose SNAP protocols are EtherTypes (RFC 1042).
const ETHER_TYPES: [u8; 3] = [0, 0, 0];
/// Another one, for frames tunnelled by bridges (IEEE 802.1H).
const TUNNELLED: [u8; 3] = [0, 0, 0xf8];

/// An LLC header and what it carries.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    header: Header,
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses an LLC header; with SNAP if both access points and the control byte indicate it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let ([destination_sap, source_sap, first], rest) = split::<LEN>(bytes, Protocol::Llc)?;
        let (destination_sap, source_sap) = (*destination_sap, *source_sap);
        if [destination_sap, source_sap, *first] == [SNAP_SAP, SNAP_SAP, UNNUMBERED_INFORMATION] {
            let ([a, b, c, high, low], payload) = split::<5>(rest, Protocol::Llc)?;
            let snap = Snap { organization: [*a, *b, *c], protocol: u16::from_be_bytes([*high, *low]) };
            return Ok(View { header: Header::Snap(snap), payload });
        }
        let (control, payload) = if is_unnumbered(*first) {
            (Control::Unnumbered(*first), rest)
        } else {
            let ([second], payload) = split::<1>(rest, Protocol::Llc)?;
            (Control::Numbered([*first, *second]), payload)
        };
        Ok(View { header: Header::Plain(Plain { destination_sap, source_sap, control }), payload })
    }

    /// Returns the destination service access point.
    pub fn destination_sap(&self) -> u8 {
        match self.header {
            Header::Plain(plain) => plain.destination_sap,
            Header::Snap(_) => SNAP_SAP,
        }
    }

    /// Returns the SNAP extension, if present.
    pub fn snap(&self) -> Option<Snap> {
        match self.header {
            Header::Plain(_) => None,
            Header::Snap(snap) => Some(snap),
        }
    }

    /// Returns the length of the header in bytes: 3, 4 with a second control byte, 8 with SNAP.
    pub fn header_len(&self) -> usize {
        self.header.length()
    }

    /// Returns the payload after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        self.header
    }
}

/// An LLC header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Without SNAP.
    Plain(Plain),
    /// Unnumbered information between the access points of SNAP.
    Snap(Snap),
}

/// An LLC header without SNAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plain {
    /// Destination service access point.
    pub destination_sap: u8,
    /// Source service access point.
    pub source_sap: u8,
    /// Control field.
    pub control: Control,
}

/// The control field of LLC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// One byte, its lowest two bits set.
    Unnumbered(u8),
    /// Information or supervision: two bytes, with numbers in them.
    Numbered([u8; 2]),
}

/// Protocol of the payload after SNAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snap {
    /// Organization that assigned `protocol`; zero for EtherTypes (RFC 1042).
    pub organization: [u8; 3],
    /// Protocol number of the organization.
    pub protocol: u16,
}

impl Header {
    /// Writes the header to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        match self {
            Header::Plain(plain) => plain.emit(out),
            Header::Snap(snap) => snap.emit(out),
        }
    }

    fn length(&self) -> usize {
        match self {
            Header::Plain(Plain { control: Control::Unnumbered(_), .. }) => LEN,
            Header::Plain(Plain { control: Control::Numbered(_), .. }) => LEN + 1,
            Header::Snap(_) => SNAP_LEN,
        }
    }
}

impl Plain {
    /// Writes an LLC header without SNAP to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let saps = [self.destination_sap, self.source_sap];
        match self.control {
            Control::Unnumbered(control) if !is_unnumbered(control) => {
                Err(EmitError::Field("an unnumbered LLC control field has its lowest two bits set"))
            }
            Control::Unnumbered(UNNUMBERED_INFORMATION) if saps == [SNAP_SAP; 2] => {
                Err(EmitError::Field("unnumbered information between the access points of SNAP has SNAP"))
            }
            Control::Numbered([control, _]) if is_unnumbered(control) => {
                Err(EmitError::Field("a numbered LLC control field has its lowest two bits not both set"))
            }
            Control::Unnumbered(control) => {
                let (head, _) = room::<LEN>(out, LEN)?;
                *head = [saps[0], saps[1], control];
                Ok(LEN)
            }
            Control::Numbered([first, second]) => {
                let (head, _) = room::<{ LEN + 1 }>(out, LEN + 1)?;
                *head = [saps[0], saps[1], first, second];
                Ok(LEN + 1)
            }
        }
    }
}

impl Snap {
    /// Writes an LLC header with this SNAP extension to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let (head, _) = room::<SNAP_LEN>(out, SNAP_LEN)?;
        let [a, b, c] = self.organization;
        let [high, low] = self.protocol.to_be_bytes();
        *head = [SNAP_SAP, SNAP_SAP, UNNUMBERED_INFORMATION, a, b, c, high, low];
        Ok(SNAP_LEN)
    }
}

/// Returns whether a control field that begins with this byte has only one.
fn is_unnumbered(control: u8) -> bool {
    control & 3 == 3
}

/// Returns the protocol after the header: an EtherType after SNAP of the organizations that use them, another number of
/// an organization, or the protocol of the access point.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    let number = match view.header {
        Header::Snap(Snap { organization: ETHER_TYPES | TUNNELLED, protocol }) => Number::EtherType(protocol),
        Header::Snap(snap) => Number::Snap(snap.organization, snap.protocol),
        Header::Plain(plain) => Number::Sap(plain.destination_sap),
    };
    Ok(Step::new(view.header_len(), view.payload.len(), Next::Number(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], header: Header, next: Number) {
        let frame = [bytes, &[9]].concat();
        let view = View::parse(&frame).unwrap();
        assert_eq!((view.header(), view.header_len(), view.payload()), (header, bytes.len(), &[9][..]));
        assert_eq!(step(&frame).unwrap().next, Next::Number(next));
        let mut out = vec![7; bytes.len()];
        assert_eq!(header.emit(&mut out), Ok(bytes.len()));
        assert_eq!(out, bytes);
        assert!(View::parse(&bytes[..bytes.len() - 1]).is_err());
        assert!(header.emit(&mut out[..bytes.len() - 1]).is_err());
    }

    #[test]
    fn all_forms_round_trip() {
        let plain = |sap, control| Header::Plain(Plain { destination_sap: sap, source_sap: sap, control });
        check(&[0x42, 0x42, 0x03], plain(0x42, Control::Unnumbered(3)), Number::Sap(0x42));
        check(&[0xf0, 0xf0, 0x01, 0x02], plain(0xf0, Control::Numbered([1, 2])), Number::Sap(0xf0));
        let snap = |organization, protocol| Header::Snap(Snap { organization, protocol });
        check(&[0xaa, 0xaa, 3, 0, 0, 0, 8, 0], snap([0; 3], 0x0800), Number::EtherType(0x0800));
        check(&[0xaa, 0xaa, 3, 0, 0, 0xf8, 0x80, 0xf3], snap([0, 0, 0xf8], 0x80f3), Number::EtherType(0x80f3));
        check(&[0xaa, 0xaa, 3, 0, 0, 0x0c, 0x20, 0], snap([0, 0, 0x0c], 0x2000), Number::Snap([0, 0, 0x0c], 0x2000));
    }

    #[test]
    fn headers_that_do_not_round_trip_are_rejected() {
        for (sap, control) in [
            (0x42, Control::Unnumbered(1)),
            (0x42, Control::Numbered([3, 0])),
            (SNAP_SAP, Control::Unnumbered(UNNUMBERED_INFORMATION)),
        ] {
            let header = Plain { destination_sap: sap, source_sap: sap, control };
            assert!(matches!(header.emit(&mut [0; 8]), Err(EmitError::Field(_))), "{header:?}");
        }
    }
}
