//! Any bytes are read as a capture file without a panic, to an end, with every frame inside the file; and
//! in whatever pieces they come, the frames are the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use linerate_record::Reader;
use std::io::{Cursor, Read};

fuzz_target!(|bytes: &[u8]| {
    let whole = frames(Box::new(Cursor::new(bytes.to_vec())));
    assert!(whole.iter().map(|frame| frame.1.len()).sum::<usize>() <= bytes.len());
    let piece = 1 + bytes.len() % 7;
    assert_eq!(whole, frames(Box::new(Slow { bytes: bytes.to_vec(), at: 0, piece })));
});

fn frames(source: Box<dyn Read + Send>) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    let Ok(mut reader) = Reader::new(source, "fuzz") else { return found };
    while let Ok(burst) = reader.fill() {
        if burst.is_empty() {
            break;
        }
        found.extend(burst.iter().map(|(desc, frame)| (desc.time.0, frame.to_vec())));
        let shown = burst.len();
        reader.consume(shown);
    }
    found
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
