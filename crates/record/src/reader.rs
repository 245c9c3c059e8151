//! Reading a capture file as bursts.

use crate::error::{Fault, ReadError, Step};
use crate::input::Input;
use crate::pcap::{FILE_HEADER, FileHeader};
use crate::pcapng::{SECTION_HEADER, Section};
use linerate_burst::{Burst, Desc, Interface, StampSource};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;

/// Frames parsed at a time. Few enough that showing them again after a part was consumed is cheap: each
/// [`Reader::fill`] checks all that it shows.
const MOST_FRAMES: usize = 512;

/// With fewer frames than this at hand, `fill` parses on.
const FEW_FRAMES: usize = 64;

/// Reads a capture file, pcap or pcapng, from any source of bytes. Shaped like `std::io::BufRead`:
/// [`fill`](Reader::fill) shows frames, [`consume`](Reader::consume) gives the first of them back.
///
/// Frames keep what the file says: a captured length beyond the wire length, and an FCS at the end where
/// the file has one ([`Reader::fcs`]). A frame without a time of its own (simple packet block) has that
/// of the frame before it. Interfaces with a clock before 1970 give time 0.
pub struct Reader {
    name: String,
    input: Input,
    format: Format,
    /// Bytes still to be passed over before the next record.
    skipping: u64,
    descs: Vec<Desc>,
    consumed: usize,
    /// Frames parsed so far.
    frames: u64,
    /// Nothing more can be read; the reason, until it was told.
    over: Option<Option<ReadError>>,
}

enum Format {
    Pcap(FileHeader, [Interface; 1], [u8; 1]),
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
        let name = name.into();
        let mut input = Input::new(source);
        while input.at_hand().len() < FILE_HEADER {
            match input.read_on() {
                Ok(true) => {}
                Ok(false) => break,
                Err(reason) => return Err(ReadError::Io { name, offset: 0, reason }),
            }
        }
        let (format, header) = recognise(input.at_hand(), &name)?;
        input.skip(header);
        let descs = Vec::with_capacity(MOST_FRAMES);
        Ok(Reader { name, input, format, skipping: 0, descs, consumed: 0, frames: 0, over: None })
    }

    /// The frames shown before and not consumed, and perhaps more behind them; waits until there is at
    /// least one. No frame means that the end is reached. Only reads on when no frame is left, so that
    /// frames that a slow pipe has brought are never held back.
    ///
    /// An error is told once, after all complete frames before it were consumed; then the reader has
    /// ended. The exception is [`ReadError::Io`]: the next call tries to read again from the same place,
    /// as is right for a source that does not block.
    pub fn fill(&mut self) -> Result<Burst<'_>, ReadError> {
        if self.held() < FEW_FRAMES && self.over.is_none() {
            self.parse_on()?;
        }
        if self.held() == 0 {
            if let Some(error) = self.over.as_mut().and_then(Option::take) {
                return Err(error);
            }
            return Ok(Burst::EMPTY);
        }
        Ok(self.shown())
    }

    /// The frames that the last [`fill`](Reader::fill) showed and that were not consumed since, for
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
            Format::Pcap(_, interface, _) => interface,
            Format::Pcapng(section) => &section.interfaces,
        }
    }

    /// Bytes of FCS at the end of each frame of an interface; 0 where the file does not say.
    pub fn fcs(&self, interface: u16) -> u8 {
        let fcs: &[u8] = match &self.format {
            Format::Pcap(_, _, fcs) => fcs,
            Format::Pcapng(section) => &section.fcs,
        };
        fcs.get(usize::from(interface)).copied().unwrap_or(0)
    }

    /// Whether all was read, told and consumed.
    pub fn ended(&self) -> bool {
        self.held() == 0 && matches!(self.over, Some(None))
    }

    fn held(&self) -> usize {
        self.descs.len() - self.consumed
    }

    /// Parses what is at hand; reads on for as long as no frame is held.
    fn parse_on(&mut self) -> Result<(), ReadError> {
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
                Step::Need(needed) => match self.input.read_on() {
                    Ok(true) => {}
                    Ok(false) => {
                        self.over = Some(self.cut_off(needed as u64));
                        break;
                    }
                    Err(reason) => return Err(self.failed(reason)),
                },
            }
        }
        self.frames += (self.descs.len() - held) as u64;
        Ok(())
    }

    fn parse(&mut self) -> Step {
        let (bytes, mut at) = self.input.read_so_far();
        let step = match &mut self.format {
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
        let (name, frames) = (self.name.clone(), self.frames);
        let (offset, needed) = (self.input.offset(), needed.max(self.skipping));
        Some(ReadError::CutOff { name, offset, needed, present, frames })
    }

    fn fault(&self, fault: Fault, parsed: usize) -> ReadError {
        let (name, offset, frames) = (self.name.clone(), self.input.offset(), self.frames + parsed as u64);
        match fault {
            Fault::Damaged(what) => ReadError::Damaged { name, offset, what, frames },
            Fault::Unsupported(what) => ReadError::Unsupported { name, offset, what, frames },
        }
    }

    fn failed(&self, reason: io::Error) -> ReadError {
        let offset = self.input.offset() + self.input.at_hand().len() as u64;
        ReadError::Io { name: self.name.clone(), offset, reason }
    }
}

/// Magics of compressed files, with the program that decompresses them.
const COMPRESSED: [(&[u8], &str); 5] = [
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\xfd7zXZ", "xz"),
    (b"BZh", "bzip2"),
    (b"\x04\x22\x4d\x18", "lz4"),
];

/// The format of a file by its first bytes, and how many of them are a header that is done with.
fn recognise(bytes: &[u8], name: &str) -> Result<(Format, u64), ReadError> {
    let name = name.to_owned();
    if let Some((_, tool)) = COMPRESSED.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        return Err(ReadError::Compressed { name, tool });
    }
    let Some(magic) = bytes.first_chunk::<4>() else {
        let found = if bytes.is_empty() { "it is empty".into() } else { format!("it has {} bytes", bytes.len()) };
        return Err(ReadError::NotACapture { name, found });
    };
    if *magic == SECTION_HEADER.to_ne_bytes() {
        return Ok((Format::Pcapng(Section::new()), 0));
    }
    if !FileHeader::is_magic(*magic) {
        let found = format!("it begins with {}", magic.escape_ascii());
        return Err(ReadError::NotACapture { name, found });
    }
    let Some(header) = bytes.first_chunk::<FILE_HEADER>() else {
        let (needed, present) = (FILE_HEADER as u64, bytes.len() as u64);
        return Err(ReadError::CutOff { name, offset: 0, needed, present, frames: 0 });
    };
    match FileHeader::parse(header) {
        Ok(header) => {
            let mut interface = Interface::new("", header.link, StampSource::File);
            interface.snap = header.snap;
            let fcs = header.fcs;
            Ok((Format::Pcap(header, [interface], [fcs]), FILE_HEADER as u64))
        }
        Err(Fault::Unsupported(what)) => Err(ReadError::Unsupported { name, offset: 0, what, frames: 0 }),
        Err(Fault::Damaged(what)) => Err(ReadError::Damaged { name, offset: 0, what, frames: 0 }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcap::file_header;
    use linerate_burst::{LinkType, MAX_FRAME};

    fn open(bytes: &[u8]) -> Result<Reader, ReadError> {
        Reader::new(Box::new(io::Cursor::new(bytes.to_vec())), "x.pcap")
    }

    fn record(captured: u32, there: usize) -> Vec<u8> {
        let words = [1u32, 2, captured, captured];
        words.iter().flat_map(|word| word.to_ne_bytes()).chain(vec![7; there]).collect()
    }

    fn refusal(bytes: &[u8]) -> String {
        open(bytes).err().expect("an error").to_string()
    }

    /// Reads to the end: frames, and what was wrong.
    fn drain(mut reader: Reader) -> (usize, Option<String>) {
        let mut frames = 0;
        loop {
            match reader.fill().map(|burst| burst.len()) {
                Ok(0) => return (frames, None),
                Ok(shown) => {
                    frames += 1;
                    reader.consume(1.min(shown));
                }
                Err(error) => {
                    assert!(reader.ended() && reader.fill().unwrap().is_empty(), "told once, then ended");
                    return (frames, Some(error.to_string()));
                }
            }
        }
    }

    #[test]
    fn what_is_no_capture_says_what_it_is() {
        assert!(refusal(b"").contains("it is empty"));
        assert!(refusal(b"abc").contains("it has 3 bytes"));
        assert!(refusal(b"GIF89a").contains("it begins with GIF8"));
        assert!(refusal(b"\x1f\x8b\x08").contains("(gzip -dc x.pcap | linerate ... -r -)"));
        assert!(refusal(b"\x28\xb5\x2f\xfd....").contains("zstd -dc"));
        assert!(refusal(&file_header(LinkType::RAW)[..23]).contains("24 bytes belong there, 23 are left"));
    }

    #[test]
    fn frames_before_a_cut_are_handed_out_first() {
        let mut bytes = file_header(LinkType::ETHERNET).to_vec();
        bytes.extend([record(60, 60), record(0, 0), record(60, 18)].concat());
        let message = "x.pcap: cut off in the middle of the record at byte 116: 76 bytes belong there, 34 are left; the \
                       2 frames before it are complete";
        assert_eq!(drain(open(&bytes).unwrap()), (2, Some(message.into())));
        bytes.truncate(116);
        assert_eq!(drain(open(&bytes).unwrap()), (2, None));
    }

    #[test]
    fn a_hostile_length_names_its_place() {
        let mut bytes = file_header(LinkType::ETHERNET).to_vec();
        bytes.extend([record(60, 60), record(u32::MAX, 1000)].concat());
        let message = "x.pcap: damaged at byte 100: a frame of 4294967295 bytes, and none may be longer than 262144; \
                       the 1 frames before it were read";
        assert_eq!(drain(open(&bytes).unwrap()), (1, Some(message.into())));
    }

    #[test]
    fn the_longest_frame_passes() {
        let mut bytes = file_header(LinkType::ETHERNET).to_vec();
        for _ in 0..5 {
            bytes.extend(record(MAX_FRAME as u32, MAX_FRAME));
        }
        assert_eq!(drain(open(&bytes).unwrap()), (5, None));
    }

    #[test]
    fn a_source_that_would_block_is_asked_again() {
        struct Hesitant(Vec<u8>, bool);
        impl Read for Hesitant {
            fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
                self.1 = !self.1;
                if !self.1 || self.0.is_empty() {
                    return if self.0.is_empty() { Ok(0) } else { Err(io::ErrorKind::WouldBlock.into()) };
                }
                let count = self.0.len().min(30).min(to.len());
                to[..count].copy_from_slice(&self.0[..count]);
                self.0.drain(..count);
                Ok(count)
            }
        }
        let mut bytes = file_header(LinkType::ETHERNET).to_vec();
        bytes.extend([record(60, 60), record(60, 60)].concat());
        let mut reader = Reader::new(Box::new(Hesitant(bytes, false)), "slow").unwrap();
        let (mut frames, mut blocked) = (0, 0);
        while !reader.ended() {
            match reader.fill().map(|burst| burst.len()) {
                Ok(shown) => {
                    frames += shown;
                    reader.consume(shown);
                }
                Err(ReadError::Io { reason, .. }) if reason.kind() == io::ErrorKind::WouldBlock => blocked += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(frames, 2);
        assert!(blocked > 3);
    }
}
