//! `--make-index`: indexes of files that were recorded without.

use super::files::Found;
use super::report::Notes;
use crate::exit::{Exit, told};
use crate::privileges::Identity;
use crate::view::rates::counted;
use crate::view::terminal::{fail, result_line, shown, tell};
use linerate_burst::input::open_regular;
use linerate_index::parts::choose;
use linerate_index::{ENDING, NotMade, make};
use linerate_record::ReadError;
use linerate_record::recording::PARTIAL_ENDING;
use rustix::fs::OFlags;
use serde::Serialize;
use std::fs::{File, Metadata, OpenOptions, TryLockError, remove_file, rename};
use std::io::{self, BufReader, BufWriter, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::sync::Arc;

/// Why a file is passed over.
const NOT_YET: &str = "a recorder is at it, or died: once none is, rename it without .part";
const ELSEWHERE: &str = "another run makes it now";

/// A line of `linerate/find-index/1`.
#[derive(Serialize)]
struct MadeJson<'a> {
    schema: &'static str,
    file: &'a str,
    made: bool,
    frames: Option<u64>,
    failure: Option<String>,
}

/// What became of one.
enum Made {
    /// With so many frames, and why the file could not be read to its end.
    Now(u64, Option<ReadError>),
    /// It was there.
    Before,
    /// A recorder is at the file.
    NotYet,
    /// Another run makes it.
    Elsewhere,
}

/// Makes what is not there.
pub(super) fn make_all(
    found: &Found,
    identity: &Identity,
    notes: &[String],
    is_quiet: bool,
    is_json: bool,
) -> anyhow::Result<Exit> {
    let mut say = Notes::new(is_quiet || is_json);
    notes.iter().for_each(|what| say.line(what));
    say.others(found);
    let mut has_failed = say.has_failed();
    for file in &found.files {
        let result = make_one(file).map_err(|error| told(&identity.explain(error)));
        has_failed |= result.is_err();
        if is_json {
            let (made, frames, failure) = match &result {
                Ok(Made::Now(frames, failure)) => (true, Some(*frames), failure.as_ref().map(ToString::to_string)),
                Ok(Made::Before) => (false, None, None),
                Ok(Made::NotYet) => (false, None, Some(NOT_YET.to_owned())),
                Ok(Made::Elsewhere) => (false, None, Some(ELSEWHERE.to_owned())),
                Err(error) => (false, None, Some(error.clone())),
            };
            result_line(&MadeJson { schema: "linerate/find-index/1", file, made, frames, failure }, false)?;
            continue;
        }
        match result {
            Ok(Made::Now(frames, failure)) if !is_quiet => {
                let end = failure.map_or_else(String::new, |failure| format!("; {failure}"));
                tell(format_args!(
                    "{}: {}{}\n",
                    shown(&format!("{file}{ENDING}")),
                    counted(frames, "frame"),
                    shown(&end)
                ));
            }
            Ok(Made::Before) if !is_quiet => tell(format_args!("{}: it has an index that fits\n", shown(file))),
            Ok(Made::NotYet) if !is_quiet => tell(format_args!("{}: no index was made: {NOT_YET}\n", shown(file))),
            Ok(Made::Elsewhere) if !is_quiet => tell(format_args!("{}: no index was made: {ELSEWHERE}\n", shown(file))),
            Ok(_) => {}
            Err(error) => fail(format_args!("{file}: no index was made: {error}")),
        }
    }
    Ok(if has_failed { Exit::Failed } else { Exit::Done })
}

/// Makes one beside its file, which has its name when it is whole.
fn make_one(path: &str) -> Result<Made, NotMade> {
    if path.ends_with(PARTIAL_ENDING) {
        return Ok(Made::NotYet);
    }
    let file = Arc::new(open_regular(path)?);
    let name = format!("{path}{ENDING}");
    if let Ok(index) = open_regular(&name)
        && choose(BufReader::new(index), &file, |_| Ok(false)).is_ok()
    {
        return Ok(Made::Before);
    }
    let before = state(&name);
    let part = format!("{name}{PARTIAL_ENDING}");
    let Some(out) = claim(&part)? else { return Ok(Made::Elsewhere) };
    let made = make(&file, path, BufWriter::new(&out)).and_then(|made| {
        if state(&name) != before {
            return Err(io::Error::other("somebody else wrote one meanwhile, which stays").into());
        }
        Ok((made, rename(&part, &name)?))
    });
    match made {
        Ok(((frames, failure), ())) => Ok(Made::Now(frames, failure)),
        Err(error) => {
            let _ = remove_file(&part);
            Err(error)
        }
    }
}

/// The file that an index is written to until it is whole, empty and locked; none while another run writes it. What a run that
/// was killed has left is used again: its lock went with it.
fn claim(part: &str) -> io::Result<Option<File>> {
    // Whatever somebody has put there instead is left alone.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    loop {
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).custom_flags(flags).open(part)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::new(ErrorKind::AlreadyExists, format!("{part} is no file")));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // It may have become an index, or been removed, before it was locked.
        let is_it = |there: Metadata, locked: Metadata| (there.dev(), there.ino()) == (locked.dev(), locked.ino());
        if std::fs::metadata(part).is_ok_and(|there| file.metadata().is_ok_and(|locked| is_it(there, locked))) {
            file.set_len(0)?;
            return Ok(Some(file));
        }
    }
}

/// Which file has that name, and how long it is: whoever records with an index changes that.
fn state(name: &str) -> Option<(u64, u64, u64)> {
    std::fs::metadata(name).ok().map(|data| (data.dev(), data.ino(), data.len()))
}
