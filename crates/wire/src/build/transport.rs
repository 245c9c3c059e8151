//! What IP packets carry.

use super::{Behind, Header, Problem};
use crate::{Number, Protocol, Pseudo, esp, icmp, icmpv6, igmp, sctp, tcp, udp, udp_lite};

impl Header for tcp::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Tcp
    }

    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
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

    /// A port of 0 becomes that of the next header; another one stays, for tunnels may use any.
    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
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

    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
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

    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
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

    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
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

    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(&[])?;
        Ok(self.emit(out)?)
    }

    fn complete(&self, message: &mut [u8], addresses: Option<Pseudo>) -> Result<(), Problem> {
        Ok(icmpv6::fill_checksum(message, &addresses.ok_or(Problem::NoAddresses)?)?)
    }
}

impl Header for igmp::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Igmp
    }

    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(&[])?;
        Ok(self.emit(out)?)
    }

    fn complete(&self, message: &mut [u8], _addresses: Option<Pseudo>) -> Result<(), Problem> {
        Ok(igmp::fill_checksum(message)?)
    }
}

/// What is encrypted is the payload.
impl Header for esp::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Esp
    }

    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(&[])?;
        Ok(self.emit(out)?)
    }
}
