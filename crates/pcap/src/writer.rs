//! Writes capture files: a sink that accounts for every frame.

mod blocks;
mod position;
mod records;

pub use position::OutputPosition;

use crate::compression::Compression;
use crate::file::{Output, PartialWrite};
use crate::pcap;
use blocks::Blocks;
use linerate_burst::block::View;
use linerate_burst::{Count, Interface, Ledger, LinkType, Sink, SinkError, Stage, StampSource};
use records::{Kind, Records};
use std::io::{self, Error, ErrorKind};

/// Extensions of other formats for packets, or of formats for flows.
const OTHERS: [&str; 14] = [
    "csv", "tsv", "json", "jsonl", "ndjson", "parquet", "arrow", "log", "txt", "xml", "pdml", "snoop", "erf", "pcapngz",
];

/// Format of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Classic pcap with nanoseconds; one link type per file.
    Pcap,
    /// Classic pcap with microseconds, for programs that support nothing else; one link type per file.
    PcapMicros,
    /// pcapng with nanoseconds, interfaces and statistics.
    Pcapng,
}

impl Format {
    /// Returns the format for a path, ignoring extensions of compression: pcap for `.pcap`, `.cap` and `-`, else
    /// pcapng.
    ///
    /// # Errors
    /// If the extension is that of another format: the file would not be what its name promises.
    pub fn of_path(path: &str) -> io::Result<Self> {
        let (_, plain) = Compression::to_write(path)?;
        let ending = plain.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
        if OTHERS.contains(&ending.as_str()) {
            let text = format!("{path}: unsupported capture format .{ending}; use .pcap or .pcapng");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let classic = path == "-" || ["pcap", "cap"].contains(&ending.as_str());
        Ok(if classic { Format::Pcap } else { Format::Pcapng })
    }
}

/// Writes blocks of frames as a capture file.
///
/// Every block is written when it is accepted: nothing is buffered between blocks, and a compressed file can be
/// decompressed up to its last block at any time. (With direct I/O data waits for a disk block, or for
/// [`flush`](Sink::flush).) If writing fails, a regular file is cut back to its last complete record (a compressed one
/// to its last piece of 1 MiB or less, and ended there), the frames not in it are counted as [`Count::WriteFailed`],
/// and all later calls fail with the same error.
///
/// When [`finish`](Sink::finish) returns the data is in the page cache, not yet on disk: waiting for that takes as
/// long as writing again, and is left to the caller (`sync FILE`).
///
/// Frames from pcapng files keep their comments in a pcapng file, and so does the metadata of interfaces and sections:
/// see [`Reader`](crate::Reader).
///
/// The statistics that [`finish`](Sink::finish) writes to a pcapng file are, for interfaces read from a file, those of
/// that file; else those of the accounts whose port has the interface's name as target (`packet:eth0@0` for `eth0`),
/// if only one interface of the file has that name. Their start and end are the times of the first and last frame
/// written. The first block has the whole ledger as a comment.
pub struct Writer {
    output: Output,
    encoding: Encoding,
    /// True to write pcapng instead of pcap if pcap cannot hold the frames.
    or_pcapng: bool,
    /// Interfaces of the run, while no frame was written.
    interfaces: Vec<Interface>,
    counts: Counts,
    failure: Option<Failure>,
    finished: bool,
    /// Ledger at the start of the file.
    before: Ledger,
    /// Frames in earlier files.
    written_before: u64,
    /// Number of files started before it.
    files_before: u64,
}

enum Encoding {
    Pcap(Records),
    Pcapng(Box<Blocks>),
}

/// Frames by outcome.
#[derive(Clone, Copy, Default)]
struct Counts {
    received: u64,
    written: u64,
    /// Frames written with a changed time, and frames written without their comments.
    beyond: u64,
    forgotten: u64,
}

/// Reason why nothing more is written.
#[derive(Clone)]
struct Failure {
    kind: ErrorKind,
    code: Option<i32>,
    /// Description, if the kind is not sufficient.
    text: Option<String>,
    advice: String,
    /// Counter of the frames not written.
    count: Count,
}

impl Writer {
    /// Writes to `output`. The header is written with the first frame, or at the end without frames.
    pub fn new(output: Output, format: Format) -> Self {
        let encoding = match format {
            Format::Pcap => Encoding::Pcap(Records::new(false)),
            Format::PcapMicros => Encoding::Pcap(Records::new(true)),
            Format::Pcapng => Encoding::Pcapng(Box::new(Blocks::new())),
        };
        Writer {
            output,
            encoding,
            or_pcapng: false,
            interfaces: Vec::new(),
            counts: Counts::default(),
            failure: None,
            finished: false,
            before: Ledger::new(),
            written_before: 0,
            files_before: 0,
        }
    }

    /// Sets the ledger at the start of the file: interface counters in the file are relative to it.
    #[must_use]
    pub fn since(mut self, before: Ledger) -> Self {
        self.before = before;
        self
    }

    /// Writes pcapng instead of pcap if interfaces of several link types exist when the file is started.
    #[must_use]
    pub fn or_pcapng(mut self, or_pcapng: bool) -> Self {
        self.or_pcapng = or_pcapng;
        self
    }

    /// Sets the longest captured length that headers state, in bytes, if frames were truncated to it; 0 for no limit. A
    /// pcapng interface states its own snap length if that is shorter.
    #[must_use]
    pub fn snap(mut self, bytes: u32) -> Self {
        match &mut self.encoding {
            Encoding::Pcap(records) => records.snap = bytes,
            Encoding::Pcapng(blocks) => blocks.snap = bytes,
        }
        self
    }

    /// Returns whether the previous content of the file is still unchanged.
    pub fn is_older(&self) -> bool {
        self.output.is_older()
    }

    /// Adds a comment on the whole file to its header, which must not be written yet. Returns false if the format does
    /// not support comments.
    pub fn comment(&mut self, text: impl Into<String>) -> bool {
        match &mut self.encoding {
            Encoding::Pcap(_) => false,
            Encoding::Pcapng(blocks) => {
                blocks.comments.push(text.into());
                true
            }
        }
    }

    /// Writes the header now, so that the file can be opened before the first frame. A pcap file then has this link
    /// type.
    ///
    /// # Errors
    /// Those of writing; a link type that pcap files cannot have.
    pub fn begin(&mut self, link: LinkType) -> Result<(), SinkError> {
        if matches!(self.encoding, Encoding::Pcap(_)) && !pcap::holds(link) {
            let target = self.output.name().to_owned();
            let advice = format!("pcap files of {link} cannot be opened by other programs; write pcapng");
            return Err(SinkError { target, reason: ErrorKind::Unsupported.into(), advice });
        }
        self.guard(|writer| match &mut writer.encoding {
            Encoding::Pcap(records) => records.begin(&mut writer.output, &mut writer.counts, Kind { link, fcs: 0 }),
            Encoding::Pcapng(blocks) => blocks.begin(&mut writer.output, &mut writer.counts, &[]),
        })
    }

    fn error(&self, failure: &Failure) -> SinkError {
        let reason = match (failure.code, &failure.text) {
            (Some(code), _) => Error::from_raw_os_error(code),
            (None, Some(text)) => Error::new(failure.kind, text.clone()),
            (None, None) => failure.kind.into(),
        };
        SinkError { target: self.output.name().to_owned(), reason, advice: failure.advice.clone() }
    }

    /// Runs `write` unless writing has failed before; stores a failure.
    fn guard(&mut self, write: impl FnOnce(&mut Self) -> Result<(), Failure>) -> Result<(), SinkError> {
        if self.failure.is_none() {
            self.failure = write(self).err();
        }
        self.failure.as_ref().map_or(Ok(()), |failure| Err(self.error(failure)))
    }

    /// Writes the header if there was no frame, and the statistics of a pcapng file.
    fn end_file(&mut self, run: &Ledger) -> Result<(), Failure> {
        let Writer { output, counts, encoding, before, interfaces, .. } = self;
        let unknown = || Interface::new("", LinkType::ETHERNET, StampSource::File);
        match encoding {
            Encoding::Pcap(records) => {
                let kind = interfaces.iter().map(Kind::of).find(|kind| kind.is_held());
                records.begin(output, counts, kind.unwrap_or(Kind::of(&unknown())))?;
            }
            Encoding::Pcapng(blocks) => {
                if interfaces.is_empty() {
                    interfaces.push(unknown());
                }
                blocks.begin(output, counts, interfaces)?;
                blocks.push_interfaces(output, counts, interfaces)?;
                blocks.end(output, counts, run, &run.since(before))?;
            }
        }
        let written = counts.written;
        output.finish().map_err(|partial| Failure::new(&partial.reason, written, true))
    }

    fn write_frames(&mut self, view: View<'_>) -> Result<(), Failure> {
        if view.burst().is_empty() {
            if self.interfaces.len() < view.interfaces.len() {
                self.interfaces = view.interfaces.to_vec();
            }
            return Ok(());
        }
        if self.or_pcapng
            && let Encoding::Pcap(records) = &self.encoding
            && !records.is_begun()
            && view.interfaces.windows(2).any(|pair| Kind::of(&pair[0]) != Kind::of(&pair[1]))
        {
            let mut blocks = Box::new(Blocks::new());
            blocks.snap = records.snap;
            self.encoding = Encoding::Pcapng(blocks);
        }
        match &mut self.encoding {
            Encoding::Pcap(records) => records.write(&mut self.output, &mut self.counts, view),
            Encoding::Pcapng(blocks) => blocks.write(&mut self.output, &mut self.counts, view),
        }
    }
}

impl Encoding {
    /// Returns the encoding for the next file.
    fn for_next_file(&self) -> Self {
        match self {
            Encoding::Pcap(records) => Encoding::Pcap(records.for_next_file()),
            Encoding::Pcapng(blocks) => Encoding::Pcapng(Box::new(blocks.for_next_file())),
        }
    }
}

impl Sink for Writer {
    fn accept(&mut self, view: View<'_>) -> Result<(), SinkError> {
        self.counts.received += view.burst().len() as u64;
        self.guard(|writer| writer.write_frames(view))
    }

    /// Flushes direct I/O. A pcapng file is at least started, so that readers can start too.
    fn flush(&mut self) -> Result<(), SinkError> {
        self.guard(|writer| {
            if let Encoding::Pcapng(blocks) = &mut writer.encoding {
                blocks.begin(&mut writer.output, &mut writer.counts, &[])?;
            }
            let written = writer.counts.written;
            writer.output.flush().map_err(|partial| Failure::new(&partial.reason, written, true))
        })
    }

    /// Writes the header if there was no frame, and the statistics of a pcapng file. A second call does nothing.
    fn finish(&mut self, run: &Ledger) -> Result<(), SinkError> {
        if std::mem::replace(&mut self.finished, true) && self.failure.is_none() {
            return Ok(());
        }
        self.guard(|writer| writer.end_file(run))
    }

    fn finish_unused(&mut self, run: &Ledger) -> Result<(), SinkError> {
        if self.is_older() && self.failure.is_none() {
            self.finished = true;
            return Ok(());
        }
        self.finish(run)
    }

    /// Continues in a new file; interface counters in a file cover the time in which it was written.
    fn reopen(&mut self, run: &Ledger) -> Result<Option<String>, SinkError> {
        if self.failure.is_some() {
            return Ok(None);
        }
        let name = self.output.name().to_owned();
        let failed =
            |reason| SinkError { target: name.clone(), reason, advice: "the current file is still written".to_owned() };
        let Some((output, new_name)) = self.output.next_file().map_err(failed)? else { return Ok(None) };
        self.guard(|writer| writer.end_file(run))?;
        self.output = output;
        self.encoding = self.encoding.for_next_file();
        self.files_before += 1;
        self.before = run.clone();
        let frames = self.counts.written - std::mem::replace(&mut self.written_before, self.counts.written);
        self.guard(|writer| match &mut writer.encoding {
            Encoding::Pcap(_) => Ok(()),
            Encoding::Pcapng(blocks) => blocks.begin(&mut writer.output, &mut writer.counts, &[]),
        })?;
        Ok(Some(format!("{name}: closed with {frames} packets; continuing in {new_name}")))
    }

    fn counters(&self, ledger: &mut Ledger) {
        let Counts { received, written, beyond, forgotten } = self.counts;
        let account = ledger.account(Stage::Write, self.output.name());
        account.add(Count::WriteReceived, received).add(Count::Written, written);
        let why = self.failure.as_ref().map_or(Count::WriteFailed, |failure| failure.count);
        for count in [Count::WriteFailed, Count::LinkTypeMixed, Count::LinkTypeUnknown] {
            account.add(count, if count == why { received - written } else { 0 });
        }
        account.add(Count::TimeBeyond, beyond).add(Count::CommentsForgotten, forgotten);
    }
}

/// Returns the shorter of two snap lengths; 0 for no limit.
fn shorter(one: u32, other: u32) -> u32 {
    if one == 0 || (1..one).contains(&other) { other } else { one }
}

/// Writes `bytes`, which end with the last of `frames` frames; `end_of(n)` is the end of the first `n` frames. After a
/// failure, bytes after the last complete frame are removed.
fn put(
    output: &mut Output,
    bytes: &[u8],
    counts: &mut Counts,
    frames: usize,
    end_of: impl Fn(usize) -> usize,
) -> Result<(), Failure> {
    let Err(PartialWrite { written, reason }) = output.write_all(bytes) else {
        counts.written += frames as u64;
        return Ok(());
    };
    let complete = (1..=frames).take_while(|n| end_of(*n) <= written).last().unwrap_or(0);
    counts.written += complete as u64;
    let surplus = (written - end_of(complete).min(written)) as u64;
    let taken_back = output.take_back(surplus).unwrap_or(false);
    Err(Failure::new(&reason, counts.written, taken_back))
}

impl Failure {
    fn new(reason: &Error, written: u64, whole: bool) -> Self {
        let cause = match reason.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room there or write elsewhere",
            ErrorKind::BrokenPipe => "the reader closed the pipe",
            ErrorKind::NotFound => "the file was removed while being written, and its content is lost",
            ErrorKind::FileTooLarge => "write to a file system without that limit, or raise ulimit -f",
            ErrorKind::PermissionDenied => "choose a writable path",
            _ => "check the device or write elsewhere",
        };
        let end = if whole { "the file ends after them" } else { "a partial one follows" };
        let advice = format!("{cause}; {written} packets were written completely, {end}");
        let count = Count::WriteFailed;
        Failure { kind: reason.kind(), code: reason.raw_os_error(), text: None, advice, count }
    }

    /// Returns the failure of a frame of another kind than the pcap file.
    fn of_kind(kind: Kind, other: Kind, written: u64) -> Self {
        let text = match kind == other {
            true => format!("pcap files of {other} cannot be opened by other programs"),
            false => format!("a pcap file holds one link type, but a packet of {other} followed {kind}"),
        };
        let end = match written {
            0 => "nothing was written".to_owned(),
            1 => "the 1 packet before it was written".to_owned(),
            written => format!("the {written} packets before it were written"),
        };
        let advice = format!("{end}; write pcapng: name the file .pcapng, or use --format pcapng");
        let count = if other.is_held() { Count::LinkTypeMixed } else { Count::LinkTypeUnknown };
        Failure { kind: ErrorKind::InvalidInput, code: None, text: Some(text), advice, count }
    }
}

#[cfg(test)]
mod tests;
