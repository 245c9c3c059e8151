//! The Internet checksum: sums (RFC 1071), incremental update (RFC 1624), pseudo-headers.

use std::net::{Ipv4Addr, Ipv6Addr};

/// A running one's complement sum of 16-bit words.
///
/// Words are summed in the byte order of the machine and swapped once at the end, which is equivalent according to RFC
/// 1071 section 2(B). Up to 4 GiB can be added.
///
/// ```
/// use linerate_headers::Sum;
/// // The example of RFC 1071, section 3.
/// assert_eq!(Sum::of(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]).folded(), 0xddf2);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Sum of no bytes.
    pub const ZERO: Sum = Sum(0);

    /// Returns the sum of `bytes`.
    #[inline]
    pub fn of(bytes: &[u8]) -> Sum {
        Sum::ZERO.with(bytes)
    }

    /// Returns this sum with `bytes` added. A part of odd length is padded with a zero byte, so only the last part of a
    /// message may be odd.
    #[inline]
    pub fn with(self, bytes: &[u8]) -> Sum {
        let (words, tail) = bytes.as_chunks::<4>();
        let mut sum = self.0;
        for word in words {
            sum += u64::from(u32::from_ne_bytes(*word));
        }
        let mut last = [0; 4];
        for (to, from) in last.iter_mut().zip(tail) {
            *to = *from;
        }
        Sum(sum + u64::from(u32::from_ne_bytes(last)))
    }

    /// Returns this sum with one 16-bit word added.
    #[inline]
    pub fn with_word(self, word: u16) -> Sum {
        Sum(self.0 + u64::from(word.to_be()))
    }

    /// Returns the sum in 16 bits.
    #[inline]
    pub fn folded(self) -> u16 {
        let mut sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        sum = (sum >> 32) + (sum & 0xffff_ffff);
        sum = (sum >> 16) + (sum & 0xffff);
        sum = (sum >> 16) + (sum & 0xffff);
        sum = (sum >> 16) + (sum & 0xffff);
        u16::from_be(sum as u16)
    }

    /// Returns the checksum: the complement of the sum. It is 0 over bytes that include a correct checksum.
    #[inline]
    pub fn checksum(self) -> u16 {
        !self.folded()
    }

    /// Returns the correct checksum of a message whose sum this is, with `found` in place of its checksum (RFC 1624).
    pub fn corrected(self, found: u16) -> u16 {
        Sum::ZERO.with_word(self.checksum()).with_word(found).folded()
    }
}

/// Returns the checksum after one 16-bit word changed from `old` to `new` (RFC 1624, equation 3).
///
/// Equals a new sum over all words, unless every word has become zero (then it returns 0, a new sum 0xffff); no IP, TCP
/// or UDP checksum covers only zeros.
#[inline]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    Sum::ZERO.with_word(!checksum).with_word(!old).with_word(new).checksum()
}

/// Returns the checksum after the bytes `old` became `new`: as [`update`], for fields of any even length that start at
/// an even offset. Both have the same length.
#[inline]
pub fn update_bytes(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    let without = Sum::of(old).checksum();
    Sum::of(new).with_word(!checksum).with_word(without).checksum()
}

/// Pseudo-header: the part that TCP, UDP and ICMPv6 checksums cover besides the message itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pseudo {
    /// RFC 9293 section 3.1 and RFC 768.
    V4 {
        /// Source address.
        source: Ipv4Addr,
        /// Destination address.
        destination: Ipv4Addr,
    },
    /// RFC 8200 section 8.1. After a routing header with segments left, this has the final destination.
    V6 {
        /// Source address.
        source: Ipv6Addr,
        /// Destination address.
        destination: Ipv6Addr,
    },
}

impl Pseudo {
    /// Returns its sum for a message of `length` bytes, header included, of IP protocol `protocol`.
    #[inline]
    pub fn sum(&self, protocol: u8, length: u32) -> Sum {
        let addresses = match self {
            Pseudo::V4 { source, destination } => Sum::of(&source.octets()).with(&destination.octets()),
            Pseudo::V6 { source, destination } => Sum::of(&source.octets()).with(&destination.octets()),
        };
        addresses.with(&length.to_be_bytes()).with_word(protocol.into())
    }

    /// Returns the checksum of a message whose own checksum field is zero; 0 if the field is correct already.
    #[inline]
    pub(crate) fn checksum(&self, protocol: u8, message: &[u8]) -> u16 {
        self.sum(protocol, message.len() as u32).with(message).checksum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 as written: 16-bit words in order, the carry added back each time.
    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn rfc_1624_example_avoids_negative_zero() {
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn only_all_zero_words_differ() {
        assert_eq!(update(Sum::of(&[0x12, 0x34]).checksum(), 0x1234, 0), 0);
        assert_eq!(Sum::of(&[0, 0]).checksum(), 0xffff);
    }

    #[test]
    fn a_known_ipv4_header_sums_to_its_checksum() {
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8,
            0x00, 0xc7,
        ];
        assert_eq!(Sum::of(&header).checksum(), 0);
        assert_eq!(Sum::of(&header[..10]).with(&header[12..]).checksum(), 0xb861);
    }

    #[test]
    fn large_sums_carry() {
        assert_eq!(Sum::of(&vec![0xff; 1 << 20]).folded(), 0xffff);
        assert_eq!(Sum(u64::MAX).folded(), 0xffff);
    }

    proptest! {
        #[test]
        fn a_message_with_its_corrected_checksum_sums_to_zero(
            mut bytes in proptest::collection::vec(any::<u8>(), 2..200), at in any::<proptest::sample::Index>(),
        ) {
            let at = at.index(bytes.len() / 2) * 2;
            let found = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
            let corrected = Sum::of(&bytes).corrected(found);
            bytes[at..at + 2].copy_from_slice(&corrected.to_be_bytes());
            prop_assert_eq!(Sum::of(&bytes).checksum(), 0);
        }

        #[test]
        fn sum_equals_naive(bytes in proptest::collection::vec(any::<u8>(), 0..200), split in 0usize..100) {
            prop_assert_eq!(Sum::of(&bytes).folded(), naive(&bytes));
            let split = (split * 2).min(bytes.len() & !1);
            prop_assert_eq!(Sum::of(&bytes[..split]).with(&bytes[split..]).folded(), naive(&bytes));
        }

        #[test]
        fn update_equals_full_sum(
            mut words in proptest::collection::vec(prop_oneof![Just(0u16), Just(0xffff), any::<u16>()], 2..20),
            at in any::<proptest::sample::Index>(),
            new in prop_oneof![Just(0u16), Just(0xffff), any::<u16>()],
        ) {
            let bytes = |words: &[u16]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
            let at = at.index(words.len());
            let (before, old) = (!naive(&bytes(&words)), words[at]);
            words[at] = new;
            prop_assume!(words.iter().any(|word| *word != 0));
            prop_assert_eq!(update(before, old, new), !naive(&bytes(&words)));
        }

        #[test]
        fn update_of_longer_fields_equals_full_sum(
            before in any::<[u8; 16]>(), after in any::<[u8; 16]>(), rest in any::<[u8; 8]>(),
        ) {
            let full = |field: &[u8]| !naive(&[&rest[..], field, &[1, 2]].concat());
            prop_assert_eq!(update_bytes(full(&before), &before, &after), full(&after));
        }

        #[test]
        fn pseudo_headers_equal_their_bytes(v4 in any::<[u8; 8]>(), v6 in any::<[u8; 32]>(), protocol: u8, length: u16) {
            let wide = u32::from(length) * 5;
            let (source, destination) = ([v4[0], v4[1], v4[2], v4[3]].into(), [v4[4], v4[5], v4[6], v4[7]].into());
            let bytes = [&v4[..], &[0, protocol], &length.to_be_bytes()].concat();
            prop_assert_eq!(Pseudo::V4 { source, destination }.sum(protocol, length.into()).folded(), naive(&bytes));
            let half = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&v6[at..at + 16]).unwrap());
            let pseudo = Pseudo::V6 { source: half(0), destination: half(16) };
            let bytes = [&v6[..], &wide.to_be_bytes(), &[0, 0, 0, protocol]].concat();
            prop_assert_eq!(pseudo.sum(protocol, wide).folded(), naive(&bytes));
        }
    }
}
