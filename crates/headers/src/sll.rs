//! The Linux cooked header (`LINKTYPE_LINUX_SLL`, tcpdump.org): libpcap writes it in place of the link header for
//! captures of several kinds of links.

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Malformed, Number, Protocol};

/// Bytes of the header.
pub const LEN: usize = 16;
/// Bytes of the longest link address that fits.
pub const MAX_ADDRESS: usize = 8;

/// Hardware type of netlink (Linux `if_arp.h`), whose protocol field is a netlink family.
pub const NETLINK: u16 = 824;
/// Hardware type of a GRE tunnel over IPv4.
pub const GRE: u16 = 778;
/// Hardware types whose frames begin with an 802.11 header: bare, with a Prism header, with radiotap.
pub const WIRELESS: std::ops::RangeInclusive<u16> = 801..=803;

/// Protocol of 802.3 frames without LLC (Linux `if_ether.h`).
pub const NOVELL: u16 = 1;
/// Protocol of frames that begin with an LLC header.
pub const LLC: u16 = 4;

/// A frame with a cooked header.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a frame.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, payload) = split(bytes, Protocol::Sll)?;
        Ok(View { head, payload })
    }

    /// Returns the packet type: 0 to this host, 1 to all, 2 to a group, 3 to another host, 4 from this host.
    pub fn packet_type(&self) -> u16 {
        u16::from_be_bytes([self.head[0], self.head[1]])
    }

    /// Returns the kind of link (`ARPHRD_*`); 1 for Ethernet.
    pub fn hardware_type(&self) -> u16 {
        u16::from_be_bytes([self.head[2], self.head[3]])
    }

    /// Returns the length field of the sender's link address, which may exceed the bytes present.
    pub fn address_len(&self) -> u16 {
        u16::from_be_bytes([self.head[4], self.head[5]])
    }

    /// Returns the sender's link address, or its first [`MAX_ADDRESS`] bytes.
    pub fn address(&self) -> &'a [u8] {
        let address = &self.head[6..6 + MAX_ADDRESS];
        address.get(..self.address_len().into()).unwrap_or(address)
    }

    /// Returns an EtherType, [`NOVELL`], [`LLC`], or a number that depends on the hardware type.
    pub fn protocol(&self) -> u16 {
        u16::from_be_bytes([self.head[14], self.head[15]])
    }

    /// Returns the payload after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        let mut address = [0; MAX_ADDRESS];
        address.copy_from_slice(&self.head[6..6 + MAX_ADDRESS]);
        Header {
            packet_type: self.packet_type(),
            hardware_type: self.hardware_type(),
            address_len: self.address_len(),
            address,
            protocol: self.protocol(),
        }
    }
}

/// A cooked header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// 0 to this host, 1 to all, 2 to a group, 3 to another host, 4 from this host.
    pub packet_type: u16,
    /// Kind of link (`ARPHRD_*`); 1 for Ethernet.
    pub hardware_type: u16,
    /// Bytes of the sender's link address; more than [`MAX_ADDRESS`] if it is truncated.
    pub address_len: u16,
    /// The sender's link address, padded.
    pub address: [u8; MAX_ADDRESS],
    /// An EtherType, or as [`View::protocol`].
    pub protocol: u16,
}

impl Header {
    /// Writes the header to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let (head, _) = room::<LEN>(out, LEN)?;
        head[0..2].copy_from_slice(&self.packet_type.to_be_bytes());
        head[2..4].copy_from_slice(&self.hardware_type.to_be_bytes());
        head[4..6].copy_from_slice(&self.address_len.to_be_bytes());
        head[6..14].copy_from_slice(&self.address);
        head[14..16].copy_from_slice(&self.protocol.to_be_bytes());
        Ok(LEN)
    }
}

/// Returns the protocol after the header.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    Ok(Step::new(LEN, view.payload.len(), next(view.hardware_type(), view.protocol())))
}

/// Returns the protocol after a cooked header of either version.
pub(crate) fn next(hardware_type: u16, protocol: u16) -> Next {
    match (hardware_type, protocol) {
        (NETLINK, _) => Next::Number(Number::HardwareType(hardware_type)),
        (hardware_type, _) if WIRELESS.contains(&hardware_type) => Next::Number(Number::HardwareType(hardware_type)),
        (_, LLC) => Next::Protocol(Protocol::Llc),
        (_, ether_type) => Next::Number(Number::EtherType(ether_type)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_header_round_trips() {
        let bytes = [0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0, 0x08, 0x00, 0x45];
        let view = View::parse(&bytes).unwrap();
        assert_eq!((view.packet_type(), view.hardware_type(), view.protocol()), (4, 1, 0x0800));
        assert_eq!((view.address(), view.payload()), (&[2, 0, 0, 0, 0, 1][..], &[0x45][..]));
        let mut out = [9; LEN];
        assert_eq!(view.header().emit(&mut out), Ok(LEN));
        assert_eq!(out, bytes[..LEN]);
        assert!(View::parse(&bytes[..15]).is_err() && view.header().emit(&mut out[..15]).is_err());
    }

    #[test]
    fn longer_addresses_are_truncated() {
        let mut bytes = [7; LEN];
        bytes[4..6].copy_from_slice(&[0, 20]);
        assert_eq!(View::parse(&bytes).unwrap().address(), [7; 8]);
    }

    #[test]
    fn the_protocol_is_an_ethertype_on_most_links() {
        assert_eq!(next(1, 0x86dd), Next::Number(Number::EtherType(0x86dd)));
        assert_eq!(next(GRE, 0x0800), Next::Number(Number::EtherType(0x0800)));
        assert_eq!(next(1, LLC), Next::Protocol(Protocol::Llc));
        assert_eq!(next(NETLINK, 0), Next::Number(Number::HardwareType(NETLINK)));
        assert_eq!(next(803, 4), Next::Number(Number::HardwareType(803)));
    }
}
