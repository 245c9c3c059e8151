//! The LLC header of 802.3 frames (IEEE 802.2) with its SNAP extension (IEEE 802, RFC 1042).

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{Malformed, Number, Protocol, Unfit};

/// Bytes of an unnumbered LLC header.
pub const LEN: usize = 3;
/// Bytes of an LLC header with SNAP.
pub const SNAP_LEN: usize = 8;
/// The service access point of SNAP.
pub const SNAP_SAP: u8 = 0xaa;

/// Unnumbered information, the control byte of connectionless LLC.
const UNNUMBERED_INFORMATION: u8 = 0x03;

/// An LLC header and what it carries.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    snap: Option<Snap>,
    length: usize,
    payload: &'a [u8],
}

/// Who is carried behind SNAP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snap {
    /// Whose numbers `protocol` is from; zero for EtherTypes (RFC 1042).
    pub organization: [u8; 3],
    /// The protocol, in the organization's numbers.
    pub protocol: u16,
}

impl<'a> View<'a> {
    /// Looks at an LLC header; with SNAP where both access points and the control byte say so.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, rest) = split::<LEN>(bytes, Protocol::Llc)?;
        if *head == [SNAP_SAP, SNAP_SAP, UNNUMBERED_INFORMATION] {
            let ([a, b, c, high, low], payload) = split::<5>(rest, Protocol::Llc)?;
            let snap = Snap { organization: [*a, *b, *c], protocol: u16::from_be_bytes([*high, *low]) };
            return Ok(View { head, snap: Some(snap), length: SNAP_LEN, payload });
        }
        // Information and supervisory control fields have a second byte.
        let numbered = head[2] & 3 != 3;
        let payload = if numbered { split::<1>(rest, Protocol::Llc)?.1 } else { rest };
        Ok(View { head, snap: None, length: LEN + usize::from(numbered), payload })
    }

    /// Destination service access point.
    pub fn destination_sap(&self) -> u8 {
        self.head[0]
    }

    /// Source service access point.
    pub fn source_sap(&self) -> u8 {
        self.head[1]
    }

    /// The (first) control byte.
    pub fn control(&self) -> u8 {
        self.head[2]
    }

    /// The SNAP extension, if there is one.
    pub fn snap(&self) -> Option<Snap> {
        self.snap
    }

    /// Bytes of the header: 3, 4 with a second control byte, 8 with SNAP.
    pub fn header_len(&self) -> usize {
        self.length
    }

    /// Everything behind the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

impl Snap {
    /// Writes an LLC header with this SNAP extension to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, Unfit> {
        let (head, _) = room::<SNAP_LEN>(out, SNAP_LEN)?;
        let [a, b, c] = self.organization;
        let [high, low] = self.protocol.to_be_bytes();
        *head = [SNAP_SAP, SNAP_SAP, UNNUMBERED_INFORMATION, a, b, c, high, low];
        Ok(SNAP_LEN)
    }
}

/// What follows the header: an EtherType behind SNAP of organization 0, else the access point is unknown.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    let number = match view.snap {
        Some(Snap { organization: [0, 0, 0], protocol }) => Number::EtherType(protocol),
        _ => Number::Sap(view.destination_sap()),
    };
    Ok(Step::new(view.length, view.payload.len(), Next::Number(number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_field_decides_the_length() {
        let stp = View::parse(&[0x42, 0x42, 0x03, 9]).unwrap();
        assert_eq!((stp.destination_sap(), stp.control(), stp.header_len(), stp.payload()), (0x42, 3, 3, &[9][..]));
        let numbered = View::parse(&[0xf0, 0xf1, 0x01, 0x02, 9]).unwrap();
        assert_eq!((numbered.source_sap(), numbered.header_len(), numbered.payload()), (0xf1, 4, &[9][..]));
        assert!(View::parse(&[0xf0, 0xf0, 0x01]).is_err());
    }

    #[test]
    fn snap_round_trips() {
        let snap = Snap { organization: [0, 0, 0x0c], protocol: 0x2000 };
        let mut out = [0; 9];
        assert_eq!(snap.emit(&mut out), Ok(SNAP_LEN));
        let view = View::parse(&out).unwrap();
        assert_eq!((view.snap(), view.header_len(), view.payload().len()), (Some(snap), 8, 1));
        assert!(View::parse(&out[..7]).is_err());
        assert!(snap.emit(&mut out[..7]).is_err());
    }
}
