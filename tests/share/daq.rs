//! The module for libdaq 3 over passive rings and over files, driven by a test host.

use crate::share::fixtures::{
    Account, FLOWS, Feed, accounts, assert_all, frame, frames, number, ring_name, share_file,
};
use linerate_tests::support::daq::{attached, host, module};
use linerate_tests::support::frames::sample;
use linerate_tests::support::program::{Ended, Running, run};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::{Scratch, corpus, judge};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Waits for the end of a host and returns its report.
fn report(host: Running) -> Value {
    let ended: Ended = host.end().good();
    assert_eq!(ended.errors, "");
    ended.json()
}

/// A lossless reader of a ring.
fn reader(module: &Path, name: &str, options: &[&str]) -> Running {
    host(module, &[&[&format!("shm:{name}"), "passive"], options, &["var.mode=lossless"]].concat())
}

/// Records with times in microseconds, as libdaq keeps them.
fn in_micros(records: &[Record]) -> Vec<Record> {
    records.iter().map(|record| Record { time: record.time / 1000 * 1000, ..record.clone() }).collect()
}

#[test]
fn module_table_is_what_libdaq_loads() {
    let Some(module) = module() else { return };
    let report = report(host(module, &["none", "passive", "layout"]));
    let fields = ["version", "size", "name", "type"].map(|name| report[name].clone());
    // Type 15: file, interface, inline, several instances.
    assert_eq!(fields, [json!(0x0003_0001), json!(216), json!("linerate"), json!(15)], "{report:#}");
    let absent: Vec<_> =
        report["functions"].as_object().unwrap().iter().filter(|(_, there)| **there == false).collect();
    let absent: Vec<_> = absent.into_iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(absent, ["config_free", "config_load", "config_swap", "inject"]);
    assert_eq!(report["wrong"], json!([-1, -1]), "a base of another version or size is rejected");
    let variables = json!({"mode": 1, "name": 1, "quota": 1, "spin_us": 1, "trust": 2});
    assert_eq!(report["variables"], variables);
}

/// An engine that overwrites its messages changes no other message and no other reader.
#[test]
fn frames_and_times_of_a_ring_equal_the_file() {
    let Some(module) = module() else { return };
    let scratch = Scratch::new();
    let (name, file) = (ring_name(), scratch.file("in.pcap"));
    let outs = ["clean.pcap", "spoilt.pcap"].map(|out| scratch.file(out));
    records::write(&file, &frames(0..15_000));
    let writer = share_file(&file, &name, 2, &[]);
    let readers = [(0, ""), (1, "scribble=1")].map(|(at, more): (usize, &str)| {
        let write = format!("write={}", outs[at]);
        reader(module, &name, &["read", &write, if more.is_empty() { "batch=7" } else { more }])
    });
    for (reader, out) in readers.into_iter().zip(&outs) {
        let report = report(reader);
        assert_all(out, &records::read(out), 0..15_000);
        assert_eq!(
            (&report["stats"]["received"], &report["stats"]["hw_dropped"]),
            (&json!(15_000), &json!(0)),
            "{report:#}"
        );
        assert_eq!(report["stats"]["verdicts"], json!([15_000, 0, 0, 0, 0, 0]));
        assert_eq!(
            (&report["flags"], &report["ingress"], &report["link"]),
            (&json!([2]), &json!([1]), &json!(1)),
            "{report:#}"
        );
        assert_eq!((&report["pool"], &report["available"]), (&json!(256), &json!(256)), "every message was returned");
    }
    let json = writer.end().good().json();
    // The writer does not wait forever for blocks of a slow reader.
    let has_all = |account: &Account| (account.finished + account.outstanding, account.skipped) == (15_000, 0);
    assert!(accounts(&json).iter().all(has_all), "{json:#}");
}

/// Instances of one process must not read several rings: each would see only its part of the second.
#[test]
fn instances_of_a_process_share_one_ring_only() {
    let Some(module) = module() else { return };
    let scratch = Scratch::new();
    let file = scratch.file("in.pcap");
    records::write(&file, &frames(0..1_000));
    let names = [ring_name(), ring_name()];
    let writers = names.each_ref().map(|name| share_file(&file, name, 1, &["--share-timeout", "1"]));
    let other = format!("second=shm:{}", names[1]);
    let report = report(reader(module, &names[0], &["second", "instances=2", "instance=1", &other]));
    let why = report["why"].as_str().unwrap();
    assert!(report["failed"] == -1 && why.contains("one engine per ring, or one ring for all ports"), "{report:#}");
    writers.into_iter().for_each(|writer| drop(writer.end()));
}

/// Packet times are the clock of an engine: a late packet does not set it back.
#[test]
fn times_of_a_ring_never_go_back() {
    let Some(module) = module() else { return };
    let (name, scratch) = (ring_name(), Scratch::new());
    let (file, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    let mut all = frames(0..2_000);
    all.iter_mut().skip(10).step_by(7).for_each(|late| late.time -= 8_000);
    records::write(&file, &all);
    let writer = share_file(&file, &name, 1, &[]);
    report(reader(module, &name, &["read", &format!("write={out}")]));
    writer.end().good();
    let mut newest = 0;
    for record in &mut all {
        newest = newest.max(record.time);
        record.time = newest;
    }
    assert!(records::read(&out) == in_micros(&all), "times went back or differ");
}

/// Each instance of one input has a part of the flows, with both directions.
#[test]
fn flows_are_distributed_over_instances() {
    assert_flows_are_distributed(|record| record, 0);
}

/// The same for flows in a tunnel, whose outer ports differ per direction.
#[test]
fn flows_in_tunnels_are_distributed_over_instances() {
    assert_flows_are_distributed(in_vxlan, VXLAN_BYTES);
}

/// Headers of Ethernet, IPv4, UDP and VXLAN.
const VXLAN_BYTES: usize = 50;

/// Puts a frame into a tunnel; each endpoint takes the source port from its own hash of the inner frame.
fn in_vxlan(record: Record) -> Record {
    let (number, length) = (number(&record), record.bytes.len() as u16);
    let [from, to] = if number / FLOWS % 2 == 1 { [2, 1] } else { [1, 2] };
    let mut bytes = record.bytes[..14].to_vec();
    bytes.extend([0x45, 0]);
    bytes.extend((length + 36).to_be_bytes());
    bytes.extend([0, 1, 0, 0, 64, 17, 0, 0, 192, 0, 2, from, 192, 0, 2, to]);
    bytes.extend([49_152 + (number % (2 * FLOWS)) as u16, 4789, length + 16, 0].map(u16::to_be_bytes).concat());
    bytes.extend([8, 0, 0, 0, 0, 0, 42, 0]);
    bytes.extend(record.bytes);
    Record { wire: bytes.len() as u32, bytes, ..record }
}

/// Distributes frames as made by `wrapped`, with `front` more bytes in front.
fn assert_flows_are_distributed(wrapped: fn(Record) -> Record, front: usize) {
    let Some(module) = module() else { return };
    let scratch = Scratch::new();
    let (name, file) = (ring_name(), scratch.file("in.pcap"));
    records::write(&file, &frames(0..8_000).into_iter().map(wrapped).collect::<Vec<_>>());
    let writer = share_file(&file, &name, 4, &[]);
    let outs: Vec<String> = (1..=4).map(|shard| scratch.file(&format!("{shard}.pcap"))).collect();
    let start = |(shard, out): (usize, &String)| {
        let (instance, write) = (format!("instance={}", shard + 1), format!("write={out}"));
        reader(module, &name, &["read", &write, &instance, "instances=4"])
    };
    let readers: Vec<Running> = outs.iter().enumerate().map(start).collect();
    readers.into_iter().for_each(|reader| drop(report(reader)));
    writer.end().good();
    let (mut shard_of, mut numbers) = (vec![None; FLOWS as usize], Vec::new());
    for (shard, out) in outs.iter().enumerate() {
        let got = records::read(out);
        assert!(!got.is_empty(), "shard {shard} of 61 flows has none");
        for record in &got {
            let bytes = record.bytes[front..].to_vec();
            let number = number(&Record { bytes, ..record.clone() });
            assert!(*record == wrapped(frame(number)));
            assert_eq!(*shard_of[(number % FLOWS) as usize].get_or_insert(shard), shard, "flow {}", number % FLOWS);
            numbers.push(number);
        }
    }
    numbers.sort();
    assert!(numbers.iter().copied().eq(0..8_000), "frames are missing or duplicated");
}

/// An engine may hold 192 of 256 messages, or all; an empty pool is reported as status 5.
#[test]
fn engine_may_hold_messages() {
    let Some(module) = module() else { return };
    let scratch = Scratch::new();
    let (name, file) = (ring_name(), scratch.file("in.pcap"));
    records::write(&file, &frames(0..2_000));
    let writer = share_file(&file, &name, 1, &[]);
    let report = report(reader(module, &name, &["hold", "timeout=300"]));
    writer.end().good();
    assert!(report["numbers"].as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).eq(0..2_000));
    assert_eq!((&report["available"], &report["more"]), (&json!(64), &json!(64)), "{report:#}");
    let [no_room, timeout] = [5, 2];
    assert_eq!((&report["none"], &report["zero"]), (&json!([no_room, no_room]), &json!(timeout)), "{report:#}");
    let waited = report["waited"].as_f64().unwrap();
    assert!(waited > 0.29, "a request for 0 messages waited {waited} s only");
    judge(waited < 1.0, &format!("{waited} s for a timeout of 0.3"));
    assert_eq!(report["twice"], json!([0, -7, -7, -7]), "messages that are not held cannot be returned");
    assert_eq!(report["pool"], json!([256, 256]));
    assert_eq!((&report["outstanding"], &report["stats"]["outstanding"]), (&json!(256), &json!(0)), "{report:#}");
    assert_eq!(report["stats"]["verdicts"][0], 2_000);
}

#[test]
fn idle_reader_times_out_and_is_interrupted() {
    let Some(module) = module() else { return };
    let name = ring_name();
    let feed = Feed::start(&name, 0, &[]);
    let report = report(host(module, &[&format!("shm:{name}"), "passive", "wait", "timeout=200"]));
    let took: Vec<(u64, Duration)> = serde_json::from_value::<Vec<(u64, f64)>>(report["took"].clone())
        .unwrap()
        .into_iter()
        .map(|(status, took)| (status, Duration::from_secs_f64(took)))
        .collect();
    let statuses: Vec<u64> = took.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [2, 2, 4, 4, 4, 4], "timeouts, then interruptions: {took:?}");
    for (_, took) in &took[..2] {
        assert!(*took >= Duration::from_millis(190), "{took:?}");
    }
    // The third waits without a timeout, in steps of 1 s.
    judge(took[..4].iter().all(|(_, took)| *took < Duration::from_secs(1)), &format!("{took:?}"));
    feed.end().good();
}

/// Files with nanoseconds, the other byte order, pcapng, cut and truncated records.
#[test]
fn files_are_read_like_the_program() {
    let Some(module) = module() else { return };
    let scratch = Scratch::new();
    let (file, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    records::write(&file, &sample());
    let swapped = scratch.file("swapped.pcap");
    std::fs::write(&swapped, swap(&std::fs::read(&file).unwrap())).unwrap();
    // `capture` sorts packets by time.
    let (next, ordered) = (scratch.file("next.pcapng"), scratch.file("ordered.pcap"));
    run(&["capture", "-r", &file, "-w", &next, "--json"]).good();
    run(&["capture", "-r", &file, "-w", &ordered, "--json"]).good();
    for (input, mode) in
        [(file.clone(), "read-file"), (format!("file:{swapped}"), "passive"), (next.clone(), "read-file")]
    {
        let report =
            report(host(module, &[&input, mode, "read", &format!("write={out}"), "scribble=1", "snaplen=262144"]));
        let wanted = if input == next { records::read(&ordered) } else { sample() };
        assert_eq!(records::read(&out), in_micros(&wanted), "{input}");
        assert_eq!(
            (&report["ingress"], &report["flags"], &report["statuses"]["3"]),
            (&json!([-1]), &json!([0]), &json!(1))
        );
    }
    // Cut to the snap length of the engine; and a file truncated within a record.
    let said_cut = report(host(module, &[&file, "read-file", "read", &format!("write={out}"), "snaplen=50"]));
    assert!(
        records::read(&out).iter().zip(&sample()).all(|(got, all)| got.bytes == all.bytes[..all.bytes.len().min(50)])
    );
    assert_eq!(said_cut["stats"]["received"], sample().len());
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&swapped, &bytes[..bytes.len() - 1]).unwrap();
    let hurt = report(host(module, &[&swapped, "read-file", "read"]));
    assert_eq!(
        (&hurt["statuses"]["6"], &hurt["stats"]["received"]),
        (&json!(1), &json!(sample().len() - 1)),
        "{hurt:#}"
    );
    assert!(hurt["why"].as_str().unwrap().contains("ends in the middle of a record"), "{hurt:#}");
}

/// Some link types have one number in files and another in libpcap's API, which engines expect.
#[test]
fn link_types_have_the_numbers_of_libpcap() {
    let Some(module) = module() else { return };
    let scratch = Scratch::new();
    let file = scratch.file("in.pcap");
    for (of_file, of_libpcap) in [(1u32, 1), (100, 11), (101, 12), (102, 15), (103, 16), (106, 19), (113, 113)] {
        records::write(&file, &frames(0..1));
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[20..24].copy_from_slice(&of_file.to_le_bytes());
        std::fs::write(&file, bytes).unwrap();
        let report = report(host(module, &[&file, "read-file", "read"]));
        assert_eq!((&report["link"], &report["stats"]["received"]), (&json!(of_libpcap), &json!(1)), "{report:#}");
    }
}

/// A pcap file in the other byte order.
fn swap(file: &[u8]) -> Vec<u8> {
    let word = |at: usize| u32::from_ne_bytes(file[at..at + 4].try_into().unwrap());
    let mut swapped = word(0).swap_bytes().to_ne_bytes().to_vec();
    swapped.extend([&file[4..6], &file[6..8]].concat().chunks(2).flat_map(|two| [two[1], two[0]]));
    swapped.extend((8..24).step_by(4).flat_map(|at| word(at).swap_bytes().to_ne_bytes()));
    let mut at = 24;
    while at < file.len() {
        swapped.extend((at..at + 16).step_by(4).flat_map(|at| word(at).swap_bytes().to_ne_bytes()));
        let end = at + 16 + word(at + 8) as usize;
        swapped.extend(&file[at + 16..end]);
        at = end;
    }
    swapped
}

/// Packets dropped by the module's filter are counted; the others equal those of the program's filter.
#[test]
fn module_filters_with_libpcap() {
    let (Some(module), Some(file)) = (module(), corpus("real-mix.pcap")) else { return };
    let (file, scratch) = (file.to_str().unwrap(), Scratch::new());
    let (out, own) = (scratch.file("out.pcap"), scratch.file("own.pcap"));
    let report = report(host(module, &[file, "read-file", "read", &format!("write={out}"), "filter=udp port 53"]));
    run(&["capture", "-r", file, "-w", &own, "--json", "-f", "udp port 53"]).good();
    let (got, wanted) = (records::read(&out), in_micros(&records::read(&own)));
    assert!(got == wanted && got.len() > 100, "{} frames, {} wanted", got.len(), wanted.len());
    let stats = &report["stats"];
    assert_eq!(stats["hw_received"], stats["received"].as_u64().unwrap() + stats["filtered"].as_u64().unwrap());
    assert_eq!((&stats["received"], &stats["hw_received"]), (&json!(got.len()), &json!(34_000)), "{report:#}");
}

#[test]
fn unsupported_uses_are_errors() {
    let Some(module) = module() else { return };
    let (name, scratch) = (ring_name(), Scratch::new());
    let feed = Feed::start(&name, 0, &[]);
    let (shared, other) = (format!("shm:{name}"), format!("inline:{name}"));
    let text = scratch.file("text");
    std::fs::write(&text, "not a capture file, but long enough to have a header").unwrap();
    let zipped = scratch.file("zipped");
    std::fs::write(&zipped, [0x1f, 0x8b, 8, 0, 0, 0, 0, 0]).unwrap();
    for (arguments, part) in [
        (&["eth0", "passive"][..], "expected shm:NAME, inline:NAME or file:PATH"),
        (&["shm:", "passive"], "expected 1 to 90 bytes"),
        (&["shm:nobody-shares-this", "passive"], "no writer shares it"),
        (&[&shared, "inline"], "a passive ring cannot be used inline"),
        (&[&format!("{shared}?mode=lossless"), "passive"], "use variables"),
        (&[&other, "passive"], "needs inline mode"),
        (&[&other, "inline"], "no verdicts are wanted"),
        (&[&other, "inline", "pool=4096"], "at most 1024"),
        (&[&shared, "passive", "var.mode=fast"], "mode=lossless or lossy"),
        (&[&shared, "passive", "var.colour=red"], "colour=red"),
        (&[&shared, "passive", "var.quota=many"], "a number from 0"),
        (&[&shared, "passive", "filter=udp prot 53"], "syntax error"),
        (&["/nowhere/at/all", "read-file"], "No such file"),
        (&[&text, "read-file"], "not a pcap or pcapng file"),
        (&[&zipped, "read-file"], "decompress it first"),
        (&[&text, "read-file", "var.quota=3"], "apply to rings"),
        (&["file:x", "inline"], "a file cannot be used inline"),
        (&["file:x", "passive", "instances=2", "instance=1"], "would read the whole file"),
    ] {
        let arguments = [&arguments[..2], &["read"], &arguments[2..]].concat();
        let report = report(host(module, &arguments));
        let why = report["why"].as_str().unwrap();
        assert!(
            report["failed"] == -1 && why.contains(part) && why.starts_with("linerate: "),
            "{arguments:?}: {report}"
        );
    }
    feed.end().good();
}

/// A killed writer is distinguished from one that ends.
#[test]
fn killed_writer_is_an_error() {
    let Some(module) = module() else { return };
    let (name, scratch) = (ring_name(), Scratch::new());
    let mut feed = Feed::start(&name, 0, &[]);
    let ready = scratch.file("ready");
    let reader = reader(module, &name, &["read", &format!("ready={ready}"), "timeout=100"]);
    attached(&ready);
    feed.send(100);
    feed.running.signal(rustix::process::Signal::KILL);
    let report = report(reader);
    assert_eq!(report["statuses"]["6"], 1, "{report:#}");
    assert!(report["why"].as_str().unwrap().contains("the writer died"), "{report:#}");
    drop(feed);
}
