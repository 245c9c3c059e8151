//! What a search says: of files, while it goes on, and at its end.

use super::Asked;
use super::files::Found;
use crate::view::rates::{counted, grouped, stated};
use crate::view::terminal::{fail, shown, tell};
use linerate_burst::{Count, Kind, Ledger, Stage};
use linerate_index::Search;
use linerate_index::search::{Note, Totals, What};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Files that are named of those of which the same is said.
const NAMED: u64 = 3;
/// Of files with packets that the filter does not fit.
const UNFIT: &str = "the filter does not fit the link type";

/// What is said of files.
pub(super) struct Notes {
    is_quiet: bool,
    /// How often each was said.
    said: BTreeMap<&'static str, u64>,
    failures: u64,
    all: Vec<String>,
}

impl Notes {
    pub(super) fn new(is_quiet: bool) -> Self {
        Notes { is_quiet, said: BTreeMap::new(), failures: 0, all: Vec::new() }
    }

    /// Says a line.
    pub(super) fn line(&mut self, text: &str) {
        if !self.is_quiet {
            tell(format_args!("{}\n", shown(text)));
        }
        self.all.push(text.to_owned());
    }

    /// What of folders is not searched.
    pub(super) fn others(&mut self, found: &Found) {
        for unread in &found.unread {
            fail(format_args!("{unread}: what is in it was not searched"));
            self.failures += 1;
            self.all.push(unread.clone());
        }
        if found.files.is_empty() {
            self.line("no file there is called as captures are (.pcap, .pcapng, .cap)");
        } else if found.others > 0 {
            self.line(&format!("{} not called as a capture is: left out", counted(found.others, "file")));
        }
    }

    /// Says what a search has to say; of many files the same is said of some.
    pub(super) fn all(&mut self, notes: Vec<Note>) {
        for Note { path, what } in notes {
            let is_failure = what.is_failure();
            let (kind, text) = told(&path, what);
            self.failures += u64::from(is_failure);
            // A file that cannot be read is always named.
            if is_failure && kind != UNFIT {
                fail(&text);
                self.all.push(text);
                continue;
            }
            let said = self.said.entry(kind).or_default();
            *said += 1;
            match *said {
                1..=NAMED if is_failure => {
                    fail(&text);
                    self.all.push(text);
                }
                1..=NAMED => self.line(&text),
                next if next == NAMED + 1 => self.line(&format!("... and so on: {kind} of more files")),
                _ => {}
            }
        }
    }

    /// Whether frames may be missing.
    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0
    }
}

/// In which class it is, and the line.
fn told(path: &str, what: What) -> (&'static str, String) {
    match what {
        What::NoIndex => {
            ("no index", format!("{path}: no index, read in full (linerate find FILE --make-index makes one)"))
        }
        What::Unused(why) => {
            ("no index that fits", format!("{path}: its index is not used, it is read in full: {why}"))
        }
        What::Gone => ("no file", format!("{path}: it went away before it was read")),
        What::CutOff(error) => ("no end", format!("{error}; the file is being written")),
        What::LeftOut(things) => {
            ("left out", format!("{path}: {things} options or blocks are not kept (file_left_out)"))
        }
        What::TimeChanged(frames) => (
            "other times",
            format!(
                "{path}: {}; times changed (time_changed)",
                stated(frames, "packets have times before 1970, after 2554 or with a fraction beyond a second")
            ),
        ),
        What::Unread(error) => ("unread", error.to_string()),
        What::Unopened(error) => ("unread", format!("{path}: {error}")),
        What::Unfit(link, error) => {
            (UNFIT, format!("{path}: packets of {link} are left out, the filter does not fit them: {error}"))
        }
    }
}

/// `linerate/find/1`.
#[derive(Serialize)]
pub(super) struct FindJson<'a> {
    schema: &'static str,
    filter: &'a str,
    files: u64,
    files_without_index: u64,
    /// Files with packets of a link type that the filter does not fit.
    files_left_out: u64,
    parts: u64,
    parts_read: u64,
    file_bytes: u64,
    read_bytes: u64,
    looked_at: u64,
    frames: u64,
    bytes: u64,
    first_time_ns: Option<u64>,
    last_time_ns: Option<u64>,
    seconds: f64,
    /// Whether it was asked to stop before its end.
    stopped: bool,
    /// Frames that were found and are not in the output, by reason.
    drops: BTreeMap<&'static str, u64>,
    events: &'a [String],
}

impl<'a> FindJson<'a> {
    pub(super) fn new(
        asked: &'a Asked,
        search: &Search,
        notes: &'a Notes,
        ledger: &Ledger,
        elapsed: Duration,
        stopped: bool,
    ) -> Self {
        let Totals {
            files,
            without_index,
            left_out,
            file_bytes,
            read_bytes,
            parts,
            parts_read,
            looked_at,
            frames,
            bytes,
            span,
        } = *search.totals();
        let accounts = ledger.accounts().iter().filter(|account| account.stage == Stage::Write);
        let dropped = |count: &Count| matches!(count.kind(), Kind::Lost | Kind::Refused);
        let drops = accounts.flat_map(|account| {
            let counts = Count::ALL.iter().filter(|count| count.stage() == Stage::Write && dropped(count));
            counts.map(|count| (count.name(), account.get(*count))).filter(|(_, frames)| *frames > 0)
        });
        FindJson {
            schema: "linerate/find/1",
            filter: &asked.filter,
            files,
            files_without_index: without_index,
            files_left_out: left_out,
            parts,
            parts_read,
            file_bytes,
            read_bytes,
            looked_at,
            frames,
            bytes,
            first_time_ns: span.map(|(first, _)| first.0),
            last_time_ns: span.map(|(_, last)| last.0),
            seconds: elapsed.as_secs_f64(),
            stopped,
            drops: drops.collect(),
            events: &notes.all,
        }
    }

    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// Why frames that were found are not in the output.
    pub(super) fn left_out(&self) -> Vec<String> {
        let told = |(reason, frames): (&&str, &u64)| format!("{} not written: {reason}", counted(*frames, "packet"));
        self.drops.iter().map(told).collect()
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let found = match (self.frames, self.bytes) {
            (0, _) => "nothing found: no frame there is asked for".to_owned(),
            (frames, bytes) => format!("{}, {} found", counted(frames, "frame"), counted(bytes, "byte")),
        };
        let without = match self.files_without_index {
            0 => String::new(),
            files => format!(", {} without an index", grouped(files)),
        };
        let left_out = match self.files_left_out {
            0 => String::new(),
            files => format!(", {} left out (the filter does not fit)", grouped(files)),
        };
        let stopped = if self.stopped { "; stopped before the end" } else { "" };
        format!(
            "{found}; {:.3} s{stopped}\n  {}{without}{left_out}; {} of {} and {} of {} read\n",
            self.seconds,
            counted(self.files, "file"),
            grouped(self.parts_read),
            counted(self.parts, "part"),
            grouped(self.read_bytes),
            counted(self.file_bytes, "byte"),
        )
    }
}
