//! Text formats of fields.

use crate::MacAddr;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Text format of a field. Any of them can be written as a number too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A decimal number.
    Number,
    /// A hexadecimal number.
    Hex,
    /// Six pairs of hexadecimal digits.
    Mac,
    /// Four decimal numbers.
    Ipv4,
    /// As in RFC 5952.
    Ipv6,
    /// An IPv4 address whose bits are all inverted in the header (RFC 4380 section 5.1.1).
    InvertedIpv4,
    /// A decimal number of 16 bits that are inverted in the header.
    InvertedPort,
    /// Names of bits, the lowest first, with `+` between those that are set; `none`.
    Flags(&'static [&'static str]),
}

impl Format {
    /// Returns the format without inversion of bits.
    pub fn plain(self) -> Format {
        match self {
            Format::InvertedIpv4 => Format::Ipv4,
            Format::InvertedPort => Format::Number,
            other => other,
        }
    }

    /// Returns a value as text.
    pub fn show(self, value: u128) -> impl fmt::Display {
        FormattedValue { format: self, value }
    }

    /// Parses a text: in this format, or as a decimal number, or a hexadecimal one after `0x`.
    pub fn parse(self, text: &str) -> Option<u128> {
        let written = match self {
            Format::InvertedIpv4 => return inverted(self.plain().parse(text)?, u32::MAX.into()),
            Format::InvertedPort => return inverted(number(text)?, u16::MAX.into()),
            Format::Mac => text
                .parse::<MacAddr>()
                .ok()
                .map(|MacAddr([a, b, c, d, e, f])| u128::from(u64::from_be_bytes([0, 0, a, b, c, d, e, f]))),
            Format::Ipv4 => text.parse::<Ipv4Addr>().ok().map(|address| u128::from(address.to_bits())),
            Format::Ipv6 => text.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits),
            Format::Flags(names) => flags(names, text),
            Format::Number | Format::Hex => None,
        };
        written.or_else(|| number(text))
    }

    /// Returns an example of a value.
    pub fn example(self) -> &'static str {
        match self {
            Format::Number | Format::InvertedPort => "a number such as 7 or 0x1f",
            Format::Hex => "a number such as 0x0800",
            Format::Mac => "a MAC address such as 02:00:00:00:00:01",
            Format::Ipv4 | Format::InvertedIpv4 => "an IPv4 address such as 198.18.0.1",
            Format::Ipv6 => "an IPv6 address such as 2001:2::1",
            Format::Flags(_) => "names of flags such as syn+ack, or a number",
        }
    }
}

/// Inverts the bits of a value that has no others.
fn inverted(value: u128, bits: u128) -> Option<u128> {
    (value <= bits).then_some(!value & bits)
}

/// Parses a number as users write them: decimal, or hexadecimal after `0x`; `_` may separate digits.
fn number(text: &str) -> Option<u128> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let begins = digits.starts_with(|first: char| first.is_digit(radix));
    begins.then(|| u128::from_str_radix(&digits.replace('_', ""), radix).ok()).flatten()
}

fn flags(names: &[&str], text: &str) -> Option<u128> {
    if text == "none" {
        return Some(0);
    }
    let bit = |name: &str| names.iter().position(|of| *of == name).map(|bit| 1u128 << bit);
    // As tcpdump and Scapy write them: S, SA, PA.
    if names.starts_with(&["fin", "syn"]) && !text.is_empty() && text.bytes().all(|letter| letter.is_ascii_uppercase())
    {
        let of = |letter: char| names.iter().find(|name| name.starts_with(letter.to_ascii_lowercase()));
        return text.chars().try_fold(0, |value, letter| Some(value | bit(of(letter)?)?));
    }
    text.split('+').try_fold(0, |value, name| Some(value | bit(name)?))
}

struct FormattedValue {
    format: Format,
    value: u128,
}

impl fmt::Display for FormattedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        match self.format {
            Format::Number => write!(f, "{value}"),
            Format::Hex => write!(f, "{value:#06x}"),
            Format::Mac => {
                let [_, _, mac @ ..] = (value as u64).to_be_bytes();
                MacAddr(mac).fmt(f)
            }
            Format::Ipv4 => Ipv4Addr::from_bits(value as u32).fmt(f),
            Format::Ipv6 => Ipv6Addr::from_bits(value).fmt(f),
            Format::InvertedIpv4 => Ipv4Addr::from_bits(!(value as u32)).fmt(f),
            Format::InvertedPort => (!(value as u16)).fmt(f),
            Format::Flags(names) if value >> names.len() != 0 => write!(f, "{value:#x}"),
            Format::Flags(_) if value == 0 => f.write_str("none"),
            Format::Flags(names) => {
                let set = names.iter().enumerate().filter(|(bit, _)| value >> bit & 1 != 0);
                for (index, (_, name)) in set.enumerate() {
                    write!(f, "{}{name}", if index > 0 { "+" } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMATS: [(Format, u32); 6] = [
        (Format::Number, 128),
        (Format::Hex, 128),
        (Format::Mac, 48),
        (Format::Ipv4, 32),
        (Format::Ipv6, 128),
        (Format::Flags(&["a", "b", "c"]), 16),
    ];

    #[test]
    fn inverted_bits_are_written_by_meaning() {
        assert_eq!(Format::InvertedIpv4.parse("198.18.0.9"), Some(0x39ed_fff6));
        assert_eq!(Format::InvertedIpv4.show(0x39ed_fff6).to_string(), "198.18.0.9");
        assert_eq!(Format::InvertedPort.parse("40000"), Some(0x63bf));
        assert_eq!(Format::InvertedPort.show(0x63bf).to_string(), "40000");
        assert_eq!((Format::InvertedPort.parse("65536"), Format::InvertedIpv4.parse("x")), (None, None));
    }

    #[test]
    fn formatted_values_round_trip() {
        for (format, bits) in FORMATS {
            for value in [0, 1, 5, 8, u128::MAX, 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10] {
                let value = value & (u128::MAX >> (128 - bits));
                assert_eq!(format.parse(&format.show(value).to_string()), Some(value), "{format:?}");
                assert_eq!(format.parse(&value.to_string()), Some(value), "{format:?} as a number");
            }
            for bad in ["", "x", "0x", "_1", "1.2.3", "+1", "-1", "a+", "zz+a", "1:2"] {
                assert_eq!(format.parse(bad), None, "{format:?} {bad}");
            }
        }
    }

    #[test]
    fn flags_of_tcp_are_written_by_letters_too() {
        let tcp = Format::Flags(&["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ae"]);
        for (letters, names) in [("S", "syn"), ("SA", "syn+ack"), ("FPU", "fin+psh+urg"), ("EC", "ece+cwr")] {
            assert_eq!(tcp.parse(letters), tcp.parse(names), "{letters}");
        }
        assert_eq!((tcp.parse("SX"), tcp.parse("sa"), tcp.parse("")), (None, None, None));
        assert_eq!(Format::Flags(&["a", "b"]).parse("A"), None);
    }
}
