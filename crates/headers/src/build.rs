//! Frames built from headers: fields that depend on other headers or on the payload are computed.
//!
//! A [`Frame`] is a list of headers, outermost first, and a payload. Every header of this crate can be in it. It is
//! written from the inside out, each header when all headers after it are written, so that one pass fills in
//!
//! - lengths: of IP packets, datagrams, 802.3 frames, tunnels;
//! - the number of the next header: EtherType, IP protocol, PPP protocol, UDP port. A header's own value is kept where
//!   it already selects the next header (an old service tag, another port of VXLAN), and after the last header;
//! - checksums, each over the contents of this frame: of a fragment, as if there were no others.
//!
//! Intentional errors are made by patches: a [`Patch`] is written before the checksums, which then cover it, and again
//! after them, so that a checksum can be wrong too.
//!
//! To add a protocol, implement [`Header`] in one of the files below.
//!
//! ```
//! use linerate_headers::build::{Frame, Patch};
//! use linerate_headers::{MacAddr, ethernet, ipv4, udp, vlan};
//!
//! let link = ethernet::Header { destination: MacAddr::BROADCAST, source: MacAddr([2, 0, 0, 0, 0, 1]), ether_type: 0 };
//! let tag = vlan::Header { id: 7, priority: 0, drop_eligible: false, ether_type: 0 };
//! let network = ipv4::Header { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into(), ..ipv4::Header::new(0) };
//! let transport = udp::Header { source_port: 7, destination_port: 9 };
//! let frame = Frame::new(&[&link, &tag, &network, &transport], b"hello").to_vec()?;
//! assert_eq!(frame.len(), 14 + 4 + 20 + 8 + 5);
//! let packet = ipv4::View::parse(&frame[18..])?;
//! assert!(packet.is_checksum_right() && packet.protocol() == 17 && packet.total_len() == 33);
//! assert!(udp::View::parse(packet.payload())?.is_checksum_right(&packet.pseudo()));
//!
//! // The same with a wrong total length, covered by a correct checksum.
//! let patches = [Patch { header: 2, offset: 2, bytes: &[0xff, 0xff] }];
//! let frame = Frame { patches: &patches, ..Frame::new(&[&link, &tag, &network, &transport], b"hello") }.to_vec()?;
//! assert!(ipv4::View::parse(&frame[18..])?.is_cut());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod extension;
mod link;
mod network;
mod transport;
mod tunnel;

pub use error::{BuildError, Problem};
pub use extension::Extension;
pub(crate) use extension::last_segment;
pub use link::ServiceTag;
pub use transport::Echo6;

use crate::coverage::{self, Coverage, HeaderSpan};
use crate::registry::Role;
use crate::{EmitError, Number, Protocol, Pseudo};
use std::net::Ipv6Addr;

/// A frame to be written.
#[derive(Clone, Copy)]
pub struct Frame<'a> {
    /// The headers, outermost first.
    pub headers: &'a [&'a dyn Header],
    /// Payload of the innermost header.
    pub payload: &'a [u8],
    /// Bytes to overwrite.
    pub patches: &'a [Patch<'a>],
}

/// Bytes that overwrite those of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch<'a> {
    /// Index of the header, from 0.
    pub header: usize,
    /// Offset in it, in bytes.
    pub offset: usize,
    /// Bytes to write.
    pub bytes: &'a [u8],
}

/// A header that can be part of a frame.
pub trait Header {
    /// Returns the protocol of the header.
    fn protocol(&self) -> Protocol;

    /// Returns the numbers that select it in the header before, the usual one first.
    fn numbers(&self) -> &'static [Number] {
        self.protocol().row().numbers
    }

    /// Writes it to the front of `out`, before the contents described by `behind`; returns its length. Fields that
    /// depend on more than header and lengths are left 0.
    ///
    /// # Errors
    /// [`EmitError::NoRoom`] has the required length: so a frame is measured.
    fn write(&self, behind: PayloadInfo, out: &mut [u8]) -> Result<usize, Problem>;

    /// Computes the checksum of `message`, which starts with this header and includes its payload.
    fn complete(&self, _message: &mut [u8], _addresses: Option<Pseudo>) -> Result<(), Problem> {
        Ok(())
    }

    /// Returns the addresses that the checksums of the following headers cover, if this is an IP header.
    fn addresses(&self) -> Option<Pseudo> {
        None
    }

    /// Returns the final destination, if this is a routing header with segments left.
    fn final_destination(&self) -> Option<Ipv6Addr> {
        None
    }
}

/// Contents after a header.
#[derive(Clone, Copy, Debug)]
pub struct PayloadInfo {
    /// The next header; after the last one there is only payload.
    pub protocol: Option<Protocol>,
    /// The numbers that select it.
    pub numbers: &'static [Number],
    /// Bytes of all following headers, and of the payload.
    pub length: usize,
}

impl<'a> Frame<'a> {
    /// Creates a frame without patches.
    pub fn new(headers: &'a [&'a dyn Header], payload: &'a [u8]) -> Self {
        Frame { headers, payload, patches: &[] }
    }

    /// Returns the length of the frame in bytes, without padding or FCS.
    pub fn length(&self) -> Result<usize, BuildError> {
        let mut length = self.payload.len();
        for index in 0..self.headers.len() {
            length += self.header_length(index)?;
        }
        Ok(length)
    }

    /// Writes the frame to the front of `out`; returns its length. The contents of `out` after an error are
    /// unspecified.
    pub fn write(&self, out: &mut [u8]) -> Result<usize, BuildError> {
        let need = self.length()?;
        let frame = out.get_mut(..need).ok_or(BuildError::NoRoom { need })?;
        let mut start = need - self.payload.len();
        frame[start..].copy_from_slice(self.payload);
        for index in (0..self.headers.len()).rev() {
            let behind = self.behind(index, need - start);
            start -= self.header_length(index)?;
            self.write_header(index, behind, &mut frame[start..]).map_err(self.at(index))?;
        }
        match self.patches.iter().find(|patch| patch.header >= self.headers.len()) {
            Some(patch) => Err(BuildError::NoSuchHeader { header: patch.header }),
            None => Ok(need),
        }
    }

    /// Returns the frame in a new vector.
    pub fn to_vec(&self) -> Result<Vec<u8>, BuildError> {
        let mut frame = vec![0; self.length()?];
        self.write(&mut frame)?;
        Ok(frame)
    }

    /// Returns the position of each header, the outermost first.
    pub fn placed(&self) -> Result<Vec<HeaderSpan>, BuildError> {
        let end = self.length()?;
        let mut offset = 0;
        let mut place = |index: usize| {
            let length = self.header_length(index)?;
            offset += length;
            Ok(HeaderSpan { protocol: self.headers[index].protocol(), offset: offset - length, length, end })
        };
        (0..self.headers.len()).map(&mut place).collect()
    }

    /// Returns the bytes that each checksum covers, an inner one before an outer one that covers it. Absent and patched
    /// checksums are omitted.
    pub fn checksums(&self) -> Result<Vec<Coverage>, BuildError> {
        let (frame, placed) = (self.to_vec()?, self.placed()?);
        let mut checksums = coverage::checksums(&frame, &placed);
        for patch in self.patches {
            let header = placed.get(patch.header).ok_or(BuildError::NoSuchHeader { header: patch.header })?;
            let (start, end) = (header.offset + patch.offset, header.offset + patch.offset + patch.bytes.len());
            checksums.retain(|checksum| end <= checksum.offset || checksum.offset + checksum.length() <= start);
        }
        Ok(checksums)
    }

    /// Writes one header before the contents of `message`.
    fn write_header(&self, index: usize, behind: PayloadInfo, message: &mut [u8]) -> Result<(), Problem> {
        let header = self.headers[index];
        let length = header.write(behind, message)?;
        self.patch(index, message.get_mut(..length))?;
        match header.complete(message, self.addresses(index)) {
            // A patched header may have no valid checksum, as if its coverage is too long: it stays 0.
            Err(Problem::EmitError(_)) if self.is_patched(index) => {}
            completed => completed?,
        }
        self.patch(index, message.get_mut(..length))
    }

    fn is_patched(&self, index: usize) -> bool {
        self.patches.iter().any(|patch| patch.header == index)
    }

    fn patch(&self, index: usize, mut header: Option<&mut [u8]>) -> Result<(), Problem> {
        for patch in self.patches.iter().filter(|patch| patch.header == index) {
            let rest = header.as_deref_mut().and_then(|header| header.get_mut(patch.offset..));
            let place = rest.and_then(|rest| rest.get_mut(..patch.bytes.len()));
            place.ok_or(Problem::PatchOutside)?.copy_from_slice(patch.bytes);
        }
        Ok(())
    }

    /// Returns the length of a header, from its error for an empty buffer.
    fn header_length(&self, index: usize) -> Result<usize, BuildError> {
        match self.headers[index].write(self.behind(index, 0), &mut []) {
            Err(Problem::EmitError(EmitError::NoRoom { need })) => Ok(need),
            other => other.map_err(self.at(index)),
        }
    }

    fn behind(&self, index: usize, length: usize) -> PayloadInfo {
        match self.headers.get(index + 1) {
            Some(next) => PayloadInfo { protocol: Some(next.protocol()), numbers: next.numbers(), length },
            None => PayloadInfo { protocol: None, numbers: &[], length },
        }
    }

    /// Returns the addresses of the preceding IP header, with only its extensions in between.
    fn addresses(&self, index: usize) -> Option<Pseudo> {
        let mut routed = None;
        for header in self.headers[..index].iter().rev() {
            if let Some(addresses) = header.addresses() {
                return Some(match (addresses, routed) {
                    (Pseudo::V6 { source, .. }, Some(destination)) => Pseudo::V6 { source, destination },
                    _ => addresses,
                });
            }
            if header.protocol().role() != Role::Extension {
                return None;
            }
            routed = routed.or(header.final_destination());
        }
        None
    }

    fn at(&self, index: usize) -> impl Fn(Problem) -> BuildError + use<> {
        let protocol = self.headers[index].protocol();
        move |problem| BuildError::Header { index, protocol, problem }
    }
}

impl PayloadInfo {
    /// Returns the EtherType of the next header; `own` is the header's value.
    fn ether_type(self, own: u16) -> Result<u16, Problem> {
        self.number(own, Number::EtherType, |number| match number {
            Number::EtherType(ether_type) => Some(ether_type),
            _ => None,
        })
    }

    /// Returns the EtherType, or for LLC its length (IEEE 802.3 clause 3.2.6).
    fn type_or_length(self, own: u16) -> Result<u16, Problem> {
        if self.protocol != Some(Protocol::Llc) {
            return self.ether_type(own);
        }
        let length = u16::try_from(self.length).ok().filter(|length| *length <= crate::ethernet::MAX_LENGTH);
        length.ok_or(Problem::EmitError(EmitError::Field("an 802.3 payload has at most 1500 bytes")))
    }

    /// Returns the IP protocol number of the next header; `own` is the header's value.
    fn ip_protocol(self, own: u8) -> Result<u8, Problem> {
        self.number(own, Number::IpProtocol, |number| match number {
            Number::IpProtocol(protocol) => Some(protocol),
            _ => None,
        })
    }

    /// Returns the number of the next header: `own` if it selects it, or if only payload follows; else the first of its
    /// kind.
    fn number<T: Copy>(self, own: T, make: fn(T) -> Number, value: fn(Number) -> Option<T>) -> Result<T, Problem> {
        match self.protocol {
            None => Ok(own),
            Some(_) if self.numbers.contains(&make(own)) => Ok(own),
            Some(next) => self.numbers.iter().find_map(|number| value(*number)).ok_or(Problem::CannotCarry(next)),
        }
    }

    /// Rejects next headers other than those in `able`.
    fn only(self, able: &[Protocol]) -> Result<(), Problem> {
        match self.protocol {
            Some(next) if !able.contains(&next) => Err(Problem::CannotCarry(next)),
            _ => Ok(()),
        }
    }
}
