//! TCP (RFC 9293); its options are in [`crate::tcp_option`].

use crate::error::{room, split};
use crate::options::{self, Options};
use crate::registry::{self, Next, Step};
use crate::tcp_option::Iter;
use crate::{EmitError, Flaw, Malformed, Protocol, Pseudo, Sum};
use std::ops::BitOr;

/// Bytes of a header without options.
pub const LEN: usize = 20;

/// Offset of the checksum field.
const CHECKSUM: usize = 16;

/// The control bits, with the three reserved ones above them: the low 12 bits of the header's word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u16);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Flags = Flags(1 << 0);
    /// Synchronise sequence numbers.
    pub const SYN: Flags = Flags(1 << 1);
    /// Reset the connection.
    pub const RST: Flags = Flags(1 << 2);
    /// Push.
    pub const PSH: Flags = Flags(1 << 3);
    /// The acknowledgement number is valid.
    pub const ACK: Flags = Flags(1 << 4);
    /// The urgent pointer is valid.
    pub const URG: Flags = Flags(1 << 5);
    /// ECN echo (RFC 3168).
    pub const ECE: Flags = Flags(1 << 6);
    /// Congestion window reduced (RFC 3168).
    pub const CWR: Flags = Flags(1 << 7);
    /// Accurate ECN (RFC 9768), formerly the nonce sum.
    pub const AE: Flags = Flags(1 << 8);

    /// All bits of the header field.
    const MASK: u16 = 0x0fff;

    /// Returns whether every bit of `other` is set.
    #[inline]
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Flags;
    #[inline]
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a segment: the payload of an IP packet.
    #[inline(always)]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let flawed = |flaw| Malformed { protocol: Protocol::Tcp, flaw };
        let (head, rest) = split::<LEN>(bytes, Protocol::Tcp)?;
        let options = (usize::from(head[12] >> 4) * 4).checked_sub(LEN).ok_or(flawed(Flaw::HeaderLength))?;
        let (options, payload) = rest.split_at_checked(options).ok_or(flawed(Flaw::Short))?;
        Ok(View { head, options, payload })
    }

    /// Returns the length of the header in bytes, options included: 20 to 60.
    #[inline]
    pub fn header_len(&self) -> usize {
        LEN + self.options.len()
    }

    /// Returns the source port.
    #[inline]
    pub fn source_port(&self) -> u16 {
        u16::from_be_bytes([self.head[0], self.head[1]])
    }

    /// Returns the destination port.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        u16::from_be_bytes([self.head[2], self.head[3]])
    }

    /// Returns the sequence number of the first byte of payload, or of the SYN.
    #[inline]
    pub fn sequence(&self) -> u32 {
        u32::from_be_bytes([self.head[4], self.head[5], self.head[6], self.head[7]])
    }

    /// Returns the next sequence number the sender expects, with [`Flags::ACK`].
    #[inline]
    pub fn acknowledgement(&self) -> u32 {
        u32::from_be_bytes([self.head[8], self.head[9], self.head[10], self.head[11]])
    }

    /// Returns the control bits.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags(u16::from_be_bytes([self.head[12], self.head[13]]) & Flags::MASK)
    }

    /// Returns the receive window, not scaled.
    #[inline]
    pub fn window(&self) -> u16 {
        u16::from_be_bytes([self.head[14], self.head[15]])
    }

    /// Returns the checksum field.
    #[inline]
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.head[16], self.head[17]])
    }

    /// Returns whether the checksum is correct; meaningless for a segment that is truncated or a fragment.
    pub fn is_checksum_right(&self, pseudo: &Pseudo) -> bool {
        self.sum(pseudo).checksum() == 0
    }

    /// Returns the checksum that the segment should have.
    pub fn correct_checksum(&self, pseudo: &Pseudo) -> u16 {
        self.sum(pseudo).corrected(self.checksum())
    }

    fn sum(&self, pseudo: &Pseudo) -> Sum {
        let length = self.header_len() + self.payload.len();
        pseudo.sum(registry::TCP, length as u32).with(self.head).with(self.options).with(self.payload)
    }

    /// Returns the offset after the last urgent byte, with [`Flags::URG`].
    #[inline]
    pub fn urgent(&self) -> u16 {
        u16::from_be_bytes([self.head[18], self.head[19]])
    }

    /// Returns the options, in order.
    #[inline]
    pub fn options(&self) -> Iter<'a> {
        Iter::over(options::Iter::over(self.options))
    }

    /// Returns the payload after the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the header as a value.
    pub fn header(&self) -> Header {
        Header {
            source_port: self.source_port(),
            destination_port: self.destination_port(),
            sequence: self.sequence(),
            acknowledgement: self.acknowledgement(),
            flags: self.flags(),
            window: self.window(),
            urgent: self.urgent(),
            // A data offset of four bits limits options to 40 bytes.
            options: Options::new(self.options).unwrap_or_default(),
        }
    }
}

/// A TCP header; its length is computed when it is emitted, the checksum by [`fill_checksum`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number of the first byte of payload, or of the SYN.
    pub sequence: u32,
    /// The next sequence number the sender expects.
    pub acknowledgement: u32,
    /// Control bits.
    pub flags: Flags,
    /// Receive window, not scaled.
    pub window: u16,
    /// Offset after the last urgent byte.
    pub urgent: u16,
    /// Options; [`crate::tcp_option::encode`] creates them.
    pub options: Options,
}

impl Header {
    /// Writes the header, with a checksum of zero, to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        if self.flags.0 > Flags::MASK {
            return Err(EmitError::Field("TCP flags have 12 bits"));
        }
        let options = self.options.as_bytes();
        let length = LEN + options.len();
        let (head, behind) = room::<LEN>(out, length)?;
        head[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        head[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        head[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        head[8..12].copy_from_slice(&self.acknowledgement.to_be_bytes());
        head[12..14].copy_from_slice(&(self.flags.0 | (length as u16 / 4) << 12).to_be_bytes());
        head[14..16].copy_from_slice(&self.window.to_be_bytes());
        head[16..18].copy_from_slice(&[0, 0]);
        head[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        behind.copy_from_slice(options);
        Ok(length)
    }
}

/// Computes the checksum of a complete segment (header and payload) and writes it into its header.
pub fn fill_checksum(segment: &mut [u8], pseudo: &Pseudo) -> Result<(), EmitError> {
    let (head, _) = room::<LEN>(segment, LEN)?;
    head[CHECKSUM..CHECKSUM + 2].fill(0);
    let checksum = pseudo.checksum(registry::TCP, segment);
    segment[CHECKSUM..CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
    Ok(())
}

/// Returns the length of the header; the payload follows.
#[inline(always)]
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    let view = View::parse(bytes)?;
    Ok(Step::new(view.header_len(), view.payload.len(), Next::End))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_syn_ack_round_trips() {
        // 10.0.0.2:80 answers 10.0.0.1:1025.
        let mut bytes = [0u8; 24];
        bytes[..16].copy_from_slice(&[0, 80, 4, 1, 0, 0, 0, 9, 0, 0, 0, 8, 0x60, 0x12, 0xff, 0xff]);
        bytes[20..].copy_from_slice(&[2, 4, 5, 0xb4]);
        let pseudo = Pseudo::V4 { source: [10, 0, 0, 2].into(), destination: [10, 0, 0, 1].into() };
        fill_checksum(&mut bytes, &pseudo).unwrap();
        let view = View::parse(&bytes).unwrap();
        assert!(view.is_checksum_right(&pseudo));
        assert_eq!(view.checksum(), 0x7fb2);
        assert_eq!(view.flags(), Flags::SYN | Flags::ACK);
        assert!(view.flags().contains(Flags::ACK) && !view.flags().contains(Flags::SYN | Flags::FIN));
        assert_eq!((view.source_port(), view.sequence(), view.acknowledgement()), (80, 9, 8));
        let mut out = [0xee; 24];
        assert_eq!(view.header().emit(&mut out), Ok(24));
        fill_checksum(&mut out, &pseudo).unwrap();
        assert_eq!(out, bytes);
    }

    #[test]
    fn contradictory_data_offsets_are_rejected() {
        let mut bytes = [0u8; 24];
        for (offset, expected) in [(4, Err(Flaw::HeaderLength)), (5, Ok(4)), (6, Ok(0)), (7, Err(Flaw::Short))] {
            bytes[12] = offset << 4;
            assert_eq!(View::parse(&bytes).map(|view| view.payload().len()).map_err(|error| error.flaw), expected);
        }
        assert!(
            fill_checksum(&mut bytes[..19], &Pseudo::V4 { source: [0; 4].into(), destination: [0; 4].into() }).is_err()
        );
        assert!(matches!(
            Header { flags: Flags(0x1000), ..Header::default() }.emit(&mut bytes),
            Err(EmitError::Field(_))
        ));
    }
}
