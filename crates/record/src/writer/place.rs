//! Where in its file a writer is, for whoever keeps an index of it.

use super::{Encoding, Failure, Format, Writer};
use crate::file::Replaced;
use linerate_burst::SinkError;
use std::io;

/// How far a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// How many files were begun before it.
    pub file: u64,
    /// Bytes in it.
    pub offset: u64,
    /// What it says beyond frames, which whoever leaves parts out has to read all the same: headers, interfaces, names.
    pub described: u64,
}

impl Writer {
    /// Where it is. What [`accept`](linerate_burst::Sink::accept) was handed lies between the places before and after.
    pub fn place(&self) -> Place {
        let described = match &self.encoding {
            Encoding::Pcap(records) => records.described(),
            Encoding::Pcapng(blocks) => blocks.described(),
        };
        Place { file: self.files_before, offset: self.output.written(), described }
    }

    /// What it writes, and whether that is compressed.
    pub fn format(&self) -> Format {
        match &self.encoding {
            Encoding::Pcap(records) => records.format(),
            Encoding::Pcapng(_) => Format::Pcapng,
        }
    }

    /// Lets what follows be read without what is there, but for what is [described](Place::described).
    ///
    /// # Errors
    /// Those of writing.
    pub fn begin_part(&mut self) -> Result<(), SinkError> {
        self.guard(|writer| {
            let written = writer.counts.written;
            writer.output.begin_part().map_err(|partial| Failure::new(&partial.reason, written, partial.written == 0))
        })
    }

    /// A new file beside the one that is written, called as it is with `ending` behind, and its name; what an old one of that
    /// name has is replaced. `None` where no regular file is written.
    ///
    /// # Errors
    /// Those of `openat(2)`.
    pub fn beside(&mut self, ending: &str) -> io::Result<Option<(Replaced, String)>> {
        self.output.beside(ending)
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

    /// What is between two places is what was written there, by itself, and all together are the file.
    #[test]
    fn parts_stand_by_themselves() {
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
                    writer.begin_part().unwrap();
                    writer.begin_part().unwrap();
                    places.push(writer.place());
                }
                writer.finish(&Ledger::new()).unwrap();
                let bytes = memory.0.lock().unwrap().clone();
                let described: Vec<bool> = places.windows(2).map(|two| two[0].described < two[1].described).collect();
                assert_eq!(described, [true, false, false], "{format:?}");
                // A part of LZ4 is read with the head of the frame in front of it, and its end behind it.
                let is_lz4 = compression == Some(Compression::Lz4);
                let alone = |part: &[u8], is_first: bool, is_last: bool| {
                    let head = if is_lz4 && !is_first { &bytes[..7] } else { &[] };
                    all(&[head, part, if is_lz4 && !is_last { &[0; 4][..] } else { &[] }].concat())
                };
                let part =
                    |n: usize| alone(&bytes[places[n].offset as usize..places[n + 1].offset as usize], n == 0, false);
                let length = part(1).len();
                assert_eq!((length, part(2).len()), if format == Format::Pcap { (76, 76) } else { (92, 92) });
                assert!(part(1).ends_with(&[1; 16]) || part(1)[length - 20..].starts_with(&[1; 16]));
                let joined =
                    [part(0), part(1), part(2), alone(&bytes[places[3].offset as usize..], false, true)].concat();
                assert!(joined == all(&bytes), "{compression:?} {format:?}");
            }
        }
    }
}
