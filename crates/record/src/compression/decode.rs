//! Decompressing a stream that may be cut, damaged or hostile.

use super::Compression;
use super::lz4::Frames;
use flate2::{Decompress, FlushDecompress, Status};
use std::fmt;
use std::io::{Error, ErrorKind, Read, Result};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer};

/// Compressed bytes asked for at a time.
const PIECE: usize = 128 << 10;

/// The most that is gone through for one call, in compressed bytes: whoever reads what is compressed to nothing gets
/// to look up in between. Real data is far from it.
const MOST_EFFORT: usize = 1 << 20;

/// What it takes to begin and end a member or frame, in compressed bytes that could be gone through meanwhile.
const MEMBER_EFFORT: usize = 4 << 10;

/// The largest window a zstd frame may ask for, as a power of two: 128 MiB, which is what `zstd -d` takes
/// unless told otherwise, and all that `zstd` makes without `--long=28` or more.
const LARGEST_WINDOW: u32 = 27;

/// The most bytes a zstd frame's header begins with before its length is known.
const FRAME_START: usize = 5;

/// Bytes of the header of a zstd block.
const BLOCK_HEADER: usize = 3;

/// What is wrong with a stream that goes on behind the end of its file.
pub(crate) const CUT_OFF: &str = "the file is cut off here";

/// A compressed source, read decompressed. All bytes that can be had come before an error about the data;
/// that error is a [`Broken`]. Errors of the source itself are passed on, and reading goes on after them; so it does
/// after `Interrupted`, which says that a lot was gone through that holds no byte.
pub(crate) struct Decoder {
    source: Source,
    codec: Codec,
    /// Told once what was decompressed before it was taken.
    broken: Option<Broken>,
}

/// Compressed data that cannot be decompressed further.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub compression: Compression,
    /// Where, in bytes from the beginning of the compressed file.
    pub offset: u64,
    pub what: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} data at byte {}: {}", self.compression.name(), self.offset, self.what)
    }
}

impl std::error::Error for Broken {}

enum Codec {
    /// The member under way.
    Gzip {
        member: Option<Decompress>,
        members: u64,
    },
    /// How many bytes make up the rest of the block under way, and whether a frame is under way.
    Zstd {
        context: DCtx<'static>,
        hint: usize,
        inside: bool,
    },
    Lz4(Frames),
}

/// What a step of decompression did.
#[derive(Default)]
pub(super) struct Progress {
    pub consumed: usize,
    pub written: usize,
    pub error: Option<String>,
    /// A member or frame is at its end.
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

    fn breaks(&self, what: String) -> Broken {
        let compression = match self.codec {
            Codec::Gzip { .. } => Compression::Gzip,
            Codec::Zstd { .. } => Compression::Zstd,
            Codec::Lz4(_) => Compression::Lz4,
        };
        Broken { compression, offset: self.source.offset, what }
    }
}

impl Read for Decoder {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        let (mut written, mut effort) = (0, 0);
        while self.broken.is_none() && written < into.len() {
            if effort >= MOST_EFFORT {
                return if written > 0 { Ok(written) } else { Err(ErrorKind::Interrupted.into()) };
            }
            let step = self.codec.step(self.source.at_hand(), &mut into[written..]);
            self.source.consume(step.consumed);
            written += step.written;
            effort += step.consumed + if step.ended { MEMBER_EFFORT } else { 0 };
            if let Some(what) = step.error {
                self.broken = Some(self.breaks(what));
            } else if step.consumed == 0 && step.written == 0 {
                // What was decompressed is not held back while more may be long in coming.
                if written > 0 {
                    break;
                }
                if !self.source.read_on()? {
                    if !self.codec.is_inside() {
                        return Ok(0);
                    }
                    // What is not whole was not gone through.
                    let left = self.source.at_hand().len() as u64;
                    let cut = self.breaks(CUT_OFF.into());
                    self.broken = Some(Broken { offset: cut.offset + left, ..cut });
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
            // Tapes and block devices pad with zeros, which gzip passes over as well.
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

    /// Whether the end of the file would be in the middle of something.
    fn is_inside(&self) -> bool {
        match self {
            Codec::Gzip { member, .. } => member.is_some(),
            Codec::Zstd { inside, .. } => *inside,
            Codec::Lz4(frames) => frames.is_inside(),
        }
    }
}

/// Inflates; also says whether the member has ended, its checksum and length found right.
fn step_gzip(inflate: &mut Decompress, from: &[u8], into: &mut [u8]) -> (Progress, bool) {
    let before = (inflate.total_in(), inflate.total_out());
    let result = inflate.decompress(from, into, FlushDecompress::None);
    let consumed = (inflate.total_in() - before.0) as usize;
    let written = (inflate.total_out() - before.1) as usize;
    let error = result.as_ref().err().map(ToString::to_string);
    let ended = matches!(result, Ok(Status::StreamEnd));
    (Progress { consumed, written, error, ended }, ended)
}

/// Decompresses one block at most: what comes before a damaged block is then handed out. The library asks for a block
/// together with the header of the next; were that one wrong, it would hand out neither.
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
            name if name.contains("too much memory") => format!("{name}: windows may have 128 MiB"),
            name => name.to_owned(),
        }),
    };
    Progress { consumed, written, error, ended: !*inside }
}

/// Compressed bytes.
struct Source {
    inner: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    /// Where `at` is in the file.
    offset: u64,
}

impl Source {
    fn new(begin: &[u8], inner: Box<dyn Read + Send>) -> Self {
        let mut buffer = begin.to_vec();
        buffer.resize(begin.len().max(PIECE), 0);
        Source { inner, buffer, at: 0, end: begin.len(), offset: 0 }
    }

    fn at_hand(&self) -> &[u8] {
        &self.buffer[self.at..self.end]
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes;
        self.offset += bytes as u64;
    }

    /// Reads on behind what is left, for which room is made where nothing of it could be used: a block of LZ4 is taken as one.
    /// Returns false at the end.
    fn read_on(&mut self) -> Result<bool> {
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
