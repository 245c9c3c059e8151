//! Reads capture files as bursts.

mod recognise;

use crate::compression::{Compression, DecodeFault, Decoder};
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

/// Frames parsed at a time. Few enough that returning them again after a part was consumed is cheap: each
/// [`Reader::fill`] validates all of them.
const MOST_FRAMES: usize = 512;

/// With fewer frames available, `fill` parses more.
const FEW_FRAMES: usize = 64;

/// Pieces of input without a frame after which [`Reader::look`] returns: 4 MiB, some milliseconds.
const PATIENCE: usize = 16;

/// Reads a capture file, pcap or pcapng, from any source of bytes. Similar to `std::io::BufRead`:
/// [`fill`](Reader::fill) returns frames, [`consume`](Reader::consume) releases the first of them.
///
/// gzip, zstd and LZ4 are recognised by their first bytes and decompressed while reading, with bounded memory: zstd
/// windows above 128 MiB are refused. Errors then give offsets in the decompressed data, except
/// [`ReadError::Decompression`].
///
/// Frames keep the values of the file, such as a captured length beyond the wire length. If the file marks the last
/// bytes of frames as their FCS, these are stored after the frame ([`Desc::stored`]). A frame without a time (simple
/// packet block) gets that of the frame before it. Times before 1970 and after 2554 become the first and the last one
/// ([`times_changed`](Reader::times_changed)).
///
/// Metadata in options and interface statistics of a pcapng file is carried in
/// [`Interface::origin`](linerate_burst::Interface::origin), frame comments there and in [`Desc::note`]; a
/// [`Writer`](crate::Writer) writes it to its file. Up to 16 MiB are kept of options of interfaces and sections,
/// interface names (1,024 bytes each), name resolution, secrets and comments on statistics, counted by their size in
/// memory; [`left_out`](Reader::left_out) counts what exceeds it. Of frame comments the last 65,535 are kept, or 64
/// MiB of them. A file may have 8,192 interfaces; the next one ends it with [`ReadError::Unsupported`].
pub struct Reader {
    name: String,
    input: Input,
    format: Format,
    compression: Option<Compression>,
    /// Bytes to skip before the next record.
    skipping: u64,
    descs: Vec<Desc>,
    consumed: usize,
    /// Frames parsed so far.
    frames: u64,
    /// End of reading; the inner value is an error not reported yet.
    over: Option<Option<ReadError>>,
    /// The last `look` returned before it found a frame or the end.
    at_work: bool,
}

/// Result of a read.
enum RefillOutcome {
    /// Perhaps some bytes.
    Bytes,
    /// End of the source.
    End,
    /// Limit of reads reached; continue later.
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

    /// Starts reading `source`, with `name` in errors; waits for the file header.
    pub fn new(source: Box<dyn Read + Send>, name: impl Into<String>) -> Result<Self, ReadError> {
        let mut reader = Reader::lazy(source, name);
        while matches!(reader.format, Format::Unread) {
            let mut patience = PATIENCE;
            reader.open_input(&mut patience)?;
        }
        Ok(reader)
    }

    /// Starts reading like [`new`](Reader::new), but reads the header with the first frames: for sources that do not
    /// block.
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

    /// Reads the file header, of the decompressed content if compressed, unless it takes too long.
    fn open_input(&mut self, patience: &mut usize) -> Result<(), ReadError> {
        while matches!(self.format, Format::Unread) {
            while self.input.available().len() < FILE_HEADER {
                match self.read_more(patience)? {
                    RefillOutcome::Bytes => {}
                    RefillOutcome::End => break,
                    RefillOutcome::Later => return Ok(()),
                }
            }
            match Compression::of_magic(self.input.available()) {
                Some(compression) if self.compression.is_none() => self.decompress(compression)?,
                _ => {
                    let (format, header) = recognise(self.input.available(), &self.inner_name())?;
                    self.format = format;
                    self.input.skip(header);
                }
            }
        }
        Ok(())
    }

    /// Inserts a decompressor between the source and the input.
    fn decompress(&mut self, compression: Compression) -> Result<(), ReadError> {
        let compressed = std::mem::replace(&mut self.input, Input::new(Box::new(io::empty())));
        let (begin, source) = compressed.into_parts();
        let decoder = Decoder::new(compression, &begin, source).map_err(|reason| self.failed(reason))?;
        self.input = Input::new(Box::new(decoder));
        self.compression = Some(compression);
        Ok(())
    }

    /// Returns the frames returned before and not consumed, and perhaps more after them; waits until there is at least
    /// one. No frame means that the end is reached. Reads only when no frame is left, so that frames from a slow pipe
    /// are never delayed. A part of the file without frames is read completely in one call: to return earlier, call
    /// [`look`](Reader::look).
    ///
    /// An error is returned once, after all complete frames before it were consumed; then the reader has ended. The
    /// exception is [`ReadError::Io`]: the next call reads again at the same offset, as needed for a source that does
    /// not block.
    pub fn fill(&mut self) -> Result<Burst<'_>, ReadError> {
        while self.look()? == 0 && self.at_work {}
        Ok(self.shown())
    }

    /// Reads like [`fill`](Reader::fill), but returns after some milliseconds of input without a frame;
    /// [`has_pending_work`](Reader::has_pending_work) is true in that case, and the next call continues. Returns the number of
    /// frames in [`shown`](Reader::shown).
    pub fn look(&mut self) -> Result<usize, ReadError> {
        self.at_work = false;
        if self.held() < FEW_FRAMES && self.over.is_none() {
            let mut patience = PATIENCE;
            match self.open_input(&mut patience).and_then(|()| self.parse_more(&mut patience)) {
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

    /// Returns whether the last [`look`](Reader::look) found neither a frame nor the end.
    pub fn has_pending_work(&self) -> bool {
        self.at_work
    }

    /// Returns the frames of the last [`fill`](Reader::fill) or [`look`](Reader::look) that were not consumed, for
    /// callers that need [`interfaces`](Reader::interfaces) at the same time.
    pub fn shown(&self) -> Burst<'_> {
        let burst = Burst::over(self.input.memory(), &self.descs[self.consumed..]);
        burst.expect("the parsers keep every frame inside what was read")
    }

    /// Releases the first `frames` of those returned by [`fill`](Reader::fill).
    ///
    /// # Panics
    /// If fewer were returned.
    pub fn consume(&mut self, frames: usize) {
        assert!(frames <= self.held(), "{frames} frames consumed, {} shown", self.held());
        self.consumed += frames;
    }

    /// Returns the interfaces that descs refer to; grows while reading, never changes otherwise. A pcap file has one
    /// without a name.
    pub fn interfaces(&self) -> &[Interface] {
        match &self.format {
            Format::Unread => &[],
            Format::Pcap(_, interface) => interface,
            Format::Pcapng(section) => &section.interfaces,
        }
    }

    /// Returns the number of frames that the interfaces received, and dropped, when the file was captured, as far as
    /// its interface statistics were read and have them.
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

    /// Returns the number of metadata items of a pcapng file that are not kept: names, secrets, options and comments
    /// on statistics that exceed the budget or are invalid.
    pub fn left_out(&self) -> u64 {
        match &self.format {
            Format::Pcapng(section) => section.left_out(),
            _ => 0,
        }
    }

    /// Returns the number of frames whose times had to be changed, as they cannot be represented.
    pub fn times_changed(&self) -> u64 {
        match &self.format {
            Format::Pcapng(section) => section.times_changed,
            Format::Pcap(header, _) => header.times_changed,
            Format::Unread => 0,
        }
    }

    /// Returns the offset of the first record of which no frame was returned yet, in bytes from the start of the
    /// (decompressed) file.
    pub fn offset(&self) -> u64 {
        self.input.offset()
    }

    /// Returns the number of records read so far that later frames depend on (sections, interfaces, names, secrets,
    /// frames without a time), or that must be reported.
    pub fn described(&self) -> u64 {
        match &self.format {
            Format::Pcapng(section) => section.described + section.left_out() + section.times_changed,
            Format::Pcap(header, _) => header.times_changed,
            Format::Unread => 0,
        }
    }

    /// Returns the compression of the file.
    pub fn compression(&self) -> Option<Compression> {
        self.compression
    }

    /// Returns whether everything was read, reported and consumed.
    pub fn ended(&self) -> bool {
        self.held() == 0 && matches!(self.over, Some(None))
    }

    fn held(&self) -> usize {
        self.descs.len() - self.consumed
    }

    /// Reads, unless the limit of reads is reached.
    fn read_more(&mut self, patience: &mut usize) -> Result<RefillOutcome, ReadError> {
        self.at_work = *patience == 0;
        if self.at_work {
            return Ok(RefillOutcome::Later);
        }
        *patience -= 1;
        match self.input.read_more() {
            Ok(true) => Ok(RefillOutcome::Bytes),
            Ok(false) => Ok(RefillOutcome::End),
            Err(reason) => Err(self.failed(reason)),
        }
    }

    /// Parses the available data; reads until a frame is available or `patience` is exhausted.
    fn parse_more(&mut self, patience: &mut usize) -> Result<(), ReadError> {
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
                Step::Need(needed) => match self.read_more(patience)? {
                    RefillOutcome::Bytes => {}
                    RefillOutcome::End => {
                        self.over = Some(self.cut_off(needed as u64));
                        break;
                    }
                    RefillOutcome::Later => break,
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

    /// Returns the error, if any, of a source that ended where `needed` bytes were needed.
    fn cut_off(&self, needed: u64) -> Option<ReadError> {
        let present = self.input.available().len() as u64;
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

    /// Returns the name that offsets refer to.
    fn inner_name(&self) -> String {
        match self.compression {
            None => self.name.clone(),
            Some(_) => format!("{} (decompressed)", self.name),
        }
    }

    fn failed(&self, reason: io::Error) -> ReadError {
        if let Some(broken) = reason.get_ref().and_then(|inner| inner.downcast_ref::<DecodeFault>()) {
            let DecodeFault { compression, offset, ref what } = *broken;
            let (name, what, frames) = (self.name.clone(), what.clone(), self.frames);
            return ReadError::Decompression { name, method: compression.name(), offset, what, frames };
        }
        let offset = self.input.offset() + self.input.available().len() as u64;
        ReadError::Io { name: self.name.clone(), offset, reason }
    }
}

#[cfg(test)]
mod tests;
