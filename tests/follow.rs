//! `linerate streams`: the same bytes as tshark, tcpflow and a naive model; files, records, conversations, failures.

mod agreement;
mod failures;
mod naive;
mod outputs;
mod traffic;

use linerate_tests::support::Scratch;
use linerate_tests::support::program::run;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::read_to_string;

/// Source address and port, destination address and port.
type Pair = (String, u16, String, u16);

/// Index entry of a stream, and the content of its file.
#[derive(Clone, Debug)]
struct Indexed {
    entry: Value,
    bytes: Vec<u8>,
}

/// Streams with data in a folder, by direction, in order of their connections.
fn indexed(folder: &str) -> BTreeMap<Pair, Vec<Indexed>> {
    let mut streams: BTreeMap<Pair, Vec<Indexed>> = BTreeMap::new();
    for line in read_to_string(format!("{folder}/streams.jsonl")).unwrap().lines() {
        let entry: Value = serde_json::from_str(line).unwrap();
        let Some(file) = entry["file"].as_str() else { continue };
        let bytes = std::fs::read(format!("{folder}/{file}")).unwrap();
        let end = |name: &str| {
            (entry[name].as_str().unwrap().to_owned(), entry[format!("{name}_port")].as_u64().unwrap() as u16)
        };
        let ((src, src_port), (dst, dst_port)) = (end("src"), end("dst"));
        streams.entry((src, src_port, dst, dst_port)).or_default().push(Indexed { entry, bytes });
    }
    let number = |one: &Indexed| one.entry["connection"].as_u64();
    streams.values_mut().for_each(|streams| streams.sort_by_key(number));
    streams
}

/// Streams that the program writes for a capture.
fn followed(scratch: &Scratch, capture: &str, options: &[&str]) -> BTreeMap<Pair, Vec<Indexed>> {
    let folder = scratch.file("streams");
    let _ = std::fs::remove_dir_all(&folder);
    run(&[&["streams", "-q", "-r", capture, "-w", &folder], options].concat()).good();
    indexed(&folder)
}
