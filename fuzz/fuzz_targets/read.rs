//! Any bytes are read as a capture file without a panic, to an end, with every frame inside the file; in
//! whatever pieces they come, compressed or not, the frames are the same; and so they are when they were
//! written to another file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_burst::{Block, Interface, Ledger, Sink};
use linerate_record::{Compression, Format, Output, Reader, Writer};
use std::io::{Cursor, Read, Write};
use std::sync::{Arc, Mutex};

/// Frames looked at of a file that may grow a thousandfold when it is decompressed.
const MOST: usize = 1000;

type Frame = (u64, u32, Vec<u8>);

fuzz_target!(|bytes: &[u8]| {
    let memory = Memory::default();
    let whole = frames(Box::new(Cursor::new(bytes.to_vec())), Some(&memory));
    let compressed = [&[0x1f, 0x8b][..], &[0x28, 0xb5]].iter().any(|magic| bytes.starts_with(magic))
        || bytes.get(1..4) == Some(&[0x2a, 0x4d, 0x18]);
    if !compressed && whole.len() < MOST {
        assert!(whole.iter().map(|frame| frame.2.len()).sum::<usize>() <= bytes.len());
    }
    let piece = 1 + bytes.len() % 7;
    assert_eq!(whole, frames(Box::new(Slow { bytes: bytes.to_vec(), at: 0, piece }), None));
    let written = memory.0.lock().unwrap().clone();
    assert_eq!(whole, frames(Box::new(Cursor::new(written)), None));
});

/// The frames of a file, which are also written to `copy`.
fn frames(source: Box<dyn Read + Send>, copy: Option<&Memory>) -> Vec<Frame> {
    let mut found = Vec::new();
    let mut writer = copy.map(|memory| {
        let output = Output::to(Box::new(memory.clone()), "copy").compressed(Compression::Zstd).unwrap();
        Writer::new(output, Format::Pcapng)
    });
    let mut block = Block::new(1 << 20, MOST);
    let mut interfaces: Vec<Interface> = Vec::new();
    if let Ok(mut reader) = Reader::new(source, "fuzz") {
        while let Ok(shown @ 1..) = reader.fill().map(|burst| burst.len()) {
            for (desc, frame) in reader.shown().iter().take(MOST - found.len()) {
                found.push((desc.time.0, desc.wire, frame.to_vec()));
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
    }
    found
}

fn write(writer: &mut Option<Writer>, block: &mut Block, interfaces: &[Interface]) {
    if let Some(writer) = writer {
        writer.accept(block.view(interfaces)).unwrap();
    }
    block.clear();
}

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

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
