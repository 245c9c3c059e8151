//! Headers of links and tags, and ARP.

use super::{Behind, Header, Problem};
use crate::{Protocol, arp, ethernet, llc, vlan};

impl Header for ethernet::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Ethernet
    }

    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
        Ok(Self { ether_type: behind.type_or_length(self.ether_type)?, ..*self }.emit(out)?)
    }
}

impl Header for vlan::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Vlan
    }

    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
        Ok(Self { ether_type: behind.type_or_length(self.ether_type)?, ..*self }.emit(out)?)
    }
}

impl Header for llc::Snap {
    fn protocol(&self) -> Protocol {
        Protocol::Llc
    }

    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
        Ok(Self { protocol: behind.ether_type(self.protocol)?, ..*self }.emit(out)?)
    }
}

impl Header for arp::Packet {
    fn protocol(&self) -> Protocol {
        Protocol::Arp
    }

    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
        behind.only(&[])?;
        Ok(self.emit(out)?)
    }
}
