//! Where in its file a writer is, for whoever keeps an index of it.

use super::{Encoding, Failure, Format, Writer};
use linerate_burst::SinkError;
use std::fs::File;
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
    pub fn part(&mut self) -> Result<(), SinkError> {
        self.guard(|writer| {
            let written = writer.counts.written;
            writer.output.part().map_err(|partial| Failure::new(&partial.reason, written, true))
        })
    }

    /// A new file beside the one that is written, called as it is with `ending` behind, and its name; an old one of that name
    /// is emptied. `None` where no regular file is written.
    ///
    /// # Errors
    /// Those of `openat(2)`.
    pub fn beside(&self, ending: &str) -> io::Result<Option<(File, String)>> {
        self.output.beside(ending)
    }
}
