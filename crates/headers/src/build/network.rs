//! IP headers.

use super::{Header, PayloadInfo, Problem};
use crate::checksum::Sum;
use crate::error::room;
use crate::{Protocol, Pseudo, ipv4, ipv6};

impl Header for ipv4::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Ipv4
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        Ok(Self { protocol: behind.ip_protocol(self.protocol)?, ..*self }.emit(behind.length, out)?)
    }

    /// Computed again, because the header may have been patched.
    fn complete(&self, message: &mut [u8], _addresses: Option<Pseudo>) -> Result<(), Problem> {
        let (head, options) = room::<{ ipv4::LEN }>(message, ipv4::LEN + self.options.as_bytes().len())?;
        head[10..12].fill(0);
        let checksum = Sum::of(head).with(options).checksum();
        head[10..12].copy_from_slice(&checksum.to_be_bytes());
        Ok(())
    }

    fn addresses(&self) -> Option<Pseudo> {
        Some(Pseudo::V4 { source: self.source, destination: self.destination })
    }
}

impl Header for ipv6::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Ipv6
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        Ok(Self { next_header: behind.ip_protocol(self.next_header)?, ..*self }.emit(behind.length, out)?)
    }

    fn addresses(&self) -> Option<Pseudo> {
        Some(Pseudo::V6 { source: self.source, destination: self.destination })
    }
}
