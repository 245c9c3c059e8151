//! Any bytes are read as a capture file without a panic, to an end, with every frame inside the file; in whatever
//! pieces they come, compressed or not, the frames are the same; and so they are when they were written to another
//! file, of any format. What was written is written the same once it was read, with all that it says beyond frames.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_burst::{Block, Count, Desc, Flags, Interface, Ledger, LinkType, Nanos, Sink};
use linerate_record::pcap::holds;
use linerate_record::{Compression, Format, Output, Reader, Writer};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Frames looked at of a file that may grow a thousandfold when it is decompressed.
const MOST: usize = 1000;

#[derive(Clone, Debug, PartialEq)]
struct Frame {
    link: LinkType,
    time: Nanos,
    wire: u32,
    flags: Flags,
    bytes: Vec<u8>,
}

fuzz_target!(|bytes: &[u8]| {
    // The length chooses, so that a change of bytes alone never changes what is done with them.
    let compression = match bytes.len() % 16 {
        0 => Some(Compression::Gzip),
        1 => Some(Compression::Zstd),
        2 => Some(Compression::Lz4),
        _ => None,
    };
    let first = Copy::new(Format::Pcapng, compression);
    let whole = frames(bytes, bytes.len(), Some(&first));
    let compressed = [&[0x1f, 0x8b][..], &[0x28, 0xb5], &[0x04, 0x22]].iter().any(|magic| bytes.starts_with(magic))
        || bytes.get(1..4) == Some(&[0x2a, 0x4d, 0x18]);
    if !compressed && whole.len() < MOST {
        assert!(whole.iter().map(|frame| frame.bytes.len()).sum::<usize>() <= bytes.len());
    }
    let format = [Format::Pcap, Format::PcapMicros][bytes.len() / 2 % 2];
    let classic = Copy::new(format, compression);
    assert_eq!(whole, frames(bytes, 1 + bytes.len() % 7, Some(&classic)));
    let mut kept = frames(&classic.bytes(), MOST, None);
    kept.iter_mut().for_each(|frame| frame.flags = Flags::NONE);
    let wanted = in_classic(&whole, format);
    // What does not fit ends the file.
    let is_refused = classic.is_refused.load(Ordering::Relaxed);
    assert!(if is_refused { wanted.starts_with(&kept) } else { wanted == kept }, "{wanted:?}, not {kept:?}");

    let (first, second) = (first.bytes(), Copy::new(Format::Pcapng, compression));
    assert_eq!(whole, frames(&first, first.len(), Some(&second)));
    assert_eq!(first, second.bytes());
});

/// What the classic format keeps: one link type that is registered, times before 2106, no flags.
fn in_classic(frames: &[Frame], format: Format) -> Vec<Frame> {
    let unit = if format == Format::PcapMicros { 1000 } else { 1 };
    let mut known = frames.iter().filter(|frame| holds(frame.link)).peekable();
    let link = known.peek().map(|first| first.link);
    let fits = known.filter(|frame| Some(frame.link) == link);
    fits.map(|frame| {
        let seconds = frame.time.seconds().min(u32::MAX.into());
        let time = Nanos(seconds * 1_000_000_000 + u64::from(frame.time.subsec() / unit * unit));
        Frame { time, flags: Flags::NONE, ..frame.clone() }
    })
    .collect()
}

/// The frames of a file that comes in pieces; they are also written to `copy`.
fn frames(bytes: &[u8], piece: usize, copy: Option<&Copy>) -> Vec<Frame> {
    let source = Box::new(Pieces { bytes: bytes.to_vec(), at: 0, piece: piece.max(1) });
    let mut found = Vec::new();
    let mut writer = copy.map(Copy::writer);
    let mut block = Block::new(1 << 20, MOST);
    let mut interfaces: Vec<Interface> = Vec::new();
    if let Ok(mut reader) = Reader::new(source, "fuzz") {
        while let Ok(shown @ 1..) = reader.fill().map(|burst| burst.len()) {
            for (desc, frame) in reader.shown().iter().take(MOST - found.len()) {
                let Desc { time, wire, flags, interface, .. } = *desc;
                let link = reader.interfaces()[usize::from(interface)].link;
                found.push(Frame { link, time, wire, flags, bytes: frame.to_vec() });
                while writer.is_some() && !block.push(desc, frame) {
                    write(&mut writer, &mut block, reader.interfaces());
                }
            }
            interfaces = reader.interfaces().to_vec();
            reader.consume(shown);
            if found.len() == MOST {
                break;
            }
        }
    }
    write(&mut writer, &mut block, &interfaces);
    if let Some(copy) = copy.filter(|_| writer.is_none()) {
        copy.is_refused.store(true, Ordering::Relaxed);
    }
    if let Some(writer) = &mut writer {
        writer.finish(&Ledger::new()).unwrap();
        let mut ledger = Ledger::new();
        writer.counters(&mut ledger);
        let [account] = ledger.accounts() else { panic!("{ledger:?}") };
        let left_out = account.get(Count::LinkTypeMixed) + account.get(Count::LinkTypeUnknown);
        assert_eq!(account.get(Count::Written) + left_out, found.len() as u64);
    }
    found
}

fn write(writer: &mut Option<Writer>, block: &mut Block, interfaces: &[Interface]) {
    // A pcap file ends with the first packet of a link type that it cannot hold.
    if let Some(Err(error)) = writer.as_mut().map(|writer| writer.accept(block.view(0, interfaces))) {
        assert_eq!(error.reason.kind(), std::io::ErrorKind::InvalidInput, "{error}");
        *writer = None;
    }
    block.clear();
}

/// A file in memory.
#[derive(Clone)]
struct Copy {
    bytes: Arc<Mutex<Vec<u8>>>,
    format: Format,
    compression: Option<Compression>,
    /// Whether the format cannot hold what it was to hold.
    is_refused: Arc<AtomicBool>,
}

impl Copy {
    fn new(format: Format, compression: Option<Compression>) -> Self {
        Copy { bytes: Arc::default(), format, compression, is_refused: Arc::default() }
    }

    fn writer(&self) -> Writer {
        let output = Output::to(Box::new(self.clone()), "copy");
        let output = match self.compression {
            Some(compression) => output.compressed(compression).unwrap(),
            None => output,
        };
        Writer::new(output, self.format)
    }

    fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }
}

impl Write for Copy {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.bytes.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Hands out so many bytes at a time.
struct Pieces {
    bytes: Vec<u8>,
    at: usize,
    piece: usize,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.piece.min(into.len()).min(self.bytes.len() - self.at);
        into[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
