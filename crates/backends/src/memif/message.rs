//! Messages of the handshake: a fixed form of 128 bytes, with numbers in native byte order.
//!
//! Pure: encodes and decodes bytes.

use linerate_burst::text::is_unseen;

/// Bytes of a message.
pub(super) const BYTES: usize = 128;
/// The only version: 2.0.
pub(super) const VERSION: u16 = 0x0200;
/// Bytes of a secret.
pub(super) const SECRET: usize = 24;
/// Bytes of a name.
const NAME: usize = 32;
/// Bytes of the reason in a disconnect.
const TEXT: usize = 96;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// The server accepts the last message.
    Ack,
    /// First message of the server: its limits.
    Hello {
        name: String,
        versions: (u16, u16),
        most_region: u16,
        most_to_client: u16,
        most_to_server: u16,
        most_log2: u8,
    },
    /// First message of the client: the interface that it wants.
    Init { version: u16, id: u32, mode: u8, secret: [u8; SECRET], name: String },
    /// The client passes memory.
    AddRegion { index: u16, bytes: u64 },
    /// The client describes a ring, and passes its eventfd.
    AddRing(RingLocation),
    /// The client has described everything.
    Connect { name: String },
    /// The server has mapped everything.
    Connected { name: String },
    /// Either end closes, with a reason.
    Disconnect { code: u32, text: String },
}

/// Position of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RingLocation {
    /// True if the client writes frames there.
    pub to_server: bool,
    /// Number of the ring, in its direction.
    pub index: u16,
    /// Index of its region.
    pub region: u16,
    /// Offset in the region.
    pub offset: u32,
    /// Number of descriptors, as a power of two.
    pub log2: u8,
    /// Bytes of a private header before each frame: 0.
    pub private: u16,
}

impl Message {
    /// Encodes the message.
    pub(super) fn encode(&self) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        let kind: u16 = match self {
            Message::Ack => 1,
            Message::Hello { name, versions, most_region, most_to_client, most_to_server, most_log2 } => {
                put(2, &text::<NAME>(name));
                let halves = [versions.0, versions.1, *most_region, *most_to_client, *most_to_server];
                halves.iter().enumerate().for_each(|(index, half)| put(34 + 2 * index, &half.to_ne_bytes()));
                put(44, &[*most_log2]);
                2
            }
            Message::Init { version, id, mode, secret, name } => {
                put(2, &version.to_ne_bytes());
                put(4, &id.to_ne_bytes());
                put(8, &[*mode]);
                put(9, secret);
                put(33, &text::<NAME>(name));
                3
            }
            Message::AddRegion { index, bytes } => {
                put(2, &index.to_ne_bytes());
                put(4, &bytes.to_ne_bytes());
                4
            }
            Message::AddRing(place) => {
                put(2, &u16::from(place.to_server).to_ne_bytes());
                put(4, &place.index.to_ne_bytes());
                put(6, &place.region.to_ne_bytes());
                put(8, &place.offset.to_ne_bytes());
                put(12, &[place.log2]);
                put(13, &place.private.to_ne_bytes());
                5
            }
            Message::Connect { name } => {
                put(2, &text::<NAME>(name));
                6
            }
            Message::Connected { name } => {
                put(2, &text::<NAME>(name));
                7
            }
            Message::Disconnect { code, text: reason } => {
                put(2, &code.to_ne_bytes());
                put(6, &text::<TEXT>(reason));
                8
            }
        };
        put(0, &kind.to_ne_bytes());
        bytes
    }

    /// Decodes a message; `None` for an unknown type.
    pub(super) fn decode(bytes: &[u8; BYTES]) -> Option<Message> {
        let half = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let said = |at: usize, room: usize| shown(&bytes[at..at + room]);
        Some(match half(0) {
            1 => Message::Ack,
            2 => Message::Hello {
                name: said(2, NAME),
                versions: (half(34), half(36)),
                most_region: half(38),
                most_to_client: half(40),
                most_to_server: half(42),
                most_log2: bytes[44],
            },
            3 => Message::Init {
                version: half(2),
                id: word(4),
                mode: bytes[8],
                secret: std::array::from_fn(|byte| bytes[9 + byte]),
                name: said(33, NAME),
            },
            4 => {
                let size = u64::from_ne_bytes(std::array::from_fn(|byte| bytes[4 + byte]));
                Message::AddRegion { index: half(2), bytes: size }
            }
            5 => Message::AddRing(RingLocation {
                to_server: half(2) & 1 != 0,
                index: half(4),
                region: half(6),
                offset: word(8),
                log2: bytes[12],
                private: half(13),
            }),
            6 => Message::Connect { name: said(2, NAME) },
            7 => Message::Connected { name: said(2, NAME) },
            8 => Message::Disconnect { code: word(2), text: said(6, TEXT) },
            _ => return None,
        })
    }
}

/// Encodes text, cut at a character and terminated by a zero.
fn text<const ROOM: usize>(text: &str) -> [u8; ROOM] {
    let mut bytes = [0; ROOM];
    let end = (0..ROOM.min(text.len() + 1)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    bytes[..end].copy_from_slice(&text.as_bytes()[..end]);
    bytes
}

/// Decodes the peer's text for display: up to its zero, without control characters.
fn shown(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).chars().map(|c| if is_unseen(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Layout as DPDK 22.11 writes it, but for names.
    #[test]
    fn fields_have_the_offsets_of_the_protocol() {
        let place = RingLocation { to_server: true, index: 2, region: 3, offset: 0x0102_0304, log2: 10, private: 0 };
        let bytes = Message::AddRing(place).encode();
        assert_eq!(bytes[..15], [5, 0, 1, 0, 2, 0, 3, 0, 4, 3, 2, 1, 10, 0, 0]);
        let hello = Message::Hello {
            name: "DPDK".into(),
            versions: (VERSION, VERSION),
            most_region: 255,
            most_to_client: 255,
            most_to_server: 254,
            most_log2: 14,
        };
        let bytes = hello.encode();
        assert_eq!((&bytes[2..7], &bytes[34..45]), (&b"DPDK\0"[..], &[0, 2, 0, 2, 255, 0, 255, 0, 254, 0, 14][..]));
        assert_eq!(Message::decode(&bytes), Some(hello));
    }

    #[test]
    fn long_text_is_truncated_at_a_character_and_escaped() {
        let long = Message::Connect { name: "é".repeat(40) };
        assert_eq!(Message::decode(&long.encode()), Some(Message::Connect { name: "é".repeat(15) }));
        let evil = Message::Disconnect { code: 0, text: "\u{1b}[2Jgone".into() };
        assert_eq!(Message::decode(&evil.encode()), Some(Message::Disconnect { code: 0, text: "?[2Jgone".into() }));
    }

    proptest! {
        #[test]
        fn messages_round_trip(half: [u16; 4], word: [u32; 2], long: u64, secret: [u8; SECRET], name in "[a-z]{0,31}") {
            let place = RingLocation {
                to_server: half[0] & 1 != 0,
                index: half[1],
                region: half[2],
                offset: word[0],
                log2: half[3] as u8,
                private: half[3],
            };
            for message in [
                Message::Ack,
                Message::Init { version: half[0], id: word[0], mode: half[1] as u8, secret, name: name.clone() },
                Message::AddRegion { index: half[0], bytes: long },
                Message::AddRing(place),
                Message::Connected { name: name.clone() },
                Message::Disconnect { code: word[1], text: name.clone() },
            ] {
                prop_assert_eq!(Message::decode(&message.encode()), Some(message));
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes: [u8; BYTES]) {
            if let Some(message) = Message::decode(&bytes) {
                prop_assert_eq!(Message::decode(&message.encode()).is_some(), true);
            }
        }
    }
}
