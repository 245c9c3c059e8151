//! The host identity protocol (RFC 7401 section 5.1).

use crate::error::{room, split};
use crate::registry::{self, Step};
use crate::{EmitError, Flaw, Malformed, Protocol, Pseudo, ipv6};
use std::net::Ipv6Addr;

/// Bytes of the header without parameters.
pub const LEN: usize = 40;
/// Bytes of parameters in the longest header.
pub const MAX_PARAMETERS: usize = 256 * UNIT - LEN;

/// The current version; 1 is that of RFC 5201.
pub const VERSION: u8 = 2;

/// Unit of the length field, which omits the first.
const UNIT: usize = 8;
/// Offset of the checksum field.
const CHECKSUM: usize = 4;
/// Constant lowest bit of the fourth byte (RFC 7401 section 5.1).
const FIXED: u8 = 1;

/// A HIP packet.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    parameters: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a packet; its parameters must be complete.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let flawed = |flaw| Malformed { protocol: Protocol::Hip, flaw };
        let (head, rest) = split::<LEN>(bytes, Protocol::Hip)?;
        let length = (usize::from(head[1]) + 1) * UNIT;
        let parameters = length.checked_sub(LEN).ok_or(flawed(Flaw::HeaderLength))?;
        let (parameters, payload) = rest.split_at_checked(parameters).ok_or(flawed(Flaw::Short))?;
        Ok(View { head, parameters, payload })
    }

    /// Returns the IP protocol number of the header after this one: so far always 59, none.
    pub fn next_header(&self) -> u8 {
        self.head[0]
    }

    /// Returns the length of the header in bytes, parameters included: a multiple of 8.
    pub fn header_len(&self) -> usize {
        LEN + self.parameters.len()
    }

    /// Returns the type of the packet, 7 bits.
    pub fn kind(&self) -> u8 {
        self.head[2] & 0x7f
    }

    /// Returns the version, 4 bits.
    pub fn version(&self) -> u8 {
        self.head[3] >> 4
    }

    /// Returns the checksum field.
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.head[4], self.head[5]])
    }

    /// Returns whether the checksum is correct.
    pub fn is_checksum_right(&self, pseudo: &Pseudo) -> bool {
        let sum = pseudo.sum(registry::HIP, self.header_len() as u32);
        sum.with(self.head).with(self.parameters).checksum() == 0
    }

    /// Returns the controls, 16 bits.
    pub fn controls(&self) -> u16 {
        u16::from_be_bytes([self.head[6], self.head[7]])
    }

    /// Returns the host identity tag of the sender.
    pub fn sender(&self) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.head[8..24]);
        octets.into()
    }

    /// Returns the host identity tag of the receiver.
    pub fn receiver(&self) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.head[24..40]);
        octets.into()
    }

    /// Returns the parameters, as on the wire.
    pub fn parameters(&self) -> &'a [u8] {
        self.parameters
    }

    /// Returns the payload after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header<'a> {
        Header {
            next_header: self.next_header(),
            kind: self.kind(),
            version: self.version(),
            controls: self.controls(),
            sender: self.sender(),
            receiver: self.receiver(),
            parameters: self.parameters,
        }
    }
}

/// A HIP header; its length is computed when it is emitted, the checksum by [`fill_checksum`]. Reserved bits are not
/// kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// IP protocol number of the header after this one.
    pub next_header: u8,
    /// Type of the packet, at most 127.
    pub kind: u8,
    /// [`VERSION`], at most 15.
    pub version: u8,
    /// Controls.
    pub controls: u16,
    /// Host identity tag of the sender.
    pub sender: Ipv6Addr,
    /// Host identity tag of the receiver.
    pub receiver: Ipv6Addr,
    /// The parameters: a multiple of 8 bytes, at most [`MAX_PARAMETERS`].
    pub parameters: &'a [u8],
}

impl Header<'_> {
    /// Writes the header, with a checksum of zero, to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        if !self.parameters.len().is_multiple_of(UNIT) || self.parameters.len() > MAX_PARAMETERS {
            return Err(EmitError::Field("HIP parameters have a multiple of 8 bytes, at most 2008"));
        }
        if self.kind > 0x7f || self.version > 0xf {
            return Err(EmitError::Field("a HIP packet type has 7 bits, a version 4"));
        }
        let length = LEN + self.parameters.len();
        let (head, parameters) = room::<LEN>(out, length)?;
        head[0..4].copy_from_slice(&[
            self.next_header,
            (length / UNIT - 1) as u8,
            self.kind,
            self.version << 4 | FIXED,
        ]);
        head[4..6].fill(0);
        head[6..8].copy_from_slice(&self.controls.to_be_bytes());
        head[8..24].copy_from_slice(&self.sender.octets());
        head[24..40].copy_from_slice(&self.receiver.octets());
        parameters.copy_from_slice(self.parameters);
        Ok(length)
    }
}

/// Computes the checksum of a complete header, parameters included, and writes it there.
pub fn fill_checksum(header: &mut [u8], pseudo: &Pseudo) -> Result<(), EmitError> {
    let (head, _) = room::<LEN>(header, LEN)?;
    head[CHECKSUM..CHECKSUM + 2].fill(0);
    let checksum = pseudo.checksum(registry::HIP, header);
    header[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Returns the protocol after the header.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    Ok(Step::new(view.header_len(), view.payload.len(), ipv6::next(view.next_header())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_with_a_parameter_round_trips() {
        let pseudo = Pseudo::V6 { source: 1.into(), destination: 2.into() };
        let header = Header {
            next_header: 59,
            kind: 1,
            version: VERSION,
            controls: 3,
            sender: 4.into(),
            receiver: 5.into(),
            parameters: &[0, 6, 0, 4, 0, 0, 0, 0],
        };
        let mut bytes = [9; 49];
        assert_eq!(header.emit(&mut bytes), Ok(48));
        fill_checksum(&mut bytes[..48], &pseudo).unwrap();
        // 1 + 2 + 48 + 139 + 0x3b05 + 0x0121 + 3 + 4 + 5 + 6 + 4 = 0x3cfa, complemented.
        assert_eq!(bytes[..8], [59, 5, 1, 0x21, 0xc3, 0x05, 0, 3]);
        let view = View::parse(&bytes).unwrap();
        assert!(view.is_checksum_right(&pseudo));
        assert_eq!((view.header(), view.payload()), (header, &[9][..]));
        assert_eq!(View::parse(&bytes[..47]).unwrap_err().flaw, Flaw::Short);
        bytes[2] |= 0x80;
        assert_eq!(View::parse(&bytes).unwrap().kind(), 1, "seven bits");
        bytes[1] = 3;
        assert_eq!(View::parse(&bytes).unwrap_err().flaw, Flaw::HeaderLength);
    }

    #[test]
    fn values_beyond_the_header_are_rejected() {
        let view = [0x3b, 4].iter().copied().chain([0; 38]).collect::<Vec<u8>>();
        let header = View::parse(&view).unwrap().header();
        assert!(matches!(Header { kind: 128, ..header }.emit(&mut [0; 40]), Err(EmitError::Field(_))));
        assert!(matches!(Header { version: 16, ..header }.emit(&mut [0; 40]), Err(EmitError::Field(_))));
        assert!(matches!(Header { parameters: &[0; 4], ..header }.emit(&mut [0; 64]), Err(EmitError::Field(_))));
    }
}
