//! SCTP (RFC 9260): the common header; the chunks after it are its payload.

use crate::error::{room, split};
use crate::registry::{Next, Step};
use crate::{Crc32c, EmitError, Malformed, Protocol};

/// Bytes of the common header.
pub const LEN: usize = 12;
/// Bytes of a chunk's header.
pub const CHUNK_LEN: usize = 4;

/// Type of a chunk of user data.
pub const DATA: u8 = 0;
/// Type of the chunk that opens an association.
pub const INIT: u8 = 1;

/// Alignment of chunks in bytes.
const ALIGNMENT: usize = 4;
/// Offset of the checksum field.
const CHECKSUM: usize = 8;

/// An SCTP packet.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    head: &'a [u8; LEN],
    payload: &'a [u8],
}

impl<'a> View<'a> {
    /// Parses a packet: the payload of an IP packet.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let (head, payload) = split(bytes, Protocol::Sctp)?;
        Ok(View { head, payload })
    }

    /// Returns the source port.
    pub fn source_port(&self) -> u16 {
        u16::from_be_bytes([self.head[0], self.head[1]])
    }

    /// Returns the destination port.
    pub fn destination_port(&self) -> u16 {
        u16::from_be_bytes([self.head[2], self.head[3]])
    }

    /// Returns the verification tag, chosen by the receiver.
    pub fn tag(&self) -> u32 {
        u32::from_be_bytes([self.head[4], self.head[5], self.head[6], self.head[7]])
    }

    /// Returns the checksum field.
    pub fn checksum(&self) -> u32 {
        u32::from_le_bytes([self.head[8], self.head[9], self.head[10], self.head[11]])
    }

    /// Returns whether the checksum is correct; meaningless for a packet that is truncated or a fragment.
    pub fn is_checksum_right(&self) -> bool {
        checksum(&self.head[..CHECKSUM], self.payload) == self.checksum()
    }

    /// Returns the chunks, in order. A bad length is the last item.
    pub fn chunks(&self) -> Chunks<'a> {
        Chunks { rest: self.payload }
    }

    /// Returns the payload after the common header: the chunks.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the common header as a value.
    pub fn header(&self) -> Header {
        Header { source_port: self.source_port(), destination_port: self.destination_port(), tag: self.tag() }
    }
}

/// One chunk of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Type: [`DATA`], [`INIT`] or another.
    pub kind: u8,
    /// Flags, whose meaning depends on the type.
    pub flags: u8,
    /// Its contents, without padding.
    pub value: &'a [u8],
}

impl Chunk<'_> {
    /// Writes the chunk, padded to a multiple of 4 bytes, to the front of `out`; returns its length with padding.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let length = CHUNK_LEN + self.value.len();
        let Ok(said) = u16::try_from(length) else {
            return Err(EmitError::Field("an SCTP chunk has at most 65535 bytes"));
        };
        let padded = length.next_multiple_of(ALIGNMENT);
        let (head, behind) = room::<CHUNK_LEN>(out, padded)?;
        let [high, low] = said.to_be_bytes();
        *head = [self.kind, self.flags, high, low];
        let (value, padding) = behind.split_at_mut(self.value.len());
        value.copy_from_slice(self.value);
        padding.fill(0);
        Ok(padded)
    }
}

/// Error: the length of a chunk is below 4, or exceeds the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadLength;

/// Iterates over the chunks of a packet.
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<Chunk<'a>, BadLength>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let chunk = first(self.rest);
        let padded = chunk.map_or(self.rest.len(), |chunk| (CHUNK_LEN + chunk.value.len()).next_multiple_of(ALIGNMENT));
        // The padding of the last chunk may be missing.
        self.rest = self.rest.get(padded..).unwrap_or_default();
        Some(chunk.ok_or(BadLength))
    }
}

/// An SCTP common header; the checksum is computed by [`fill_checksum`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Verification tag, chosen by the receiver.
    pub tag: u32,
}

impl Header {
    /// Writes the header, with a checksum of zero, to the front of `out`; returns its length.
    pub fn emit(&self, out: &mut [u8]) -> Result<usize, EmitError> {
        let (head, _) = room::<LEN>(out, LEN)?;
        head[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        head[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        head[4..8].copy_from_slice(&self.tag.to_be_bytes());
        head[8..12].fill(0);
        Ok(LEN)
    }
}

/// Computes the checksum of a complete packet (header and chunks) and writes it into its header.
pub fn fill_checksum(packet: &mut [u8]) -> Result<(), EmitError> {
    let (head, chunks) = room::<LEN>(packet, packet.len()).map_err(|_| EmitError::NoRoom { need: LEN })?;
    let checksum = checksum(&head[..CHECKSUM], chunks);
    head[CHECKSUM..].copy_from_slice(&checksum.to_le_bytes());
    Ok(())
}

/// Returns the checksum of a packet; its own field counts as zero.
fn checksum(front: &[u8], chunks: &[u8]) -> u32 {
    Crc32c::NEW.with(front).with(&[0; 4]).with(chunks).value()
}

/// Returns the first chunk of `bytes`.
fn first(bytes: &[u8]) -> Option<Chunk<'_>> {
    let ([kind, flags, high, low], rest) = bytes.split_first_chunk::<CHUNK_LEN>()?;
    let length = usize::from(u16::from_be_bytes([*high, *low])).checked_sub(CHUNK_LEN)?;
    Some(Chunk { kind: *kind, flags: *flags, value: rest.get(..length)? })
}

/// Returns the length of the header; the chunks follow.
pub(crate) fn step(bytes: &[u8]) -> Result<Step, Malformed> {
    Ok(Step::new(LEN, View::parse(bytes)?.payload.len(), Next::End))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_with_two_chunks_round_trips() {
        let header = Header { source_port: 7, destination_port: 0x0102, tag: 0xdead_beef };
        let chunks = [Chunk { kind: DATA, flags: 3, value: &[1, 2, 3, 4, 5] }, Chunk { kind: 4, flags: 0, value: &[] }];
        let mut packet = [9; LEN + 12 + 4];
        let mut at = header.emit(&mut packet).unwrap();
        for chunk in chunks {
            at += chunk.emit(&mut packet[at..]).unwrap();
        }
        assert_eq!(at, packet.len());
        fill_checksum(&mut packet).unwrap();
        assert_eq!(packet[..8], [0, 7, 1, 2, 0xde, 0xad, 0xbe, 0xef]);
        assert_eq!(packet[12..24], [0, 3, 0, 9, 1, 2, 3, 4, 5, 0, 0, 0]);
        let view = View::parse(&packet).unwrap();
        assert!(view.is_checksum_right());
        assert_eq!(view.header(), header);
        assert!(view.chunks().eq(chunks.map(Ok)));
        packet[13] ^= 1;
        assert!(!View::parse(&packet).unwrap().is_checksum_right());
        assert!(View::parse(&packet[..11]).is_err() && fill_checksum(&mut packet[..11]).is_err());
    }

    #[test]
    fn checksum_is_little_endian() {
        let mut packet = [0; LEN];
        fill_checksum(&mut packet).unwrap();
        assert_eq!(packet[8..], Crc32c::NEW.with(&[0; LEN]).value().to_le_bytes());
    }

    #[test]
    fn chunk_list_ends_at_an_oversized_chunk() {
        let chunks = |bytes: &[u8]| {
            View::parse(&[&[0; LEN], bytes].concat())
                .unwrap()
                .chunks()
                .map(|it| it.map(|it| it.kind))
                .collect::<Vec<_>>()
        };
        assert_eq!(chunks(&[1, 0, 0, 5, 7]), [Ok(1)], "padding of the last chunk may be missing");
        assert_eq!(chunks(&[1, 0, 0, 4, 2, 0, 0, 3, 9]), [Ok(1), Err(BadLength)]);
        assert_eq!(chunks(&[1, 0, 0, 6, 7]), [Err(BadLength)]);
        assert_eq!(chunks(&[1, 0, 0]), [Err(BadLength)]);
        assert!(matches!(
            Chunk { kind: 0, flags: 0, value: &[0; 65_532] }.emit(&mut [0; 70_000]),
            Err(EmitError::Field(_))
        ));
    }
}
