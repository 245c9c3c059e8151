//! The line that is being written. What comes from the wire goes through [`Text::wire`], everything else is ours.

use std::fmt;

/// Bytes of the longest line, with its end. What is longer is cut, and ends in `[...]`.
pub const MAX_LINE: usize = 4096;

/// Stands at the end of a line that was cut.
const CUT: &[u8] = b" [...]\n";

/// Both digits of each number below 100.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        number += 1;
    }
    pairs
};

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A line at the end of others.
pub(crate) struct Text<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    /// What stands between what was written and what is written next, if anything is.
    gap: &'static str,
}

impl<'o> Text<'o> {
    pub(crate) fn new(out: &'o mut Vec<u8>) -> Self {
        Text { start: out.len(), out, gap: "" }
    }

    /// Whether more would be cut: lists end then.
    pub(crate) fn is_full(&self) -> bool {
        self.length() >= MAX_LINE
    }

    /// How much there is of the line.
    pub(crate) fn length(&self) -> usize {
        self.out.len() - self.start
    }

    /// Puts this in front of what is written next.
    pub(crate) fn gap(&mut self, gap: &'static str) {
        self.gap = gap;
    }

    /// Ends the line.
    pub(crate) fn end(&mut self) {
        self.gap = "";
        if self.length() < MAX_LINE {
            self.out.push(b'\n');
        } else {
            self.out.truncate(self.start + MAX_LINE - CUT.len());
            self.out.extend_from_slice(CUT);
        }
    }

    /// Text of ours.
    #[inline]
    pub(crate) fn str(&mut self, text: &str) {
        self.put(text.as_bytes());
    }

    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        if !self.gap.is_empty() {
            self.out.extend_from_slice(self.gap.as_bytes());
            self.gap = "";
        }
        self.out.extend_from_slice(bytes);
    }

    /// Text that was written by another of these.
    pub(crate) fn line(&mut self, line: &[u8]) {
        self.put(line);
    }

    /// Text from the wire: what is no visible ASCII is escaped, and so is the backslash; of more than `most` bytes, those.
    pub(crate) fn wire(&mut self, bytes: &[u8], most: usize) {
        self.put(b"");
        for byte in bytes.iter().take(most) {
            match byte {
                b'\\' => self.out.extend_from_slice(b"\\\\"),
                b' '..=b'~' => self.out.push(*byte),
                _ => {
                    let [high, low] = [byte >> 4, byte & 15].map(|half| DIGITS[usize::from(half)]);
                    self.out.extend_from_slice(&[b'\\', b'x', high, low]);
                }
            }
        }
        if bytes.len() > most {
            self.out.extend_from_slice(b"...");
        }
    }

    /// A number.
    #[inline]
    pub(crate) fn dec(&mut self, number: impl Into<u64>) {
        let mut number = number.into();
        let mut digits = [0; 20];
        let mut at = digits.len();
        while number >= 100 {
            at -= 2;
            digits[at..at + 2].copy_from_slice(&PAIRS[(number % 100) as usize]);
            number /= 100;
        }
        if number >= 10 {
            at -= 2;
            digits[at..at + 2].copy_from_slice(&PAIRS[number as usize]);
        } else {
            at -= 1;
            digits[at] = b'0' + number as u8;
        }
        self.put(&digits[at..]);
    }

    /// A number below 100 with both digits.
    #[inline]
    pub(crate) fn two(&mut self, number: u64) {
        self.put(&PAIRS[(number % 100) as usize]);
    }

    /// The last `digits` (at most 9) digits of a number.
    #[inline]
    pub(crate) fn digits(&mut self, mut number: u32, digits: usize) {
        let mut text = [b'0'; 9];
        for digit in text[..digits].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        self.put(&text[..digits]);
    }

    /// Bytes as hexadecimal digits.
    pub(crate) fn hex(&mut self, bytes: &[u8]) {
        self.put(b"");
        for byte in bytes {
            self.out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }

    /// A MAC address, or any other of bytes.
    pub(crate) fn mac(&mut self, bytes: &[u8]) {
        self.put(b"");
        for (place, byte) in bytes.iter().enumerate() {
            if place > 0 {
                self.out.push(b':');
            }
            self.out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }

    /// An IPv4 address.
    #[inline]
    pub(crate) fn ipv4(&mut self, address: [u8; 4]) {
        let mut text = [0; 16];
        let mut at = 0;
        for byte in address {
            if byte >= 100 {
                text[at] = b'0' + byte / 100;
                at += 1;
            }
            if byte >= 10 {
                text[at] = b'0' + byte / 10 % 10;
                at += 1;
            }
            text[at] = b'0' + byte % 10;
            text[at + 1] = b'.';
            at += 2;
        }
        self.put(&text[..at - 1]);
    }

    /// An IPv6 address, as RFC 5952 writes it; one that embeds an IPv4 address ends in that.
    pub(crate) fn ipv6(&mut self, address: [u8; 16]) {
        let words: [u16; 8] = std::array::from_fn(|at| u16::from_be_bytes([address[2 * at], address[2 * at + 1]]));
        let (mut first, mut longest, mut zeros) = (8, 1, 0);
        for (at, word) in words.iter().enumerate() {
            zeros = if *word == 0 { zeros + 1 } else { 0 };
            if zeros > longest {
                (first, longest) = (at + 1 - zeros, zeros);
            }
        }
        let embeds = first == 0 && (longest == 6 || longest == 5 && words[5] == 0xffff);
        let last = if embeds { 6 } else { 8 };
        self.put(b"");
        let mut at = 0;
        while at < last {
            if at == first {
                self.out.extend_from_slice(b"::");
                at += longest;
                continue;
            }
            if at > 0 && at != first + longest {
                self.out.push(b':');
            }
            self.word(words[at]);
            at += 1;
        }
        if embeds {
            if longest == 5 {
                self.out.push(b':');
            }
            self.ipv4([address[12], address[13], address[14], address[15]]);
        }
    }

    /// A word of an IPv6 address.
    #[inline]
    fn word(&mut self, word: u16) {
        let digits = (4 - word.leading_zeros() as usize / 4).max(1);
        let all = [12, 8, 4, 0].map(|shift| DIGITS[usize::from(word >> shift & 15)]);
        self.out.extend_from_slice(&all[4 - digits..]);
    }
}

/// For text of ours with numbers in it, where speed does not count.
impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes());
        Ok(())
    }
}

/// Writes text of ours.
macro_rules! put {
    ($text:expr, $($form:tt)+) => {{
        use std::fmt::Write as _;
        // It cannot fail.
        let _ = write!($text, $($form)+);
    }};
}
pub(crate) use put;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv6Addr;

    fn text(write: impl FnOnce(&mut Text<'_>)) -> String {
        let mut out = Vec::new();
        write(&mut Text::new(&mut out));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn what_comes_from_the_wire_is_visible_and_short() {
        assert_eq!(text(|text| text.wire(b"a b\\\x1b[31m\n\xc3\xa4", 99)), "a b\\\\\\x1b[31m\\x0a\\xc3\\xa4");
        assert_eq!(text(|text| text.wire(b"abcdef", 4)), "abcd...");
    }

    #[test]
    fn a_gap_stands_in_front_of_what_follows_alone() {
        let two = |text: &mut Text<'_>| {
            text.str("a");
            text.gap(": ");
            text.gap(", ");
            text.dec(7u8);
            text.dec(8u8);
            text.gap(": ");
            text.end();
        };
        assert_eq!(text(two), "a, 78\n");
    }

    #[test]
    fn a_line_that_is_too_long_ends_so() {
        for (length, expected) in [(MAX_LINE - 1, MAX_LINE), (MAX_LINE, MAX_LINE), (MAX_LINE + 1, MAX_LINE)] {
            let line = text(|text| {
                text.str(&"x".repeat(length));
                text.end();
            });
            assert_eq!((line.len(), line.ends_with("x [...]\n")), (expected, length >= MAX_LINE), "{length}");
        }
    }

    #[test]
    fn addresses_that_embed_others_end_in_them() {
        for (address, expected) in [
            ("::", "::"),
            ("::1", "::1"),
            ("::ffff:1.2.3.4", "::ffff:1.2.3.4"),
            ("::102:304", "::1.2.3.4"),
            ("::1:2:3", "::1:2:3"),
            ("1::", "1::"),
            ("1:0:0:2::3", "1:0:0:2::3"),
            ("1:0:2:3:4:5:6:7", "1:0:2:3:4:5:6:7"),
        ] {
            let address: Ipv6Addr = address.parse().unwrap();
            assert_eq!(text(|text| text.ipv6(address.octets())), expected);
        }
    }

    proptest! {
        #[test]
        fn numbers_and_addresses_are_those_of_the_standard_library(
            number: u64, small in 0u64..1000, v4: [u8; 4], mut words in prop::collection::vec(prop_oneof![Just(0u16), any::<u16>()], 8),
        ) {
            prop_assert_eq!(text(|text| text.dec(number)), number.to_string());
            prop_assert_eq!(text(|text| text.dec(small)), small.to_string());
            prop_assert_eq!(text(|text| text.digits(number as u32, 9)), format!("{:09}", number as u32 % 1_000_000_000));
            prop_assert_eq!(text(|text| text.ipv4(v4)), std::net::Ipv4Addr::from(v4).to_string());
            words[0] |= 1;
            let address = Ipv6Addr::from(<[u16; 8]>::try_from(words).unwrap());
            prop_assert_eq!(text(|text| text.ipv6(address.octets())), address.to_string());
        }
    }
}
