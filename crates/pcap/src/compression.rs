//! gzip, zstd and LZ4 around a capture file, read and written as a stream.
//!
//! Reading goes by the first bytes, writing by the file name. Both hold a bounded part of the stream in memory,
//! whatever its headers claim.

mod decode;
mod encode;
mod lz4;
mod parallel;

pub(crate) use decode::{CUT_OFF, DecodeFault, Decoder};
pub(crate) use encode::Encoder;

use std::io::{Error, ErrorKind, Read, Result, Write};

/// Extensions of compressions that are not supported for writing.
const OTHERS: [&str; 8] = ["xz", "bz2", "lzma", "lz", "br", "zip", "7z", "z"];

/// Compression of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// RFC 1952, one or more members.
    Gzip,
    /// RFC 8878, one or more frames, including skippable ones.
    Zstd,
    /// LZ4 Frame Format Description 1.6.4, one or more frames; after the first also skippable ones.
    Lz4,
}

impl Compression {
    /// Returns the compression for the extension of a path, `.gz`, `.zst` or `.lz4`, and the path without it.
    pub fn of_path(path: &str) -> (Option<Self>, &str) {
        let (rest, ending) = path.rsplit_once('.').unwrap_or((path, ""));
        match ending.to_ascii_lowercase().as_str() {
            "gz" => (Some(Compression::Gzip), rest),
            "zst" | "zstd" => (Some(Compression::Zstd), rest),
            "lz4" => (Some(Compression::Lz4), rest),
            _ => (None, path),
        }
    }

    /// Returns the same for a file to be written.
    ///
    /// # Errors
    /// If its extension is that of another compression: the file would not be what its name promises.
    pub fn to_write(path: &str) -> Result<(Option<Self>, &str)> {
        let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
        if OTHERS.contains(&ending.as_str()) {
            let text = format!("{path}: unsupported compression .{ending}; use .gz, .zst or .lz4");
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        Ok(Compression::of_path(path))
    }

    /// Recognises a compression by the first bytes.
    pub(crate) fn of_magic(bytes: &[u8]) -> Option<Self> {
        match bytes {
            // Only the method deflate was ever defined.
            [0x1f, 0x8b, 8, ..] => Some(Compression::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Compression::Zstd),
            _ if bytes.starts_with(&lz4::MAGIC) => Some(Compression::Lz4),
            _ => None,
        }
    }

    /// Returns the name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Lz4 => "lz4",
        }
    }
}

/// Returns the decompressed content of a source, in bounded memory; an uncompressed one unchanged.
///
/// # Errors
/// If its first bytes cannot be read, or memory for a decompressor is insufficient.
pub fn plain(mut source: Box<dyn Read + Send>) -> Result<Box<dyn Read + Send>> {
    let mut begin = Vec::new();
    source.by_ref().take(4).read_to_end(&mut begin)?;
    Ok(match Compression::of_magic(&begin) {
        Some(compression) => Box::new(Decoder::new(compression, &begin, source)?),
        None => Box::new(std::io::Cursor::new(begin).chain(source)),
    })
}

/// Compresses everything written; each write can be decompressed to its end on its own.
pub struct Compressed {
    out: Box<dyn Write + Send>,
    encoder: Encoder,
}

impl Compressed {
    /// Wraps a writer.
    ///
    /// # Errors
    /// If memory for a compressor is insufficient.
    pub fn new(compression: Compression, out: Box<dyn Write + Send>) -> Result<Self> {
        Ok(Compressed { out, encoder: Encoder::new(compression)? })
    }

    /// Ends the stream: nothing may be written afterwards.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish(&mut self) -> Result<()> {
        self.out.write_all(self.encoder.tail())?;
        self.out.flush()
    }

    /// Ends the stream as if the last piece had not been written; the caller must have removed it from the output.
    /// Nothing may be written afterwards.
    ///
    /// # Errors
    /// Those of writing.
    pub fn finish_before(&mut self) -> Result<()> {
        self.out.write_all(self.encoder.tail_before())?;
        self.out.flush()
    }
}

impl Write for Compressed {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.out.write_all(self.encoder.compress(bytes)?)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> Result<()> {
        self.out.flush()
    }
}
