//! ARP (RFC 826).

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{EmitError, Flaw, MacAddr, Malformed, Protocol, ethernet};
use std::net::Ipv4Addr;

/// Bytes of a packet that maps IPv4 to Ethernet addresses.
pub const LEN: usize = 28;
/// Operation: request for the owner of an address.
pub const REQUEST: u16 = 1;
/// Operation: reply of the owner.
pub const REPLY: u16 = 2;

/// Bytes before the addresses.
const FIXED: usize = 8;
/// Hardware type of Ethernet.
const ETHERNET: u16 = 1;

/// An ARP packet, for any kind of addresses.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; FIXED],
    sender_hardware: &'a [u8],
    sender_protocol: &'a [u8],
    target_hardware: &'a [u8],
    target_protocol: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a packet; all four addresses must be there.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        const SHORT: Malformed = Malformed { protocol: Protocol::Arp, flaw: Flaw::Short };
        let (head, rest) = split::<FIXED>(bytes, Protocol::Arp)?;
        let (hardware, protocol) = (usize::from(head[4]), usize::from(head[5]));
        let (sender_hardware, rest) = rest.split_at_checked(hardware).ok_or(SHORT)?;
        let (sender_protocol, rest) = rest.split_at_checked(protocol).ok_or(SHORT)?;
        let (target_hardware, rest) = rest.split_at_checked(hardware).ok_or(SHORT)?;
        let target_protocol = rest.get(..protocol).ok_or(SHORT)?;
        Ok(View { head, sender_hardware, sender_protocol, target_hardware, target_protocol })
    }

    /// Returns the hardware type; 1 for Ethernet.
    pub fn hardware_type(&self) -> u16 {
        u16::from_be_bytes([self.head[0], self.head[1]])
    }

    /// Returns the protocol type, an EtherType.
    pub fn protocol_type(&self) -> u16 {
        u16::from_be_bytes([self.head[2], self.head[3]])
    }

    /// Returns [`REQUEST`], [`REPLY`] or another operation.
    pub fn operation(&self) -> u16 {
        u16::from_be_bytes([self.head[6], self.head[7]])
    }

    /// Returns the sender's hardware address.
    pub fn sender_hardware(&self) -> &'a [u8] {
        self.sender_hardware
    }

    /// Returns the sender's protocol address.
    pub fn sender_protocol(&self) -> &'a [u8] {
        self.sender_protocol
    }

    /// Returns the target's hardware address.
    pub fn target_hardware(&self) -> &'a [u8] {
        self.target_hardware
    }

    /// Returns the target's protocol address.
    pub fn target_protocol(&self) -> &'a [u8] {
        self.target_protocol
    }

    /// Returns the length of the packet in bytes, addresses included.
    pub fn header_len(&self) -> usize {
        FIXED + 2 * (self.sender_hardware.len() + self.sender_protocol.len())
    }

    /// Returns the packet as a value, if it maps IPv4 to Ethernet addresses.
    pub fn packet(&self) -> Option<Packet> {
        if (self.hardware_type(), self.protocol_type()) != (ETHERNET, ethernet::IPV4) {
            return None;
        }
        Some(Packet {
            operation: self.operation(),
            sender_mac: MacAddr(self.sender_hardware.try_into().ok()?),
            sender_ip: <[u8; 4]>::try_from(self.sender_protocol).ok()?.into(),
            target_mac: MacAddr(self.target_hardware.try_into().ok()?),
            target_ip: <[u8; 4]>::try_from(self.target_protocol).ok()?.into(),
        })
    }
}

/// An ARP packet that maps IPv4 to Ethernet addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// [`REQUEST`], [`REPLY`] or another operation.
    pub operation: u16,
    /// The sender's MAC address.
    pub sender_mac: MacAddr,
    /// The sender's IP address.
    pub sender_ip: Ipv4Addr,
    /// The target's MAC address; zero in a request.
    pub target_mac: MacAddr,
    /// The target's IP address.
    pub target_ip: Ipv4Addr,
}

impl Packet {
    /// Writes the packet to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let (head, _) = room::<LEN>(out, LEN)?;
        head[0..2].copy_from_slice(&ETHERNET.to_be_bytes());
        head[2..4].copy_from_slice(&ethernet::IPV4.to_be_bytes());
        head[4..6].copy_from_slice(&[6, 4]);
        head[6..8].copy_from_slice(&self.operation.to_be_bytes());
        head[8..14].copy_from_slice(&self.sender_mac.0);
        head[14..18].copy_from_slice(&self.sender_ip.octets());
        head[18..24].copy_from_slice(&self.target_mac.0);
        head[24..28].copy_from_slice(&self.target_ip.octets());
        Ok(LEN)
    }
}

/// Returns the length of the packet; nothing follows.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    Ok(Step::new(View::parse(bytes)?.header_len(), 0, Next::End))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_request_round_trips() {
        let mut bytes = [0u8; LEN];
        bytes[..8].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
        bytes[8..18].copy_from_slice(&[2, 0, 0, 0, 0, 1, 10, 0, 0, 1]);
        bytes[24..].copy_from_slice(&[10, 0, 0, 2]);
        let packet = View::parse(&bytes).unwrap().packet().unwrap();
        assert_eq!(packet.operation, REQUEST);
        assert_eq!(packet.sender_mac.to_string(), "02:00:00:00:00:01");
        assert_eq!((packet.sender_ip, packet.target_ip), ([10, 0, 0, 1].into(), [10, 0, 0, 2].into()));
        let mut out = [0xff; LEN];
        assert_eq!(packet.emit(&mut out), Ok(LEN));
        assert_eq!(out, bytes);
        assert!(View::parse(&bytes[..LEN - 1]).is_err());
    }

    #[test]
    fn other_address_lengths_have_a_view_but_no_value() {
        let bytes = [0, 7, 8, 0, 1, 2, 0, 1, 0xa, 1, 2, 0xb, 3, 4, 99];
        let view = View::parse(&bytes).unwrap();
        assert_eq!((view.sender_hardware(), view.sender_protocol()), (&[0xa][..], &[1, 2][..]));
        assert_eq!((view.target_hardware(), view.target_protocol()), (&[0xb][..], &[3, 4][..]));
        assert_eq!((view.header_len(), view.packet()), (14, None));
    }
}
