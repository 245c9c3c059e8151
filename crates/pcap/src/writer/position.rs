//! Position of a writer in its file, for an index.

use super::{Encoding, Failure, Format, Writer};
use crate::file::ReplacedFile;
use linerate_burst::SinkError;
use std::io;

/// Position in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputPosition {
    /// Number of files started before it.
    pub file: u64,
    /// Bytes written.
    pub offset: u64,
    /// Number of records beyond frames that a reader with random access must read in any case: headers, interfaces,
    /// names.
    pub described: u64,
}

impl Writer {
    /// Returns the position. Frames passed to [`accept`](linerate_burst::Sink::accept) are between the positions
    /// before and after.
    pub fn place(&self) -> OutputPosition {
        let described = match &self.encoding {
            Encoding::Pcap(records) => records.described(),
            Encoding::Pcapng(blocks) => blocks.described(),
        };
        OutputPosition { file: self.files_before, offset: self.output.written(), described }
    }

    /// Returns the format, and the compression.
    pub fn format(&self) -> Format {
        match &self.encoding {
            Encoding::Pcap(records) => records.format(),
            Encoding::Pcapng(_) => Format::Pcapng,
        }
    }

    /// Makes later output independent of earlier output, except for what is [described](OutputPosition::described).
    ///
    /// # Errors
    /// Those of writing.
    pub fn start_part(&mut self) -> Result<(), SinkError> {
        self.guard(|writer| {
            let written = writer.counts.written;
            writer.output.start_part().map_err(|partial| Failure::new(&partial.reason, written, partial.written == 0))
        })
    }

    /// Creates a companion file (index), named like the current file plus `ending`; returns it and its name. The
    /// content of an old one is replaced. `None` if the output is not a regular file.
    ///
    /// # Errors
    /// Those of `openat(2)`.
    pub fn open_companion(&mut self, ending: &str) -> io::Result<Option<(ReplacedFile, String)>> {
        self.output.companion(ending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compression, Output, plain};
    use linerate_burst::{Block, Desc, Interface, Ledger, LinkType, Nanos, Sink, StampSource};
    use std::io::{Cursor, Read, Write};
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Memory(Arc<Mutex<Vec<u8>>>);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The bytes between two positions can be read on their own, and all together are the file.
    #[test]
    fn parts_are_independent() {
        let all = |bytes: &[u8]| {
            let (mut found, source) = (Vec::new(), Box::new(Cursor::new(bytes.to_vec())));
            plain(source).unwrap().read_to_end(&mut found).unwrap();
            found
        };
        for compression in [None, Some(Compression::Gzip), Some(Compression::Zstd), Some(Compression::Lz4)] {
            for format in [Format::Pcap, Format::Pcapng] {
                let memory = Memory::default();
                let mut output = Output::to(Box::new(memory.clone()), "x");
                if let Some(compression) = compression {
                    output = output.compressed(compression).unwrap();
                }
                let mut writer = Writer::new(output, format);
                let interfaces = [Interface::new("a", LinkType::ETHERNET, StampSource::User)];
                let mut places = vec![writer.place()];
                for n in 0..3u8 {
                    let mut block = Block::new(0, 4);
                    assert!(block.push(&Desc::new(Nanos(n.into()), 0, 60), &[n; 60]));
                    writer.accept(block.view(0, &interfaces)).unwrap();
                    writer.start_part().unwrap();
                    writer.start_part().unwrap();
                    places.push(writer.place());
                }
                writer.finish(&Ledger::new()).unwrap();
                let bytes = memory.0.lock().unwrap().clone();
                let described: Vec<bool> = places.windows(2).map(|two| two[0].described < two[1].described).collect();
                assert_eq!(described, [true, false, false], "{format:?}");
                // A part of LZ4 is read after the frame header, and with an end mark.
                let is_lz4 = compression == Some(Compression::Lz4);
                let decoded = |part: &[u8], is_first: bool, is_last: bool| {
                    let head = if is_lz4 && !is_first { &bytes[..7] } else { &[] };
                    all(&[head, part, if is_lz4 && !is_last { &[0; 4][..] } else { &[] }].concat())
                };
                let part =
                    |n: usize| decoded(&bytes[places[n].offset as usize..places[n + 1].offset as usize], n == 0, false);
                let length = part(1).len();
                assert_eq!((length, part(2).len()), if format == Format::Pcap { (76, 76) } else { (92, 92) });
                assert!(part(1).ends_with(&[1; 16]) || part(1)[length - 20..].starts_with(&[1; 16]));
                let joined =
                    [part(0), part(1), part(2), decoded(&bytes[places[3].offset as usize..], false, true)].concat();
                assert!(joined == all(&bytes), "{compression:?} {format:?}");
            }
        }
    }
}
