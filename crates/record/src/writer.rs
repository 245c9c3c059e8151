//! Writing a capture file: a sink that accounts for every frame.

use crate::compression::Compression;
use crate::file::{Output, Partial};
use crate::pcap;
use crate::pcapng::Encoder;
use crate::statistics;
use linerate_burst::block::{RECORD_HEADER, View};
use linerate_burst::{Count, Desc, Interface, Ledger, LinkType, Nanos, Sink, SinkError, Stage, StampSource};
use std::io::{Error, ErrorKind};
use std::ops::Range;

/// Bytes of pcapng blocks that are put together before they are written.
const PIECE: usize = 256 << 10;

/// What a capture file is written as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Classic pcap with nanoseconds; one link type a file.
    Pcap,
    /// pcapng with nanoseconds, interfaces and statistics.
    Pcapng,
}

impl Format {
    /// The format that a path asks for, an ending `.gz` or `.zst` left aside: pcap if it ends in `.pcap` or
    /// `.cap` or is `-`, else pcapng.
    pub fn of_path(path: &str) -> Self {
        let (_, path) = Compression::of_path(path);
        let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending);
        let classic = path == "-" || ["pcap", "cap"].iter().any(|classic| ending.eq_ignore_ascii_case(classic));
        if classic { Format::Pcap } else { Format::Pcapng }
    }
}

/// Writes blocks of frames as a capture file.
///
/// Every block is written when it is accepted: nothing is buffered from one to the next. When writing
/// fails, a regular file is cut back to its last complete record, the frames that are not in it are
/// counted as [`Count::WriteFailed`], and all later calls fail with the same error.
///
/// The statistics that [`finish`](Sink::finish) writes into a pcapng file are those of the accounts whose
/// port has the interface's name as target (`packet:eth0@0` for `eth0`), where one interface of the file
/// has that name. Their begin and end are the times of the first and last frame written. The first block
/// carries the whole ledger as a comment.
pub struct Writer {
    output: Output,
    encoding: Encoding,
    counts: Counts,
    failure: Option<Failure>,
    finished: bool,
}

enum Encoding {
    /// The link type, once a header was written.
    Pcap(Option<LinkType>),
    Pcapng(Box<Blocks>),
}

/// Frames by what became of them.
#[derive(Clone, Copy, Default)]
struct Counts {
    received: u64,
    written: u64,
    mixed: u64,
}

/// A pcapng file in the making.
struct Blocks {
    encoder: Encoder,
    begun: bool,
    /// For each interface of the view, its interface in the file.
    ids: Vec<Option<u32>>,
    /// The interfaces in the file.
    seen: Vec<Seen>,
    /// Where each frame ends in the encoder's bytes.
    ends: Vec<usize>,
}

/// An interface in the file, and the times of the frames written.
struct Seen {
    name: String,
    first: Nanos,
    last: Nanos,
}

/// Why nothing more is written.
#[derive(Clone)]
struct Failure {
    kind: ErrorKind,
    code: Option<i32>,
    advice: String,
}

impl Writer {
    /// Writes to `output`. The header follows with the first frame, or at the end if there is none.
    pub fn new(output: Output, format: Format) -> Self {
        let encoding = match format {
            Format::Pcap => Encoding::Pcap(None),
            Format::Pcapng => Encoding::Pcapng(Box::new(Blocks {
                encoder: Encoder::new(),
                begun: false,
                ids: Vec::new(),
                seen: Vec::new(),
                ends: Vec::new(),
            })),
        };
        Writer { output, encoding, counts: Counts::default(), failure: None, finished: false }
    }

    /// Writes the header now, so that the file opens before there is a frame. A pcap file then has this link
    /// type.
    pub fn begin(&mut self, link: LinkType) -> Result<(), SinkError> {
        self.guard(|writer| match &mut writer.encoding {
            Encoding::Pcap(_) => writer.begin_pcap(link),
            Encoding::Pcapng(_) => Ok(()),
        })?;
        self.flush()
    }

    fn begin_pcap(&mut self, link: LinkType) -> Result<(), Failure> {
        match &mut self.encoding {
            Encoding::Pcap(begun @ None) => {
                let header = pcap::file_header(*begun.insert(link));
                put(&mut self.output, &header, &mut self.counts, 0, |_| 0)
            }
            _ => Ok(()),
        }
    }

    /// What the user should know about frames that were left out, if any were.
    pub fn hint(&self) -> Option<String> {
        let mixed = self.counts.mixed;
        (mixed > 0).then(|| {
            let name = self.output.name();
            format!("{name}: {mixed} frames left out, pcap holds one link type only; write pcapng to keep them")
        })
    }

    fn error(&self, failure: &Failure) -> SinkError {
        let reason = failure.code.map_or_else(|| failure.kind.into(), Error::from_raw_os_error);
        SinkError { target: self.output.name().to_owned(), reason, advice: failure.advice.clone() }
    }

    /// Does what `write` does unless writing has failed before; keeps the failure.
    fn guard(&mut self, write: impl FnOnce(&mut Self) -> Result<(), Failure>) -> Result<(), SinkError> {
        if self.failure.is_none() {
            self.failure = write(self).err();
        }
        self.failure.as_ref().map_or(Ok(()), |failure| Err(self.error(failure)))
    }

    fn write_frames(&mut self, view: View<'_>) -> Result<(), Failure> {
        if view.burst().is_empty() {
            return Ok(());
        }
        match &mut self.encoding {
            Encoding::Pcap(link) => write_pcap(&mut self.output, link, &mut self.counts, view),
            Encoding::Pcapng(blocks) => blocks.write(&mut self.output, &mut self.counts, view),
        }
    }
}

impl Sink for Writer {
    fn accept(&mut self, view: View<'_>) -> Result<(), SinkError> {
        self.counts.received += view.burst().len() as u64;
        self.guard(|writer| writer.write_frames(view))
    }

    /// Nothing is held back; a pcapng file at least begins, so that whoever reads it can begin too.
    fn flush(&mut self) -> Result<(), SinkError> {
        self.guard(|writer| match &mut writer.encoding {
            Encoding::Pcapng(blocks) if !blocks.begun => {
                blocks.begin();
                blocks.write_out(&mut writer.output, &mut writer.counts)
            }
            _ => Ok(()),
        })
    }

    /// Writes the header if there was no frame, and the statistics of a pcapng file. A second call does
    /// nothing.
    fn finish(&mut self, run: &Ledger) -> Result<(), SinkError> {
        if std::mem::replace(&mut self.finished, true) && self.failure.is_none() {
            return Ok(());
        }
        self.guard(|writer| match &mut writer.encoding {
            Encoding::Pcap(_) => writer.begin_pcap(LinkType::ETHERNET),
            Encoding::Pcapng(blocks) => {
                blocks.begin();
                blocks.push_statistics(run);
                blocks.write_out(&mut writer.output, &mut writer.counts)
            }
        })
    }

    fn counters(&self, ledger: &mut Ledger) {
        let Counts { received, written, mixed } = self.counts;
        let account = ledger.account(Stage::Write, self.output.name());
        account.add(Count::WriteReceived, received).add(Count::Written, written);
        account.add(Count::WriteFailed, received - written - mixed).add(Count::LinkTypeMixed, mixed);
    }
}

/// Writes `bytes`, which end with the last of `frames` frames; `end_of(n)` is where the first `n` frames
/// end. After a failure, what is behind the last complete frame is taken back.
fn put(
    output: &mut Output,
    bytes: &[u8],
    counts: &mut Counts,
    frames: usize,
    end_of: impl Fn(usize) -> usize,
) -> Result<(), Failure> {
    let Err(Partial { written, reason }) = output.write_all(bytes) else {
        counts.written += frames as u64;
        return Ok(());
    };
    let complete = (1..=frames).take_while(|n| end_of(*n) <= written).last().unwrap_or(0);
    counts.written += complete as u64;
    let surplus = (written - end_of(complete).min(written)) as u64;
    let taken_back = output.take_back(surplus).unwrap_or(false);
    Err(Failure::new(&reason, counts.written, taken_back))
}

/// Writes a block into a pcap file: its records as they lie, in one piece where all are of one link type.
fn write_pcap(
    output: &mut Output,
    link: &mut Option<LinkType>,
    counts: &mut Counts,
    view: View<'_>,
) -> Result<(), Failure> {
    let descs = view.burst().descs();
    let link = match *link {
        Some(link) => link,
        None => {
            let first = link_of(view.interfaces, &descs[0]);
            put(output, &pcap::file_header(first), counts, 0, |_| 0)?;
            *link.insert(first)
        }
    };
    let fits = |desc: &Desc| link_of(view.interfaces, desc) == link;
    let mut at = 0;
    let mut others = 0;
    let mut result = Ok(());
    while at < descs.len() {
        let run = descs[at..].iter().take_while(|desc| fits(desc)).count();
        if result.is_ok() {
            result = put_records(output, counts, view, at..at + run);
        }
        let other = descs[at + run..].iter().take_while(|desc| !fits(desc)).count();
        others += other as u64;
        at += run + other;
    }
    counts.mixed += others;
    result
}

fn put_records(output: &mut Output, counts: &mut Counts, view: View<'_>, run: Range<usize>) -> Result<(), Failure> {
    let descs = &view.burst().descs()[run.clone()];
    let end_of = |frames: usize| match (descs.first(), frames.checked_sub(1).and_then(|last| descs.get(last))) {
        (Some(first), Some(last)) => (last.offset + last.captured - first.offset) as usize + RECORD_HEADER,
        _ => 0,
    };
    put(output, view.records(run.clone()), counts, run.len(), end_of)
}

/// The link type of a frame. Views hold the interface of each of their frames; one that did not would
/// be Ethernet.
fn link_of(interfaces: &[Interface], desc: &Desc) -> LinkType {
    interfaces.get(usize::from(desc.interface)).map_or(LinkType::ETHERNET, |interface| interface.link)
}

impl Blocks {
    fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            self.encoder.section_header();
        }
    }

    fn write(&mut self, output: &mut Output, counts: &mut Counts, view: View<'_>) -> Result<(), Failure> {
        self.begin();
        for (desc, frame) in view.burst().iter() {
            let id = self.id(view.interfaces, desc.interface);
            let seen = &mut self.seen[id as usize];
            seen.first = seen.first.min(desc.time);
            seen.last = seen.last.max(desc.time);
            self.encoder.frame(id, desc, frame);
            self.ends.push(self.encoder.bytes().len());
            if self.encoder.bytes().len() >= PIECE {
                self.write_out(output, counts)?;
            }
        }
        self.write_out(output, counts)
    }

    /// The interface in the file for one of the view, written where it is not there yet.
    #[inline]
    fn id(&mut self, interfaces: &[Interface], index: u16) -> u32 {
        match self.ids.get(usize::from(index)) {
            Some(Some(id)) => *id,
            _ => self.new_id(interfaces, usize::from(index)),
        }
    }

    #[cold]
    fn new_id(&mut self, interfaces: &[Interface], index: usize) -> u32 {
        let unnamed = Interface::new("", LinkType::ETHERNET, StampSource::File);
        let interface = interfaces.get(index).unwrap_or(&unnamed);
        let id = self.seen.len() as u32;
        self.encoder.interface(interface);
        self.seen.push(Seen { name: interface.name.clone(), first: Nanos::MAX, last: Nanos::ZERO });
        if self.ids.len() <= index {
            self.ids.resize(index + 1, None);
        }
        self.ids[index] = Some(id);
        id
    }

    fn push_statistics(&mut self, run: &Ledger) {
        let ledger = statistics::text(run);
        for (id, seen) in self.seen.iter().enumerate() {
            let shared = self.seen.iter().filter(|other| other.name == seen.name).count() > 1;
            let name = if shared { "" } else { &seen.name };
            let comment = if id == 0 { ledger.as_str() } else { "" };
            let statistics = statistics::of_interface(run, name);
            self.encoder.statistics(id as u32, seen.first, seen.last, &statistics, comment);
        }
    }

    fn write_out(&mut self, output: &mut Output, counts: &mut Counts) -> Result<(), Failure> {
        let end_of = |frames: usize| frames.checked_sub(1).map_or(0, |last| self.ends[last]);
        let result = put(output, self.encoder.bytes(), counts, self.ends.len(), end_of);
        self.ends.clear();
        self.encoder.clear();
        result
    }
}

impl Failure {
    fn new(reason: &Error, written: u64, whole: bool) -> Self {
        let cause = match reason.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "make room there or write elsewhere",
            ErrorKind::BrokenPipe => "its reader has gone",
            ErrorKind::FileTooLarge => "write to a file system without that limit, or raise ulimit -f",
            ErrorKind::PermissionDenied => "choose a place that may be written",
            _ => "check the device or write elsewhere",
        };
        let end = if whole { "the output ends with the last of them" } else { "a part of the next one follows them" };
        let advice = format!("{cause}; {written} frames were written completely, {end}");
        Failure { kind: reason.kind(), code: reason.raw_os_error(), advice }
    }
}

#[cfg(test)]
mod tests;
