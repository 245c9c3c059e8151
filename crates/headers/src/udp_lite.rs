//! UDP-Lite (RFC 3828): UDP whose checksum may cover only the beginning of a datagram.

use crate::error::{room, split};
use crate::registry::{self, Next, Step};
use crate::{EmitError, Flaw, Malformed, Protocol, Pseudo};

/// Bytes of the header.
pub const LEN: usize = 8;

/// Offset of the checksum field.
const CHECKSUM: usize = 6;

/// A UDP-Lite datagram.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a datagram: the payload of an IP packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, payload) = split::<LEN>(bytes, Protocol::UdpLite)?;
        let view = View { head, payload };
        match view.coverage() {
            1..8 => Err(Malformed { protocol: Protocol::UdpLite, flaw: Flaw::TotalLength }),
            _ => Ok(view),
        }
    }

    /// Returns the source port.
    pub fn source_port(&self) -> u16 {
        u16::from_be_bytes([self.head[0], self.head[1]])
    }

    /// Returns the destination port.
    pub fn destination_port(&self) -> u16 {
        u16::from_be_bytes([self.head[2], self.head[3]])
    }

    /// Returns the number of bytes that the checksum covers, header included; 0 for all.
    pub fn coverage(&self) -> u16 {
        u16::from_be_bytes([self.head[4], self.head[5]])
    }

    /// Returns the checksum field.
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.head[6], self.head[7]])
    }

    /// Returns whether the checksum is correct; meaningless for a datagram that is truncated or a fragment.
    pub fn is_checksum_right(&self, pseudo: &Pseudo) -> bool {
        let behind = match usize::from(self.coverage()) {
            0 => self.payload.len(),
            coverage => coverage.saturating_sub(LEN),
        };
        let Some(covered) = self.payload.get(..behind) else { return false };
        let length = (LEN + self.payload.len()) as u32;
        let sum = pseudo.sum(registry::UDP_LITE, length).with(self.head).with(covered);
        self.checksum() != 0 && sum.checksum() == 0
    }

    /// Returns the payload after the header.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        Header { source_port: self.source_port(), destination_port: self.destination_port(), coverage: self.coverage() }
    }
}

/// A UDP-Lite header; the checksum is computed by [`fill_checksum`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Bytes that the checksum covers, header included, at least 8; 0 for all.
    pub coverage: u16,
}

impl Header {
    /// Writes the header, with a checksum of zero, to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        if (1..8).contains(&self.coverage) {
            return Err(EmitError::Field("a UDP-Lite checksum covers the header"));
        }
        let (head, _) = room::<LEN>(out, LEN)?;
        head[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        head[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        head[4..6].copy_from_slice(&self.coverage.to_be_bytes());
        head[6..8].fill(0);
        Ok(LEN)
    }
}

/// Computes the checksum of a complete datagram (header and payload), over the bytes that its coverage names, and
/// writes it into its header.
pub fn fill_checksum(datagram: &mut [u8], pseudo: &Pseudo) -> Result<(), EmitError> {
    let (head, _) = room::<LEN>(datagram, LEN)?;
    head[CHECKSUM..CHECKSUM + 2].fill(0);
    let coverage = match usize::from(u16::from_be_bytes([head[4], head[5]])) {
        0 => datagram.len(),
        coverage => coverage,
    };
    let covered = datagram.get(..coverage).filter(|covered| covered.len() >= LEN);
    let covered = covered.ok_or(EmitError::Field("a UDP-Lite checksum covers the header and at most the datagram"))?;
    let checksum = match pseudo.sum(registry::UDP_LITE, datagram.len() as u32).with(covered).checksum() {
        0 => 0xffff, // 0 would mean none, which UDP-Lite does not have
        checksum => checksum,
    };
    datagram[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Returns the length of the header; the payload follows.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    Ok(Step::new(LEN, View::parse(bytes)?.payload.len(), Next::End))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const PSEUDO: Pseudo = Pseudo::V4 { source: Ipv4Addr::LOCALHOST, destination: Ipv4Addr::LOCALHOST };

    #[test]
    fn only_covered_bytes_count() {
        let header = Header { source_port: 1, destination_port: 2, coverage: 10 };
        let mut datagram = [7; 13];
        assert_eq!(header.emit(&mut datagram), Ok(LEN));
        fill_checksum(&mut datagram, &PSEUDO).unwrap();
        // Pseudo-header 0x7f00 + 1 + 0x7f00 + 1 + 136 + 13, ports 1 + 2, coverage 10, data 0x0707: 0x05ac, complemented.
        assert_eq!(datagram[..8], [0, 1, 0, 2, 0, 10, 0xfa, 0x53]);
        let right = |datagram: &[u8]| View::parse(datagram).unwrap().is_checksum_right(&PSEUDO);
        assert!(right(&datagram));
        datagram[12] = 8;
        assert!(right(&datagram), "not covered");
        datagram[9] = 8;
        assert!(!right(&datagram));
        datagram[6..8].fill(0);
        assert!(!right(&datagram), "there must be one");
        assert_eq!(View::parse(&datagram).unwrap().header(), header);
        Header { coverage: 0, ..header }.emit(&mut datagram).unwrap();
        fill_checksum(&mut datagram, &PSEUDO).unwrap();
        assert!(right(&datagram));
        datagram[12] = 9;
        assert!(!right(&datagram), "all is covered");
    }

    #[test]
    fn zero_checksum_is_sent_as_ffff() {
        let mut datagram = [0u8; 10];
        fill_checksum(&mut datagram, &PSEUDO).unwrap();
        let checksum = View::parse(&datagram).unwrap().checksum();
        // Putting the checksum into the payload makes the sum 0xffff, the checksum 0.
        datagram[8..].copy_from_slice(&checksum.to_be_bytes());
        fill_checksum(&mut datagram, &PSEUDO).unwrap();
        let view = View::parse(&datagram).unwrap();
        assert_eq!((view.checksum(), view.is_checksum_right(&PSEUDO)), (0xffff, true));
    }

    #[test]
    fn contradictory_coverages_are_rejected() {
        let mut datagram = [0, 1, 0, 2, 0, 7, 0, 0, 1];
        assert_eq!(View::parse(&datagram).unwrap_err().flaw, Flaw::TotalLength);
        assert!(fill_checksum(&mut datagram, &PSEUDO).is_err());
        datagram[5] = 10;
        assert!(!View::parse(&datagram).unwrap().is_checksum_right(&PSEUDO), "beyond the end");
        assert!(fill_checksum(&mut datagram, &PSEUDO).is_err());
        assert!(matches!(Header { coverage: 1, ..Header::default() }.emit(&mut [0; 8]), Err(EmitError::Field(_))));
    }
}
