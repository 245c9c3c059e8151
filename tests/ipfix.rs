//! Flow records exchanged with other programs: collectors, IPFIX files, and text formats.
//!
//! - `text`: CSV and Zeek TSV, read by other programs;
//! - `exporter`: IPFIX and NetFlow v9 compared with JSON of the same capture, read by an independent decoder, `nfcapd` and
//!   `tshark`; collectors that disappear;
//! - `keys`: sums per flow key over the corpus compared with `nfdump`;
//! - `live`: metrics and log lines during a run;
//! - `collector`: records of other exporters read back as flows.

mod collector;
mod exporter;
mod keys;
mod live;
mod text;

use linerate_tests::support::corpus;
use linerate_tests::support::program::run;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Capture of real traffic with many protocols.
fn mix() -> Option<String> {
    Some(corpus("real-mix.pcap")?.to_str()?.to_owned())
}

/// Fixed seed for flow ids.
const SEED: [&str; 2] = ["--id-seed", "t"];

/// Runs `flows` on a capture with more arguments and returns its records.
fn flows_of(capture: &str, more: &[&str]) -> Vec<Value> {
    let arguments = [&["flows", "-r", capture, "-w", "-", "-q"][..], &SEED, more].concat();
    lines(&run(&arguments).good().output)
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn lines_of(path: &str) -> Vec<Value> {
    lines(&std::fs::read_to_string(path).unwrap())
}

/// Sum over both directions of all flows.
fn sum(flows: &[Value], name: &str) -> u64 {
    let of = |flow: &Value| ["orig", "resp"].iter().map(|side| flow[side][name].as_u64().unwrap()).sum::<u64>();
    flows.iter().map(of).sum()
}

/// Number of directions with packets.
fn directions(flows: &[Value]) -> u64 {
    let has = |flow: &Value, side: &str| u64::from(flow[side]["packets"] != 0);
    flows.iter().map(|flow| has(flow, "orig") + has(flow, "resp")).sum()
}

/// Runs a Python script and parses the JSON that it prints.
fn python(script: &str, arguments: &[&str]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("ipfix").join(script);
    let output = Command::new("python3").arg(script).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
