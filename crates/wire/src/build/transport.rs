//! What IP packets carry.

use super::{Behind, Header, Problem};
use crate::{Protocol, Pseudo, icmp, icmpv6, tcp, udp};

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

    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(&[])?;
        Ok(self.emit(behind.length, out)?)
    }

    fn complete(&self, message: &mut [u8], addresses: Option<Pseudo>) -> Result<(), Problem> {
        Ok(udp::fill_checksum(message, &addresses.ok_or(Problem::NoAddresses)?)?)
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
