//! JA4 fingerprint of a client by its hello (FoxIO, `technical_details/JA4.md`, BSD 3-clause).
//!
//! Only this one of FoxIO's fingerprints: the others of the family (JA4S, JA4H, ...) have a licence that is not free.

use ring::digest::{SHA256, digest};

/// Fields of a hello that count.
pub(crate) struct Offer<'a> {
    /// `t` for TCP, `q` for QUIC.
    pub over: char,
    /// Highest version.
    pub version: u16,
    pub has_server_name: bool,
    /// All lists without GREASE.
    pub ciphers: Vec<u16>,
    pub extensions: Vec<u16>,
    pub algorithms: Vec<u16>,
    /// First value of the list.
    pub protocol: &'a [u8],
}

/// Returns whether a value is GREASE (RFC 8701).
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
    let mut sorted = ciphers.clone();
    sorted.sort_unstable();
    let ciphers = if sorted.is_empty() { NONE } else { hash(&list(&[&sorted])) };
    let mut sorted: Vec<u16> =
        extensions.iter().copied().filter(|kind| ![SERVER_NAME, PROTOCOLS].contains(kind)).collect();
    sorted.sort_unstable();
    let extensions = match (sorted.is_empty(), algorithms.is_empty()) {
        (true, _) => NONE,
        (_, true) => hash(&list(&[&sorted])),
        _ => hash(&list(&[&sorted, algorithms])),
    };
    let mut text = String::with_capacity(36);
    text.push(*over);
    text.push_str(version(offer.version));
    text.push(name);
    text.extend([count / 10, count % 10, more / 10, more % 10].map(|digit| char::from(b'0' + digit as u8)));
    text.extend([first, last]);
    for hash in [ciphers, extensions] {
        text.push('_');
        text.extend(hash.map(char::from));
    }
    text.into_boxed_str()
}

const NONE: [u8; HASH] = [b'0'; HASH];
/// Number of digits of a hash.
const HASH: usize = 12;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

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

/// Returns the first and the last character; hexadecimal digits if the value does not start and end with a letter or
/// digit.
fn ends(value: &[u8]) -> [char; 2] {
    let ([first, ..], [.., last]) = (value, value) else { return ['0'; 2] };
    if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric() {
        return [*first, *last].map(char::from);
    }
    [first >> 4, last & 15].map(|digit| char::from_digit(digit.into(), 16).unwrap_or('0'))
}

/// Concatenates lists: four digits per value, separated by commas.
fn list(lists: &[&[u16]]) -> Vec<u8> {
    let mut text = Vec::with_capacity(lists.iter().map(|list| list.len() * 5).sum());
    for list in lists {
        for value in *list {
            text.extend([12, 8, 4, 0].map(|bits| DIGITS[usize::from(value >> bits & 15)]));
            text.push(b',');
        }
        // The last one is followed by the separator of lists.
        if let Some(last) = text.last_mut() {
            *last = b'_';
        }
    }
    text.pop();
    text
}

/// Returns 12 digits of SHA-256.
fn hash(text: &[u8]) -> [u8; HASH] {
    let digest = digest(&SHA256, text);
    let bytes = digest.as_ref();
    std::array::from_fn(|place| DIGITS[usize::from(bytes[place / 2] >> (4 - place % 2 * 4) & 15)])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Example of JA4.md, with hashes confirmed by Python's hashlib:
    /// `hashlib.sha256(b"002f,0035,009c,...").hexdigest()[:12]`.
    #[test]
    fn ja4_matches_the_example_of_its_definition() {
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

    /// Examples of JA4.md, "ALPN extension value".
    #[test]
    fn alpn_ends_of_any_protocol() {
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
    fn grease_is_recognised() {
        assert!((0..16u16).all(|digit| is_grease(digit << 12 | 0x0a0a | digit << 4)));
        assert!(!is_grease(0x0a1a) && !is_grease(0x0000) && !is_grease(0x1301));
    }
}
