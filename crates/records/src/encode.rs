//! What records can be written as where bytes are written: a file each, or whatever else takes bytes.

#[cfg(feature = "parquet")]
pub mod columns;
mod csv;
mod ipfix;
pub mod json;
mod lines;
#[cfg(feature = "parquet")]
pub mod parquet;
pub mod rowbinary;
mod text;
mod zeek;
mod zeek_tsv;

use crate::ipfix::Profile;
use linerate_meter::{Flow, Level};
use linerate_record::Compression;
use std::io::{self, Error, ErrorKind, Write};

/// How a file begins.
type Start = fn(Box<dyn Write + Send>, &Settings) -> io::Result<Box<dyn Encoder>>;

/// What can be chosen of how records are written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// Of IPFIX.
    pub profile: Profile,
    /// Threads that make columns, where there are any; fewer than 2: the one that writes.
    pub threads: usize,
}

/// Where rows are from, so that any store can tell whether it has all of them, and each once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// What a sensor is called.
    pub sensor: String,
    /// 64 random bits of its run.
    pub run: u64,
    /// The number of a batch in the run, from 0.
    pub batch: u64,
}

/// One way to write records as bytes.
#[derive(Debug)]
pub struct Format {
    /// The name for `--format`.
    pub name: &'static str,
    /// How names of such files end, the usual one first.
    pub endings: &'static [&'static str],
    /// Whether each record is a line, or in a message, which can be read before the file is complete. What is not lines is written in groups
    /// of many records, each group in the order of time.
    pub lines: bool,
    /// The least level at which all that it has a place for is recorded.
    pub level: Level,
    /// Begins a file.
    pub start: Start,
}

/// A file being written.
pub trait Encoder: Send {
    /// Adds flows; of lines all are handed to the system.
    ///
    /// # Errors
    /// Those of writing.
    fn write(&mut self, flows: &[&Flow]) -> io::Result<()>;

    /// Ends the file.
    ///
    /// # Errors
    /// Those of writing.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// All there are, a row each. The first is that of files whose name says nothing.
pub const FORMATS: &[Format] = &[
    Format {
        name: "jsonl",
        endings: &["jsonl", "ndjson", "json"],
        lines: true,
        level: Level::Stats,
        start: json::start,
    },
    #[cfg(feature = "parquet")]
    Format { name: "parquet", endings: &["parquet"], lines: false, level: Level::Stats, start: parquet::start },
    Format { name: "zeek", endings: &["log"], lines: true, level: Level::Tcp, start: zeek::start },
    Format { name: "zeek-tsv", endings: &["tsv"], lines: true, level: Level::Tcp, start: zeek_tsv::start },
    Format { name: "csv", endings: &["csv"], lines: true, level: Level::Stats, start: csv::start },
    Format { name: "ipfix", endings: &["ipfix"], lines: true, level: Level::Stats, start: ipfix::start },
];

/// Endings of what flows are written as elsewhere, or frames here.
const OTHERS: [&str; 10] = ["xml", "arrow", "feather", "avro", "orc", "sqlite", "nfcapd", "pcap", "pcapng", "cap"];

/// Endings of formats that a program can be built without.
const LEFT_OUT: &[&str] = if cfg!(feature = "parquet") { &[] } else { &["parquet"] };

impl Format {
    /// The names for `--format`.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FORMATS.iter().map(|format| format.name)
    }

    /// The format of this name.
    pub fn named(name: &str) -> Option<&'static Format> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// The format that the name of a file asks for, and how it is compressed; `asked` is written whatever the name says.
    ///
    /// # Errors
    /// It asks for one that is not written here, or by a program that was built with more.
    pub fn of_path(path: &str, asked: Option<&'static Format>) -> io::Result<(&'static Format, Option<Compression>)> {
        let wrong = |text: String| Error::new(ErrorKind::InvalidInput, format!("{path}: {text}"));
        let (compression, plain) = Compression::to_write(path)?;
        let ending = plain.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
        let named = FORMATS.iter().find(|format| format.endings.contains(&ending.as_str()) || format.name == ending);
        let format = match asked.or(named) {
            Some(format) => format,
            None if LEFT_OUT.contains(&ending.as_str()) => {
                return Err(wrong("this program was built without Parquet".to_owned()));
            }
            None if OTHERS.contains(&ending.as_str()) => {
                let endings: Vec<String> = FORMATS.iter().map(|format| format!(".{}", format.endings[0])).collect();
                return Err(wrong(format!("records are not written as .{ending}; there are {}", endings.join(", "))));
            }
            None => &FORMATS[0],
        };
        if compression.is_some() && !format.lines {
            return Err(wrong(format!("{} compresses its columns itself: leave the last ending out", format.name)));
        }
        Ok((format, compression))
    }

    /// Whether it says what became of TCP connections, which only a level beyond the usual one knows.
    pub fn is_of_connections(&self) -> bool {
        self.level == Level::Tcp
    }

    /// The format of a folder: columns, where there are any.
    pub fn of_folder() -> &'static Format {
        FORMATS.iter().find(|format| !format.lines).unwrap_or(&FORMATS[0])
    }
}

/// Writes flows as a format does, in the order given (of `parquet`: that of their first packets).
///
/// # Errors
/// There is no such format; those of writing.
pub fn encode(format: &str, flows: &[Flow], out: Box<dyn Write + Send>) -> io::Result<()> {
    let none = || Error::new(ErrorKind::NotFound, format!("{format}: no format of records"));
    let mut encoder = (Format::named(format).ok_or_else(none)?.start)(out, &Settings::default())?;
    encoder.write(&flows.iter().collect::<Vec<_>>())?;
    encoder.finish()
}
