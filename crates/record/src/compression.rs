//! gzip and zstd around a capture file, read and written as a stream.
//!
//! Reading goes by the first bytes, writing by the name of the file. Both hold a bounded part of the stream,
//! whatever it claims to hold.

mod decode;
mod encode;

pub(crate) use decode::{Broken, Decoder};
pub(crate) use encode::Encoder;

/// How a capture file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// RFC 1952, one or more members.
    Gzip,
    /// RFC 8878, one or more frames, skippable ones among them.
    Zstd,
}

impl Compression {
    /// What a path asks for by its ending, `.gz` or `.zst`, and the path without that ending.
    pub fn of_path(path: &str) -> (Option<Self>, &str) {
        let (rest, ending) = path.rsplit_once('.').unwrap_or((path, ""));
        match ending.to_ascii_lowercase().as_str() {
            "gz" => (Some(Compression::Gzip), rest),
            "zst" | "zstd" => (Some(Compression::Zstd), rest),
            _ => (None, path),
        }
    }

    /// What a file that begins like this is compressed with.
    pub(crate) fn of_magic(bytes: &[u8]) -> Option<Self> {
        match bytes {
            // No other method than deflate was ever defined.
            [0x1f, 0x8b, 8, ..] => Some(Compression::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// The name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
        }
    }
}
