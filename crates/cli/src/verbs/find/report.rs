//! Report of a search: notes on files, and the result.

use super::FindOptions;
use crate::verbs::capture_files::SearchFiles;
use crate::verbs::flows::period;
use crate::view::rates::{counted, grouped, stated};
use crate::view::terminal::{fail, print_stderr, shown};
use linerate_burst::{Count, Kind, Ledger, Stage};
use linerate_index::Search;
use linerate_index::search::{Note, NoteKind, Totals};
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;

/// Maximum number of files named per kind of note.
const NAMED: u64 = 3;
/// Kind of notes on packets that the filter does not fit.
const UNFIT: &str = "the filter does not fit the link type";

/// Notes on files.
pub(super) struct Notes {
    is_quiet: bool,
    /// Number of notes by kind.
    by_kind: BTreeMap<&'static str, u64>,
    failures: u64,
    all: Vec<String>,
}

impl Notes {
    pub(super) fn new(is_quiet: bool) -> Self {
        Notes { is_quiet, by_kind: BTreeMap::new(), failures: 0, all: Vec::new() }
    }

    /// Prints a line.
    pub(super) fn line(&mut self, text: &str) {
        if !self.is_quiet {
            print_stderr(format_args!("{}\n", shown(text)));
        }
        self.all.push(text.to_owned());
    }

    /// Prints what is not searched in directories.
    pub(super) fn others(&mut self, found: &SearchFiles) {
        for unread in &found.unread {
            fail(format_args!("{unread}; not searched"));
            self.failures += 1;
            self.all.push(unread.clone());
        }
        if found.files.is_empty() {
            fail("no capture files found (.pcap, .pcapng, .cap)");
            self.failures += 1;
            self.all.push("no capture files found".to_owned());
        } else if found.others > 0 {
            self.line(&format!("skipped {} (not .pcap, .pcapng or .cap)", counted(found.others, "file")));
        }
    }

    /// Prints the notes of a search; of each kind only the first ones.
    pub(super) fn all(&mut self, notes: Vec<Note>) {
        for Note { path, what } in notes {
            let is_failure = what.is_failure();
            let (kind, text) = describe(&path, what);
            self.failures += u64::from(is_failure);
            // A file that cannot be read is always named.
            if is_failure && kind != UNFIT {
                fail(&text);
                self.all.push(text);
                continue;
            }
            let number = self.by_kind.entry(kind).or_default();
            *number += 1;
            match *number {
                1..=NAMED if is_failure => {
                    fail(&text);
                    self.all.push(text);
                }
                1..=NAMED => self.line(&text),
                next if next == NAMED + 1 => self.line(&format!("... and more files: {kind}")),
                _ => {}
            }
        }
    }

    /// Returns whether packets may be missing.
    pub(super) fn has_failed(&self) -> bool {
        self.failures > 0
    }
}

/// Returns the kind of a note and its text.
fn describe(path: &str, what: NoteKind) -> (&'static str, String) {
    match what {
        NoteKind::NoIndex => {
            ("no index", format!("{path}: no index, read in full; build one with linerate find FILE --make-index"))
        }
        NoteKind::Unused(why) => ("index not used", format!("{path}: index not used, file read in full: {why}")),
        NoteKind::Gone => ("deleted", format!("{path}: deleted before it was read")),
        NoteKind::CutOff(error) => ("not finished", format!("{error}; the file is not finished (.part)")),
        NoteKind::LeftOut(things) => {
            ("dropped blocks", format!("{path}: {things} options or blocks not kept (not_copied)"))
        }
        NoteKind::TimeChanged(frames) => (
            "timestamps changed",
            format!(
                "{path}: {}; timestamps changed (time_changed)",
                stated(frames, "packets have timestamps before 1970, after 2554 or with an invalid fraction")
            ),
        ),
        NoteKind::Unread(error) => ("unread", error.to_string()),
        NoteKind::Unopened(error) => ("unread", format!("{path}: {error}")),
        NoteKind::Unfit(link, error) => {
            (UNFIT, format!("{path}: packets of {link} skipped, the filter does not fit: {error}"))
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
    files_skipped: u64,
    parts: u64,
    parts_read: u64,
    file_bytes: u64,
    read_bytes: u64,
    packets_read: u64,
    frames: u64,
    bytes: u64,
    first_time_ns: Option<u64>,
    last_time_ns: Option<u64>,
    seconds: f64,
    /// True if the search was stopped before its end.
    stopped: bool,
    /// True if all parts that may match were read.
    #[serde(skip)]
    is_whole: bool,
    /// The period that was asked for, as text.
    #[serde(skip)]
    period: String,
    /// Matching packets that were not written, by reason.
    drops: BTreeMap<&'static str, u64>,
    events: &'a [String],
    /// Why the output is incomplete.
    pub failure: Option<String>,
}

impl<'a> FindJson<'a> {
    pub(super) fn new(
        asked: &'a FindOptions,
        search: &Search,
        notes: &'a Notes,
        ledger: &Ledger,
        elapsed: Duration,
        (stopped, is_whole): (bool, bool),
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
        } = search.totals();
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
            files_skipped: left_out,
            parts,
            parts_read,
            file_bytes,
            read_bytes,
            packets_read: looked_at,
            frames,
            bytes,
            first_time_ns: span.map(|(first, _)| first.0),
            last_time_ns: span.map(|(_, last)| last.0),
            seconds: elapsed.as_secs_f64(),
            stopped,
            is_whole,
            period: period(asked.from.0, asked.last.0.saturating_add(1)),
            drops: drops.collect(),
            events: &notes.all,
            failure: None,
        }
    }

    pub(super) fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns why matching packets were not written.
    pub(super) fn left_out(&self) -> Vec<String> {
        let line = |(reason, frames): (&&str, &u64)| format!("{} not written: {reason}", counted(*frames, "packet"));
        self.drops.iter().map(line).collect()
    }

    /// Returns the report.
    pub(super) fn text(&self) -> String {
        let found = match (self.frames, self.bytes) {
            (0, _) => format!("no matching packets{}", self.period),
            (frames, bytes) => format!("{}, {} found", counted(frames, "packet"), counted(bytes, "byte")),
        };
        let stopped = if self.stopped { "; stopped before the end" } else { "" };
        let parts = match self.parts {
            // Fewer than those that may match.
            _ if !self.is_whole => String::new(),
            0 => String::new(),
            parts => format!("{} of {}, ", grouped(self.parts_read), counted(parts, "indexed part")),
        };
        let of = if self.read_bytes == self.file_bytes {
            String::new()
        } else {
            format!("{} of ", grouped(self.read_bytes))
        };
        let without = match self.files_without_index {
            0 => String::new(),
            files => format!("; {} without an index (use --make-index)", grouped(files)),
        };
        let left_out = match self.files_skipped {
            0 => String::new(),
            files => format!("; {} skipped (the filter does not fit)", grouped(files)),
        };
        format!(
            "{found} in {:.3} s{stopped}\n  read {parts}{of}{} in {}{without}{left_out}\n",
            self.seconds,
            counted(self.file_bytes, "byte"),
            counted(self.files, "file"),
        )
    }
}
