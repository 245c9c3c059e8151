//! Compresses output such that the file can be ended after any piece.
//!
//! After each piece the stream is flushed to a byte boundary: readers can decompress the file up to there. A file is
//! ended by a fixed tail: an empty last block, for gzip followed by checksum and length, for LZ4 the end mark. The
//! tail of the previous piece is kept, so that a piece that could not be written can be removed and the file ended
//! without it. That is why zstd frames have no checksum: it would have to be recomputed.

use super::parallel::Parallel;
use super::{Compression, lz4};
use flate2::{Compress, Crc, FlushCompress, Status};
use std::io::{Error, Result};
use zstd_safe::zstd_sys::ZSTD_EndDirective::ZSTD_e_flush;
use zstd_safe::{CCtx, CParameter, InBuffer, OutBuffer};

/// gzip levels above 1 take two to three times as long for 6 % less size, on real traffic.
const GZIP_LEVEL: u32 = 1;

/// `zstd --fast=1`: 1 % larger than level 1 on real traffic, in 70 % of the time.
const ZSTD_LEVEL: i32 = -1;

/// Output buffer growth in bytes.
const PIECE: usize = 64 << 10;

/// Member header without name and time: method, no flags, no time, fastest, Unix (RFC 1952, 2.3).
const MEMBER_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 3];

/// Ends a deflate stream at a byte boundary: an empty last block of fixed codes (RFC 1951, 3.2.6).
const LAST_DEFLATE_BLOCK: [u8; 2] = [3, 0];

/// Ends a zstd frame: an empty last raw block (RFC 8878, 3.1.1.2).
const LAST_ZSTD_BLOCK: [u8; 3] = [1, 0, 0];

/// A compressor whose output is complete at the end of each piece.
pub(crate) struct Encoder {
    codec: Codec,
    out: Vec<u8>,
    /// Tails that end the file after the last piece, and after the one before; empty without such a piece.
    tail: Vec<u8>,
    tail_before: Vec<u8>,
}

enum Codec {
    Gzip { deflate: Box<Compress>, crc: Crc },
    Zstd(CCtx<'static>),
    ZstdParallel(Parallel),
    Lz4,
}

impl Encoder {
    pub(crate) fn new(compression: Compression) -> Result<Self> {
        let codec = match compression {
            Compression::Gzip => {
                let deflate = Box::new(Compress::new(flate2::Compression::new(GZIP_LEVEL), false));
                Codec::Gzip { deflate, crc: Crc::new() }
            }
            Compression::Zstd => {
                let mut context = CCtx::try_create().ok_or(std::io::ErrorKind::OutOfMemory)?;
                context.set_parameter(CParameter::CompressionLevel(ZSTD_LEVEL)).map_err(zstd_error)?;
                Codec::Zstd(context)
            }
            Compression::Lz4 => Codec::Lz4,
        };
        Ok(Encoder { codec, out: Vec::new(), tail: Vec::new(), tail_before: Vec::new() })
    }

    /// Returns an encoder with several threads, which only zstd can use.
    pub(crate) fn with_threads(compression: Compression, threads: usize) -> Result<Self> {
        let mut encoder = Encoder::new(compression)?;
        if compression == Compression::Zstd && threads > 1 {
            encoder.codec = Codec::ZstdParallel(Parallel::new(threads, ZSTD_LEVEL)?);
        }
        Ok(encoder)
    }

    /// Returns the number of threads.
    pub(crate) fn threads(&self) -> usize {
        if let Codec::ZstdParallel(parallel) = &self.codec { parallel.threads() } else { 1 }
    }

    /// Returns the compression.
    pub(crate) fn compression(&self) -> Compression {
        match self.codec {
            Codec::Gzip { .. } => Compression::Gzip,
            Codec::Zstd(_) | Codec::ZstdParallel(_) => Compression::Zstd,
            Codec::Lz4 => Compression::Lz4,
        }
    }

    /// Compresses a piece. Returns the bytes to write.
    pub(crate) fn compress(&mut self, piece: &[u8]) -> Result<&[u8]> {
        self.out.clear();
        std::mem::swap(&mut self.tail, &mut self.tail_before);
        match &mut self.codec {
            Codec::Gzip { deflate, crc } => {
                if self.tail_before.is_empty() {
                    self.out.extend(MEMBER_HEADER);
                }
                deflate_piece(deflate, piece, &mut self.out)?;
                crc.update(piece);
                self.tail.clear();
                self.tail.extend(LAST_DEFLATE_BLOCK);
                self.tail.extend(crc.sum().to_le_bytes());
                self.tail.extend(crc.amount().to_le_bytes());
            }
            Codec::Zstd(context) => {
                compress_piece(context, piece, &mut self.out)?;
                self.tail.clear();
                self.tail.extend(LAST_ZSTD_BLOCK);
            }
            // Each piece is a complete frame.
            Codec::ZstdParallel(parallel) => parallel.compress(piece, &mut self.out)?,
            Codec::Lz4 => {
                lz4::compress(piece, self.tail_before.is_empty(), &mut self.out)?;
                self.tail.clear();
                self.tail.extend(lz4::END);
            }
        }
        Ok(&self.out)
    }

    /// Returns whether later output depends on earlier output.
    pub(crate) fn is_joined(&self) -> bool {
        !self.tail.is_empty() && !matches!(self.codec, Codec::Lz4)
    }

    /// Returns the tail that ends the file after all pieces; empty without pieces.
    pub(crate) fn tail(&self) -> &[u8] {
        &self.tail
    }

    /// Returns the tail that ends the file without the last piece; empty without another one.
    pub(crate) fn tail_before(&self) -> &[u8] {
        &self.tail_before
    }
}

fn deflate_piece(deflate: &mut Compress, piece: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let start = deflate.total_in();
    loop {
        out.reserve(PIECE);
        let done = (deflate.total_in() - start) as usize;
        let status = deflate.compress_vec(&piece[done..], out, FlushCompress::Sync).map_err(Error::other)?;
        // The output may be incomplete if it fills the buffer.
        if out.len() < out.capacity() || status == Status::BufError {
            return Ok(());
        }
    }
}

fn compress_piece(context: &mut CCtx<'static>, piece: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let mut input = InBuffer::around(piece);
    loop {
        let start = out.len();
        out.resize(start + PIECE, 0);
        let mut room = OutBuffer::around(&mut out[start..]);
        let left = context.compress_stream2(&mut room, &mut input, ZSTD_e_flush).map_err(zstd_error)?;
        let written = room.pos();
        out.truncate(start + written);
        if left == 0 {
            return Ok(());
        }
    }
}

pub(super) fn zstd_error(code: usize) -> Error {
    Error::other(zstd_safe::get_error_name(code))
}
