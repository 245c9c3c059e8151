//! Capture files that are indexed while they are written.

use crate::ENDING;
use crate::gather::EntryBuilder;
use crate::layout::{DESCRIBED, LAST, PART_BYTES, header};
use linerate_burst::block::View;
use linerate_burst::{Burst, Interface, Ledger, Sink, SinkError};
use linerate_pcap::{Format, Output, OutputPosition, Writer};
use std::io::{self, ErrorKind, Write};
use std::ops::Range;

/// Approximate bytes of a record in addition to its frame.
const RECORD: u64 = 16;

/// Writes the entries of an index, in memory that is reused.
pub(crate) struct Entries<W> {
    out: W,
    entry: Vec<u8>,
    is_begun: bool,
}

impl<W: Write> Entries<W> {
    /// Returns a writer for an empty index.
    pub(crate) fn new(out: W) -> Self {
        Entries { out, entry: Vec::new(), is_begun: false }
    }

    /// Writes the header of the index, unless already written.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_begun, true) {
            self.out.write_all(&header())?;
        }
        Ok(())
    }

    /// Returns the output.
    pub(crate) fn into_inner(self) -> W {
        self.out
    }

    /// Appends an entry with one write.
    pub(crate) fn push(
        &mut self,
        part: Range<u64>,
        mark: Option<[u8; 8]>,
        flags: u32,
        gather: &EntryBuilder,
    ) -> io::Result<()> {
        self.begin()?;
        self.entry.clear();
        gather.entry(part, mark, flags, &mut self.entry);
        self.out.write_all(&self.entry)
    }
}

/// A [`Writer`] with an index next to its file, `FILE.idx`: an entry for each MiB, appended after that MiB was passed
/// to the file. If the file buffers blocks, and after a power cut, the index may be ahead of it: readers stop at the
/// first entry beyond the end. A new index is opened when the writer starts a new file. If the index cannot be written
/// the capture continues without it, and [`finish`](Sink::finish) reports that.
pub struct IndexedWriter {
    writer: Writer,
    keeping: Option<Entries<Box<dyn Write + Send>>>,
    /// Name of the index, for messages.
    name: String,
    gather: EntryBuilder,
    /// Start of the current part.
    start: OutputPosition,
    mark: Option<[u8; 8]>,
    bytes: u64,
    failure: Option<(ErrorKind, Option<i32>)>,
    is_finished: bool,
}

impl IndexedWriter {
    /// Starts an index next to the file of `writer`.
    ///
    /// # Errors
    /// If the file is not a regular file, or the index cannot be created.
    pub fn new(writer: Writer) -> Result<Self, SinkError> {
        let indexed = IndexedWriter::of(writer, IndexedWriter::open)?;
        match indexed.failure {
            Some(_) => Err(indexed.error("no packets were written")),
            None => Ok(indexed),
        }
    }

    /// Starts an index in `output`, which is called `name`, for the file of `writer`. The caller keeps both together.
    /// If the index cannot be started the capture continues without it, and [`finish`](Sink::finish) reports that.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn with(writer: Writer, name: String, output: io::Result<Output>) -> Result<Self, SinkError> {
        IndexedWriter::of(writer, |indexed| {
            indexed.name = name;
            indexed.begin(output.map(|output| Box::new(output) as Box<dyn Write + Send>));
        })
    }

    fn of(mut writer: Writer, begin: impl FnOnce(&mut Self)) -> Result<Self, SinkError> {
        writer.start_part()?;
        let start = writer.place();
        let (gather, name) = (EntryBuilder::new(), ENDING.to_owned());
        let mut indexed = IndexedWriter {
            writer,
            keeping: None,
            name,
            gather,
            start,
            mark: None,
            bytes: 0,
            failure: None,
            is_finished: false,
        };
        begin(&mut indexed);
        Ok(indexed)
    }

    /// Starts an index for the current file.
    fn open(&mut self) {
        let opened = match self.writer.open_companion(ENDING) {
            Ok(Some((file, name))) => {
                self.name = name;
                Ok(Box::new(file) as Box<dyn Write + Send>)
            }
            Ok(None) => Err(ErrorKind::Unsupported.into()),
            Err(error) => Err(error),
        };
        self.begin(opened);
    }

    fn begin(&mut self, out: io::Result<Box<dyn Write + Send>>) {
        self.keeping = None;
        match out {
            Ok(out) => self.keeping = Some(Entries::new(out)),
            Err(error) => self.fail(&error),
        }
        self.start_part();
    }

    fn start_part(&mut self) {
        self.start = self.writer.place();
        self.gather.clear();
        (self.mark, self.bytes) = (None, 0);
    }

    fn fail(&mut self, error: &io::Error) {
        self.keeping = None;
        self.failure.get_or_insert((error.kind(), error.raw_os_error()));
    }

    fn error(&self, frames: &str) -> SinkError {
        let (kind, code) = self.failure.unwrap_or((ErrorKind::Other, None));
        let reason = code.map_or_else(|| kind.into(), io::Error::from_raw_os_error);
        let advice = match kind {
            ErrorKind::Unsupported => "an index needs a regular file; omit --index, or write to a file".into(),
            _ => format!("{frames}; make the index later with linerate find --make-index"),
        };
        SinkError { target: self.name.clone(), reason, advice }
    }

    /// Adds frames that were written from `before` on.
    fn take(&mut self, view: View<'_>, before: OutputPosition) -> Result<(), SinkError> {
        let after = self.writer.place();
        if after.file != self.start.file {
            // It is unknown which frames are in which file: both are read in full there.
            self.open();
            return Ok(());
        }
        // An old index is overwritten only now, together with its file.
        if let Some(Err(error)) = self.keeping.as_mut().map(Entries::begin) {
            self.fail(&error);
        }
        if self.gather.frames == 0 {
            self.start = before;
            let is_plain = before.described == after.described;
            self.mark = if is_plain { mark(self.writer.format(), view) } else { None };
        }
        let burst = view.burst();
        self.gather.add(burst, view.interfaces);
        self.bytes += burst.bytes() + RECORD * burst.len() as u64;
        if self.bytes >= PART_BYTES { self.end_part() } else { Ok(()) }
    }

    /// Writes the entry of the current part.
    fn end_part(&mut self) -> Result<(), SinkError> {
        if self.gather.frames == 0 {
            return Ok(());
        }
        self.writer.start_part()?;
        self.push(0);
        Ok(())
    }

    fn push(&mut self, flags: u32) {
        let end = self.writer.place();
        let described = if end.described == self.start.described { 0 } else { DESCRIBED };
        if let Some(entries) = &mut self.keeping
            && let Err(error) = entries.push(self.start.offset..end.offset, self.mark, flags | described, &self.gather)
        {
            self.fail(&error);
        }
        self.start_part();
    }
}

impl Sink for IndexedWriter {
    fn accept(&mut self, view: View<'_>) -> Result<(), SinkError> {
        let before = self.writer.place();
        self.writer.accept(view)?;
        if view.burst().is_empty() || self.failure.is_some() { Ok(()) } else { self.take(view, before) }
    }

    fn flush(&mut self) -> Result<(), SinkError> {
        self.writer.flush()
    }

    fn reopen(&mut self, run: &Ledger) -> Result<Option<String>, SinkError> {
        self.end_part()?;
        let became = self.writer.reopen(run)?;
        if self.writer.place().file != self.start.file {
            self.writer.start_part()?;
            self.open();
        }
        Ok(became)
    }

    fn finish(&mut self, run: &Ledger) -> Result<(), SinkError> {
        if std::mem::replace(&mut self.is_finished, true) {
            return self.writer.finish(run);
        }
        let ended = self.end_part();
        self.writer.finish(run)?;
        ended?;
        if self.failure.is_none() {
            self.push(LAST);
        }
        match self.failure {
            Some(_) => Err(self.error("the capture file is complete, but not its index")),
            None => Ok(()),
        }
    }

    fn finish_unused(&mut self, run: &Ledger) -> Result<(), SinkError> {
        if self.writer.is_older() { self.writer.finish_unused(run) } else { self.finish(run) }
    }

    fn counters(&self, ledger: &mut Ledger) {
        self.writer.counters(ledger);
    }
}

/// Returns the 8 bytes of the file at the position of the next record's time, if that is the first of these frames.
fn mark(format: Format, view: View<'_>) -> Option<[u8; 8]> {
    let burst: Burst<'_> = view.burst();
    let time = burst.descs().first()?.time;
    let is_mixed = |interfaces: &[Interface]| interfaces.windows(2).any(|pair| pair[0].link != pair[1].link);
    let words = match format {
        Format::Pcapng => [(time.0 >> 32) as u32, time.0 as u32],
        _ if is_mixed(view.interfaces) => return None,
        Format::Pcap => [u32::try_from(time.seconds()).ok()?, time.subsec()],
        Format::PcapMicros => [u32::try_from(time.seconds()).ok()?, time.subsec() / 1000],
    };
    let mut mark = [0; 8];
    mark[..4].copy_from_slice(&words[0].to_ne_bytes());
    mark[4..].copy_from_slice(&words[1].to_ne_bytes());
    Some(mark)
}
