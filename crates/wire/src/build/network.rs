//! IP headers and what stands between them and the transport.

use super::{Behind, Header, Problem};
use crate::checksum::Sum;
use crate::error::room;
use crate::{Protocol, Pseudo, ipv4, ipv6, ipv6_extension, ipv6_fragment};
use std::net::Ipv6Addr;

impl Header for ipv4::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Ipv4
    }

    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
        Ok(Self { protocol: behind.ip_protocol(self.protocol)?, ..*self }.emit(behind.length, out)?)
    }

    /// Once more, for the header may have been patched.
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

    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
        Ok(Self { next_header: behind.ip_protocol(self.next_header)?, ..*self }.emit(behind.length, out)?)
    }

    fn addresses(&self) -> Option<Pseudo> {
        Some(Pseudo::V6 { source: self.source, destination: self.destination })
    }
}

/// An extension header of the common form, which does not say itself which one it is.
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

    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
        let (Extension::HopByHop(header) | Extension::Routing(header) | Extension::Destination(header)) = *self;
        let next_header = behind.ip_protocol(header.next_header)?;
        Ok(ipv6_extension::Header { next_header, ..header }.emit(out)?)
    }

    fn final_destination(&self) -> Option<Ipv6Addr> {
        match self {
            Extension::Routing(header) => last_segment(header.data),
            _ => None,
        }
    }
}

/// Where a routing header with this data sends the packet in the end, if it is not there yet: the last address of
/// types 0 and 2 (RFC 8200, RFC 6275), the first of a segment list, which is reversed (RFC 8754).
fn last_segment(data: &[u8]) -> Option<Ipv6Addr> {
    let [kind, left, _, _, _, _, addresses @ ..] = data else { return None };
    let (addresses, _) = addresses.as_chunks::<16>();
    let last = match kind {
        _ if *left == 0 => None,
        0 | 2 => addresses.last(),
        4 => addresses.first(),
        _ => None,
    };
    last.map(|octets| Ipv6Addr::from(*octets))
}

impl Header for ipv6_fragment::Header {
    fn protocol(&self) -> Protocol {
        Protocol::Fragment
    }

    fn write(&self, behind: Behind, out: &mut [u8]) -> Result<usize, Problem> {
        Ok(Self { next_header: behind.ip_protocol(self.next_header)?, ..*self }.emit(out)?)
    }
}
