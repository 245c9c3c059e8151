//! Common structure of blocks: type and length before the body, the length again after it, byte order.

use crate::error::Fault;
use crate::input::LONGEST_RECORD;

/// Starts a section; a palindrome, so it is recognised before the byte order is known.
pub(crate) const SECTION_HEADER: u32 = 0x0a0d_0d0a;
pub(super) const INTERFACE: u32 = 1;
pub(super) const PACKET: u32 = 2;
pub(super) const SIMPLE_PACKET: u32 = 3;
pub(super) const STATISTICS: u32 = 5;
pub(super) const ENHANCED_PACKET: u32 = 6;

/// After type and length in a section header; gives the byte order of the section.
pub(super) const ORDER_MAGIC: u32 = 0x1a2b_3c4d;

/// Bytes of type and length before the body.
pub(super) const HEAD: usize = 8;
/// Bytes of the length after the body.
pub(super) const TRAILER: usize = 4;

/// The byte order of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    /// True if it differs from the native order.
    pub swapped: bool,
}

impl Order {
    #[inline]
    pub(super) fn u16(self, bytes: [u8; 2]) -> u16 {
        let value = u16::from_ne_bytes(bytes);
        if self.swapped { value.swap_bytes() } else { value }
    }

    #[inline]
    pub(super) fn u32(self, bytes: [u8; 4]) -> u32 {
        let value = u32::from_ne_bytes(bytes);
        if self.swapped { value.swap_bytes() } else { value }
    }

    #[inline]
    pub(super) fn u64(self, bytes: [u8; 8]) -> u64 {
        let value = u64::from_ne_bytes(bytes);
        if self.swapped { value.swap_bytes() } else { value }
    }

    /// Returns the 32-bit words of a fixed part of a body.
    #[inline]
    pub(super) fn words<const N: usize>(self, body: &[u8]) -> Option<[u32; N]> {
        let (chunks, _) = body.as_chunks::<4>();
        chunks.first_chunk::<N>().map(|chunks| chunks.map(|chunk| self.u32(chunk)))
    }

    /// Returns the order of the section that `head` (type, length, magic) starts, if it does.
    pub(super) fn of_section(head: &[u8; 12]) -> Option<Self> {
        let magic = [head[8], head[9], head[10], head[11]];
        [Order { swapped: false }, Order { swapped: true }].into_iter().find(|order| order.u32(magic) == ORDER_MAGIC)
    }
}

/// Validates the length of a block. `whole`: it must fit the buffer.
#[inline]
pub(super) fn checked_length(length: u32, whole: bool) -> Result<usize, Fault> {
    let length = length as usize;
    if length < HEAD + TRAILER || !length.is_multiple_of(4) {
        return Err(Fault::damaged(format!("block length {length}: invalid; expected a multiple of 4, at least 12")));
    }
    if whole && length > LONGEST_RECORD {
        return Err(Fault::damaged(format!(
            "block length {length} exceeds the maximum of {LONGEST_RECORD} for a packet or interface"
        )));
    }
    Ok(length)
}

/// Returns the body of a complete block after comparing the lengths before and after it.
#[inline]
pub(super) fn body(block: &[u8], order: Order) -> Result<&[u8], Fault> {
    let Some((rest, trailer)) = block.split_last_chunk::<TRAILER>() else {
        return Err(Fault::damaged("block without its trailing length"));
    };
    let length = order.u32(*trailer);
    if length as usize != block.len() {
        return Err(Fault::damaged(format!("block lengths differ: {} at its start, {length} at its end", block.len())));
    }
    Ok(&rest[HEAD.min(rest.len())..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_lengths_are_rejected() {
        for length in [0, 8, 11, 13, 30, u32::MAX] {
            assert!(checked_length(length, false).is_err(), "{length}");
        }
        assert_eq!(checked_length(12, true), Ok(12));
        assert_eq!(checked_length(u32::MAX - 3, false), Ok(u32::MAX as usize - 3));
        assert!(checked_length(LONGEST_RECORD as u32 + 4, true).is_err());
    }

    #[test]
    fn a_body_needs_the_same_length_at_both_ends() {
        let order = Order { swapped: true };
        let mut block = [0, 0, 0, 9, 0, 0, 0, 16, b'b', b'o', b'd', b'y', 0, 0, 0, 16];
        assert_eq!(body(&block, order), Ok(&b"body"[..]));
        block[15] = 20;
        assert!(body(&block, order).is_err() && body(&[], order).is_err());
    }
}
