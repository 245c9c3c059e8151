//! Files of records: a single one, or all below a folder, whose names may give the hour.

use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};

/// A file of records.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordFile {
    /// Start of the hour in its folder names, in seconds since 1970: the first packets of its records are from that
    /// hour.
    pub hour: Option<u64>,
    /// Path of the file.
    pub path: PathBuf,
}

/// Maximum depth of folders.
const DEEPEST: usize = 8;
/// Extension of such files.
const ENDING: &str = "parquet";
/// Maximum duration of a record in seconds: the active timeout, usually 30 minutes. Files are skipped by folder name
/// only beyond it.
const LONGEST_RECORD: u64 = 86_400;

/// Returns all files of records at a path, sorted by hour.
///
/// # Errors
/// The path does not exist, cannot be read, or has no such files.
pub fn stored(place: &Path) -> Result<Vec<RecordFile>> {
    let mut found = Vec::new();
    if place.is_dir() {
        walk(place, [None; 2], DEEPEST, &mut found)?;
        if found.is_empty() {
            let text = format!("{}: no records found; no file ends in .{ENDING}", place.display());
            return Err(Error::new(ErrorKind::NotFound, text));
        }
    } else {
        std::fs::metadata(place).map_err(|error| at(place, &error))?;
        found.push(RecordFile { hour: None, path: place.to_owned() });
    }
    found.sort();
    Ok(found)
}

fn walk(folder: &Path, [date, hour]: [Option<u64>; 2], depth: usize, found: &mut Vec<RecordFile>) -> Result<()> {
    for entry in std::fs::read_dir(folder).map_err(|error| at(folder, &error))? {
        let path = entry.map_err(|error| at(folder, &error))?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if path.is_dir() {
            if depth > 0 {
                let date = name.strip_prefix("date=").map_or(date, days);
                let hour = name.strip_prefix("hour=").map_or(hour, |hour| hour.parse().ok().filter(|hour| *hour < 24));
                walk(&path, [date, hour], depth - 1, found)?;
            }
        } else if name.rsplit_once('.').is_some_and(|(_, ending)| ending == ENDING) && !name.starts_with('.') {
            let hour = date.zip(hour).map(|(date, hour)| date + 3600 * hour);
            found.push(RecordFile { hour, path });
        }
    }
    Ok(())
}

/// Returns the start of a day, in seconds since 1970.
fn days(name: &str) -> Option<u64> {
    let is_date = name.len() == 10 && name.as_bytes()[4] == b'-';
    let time = is_date.then(|| linerate_pcap::time_parser::parse(name, linerate_burst::Nanos::ZERO).ok()).flatten();
    time.map(|time| time.seconds())
}

fn at(path: &Path, error: &Error) -> Error {
    Error::new(error.kind(), format!("{}: {error}", path.display()))
}

impl RecordFile {
    /// Returns whether a record may have a packet from `since` on and before `until`, both in ns since 1970.
    pub fn may_have(&self, since: u64, until: u64) -> bool {
        self.hour.is_none_or(|hour| {
            let begins = hour.saturating_mul(1_000_000_000) < until;
            begins && hour + 3600 + LONGEST_RECORD > since / 1_000_000_000
        })
    }
}
