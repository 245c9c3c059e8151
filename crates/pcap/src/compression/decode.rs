//! Decompresses a stream that may be truncated, damaged or hostile.

use super::Compression;
use super::lz4::Frames;
use flate2::{Decompress, FlushDecompress, Status};
use std::fmt;
use std::io::{Error, ErrorKind, Read, Result};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

/// Compressed bytes read at a time.
const PIECE: usize = 128 << 10;

/// Maximum compressed bytes processed per call, so that the caller regains control on data that decompresses to
/// nothing. Real data stays far below it.
const MOST_EFFORT: usize = 1 << 20;

/// Cost of starting and ending a member or frame, in compressed bytes.
const MEMBER_EFFORT: usize = 4 << 10;

/// Largest window of a zstd frame, as a power of two: 128 MiB, the default limit of `zstd -d`, and the maximum that
/// `zstd` produces without `--long=28` or more.
const LARGEST_WINDOW: u32 = 27;

/// Bytes at the start of a zstd frame needed to compute its header length.
const FRAME_START: usize = 5;

const BLOCK_HEADER: usize = 3;

/// Error of a stream that continues beyond the end of its file.
pub(crate) const CUT_OFF: &str = "unexpected end of file";

/// Reader of the decompressed content. All bytes that can be decompressed are returned before an error about the data,
/// which is a [`DecodeFault`]. Errors of the source are passed on, and reading can continue after them, as after
/// `Interrupted`, which means that much input was processed without output.
pub(crate) struct Decoder {
    source: Source,
    codec: Codec,
    /// Reported once all decompressed bytes were read.
    broken: Option<DecodeFault>,
}

/// Compressed data is invalid from here.
#[derive(Clone, Debug)]
pub(crate) struct DecodeFault {
    pub compression: Compression,
    /// Offset from the start of the compressed file, in bytes.
    pub offset: u64,
    pub what: String,
}

impl fmt::Display for DecodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} data at byte {}: {}", self.compression.name(), self.offset, self.what)
    }
}

impl std::error::Error for DecodeFault {}

enum Codec {
    /// Current member.
    Gzip {
        member: Option<Decompress>,
        members: u64,
    },
    /// Bytes left of the current block, and whether a frame is in progress.
    Zstd {
        context: DCtx<'static>,
        hint: usize,
        inside: bool,
    },
    Lz4(Frames),
}

/// Result of a decompression step.
#[derive(Default)]
pub(super) struct Progress {
    pub consumed: usize,
    pub written: usize,
    pub error: Option<String>,
    /// A member or frame has ended.
    pub ended: bool,
}

impl Decoder {
    /// Decompresses `source`, of which `begin` has been read already.
    pub(crate) fn new(compression: Compression, begin: &[u8], source: Box<dyn Read + Send>) -> Result<Self> {
        let codec = match compression {
            Compression::Gzip => Codec::Gzip { member: None, members: 0 },
            Compression::Zstd => {
                let mut context = DCtx::try_create().ok_or(ErrorKind::OutOfMemory)?;
                let limit = context.set_parameter(DParameter::WindowLogMax(LARGEST_WINDOW));
                limit.map_err(|code| Error::other(zstd_safe::get_error_name(code)))?;
                Codec::Zstd { context, hint: FRAME_START, inside: false }
            }
            Compression::Lz4 => Codec::Lz4(Frames::default()),
        };
        Ok(Decoder { source: Source::new(begin, source), codec, broken: None })
    }

    fn breaks(&self, what: String) -> DecodeFault {
        let compression = match self.codec {
            Codec::Gzip { .. } => Compression::Gzip,
            Codec::Zstd { .. } => Compression::Zstd,
            Codec::Lz4(_) => Compression::Lz4,
        };
        DecodeFault { compression, offset: self.source.offset, what }
    }
}

impl Read for Decoder {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let (mut written, mut effort) = (0, 0);
        while self.broken.is_none() && written < into.len() {
            if effort >= MOST_EFFORT {
                return if written > 0 { Ok(written) } else { Err(ErrorKind::Interrupted.into()) };
            }
            let step = self.codec.step(self.source.available(), &mut into[written..]);
            self.source.consume(step.consumed);
            written += step.written;
            effort += step.consumed + if step.ended { MEMBER_EFFORT } else { 0 };
            if let Some(what) = step.error {
                self.broken = Some(self.breaks(what));
            } else if step.consumed == 0 && step.written == 0 {
                // Return what was decompressed: the source may block for long.
                if written > 0 {
                    break;
                }
                if !self.source.read_more()? {
                    if !self.codec.is_inside() {
                        return Ok(0);
                    }
                    // The incomplete part was not processed.
                    let left = self.source.available().len() as u64;
                    let cut = self.breaks(CUT_OFF.into());
                    self.broken = Some(DecodeFault { offset: cut.offset + left, ..cut });
                }
            }
        }
        match &self.broken {
            Some(broken) if written == 0 => Err(Error::new(ErrorKind::InvalidData, broken.clone())),
            _ => Ok(written),
        }
    }
}

impl Codec {
    fn step(&mut self, from: &[u8], into: &mut [u8]) -> Progress {
        match self {
            Codec::Gzip { member: None, .. } if from.is_empty() => Progress::default(),
            // Tapes and block devices pad with zeros, which gzip ignores too.
            Codec::Gzip { member: None, members: 1.. } if from[0] == 0 => {
                let consumed = from.iter().take_while(|byte| **byte == 0).count();
                Progress { consumed, ..Progress::default() }
            }
            Codec::Gzip { member, members } => {
                let inflate = member.get_or_insert_with(|| Decompress::new_gzip(15));
                let (progress, ended) = step_gzip(inflate, from, into);
                if ended {
                    *member = None;
                    *members += 1;
                }
                progress
            }
            Codec::Zstd { context, hint, inside } => step_zstd(context, hint, inside, from, into),
            Codec::Lz4(frames) => frames.step(from, into),
        }
    }

    /// Returns whether the file must not end here.
    fn is_inside(&self) -> bool {
        match self {
            Codec::Gzip { member, .. } => member.is_some(),
            Codec::Zstd { inside, .. } => *inside,
            Codec::Lz4(frames) => frames.is_inside(),
        }
    }
}

/// Inflates. Also returns whether the member has ended, with correct checksum and length.
fn step_gzip(inflate: &mut Decompress, from: &[u8], into: &mut [u8]) -> (Progress, bool) {
    let before = (inflate.total_in(), inflate.total_out());
    let result = inflate.decompress(from, into, FlushDecompress::None);
    let consumed = (inflate.total_in() - before.0) as usize;
    let written = (inflate.total_out() - before.1) as usize;
    let error = result.as_ref().err().map(ToString::to_string);
    let ended = matches!(result, Ok(Status::StreamEnd));
    (Progress { consumed, written, error, ended }, ended)
}

/// Decompresses at most one block, so that everything before a damaged block is output. The library asks for a block
/// together with the next header; if that is damaged, neither would be output.
fn step_zstd(
    context: &mut DCtx<'static>,
    hint: &mut usize,
    inside: &mut bool,
    from: &[u8],
    into: &mut [u8],
) -> Progress {
    if from.is_empty() && !*inside {
        return Progress::default();
    }
    let most = if *hint > BLOCK_HEADER { *hint - BLOCK_HEADER } else { (*hint).max(1) };
    let mut input = InBuffer::around(&from[..from.len().min(most)]);
    let mut output = OutBuffer::around(into);
    let result = context.decompress_stream(&mut output, &mut input);
    let (consumed, written) = (input.pos(), output.pos());
    let error = match result {
        Ok(next) => {
            *inside = next > 0;
            *hint = if next > 0 { next } else { FRAME_START };
            None
        }
        Err(code) => Some(match zstd_safe::get_error_name(code) {
            name if name.contains("too much memory") => format!("{name}: the maximum window is 128 MiB"),
            name => name.to_owned(),
        }),
    };
    Progress { consumed, written, error, ended: !*inside }
}

struct Source {
    inner: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// File offset of `at`.
    offset: u64,
}

impl Source {
    fn new(begin: &[u8], inner: Box<dyn Read + Send>) -> Self {
        let mut buffer = begin.to_vec();
        buffer.resize(begin.len().max(PIECE), 0);
        Source { inner, buffer, at: 0, end: begin.len(), offset: 0 }
    }

    fn available(&self) -> &[u8] {
        &self.buffer[self.at..self.end]
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes;
        self.offset += bytes as u64;
    }

    /// Reads more after the remaining bytes; makes room for them, as a block of LZ4 is decompressed as a whole.
    /// Returns false at the end.
    fn read_more(&mut self) -> Result<bool> {
        self.buffer.copy_within(self.at..self.end, 0);
        (self.at, self.end) = (0, self.end - self.at);
        if self.end == self.buffer.len() {
            self.buffer.resize(2 * self.end, 0);
        }
        loop {
            match self.inner.read(&mut self.buffer[self.end..]) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => {
                    let count = result?;
                    self.end += count;
                    return Ok(count > 0);
                }
            }
        }
    }
}
