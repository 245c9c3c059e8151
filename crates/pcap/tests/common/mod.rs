//! Shared by several tests: frames as plain values, read and written in one call.
#![allow(dead_code)]

use linerate_burst::{Block, Desc, Flags, Interface, Ledger, Nanos, Sink};
use linerate_pcap::{Format, Output, ReadError, Reader, Writer};
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex};

/// A frame with all its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub time: Nanos,
    pub wire: u32,
    pub interface: u16,
    pub flags: Flags,
    pub bytes: Vec<u8>,
}

/// Result of reading a file to its end.
#[derive(Debug)]
pub(crate) struct Content {
    pub frames: Vec<Frame>,
    pub interfaces: Vec<Interface>,
    pub error: Option<ReadError>,
}

/// Reads to the end, consuming at most `step` frames at a time.
pub(crate) fn read(source: impl Read + Send + 'static, step: usize) -> Content {
    let mut content = Content { frames: Vec::new(), interfaces: Vec::new(), error: None };
    let mut reader = match Reader::new(Box::new(source), "x") {
        Ok(reader) => reader,
        Err(error) => return Content { error: Some(error), ..content },
    };
    loop {
        match reader.fill() {
            Ok(burst) => {
                let taken = burst.len().min(step);
                content.frames.extend(burst.iter().take(taken).map(|(desc, bytes)| Frame {
                    time: desc.time,
                    wire: desc.wire,
                    interface: desc.interface,
                    flags: desc.flags,
                    bytes: bytes.to_vec(),
                }));
                reader.consume(taken);
                if taken == 0 {
                    break;
                }
            }
            Err(error) => content.error = Some(error),
        }
    }
    assert!(reader.ended(), "no frame means that the end is reached");
    content.interfaces = reader.interfaces().to_vec();
    content
}

/// Reads bytes in memory to their end.
pub(crate) fn read_bytes(bytes: &[u8]) -> Content {
    read(io::Cursor::new(bytes.to_vec()), usize::MAX)
}

/// A source that returns at most `step` bytes at a time.
pub(crate) struct Slow {
    pub bytes: io::Cursor<Vec<u8>>,
    pub step: usize,
}

impl Read for Slow {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let step = self.step.min(to.len());
        self.bytes.read(&mut to[..step])
    }
}

#[derive(Clone, Default)]
pub(crate) struct Memory(pub Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes frames in blocks of at most `most` frames.
pub(crate) fn write(frames: &[Frame], interfaces: &[Interface], format: Format, most: usize) -> Vec<u8> {
    let memory = Memory::default();
    write_to(Output::to(Box::new(memory.clone()), "memory"), frames, interfaces, format, most);
    memory.0.lock().unwrap().clone()
}

/// Writes to any output, like [`write`].
pub(crate) fn write_to(output: Output, frames: &[Frame], interfaces: &[Interface], format: Format, most: usize) {
    let mut writer = Writer::new(output, format);
    let mut block = Block::new(1 << 20, most);
    for frame in frames {
        let desc = Desc {
            wire: frame.wire,
            interface: frame.interface,
            flags: frame.flags,
            ..Desc::new(frame.time, 0, frame.bytes.len() as u32)
        };
        if !block.push(&desc, &frame.bytes) {
            writer.accept(block.view(0, interfaces)).unwrap();
            block.clear();
            assert!(block.push(&desc, &frame.bytes));
        }
    }
    writer.accept(block.view(0, interfaces)).unwrap();
    writer.finish(&Ledger::new()).unwrap();
}
