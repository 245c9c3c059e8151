//! Reading a capture file as bursts.

mod recognise;

use crate::compression::{Broken, Compression, Decoder};
use crate::error::{Fault, ReadError, Step};
use crate::input::Input;
use crate::origin::Origin;
use crate::pcap::{FILE_HEADER, FileHeader};
use crate::pcapng::Section;
use linerate_burst::{Burst, Desc, Interface};
use recognise::recognise;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::sync::Arc;

/// Frames parsed at a time. Few enough that showing them again after a part was consumed is cheap: each
/// [`Reader::fill`] checks all that it shows.
const MOST_FRAMES: usize = 512;

/// With fewer frames than this at hand, `fill` parses on.
const FEW_FRAMES: usize = 64;

/// Pieces of input without a frame after which [`Reader::look`] comes back: 4 MiB, some milliseconds.
const PATIENCE: usize = 16;

/// Reads a capture file, pcap or pcapng, from any source of bytes. Shaped like `std::io::BufRead`:
/// [`fill`](Reader::fill) shows frames, [`consume`](Reader::consume) gives the first of them back.
///
/// gzip, zstd and LZ4 are recognised by their first bytes and decompressed as the frames are read, with bounded
/// memory: zstd windows above 128 MiB are refused. Errors then give the place in the decompressed data, but
/// for [`ReadError::Decompression`].
///
/// Frames keep what the file says, such as a captured length beyond the wire length. Where the file says that the last bytes
/// of frames are their FCS these lie after the frame ([`Desc::stored`]). A frame without a time of its own (simple packet
/// block) has that of the frame before it. Times before 1970 and after 2554 become the first and the last one
/// ([`times_changed`](Reader::times_changed)).
///
/// What a pcapng file says in options and interface statistics travels in
/// [`Interface::origin`](linerate_burst::Interface::origin), comments on frames there and in
/// [`Desc::note`]; a [`Writer`](crate::Writer) puts it into the file it writes. Up to 16 MiB are kept of options of
/// interfaces and sections, names of interfaces (1,024 bytes each), names of addresses, secrets and comments on
/// statistics, counted as what they take in memory; [`left_out`](Reader::left_out) counts what found no more room. Of
/// comments on frames the last 65,535 are kept, or 64 MiB of them. A file may have 8,192 interfaces; the next one ends
/// it with [`ReadError::Unsupported`].
pub struct Reader {
    name: String,
    input: Input,
    format: Format,
    compression: Option<Compression>,
    /// Bytes still to be passed over before the next record.
    skipping: u64,
    descs: Vec<Desc>,
    consumed: usize,
    /// Frames parsed so far.
    frames: u64,
    /// Nothing more can be read; the reason, until it was told.
    over: Option<Option<ReadError>>,
    /// The last look came back before it had found a frame or the end.
    at_work: bool,
}

/// What came of reading on.
enum More {
    /// Perhaps some bytes.
    Bytes,
    /// The end of the source.
    End,
    /// It was read on often enough for now.
    Later,
}

enum Format {
    /// The header was not read yet.
    Unread,
    Pcap(FileHeader, [Interface; 1]),
    Pcapng(Section),
}

impl Reader {
    /// Opens the file at `path`; `-` is standard input.
    pub fn open(path: &str) -> Result<Self, ReadError> {
        let failed = |reason| ReadError::Io { name: path.to_owned(), offset: 0, reason };
        if path == "-" {
            let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
            return Reader::new(Box::new(File::from(input)), "standard input");
        }
        Reader::new(Box::new(File::open(path).map_err(failed)?), path)
    }

    /// Begins to read `source`, of which errors speak as `name`; waits for the file header.
    pub fn new(source: Box<dyn Read + Send>, name: impl Into<String>) -> Result<Self, ReadError> {
        let mut reader = Reader::lazy(source, name);
        while matches!(reader.format, Format::Unread) {
            let mut patience = PATIENCE;
            reader.open_input(&mut patience)?;
        }
        Ok(reader)
    }

    /// As [`new`](Reader::new), but the header is read with the first frames: for sources that do not block.
    pub fn lazy(source: Box<dyn Read + Send>, name: impl Into<String>) -> Self {
        Reader {
            name: name.into(),
            input: Input::new(source),
            format: Format::Unread,
            compression: None,
            skipping: 0,
            descs: Vec::with_capacity(MOST_FRAMES),
            consumed: 0,
            frames: 0,
            over: None,
            at_work: false,
        }
    }

    /// Reads the file header, of what is inside where the file is compressed, unless it is long in coming.
    fn open_input(&mut self, patience: &mut usize) -> Result<(), ReadError> {
        while matches!(self.format, Format::Unread) {
            while self.input.at_hand().len() < FILE_HEADER {
                match self.read_on(patience)? {
                    More::Bytes => {}
                    More::End => break,
                    More::Later => return Ok(()),
                }
            }
            match Compression::of_magic(self.input.at_hand()) {
                Some(compression) if self.compression.is_none() => self.decompress(compression)?,
                _ => {
                    let (format, header) = recognise(self.input.at_hand(), &self.inner_name())?;
                    self.format = format;
                    self.input.skip(header);
                }
            }
        }
        Ok(())
    }

    /// Puts a decompressor between the source and the input.
    fn decompress(&mut self, compression: Compression) -> Result<(), ReadError> {
        let compressed = std::mem::replace(&mut self.input, Input::new(Box::new(io::empty())));
        let (begin, source) = compressed.into_parts();
        let decoder = Decoder::new(compression, &begin, source).map_err(|reason| self.failed(reason))?;
        self.input = Input::new(Box::new(decoder));
        self.compression = Some(compression);
        Ok(())
    }

    /// The frames shown before and not consumed, and perhaps more behind them; waits until there is at
    /// least one. No frame means that the end is reached. Only reads on when no frame is left, so that
    /// frames that a slow pipe has brought are never held back. However much of the file holds no frame, it is
    /// all read: who has to look up in between calls [`look`](Reader::look).
    ///
    /// An error is told once, after all complete frames before it were consumed; then the reader has
    /// ended. The exception is [`ReadError::Io`]: the next call tries to read again from the same place,
    /// as is right for a source that does not block.
    pub fn fill(&mut self) -> Result<Burst<'_>, ReadError> {
        while self.look()? == 0 && self.at_work {}
        Ok(self.shown())
    }

    /// As [`fill`](Reader::fill), but comes back after some milliseconds of input without a frame, as
    /// [`is_at_work`](Reader::is_at_work) then says: the next call goes on from there. Returns the number of frames that
    /// [`shown`](Reader::shown) has.
    pub fn look(&mut self) -> Result<usize, ReadError> {
        self.at_work = false;
        if self.held() < FEW_FRAMES && self.over.is_none() {
            let mut patience = PATIENCE;
            match self.open_input(&mut patience).and_then(|()| self.parse_on(&mut patience)) {
                Err(error @ ReadError::Io { .. }) => return Err(error),
                Err(error) => self.over = Some(Some(error)),
                Ok(()) => {}
            }
        }
        if self.held() > 0 {
            return Ok(self.held());
        }
        self.over.as_mut().and_then(Option::take).map_or(Ok(0), Err)
    }

    /// Whether the last [`look`](Reader::look) found neither a frame nor the end, with more to be read.
    pub fn is_at_work(&self) -> bool {
        self.at_work
    }

    /// The frames that the last [`fill`](Reader::fill) or [`look`](Reader::look) came to and that were not consumed since, for
    /// callers that need [`interfaces`](Reader::interfaces) at the same time.
    pub fn shown(&self) -> Burst<'_> {
        let burst = Burst::over(self.input.memory(), &self.descs[self.consumed..]);
        burst.expect("the parsers keep every frame inside what was read")
    }

    /// Gives the first `frames` of what [`fill`](Reader::fill) showed back.
    ///
    /// # Panics
    /// If that many were not shown.
    pub fn consume(&mut self, frames: usize) {
        assert!(frames <= self.held(), "{frames} frames consumed, {} shown", self.held());
        self.consumed += frames;
    }

    /// The interfaces that descs point to; grows while reading, never changes otherwise. A pcap file has
    /// one without a name.
    pub fn interfaces(&self) -> &[Interface] {
        match &self.format {
            Format::Unread => &[],
            Format::Pcap(_, interface) => interface,
            Format::Pcapng(section) => &section.interfaces,
        }
    }

    /// Frames that the interfaces of the file had seen, and lost, when it was made, as far as its interface
    /// statistics were read and say so.
    pub fn seen_and_dropped(&self) -> (Option<u64>, Option<u64>) {
        let origins: &[Arc<Origin>] = match &self.format {
            Format::Pcapng(section) => &section.origins,
            _ => &[],
        };
        let mut sums = (None, None);
        let add = |sum: &mut Option<u64>, count: Option<u64>| {
            *sum = count.map_or(*sum, |count| Some(sum.unwrap_or(0).saturating_add(count)));
        };
        for [received, by_interface, by_system] in origins.iter().map(|origin| origin.seen_and_dropped()) {
            add(&mut sums.0, received);
            add(&mut sums.1, by_interface);
            add(&mut sums.1, by_system);
        }
        sums
    }

    /// Things that a pcapng file says beyond frames and that are not kept: names, secrets, options and comments on
    /// statistics for which there is no more room, or that cannot be understood.
    pub fn left_out(&self) -> u64 {
        match &self.format {
            Format::Pcapng(section) => section.left_out(),
            _ => 0,
        }
    }

    /// Frames whose times are not those of the file, which cannot be told.
    pub fn times_changed(&self) -> u64 {
        match &self.format {
            Format::Pcapng(section) => section.times_changed,
            Format::Pcap(header, _) => header.times_changed,
            Format::Unread => 0,
        }
    }

    /// Where the first record lies of which no frame was shown yet, in bytes from the beginning of the file; of what is
    /// inside where it is compressed.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// How many records were read so far that frames behind them need to be understood (sections, interfaces, names, secrets,
    /// frames without a time of their own), or that are to be told of.
    pub fn described(&self) -> u64 {
        match &self.format {
            Format::Pcapng(section) => section.described + section.left_out() + section.times_changed,
            Format::Pcap(header, _) => header.times_changed,
            Format::Unread => 0,
        }
    }

    /// How the file is compressed.
    pub fn compression(&self) -> Option<Compression> {
        self.compression
    }

    /// Whether all was read, told and consumed.
    pub fn ended(&self) -> bool {
        self.held() == 0 && matches!(self.over, Some(None))
    }

    fn held(&self) -> usize {
        self.descs.len() - self.consumed
    }

    /// Reads on, unless that was done often enough.
    fn read_on(&mut self, patience: &mut usize) -> Result<More, ReadError> {
        self.at_work = *patience == 0;
        if self.at_work {
            return Ok(More::Later);
        }
        *patience -= 1;
        match self.input.read_on() {
            Ok(true) => Ok(More::Bytes),
            Ok(false) => Ok(More::End),
            Err(reason) => Err(self.failed(reason)),
        }
    }

    /// Parses what is at hand; reads on for as long as no frame is held, and there is patience.
    fn parse_on(&mut self, patience: &mut usize) -> Result<(), ReadError> {
        self.descs.drain(..self.consumed);
        self.consumed = 0;
        let held = self.descs.len();
        loop {
            self.skipping -= self.input.skip(self.skipping);
            let step = if self.skipping > 0 { Step::Need(1) } else { self.parse() };
            match step {
                Step::Full => break,
                Step::Skip(bytes) => self.skipping = bytes,
                Step::Stop(fault) => {
                    self.over = Some(Some(self.fault(fault, self.descs.len() - held)));
                    break;
                }
                Step::Need(_) if !self.descs.is_empty() => break,
                Step::Need(needed) => match self.read_on(patience)? {
                    More::Bytes => {}
                    More::End => {
                        self.over = Some(self.cut_off(needed as u64));
                        break;
                    }
                    More::Later => break,
                },
            }
        }
        self.frames += (self.descs.len() - held) as u64;
        Ok(())
    }

    fn parse(&mut self) -> Step {
        let (bytes, mut at) = self.input.read_so_far();
        let step = match &mut self.format {
            Format::Unread => Step::Need(FILE_HEADER),
            Format::Pcap(header, ..) => header.parse_records(bytes, &mut at, &mut self.descs),
            Format::Pcapng(section) => section.parse_blocks(bytes, &mut at, &mut self.descs),
        };
        self.input.move_to(at);
        step
    }

    /// What it means that the source has ended where `needed` bytes were needed.
    fn cut_off(&self, needed: u64) -> Option<ReadError> {
        let present = self.input.at_hand().len() as u64;
        if present == 0 && self.skipping == 0 {
            return None;
        }
        let (name, frames) = (self.inner_name(), self.frames);
        let (offset, needed) = (self.input.offset(), needed.max(self.skipping));
        Some(ReadError::CutOff { name, offset, needed, present, frames })
    }

    fn fault(&self, fault: Fault, parsed: usize) -> ReadError {
        let (name, offset, frames) = (self.inner_name(), self.input.offset(), self.frames + parsed as u64);
        match fault {
            Fault::Damaged(what) => ReadError::Damaged { name, offset, what, frames },
            Fault::Unsupported(what) => ReadError::Unsupported { name, offset, what, frames },
        }
    }

    /// The name of what offsets are counted in.
    fn inner_name(&self) -> String {
        match self.compression {
            None => self.name.clone(),
            Some(_) => format!("{} (decompressed)", self.name),
        }
    }

    fn failed(&self, reason: io::Error) -> ReadError {
        if let Some(broken) = reason.get_ref().and_then(|inner| inner.downcast_ref::<Broken>()) {
            let Broken { compression, offset, ref what } = *broken;
            let (name, what, frames) = (self.name.clone(), what.clone(), self.frames);
            return ReadError::Decompression { name, method: compression.name(), offset, what, frames };
        }
        let offset = self.input.offset() + self.input.at_hand().len() as u64;
        ReadError::Io { name: self.name.clone(), offset, reason }
    }
}

#[cfg(test)]
mod tests;
