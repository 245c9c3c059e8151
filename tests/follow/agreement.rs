//! Streams of corpus captures compared with tshark, tcpflow and the naive model.

use super::{Indexed, Pair, followed, naive};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::{Scratch, corpus, files, has_tools};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Timeouts that never expire.
const PATIENT: &[&str] = &["--gap-wait", "100000000", "--idle", "100000000"];

/// Little-endian pcap files with Ethernet, which the test support can read.
fn captures(folder: &Path) -> Vec<(String, Vec<Record>)> {
    let mut captures = Vec::new();
    for path in files(folder) {
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let is_plain =
            [[0xd4, 0xc3, 0xb2, 0xa1], [0x4d, 0x3c, 0xb2, 0xa1]].iter().any(|magic| bytes.starts_with(magic));
        // One file is a merge of all others; the model does not support routing headers.
        let is_left_out = ["real-mix", "routing-header"].iter().any(|name| path.to_string_lossy().contains(name));
        if is_plain && !is_left_out && bytes.get(20..24) == Some(&[1, 0, 0, 0]) {
            captures.push((path.to_str().unwrap().to_owned(), records::parse(&bytes)));
        }
    }
    captures
}

fn plain(streams: &BTreeMap<Pair, Vec<Indexed>>) -> BTreeMap<Pair, Vec<Vec<u8>>> {
    let bytes = |all: &Vec<Indexed>| all.iter().map(|one| one.bytes.clone()).collect();
    streams.iter().map(|(pair, all)| (pair.clone(), bytes(all))).collect()
}

#[test]
fn streams_match_the_naive_model() {
    let Some(folder) = corpus(".") else { return };
    let (scratch, mut compared, mut wrong) = (Scratch::new(), (0, 0, 0), Vec::new());
    for (path, records) in captures(&folder) {
        // The model does not support tunnels; neither side reassembles fragments.
        if !records.iter().any(|record| naive::segment(record).is_some_and(|segment| !segment.payload.is_empty())) {
            continue;
        }
        let wanted = naive::streams(&records);
        let mut found = followed(&scratch, &path, PATIENT);
        found.retain(|_, streams| streams.iter().all(|one| one.entry["inner"] == false));
        let found = plain(&found);
        compared = (
            compared.0 + 1,
            compared.1 + wanted.len(),
            compared.2 + wanted.values().flatten().map(Vec::len).sum::<usize>(),
        );
        let keys = wanted.keys().chain(found.keys()).collect::<std::collections::BTreeSet<_>>();
        for pair in keys {
            if wanted.get(pair) != found.get(pair) {
                let lens = |all: Option<&Vec<Vec<u8>>>| all.map(|all| all.iter().map(Vec::len).collect::<Vec<_>>());
                wrong.push(format!("{path} {pair:?}: {:?} {:?}", lens(wanted.get(pair)), lens(found.get(pair))));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared.0 > 150 && compared.1 > 1000 && compared.2 > 5_000_000, "{compared:?}");
}

/// Streams of a capture from `tshark -z follow,tcp,raw`.
fn tshark_streams(path: &str) -> BTreeMap<Pair, Vec<Vec<u8>>> {
    let output = |arguments: &[String]| {
        let out = Command::new("tshark").args(arguments).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let numbers = output(&[words(&format!("-r {path}")), words("-T fields -e tcp.stream")].concat());
    let count = numbers
        .split_whitespace()
        .flat_map(|line| line.split(','))
        .filter_map(|number| number.parse::<u32>().ok())
        .max();
    let mut streams: BTreeMap<Pair, Vec<Vec<u8>>> = BTreeMap::new();
    let all: Vec<u32> = (0..count.map_or(0, |last| last + 1)).collect();
    for some in all.chunks(200) {
        let asked: Vec<String> = some.iter().flat_map(|number| words(&format!("-z follow,tcp,raw,{number}"))).collect();
        let text = output(&[words(&format!("-q -r {path}")), asked].concat());
        for block in text.split(&"=".repeat(67)).filter(|block| block.contains("Follow: tcp,raw")) {
            let (mut ends, mut bytes) = (Vec::new(), [Vec::new(), Vec::new()]);
            for line in block.trim().lines() {
                if let Some(end) = line.strip_prefix("Node ") {
                    let (address, port) = end[3..].rsplit_once(':').unwrap();
                    let address = address.trim_matches(['[', ']']);
                    ends.push(address.parse::<std::net::IpAddr>().ok().zip(port.parse::<u16>().ok()));
                } else if !line.starts_with("Follow") && !line.starts_with("Filter") {
                    let side = usize::from(line.starts_with('\t'));
                    let digits = line.trim().as_bytes();
                    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap();
                    bytes[side].extend(digits.chunks(2).map(byte));
                }
            }
            let [Some(one), Some(other)] = ends[..] else { continue };
            for ((from, to), bytes) in
                [(one, other), (other, one)].into_iter().zip(bytes).filter(|(_, bytes)| !bytes.is_empty())
            {
                let pair = (from.0.to_string(), from.1, to.0.to_string(), to.1);
                streams.entry(pair).or_default().push(bytes);
            }
        }
    }
    streams
}

/// Compares only complete streams: tshark shows streams with gaps up to the acknowledged byte.
#[test]
fn complete_streams_match_tshark() {
    let Some(folder) = corpus("ndpi") else { return };
    if !has_tools(&["tshark"]) {
        return;
    }
    let (scratch, mut compared) = (Scratch::new(), (0, 0));
    for name in [
        "alexa-app.pcapng",
        "netflix.pcap",
        "reddit.pcap",
        "wechat.pcap",
        "instagram.pcap",
        "vnc.pcap",
        "telegram.pcap",
    ] {
        let path = folder.join(name).to_str().unwrap().to_owned();
        let (found, wanted) = (followed(&scratch, &path, &[]), tshark_streams(&path));
        for (pair, streams) in found {
            let is_whole = |one: &Indexed| one.entry["missing"] == 0 && one.entry["began"] == "start";
            if streams.iter().all(is_whole) {
                let bytes: Vec<Vec<u8>> = streams.iter().map(|one| one.bytes.clone()).collect();
                compared = (compared.0 + bytes.len(), compared.1 + bytes.iter().map(Vec::len).sum::<usize>());
                assert!(wanted.get(&pair) == Some(&bytes), "{name} {pair:?}");
            }
        }
    }
    assert!(compared.0 > 400 && compared.1 > 2_000_000, "{compared:?}");
}

/// tshark prefers the segment that begins earlier if overlapping data differs.
#[test]
fn conflicting_overlaps_match_tshark() {
    let Some(path) = corpus("zeek/reassembly.pcap") else { return };
    if !has_tools(&["tshark"]) {
        return;
    }
    let (scratch, path) = (Scratch::new(), path.to_str().unwrap());
    let wanted: Vec<Vec<u8>> = tshark_streams(path).into_values().flatten().collect();
    let text = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    let without_marks = |bytes: &Vec<u8>| {
        let text = text(bytes);
        text.split('[')
            .map(|part| part.rsplit_once("capture file]").map_or(part, |(_, rest)| rest.trim_start_matches('\0')))
            .collect::<String>()
    };
    for (policy, agrees) in [("bsd", true), ("linux", true), ("first", false), ("last", false)] {
        let found = plain(&followed(&scratch, path, &["--overlap", policy, "--gaps", "skip"]));
        let found: Vec<String> = found.values().flatten().map(text).collect();
        assert_eq!(found == wanted.iter().map(without_marks).collect::<Vec<_>>(), agrees, "{policy}");
    }
}

/// Frames are written without padding, which tcpflow takes for data, and without tagged frames, which it ignores.
#[test]
fn files_match_tcpflow() {
    let Some(folder) = corpus("ndpi") else { return };
    if !has_tools(&["tcpflow"]) {
        return;
    }
    let (scratch, mut compared) = (Scratch::new(), 0);
    for (_, mut records) in captures(&folder).into_iter().take(60) {
        records.retain_mut(|record| {
            let is_tagged = record.bytes.get(12..14) == Some(&[0x81, 0]);
            let Some(end) = naive::segment(record).map(|segment| segment.end) else { return false };
            record.bytes.truncate(end);
            record.wire = end as u32;
            !is_tagged
        });
        let (input, theirs) = (scratch.file("plain.pcap"), scratch.file("theirs"));
        let _ = std::fs::remove_dir_all(&theirs);
        records::write(&input, &records);
        Command::new("tcpflow").args(["-q", "-r", &input, "-o", &theirs]).output().unwrap();
        for streams in followed(&scratch, &input, &[]).into_values() {
            let [one] = &streams[..] else { continue };
            let name = one.entry["file"].as_str().unwrap();
            let is_plain = one.entry["missing"] == 0 && one.entry["began"] == "start" && one.entry["beyond"] == 0;
            if is_plain && let Ok(bytes) = std::fs::read(format!("{theirs}/{name}")) {
                assert!(bytes == one.bytes, "{name}: {} bytes, tcpflow has {}", one.bytes.len(), bytes.len());
                compared += 1;
            }
        }
    }
    assert!(compared > 100, "{compared}");
}
