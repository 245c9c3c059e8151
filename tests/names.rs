//! Application names of flows compared with tshark on the same captures.
//!
//! Compared per conversation (by ports): first server name, first DNS question and the addresses of its answer, first
//! HTTP host, method and status, SSH banners. [`DIFFERENCES`] lists known differences. `LINERATE_CORPUS` is the corpus.

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

/// A field of a conversation: lower port, higher port, field name, value.
pub(crate) type NamedValue = (u64, u64, &'static str, String);

/// Fields of flow records, and their names in this test.
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

/// Minimum number of captures and of values compared.
const AT_LEAST: (usize, usize) = (100, 1530);

/// Parallel tshark processes.
const PROCESSES: usize = 2;

#[test]
fn names_match_tshark() {
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
                    let (theirs, ours) = (tshark::names(capture), flow_names(capture));
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
    assert!(unknown.is_empty(), "capture, program with additional values, field: {unknown:#?}");
    assert!(gone.is_empty(), "rows of DIFFERENCES without a difference: {gone:#?}");
    assert!(captures.len() >= AT_LEAST.0 && values >= AT_LEAST.1, "{values} values in {} captures", captures.len());
}

/// Named values of linerate's flow records.
fn flow_names(capture: &Path) -> BTreeSet<NamedValue> {
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

/// Sorts a comma-separated list.
fn sorted(list: &str) -> String {
    let mut all: Vec<&str> = list.split(',').filter(|one| !one.is_empty()).collect();
    all.sort_unstable();
    all.join(",")
}

/// Records are the same for any number of workers.
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
    assert!(one.iter().filter(|line| line.contains("\"service\"")).count() > 400, "flows with names");
    assert!(one.iter().filter(|line| line.contains("\"resolved\"")).count() > 20, "flows with resolved addresses");
    assert_eq!(one, records("4"));
}
