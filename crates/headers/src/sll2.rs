//! The Linux cooked header, version 2 (`LINKTYPE_LINUX_SLL2`, tcpdump.org): with the number of the interface.

use crate::error::{room, split};
use crate::registry::Step;
use crate::sll::{self, MAX_ADDRESS};
use crate::{EmitError, Malformed, Protocol};

/// Bytes of the header.
pub const LEN: usize = 20;

/// A frame with a cooked header.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a frame.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, payload) = split(bytes, Protocol::Sll2)?;
        Ok(View { head, payload })
    }

    /// Returns the protocol, as in [`crate::sll::View::protocol`].
    pub fn protocol(&self) -> u16 {
        u16::from_be_bytes([self.head[0], self.head[1]])
    }

    /// Returns the number of the interface on the capturing host.
    pub fn interface(&self) -> u32 {
        u32::from_be_bytes([self.head[4], self.head[5], self.head[6], self.head[7]])
    }

    /// Returns the kind of link (`ARPHRD_*`); 1 for Ethernet.
    pub fn hardware_type(&self) -> u16 {
        u16::from_be_bytes([self.head[8], self.head[9]])
    }

    /// Returns the packet type, as in [`crate::sll::View::packet_type`].
    pub fn packet_type(&self) -> u8 {
        self.head[10]
    }

    /// Returns the sender's link address, or its first [`MAX_ADDRESS`] bytes.
    pub fn address(&self) -> &'a [u8] {
        let address = &self.head[12..12 + MAX_ADDRESS];
        address.get(..self.head[11].into()).unwrap_or(address)
    }

    /// Returns the payload after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        let mut address = [0; MAX_ADDRESS];
        address.copy_from_slice(&self.head[12..12 + MAX_ADDRESS]);
        Header {
            protocol: self.protocol(),
            interface: self.interface(),
            hardware_type: self.hardware_type(),
            packet_type: self.packet_type(),
            address_len: self.head[11],
            address,
        }
    }
}

/// A cooked header; its reserved field is discarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// As in [`crate::sll::Header::protocol`].
    pub protocol: u16,
    /// Number of the interface on the capturing host.
    pub interface: u32,
    /// Kind of link (`ARPHRD_*`); 1 for Ethernet.
    pub hardware_type: u16,
    /// As in [`crate::sll::Header::packet_type`].
    pub packet_type: u8,
    /// Bytes of the sender's link address; more than [`MAX_ADDRESS`] if it is truncated.
    pub address_len: u8,
    /// The sender's link address, padded.
    pub address: [u8; MAX_ADDRESS],
}

impl Header {
    /// Writes the header to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let (head, _) = room::<LEN>(out, LEN)?;
        head[0..2].copy_from_slice(&self.protocol.to_be_bytes());
        head[2..4].fill(0);
        head[4..8].copy_from_slice(&self.interface.to_be_bytes());
        head[8..10].copy_from_slice(&self.hardware_type.to_be_bytes());
        head[10..12].copy_from_slice(&[self.packet_type, self.address_len]);
        head[12..20].copy_from_slice(&self.address);
        Ok(LEN)
    }
}

/// Returns the protocol after the header.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    Ok(Step::new(LEN, view.payload.len(), sll::next(view.hardware_type(), view.protocol())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_header_round_trips() {
        let bytes = [0x86, 0xdd, 0, 0, 0, 0, 0, 3, 0, 1, 4, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0x60];
        let view = View::parse(&bytes).unwrap();
        assert_eq!((view.protocol(), view.interface(), view.hardware_type()), (0x86dd, 3, 1));
        assert_eq!((view.packet_type(), view.address(), view.payload()), (4, &[2, 0, 0, 0, 0, 1][..], &[0x60][..]));
        let mut out = [9; LEN];
        assert_eq!(view.header().emit(&mut out), Ok(LEN));
        assert_eq!(out, bytes[..LEN]);
        assert!(View::parse(&bytes[..19]).is_err() && view.header().emit(&mut out[..19]).is_err());
    }
}
