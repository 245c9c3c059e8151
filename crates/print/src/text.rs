//! Line buffer. Text from the wire goes through [`Text::wire`], all other text is our own.

use std::fmt;

/// Maximum bytes of a line, including its end. Longer lines are truncated and end in `[...]`.
pub const MAX_LINE: usize = 4096;

/// End of a truncated line.
const CUT: &[u8] = b" [...]\n";

/// Two-digit text of each number below 100.
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

/// Line at the end of a buffer.
pub(crate) struct Text<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    /// Separator before the next text, if any.
    gap: &'static str,
}

impl<'o> Text<'o> {
    pub(crate) fn new(out: &'o mut Vec<u8>) -> Self {
        Text { start: out.len(), out, gap: "" }
    }

    /// Returns whether the line is full: lists stop then.
    pub(crate) fn is_full(&self) -> bool {
        self.length() >= MAX_LINE
    }

    /// Returns the length of the line.
    pub(crate) fn length(&self) -> usize {
        self.out.len() - self.start
    }

    /// Sets the separator before the next text.
    pub(crate) fn gap(&mut self, gap: &'static str) {
        self.gap = gap;
    }

    pub(crate) fn end(&mut self) {
        self.gap = "";
        if self.length() < MAX_LINE {
            self.out.push(b'\n');
        } else {
            self.out.truncate(self.start + MAX_LINE - CUT.len());
            self.out.extend_from_slice(CUT);
        }
    }

    /// Appends our own text.
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

    /// Appends text from another line buffer.
    pub(crate) fn line(&mut self, line: &[u8]) {
        self.put(line);
    }

    /// Appends text from the wire: escapes backslashes and everything that is not printable ASCII; truncates after
    /// `most` bytes.
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

    /// Appends a number.
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

    /// Appends a number below 100 with two digits.
    #[inline]
    pub(crate) fn two(&mut self, number: u64) {
        self.put(&PAIRS[(number % 100) as usize]);
    }

    /// Appends the last `digits` (at most 9) digits of a number.
    #[inline]
    pub(crate) fn digits(&mut self, mut number: u32, digits: usize) {
        let mut text = [b'0'; 9];
        for digit in text[..digits].iter_mut().rev() {
            *digit = b'0' + (number % 10) as u8;
            number /= 10;
        }
        self.put(&text[..digits]);
    }

    /// Appends bytes as hexadecimal digits.
    pub(crate) fn hex(&mut self, bytes: &[u8]) {
        self.put(b"");
        for byte in bytes {
            self.out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }

    /// Appends a MAC address, of any length.
    pub(crate) fn mac(&mut self, bytes: &[u8]) {
        self.put(b"");
        for (place, byte) in bytes.iter().enumerate() {
            if place > 0 {
                self.out.push(b':');
            }
            self.out.extend_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
    }

    /// Appends an IPv4 address.
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

    /// Appends an IPv6 address (RFC 5952), with an embedded IPv4 address in dotted form.
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

    /// Appends a group of an IPv6 address.
    #[inline]
    fn word(&mut self, word: u16) {
        let digits = (4 - word.leading_zeros() as usize / 4).max(1);
        let all = [12, 8, 4, 0].map(|shift| DIGITS[usize::from(word >> shift & 15)]);
        self.out.extend_from_slice(&all[4 - digits..]);
    }
}

/// For our own text with numbers, where speed does not matter.
impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.put(text.as_bytes());
        Ok(())
    }
}

/// Appends our own formatted text.
macro_rules! put {
    ($text:expr, $($form:tt)+) => {{
        use std::fmt::Write as _;
        // Never fails.
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
    fn text_from_the_wire_is_printable_and_short() {
        assert_eq!(text(|text| text.wire(b"a b\\\x1b[31m\n\xc3\xa4", 99)), "a b\\\\\\x1b[31m\\x0a\\xc3\\xa4");
        assert_eq!(text(|text| text.wire(b"abcdef", 4)), "abcd...");
    }

    #[test]
    fn separators_precede_only_following_text() {
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
    fn long_lines_are_truncated() {
        for (length, expected) in [(MAX_LINE - 1, MAX_LINE), (MAX_LINE, MAX_LINE), (MAX_LINE + 1, MAX_LINE)] {
            let line = text(|text| {
                text.str(&"x".repeat(length));
                text.end();
            });
            assert_eq!((line.len(), line.ends_with("x [...]\n")), (expected, length >= MAX_LINE), "{length}");
        }
    }

    #[test]
    fn embedded_addresses_are_dotted() {
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
