//! Any bytes are read as a capture file without a panic, to an end, with every frame inside the file; in whatever
//! pieces they come, compressed or not, the frames are the same; and so they are when they were written to another
//! file. What was written is written the same once it was read, with all that it says beyond frames.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_burst::{Block, Count, Flags, Interface, Ledger, Sink};
use linerate_record::{Compression, Format, Output, Reader, Writer};
use std::io::{Cursor, Read, Write};
use std::sync::{Arc, Mutex};

/// Frames looked at of a file that may grow a thousandfold when it is decompressed.
const MOST: usize = 1000;

type Frame = (u64, u32, Flags, Vec<u8>);

fuzz_target!(|bytes: &[u8]| {
    // The length chooses, so that a change of bytes alone never changes what is done with them.
    let compression = match bytes.len() % 16 {
        0 => Some(Compression::Gzip),
        1 => Some(Compression::Zstd),
        _ => None,
    };
    let first = Copy::new(compression);
    let whole = frames(Box::new(Cursor::new(bytes.to_vec())), Some(&first));
    let compressed = [&[0x1f, 0x8b][..], &[0x28, 0xb5]].iter().any(|magic| bytes.starts_with(magic))
        || bytes.get(1..4) == Some(&[0x2a, 0x4d, 0x18]);
    if !compressed && whole.len() < MOST {
        assert!(whole.iter().map(|frame| frame.3.len()).sum::<usize>() <= bytes.len());
    }
    let piece = 1 + bytes.len() % 7;
    assert_eq!(whole, frames(Box::new(Slow { bytes: bytes.to_vec(), at: 0, piece }), None));

    let (first, second) = (first.bytes(), Copy::new(compression));
    assert_eq!(whole, frames(Box::new(Cursor::new(first.clone())), Some(&second)));
    assert_eq!(first, second.bytes());
});

/// The frames of a file, which are also written to `copy`.
fn frames(source: Box<dyn Read + Send>, copy: Option<&Copy>) -> Vec<Frame> {
    let mut found = Vec::new();
    let mut writer = copy.map(Copy::writer);
    let mut block = Block::new(1 << 20, MOST);
    let mut interfaces: Vec<Interface> = Vec::new();
    if let Ok(mut reader) = Reader::new(source, "fuzz") {
        while let Ok(shown @ 1..) = reader.fill().map(|burst| burst.len()) {
            for (desc, frame) in reader.shown().iter().take(MOST - found.len()) {
                found.push((desc.time.0, desc.wire, desc.flags, frame.to_vec()));
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
    if let Some(writer) = &mut writer {
        writer.finish(&Ledger::new()).unwrap();
        let mut ledger = Ledger::new();
        writer.counters(&mut ledger);
        assert_eq!(ledger.accounts()[0].get(Count::Written), found.len() as u64);
    }
    found
}

fn write(writer: &mut Option<Writer>, block: &mut Block, interfaces: &[Interface]) {
    if let Some(writer) = writer {
        writer.accept(block.view(interfaces)).unwrap();
    }
    block.clear();
}

/// A file in memory.
#[derive(Clone)]
struct Copy {
    bytes: Arc<Mutex<Vec<u8>>>,
    compression: Option<Compression>,
}

impl Copy {
    fn new(compression: Option<Compression>) -> Self {
        Copy { bytes: Arc::default(), compression }
    }

    fn writer(&self) -> Writer {
        let output = Output::to(Box::new(self.clone()), "copy");
        let output = match self.compression {
            Some(compression) => output.compressed(compression).unwrap(),
            None => output,
        };
        Writer::new(output, Format::Pcapng)
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

/// Hands out a few bytes at a time.
struct Slow {
    bytes: Vec<u8>,
    at: usize,
    piece: usize,
}

impl Read for Slow {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.piece.min(into.len()).min(self.bytes.len() - self.at);
        into[..count].copy_from_slice(&self.bytes[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
