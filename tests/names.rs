//! What flows say of themselves, beside what tshark reads in the same captures.
//!
//! By conversation (its ports): the first server name, the first question of DNS and the addresses of its answer, the first host, method and status of HTTP, the lines of
//! SSH. Where we differ, and why, stands in [`DIFFERENCES`]. The corpus is found through `LINERATE_CORPUS`.

mod differences;
mod resolved;
mod tshark;

use differences::DIFFERENCES;
use linerate_tests::support::program::run;
use linerate_tests::support::{corpus, has_tools};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A field of a conversation, by its ports, the lower one first: what it is, and its value.
pub(crate) type Told = (u64, u64, &'static str, String);

/// Fields of our records, and what they are called here.
const FIELDS: [(&str, &str, &str); 9] = [
    ("tls", "server_name", "sni"),
    ("tls", "alpn", "alpn"),
    ("dns", "query", "query"),
    ("dns", "addresses", "addresses"),
    ("http", "host", "host"),
    ("http", "method", "method"),
    ("http", "status", "status"),
    ("ssh", "client", "ssh"),
    ("ssh", "server", "ssh"),
];

/// Captures compared, and values in them, at least.
const AT_LEAST: (usize, usize) = (100, 1530);

/// tshark processes at a time.
const PROCESSES: usize = 2;

#[test]
fn names_are_those_that_tshark_reads() {
    let Some(folder) = corpus(".") else { return };
    if !has_tools(&["tshark"]) {
        return;
    }
    let all = tshark::CAPTURES.iter().flat_map(|(name, files)| files.iter().map(move |file| (name, file)));
    let captures: Vec<PathBuf> = all.map(|(name, file)| folder.join(name).join(file)).collect();
    let (next, found) = (AtomicUsize::new(0), Mutex::new((0, BTreeSet::new())));
    std::thread::scope(|scope| {
        for _ in 0..PROCESSES {
            scope.spawn(|| {
                while let Some(capture) = captures.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (theirs, ours) = (tshark::told(capture), told(capture));
                    let name = capture.file_name().unwrap().to_string_lossy().into_owned();
                    let mut found = found.lock().unwrap();
                    found.0 += theirs.len();
                    for (side, one, other) in [("tshark", &theirs, &ours), ("linerate", &ours, &theirs)] {
                        let more = one.difference(other).map(|(_, _, field, _)| (name.clone(), side, *field));
                        found.1.extend(more);
                    }
                }
            });
        }
    });
    let (values, differences) = found.into_inner().unwrap();
    println!("{values} values in {} captures", captures.len());
    let known: BTreeSet<_> = DIFFERENCES.iter().flat_map(|row| row.all()).collect();
    let unknown: Vec<_> = differences.difference(&known).collect();
    let gone: Vec<_> = known.difference(&differences).collect();
    assert!(unknown.is_empty(), "capture, who alone says something, field: {unknown:#?}");
    assert!(gone.is_empty(), "differences that are none any more: {gone:#?}");
    assert!(captures.len() >= AT_LEAST.0 && values >= AT_LEAST.1, "{values} values in {} captures", captures.len());
}

/// What our records say.
fn told(capture: &Path) -> BTreeSet<Told> {
    let path = capture.to_str().unwrap();
    let lines = run(&["flows", "-q", "-r", path, "--names", "all", "-w", "-"]).good().output;
    let mut all = BTreeSet::new();
    for line in lines.lines() {
        let flow: Value = serde_json::from_str(line).unwrap();
        let [one, other] = ["orig_port", "resp_port"].map(|name| flow[name].as_u64().unwrap());
        for (group, field, name) in FIELDS {
            let value = match &flow[group][field] {
                Value::String(text) if name == "addresses" => sorted(text),
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => continue,
            };
            all.insert((one.min(other), one.max(other), name, value));
        }
    }
    all
}

/// A list with commas between, in an order of its own.
fn sorted(list: &str) -> String {
    let mut all: Vec<&str> = list.split(',').filter(|one| !one.is_empty()).collect();
    all.sort_unstable();
    all.join(",")
}

/// The same records, whoever meters and however frames come.
#[test]
fn names_do_not_depend_on_workers() {
    let Some(folder) = corpus("real-mix.pcap") else { return };
    let path = folder.to_str().unwrap().to_owned();
    let records = |workers: &str| {
        let words = ["flows", "-q", "-r", &path, "--names", "all", "--id-seed", "x", "--workers", workers, "-w", "-"];
        let text = run(&words).good().output;
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    let one = records("1");
    assert!(one.iter().filter(|line| line.contains("\"service\"")).count() > 400, "there are names");
    assert!(one.iter().filter(|line| line.contains("\"resolved\"")).count() > 20, "there are names of addresses");
    assert_eq!(one, records("4"));
}
