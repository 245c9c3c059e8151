//! The two messages of the handshake.

use crate::layout::{MAJOR, MINOR, Rings, Shape};
use crate::slots::lossless_readers;
use linerate_burst::text::is_unseen;

/// Bytes of a [`Hello`].
pub(crate) const HELLO: usize = 128;
/// Bytes of a [`Welcome`].
pub(crate) const WELCOME: usize = 512;

const HELLO_MAGIC: u32 = u32::from_ne_bytes(*b"LRHi");
const WELCOME_MAGIC: u32 = u32::from_ne_bytes(*b"LRWe");
const NAME_AT: usize = 32;
const TEXT_AT: usize = 64;
const LOSSLESS: u32 = 1;
const INLINE: u32 = 2;
const FRAMES: u32 = 1;

/// Contents of a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RingKind {
    /// Packets in blocks.
    #[default]
    Blocks,
    /// Frames of memory.
    Frames,
}

/// A writer's offer to readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub kind: RingKind,
    /// Number of items, which is the capacity of the index rings.
    pub slots: u32,
    pub arena_bytes: usize,
    /// Layout of the blocks of packets: an engine has verdicts on each.
    pub verdicts: Option<Shape>,
}

impl Offer {
    /// Returns the maximum number of lossless readers.
    pub(crate) fn lossless_readers(&self) -> u32 {
        if self.kind == RingKind::Frames { 1 } else { lossless_readers(self.slots) }
    }

    /// Returns the message for a reader beyond that.
    pub(crate) fn full(&self) -> String {
        match self.kind {
            RingKind::Frames => {
                "another reader is attached, and the limit is one; try again after it detaches".to_owned()
            }
            RingKind::Blocks => {
                format!(
                    "a ring of {} blocks is limited to {} lossless readers; share more blocks",
                    self.slots,
                    self.lossless_readers()
                )
            }
        }
    }

    /// Returns the message for readers that expect the other kind.
    pub(crate) fn other(&self) -> &'static str {
        match self.kind {
            RingKind::Frames => "it shares frames of received streams; read them with `linerate frames NAME`",
            RingKind::Blocks => {
                "it shares packets; read them with `linerate capture shm:NAME`, or any verb that takes a port"
            }
        }
    }
}

/// First message of a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub major: u32,
    pub kind: RingKind,
    pub lossless: bool,
    /// It gives a verdict on each frame (version 1.1).
    pub inline: bool,
    /// Maximum number of blocks that it holds; 0: the writer's default.
    pub quota: u32,
    /// Name for reports; without characters that a terminal would interpret.
    pub name: String,
}

impl Hello {
    /// Encodes the message.
    pub(crate) fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        let name = &self.name[..self.name.floor_char_boundary(HELLO - NAME_AT)];
        put(&mut bytes, 0, HELLO_MAGIC);
        put(&mut bytes, 4, self.major);
        put(&mut bytes, 8, MINOR);
        put(&mut bytes, 12, if self.lossless { LOSSLESS } else { 0 } | if self.inline { INLINE } else { 0 });
        put(&mut bytes, 16, self.quota);
        put(&mut bytes, 20, name.len() as u32);
        put(&mut bytes, 24, if self.kind == RingKind::Frames { FRAMES } else { 0 });
        bytes[NAME_AT..NAME_AT + name.len()].copy_from_slice(name.as_bytes());
        bytes
    }

    /// Decodes a reader's message; `None` if it is not a hello.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Hello> {
        if bytes.len() != HELLO || get(bytes, 0) != HELLO_MAGIC {
            return None;
        }
        let name = text(&bytes[NAME_AT..], get(bytes, 20));
        let kind = if get(bytes, 24) == FRAMES { RingKind::Frames } else { RingKind::Blocks };
        let is = |flag| get(bytes, 12) & flag != 0;
        // A reader of frames of memory is always lossless and never gives verdicts.
        let (lossless, inline) = (is(LOSSLESS) || kind == RingKind::Frames, is(INLINE) && kind == RingKind::Blocks);
        Some(Hello { major: get(bytes, 4), kind, lossless, inline, quota: get(bytes, 16), name })
    }
}

/// Result of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Welcome,
    Version,
    Permission,
    TooMany,
    NoMemory,
    Ended,
    Malformed,
    /// Defined by a later version.
    Unknown,
}

const STATUSES: [Status; 7] = [
    Status::Welcome,
    Status::Version,
    Status::Permission,
    Status::TooMany,
    Status::NoMemory,
    Status::Ended,
    Status::Malformed,
];

/// Answer of the writer; with [`Status::Welcome`] two descriptors are sent: arena and control memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    pub major: u32,
    pub minor: u32,
    pub status: Status,
    pub reader: u32,
    pub quota: u32,
    pub generation: u64,
    pub arena_bytes: u64,
    pub control_bytes: u64,
    /// Reason, for users.
    pub text: String,
}

impl Welcome {
    /// Returns the answer that accepts a reader; an engine has more control memory.
    pub(crate) fn to(reader: u32, quota: u32, generation: u64, offer: &Offer, inline: bool) -> Self {
        let deciding = offer.verdicts.filter(|_| inline);
        let control_bytes = deciding.map_or(Rings(offer.slots).control_bytes(), |shape| shape.deciding_bytes());
        Welcome {
            major: MAJOR,
            minor: MINOR,
            status: Status::Welcome,
            reader,
            quota,
            generation,
            arena_bytes: offer.arena_bytes as u64,
            control_bytes: control_bytes as u64,
            text: String::new(),
        }
    }

    /// Returns the answer that rejects a reader.
    pub(crate) fn refusal(status: Status, text: impl Into<String>) -> Self {
        let text = text.into();
        let (reader, quota, generation, arena_bytes, control_bytes) = Default::default();
        Welcome { major: MAJOR, minor: MINOR, status, reader, quota, generation, arena_bytes, control_bytes, text }
    }

    /// Encodes the message.
    pub(crate) fn encode(&self) -> [u8; WELCOME] {
        let mut bytes = [0; WELCOME];
        let text = &self.text[..self.text.floor_char_boundary(WELCOME - TEXT_AT)];
        let status = STATUSES.iter().position(|status| *status == self.status).unwrap_or(STATUSES.len());
        put(&mut bytes, 0, WELCOME_MAGIC);
        put(&mut bytes, 4, self.major);
        put(&mut bytes, 8, self.minor);
        put(&mut bytes, 12, status as u32);
        put(&mut bytes, 16, self.reader);
        put(&mut bytes, 20, self.quota);
        put_long(&mut bytes, 24, self.generation);
        put_long(&mut bytes, 32, self.arena_bytes);
        put_long(&mut bytes, 40, self.control_bytes);
        put(&mut bytes, 48, text.len() as u32);
        bytes[TEXT_AT..TEXT_AT + text.len()].copy_from_slice(text.as_bytes());
        bytes
    }

    /// Decodes a writer's message; `None` if it is not a welcome.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Welcome> {
        if bytes.len() != WELCOME || get(bytes, 0) != WELCOME_MAGIC {
            return None;
        }
        Some(Welcome {
            major: get(bytes, 4),
            minor: get(bytes, 8),
            status: STATUSES.get(get(bytes, 12) as usize).copied().unwrap_or(Status::Unknown),
            reader: get(bytes, 16),
            quota: get(bytes, 20),
            generation: get_long(bytes, 24),
            arena_bytes: get_long(bytes, 32),
            control_bytes: get_long(bytes, 40),
            text: text(&bytes[TEXT_AT..], get(bytes, 48)),
        })
    }
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
}

fn put_long(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_ne_bytes());
}

fn get(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

fn get_long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]))
}

/// Returns the peer's text with characters that a terminal would interpret replaced.
pub(crate) fn text(bytes: &[u8], length: u32) -> String {
    let bytes = &bytes[..bytes.len().min(length as usize)];
    String::from_utf8_lossy(bytes).chars().map(|c| if is_unseen(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn messages_round_trip(major: u32, is_frames: bool, [lossless, inline]: [bool; 2], quota: u32, name in "[^\\p{C}\\p{Zl}\\p{Zp}]{0,24}", long: [u64; 3]) {
            let kind = if is_frames { RingKind::Frames } else { RingKind::Blocks };
            let (lossless, inline) = (lossless || is_frames, inline && !is_frames);
            let hello = Hello { major, kind, lossless, inline, quota, name: name.clone() };
            prop_assert_eq!(Hello::decode(&hello.encode()), Some(hello));
            for status in STATUSES {
                let [generation, arena_bytes, control_bytes] = long;
                let text = name.clone();
                let (minor, reader) = (quota, quota);
                let welcome =
                    Welcome { major, minor, status, reader, quota, generation, arena_bytes, control_bytes, text };
                prop_assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
            }
        }

        #[test]
        fn any_bytes_are_decoded_safely(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            prop_assert_eq!(Hello::decode(&bytes), None);
            let mut message = [0; WELCOME];
            let length = bytes.len().min(WELCOME - 4);
            message[..4].copy_from_slice(b"LRWe");
            message[4..4 + length].copy_from_slice(&bytes[..length]);
            prop_assert!(Welcome::decode(&message).is_some());
            message[..4].copy_from_slice(b"LRHi");
            let hello = Hello::decode(&message[..HELLO]).unwrap();
            prop_assert!(!hello.name.chars().any(is_unseen));
        }
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        let hello =
            Hello { major: 1, kind: RingKind::Blocks, lossless: false, inline: false, quota: 0, name: "é".repeat(80) };
        assert_eq!(Hello::decode(&hello.encode()).unwrap().name, "é".repeat(48));
        let refusal = Welcome::refusal(Status::Ended, "x\u{1b}[2J".repeat(200));
        assert!(Welcome::decode(&refusal.encode()).unwrap().text.starts_with("x?[2Jx?"));
    }
}
