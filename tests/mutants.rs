//! Randomly changed capture files, through every verb that reads files, with limits on memory and time: the program
//! exits by itself with a documented status, reports the cause of an error, and its output is readable.
//!
//! `LINERATE_MUTANTS=20000` sets their number (default 2,000); above the default, every capture of the corpus also goes
//! through every command. `LINERATE_MUTANTS_SEED` (default 1) seeds them, and `LINERATE_MUTANT=77` runs only mutant 77,
//! through every command.

pub(crate) mod commands;
pub(crate) mod file_blocks;
pub(crate) mod limits;
pub(crate) mod mutations;
pub(crate) mod random;
pub(crate) mod seeds;
pub(crate) mod wrap;

use self::commands::{Command, SINGLE, TOGETHER};
use self::limits::{Ended, MEMORY_KIB, SECONDS};
use self::mutations::mutant;
use self::random::Dice;
use self::seeds::{Seed, captures, seeds};
use linerate_tests::support::Scratch;
use linerate_tests::support::program::program;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::slice::from_ref;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Default number of mutants, and number of commands per mutant.
const DEFAULT_COUNT: u64 = 2000;
const COMMANDS_OF_EACH: usize = 3;
/// Number of mutants per group; the readable ones of a group are also read together.
const GROUP: u64 = 8;
/// Maximum length in bytes of a mutant, and of the occasional long mutant in long runs.
const LONGEST: usize = 24 << 10;
const LONGEST_IN_LONG_RUNS: usize = 512 << 10;

/// Otherwise commands could fail on their arguments and never read a file.
#[test]
fn every_command_reads_an_intact_file_to_its_end() {
    let (findings, seeds) = (Findings::default(), seeds());
    let place = Place { scratch: Scratch::new(), findings: &findings };
    let path = PathBuf::from(place.scratch.file("whole"));
    fs::write(&path, seeds[0].read(usize::MAX - 1)).unwrap();
    for command in SINGLE.iter().chain(TOGETHER) {
        let files = [(path.clone(), seeds[0].name.clone())];
        assert_eq!(place.run_command(command, &files), Some(0), "{:?}", command.arguments(&[&path], "OUT"));
    }
}

#[test]
fn no_mutant_of_a_capture_breaks_the_program() {
    let only = number("LINERATE_MUTANT");
    let makers = Makers { seeds: seeds(), seed: number("LINERATE_MUTANTS_SEED").unwrap_or(1), count: mutants() };
    let groups = only.map_or(makers.count.div_ceil(GROUP), |_| 1);
    let findings = in_parallel(groups, |place, group| match only {
        Some(number) => {
            let file = place.mutant(&makers, number);
            SINGLE.iter().for_each(|command| _ = place.run_command(command, from_ref(&file)));
        }
        None => place.run_group(&makers, group),
    });
    findings.conclude(&format!("{} mutants of seed {}", makers.count, makers.seed));
    // Otherwise most mutants would be rejected at their first bytes and test little.
    assert!(only.is_some() || findings.done() * 5 > findings.runs(), "hardly any mutant is read to its end");
}

#[test]
fn no_capture_of_the_corpus_breaks_the_program() {
    let captures = captures();
    let of_each = if mutants() > DEFAULT_COUNT { SINGLE.len() } else { 1 };
    let findings = in_parallel(captures.len() as u64, |place, index| {
        let path = &captures[index as usize];
        let file = (path.clone(), "a capture of the corpus".to_owned());
        for command in SINGLE.iter().cycle().skip(index as usize % SINGLE.len()).take(of_each) {
            place.run_command(command, from_ref(&file));
        }
    });
    findings.conclude(&format!("{} captures", captures.len()));
}

/// Sources of mutants.
struct Makers {
    seeds: Vec<Seed>,
    seed: u64,
    count: u64,
}

/// Capture file and its description.
type File = (PathBuf, String);

/// Files of one thread.
struct Place<'a> {
    scratch: Scratch,
    findings: &'a Findings,
}

/// Results of all runs.
#[derive(Default)]
struct Findings {
    reports: Mutex<Vec<String>>,
    /// Number of runs by exit status, of those with a permitted status.
    statuses: [AtomicU64; 3],
}

impl Findings {
    fn runs(&self) -> u64 {
        self.statuses.iter().map(|runs| runs.load(Ordering::Relaxed)).sum()
    }

    fn done(&self) -> u64 {
        self.statuses[0].load(Ordering::Relaxed)
    }

    fn conclude(&self, of: &str) {
        let reports = self.reports.lock().unwrap();
        write_stderr(&format!("{of}: {} runs, {} of them to the end of their files", self.runs(), self.done()));
        assert!(reports.is_empty(), "{} findings, reported above; files are in target/mutants", reports.len());
    }
}

impl Place<'_> {
    /// Runs each mutant of a group through a few commands, then the readable ones through one command together.
    fn run_group(&self, makers: &Makers, group: u64) {
        let mut readable = Vec::new();
        for number in group * GROUP..((group + 1) * GROUP).min(makers.count) {
            let file = self.mutant(makers, number);
            let first = number as usize * COMMANDS_OF_EACH;
            let commands = (first..first + COMMANDS_OF_EACH).map(|index| &SINGLE[index % SINGLE.len()]);
            let statuses: Vec<_> = commands.map(|command| self.run_command(command, from_ref(&file))).collect();
            if statuses.iter().all(|status| *status == Some(0)) {
                readable.push(file);
            }
        }
        if !readable.is_empty() {
            self.run_command(&TOGETHER[group as usize % TOGETHER.len()], &readable);
        }
        self.clear("mutant");
    }

    fn mutant(&self, makers: &Makers, number: u64) -> File {
        let mut dice = Dice::new(makers.seed, number);
        let is_long = makers.count > DEFAULT_COUNT && dice.one_in(16);
        let most = if is_long { LONGEST_IN_LONG_RUNS } else { LONGEST };
        let (bytes, of) = mutant(&makers.seeds, &mut dice, most);
        let path = PathBuf::from(self.scratch.file(&format!("mutant-{}-{number}", makers.seed)));
        fs::write(&path, bytes).unwrap();
        (path, format!("mutant {number} of seed {}: {of}", makers.seed))
    }

    /// Runs a command on files; returns its status if it is a permitted one.
    fn run_command(&self, command: &Command, files: &[File]) -> Option<i32> {
        let paths: Vec<&Path> = files.iter().map(|(path, _)| path.as_path()).collect();
        let out = self.scratch.file("out");
        let ended = Ended::of(program(), &command.arguments(&paths, &out), &self.scratch.file("said"));
        let unreadable = || (ended.status == Some(0)).then(|| command.unreadable(&out)).flatten();
        let wrong = ended.wrong().or_else(unreadable);
        self.clear("out");
        let Some(mut reports) = wrong else {
            let status = ended.status?;
            self.findings.statuses[status as usize].fetch_add(1, Ordering::Relaxed);
            return Some(status);
        };
        files.iter().for_each(|(_, of)| reports += &format!("\n  {of}"));
        let kept: Vec<PathBuf> = paths.iter().map(|path| keep(path)).collect();
        let kept: Vec<&Path> = kept.iter().map(PathBuf::as_path).collect();
        let again = command.arguments(&kept, "/tmp/out").join("' '");
        reports += &format!("\n  again: sh -c 'ulimit -v {MEMORY_KIB}; exec timeout {SECONDS} \"$0\" \"$@\"'");
        reports += &format!(" {} '{again}'", program().display());
        write_stderr(&format!("finding: {reports}"));
        self.findings.reports.lock().unwrap().push(reports);
        None
    }

    fn clear(&self, prefix: &str) {
        for name in self.scratch.names().iter().filter(|name| name.starts_with(prefix)) {
            fs::remove_file(self.scratch.file(name)).unwrap();
        }
    }
}

/// Copies a mutant to target/mutants.
fn keep(path: &Path) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let name = path.file_name().expect("a name");
    if !name.to_str().is_some_and(|name| name.starts_with("mutant-")) {
        return path.to_owned();
    }
    let folder = root.join("target/mutants");
    fs::create_dir_all(&folder).unwrap();
    fs::copy(path, folder.join(name)).unwrap();
    folder.join(name)
}

/// Runs `does` for every index on all processors and returns the findings.
fn in_parallel(count: u64, does: impl Fn(&Place<'_>, u64) + Sync) -> Findings {
    program();
    let (next, findings) = (AtomicU64::new(0), Findings::default());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let place = Place { scratch: Scratch::new(), findings: &findings };
                loop {
                    match next.fetch_add(1, Ordering::Relaxed) {
                        index if index < count => does(&place, index),
                        _ => return,
                    }
                }
            });
        }
    });
    findings
}

/// Writes to stderr at once, bypassing the capture of the test harness.
fn write_stderr(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn mutants() -> u64 {
    number("LINERATE_MUTANTS").unwrap_or(DEFAULT_COUNT)
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}
