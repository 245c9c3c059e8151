//! Shards, slices and deduplication.

use linerate_headers::build::{Frame, Header};
use linerate_headers::{MacAddr, ethernet, ipv4, ipv6, tcp, udp, vlan, vxlan};
use linerate_tests::support::program::{Ended, run};
use linerate_tests::support::records::{self, Record, assert_same_frames};
use linerate_tests::support::{Scratch, corpus, frames, has_tools, tool};
use serde_json::Value;
use std::collections::HashMap;

/// Number of shards.
const PARTS: u32 = 4;

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

/// A frame of a flow, in one of its directions, with a number as payload. Every third flow has TCP, every second
/// IPv6, every fifth a VLAN tag.
fn frame(flow: u8, back: bool, number: u32, tunnel: bool) -> Vec<u8> {
    let link = ethernet::Header { source: MAC, destination: MacAddr::BROADCAST, ether_type: 0 };
    let tag = vlan::Header { id: 7, priority: 0, drop_eligible: false, ether_type: 0 };
    let (from, to) = if back { (0, flow) } else { (flow, 0) };
    let v4 = ipv4::Header {
        source: [10, 0, 0, from].into(),
        destination: [10, 0, 0, to].into(),
        identification: number as u16,
        ..ipv4::Header::new(0)
    };
    let address = |last: u8| [0x2001, 0xdb8, 0, 0, 0, 0, 0, last.into()].into();
    let v6 = ipv6::Header { source: address(from), destination: address(to), ..ipv6::Header::new(0) };
    let (source_port, destination_port) = if back { (443, 5000) } else { (5000, 443) };
    let datagram = udp::Header { source_port, destination_port };
    let segment = tcp::Header { source_port, destination_port, sequence: number, ..tcp::Header::default() };
    let outer = ipv4::Header { source: [192, 0, 2, 1].into(), destination: [192, 0, 2, 2].into(), ..v4 };
    let (outer_ports, network) = (udp::Header { source_port: 9, destination_port: vxlan::PORT }, vxlan::Header::new(7));

    let mut headers: Vec<&dyn Header> = vec![&link];
    if flow.is_multiple_of(5) {
        headers.push(&tag);
    }
    if tunnel {
        headers.extend([&outer as &dyn Header, &outer_ports, &network, &link]);
    }
    headers.push(if flow.is_multiple_of(2) { &v6 } else { &v4 });
    headers.push(if flow.is_multiple_of(3) { &segment } else { &datagram });
    Frame::new(&headers, &number.to_be_bytes()).to_vec().unwrap()
}

/// Both directions of 100 flows in turn, no two frames equal; the flow of each is its number modulo 100.
fn flows(tunnel: bool) -> Vec<Record> {
    let frame = |number: u32| {
        let bytes = frame((number % 100) as u8 + 1, number / 100 % 2 == 1, number, tunnel);
        Record { time: 1_700_000_000_000_000_000 + u64::from(number) * 1000, wire: bytes.len() as u32, bytes }
    };
    (0..600).map(frame).collect()
}

/// The packets and the JSON report of each shard.
fn parts(scratch: &Scratch, file: &str, options: &[&str]) -> Vec<(Vec<Record>, Value)> {
    let part = |index: u32| {
        let (output, shard) = (scratch.file("part.pcap"), format!("{index}/{PARTS}"));
        let arguments = [&["capture", "-r", file, "-w", &output, "--json", "--shard", &shard], options].concat();
        let json = run(&arguments).good().json();
        (records::read(&output), json)
    };
    (1..=PARTS).map(part).collect()
}

/// Asserts that every packet is in exactly one shard, and that the counts agree.
fn assert_divided(parts: &[(Vec<Record>, Value)], all: &[Record]) {
    let mut together: Vec<Record> = parts.iter().flat_map(|(part, _)| part.clone()).collect();
    let order = |record: &Record| (record.time, record.bytes.clone());
    let mut all = all.to_vec();
    together.sort_by_key(order);
    all.sort_by_key(order);
    assert!(together == all, "{} frames in all parts of {}", together.len(), all.len());
    let counts: Vec<usize> = parts.iter().map(|(part, _)| part.len()).collect();
    for (index, (part, json)) in parts.iter().enumerate() {
        assert_eq!(json["shard"], format!("{}/{PARTS}", index + 1));
        assert_eq!(json["shards"], Value::from(counts.clone()));
        assert_eq!(json["frames"], part.len());
        assert_eq!(json["drops"]["other_shard"], all.len() - part.len());
        assert_eq!(json["balanced"], true, "{json}");
        let uneven = *counts.iter().max().unwrap() as f64 * f64::from(PARTS) / all.len() as f64;
        assert!((json["shard_imbalance"].as_f64().unwrap() - uneven).abs() < 1e-9);
    }
}

#[test]
fn shards_divide_a_file_by_flow() {
    let scratch = Scratch::new();
    let file = scratch.file("flows.pcap");
    for (tunnel, options) in [(false, &[][..]), (false, &["--shard-inner"]), (true, &["--shard-inner"])] {
        let all = flows(tunnel);
        records::write(&file, &all);
        let parts = parts(&scratch, &file, options);
        assert_divided(&parts, &all);
        let mut part_of = HashMap::new();
        for (index, record) in
            parts.iter().enumerate().flat_map(|(index, (part, _))| part.iter().map(move |one| (index, one)))
        {
            let number = u32::from_be_bytes(*record.bytes.last_chunk().unwrap());
            assert_eq!(*part_of.entry(number % 100).or_insert(index), index, "flow {} is in two parts", number % 100);
        }
        assert!(parts.iter().all(|(part, _)| part.len() > 60), "600 frames of 100 flows");
    }
    let sizes: Vec<usize> = parts(&scratch, &file, &[]).iter().map(|(part, _)| part.len()).collect();
    assert_eq!(sizes.iter().filter(|size| **size > 0).count(), 1, "one tunnel is one flow: {sizes:?}");
}

#[test]
fn capture_reports_packets_per_shard() {
    let scratch = Scratch::new();
    let file = scratch.file("flows.pcap");
    records::write(&file, &flows(false));
    run(&["capture", "-r", &file, "-w", "/dev/null", "--format", "pcap", "--shard", "2/4"])
        .good()
        .shows("packets per shard (4): ")
        .shows("times the mean");
    assert!(!run(&["capture", "-r", &file]).good().errors.contains("shard"));
}

#[test]
fn real_capture_is_divided_by_flow() {
    let Some(file) = corpus("real-mix.pcap") else { return };
    let file = file.to_str().unwrap();
    let scratch = Scratch::new();
    let parts = parts(&scratch, file, &[]);
    assert_divided(&parts, &records::read(file));
    let mut part_of = HashMap::new();
    let numbered = parts.iter().enumerate().flat_map(|(index, (part, _))| part.iter().map(move |one| (index, one)));
    for (index, record) in numbered {
        if let Some(ends) = endpoints(&record.bytes) {
            assert_eq!(*part_of.entry(ends).or_insert(index), index, "{ends:?} is in two parts");
        }
    }
    assert!(part_of.len() > 500, "{} flows", part_of.len());
}

/// An address and a port.
type Endpoint<'a> = (&'a [u8], &'a [u8]);

/// Protocol and ordered endpoints of TCP and UDP over IPv4 without options, tags and fragments.
fn endpoints(frame: &[u8]) -> Option<(u8, Endpoint<'_>, Endpoint<'_>)> {
    let is_plain = frame.len() >= 42 && frame[12..15] == [8, 0, 0x45] && frame[20] & 0x3f == 0 && frame[21] == 0;
    if !is_plain || !matches!(frame[23], 6 | 17) {
        return None;
    }
    let (one, other) = ((&frame[26..30], &frame[34..36]), (&frame[30..34], &frame[36..38]));
    Some((frame[23], one.min(other), one.max(other)))
}

/// Captures with a slice; returns the output file and the JSON report.
fn sliced(scratch: &Scratch, file: &str, slice: &str) -> (String, Value) {
    let output = scratch.file("sliced.pcap");
    let json = run(&["capture", "-r", file, "-w", &output, "--json", "--slice", slice]).good().json();
    assert_eq!((&json["slice"], &json["balanced"]), (&Value::from(slice), &Value::from(true)));
    (output, json)
}

#[test]
fn slices_end_after_the_headers() {
    let scratch = Scratch::new();
    let file = scratch.file("flows.pcap");
    let all = flows(false);
    records::write(&file, &all);
    // Each frame has four bytes of payload.
    for (slice, payload) in [("l4", 0), ("l4+3", 3), ("l4+64", 4)] {
        let cut = |record: &Record| Record {
            bytes: record.bytes[..record.bytes.len() - 4 + payload].to_vec(),
            ..record.clone()
        };
        let wanted: Vec<Record> = all.iter().map(cut).collect();
        let (output, json) = sliced(&scratch, &file, slice);
        assert!(records::read(&output) == wanted, "{slice}");
        let select = json["accounts"].as_array().unwrap().iter().find(|account| account["stage"] == "select").unwrap();
        let cut = if payload < 4 { all.len() } else { 0 };
        assert_eq!(select["notes"]["sliced"], cut, "{select}");
    }
    let (as_snap, _) = sliced(&scratch, &file, "40");
    let by_slice = records::read(&as_snap);
    run(&["capture", "-q", "-r", &file, "-w", &as_snap, "-s", "40"]).good();
    assert!(records::read(&as_snap) == by_slice);
}

#[test]
fn slices_end_where_tshark_finds_the_payload() {
    if !has_tools(&["tshark"]) {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("sample.pcap");
    records::write(&file, &frames::sample());
    let (output, _) = sliced(&scratch, &file, "l4");
    let fields = ["-T", "fields", "-e", "frame.len", "-e", "tcp.len", "-e", "udp.length", "-e", "ip.frag_offset"];
    let text = tool("tshark", &[&["-r", &file], &fields[..]].concat());
    let mut compared = 0;
    for (line, record) in text.lines().zip(records::read(&output)) {
        let mut numbers = line.split('\t').map(|number| number.parse::<u32>().ok());
        let [length, tcp, udp, fragment] = std::array::from_fn(|_| numbers.next().flatten());
        assert_eq!(length, Some(record.wire));
        let payload = match (tcp, udp, fragment) {
            (.., Some(1..)) => continue,
            (Some(payload), ..) => payload,
            (_, Some(length), _) => length - 8,
            _ => continue,
        };
        assert_eq!(record.bytes.len() as u32, record.wire - payload, "{line}");
        compared += 1;
    }
    assert!(compared > 100, "{compared} frames");
}

/// Keeps packets that equal no kept packet of the last `window` nanoseconds.
fn without_copies(all: &[Record], window: u64) -> Vec<Record> {
    let mut kept: HashMap<(u32, &[u8]), u64> = HashMap::new();
    let mut left = Vec::new();
    for record in all {
        let last = kept.get(&record.content());
        if last.is_none_or(|last| record.time - last > window) {
            kept.insert(record.content(), record.time);
            left.push(record.clone());
        }
    }
    left
}

/// The file merged with itself, without duplicates.
fn merged_with_itself(scratch: &Scratch, file: &str, dedup: &str) -> (Vec<Record>, Ended) {
    let output = scratch.file("once.pcap");
    let ended = run(&["capture", "-r", file, "-r", file, "-w", &output, "--json", dedup]).good();
    (records::read(&output), ended)
}

#[test]
fn file_merged_with_itself_is_deduplicated() {
    let scratch = Scratch::new();
    let file = scratch.file("flows.pcap");
    let all = flows(false);
    records::write(&file, &all);
    let (once, ended) = merged_with_itself(&scratch, &file, "--dedup");
    assert_same_frames("no frame twice, and all of them", &once, &all);
    let json = ended.json();
    assert_eq!((&json["drops"]["duplicate"], &json["dedup_ms"]), (&Value::from(all.len()), &Value::from(10.0)));
    assert_eq!((&json["lost"], &json["balanced"]), (&Value::from(0), &Value::from(true)));
    let text = run(&["merge", &file, &file, "-w", &scratch.file("text.pcap"), "--dedup"]).good().output;
    assert_eq!(all.len(), 600);
    assert!(text.ends_with("600 of 1,200 packets selected, 0 lost (duplicate 600)\n"), "{text}");
    // Cut to 14 bytes these packets would be equal; they are compared before the cut.
    let output = scratch.file("cut.pcap");
    run(&["capture", "-q", "-r", &file, "-r", &file, "-w", &output, "--dedup", "-s", "14"]).good();
    assert_eq!(records::read(&output).len(), all.len());
}

#[test]
fn repetition_after_the_window_is_not_a_duplicate() {
    let scratch = Scratch::new();
    let file = scratch.file("sample.pcap");
    // The sample repeats packets after 3 ms.
    let all = frames::sample();
    records::write(&file, &all);
    for (option, window) in [("--dedup=2", 2_000_000), ("--dedup=3.5", 3_500_000), ("--dedup=0", 0)] {
        let (once, _) = merged_with_itself(&scratch, &file, option);
        assert!(once == without_copies(&all, window), "{option}: {} frames of {}", once.len(), all.len());
        assert_eq!(once.len() < all.len(), window > 3_000_000, "{option}");
    }
}

#[test]
fn real_capture_merged_with_itself_is_deduplicated() {
    let Some(file) = corpus("real-mix.pcap") else { return };
    let file = file.to_str().unwrap();
    let (once, _) = merged_with_itself(&Scratch::new(), file, "--dedup");
    assert!(once == without_copies(&records::read(file), 10_000_000));
}
