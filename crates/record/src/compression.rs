//! gzip, zstd and LZ4 around a capture file, read and written as a stream.
//!
//! Reading goes by the first bytes, writing by the name of the file. Both hold a bounded part of the stream,
//! whatever it claims to hold.

mod decode;
mod encode;
mod lz4;
mod parallel;

pub(crate) use decode::{Broken, CUT_OFF, Decoder};
pub(crate) use encode::Encoder;

use std::io::{Error, ErrorKind, Read, Result, Write};

/// Endings of what is compressed in ways that are not written here.
const OTHERS: [&str; 8] = ["xz", "bz2", "lzma", "lz", "br", "zip", "7z", "z"];

/// How a capture file is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// RFC 1952, one or more members.
    Gzip,
    /// RFC 8878, one or more frames, skippable ones among them.
    Zstd,
    /// LZ4 Frame Format Description 1.6.4, one or more frames, skippable ones behind the first.
    Lz4,
}

impl Compression {
    /// What a path asks for by its ending, `.gz`, `.zst` or `.lz4`, and the path without that ending.
    pub fn of_path(path: &str) -> (Option<Self>, &str) {
        let (rest, ending) = path.rsplit_once('.').unwrap_or((path, ""));
        match ending.to_ascii_lowercase().as_str() {
            "gz" => (Some(Compression::Gzip), rest),
            "zst" | "zstd" => (Some(Compression::Zstd), rest),
            "lz4" => (Some(Compression::Lz4), rest),
            _ => (None, path),
        }
    }

    /// The same of a file that is to be written.
    ///
    /// # Errors
    /// Its ending is that of another compression: nobody would find what the name says.
    pub fn to_write(path: &str) -> Result<(Option<Self>, &str)> {
        let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
        if OTHERS.contains(&ending.as_str()) {
            let text = format!("{path}: nothing is written as .{ending} here; there are .gz, .zst and .lz4");
            return Err(Error::new(ErrorKind::InvalidInput, text));
        }
        Ok(Compression::of_path(path))
    }

    /// What a file that begins like this is compressed with.
    pub(crate) fn of_magic(bytes: &[u8]) -> Option<Self> {
        match bytes {
            // No other method than deflate was ever defined.
            [0x1f, 0x8b, 8, ..] => Some(Compression::Gzip),
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Some(Compression::Zstd),
            _ if bytes.starts_with(&lz4::MAGIC) => Some(Compression::Lz4),
            _ => None,
        }
    }

    /// The name of the format.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Gzip => "gzip",
            Compression::Zstd => "zstd",
            Compression::Lz4 => "lz4",
        }
    }
}

/// What is inside of a compressed source, in bounded memory; one that is not compressed as it is.
///
/// # Errors
/// Those of reading its first bytes; no memory for a decompressor.
pub fn plain(mut source: Box<dyn Read + Send>) -> Result<Box<dyn Read + Send>> {
    let mut begin = Vec::new();
    source.by_ref().take(4).read_to_end(&mut begin)?;
    Ok(match Compression::of_magic(&begin) {
        Some(compression) => Box::new(Decoder::new(compression, &begin, source)?),
        None => Box::new(std::io::Cursor::new(begin).chain(source)),
    })
}

/// Compresses whatever is written, each piece whole in itself: a reader finds all of it up to the last one.
pub struct Compressed {
    out: Box<dyn Write + Send>,
    encoder: Encoder,
}

impl Compressed {
    /// Over what takes the bytes.
    ///
    /// # Errors
    /// No memory for a compressor.
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

    /// Ends the stream as if the last piece had never been written, of which nothing may be left in what it is written to:
    /// nothing may be written afterwards.
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
