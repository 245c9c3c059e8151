//! Transport headers.

use super::{Header, PayloadInfo, Problem};
use crate::error::room;
use crate::{Number, Protocol, Pseudo, esp, icmp, icmpv6, igmp, sctp, tcp, udp, udp_lite};

impl Header for tcp::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Tcp
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(&[])?;
        Ok(self.emit(out)?)
    }

    fn complete(&self, message: &mut [u8], addresses: Option<Pseudo>) -> Result<(), Problem> {
        Ok(tcp::fill_checksum(message, &addresses.ok_or(Problem::NoAddresses)?)?)
    }
}

impl Header for udp::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Udp
    }

    /// A port of 0 becomes that of the next header; another one is kept, because tunnels may use any.
    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        let port = behind.number(self.destination_port, Number::UdpPort, |number| match number {
            Number::UdpPort(port) => Some(port),
            _ => None,
        })?;
        let destination_port = if self.destination_port == 0 { port } else { self.destination_port };
        Ok(Self { destination_port, ..*self }.emit(behind.length, out)?)
    }

    fn complete(&self, message: &mut [u8], addresses: Option<Pseudo>) -> Result<(), Problem> {
        Ok(udp::fill_checksum(message, &addresses.ok_or(Problem::NoAddresses)?)?)
    }
}

impl Header for udp_lite::Header {
    fn protocol(&self) -> Protocol {
        Protocol::UdpLite
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(&[])?;
        Ok(self.emit(out)?)
    }

    fn complete(&self, message: &mut [u8], addresses: Option<Pseudo>) -> Result<(), Problem> {
        Ok(udp_lite::fill_checksum(message, &addresses.ok_or(Problem::NoAddresses)?)?)
    }
}

impl Header for sctp::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Sctp
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(&[])?;
        Ok(self.emit(out)?)
    }

    fn complete(&self, message: &mut [u8], _addresses: Option<Pseudo>) -> Result<(), Problem> {
        Ok(sctp::fill_checksum(message)?)
    }
}

impl Header for icmp::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Icmp
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(&[])?;
        Ok(self.emit(out)?)
    }

    fn complete(&self, message: &mut [u8], _addresses: Option<Pseudo>) -> Result<(), Problem> {
        Ok(icmp::fill_checksum(message)?)
    }
}

impl Header for icmpv6::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Icmpv6
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(&[])?;
        Ok(self.emit(out)?)
    }

    fn complete(&self, message: &mut [u8], addresses: Option<Pseudo>) -> Result<(), Problem> {
        Ok(icmpv6::fill_checksum(message, &addresses.ok_or(Problem::NoAddresses)?)?)
    }
}

/// An ICMPv6 message whose header includes the first four bytes of the body, as for an echo (RFC 4443 section 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo6 {
    /// Type and code.
    pub header: icmpv6::Header,
    /// Identifier and sequence number.
    pub echo: icmp::Echo,
}

impl Header for Echo6 {
    fn protocol(&self) -> Protocol {
        Protocol::Icmpv6
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(&[])?;
        let (front, body) = room::<{ icmpv6::LEN }>(out, icmpv6::LEN + 4)?;
        self.header.emit(front)?;
        body.copy_from_slice(&<[u8; 4]>::from(self.echo));
        Ok(icmpv6::LEN + 4)
    }

    fn complete(&self, message: &mut [u8], addresses: Option<Pseudo>) -> Result<(), Problem> {
        self.header.complete(message, addresses)
    }
}

impl Header for igmp::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Igmp
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(&[])?;
        Ok(self.emit(out)?)
    }

    fn complete(&self, message: &mut [u8], _addresses: Option<Pseudo>) -> Result<(), Problem> {
        Ok(igmp::fill_checksum(message)?)
    }
}

/// Encrypted contents are payload.
impl Header for esp::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Esp
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(&[])?;
        Ok(self.emit(out)?)
    }
}
