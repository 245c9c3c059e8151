//! Every capture compared with `capinfos`; one capture in parts compared with the whole.

use linerate_tests::support::program::{linerate, run, spawn};
use linerate_tests::support::{Scratch, corpus, files, has_tools, tool};
use serde_json::Value;
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Captures for which `capinfos` counts fewer bytes, by this many per frame: it omits the pseudo-header of SunATM.
const PSEUDO_HEADERS: [(&str, u64); 3] = [
    ("tcpdump/atm-heapoverflow.pcap", 4),
    ("tcpdump/atm-oam-heapoverflow.pcap", 4),
    ("tcpdump/atm-oam-loopback-print-overrun.pcap", 4),
];
/// Captures that `capinfos` cannot count because it does not know their link type.
const UNKNOWN: [&str; 14] = [
    "tcpdump/brcm-tag-prepend.pcap",
    "tcpdump/brcm-tag.pcap",
    "tcpdump/dsa-high-vid.pcap",
    "tcpdump/dsa.pcap",
    "tcpdump/edsa-high-vid.pcap",
    "tcpdump/edsa.pcap",
    "tcpdump/frf16_magic_ie-oobr.pcap",
    "tcpdump/hoobr_juniper3.pcap",
    "tcpdump/juniper_es_oobr.pcap",
    "tcpdump/juniper_monitor_invalid_cookie_length.pcap",
    "tcpdump/kday6.pcap",
    "tcpdump/vtp_asan-2.pcap",
    "tcpdump/vtp_asan-3.pcap",
    "tcpdump/vtp_asan.pcap",
];

#[test]
fn frames_and_bytes_match_capinfos() {
    let Some(root) = corpus("") else { return };
    if !has_tools(&["capinfos"]) {
        return;
    }
    let captures: Vec<PathBuf> = files(&root).into_iter().filter(|path| is_capture(path)).collect();
    let counted = capinfos(&captures);
    let (next, cores) = (AtomicUsize::new(0), thread::available_parallelism().map_or(1, usize::from));
    thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(path) = captures.get(next.fetch_add(1, Ordering::Relaxed)) {
                    compare(&root, path, counted.get(path).copied());
                }
            });
        }
    });
    println!("{} captures, {} known to capinfos", captures.len(), counted.len());
    assert!(captures.len() > 900, "{} captures", captures.len());
}

/// States that Zeek gives its own test traces (`testing/btest/Baseline` of zeek/zeek).
#[test]
fn connection_states_are_those_of_zeek() {
    for (name, state) in [
        ("single-rst.pcap", "OTH"),
        ("syn-then-rst.pcap", "RSTOS0"),
        ("syn-then-ack-then-rst.pcap", "RSTOS0"),
        ("syn-then-stuff-then-rst.pcap", "OTH"),
        ("missing-syn.pcap", "SF"),
    ] {
        let Some(path) = corpus(&format!("zeek/{name}")) else { return };
        let scratch = Scratch::new();
        let log = scratch.file("conn.log");
        run(&["flows", "-q", "-r", text(&path), "-w", &log]).good();
        let states: Vec<String> = std::fs::read_to_string(&log)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["conn_state"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(states, [state], "{name}");
    }
}

#[test]
fn split_capture_gives_the_same_records() {
    let Some(whole) = corpus("real-mix.pcap") else { return };
    if !has_tools(&["editcap"]) {
        return;
    }
    let (wanted, scratch) = (records(&["-r", text(&whole)]), Scratch::new());
    for frames in ["5000", "20000"] {
        let folder = scratch.file(frames);
        std::fs::create_dir(&folder).unwrap();
        tool("editcap", &["-F", "nsecpcap", "-c", frames, text(&whole), &format!("{folder}/part.pcap")]);
        let parts = files(Path::new(&folder));
        assert!(parts.len() > 1, "{parts:?}");
        let arguments: Vec<&str> = parts.iter().flat_map(|part| ["-r", text(part)]).collect();
        assert_same(&format!("parts of {frames} frames"), &records(&arguments), &wanted);
    }
}

#[test]
fn piped_capture_gives_the_same_records() {
    let Some(whole) = corpus("real-mix.pcap") else { return };
    let (wanted, file) = (records(&["-r", text(&whole)]), std::fs::read(&whole).unwrap());
    for piece in [701, 40_009] {
        let scratch = Scratch::new();
        let output = scratch.file("records.jsonl");
        let arguments = ["flows", "-r", "-", "--write", &output, "--json", "--id-seed", "t"];
        let mut running = spawn(linerate(&arguments).stdin(Stdio::piped()).stdout(Stdio::piped()));
        let mut input = running.take_input().expect("a pipe");
        for piece in file.chunks(piece) {
            input.write_all(piece).expect("a running program");
        }
        drop(input);
        running.end().good();
        let got = std::fs::read_to_string(output).unwrap();
        assert_same(&format!("pieces of {piece} bytes"), &sorted(&got), &wanted);
    }
}

fn is_capture(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ["pcap", "pcapng", "cap"].iter().any(|known| ending == *known))
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path in UTF-8")
}

/// Returns frames and wire bytes of each capture that `capinfos` can read.
fn capinfos(captures: &[PathBuf]) -> HashMap<PathBuf, [u64; 2]> {
    // Its exit status is a failure if any capture cannot be read.
    let output = Command::new("capinfos").args(["-T", "-r", "-M", "-K", "-c", "-d"]).args(captures).output();
    let output = output.expect("capinfos");
    let line = |line: &str| {
        let words: Vec<&str> = line.split('\t').collect();
        let [path, frames, bytes] = words[..] else { panic!("capinfos printed {line:?}") };
        (
            path.into(),
            [frames, bytes].map(|number| number.parse().unwrap_or_else(|_| panic!("capinfos printed {line:?}"))),
        )
    };
    String::from_utf8_lossy(&output.stdout).lines().map(line).collect()
}

/// Fails unless frames and bytes match `capinfos`.
fn compare(root: &Path, path: &Path, wanted: Option<[u64; 2]>) {
    let name = text(path.strip_prefix(root).expect("a file of the corpus"));
    let got = metered(path);
    let Some([frames, bytes]) = wanted else {
        assert!(UNKNOWN.contains(&name), "{name}: capinfos cannot read it");
        assert!(got[0] > 0, "{name}: no frame");
        return;
    };
    let more = PSEUDO_HEADERS.iter().find(|(other, _)| *other == name).map_or(0, |(_, more)| more * frames);
    assert_eq!(got, [frames, bytes + more], "{name}: frames and bytes");
}

/// Returns frames and bytes of outermost records, unknown links, non-IP and malformed frames.
fn metered(path: &Path) -> [u64; 2] {
    let ended = run(&["flows", "-r", text(path), "--max-flows", "16384", "--write", "-", "--json"]).good();
    let summary: Value =
        serde_json::from_str(&ended.errors).unwrap_or_else(|error| panic!("{error}: {}", ended.errors));
    let number = |json: &Value, name: &str| json[name].as_u64().unwrap_or_else(|| panic!("no {name}: {json}"));
    let mut sums = [["unknown_link", "not_ip", "malformed"], ["unknown_link_bytes", "not_ip_bytes", "malformed_bytes"]]
        .map(|names| names.map(|name| number(&summary, name)).iter().sum::<u64>());
    for line in ended.output.lines() {
        let record: Value = serde_json::from_str(line).expect("a line of JSON");
        for side in [&record["orig"], &record["resp"]].into_iter().filter(|_| record["tunnel"].is_null()) {
            sums[0] += number(side, "packets");
            sums[1] += number(side, "frame_bytes");
        }
    }
    sums
}

/// Returns the records of a run, sorted as text.
fn records(arguments: &[&str]) -> Vec<String> {
    sorted(&run(&[&["flows", "--write", "-", "--id-seed", "t"], arguments].concat()).good().output)
}

fn sorted(lines: &str) -> Vec<String> {
    let mut lines: Vec<String> = lines.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Fails with the first difference unless both lists are equal.
fn assert_same(what: &str, got: &[String], wanted: &[String]) {
    let differs = got.iter().zip(wanted).find(|(got, wanted)| got != wanted);
    assert_eq!(differs, None, "{what}: the first records that differ");
    assert_eq!(got.len(), wanted.len(), "{what}: the number of records");
    assert!(wanted.len() > 1000, "{what}: {} records", wanted.len());
}
