//! Flow records to and from others: collectors, files of IPFIX, and text that other programs read.
//!
//! - `text`: CSV and Zeek's own lines, read by other programs;
//! - `sent`: IPFIX and NetFlow v9 beside JSON of the same capture: by a decoder of its own, `nfcapd`, `tshark`, and by collectors
//!   that go away;
//! - `keys`: all captures of the corpus by key, beside `nfdump`;
//! - `live`: what is said while records come and go;
//! - `taken`: what others sent becomes the same flows.

mod keys;
mod live;
mod sent;
mod taken;
mod text;

use linerate_tests::support::corpus;
use linerate_tests::support::program::run;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Real traffic of many protocols.
fn mix() -> Option<String> {
    Some(corpus("real-mix.pcap")?.to_str()?.to_owned())
}

/// The same flows in each run.
const SEED: [&str; 2] = ["--id-seed", "t"];

/// The flows of a capture as lines of JSON, with more arguments.
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

/// A sum over both directions of all flows.
fn sum(flows: &[Value], name: &str) -> u64 {
    let of = |flow: &Value| ["orig", "resp"].iter().map(|side| flow[side][name].as_u64().unwrap()).sum::<u64>();
    flows.iter().map(of).sum()
}

/// Directions that had packets.
fn directions(flows: &[Value]) -> u64 {
    let has = |flow: &Value, side: &str| u64::from(flow[side]["packets"] != 0);
    flows.iter().map(|flow| has(flow, "orig") + has(flow, "resp")).sum()
}

/// What Python prints, as JSON.
fn python(script: &str, arguments: &[&str]) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("ipfix").join(script);
    let output = Command::new("python3").arg(script).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
