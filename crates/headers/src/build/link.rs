//! Headers of links and tags, and ARP.

use super::{Header, PayloadInfo, Problem};
use crate::{Number, Protocol, arp, chdlc, ethernet, llc, mpls, null, ppp, pppoe, pseudowire, sll, sll2, vlan};

impl Header for ethernet::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Ethernet
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        Ok(Self { ether_type: behind.type_or_length(self.ether_type)?, ..*self }.emit(out)?)
    }
}

impl Header for vlan::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Vlan
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        Ok(Self { ether_type: behind.type_or_length(self.ether_type)?, ..*self }.emit(out)?)
    }
}

impl Header for llc::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Llc
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        let header = match *self {
            llc::Header::Snap(snap) => {
                llc::Header::Snap(llc::Snap { protocol: behind.ether_type(snap.protocol)?, ..snap })
            }
            llc::Header::Plain(plain) => {
                let destination_sap = behind.number(plain.destination_sap, Number::Sap, |number| match number {
                    Number::Sap(sap) => Some(sap),
                    _ => None,
                })?;
                llc::Header::Plain(llc::Plain { destination_sap, ..plain })
            }
        };
        Ok(header.emit(out)?)
    }
}

impl Header for arp::Packet {
    fn protocol(&self) -> Protocol {
        Protocol::Arp
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(&[])?;
        Ok(self.emit(out)?)
    }
}

impl Header for &[mpls::Entry] {
    fn protocol(&self) -> Protocol {
        Protocol::Mpls
    }

    /// A label does not identify the next header, so it must be the one that a parser guesses.
    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(&[Protocol::Ipv4, Protocol::Ipv6, Protocol::Pseudowire, Protocol::Ethernet])?;
        Ok(mpls::emit(self, out)?)
    }
}

/// A single label, so that a stack is built of several headers. The last one is the bottom.
impl Header for mpls::Entry {
    fn protocol(&self) -> Protocol {
        Protocol::Mpls
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        if behind.protocol != Some(Protocol::Mpls) {
            return (&[*self][..]).write(behind, out);
        }
        let length = mpls::emit(&[*self], out)?;
        out[length - 2] &= !mpls::BOTTOM;
        Ok(length)
    }
}

/// A service tag (802.1ad): like a customer tag except for its EtherType.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceTag(pub vlan::Header);

impl Header for ServiceTag {
    fn protocol(&self) -> Protocol {
        Protocol::Vlan
    }

    fn numbers(&self) -> &'static [Number] {
        &[Number::EtherType(vlan::SERVICE), Number::EtherType(vlan::OLD_SERVICE)]
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        self.0.write(behind, out)
    }
}

impl Header for pseudowire::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Pseudowire
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        let header = match (*self, behind.protocol) {
            (pseudowire::Header::Channel { version, .. }, Some(Protocol::Ipv4)) => {
                pseudowire::Header::Channel { version, channel: pseudowire::CHANNEL_IPV4 }
            }
            (pseudowire::Header::Channel { version, .. }, Some(Protocol::Ipv6)) => {
                pseudowire::Header::Channel { version, channel: pseudowire::CHANNEL_IPV6 }
            }
            (pseudowire::Header::Data { .. }, Some(Protocol::Ethernet)) | (_, None) => *self,
            (_, Some(next)) => return Err(Problem::CannotCarry(next)),
        };
        Ok(header.emit(out)?)
    }
}

impl Header for pppoe::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Pppoe
    }

    fn numbers(&self) -> &'static [Number] {
        match self.code {
            pppoe::SESSION_DATA => &[Number::EtherType(pppoe::SESSION)],
            _ => &[Number::EtherType(pppoe::DISCOVERY)],
        }
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(if self.code == pppoe::SESSION_DATA { &[Protocol::Ppp] } else { &[] })?;
        Ok(self.emit(behind.length, out)?)
    }
}

impl Header for ppp::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Ppp
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        let protocol = behind.number(self.protocol, Number::PppProtocol, |number| match number {
            Number::PppProtocol(protocol) => Some(protocol),
            _ => None,
        })?;
        Ok(Self { protocol, ..*self }.emit(out)?)
    }
}

impl Header for null::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Null
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        let family = behind.number(self.family, Number::AddressFamily, |number| match number {
            Number::AddressFamily(family) => Some(family),
            _ => None,
        })?;
        Ok(Self { family, ..*self }.emit(out)?)
    }
}

impl Header for sll::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Sll
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        let protocol = cooked_protocol(self.hardware_type, self.protocol, behind)?;
        Ok(Self { protocol, ..*self }.emit(out)?)
    }
}

impl Header for sll2::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Sll2
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        let protocol = cooked_protocol(self.hardware_type, self.protocol, behind)?;
        Ok(Self { protocol, ..*self }.emit(out)?)
    }
}

impl Header for chdlc::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Chdlc
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        Ok(Self { ether_type: behind.ether_type(self.ether_type)?, ..*self }.emit(out)?)
    }
}

/// Returns the protocol field of a cooked header: on some kinds of link it is not an EtherType.
fn cooked_protocol(hardware_type: u16, own: u16, behind: PayloadInfo) -> Result<u16, Problem> {
    if hardware_type == sll::NETLINK || sll::WIRELESS.contains(&hardware_type) {
        behind.only(&[])?;
    }
    if behind.protocol == Some(Protocol::Llc) { Ok(sll::LLC) } else { behind.ether_type(own) }
}
