//! JA4: which client it is, by what its hello offers (FoxIO, `technical_details/JA4.md`, BSD 3-clause).
//!
//! Of FoxIO's fingerprints this one alone: the others of the family (JA4S, JA4H, ...) have a licence that is not free.

use sha2::{Digest, Sha256};
use std::fmt::Write;

/// What a hello says that counts.
pub(crate) struct Offer<'a> {
    /// `t` for TCP, `q` for QUIC.
    pub over: char,
    /// The highest one.
    pub version: u16,
    pub has_server_name: bool,
    /// All lists without GREASE.
    pub ciphers: Vec<u16>,
    pub extensions: Vec<u16>,
    pub algorithms: Vec<u16>,
    /// The first value of the list.
    pub protocol: &'a [u8],
}

/// Values that stand for nothing (RFC 8701).
pub(crate) fn is_grease(value: u16) -> bool {
    let [one, other] = value.to_be_bytes();
    one == other && one & 15 == 10
}

const SERVER_NAME: u16 = 0;
const PROTOCOLS: u16 = 16;

pub(crate) fn fingerprint(offer: &Offer<'_>) -> Box<str> {
    let Offer { over, ciphers, extensions, algorithms, .. } = offer;
    let name = if offer.has_server_name { 'd' } else { 'i' };
    let (most, [first, last]) = (99, ends(offer.protocol));
    let (count, more) = (ciphers.len().min(most), extensions.len().min(most));
    let version = version(offer.version);
    let mut sorted = ciphers.clone();
    sorted.sort_unstable();
    let ciphers = if sorted.is_empty() { NONE.to_owned() } else { hash(&list(&sorted)) };
    let mut sorted: Vec<u16> =
        extensions.iter().copied().filter(|kind| ![SERVER_NAME, PROTOCOLS].contains(kind)).collect();
    sorted.sort_unstable();
    let extensions = match (sorted.is_empty(), algorithms.is_empty()) {
        (true, _) => NONE.to_owned(),
        (_, true) => hash(&list(&sorted)),
        _ => hash(&format!("{}_{}", list(&sorted), list(algorithms))),
    };
    format!("{over}{version}{name}{count:02}{more:02}{first}{last}_{ciphers}_{extensions}").into_boxed_str()
}

const NONE: &str = "000000000000";

fn version(version: u16) -> &'static str {
    match version {
        0x0304 => "13",
        0x0303 => "12",
        0x0302 => "11",
        0x0301 => "10",
        0x0300 => "s3",
        0x0002 => "s2",
        _ => "00",
    }
}

/// The first and the last character; hexadecimal digits of a value that does not begin and end with a letter or digit.
fn ends(value: &[u8]) -> [char; 2] {
    let ([first, ..], [.., last]) = (value, value) else { return ['0'; 2] };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [*first, *last].map(char::from);
    }
    [first >> 4, last & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0'))
}

fn list(values: &[u16]) -> String {
    let mut text = String::with_capacity(values.len() * 5);
    for value in values {
        let comma = if text.is_empty() { "" } else { "," };
        // Memory takes whatever is written.
        let _ = write!(text, "{comma}{value:04x}");
    }
    text
}

/// 12 digits of SHA-256.
fn hash(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().take(6).fold(String::with_capacity(12), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of JA4.md, whose hashes Python's hashlib gives too:
    /// `hashlib.sha256(b"002f,0035,009c,...").hexdigest()[:12]`.
    #[test]
    fn the_example_of_the_definition() {
        let offer = Offer {
            over: 't',
            version: 0x0304,
            has_server_name: true,
            ciphers: vec![
                0x1301, 0x1302, 0x1303, 0xc02b, 0xc02f, 0xc02c, 0xc030, 0xcca9, 0xcca8, 0xc013, 0xc014, 0x009c, 0x009d,
                0x002f, 0x0035,
            ],
            extensions: vec![
                0x001b, 0x0000, 0x0033, 0x0010, 0x4469, 0x0017, 0x002d, 0x000d, 0x0005, 0x0023, 0x0012, 0x002b, 0xff01,
                0x000b, 0x000a, 0x0015,
            ],
            algorithms: vec![0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601],
            protocol: b"h2",
        };
        assert_eq!(&*fingerprint(&offer), "t13d1516h2_8daaf6152771_e5627efa2ab1");
        let none = Offer { ciphers: vec![], extensions: vec![0, 16], protocol: b"", version: 9, ..offer };
        assert_eq!(&*fingerprint(&none), "t00d000200_000000000000_000000000000");
    }

    /// JA4.md, "ALPN extension value": its examples.
    #[test]
    fn ends_of_any_protocol() {
        for (value, two) in [
            (&[0xab][..], "ab"),
            (&[0xab, 0xcd], "ad"),
            (&[0x30, 0xab], "3b"),
            (&[0x30, 0x31, 0xab, 0xcd], "3d"),
            (&[0x30, 0xab, 0xcd, 0x31], "01"),
            (b"h", "hh"),
            (b"http/1.1", "h1"),
            (b"", "00"),
        ] {
            assert_eq!(String::from_iter(ends(value)), two, "{value:x?}");
        }
    }

    #[test]
    fn grease_is_known() {
        assert!((0..16u16).all(|digit| is_grease(digit << 12 | 0x0a0a | digit << 4)));
        assert!(!is_grease(0x0a1a) && !is_grease(0x0000) && !is_grease(0x1301));
    }
}
