//! `--make-index`: builds indexes of files that lack one.

use super::report::Notes;
use crate::exit::{Exit, error_text};
use crate::privileges::Identity;
use crate::verbs::capture_files::SearchFiles;
use crate::view::rates::counted;
use crate::view::terminal::{fail, print_stderr, row_line, shown};
use linerate_burst::input::open_regular;
use linerate_index::parts::choose_from;
use linerate_index::{ENDING, IndexingError, make};
use linerate_pcap::ReadError;
use linerate_pcap::recording::PARTIAL_ENDING;
use rustix::fs::OFlags;
use serde::Serialize;
use std::fs::{File, Metadata, OpenOptions, TryLockError, remove_file, rename};
use std::io::{self, BufWriter, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::Arc;

/// Reasons for skipping a file.
const NOT_YET: &str = "still being recorded; if the recorder has died, rename it without .part";
const ELSEWHERE: &str = "another run is building it";

/// A line of `linerate/find-index/1`.
#[derive(Serialize)]
struct IndexJson<'a> {
    schema: &'static str,
    file: &'a str,
    made: bool,
    frames: Option<u64>,
    failure: Option<String>,
}

/// Result for one file.
enum IndexResult {
    /// Built: number of packets, and why the file could not be read to its end.
    Now(u64, Option<ReadError>),
    /// Already up to date.
    Before,
    /// The file is still being recorded.
    NotYet,
    /// Another run is building it.
    Elsewhere,
}

/// Builds all missing or outdated indexes.
pub(super) fn make_all(
    found: &SearchFiles,
    identity: &Identity,
    notes: &[String],
    is_quiet: bool,
    is_json: bool,
) -> anyhow::Result<Exit> {
    let mut own = Notes::new(is_quiet || is_json);
    notes.iter().for_each(|what| own.line(what));
    own.others(found);
    let mut has_failed = own.has_failed();
    for file in &found.files {
        let result = make_one(file).map_err(|error| error_text(&identity.explain(error)));
        has_failed |= result.is_err();
        if is_json {
            let (made, frames, failure) = match &result {
                Ok(IndexResult::Now(frames, failure)) => {
                    (true, Some(*frames), failure.as_ref().map(ToString::to_string))
                }
                Ok(IndexResult::Before) => (false, None, None),
                Ok(IndexResult::NotYet) => (false, None, Some(NOT_YET.to_owned())),
                Ok(IndexResult::Elsewhere) => (false, None, Some(ELSEWHERE.to_owned())),
                Err(error) => (false, None, Some(error.clone())),
            };
            row_line(&IndexJson { schema: "linerate/find-index/1", file, made, frames, failure }, false)?;
            continue;
        }
        match result {
            Ok(IndexResult::Now(frames, failure)) if !is_quiet => {
                let end = failure.map_or_else(String::new, |failure| format!("; {failure}"));
                print_stderr(format_args!(
                    "{}: {}{}\n",
                    shown(&format!("{file}{ENDING}")),
                    counted(frames, "packet"),
                    shown(&end)
                ));
            }
            Ok(IndexResult::Before) if !is_quiet => {
                print_stderr(format_args!("{}: index is up to date\n", shown(file)))
            }
            Ok(IndexResult::NotYet) if !is_quiet => {
                print_stderr(format_args!("{}: no index built: {NOT_YET}\n", shown(file)))
            }
            Ok(IndexResult::Elsewhere) if !is_quiet => {
                print_stderr(format_args!("{}: no index built: {ELSEWHERE}\n", shown(file)))
            }
            Ok(_) => {}
            Err(error) => fail(format_args!("{file}: no index built: {error}")),
        }
    }
    Ok(if has_failed { Exit::Failed } else { Exit::Done })
}

/// Builds the index of a file, under a temporary name until it is complete.
fn make_one(path: &str) -> Result<IndexResult, IndexingError> {
    if path.ends_with(PARTIAL_ENDING) {
        return Ok(IndexResult::NotYet);
    }
    let file = Arc::new(open_regular(path)?);
    let name = format!("{path}{ENDING}");
    if let Ok(index) = open_regular(&name)
        && let Ok(parts) = choose_from(&index, &file, |_| Ok(false))
        // That of a file that is cut off has no end; that of a killed recorder is older than its file.
        && (parts.is_complete || index.metadata()?.modified()? > file.metadata()?.modified()?)
    {
        return Ok(IndexResult::Before);
    }
    let (before, modified) = (state(&name), file.metadata()?.modified()?);
    let part = format!("{name}{PARTIAL_ENDING}");
    let Some(out) = claim(&part)? else { return Ok(IndexResult::Elsewhere) };
    let made = make(&file, path, BufWriter::new(&out)).and_then(|made| {
        if file.metadata()?.modified()? != modified {
            return Err(io::Error::other("the file was modified while it was read; try again").into());
        }
        if state(&name) != before {
            return Err(io::Error::other("another index was written in the meantime and is kept").into());
        }
        Ok((made, rename(&part, &name)?))
    });
    match made {
        Ok(((frames, failure), ())) => Ok(IndexResult::Now(frames, failure)),
        Err(error) => {
            let _ = remove_file(&part);
            Err(error)
        }
    }
}

/// Opens the temporary file of an index, empty and locked. Returns `None` while another run writes it. The file of a
/// killed run is reused: its lock ended with the run.
fn claim(part: &str) -> io::Result<Option<File>> {
    // Links and devices under this name are not touched.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    loop {
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).custom_flags(flags).open(part)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(ErrorKind::AlreadyExists, format!("{part}: not a regular file")));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // It may have been renamed or removed before it was locked.
        let is_it = |there: Metadata, locked: Metadata| (there.dev(), there.ino()) == (locked.dev(), locked.ino());
        if std::fs::metadata(part).is_ok_and(|there| file.metadata().is_ok_and(|locked| is_it(there, locked))) {
            file.set_len(0)?;
            return Ok(Some(file));
        }
    }
}

/// Returns the identity and length of a file, which change if a recorder replaces it.
fn state(name: &str) -> Option<(u64, u64, u64)> {
    std::fs::metadata(name).ok().map(|data| (data.dev(), data.ino(), data.len()))
}
