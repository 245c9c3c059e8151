//! One file per stream, and an index.
//!
//! Names consist only of addresses and ports. A file is created with the first byte of its stream, and never replaces
//! another. The number of open files is bounded; others are closed and opened again when there is more data for them.

use super::disk::{begin, create, is_of_one, reopen, write_at};
use super::{StreamOutput, index};
use linerate_burst::{Nanos, SinkError};
use linerate_transport::follow::{Output, StreamInfo, StreamSummary};
use linerate_transport::stream_memory::StreamId;
use std::collections::HashMap;
use std::fs::{File, create_dir};
use std::io::{BufWriter, Error, ErrorKind, Write};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Name of the index.
const INDEX: &str = "streams.jsonl";
/// Bytes of a stream that are buffered before a write.
const BUFFER: usize = 64 << 10;

/// Options of writing files.
#[derive(Clone, Copy, Debug)]
pub struct FilesOptions {
    /// Representation of missing bytes.
    pub gaps: Gaps,
    /// Maximum number of files.
    pub most: u64,
    /// Maximum number of open files.
    pub open: usize,
}

/// Representation of missing bytes in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gaps {
    /// As many zero bytes, which take no space on most file systems: offsets in the file are those of the stream.
    Zeros,
    /// None.
    Skip,
    /// A line with the number of missing bytes.
    Mark,
}

/// Writes files.
pub struct StreamFiles {
    folder: PathBuf,
    options: FilesOptions,
    index: BufWriter<File>,
    streams: HashMap<StreamId, Stream>,
    open: Vec<Open>,
    /// Clock hand: the next file to consider when one must be closed.
    hand: usize,
    files: u64,
    /// Number of streams without a file, because of the maximum.
    left_out: u64,
    /// Number of files that are shorter than their streams, because of the file size limit.
    cut_off: u64,
    /// Buffered bytes that could not be written.
    lost: u64,
    failure: Option<SinkError>,
}

/// An open stream.
struct Stream {
    about: StreamInfo,
    /// Name of its file, once created.
    name: Option<String>,
    is_left_out: bool,
    /// Position of the next byte.
    at: u64,
    /// True if some bytes were not written.
    is_short: bool,
    /// Length of its file.
    written: u64,
    /// Index among the open files.
    place: Option<usize>,
}

/// An open file.
struct Open {
    stream: StreamId,
    file: Option<File>,
    buffer: Vec<u8>,
    /// True if it was used since it was last considered.
    is_used: bool,
}

impl StreamFiles {
    /// Creates the folder, unless it exists and is empty, and the index in it.
    ///
    /// # Errors
    /// If it is not empty, or cannot be created.
    pub fn new(folder: &Path, options: FilesOptions) -> Result<Self, SinkError> {
        let fail = |reason: Error, advice: &str| SinkError {
            target: folder.display().to_string(),
            reason,
            advice: advice.to_owned(),
        };
        let advice = "use a new or empty folder";
        match create_dir(folder) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            made => made.map_err(|error| fail(error, ""))?,
        }
        let mut found = std::fs::read_dir(folder).map_err(|error| match error.kind() {
            ErrorKind::NotADirectory => fail(error, advice),
            _ => fail(error, ""),
        })?;
        if found.next().is_some() {
            return Err(fail(ErrorKind::DirectoryNotEmpty.into(), advice));
        }
        let index = create(&folder.join(INDEX)).map_err(|error| fail(error, ""))?;
        Ok(StreamFiles {
            folder: folder.to_owned(),
            options,
            index: BufWriter::new(index),
            streams: HashMap::new(),
            open: Vec::new(),
            hand: 0,
            files: 0,
            left_out: 0,
            cut_off: 0,
            lost: 0,
            failure: None,
        })
    }

    /// Opens the folder, to restrict the program to it.
    ///
    /// # Errors
    /// If it was removed.
    pub fn folder(&self) -> std::io::Result<OwnedFd> {
        File::open(&self.folder).map(OwnedFd::from)
    }

    fn fail(&mut self, name: &str, reason: Error) -> bool {
        let target = self.folder.join(name).display().to_string();
        self.failure.get_or_insert(SinkError { target, reason, advice: String::new() });
        false
    }

    /// Writes bytes, or buffers them.
    fn put(&mut self, stream: StreamId, bytes: &[u8]) -> bool {
        let Some(place) = self.place_of(stream) else { return false };
        let open = &mut self.open[place];
        open.is_used = true;
        if open.buffer.len() + bytes.len() > BUFFER && !self.write_out(place) {
            return false;
        }
        self.open[place].buffer.extend_from_slice(bytes);
        true
    }

    /// Returns the index of a stream's open file; `None` if it gets none, or that fails.
    fn place_of(&mut self, stream: StreamId) -> Option<usize> {
        let known = self.streams.get(&stream)?;
        if known.is_left_out || self.failure.is_some() {
            return None;
        }
        if known.place.is_some() {
            return known.place;
        }
        if known.name.is_none() && self.files >= self.options.most {
            self.left_out += 1;
            self.streams.get_mut(&stream)?.is_left_out = true;
            return None;
        }
        let place = self.free_slot()?;
        let known = self.streams.get_mut(&stream)?;
        let opened = match &known.name {
            Some(name) => reopen(&self.folder.join(name)).map_err(|error| (name.clone(), error)),
            None => begin(&self.folder, &known.about).map(|(name, file)| {
                known.name = Some(name);
                self.files += 1;
                file
            }),
        };
        match opened {
            Ok(file) => {
                (self.open[place].stream, self.open[place].file) = (stream, Some(file));
                known.place = Some(place);
                Some(place)
            }
            Err((name, error)) => {
                self.fail(&name, error);
                None
            }
        }
    }

    /// Returns a free index for an open file: one that was not used recently is closed.
    fn free_slot(&mut self) -> Option<usize> {
        if self.open.len() < self.options.open.max(1) {
            self.open.push(Open { stream: StreamId(0), file: None, buffer: Vec::new(), is_used: false });
            return Some(self.open.len() - 1);
        }
        loop {
            let place = self.hand;
            self.hand = (self.hand + 1) % self.open.len();
            if self.open[place].file.is_none() {
                return Some(place);
            }
            if !std::mem::take(&mut self.open[place].is_used) {
                self.close(place);
                return self.failure.is_none().then_some(place);
            }
        }
    }

    fn close(&mut self, place: usize) {
        self.write_out(place);
        let open = &mut self.open[place];
        open.file = None;
        if let Some(stream) = self.streams.get_mut(&open.stream) {
            stream.place = None;
        }
    }

    /// Handles a write error of a stream: either only of this file, or of all.
    fn cut_off(&mut self, stream: StreamId, reason: Error) -> bool {
        let Some(known) = self.streams.get_mut(&stream) else { return false };
        known.is_short = true;
        if is_of_one(&reason) {
            known.is_left_out = true;
            self.cut_off += 1;
            return false;
        }
        let name = known.name.clone().unwrap_or_default();
        self.fail(&name, reason)
    }

    /// Writes the buffer.
    fn write_out(&mut self, place: usize) -> bool {
        let Open { stream, file: Some(file), buffer, .. } = &mut self.open[place] else { return true };
        let Some(known) = self.streams.get_mut(stream) else { return true };
        if buffer.is_empty() {
            return self.failure.is_none();
        }
        let (done, result) = write_at(file, buffer, known.at);
        known.at += done as u64;
        if done > 0 {
            known.written = known.at;
        }
        self.lost += (buffer.len() - done) as u64;
        buffer.clear();
        match result {
            Ok(()) => true,
            Err(error) => {
                let stream = *stream;
                self.cut_off(stream, error)
            }
        }
    }

    /// Writes the last bytes of a stream, and extends its file to the full length.
    fn complete(&mut self, stream: StreamId, place: usize, has_hole: bool) {
        self.write_out(place);
        let (Some(known), Some(file)) = (self.streams.get_mut(&stream), &self.open[place].file) else { return };
        if has_hole && !known.is_short {
            match file.set_len(known.at) {
                Ok(()) => known.written = known.at,
                Err(error) => {
                    self.cut_off(stream, error);
                }
            }
        }
        let open = &mut self.open[place];
        (open.file, open.is_used) = (None, false);
    }
}

impl Output for StreamFiles {
    fn begin(&mut self, about: &StreamInfo, _: Nanos) {
        let stream =
            Stream { about: *about, name: None, is_left_out: false, at: 0, is_short: false, written: 0, place: None };
        self.streams.insert(about.stream, stream);
    }

    #[inline]
    fn bytes(&mut self, stream: StreamId, _: u64, bytes: &[u8], _: Nanos) -> bool {
        let is_taken = self.put(stream, bytes);
        if !is_taken && let Some(known) = self.streams.get_mut(&stream) {
            known.is_short = true;
        }
        is_taken
    }

    fn gap(&mut self, stream: StreamId, gap: Range<u64>, _: Nanos) {
        let missing = gap.end - gap.start;
        match self.options.gaps {
            Gaps::Skip => {}
            Gaps::Mark => {
                self.put(stream, format!("\n[{missing} bytes missing]\n").as_bytes());
            }
            Gaps::Zeros => {
                if let Some(place) = self.streams.get(&stream).and_then(|known| known.place) {
                    self.write_out(place);
                }
                if let Some(known) = self.streams.get_mut(&stream) {
                    known.at += missing;
                }
            }
        }
    }

    fn end(&mut self, summary: &StreamSummary) {
        let stream = summary.about.stream;
        let has_hole = self.options.gaps == Gaps::Zeros && summary.tally.missing > 0 && summary.tally.bytes > 0;
        let open = self.streams.get(&stream).and_then(|known| known.place);
        let place = if has_hole { open.or_else(|| self.place_of(stream)) } else { open };
        if let Some(place) = place {
            self.complete(stream, place, has_hole);
        }
        let known = self.streams.remove(&stream).filter(|one| one.name.is_some());
        let written = known.as_ref().filter(|one| one.is_short || one.written < one.at).map(|one| one.written);
        let line = index::ended(summary, Some(known.as_ref().and_then(|one| one.name.as_deref())), written);
        if let Err(error) = self.index.write_all(line.as_bytes()) {
            self.fail(INDEX, error);
        }
    }
}

impl StreamOutput for StreamFiles {
    fn flush(&mut self) {
        for place in 0..self.open.len() {
            self.write_out(place);
        }
        if let Err(error) = self.index.flush() {
            self.fail(INDEX, error);
        }
    }

    fn failure(&self) -> Option<&SinkError> {
        self.failure.as_ref()
    }

    fn finish(&mut self) -> Result<(), SinkError> {
        self.flush();
        if let Some(mut failure) = self.failure.take() {
            if self.lost > 0 {
                failure.advice = format!("{} buffered bytes are lost too; {INDEX} lists what was written", self.lost);
            }
            return Err(failure);
        }
        let fail = |reason: String, advice: &str| {
            let target = self.folder.display().to_string();
            Err(SinkError { target, reason: Error::other(reason), advice: advice.to_owned() })
        };
        let left_out = format!("{} streams have no file (limit {})", self.left_out, self.options.most);
        let cut_off = match self.cut_off {
            1 => "1 file is incomplete: maximum file size reached".to_owned(),
            files => format!("{files} files are incomplete: maximum file size reached"),
        };
        match (self.left_out, self.cut_off) {
            (0, 0) => Ok(()),
            (_, 0) => fail(left_out, "raise --max-files or use a filter"),
            (0, _) => fail(cut_off, "--gaps skip or mark store nothing for missing bytes"),
            _ => fail(format!("{left_out}; {cut_off}"), "raise --max-files, or use --gaps skip for shorter files"),
        }
    }

    fn files(&self) -> u64 {
        self.files
    }
}
