//! Capture files changed at random, through every verb of the real program that reads files, in little memory and little
//! time: it ends by itself with a status of its own, says why where it fails, and what it has written can be read.
//!
//! `LINERATE_MUTANTS=20000` makes so many of them (2,000), and takes every capture of the corpus through every command;
//! `LINERATE_MUTANTS_SEED` (1) makes others; `LINERATE_MUTANT=77` takes number 77 alone through every command.

pub(crate) mod change;
pub(crate) mod commands;
pub(crate) mod dice;
pub(crate) mod limits;
pub(crate) mod pieces;
pub(crate) mod seeds;
pub(crate) mod wrap;

use self::change::mutant;
use self::commands::{ALONE, Command, TOGETHER};
use self::dice::Dice;
use self::limits::{Ended, MEMORY_KIB, SECONDS};
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

/// Mutants unless told otherwise, and commands that each of them meets.
const USUAL: u64 = 2000;
const COMMANDS_OF_EACH: usize = 3;
/// Mutants that are read together, those of them that can be read at all.
const GROUP: u64 = 8;
/// Mutants are no longer than this; in a long run now and then much longer.
const LONGEST: usize = 24 << 10;
const LONGEST_IN_LONG_RUNS: usize = 512 << 10;

/// Else commands would say nothing about what is behind their arguments.
#[test]
fn every_command_takes_a_whole_file_to_its_end() {
    let (findings, seeds) = (Findings::default(), seeds());
    let place = Place { scratch: Scratch::new(), findings: &findings };
    let path = PathBuf::from(place.scratch.file("whole"));
    fs::write(&path, seeds[0].read(usize::MAX - 1)).unwrap();
    for command in ALONE.iter().chain(TOGETHER) {
        let files = [(path.clone(), seeds[0].name.clone())];
        assert_eq!(place.meet(command, &files), Some(0), "{:?}", command.arguments(&[&path], "OUT"));
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
            ALONE.iter().for_each(|command| _ = place.meet(command, from_ref(&file)));
        }
        None => place.meet_group(&makers, group),
    });
    findings.conclude(&format!("{} mutants of seed {}", makers.count, makers.seed));
    // Else they say nothing about what is behind the first look at a file.
    assert!(only.is_some() || findings.done() * 5 > findings.runs(), "hardly any mutant is read to its end");
}

#[test]
fn no_capture_of_the_corpus_breaks_the_program() {
    let captures = captures();
    let of_each = if mutants() > USUAL { ALONE.len() } else { 1 };
    let findings = in_parallel(captures.len() as u64, |place, index| {
        let path = &captures[index as usize];
        let file = (path.clone(), "a capture of the corpus".to_owned());
        for command in ALONE.iter().cycle().skip(index as usize % ALONE.len()).take(of_each) {
            place.meet(command, from_ref(&file));
        }
    });
    findings.conclude(&format!("{} captures", captures.len()));
}

/// What mutants are made from.
struct Makers {
    seeds: Vec<Seed>,
    seed: u64,
    count: u64,
}

/// A capture file, and what it is.
type File = (PathBuf, String);

/// Where one thread has its files.
struct Place<'a> {
    scratch: Scratch,
    findings: &'a Findings,
}

/// What came of all.
#[derive(Default)]
struct Findings {
    told: Mutex<Vec<String>>,
    /// Runs by their status, of those that have one they may have.
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
        let told = self.told.lock().unwrap();
        say(&format!("{of}: {} runs, {} of them to the end of their files", self.runs(), self.done()));
        assert!(told.is_empty(), "{} findings, told above; files are in target/mutants", told.len());
    }
}

impl Place<'_> {
    /// Some mutants, each through a few commands, and those that can be read through one together.
    fn meet_group(&self, makers: &Makers, group: u64) {
        let mut readable = Vec::new();
        for number in group * GROUP..((group + 1) * GROUP).min(makers.count) {
            let file = self.mutant(makers, number);
            let first = number as usize * COMMANDS_OF_EACH;
            let commands = (first..first + COMMANDS_OF_EACH).map(|index| &ALONE[index % ALONE.len()]);
            let statuses: Vec<_> = commands.map(|command| self.meet(command, from_ref(&file))).collect();
            if statuses.iter().all(|status| *status == Some(0)) {
                readable.push(file);
            }
        }
        if !readable.is_empty() {
            self.meet(&TOGETHER[group as usize % TOGETHER.len()], &readable);
        }
        self.clear("mutant");
    }

    fn mutant(&self, makers: &Makers, number: u64) -> File {
        let mut dice = Dice::new(makers.seed, number);
        let is_long = makers.count > USUAL && dice.one_in(16);
        let most = if is_long { LONGEST_IN_LONG_RUNS } else { LONGEST };
        let (bytes, of) = mutant(&makers.seeds, &mut dice, most);
        let path = PathBuf::from(self.scratch.file(&format!("mutant-{}-{number}", makers.seed)));
        fs::write(&path, bytes).unwrap();
        (path, format!("mutant {number} of seed {}: {of}", makers.seed))
    }

    /// Takes files through a command; its status, if that is one it may have.
    fn meet(&self, command: &Command, files: &[File]) -> Option<i32> {
        let paths: Vec<&Path> = files.iter().map(|(path, _)| path.as_path()).collect();
        let out = self.scratch.file("out");
        let ended = Ended::of(program(), &command.arguments(&paths, &out), &self.scratch.file("said"));
        let unreadable = || (ended.status == Some(0)).then(|| command.unreadable(&out)).flatten();
        let wrong = ended.wrong().or_else(unreadable);
        self.clear("out");
        let Some(mut told) = wrong else {
            let status = ended.status?;
            self.findings.statuses[status as usize].fetch_add(1, Ordering::Relaxed);
            return Some(status);
        };
        files.iter().for_each(|(_, of)| told += &format!("\n  {of}"));
        let kept: Vec<PathBuf> = paths.iter().map(|path| keep(path)).collect();
        let kept: Vec<&Path> = kept.iter().map(PathBuf::as_path).collect();
        let again = command.arguments(&kept, "/tmp/out").join("' '");
        told += &format!("\n  again: sh -c 'ulimit -v {MEMORY_KIB}; exec timeout {SECONDS} \"$0\" \"$@\"'");
        told += &format!(" {} '{again}'", program().display());
        say(&format!("finding: {told}"));
        self.findings.told.lock().unwrap().push(told);
        None
    }

    fn clear(&self, prefix: &str) {
        for name in self.scratch.names().iter().filter(|name| name.starts_with(prefix)) {
            fs::remove_file(self.scratch.file(name)).unwrap();
        }
    }
}

/// A copy of a mutant that stays.
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

/// Does so many things on all processors; what was found.
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

/// At once, and past the test harness.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn mutants() -> u64 {
    number("LINERATE_MUTANTS").unwrap_or(USUAL)
}

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is a number, not {text:?}")))
}
