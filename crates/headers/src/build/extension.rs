//! Headers between IP and the transport.

use super::{Header, PayloadInfo, Problem};
use crate::checksum::Sum;
use crate::{EmitError, Protocol, Pseudo, ah, hip, ipv6_extension, ipv6_fragment, mobility, shim6};
use std::net::Ipv6Addr;

/// An extension header of the common form, whose type is not in the header itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extension<'a> {
    /// Hop-by-hop options.
    HopByHop(ipv6_extension::Header<'a>),
    /// A routing header; with segments left, checksums cover the final destination.
    Routing(ipv6_extension::Header<'a>),
    /// Destination options.
    Destination(ipv6_extension::Header<'a>),
}

impl Header for Extension<'_> {
    fn protocol(&self) -> Protocol {
        match self {
            Extension::HopByHop(_) => Protocol::HopByHop,
            Extension::Routing(_) => Protocol::Routing,
            Extension::Destination(_) => Protocol::DestinationOptions,
        }
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        let (Extension::HopByHop(header) | Extension::Routing(header) | Extension::Destination(header)) = *self;
        let next_header = behind.ip_protocol(header.next_header)?;
        Ok(ipv6_extension::Header { next_header, ..header }.emit(out)?)
    }

    fn final_destination(&self) -> Option<Ipv6Addr> {
        match self {
            Extension::Routing(header) => {
                let segment = header.data.get(last_segment(header.data)?..)?;
                segment.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets))
            }
            _ => None,
        }
    }
}

/// Returns the offset of the final destination in the data of a routing header, if it has segments left: the last
/// address of types 0 and 2 (RFC 8200, RFC 6275), the first of a segment list, which is reversed (RFC 8754).
pub(crate) fn last_segment(data: &[u8]) -> Option<usize> {
    let [kind, left, _, _, _, _, addresses @ ..] = data else { return None };
    let last = (addresses.len() / 16).checked_sub(1)?;
    match kind {
        _ if *left == 0 => None,
        0 | 2 => Some(6 + 16 * last),
        4 => Some(6),
        _ => None,
    }
}

impl Header for ipv6_fragment::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Fragment
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        Ok(Self { next_header: behind.ip_protocol(self.next_header)?, ..*self }.emit(out)?)
    }
}

impl Header for ah::Header<'_> {
    fn protocol(&self) -> Protocol {
        Protocol::Ah
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        Ok(Self { next_header: behind.ip_protocol(self.next_header)?, ..*self }.emit(out)?)
    }
}

impl Header for mobility::Header<'_> {
    fn protocol(&self) -> Protocol {
        Protocol::Mobility
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        Ok(Self { next_header: behind.ip_protocol(self.next_header)?, ..*self }.emit(out)?)
    }

    fn complete(&self, message: &mut [u8], addresses: Option<Pseudo>) -> Result<(), Problem> {
        let header = front(message, mobility::LEN + self.message.len())?;
        Ok(mobility::fill_checksum(header, &addresses.ok_or(Problem::NoAddresses)?)?)
    }
}

impl Header for hip::Header<'_> {
    fn protocol(&self) -> Protocol {
        Protocol::Hip
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        Ok(Self { next_header: behind.ip_protocol(self.next_header)?, ..*self }.emit(out)?)
    }

    fn complete(&self, message: &mut [u8], addresses: Option<Pseudo>) -> Result<(), Problem> {
        let header = front(message, hip::LEN + self.parameters.len())?;
        Ok(hip::fill_checksum(header, &addresses.ok_or(Problem::NoAddresses)?)?)
    }
}

impl Header for shim6::Header<'_> {
    fn protocol(&self) -> Protocol {
        Protocol::Shim6
    }

    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem> {
        let next_header = behind.ip_protocol(self.next_header())?;
        let header = match *self {
            shim6::Header::Data { tag, .. } => shim6::Header::Data { next_header, tag },
            shim6::Header::Control { message, .. } => shim6::Header::Control { next_header, message },
        };
        Ok(header.emit(out)?)
    }

    /// Computes the checksum over this header only, not over its contents (RFC 5533 section 5.3).
    fn complete(&self, message: &mut [u8], _addresses: Option<Pseudo>) -> Result<(), Problem> {
        if let shim6::Header::Control { message: own, .. } = self {
            let header = front(message, 2 + own.len())?;
            header[4..6].fill(0);
            let checksum = Sum::of(header).checksum();
            header[4..6].copy_from_slice(&checksum.to_be_bytes());
        }
        Ok(())
    }
}

fn front(message: &mut [u8], length: usize) -> Result<&mut [u8], EmitError> {
    message.get_mut(..length).ok_or(EmitError::NoRoom { need: length })
}
