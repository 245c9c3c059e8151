//! Writers and readers of rings, and numbered frames.

use linerate_tests::support::program::{Ended, Running, launch, linerate, spawn, start};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::{Scratch, has_peer, has_tools, wait_until};
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of flows, each in both directions.
pub(super) const FLOWS: u32 = 61;
/// Offset of a frame's number.
const NUMBER: usize = 42;
/// Number of different lengths; they repeat after as many frames.
const LENGTHS: u32 = 190;
/// Time of the first frame: 2023-11-14 22:13:20 UTC.
const START: u64 = 1_700_000_000_000_000_000;

/// A unique name of a ring.
pub(super) fn ring_name() -> String {
    static MADE: AtomicU32 = AtomicU32::new(0);
    format!("tests-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed))
}

/// A UDP frame with its number in it, of one of [`FLOWS`] flows and many lengths.
pub(super) fn frame(number: u32) -> Record {
    let (flow, back) = ((number % FLOWS) as u8, number / FLOWS % 2 == 1);
    let ends = [([10, 0, 0, flow], 1000 + u16::from(flow)), ([10, 1, 0, flow], 53)];
    let (from, to) = if back { (ends[1], ends[0]) } else { (ends[0], ends[1]) };
    let payload = 18 + (number % LENGTHS) as u16;
    let mut bytes = [0x02, 0, 0, 0, 0, 0x0b, 0x02, 0, 0, 0, 0, 0x0a, 0x08, 0, 0x45, 0].to_vec();
    bytes.extend((28 + payload).to_be_bytes());
    bytes.extend([0, 1, 0, 0, 64, 17, 0, 0]);
    bytes.extend([from.0, to.0].concat());
    bytes.extend([from.1, to.1, 8 + payload, 0].map(u16::to_be_bytes).concat());
    bytes.extend(number.to_be_bytes());
    bytes.extend((4..payload).map(|at| (at ^ number as u16) as u8));
    Record { time: START + u64::from(number) * 1000, wire: bytes.len() as u32, bytes }
}

/// Frames of these numbers.
pub(super) fn frames(numbers: Range<u32>) -> Vec<Record> {
    numbers.map(frame).collect()
}

/// The number in a frame.
pub(super) fn number(record: &Record) -> u32 {
    u32::from_be_bytes(record.bytes[NUMBER..NUMBER + 4].try_into().unwrap())
}

/// Asserts that these are all frames of these numbers, in order, with their times.
pub(super) fn assert_all(what: &str, got: &[Record], numbers: Range<u32>) {
    for (got, wanted) in got.iter().zip(numbers.clone()) {
        assert!(*got == frame(wanted), "{what}: number {} in place of {wanted}", number(got));
    }
    assert_eq!(got.len(), numbers.len(), "{what}: wrong number of frames");
}

/// Starts a writer that shares a file and waits for `readers` readers.
pub(super) fn share_file(file: &str, name: &str, readers: u32, arguments: &[&str]) -> Running {
    let wait = readers.to_string();
    let base = ["capture", "-r", file, "--share", name, "--share-wait", &wait, "--lossless-readers", "--json"];
    start(&[&base, patient(arguments), arguments].concat())
}

/// A patience for busy machines, unless a test sets its own.
fn patient(arguments: &[&str]) -> &'static [&'static str] {
    if arguments.contains(&"--share-timeout") { &[] } else { &["--share-timeout", "60"] }
}

/// Starts a reader of a ring that writes a file.
pub(super) fn read_ring(port: &str, file: &str, arguments: &[&str]) -> Running {
    launch(&[&["capture", "-i", port, "-w", file, "--json"], arguments].concat())
}

/// The port of a ring for a lossless reader.
pub(super) fn lossless(name: &str) -> String {
    format!("shm:{name}?mode=lossless")
}

/// A writer that the test feeds with frames in order of their numbers.
pub(super) struct Feed {
    pub running: Running,
    input: ChildStdin,
    sent: u32,
}

impl Feed {
    /// Starts the writer and waits until readers can attach.
    pub(super) fn start(name: &str, readers: u32, arguments: &[&str]) -> Feed {
        let wait = readers.to_string();
        let base = ["capture", "-r", "-", "--share", name, "--share-wait", &wait, "--lossless-readers", "--json"];
        let mut command = linerate(&[&base, patient(arguments), arguments].concat());
        let mut running = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        running.wait_until_open();
        let mut input = running.take_input().expect("a pipe");
        input.write_all(&records::header()).expect("a running program");
        Feed { running, input, sent: 0 }
    }

    /// Frames sent so far.
    pub(super) fn sent(&self) -> u32 {
        self.sent
    }

    /// Sends the next `count` frames; blocks while the writer does not read.
    pub(super) fn send(&mut self, count: u32) {
        self.input.write_all(&records::body(&frames(self.sent..self.sent + count))).expect("a running program");
        self.sent += count;
    }

    /// Closes the input and waits for the writer's end.
    pub(super) fn end(self) -> Ended {
        drop(self.input);
        self.running.end()
    }
}

/// Waits until a pcap file holds frames `0..count`.
pub(super) fn wait_for_frames(file: &str, count: u32) {
    let size = records::file_size(&frames(0..count));
    wait_until(&format!("{count} frames are in {file}"), || {
        std::fs::metadata(file).is_ok_and(|data| data.len() >= size)
    });
}

/// A writer's account of one of its readers.
#[derive(Debug)]
pub(super) struct Account {
    pub subject: String,
    pub received: u64,
    pub finished: u64,
    pub reclaimed: u64,
    pub outstanding: u64,
    pub skipped: u64,
    pub waits: u64,
}

/// Returns the accounts of a writer's readers, after checking all sums.
pub(super) fn accounts(json: &Value) -> Vec<Account> {
    assert_eq!((&json["balanced"], &json["quiesced"]), (&Value::Bool(true), &Value::Bool(true)), "{json:#}");
    let of = |value: &Value| value.as_u64().unwrap_or(0);
    let accounts = json["accounts"].as_array().expect("accounts").iter().filter(|account| account["stage"] == "reader");
    accounts
        .map(|account| {
            let drops = &account["drops"];
            let account = Account {
                subject: account["subject"].as_str().expect("a subject").to_owned(),
                received: of(&account["received"]),
                finished: of(&account["delivered"]),
                reclaimed: of(&drops["reclaimed"]),
                outstanding: of(&drops["outstanding"]),
                skipped: of(&drops["skipped"]),
                waits: of(&account["notes"]["waits"]),
            };
            let Account { received, finished, reclaimed, outstanding, skipped, .. } = account;
            assert_eq!(received, finished + reclaimed + outstanding + skipped, "{account:?}");
            account
        })
        .collect()
}

/// The account of the reader with this process id.
pub(super) fn account_of(json: &Value, pid: u32) -> Account {
    let own = format!("(pid {pid})");
    let found = accounts(json).into_iter().find(|account| account.subject.ends_with(&own));
    found.unwrap_or_else(|| panic!("{pid} has no account in {json:#}"))
}

/// The reader in C.
pub(super) fn ring_cat() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| compile_cat("ring_cat", &[]).unwrap_or_else(|errors| panic!("{errors}")))
}

/// Compiles the reader in C with further options; returns the compiler's errors if it fails.
pub(super) fn compile_cat(name: &str, options: &[&str]) -> Result<PathBuf, String> {
    compile(name, "ring_cat.c", options)
}

/// Compiles an example in C and its library, with all warnings as errors.
pub(super) fn compile(name: &str, example: &str, options: &[&str]) -> Result<PathBuf, String> {
    static PLACE: OnceLock<Scratch> = OnceLock::new();
    let program = PLACE.get_or_init(Scratch::new).file(name);
    let flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2", "-I", "c", "-o", &program];
    let example = format!("examples/c/{example}");
    let sources = [example.as_str(), "c/linerate_ring.c"];
    let output = Command::new("cc").args(flags).args(options).args(sources).current_dir(root()).output();
    let output = output.expect("cc, which Rust needs for linking, is on the PATH");
    if output.status.success() { Ok(program.into()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Compiler options that abort at the first invalid access; not every compiler supports them.
pub(super) const SANITIZERS: [&str; 3] = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g"];

/// The root of the sources.
pub(super) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// The reader in Python: `tests/share/ring_cat.py`, with the arguments and output of `ring_cat`. `None` if NumPy is
/// required and missing.
pub(super) fn python_cat(numpy: bool) -> Option<Command> {
    let mut command = python(numpy)?;
    command.arg(root().join("tests/share/ring_cat.py"));
    Some(command)
}

/// Python with the package of this repository, and with NumPy from scripts/setup peers if asked for.
pub(super) fn python(numpy: bool) -> Option<Command> {
    let own = root().join("target/python/bin/python");
    if numpy && !has_peer(own.exists(), "NumPy in target/python") {
        return None;
    }
    if !numpy && !has_tools(&["python3"]) {
        return None;
    }
    let mut command = if numpy { Command::new(own) } else { Command::new("python3") };
    // -S leaves out installed packages.
    command.args(if numpy { &[][..] } else { &["-S"] });
    command.env("PYTHONPATH", root().join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    Some(command)
}

/// Starts the reader in C with standard output to a file.
pub(super) fn cat_into(file: &str, arguments: &[&str]) -> Running {
    into_file(Command::new(ring_cat()), file, arguments)
}

/// Starts a prepared reader with standard output to a file.
pub(super) fn into_file(mut command: Command, file: &str, arguments: &[&str]) -> Running {
    spawn(command.args(arguments).stdout(File::create(file).expect("a file")))
}
