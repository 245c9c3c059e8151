//! Initial packets of QUIC (RFC 9000, 17.2.2; RFC 9001, 5): any observer of the first one can decrypt them, as the
//! keys are derived from its connection id.
//!
//! Versions 1, 2 (RFC 9369) and the drafts 23 to 32. Only the client's packets are decrypted; its hello is in CRYPTO
//! frames, in any order and over several packets.

use crate::cursor::Cursor;
use crate::stream::Stream;
use ring::aead::quic::{AES_128, HeaderProtectionKey};
use ring::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use std::borrow::Cow;
use std::sync::LazyLock;

/// Keys of the packets that a client sends.
pub struct Keys {
    version: u32,
    packet: LessSafeKey,
    vector: [u8; 12],
    header: HeaderProtectionKey,
}

/// A connection id, at most 20 bytes (RFC 9000, 17.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionId {
    bytes: [u8; MOST_ID],
    length: u8,
}

const MOST_ID: usize = 20;
/// Minimum datagram in which a client sends an Initial (RFC 9000, 14.1).
pub const LEAST_DATAGRAM: usize = 1200;
/// Maximum length of a packet to decrypt.
const MOST_PACKET: usize = 16 << 10;
const TAG: usize = 16;
/// RFC 9369, 3.1.
const VERSION_2: u32 = 0x6b33_43cf;
/// Maximum number of packets examined per datagram.
const MOST_COALESCED: usize = 8;

/// RFC 9001, 5.2; RFC 9369, 3.3.1; draft-ietf-quic-tls-29 and -23, 5.2.
const SALT_1: [u8; 20] = *b"\x38\x76\x2c\xf7\xf5\x59\x34\xb3\x4d\x17\x9a\xe6\xa4\xc8\x0c\xad\xcc\xbb\x7f\x0a";
const SALT_2: [u8; 20] = *b"\x0d\xed\xe3\xde\xf7\x00\xa6\xdb\x81\x93\x81\xbe\x6e\x26\x9d\xcb\xf9\xbd\x2e\xd9";
const SALT_DRAFT: [u8; 20] = *b"\xaf\xbf\xec\x28\x99\x93\xd2\x4c\x9e\x97\x86\xf1\x9c\x61\x11\xe0\x43\x90\xa8\x99";

const SALT_OLD_DRAFT: [u8; 20] = *b"\xc3\xee\xf7\x12\xc7\x2e\xbb\x5a\x11\xa7\xd2\x43\x2b\xb4\x63\x65\xbe\xf9\xf5\x02";

/// The first step of key derivation is the same for all connections of a version.
type Extract = LazyLock<Salt>;
static FROM_1: Extract = LazyLock::new(|| Salt::new(HKDF_SHA256, &SALT_1));
static FROM_2: Extract = LazyLock::new(|| Salt::new(HKDF_SHA256, &SALT_2));
static FROM_DRAFT: Extract = LazyLock::new(|| Salt::new(HKDF_SHA256, &SALT_DRAFT));
static FROM_OLD_DRAFT: Extract = LazyLock::new(|| Salt::new(HKDF_SHA256, &SALT_OLD_DRAFT));

/// Labels of the key, the vector, and the header key (RFC 9001, 5.1; RFC 9369, 3.3.2).
const LABELS: [&str; 3] = ["quic key", "quic iv", "quic hp"];
const LABELS_2: [&str; 3] = ["quicv2 key", "quicv2 iv", "quicv2 hp"];

/// Unprotected part of the header of an Initial.
#[derive(Clone, Copy)]
struct Header<'a> {
    version: u32,
    id: ConnectionId,
    /// Length up to the packet number.
    length: usize,
    /// Packet, up to its end.
    bytes: &'a [u8],
}

/// Returns the version and the client's connection id of a datagram that starts with an Initial, or has one after
/// another packet with a long header.
pub fn initial(datagram: &[u8]) -> Option<(u32, ConnectionId)> {
    packets(datagram).next().map(|header| (header.version, header.id))
}

/// Returns the packet of RFC 9001, A.2, for tests and benchmarks.
pub fn example() -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let digits: Vec<u8> = include_str!("quic/rfc9001-a2.hex").bytes().filter_map(digit).collect();
    digits.chunks_exact(2).map(|two| two[0] << 4 | two[1]).collect()
}

/// Decrypts the Initials of a datagram and stores their CRYPTO frames. Returns whether one could be decrypted.
pub fn open(datagram: &[u8], keys: &Keys, stream: &mut Stream) -> bool {
    let mut is_open = false;
    for header in packets(datagram).filter(|header| header.version == keys.version) {
        if let Some(frames) = keys.open(&header) {
            is_open = true;
            crypto(&frames, stream);
        }
    }
    is_open
}

/// Returns the name of a version, such as `1`, `2` or `draft-29`.
pub fn version_name(version: u32) -> Cow<'static, str> {
    match version {
        1 => "1".into(),
        VERSION_2 => "2".into(),
        0xff00_0000..=0xff00_00ff => format!("draft-{:02}", version & 0xff).into(),
        other => format!("{other:#010x}").into(),
    }
}

/// Returns the version of a name.
pub fn version_named(name: &str) -> Option<u32> {
    let drafts = 0xff00_0000..=0xff00_00ff;
    let known = [1, VERSION_2].into_iter().chain(drafts).find(|version| version_name(*version) == name);
    known.or_else(|| u32::from_str_radix(name.strip_prefix("0x")?, 16).ok())
}

impl Keys {
    /// Derives the client's keys for a connection whose first Initial had this destination; `None` for unknown
    /// versions.
    pub fn new(version: u32, id: &ConnectionId) -> Option<Keys> {
        let (from, labels) = match version {
            1 => (&FROM_1, &LABELS),
            VERSION_2 => (&FROM_2, &LABELS_2),
            0xff00_0017..=0xff00_001c => (&FROM_OLD_DRAFT, &LABELS),
            _ if is_known(version) => (&FROM_DRAFT, &LABELS),
            _ => return None,
        };
        let secret: [u8; 32] = expand(&from.extract(id.as_ref()), "client in")?;
        let secret = Prk::new_less_safe(HKDF_SHA256, &secret);
        let [key, vector, header] = labels;
        let (key, header): ([u8; 16], [u8; 16]) = (expand(&secret, key)?, expand(&secret, header)?);
        Some(Keys {
            version,
            packet: LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).ok()?),
            vector: expand(&secret, vector)?,
            header: HeaderProtectionKey::new(&AES_128, &header).ok()?,
        })
    }

    /// Decrypts the frames of a packet, if the client sent it (RFC 9001, 5.3 and 5.4).
    fn open(&self, header: &Header<'_>) -> Option<Vec<u8>> {
        let sample = header.bytes.get(header.length + 4..)?.first_chunk::<16>()?;
        let mask = self.header.new_mask(sample).ok()?;
        let first = header.bytes[0] ^ mask[0] & 0x0f;
        let size = usize::from(first & 3) + 1;
        let mut clear = header.bytes[..header.length + size].to_vec();
        clear[0] = first;
        let mut nonce = self.vector;
        let number = clear[header.length..].iter_mut().zip(&mask[1..]);
        // Packet numbers of Initials are small, so the truncated number is the full one.
        number.for_each(|(byte, mask)| *byte ^= mask);
        nonce[12 - size..].iter_mut().zip(&clear[header.length..]).for_each(|(byte, number)| *byte ^= number);
        let mut frames = header.bytes[header.length + size..].to_vec();
        let opened = self.packet.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(&clear), &mut frames);
        let length = opened.ok()?.len();
        frames.truncate(length);
        Some(frames)
    }
}

impl AsRef<[u8]> for ConnectionId {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

impl ConnectionId {
    /// Returns the id of these bytes, if at most 20.
    pub fn new(id: &[u8]) -> Option<ConnectionId> {
        let mut bytes = [0; MOST_ID];
        bytes.get_mut(..id.len())?.copy_from_slice(id);
        Some(ConnectionId { bytes, length: id.len() as u8 })
    }
}

fn is_known(version: u32) -> bool {
    matches!(version, 1 | VERSION_2 | 0xff00_0017..=0xff00_0020)
}

/// HKDF-Expand-Label (RFC 8446, 7.1) without context; `None` above 8,160 bytes.
fn expand<const N: usize>(secret: &Prk, label: &str) -> Option<[u8; N]> {
    let mut out = [0; N];
    let info = [&[0, N as u8, label.len() as u8 + 6][..], b"tls13 ", label.as_bytes(), &[0]];
    secret.expand(&info, Length(N)).ok()?.fill(&mut out).ok()?;
    Some(out)
}

/// Bytes to derive.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// Iterates over the Initials of a datagram.
fn packets(datagram: &[u8]) -> impl Iterator<Item = Header<'_>> {
    let mut rest = datagram;
    let packets = std::iter::from_fn(move || {
        let (initial, behind) = packet(rest)?;
        rest = behind;
        Some(initial)
    });
    packets.take(MOST_COALESCED).flatten()
}

/// Parses a packet with a long header. Returns its header if it is an Initial, and the bytes after it.
fn packet(bytes: &[u8]) -> Option<(Option<Header<'_>>, &[u8])> {
    let mut rest = Cursor(bytes);
    let first = rest.u8()?;
    let version = rest.u32()?;
    // Long header, and the fixed bit.
    if first & 0xc0 != 0xc0 || !is_known(version) {
        return None;
    }
    let id = ConnectionId::new(rest.vector8()?.0)?;
    rest.vector8().filter(|source| source.0.len() <= MOST_ID)?;
    let kind = first >> 4 & 3;
    // RFC 9369, 3.2: all packet types have other numbers.
    let [initial, retry] = if version == VERSION_2 { [1, 0] } else { [0, 3] };
    if kind == retry {
        return None;
    }
    if kind == initial {
        let token = usize::try_from(rest.varint()?).ok()?;
        rest.take(token)?;
    }
    let length = usize::try_from(rest.varint()?).ok()?;
    let header = bytes.len() - rest.0.len();
    rest.take(length)?;
    let packet = &bytes[..header + length];
    let found = (kind == initial && packet.len() <= MOST_PACKET && length >= 4 + TAG).then_some(Header {
        version,
        id,
        length: header,
        bytes: packet,
    });
    Some((found, rest.0))
}

/// Stores the data of CRYPTO frames; the frame types allowed in an Initial are known (RFC 9000, 12.4).
pub(crate) fn crypto(frames: &[u8], stream: &mut Stream) {
    let mut rest = Cursor(frames);
    while next_frame(&mut rest, stream).is_some() {}
}

fn next_frame(rest: &mut Cursor<'_>, stream: &mut Stream) -> Option<()> {
    // PADDING, one byte per frame, is most of an Initial.
    rest.skip_zeros();
    match rest.varint()? {
        // PADDING in a longer encoding, PING.
        0 | 1 => {}
        // ACK.
        kind @ (2 | 3) => {
            rest.varint()?;
            rest.varint()?;
            let ranges = rest.varint()?;
            rest.varint()?;
            for _ in 0..ranges {
                rest.varint()?;
                rest.varint()?;
            }
            for _ in 0..if kind == 3 { 3 } else { 0 } {
                rest.varint()?;
            }
        }
        // CRYPTO.
        6 => {
            let (offset, length) = (rest.varint()?, rest.varint()?);
            let bytes = rest.take(usize::try_from(length).ok()?)?;
            stream.put(usize::try_from(offset).ok()?, bytes);
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> =
            text.bytes().filter_map(|byte| char::from(byte).to_digit(16)).map(|digit| digit as u8).collect();
        digits.chunks_exact(2).map(|two| two[0] << 4 | two[1]).collect()
    }

    /// RFC 9001, A.1; RFC 9369, A.1.
    #[test]
    fn keys_match_the_test_vectors() {
        let id = ConnectionId::new(&hex("8394c8f03e515708")).unwrap();
        for (version, vector, mask) in [
            (1, "fa044b2f42a3fd3b46fb255c", ("d1b1c98dd7689fb8ec11d242b123dc9b", "437b9aec36")),
            (VERSION_2, "91f73e2351d8fa91660e909f", ("ffe67b6abcdb4298b485dd04de806071", "94a0c95e80")),
        ] {
            let keys = Keys::new(version, &id).unwrap();
            assert_eq!(keys.vector[..], hex(vector));
            assert_eq!(keys.header.new_mask(&hex(mask.0)).unwrap()[..], hex(mask.1), "version {version}");
        }
        assert!(Keys::new(0xff00_0016, &id).is_none() && Keys::new(0xff00_001d, &id).is_some());
        assert!(ConnectionId::new(&[0; 21]).is_none() && ConnectionId::new(&[0; 20]).is_some());
    }

    #[test]
    fn versions_have_names() {
        let (versions, names) = ([1, VERSION_2, 0xff00_001d, 5], ["1", "2", "draft-29", "0x00000005"]);
        assert_eq!(versions.map(version_name), names);
        assert_eq!(names.map(version_named), versions.map(Some));
        assert_eq!(version_named("x"), None);
    }
}
