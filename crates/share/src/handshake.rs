//! The two messages of the handshake.

use crate::layout::{MAJOR, MINOR, Shape};
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

/// What a reader says first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub major: u32,
    pub lossless: bool,
    /// How many blocks it may hold; 0: as the writer thinks best.
    pub quota: u32,
    /// For reports; without characters that a terminal would act on.
    pub name: String,
}

impl Hello {
    /// As it is sent.
    pub fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        let name = &self.name[..self.name.floor_char_boundary(HELLO - NAME_AT)];
        put(&mut bytes, 0, HELLO_MAGIC);
        put(&mut bytes, 4, self.major);
        put(&mut bytes, 8, MINOR);
        put(&mut bytes, 12, if self.lossless { LOSSLESS } else { 0 });
        put(&mut bytes, 16, self.quota);
        put(&mut bytes, 20, name.len() as u32);
        bytes[NAME_AT..NAME_AT + name.len()].copy_from_slice(name.as_bytes());
        bytes
    }

    /// What a reader sent; `None` if that is no such message.
    pub fn decode(bytes: &[u8]) -> Option<Hello> {
        if bytes.len() != HELLO || get(bytes, 0) != HELLO_MAGIC {
            return None;
        }
        let name = text(&bytes[NAME_AT..], get(bytes, 20));
        Some(Hello { major: get(bytes, 4), lossless: get(bytes, 12) & LOSSLESS != 0, quota: get(bytes, 16), name })
    }
}

/// Why a reader is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Welcome,
    Version,
    Permission,
    TooMany,
    NoMemory,
    Ended,
    Malformed,
    /// Of a later version.
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

/// What the writer answers; with [`Status::Welcome`] two descriptors come along: arena and control memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Welcome {
    pub major: u32,
    pub status: Status,
    pub reader: u32,
    pub quota: u32,
    pub generation: u64,
    pub arena_bytes: u64,
    pub control_bytes: u64,
    /// For people.
    pub text: String,
}

impl Welcome {
    /// Lets a reader in.
    pub fn to(reader: u32, quota: u32, generation: u64, shape: &Shape) -> Self {
        Welcome {
            major: MAJOR,
            status: Status::Welcome,
            reader,
            quota,
            generation,
            arena_bytes: shape.bytes() as u64,
            control_bytes: shape.control_bytes() as u64,
            text: String::new(),
        }
    }

    /// Does not let it in.
    pub fn refusal(status: Status, text: impl Into<String>) -> Self {
        let text = text.into();
        Welcome { major: MAJOR, status, reader: 0, quota: 0, generation: 0, arena_bytes: 0, control_bytes: 0, text }
    }

    /// As it is sent.
    pub fn encode(&self) -> [u8; WELCOME] {
        let mut bytes = [0; WELCOME];
        let text = &self.text[..self.text.floor_char_boundary(WELCOME - TEXT_AT)];
        let status = STATUSES.iter().position(|status| *status == self.status).unwrap_or(STATUSES.len());
        put(&mut bytes, 0, WELCOME_MAGIC);
        put(&mut bytes, 4, self.major);
        put(&mut bytes, 8, MINOR);
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

    /// What a writer sent; `None` if that is no such message.
    pub fn decode(bytes: &[u8]) -> Option<Welcome> {
        if bytes.len() != WELCOME || get(bytes, 0) != WELCOME_MAGIC {
            return None;
        }
        Some(Welcome {
            major: get(bytes, 4),
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

/// Text of the other side, fit to be shown: what a terminal would obey, or turn round, is replaced.
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
        fn messages_come_back(major: u32, lossless: bool, quota: u32, name in "[^\\p{C}\\p{Zl}\\p{Zp}]{0,24}", long: [u64; 3]) {
            let hello = Hello { major, lossless, quota, name: name.clone() };
            prop_assert_eq!(Hello::decode(&hello.encode()), Some(hello));
            for status in STATUSES {
                let [generation, arena_bytes, control_bytes] = long;
                let text = name.clone();
                let welcome =
                    Welcome { major, status, reader: quota, quota, generation, arena_bytes, control_bytes, text };
                prop_assert_eq!(Welcome::decode(&welcome.encode()), Some(welcome));
            }
        }

        #[test]
        fn any_bytes_are_bearable(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
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
        let hello = Hello { major: 1, lossless: false, quota: 0, name: "é".repeat(80) };
        assert_eq!(Hello::decode(&hello.encode()).unwrap().name, "é".repeat(48));
        let refusal = Welcome::refusal(Status::Ended, "x\u{1b}[2J".repeat(200));
        assert!(Welcome::decode(&refusal.encode()).unwrap().text.starts_with("x?[2Jx?"));
    }
}
