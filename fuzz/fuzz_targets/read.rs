//! Any bytes are read as a capture file without a panic, to an end, with every frame inside the file. The frames are
//! the same for input in pieces of any length, compressed or not, and after a copy to another file of any format. A
//! copy of a copy is identical, with all its metadata.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_burst::{Block, Count, Desc, Flags, Interface, Ledger, LinkType, Nanos, Sink};
use linerate_pcap::pcap::holds;
use linerate_pcap::{Compression, Format, Output, Reader, Writer};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// Max frames per file, which may grow a thousandfold when decompressed.
const MAX_FRAMES: usize = 1000;

#[derive(Clone, Debug, PartialEq)]
struct Frame {
    link: LinkType,
    time: Nanos,
    wire: u32,
    flags: Flags,
    bytes: Vec<u8>,
}

fuzz_target!(|bytes: &[u8]| {
    // The length chooses, so that inputs of one length with other bytes take the same path.
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
    if !compressed && whole.len() < MAX_FRAMES {
        assert!(whole.iter().map(|frame| frame.bytes.len()).sum::<usize>() <= bytes.len());
    }
    let format = [Format::Pcap, Format::PcapMicros][bytes.len() / 2 % 2];
    let classic = Copy::new(format, compression);
    assert_eq!(whole, frames(bytes, 1 + bytes.len() % 7, Some(&classic)));
    let mut kept = frames(&classic.bytes(), MAX_FRAMES, None);
    kept.iter_mut().for_each(|frame| frame.flags = Flags::NONE);
    let expected = in_classic(&whole, format);
    // A frame that does not fit ends the file.
    let is_refused = classic.is_refused.load(Ordering::Relaxed);
    assert!(if is_refused { expected.starts_with(&kept) } else { expected == kept }, "{expected:?}, not {kept:?}");

    let (first, second) = (first.bytes(), Copy::new(Format::Pcapng, compression));
    assert_eq!(whole, frames(&first, first.len(), Some(&second)));
    assert_eq!(first, second.bytes());
});

/// Returns the frames as the classic format keeps them: one registered link type, times before 2106, no flags.
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

/// Reads the frames of a file in pieces of this length, and also writes them to `copy`.
fn frames(bytes: &[u8], piece: usize, copy: Option<&Copy>) -> Vec<Frame> {
    let source = Box::new(Pieces { bytes: bytes.to_vec(), at: 0, piece: piece.max(1) });
    let mut found = Vec::new();
    let mut writer = copy.map(Copy::writer);
    let mut block = Block::new(1 << 20, MAX_FRAMES);
    let mut interfaces: Vec<Interface> = Vec::new();
    if let Ok(mut reader) = Reader::new(source, "fuzz") {
        while let Ok(shown @ 1..) = reader.fill().map(|burst| burst.len()) {
            for (desc, frame) in reader.shown().iter().take(MAX_FRAMES - found.len()) {
                let Desc { time, wire, flags, interface, .. } = *desc;
                let link = reader.interfaces()[usize::from(interface)].link;
                found.push(Frame { link, time, wire, flags, bytes: frame.to_vec() });
                while writer.is_some() && !block.push(desc, frame) {
                    write(&mut writer, &mut block, reader.interfaces());
                }
            }
            interfaces = reader.interfaces().to_vec();
            reader.consume(shown);
            if found.len() == MAX_FRAMES {
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
        let dropped = account.get(Count::LinkTypeMixed) + account.get(Count::LinkTypeUnknown);
        assert_eq!(account.get(Count::Written) + dropped, found.len() as u64);
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

/// File in memory.
#[derive(Clone)]
struct Copy {
    bytes: Arc<Mutex<Vec<u8>>>,
    format: Format,
    compression: Option<Compression>,
    /// True if the format could not hold a frame.
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

/// Source that returns pieces of this length.
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
