//! Data about the run in every JSON result.

use crate::signals::is_interrupted;
use serde::Serialize;
use std::ffi::OsString;
use std::sync::OnceLock;
use std::time::SystemTime;

static STARTED: OnceLock<SystemTime> = OnceLock::new();

/// Records the start of the program.
pub fn note_start() {
    STARTED.get_or_init(SystemTime::now);
}

/// A result, followed by data about its run.
#[derive(Serialize)]
pub(super) struct Document<'a, T: Serialize> {
    #[serde(flatten)]
    result: &'a T,
    run: Run,
}

#[derive(Serialize)]
struct Run {
    version: &'static str,
    /// UTC, nanoseconds since 1970.
    started_ns: u64,
    ended_ns: u64,
    /// True if a signal ended it.
    interrupted: bool,
    /// Program and arguments; bytes that are not UTF-8 are replaced.
    command: Vec<String>,
}

impl<'a, T: Serialize> Document<'a, T> {
    /// Adds the data of this run, which ends now.
    pub(super) fn of(result: &'a T) -> Self {
        let now = SystemTime::now();
        let text = |word: OsString| word.to_string_lossy().into_owned();
        let run = Run {
            version: env!("CARGO_PKG_VERSION"),
            started_ns: nanos(*STARTED.get_or_init(|| now)),
            ended_ns: nanos(now),
            interrupted: is_interrupted(),
            command: std::env::args_os().map(text).collect(),
        };
        Document { result, run }
    }
}

fn nanos(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}
