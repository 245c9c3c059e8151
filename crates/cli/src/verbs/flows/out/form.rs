//! What flows can be written as.

use super::{jsonl, zeek};
use linerate_meter::{Flow, Level};
use std::io::{self, Write};

/// How a file begins.
type Start = fn(Box<dyn Write + Send>) -> io::Result<Box<dyn Encode>>;

/// One way to write flows.
#[derive(Debug)]
pub struct Form {
    /// The name for `--format`.
    pub name: &'static str,
    /// How names of such files end, the usual one first.
    pub endings: &'static [&'static str],
    /// Whether each flow is a line, which can be read before the file is complete. What is not lines is written in groups
    /// of many flows, each group in the order of time.
    pub lines: bool,
    /// The least level at which all that it has a place for is recorded.
    pub level: Level,
    /// Begins a file.
    pub start: Start,
}

/// A file being written.
pub trait Encode: Send {
    /// Adds flows; of lines all are handed to the system.
    fn write(&mut self, flows: &[&Flow]) -> io::Result<()>;

    /// Ends the file.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// All there are, a row each. The first is that of files whose name says nothing.
pub(in super::super) const FORMS: &[Form] = &[
    Form {
        name: "jsonl",
        endings: &["jsonl", "ndjson", "json"],
        lines: true,
        level: Level::Stats,
        start: jsonl::start,
    },
    #[cfg(feature = "parquet")]
    Form { name: "parquet", endings: &["parquet"], lines: false, level: Level::Stats, start: super::parquet::start },
    Form { name: "zeek", endings: &["log"], lines: true, level: Level::Tcp, start: zeek::start },
];

/// Endings of forms that a program can be built without.
const LEFT_OUT: &[&str] = if cfg!(feature = "parquet") { &[] } else { &["parquet"] };

impl Form {
    /// The names for `--format`.
    pub fn names() -> impl Iterator<Item = &'static str> {
        FORMS.iter().map(|form| form.name)
    }

    /// The form of this name.
    pub fn named(name: &str) -> Option<&'static Form> {
        FORMS.iter().find(|form| form.name == name)
    }

    /// The form that the name of a file asks for: `None` if it asks for one that this program was built without.
    pub fn of_path(path: &str) -> Option<&'static Form> {
        let ending = path.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
        if LEFT_OUT.contains(&ending.as_str()) {
            return None;
        }
        FORMS.iter().find(|form| form.endings.contains(&ending.as_str())).or(FORMS.first())
    }

    /// The form of a folder: columns, where there are any.
    pub fn of_folder() -> &'static Form {
        FORMS.iter().find(|form| !form.lines).unwrap_or(&FORMS[0])
    }
}
