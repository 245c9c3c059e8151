//! File formats of flow records, for files and other byte streams.

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
use linerate_pcap::Compression;
use std::io::{self, Error, ErrorKind, Write};

/// Starts a file.
type Start = fn(Box<dyn Write + Send>, &Settings) -> io::Result<Box<dyn Encoder>>;

/// Encoder settings.
#[derive(Clone, Copy, Debug, Default)]
pub struct Settings {
    /// IPFIX profile.
    pub profile: Profile,
    /// Number of threads that build columns; fewer than 2: the writing thread builds them.
    pub threads: usize,
}

/// Origin of rows, with which a database can check that it has each of them exactly once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Name of the sensor.
    pub sensor: String,
    /// Random 64-bit id of the run.
    pub run: u64,
    /// Number of the batch in the run, from 0.
    pub batch: u64,
}

/// Encoding of records as bytes.
#[derive(Debug)]
pub struct Format {
    /// Name for `--format`.
    pub name: &'static str,
    /// File name extensions, the usual one first.
    pub endings: &'static [&'static str],
    /// True if each record is a line, or part of a message, that can be read before the file is complete. Other formats
    /// write groups of many records, each group sorted by time.
    pub lines: bool,
    /// Lowest level that fills all of its fields.
    pub level: Level,
    /// Starts a file.
    pub start: Start,
}

/// Encoder of an open file.
pub trait Encoder: Send {
    /// Adds flows. Line formats pass all of them to the operating system.
    ///
    /// # Errors
    /// Write errors.
    fn write(&mut self, flows: &[&Flow]) -> io::Result<()>;

    /// Completes the file.
    ///
    /// # Errors
    /// Write errors.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// All formats. The first is the default for names without a known extension.
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

/// Extensions of other flow formats and of packet captures, which are rejected.
const OTHERS: [&str; 10] = ["xml", "arrow", "feather", "avro", "orc", "sqlite", "nfcapd", "pcap", "pcapng", "cap"];

/// Extensions of formats that an optional feature provides.
const LEFT_OUT: &[&str] = if cfg!(feature = "parquet") { &[] } else { &["parquet"] };

impl Format {
    /// Returns the names for `--format`.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FORMATS.iter().map(|format| format.name)
    }

    /// Returns the format with this name.
    pub fn named(name: &str) -> Option<&'static Format> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// Returns the format and compression that a file name selects; `asked` overrides the format.
    ///
    /// # Errors
    /// The format is unknown or not built into this program.
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
                return Err(wrong(format!("unsupported format .{ending}; expected one of {}", endings.join(", "))));
            }
            None => &FORMATS[0],
        };
        if compression.is_some() && !format.lines {
            return Err(wrong(format!("{} compresses its columns itself; remove the last extension", format.name)));
        }
        Ok((format, compression))
    }

    /// Returns whether it contains the state of TCP connections, which requires a level above the default.
    pub fn is_of_connections(&self) -> bool {
        self.level == Level::Tcp
    }

    /// Returns the format for directories: columnar, if built in.
    pub fn of_folder() -> &'static Format {
        FORMATS.iter().find(|format| !format.lines).unwrap_or(&FORMATS[0])
    }
}

/// Encodes flows in a format, in the order given (`parquet`: sorted by first packet).
///
/// # Errors
/// The format is unknown, or writing fails.
pub fn encode(format: &str, flows: &[Flow], out: Box<dyn Write + Send>) -> io::Result<()> {
    let none = || Error::new(ErrorKind::NotFound, format!("{format}: unknown record format"));
    let mut encoder = (Format::named(format).ok_or_else(none)?.start)(out, &Settings::default())?;
    encoder.write(&flows.iter().collect::<Vec<_>>())?;
    encoder.finish()
}
