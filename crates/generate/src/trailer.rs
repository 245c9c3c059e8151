//! The last 16 bytes of a frame's payload: stream, sequence number and send time.
//!
//! Two numbers in network byte order: stream (24 bits) and sequence (40 bits); time (the lower 40 bits of UTC
//! nanoseconds) and a check (24 bits) of the other three under a key. The whole format, with examples, is on the page
//! `docs/trailer.md`.

mod tail;

pub use tail::Tail;

use linerate_burst::Nanos;
use linerate_headers::{Layers, Link};

/// Bytes of a trailer.
pub const LEN: usize = 16;
/// Bits of the time in a trailer.
pub const TIME_BITS: u32 = 40;
/// Bits of a sequence number.
pub const SEQUENCE_BITS: u32 = 40;

/// Key of the checks of a run, so that trailers of other runs and other traffic are not taken for its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub u64);

/// Contents of a trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// Stream number, 24 bits.
    pub stream: u32,
    /// Sequence number, 40 bits.
    pub sequence: u64,
    /// Send time: UTC nanoseconds, 40 bits.
    pub time: u64,
}

impl std::str::FromStr for Key {
    type Err = String;

    /// Parses a 64-bit number, such as 7 or 0x1f.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => text.parse(),
        };
        match number {
            Ok(0) => {
                Err("invalid key 0: zero bytes would be valid trailers; expected any other 64-bit number".to_owned())
            }
            Ok(number) => Ok(Key(number)),
            Err(_) => Err("invalid key; expected a 64-bit number, such as 7 or 0x1f".to_owned()),
        }
    }
}

impl Default for Key {
    fn default() -> Self {
        Key(0x6c69_6e65_7261_7465)
    }
}

impl Trailer {
    /// Returns the trailer as bytes; numbers that are too large are cut to their lower bits.
    #[inline(always)]
    pub fn bytes(&self, key: &Key) -> [u8; LEN] {
        let name = u64::from(self.stream) << SEQUENCE_BITS | self.sequence & ((1 << SEQUENCE_BITS) - 1);
        let time = self.time & ((1 << TIME_BITS) - 1);
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&name.to_be_bytes());
        bytes[8..].copy_from_slice(&(time << 24 | check(name, time, key)).to_be_bytes());
        bytes
    }

    /// Parses these bytes, if their check is valid.
    #[inline(always)]
    pub fn read(bytes: &[u8; LEN], key: &Key) -> Option<Self> {
        let (name, time) = words(bytes);
        (check(name, time >> 24, key) == time & CHECK).then_some(Trailer {
            stream: (name >> SEQUENCE_BITS) as u32,
            sequence: name & ((1 << SEQUENCE_BITS) - 1),
            time: time >> 24,
        })
    }

    /// Finds the trailer of a frame with link type `link`; `layers` is scratch memory for frames with more than
    /// Ethernet, tags and IP.
    ///
    /// ```
    /// use linerate_generate::trailer::{Key, Trailer};
    /// use linerate_headers::{Layers, Link};
    ///
    /// let trailer = Trailer { stream: 7, sequence: 1, time: 5 };
    /// let frame = [&[0xff; 14][..], &[0x41; 30], &trailer.bytes(&Key::default())].concat();
    /// assert_eq!(Trailer::find(Link::Ethernet, &frame, &Key::default(), &mut Layers::new()), Some(trailer));
    /// assert_eq!(Trailer::find(Link::Ethernet, &frame, &Key(1), &mut Layers::new()), None);
    /// ```
    pub fn find(link: Link, frame: &[u8], key: &Key, layers: &mut Layers) -> Option<Self> {
        Trailer::read(Tail::of(link, frame, layers).bytes(frame)?, key)
    }

    /// Parses bytes with at most one wrong bit, and returns the original trailer.
    pub fn repair(bytes: &[u8; LEN], key: &Key) -> Option<Self> {
        let flipped = |bit: usize| {
            let mut bytes = *bytes;
            bytes[bit / 8] ^= 0x80 >> (bit % 8);
            Trailer::read(&bytes, key)
        };
        Trailer::read(bytes, key).or_else(|| (0..LEN * 8).find_map(flipped))
    }

    /// Returns the time from sending to `received` in nanoseconds: of the times with these 40 bits the nearest is used,
    /// at most 2^39 ns (549 s) away. Negative if the clocks of both ends differ by more than the latency.
    #[inline(always)]
    pub fn latency(&self, received: Nanos) -> i64 {
        let shift = u64::BITS - TIME_BITS;
        (received.0.wrapping_sub(self.time) << shift) as i64 >> shift
    }
}

const CHECK: u64 = (1 << 24) - 1;

/// Multipliers of [`check`].
pub const FACTORS: [u64; 3] = [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53, 0x9e37_79b9_7f4a_7c15];

/// Computes the check of a name (stream << 40 | sequence) and a time: wrapping multiplications and shifts, with the
/// constants of the finalizer of MurmurHash3 (Appleby, 2011) and 2^64 times the golden ratio; the upper 24 bits are
/// kept. The XDP program computes the same.
#[inline(always)]
pub fn check(name: u64, time: u64, key: &Key) -> u64 {
    let mut word = (name ^ key.0).wrapping_mul(FACTORS[0]);
    word = (word ^ word >> 32 ^ time).wrapping_mul(FACTORS[1]);
    word = (word ^ word >> 29).wrapping_mul(FACTORS[2]);
    word >> 40
}

/// Splits the bytes into the name, and the time with the check.
#[inline(always)]
fn words(bytes: &[u8; LEN]) -> (u64, u64) {
    let both = u128::from_be_bytes(*bytes);
    ((both >> 64) as u64, both as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The examples of `docs/trailer.md`.
    const EXAMPLES: &[(u64, Trailer, &str)] = &[
        (
            0x6c69_6e65_7261_7465,
            Trailer { stream: 0, sequence: 0, time: 0 },
            "00 00 00 00 00 00 00 00 00 00 00 00 00 7e 21 46",
        ),
        (
            0x6c69_6e65_7261_7465,
            Trailer { stream: 1, sequence: 2, time: 3 },
            "00 00 01 00 00 00 00 02 00 00 00 00 03 ba 4b 99",
        ),
        (
            0x6c69_6e65_7261_7465,
            Trailer { stream: 0xab_cdef, sequence: 0x12_3456_789a, time: 0xfe_dcba_9876 },
            "ab cd ef 12 34 56 78 9a fe dc ba 98 76 7b 85 81",
        ),
        (0, Trailer { stream: 0, sequence: 0, time: 0 }, "00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00"),
        (
            1,
            Trailer { stream: 0xff_ffff, sequence: (1 << 40) - 1, time: (1 << 40) - 1 },
            "ff ff ff ff ff ff ff ff ff ff ff ff ff fb 95 f5",
        ),
    ];

    #[test]
    fn keys_are_parsed() {
        assert_eq!(("0xff".parse(), "255".parse()), (Ok(Key(255)), Ok(Key(255))));
        for wrong in ["0", "", "x", "0x1ffffffffffffffff"] {
            assert!(wrong.parse::<Key>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn examples_of_the_page_are_correct() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/trailer.md");
        let page = std::fs::read_to_string(page).unwrap();
        for (key, trailer, bytes) in EXAMPLES {
            let made = trailer.bytes(&Key(*key));
            let hex: Vec<String> = made.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex.join(" "), *bytes);
            assert_eq!(Trailer::read(&made, &Key(*key)), Some(*trailer));
            let row =
                format!("| `{key:#018x}` | {} | {} | {} | `{bytes}` |", trailer.stream, trailer.sequence, trailer.time);
            assert!(page.contains(&row), "the page lacks {row}");
        }
    }

    #[test]
    fn foreign_traffic_seldom_matches() {
        let mut bytes = [0; LEN];
        let mut found = 0;
        for number in 0..3_000_000u64 {
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            found += u32::from(Trailer::read(&bytes, &Key(77)).is_some());
        }
        assert!(found <= 3, "{found} of 3 million, 0.2 are expected");
        let zeros = (0..3_000_000).filter(|key| Trailer::read(&[0; LEN], &Key(*key)).is_some()).count();
        assert!(zeros <= 3, "{zeros} of 3 million keys, 0.2 are expected");
    }

    proptest! {
        #[test]
        fn written_trailers_are_parsed(stream in 0u32..1 << 24, sequence in 0u64..1 << 40, time in 0u64..1 << 40, key: u64) {
            let trailer = Trailer { stream, sequence, time };
            prop_assert_eq!(Trailer::read(&trailer.bytes(&Key(key)), &Key(key)), Some(trailer));
        }

        #[test]
        fn flipped_bits_are_detected_and_one_is_corrected(
            stream in 0u32..1 << 24, sequence in 0u64..1 << 40, time in 0u64..1 << 40, bits in prop::collection::btree_set(0usize..128, 1..4),
        ) {
            let trailer = Trailer { stream, sequence, time };
            let mut bytes = trailer.bytes(&Key::default());
            bits.iter().for_each(|bit| bytes[bit / 8] ^= 1 << (bit % 8));
            prop_assert_eq!(Trailer::read(&bytes, &Key::default()), None);
            if bits.len() == 1 {
                prop_assert_eq!(Trailer::repair(&bytes, &Key::default()), Some(trailer));
            }
        }

        #[test]
        fn latencies_do_not_depend_on_upper_bits(received: u64, latency in -(1i64 << 39)..1 << 39) {
            let time = received.wrapping_sub(latency as u64) & ((1 << TIME_BITS) - 1);
            let trailer = Trailer { stream: 0, sequence: 0, time };
            prop_assert_eq!(trailer.latency(Nanos(received)), latency);
        }
    }
}
