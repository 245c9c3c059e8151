//! VLAN tags (IEEE 802.1Q clause 9), customer and service, in any number.
//!
//! The tag protocol identifier is in the type field of the preceding header; the tag itself is the four bytes of
//! control information and the type field of the payload.

use crate::error::{room, split};
use crate::ethernet::{bounded, next};
use crate::registry::Step;
use crate::{EmitError, Malformed, Protocol};

/// Bytes of a tag.
pub const LEN: usize = 4;

/// EtherType of a customer tag (802.1Q).
pub const CUSTOMER: u16 = 0x8100;
/// EtherType of a service tag (802.1ad, QinQ).
pub const SERVICE: u16 = 0x88a8;
/// EtherType of an outer tag before 802.1ad.
pub const OLD_SERVICE: u16 = 0x9100;

/// The largest VLAN identifier a tag can hold.
pub const MAX_ID: u16 = 0x0fff;

/// A VLAN tag and what it carries.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a tag, starting after the type field that selected it.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, rest) = split(bytes, Protocol::Vlan)?;
        Ok(View { head, payload: bounded(u16::from_be_bytes([head[2], head[3]]), rest) })
    }

    /// Returns the VLAN identifier, 0 to 4095; 0 means priority only.
    #[inline]
    pub fn id(&self) -> u16 {
        u16::from_be_bytes([self.head[0], self.head[1]]) & MAX_ID
    }

    /// Returns the priority code point, 0 to 7.
    #[inline]
    pub fn priority(&self) -> u8 {
        self.head[0] >> 5
    }

    /// Returns whether the frame is eligible for dropping first.
    #[inline]
    pub fn drop_eligible(&self) -> bool {
        self.head[0] & 0x10 != 0
    }

    /// Returns the type field of the payload, as in [`crate::ethernet::View::ether_type`].
    #[inline]
    pub fn ether_type(&self) -> u16 {
        u16::from_be_bytes([self.head[2], self.head[3]])
    }

    /// Returns the payload after the tag; of an 802.3 payload without padding.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the tag as a value.
    pub fn header(&self) -> Header {
        Header {
            id: self.id(),
            priority: self.priority(),
            drop_eligible: self.drop_eligible(),
            ether_type: self.ether_type(),
        }
    }
}

/// A VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// VLAN identifier, at most [`MAX_ID`].
    pub id: u16,
    /// Priority code point, at most 7.
    pub priority: u8,
    /// True if the frame is eligible for dropping first.
    pub drop_eligible: bool,
    /// The type field of the payload.
    pub ether_type: u16,
}

impl Header {
    /// Writes the tag to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        if self.id > MAX_ID {
            return Err(EmitError::Field("a VLAN identifier is at most 4095"));
        }
        if self.priority > 7 {
            return Err(EmitError::Field("a VLAN priority is at most 7"));
        }
        let (head, _) = room::<LEN>(out, LEN)?;
        let control = u16::from(self.priority) << 13 | u16::from(self.drop_eligible) << 12 | self.id;
        head[0..2].copy_from_slice(&control.to_be_bytes());
        head[2..4].copy_from_slice(&self.ether_type.to_be_bytes());
        Ok(LEN)
    }
}

/// Returns the protocol after the tag.
#[inline(always)]
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    Ok(Step::new(LEN, view.payload.len(), next(view.ether_type())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_tag_round_trips() {
        let bytes = [0xb0, 0x64, 0x08, 0x00];
        let header = View::parse(&bytes).unwrap().header();
        assert_eq!(header, Header { id: 100, priority: 5, drop_eligible: true, ether_type: 0x0800 });
        let mut out = [0; 4];
        assert_eq!(header.emit(&mut out), Ok(4));
        assert_eq!(out, bytes);
    }

    #[test]
    fn values_beyond_the_tag_are_rejected() {
        let header = Header { id: 1, priority: 0, drop_eligible: false, ether_type: 0 };
        assert!(matches!(Header { id: 4096, ..header }.emit(&mut [0; 4]), Err(EmitError::Field(_))));
        assert!(matches!(Header { priority: 8, ..header }.emit(&mut [0; 4]), Err(EmitError::Field(_))));
        assert_eq!(header.emit(&mut [0; 3]), Err(EmitError::NoRoom { need: 4 }));
    }
}
