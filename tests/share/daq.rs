//! The module for libdaq 3 over rings that are looked at, and over files, driven by a host of our own.

use crate::share::stage::{Account, FLOWS, Feed, accounts, assert_all, frame, frames, number, ring_name, share_file};
use linerate_tests::support::daq::{attached, host, module};
use linerate_tests::support::frames::sample;
use linerate_tests::support::program::{Ended, Running, run};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::{Scratch, corpus, judge};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// What a host says at its end.
fn said(host: Running) -> Value {
    let ended: Ended = host.end().good();
    assert_eq!(ended.errors, "");
    ended.json()
}

/// A lossless reader of a ring.
fn reader(module: &Path, name: &str, what: &[&str]) -> Running {
    host(module, &[&[&format!("shm:{name}"), "passive"], what, &["var.mode=lossless"]].concat())
}

/// As libdaq keeps times.
fn in_micros(records: &[Record]) -> Vec<Record> {
    records.iter().map(|record| Record { time: record.time / 1000 * 1000, ..record.clone() }).collect()
}

#[test]
fn its_table_is_what_libdaq_loads() {
    let Some(module) = module() else { return };
    let said = said(host(module, &["none", "passive", "layout"]));
    let what = ["version", "size", "name", "type"].map(|name| said[name].clone());
    // File, interface, inline, several instances.
    assert_eq!(what, [json!(0x0003_0001), json!(216), json!("linerate"), json!(15)], "{said:#}");
    let absent: Vec<_> = said["functions"].as_object().unwrap().iter().filter(|(_, there)| **there == false).collect();
    let absent: Vec<_> = absent.into_iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(absent, ["config_free", "config_load", "config_swap", "inject"]);
    assert_eq!(said["wrong"], json!([-1, -1]), "a base of another version or size is refused");
    let variables = json!({"mode": 1, "name": 1, "quota": 1, "spin_us": 1, "trust": 2});
    assert_eq!(said["variables"], variables);
}

/// What the engine writes into messages reaches no other message and no other reader.
#[test]
fn frames_and_times_of_a_ring_are_those_of_the_file() {
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
        let said = said(reader);
        assert_all(out, &records::read(out), 0..15_000);
        assert_eq!((&said["stats"]["received"], &said["stats"]["hw_dropped"]), (&json!(15_000), &json!(0)), "{said:#}");
        assert_eq!(said["stats"]["verdicts"], json!([15_000, 0, 0, 0, 0, 0]));
        assert_eq!((&said["flags"], &said["came"], &said["link"]), (&json!([2]), &json!([1]), &json!(1)), "{said:#}");
        assert_eq!((&said["pool"], &said["available"]), (&json!(256), &json!(256)), "every message came back");
    }
    let json = writer.end().good().json();
    // Whoever shares does not wait for ever for what a slow reader has in hand.
    let has_all = |account: &Account| (account.finished + account.outstanding, account.skipped) == (15_000, 0);
    assert!(accounts(&json).iter().all(has_all), "{json:#}");
}

/// Of a second ring each would have its part, and nobody the others.
#[test]
fn instances_of_a_process_have_parts_of_one_ring() {
    let Some(module) = module() else { return };
    let scratch = Scratch::new();
    let file = scratch.file("in.pcap");
    records::write(&file, &frames(0..1_000));
    let names = [ring_name(), ring_name()];
    let writers = names.each_ref().map(|name| share_file(&file, name, 1, &["--share-patience", "1"]));
    let other = format!("second=shm:{}", names[1]);
    let said = said(reader(module, &names[0], &["second", "instances=2", "instance=1", &other]));
    let why = said["why"].as_str().unwrap();
    assert!(said["failed"] == -1 && why.contains("an engine for each ring, or one ring of all ports"), "{said:#}");
    writers.into_iter().for_each(|writer| drop(writer.end()));
}

/// The clock of an engine is made of the times of frames: one that is late does not set it back.
#[test]
fn times_of_a_ring_do_not_go_back() {
    let Some(module) = module() else { return };
    let (name, scratch) = (ring_name(), Scratch::new());
    let (file, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    let mut all = frames(0..2_000);
    all.iter_mut().skip(10).step_by(7).for_each(|late| late.time -= 8_000);
    records::write(&file, &all);
    let writer = share_file(&file, &name, 1, &[]);
    said(reader(module, &name, &["read", &format!("write={out}")]));
    writer.end().good();
    let mut newest = 0;
    for record in &mut all {
        newest = newest.max(record.time);
        record.time = newest;
    }
    assert!(records::read(&out) == in_micros(&all), "times went back, or are others");
}

/// Instances of one input have each a part of the flows: both directions, each flow in one.
#[test]
fn instances_share_out_the_flows() {
    shared_out(|record| record, 0);
}

/// So do flows in a tunnel, whose outer ports differ with the direction.
#[test]
fn instances_share_out_the_flows_in_tunnels() {
    shared_out(in_vxlan, VXLAN_BYTES);
}

/// Headers of Ethernet, IPv4, UDP and VXLAN.
const VXLAN_BYTES: usize = 50;

/// The frame in a tunnel: its end points take their source ports by their own hash of what is inside.
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

/// Shares out frames as `wrapped`, which have so many bytes in front.
fn shared_out(wrapped: fn(Record) -> Record, front: usize) {
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
    readers.into_iter().for_each(|reader| drop(said(reader)));
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
    assert!(numbers.iter().copied().eq(0..8_000), "each frame once");
}

/// An engine may keep 192 of 256 messages, or all; it is told that there is no room when there is none at all.
#[test]
fn messages_are_held_as_long_as_the_engine_likes() {
    let Some(module) = module() else { return };
    let scratch = Scratch::new();
    let (name, file) = (ring_name(), scratch.file("in.pcap"));
    records::write(&file, &frames(0..2_000));
    let writer = share_file(&file, &name, 1, &[]);
    let said = said(reader(module, &name, &["hold", "timeout=300"]));
    writer.end().good();
    assert!(said["numbers"].as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).eq(0..2_000));
    assert_eq!((&said["available"], &said["more"]), (&json!(64), &json!(64)), "{said:#}");
    let [no_room, timeout] = [5, 2];
    assert_eq!((&said["none"], &said["zero"]), (&json!([no_room, no_room]), &json!(timeout)), "{said:#}");
    let waited = said["waited"].as_f64().unwrap();
    assert!(waited > 0.29, "asked for no message it waits as long as for one: {waited} s");
    judge(waited < 1.0, &format!("{waited} s for a timeout of 0.3"));
    assert_eq!(said["twice"], json!([0, -7, -7, -7]), "what is not out cannot be given back");
    assert_eq!(said["pool"], json!([256, 256]));
    assert_eq!((&said["outstanding"], &said["stats"]["outstanding"]), (&json!(256), &json!(0)), "{said:#}");
    assert_eq!(said["stats"]["verdicts"][0], 2_000);
}

#[test]
fn an_idle_one_times_out_and_is_interrupted() {
    let Some(module) = module() else { return };
    let name = ring_name();
    let feed = Feed::start(&name, 0, &[]);
    let said = said(host(module, &[&format!("shm:{name}"), "passive", "wait", "timeout=200"]));
    let took: Vec<(u64, Duration)> = serde_json::from_value::<Vec<(u64, f64)>>(said["took"].clone())
        .unwrap()
        .into_iter()
        .map(|(status, took)| (status, Duration::from_secs_f64(took)))
        .collect();
    let statuses: Vec<u64> = took.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [2, 2, 4, 4, 4, 4], "timeouts, then interruptions: {took:?}");
    for (_, took) in &took[..2] {
        assert!(*took >= Duration::from_millis(190), "{took:?}");
    }
    // The third waits in turns of a second, as it asks for nothing.
    judge(took[..4].iter().all(|(_, took)| *took < Duration::from_secs(1)), &format!("{took:?}"));
    feed.end().good();
}

/// As a file, and as what the program shares of it: nanoseconds, other byte orders, pcapng, cut records.
#[test]
fn files_are_read_as_the_program_reads_them() {
    let Some(module) = module() else { return };
    let scratch = Scratch::new();
    let (file, out) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    records::write(&file, &sample());
    let swapped = scratch.file("swapped.pcap");
    std::fs::write(&swapped, swap(&std::fs::read(&file).unwrap())).unwrap();
    // A merge writes in order of time.
    let (next, ordered) = (scratch.file("next.pcapng"), scratch.file("ordered.pcap"));
    run(&["capture", "-r", &file, "-w", &next, "--json"]).good();
    run(&["capture", "-r", &file, "-w", &ordered, "--json"]).good();
    for (input, mode) in
        [(file.clone(), "read-file"), (format!("file:{swapped}"), "passive"), (next.clone(), "read-file")]
    {
        let said = said(host(module, &[&input, mode, "read", &format!("write={out}"), "scribble=1", "snaplen=262144"]));
        let wanted = if input == next { records::read(&ordered) } else { sample() };
        assert_eq!(records::read(&out), in_micros(&wanted), "{input}");
        assert_eq!((&said["came"], &said["flags"], &said["statuses"]["3"]), (&json!([-1]), &json!([0]), &json!(1)));
    }
    // Cut where the engine says so, and its own end in the middle.
    let said_cut = said(host(module, &[&file, "read-file", "read", &format!("write={out}"), "snaplen=50"]));
    assert!(
        records::read(&out).iter().zip(&sample()).all(|(got, all)| got.bytes == all.bytes[..all.bytes.len().min(50)])
    );
    assert_eq!(said_cut["stats"]["received"], sample().len());
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&swapped, &bytes[..bytes.len() - 1]).unwrap();
    let hurt = said(host(module, &[&swapped, "read-file", "read"]));
    assert_eq!(
        (&hurt["statuses"]["6"], &hurt["stats"]["received"]),
        (&json!(1), &json!(sample().len() - 1)),
        "{hurt:#}"
    );
    assert!(hurt["why"].as_str().unwrap().contains("ends in the middle of a record"), "{hurt:#}");
}

/// Some have one number in files, and another that libpcap gives whoever reads them: engines know the latter.
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
        let said = said(host(module, &[&file, "read-file", "read"]));
        assert_eq!((&said["link"], &said["stats"]["received"]), (&json!(of_libpcap), &json!(1)), "{said:#}");
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

/// What its own filter leaves out is counted, and what passes is what the program's filter lets pass.
#[test]
fn a_filter_is_libpcaps() {
    let (Some(module), Some(file)) = (module(), corpus("real-mix.pcap")) else { return };
    let (file, scratch) = (file.to_str().unwrap(), Scratch::new());
    let (out, own) = (scratch.file("out.pcap"), scratch.file("own.pcap"));
    let said = said(host(module, &[file, "read-file", "read", &format!("write={out}"), "filter=udp port 53"]));
    run(&["capture", "-r", file, "-w", &own, "--json", "-f", "udp port 53"]).good();
    let (got, wanted) = (records::read(&out), in_micros(&records::read(&own)));
    assert!(got == wanted && got.len() > 100, "{} frames, {} wanted", got.len(), wanted.len());
    let stats = &said["stats"];
    assert_eq!(stats["hw_received"], stats["received"].as_u64().unwrap() + stats["filtered"].as_u64().unwrap());
    assert_eq!((&stats["received"], &stats["hw_received"]), (&json!(got.len()), &json!(34_000)), "{said:#}");
}

#[test]
fn what_it_cannot_do_is_said() {
    let Some(module) = module() else { return };
    let (name, scratch) = (ring_name(), Scratch::new());
    let feed = Feed::start(&name, 0, &[]);
    let (shared, other) = (format!("shm:{name}"), format!("inline:{name}"));
    let text = scratch.file("text");
    std::fs::write(&text, "no capture file at all, but long enough to be one").unwrap();
    let zipped = scratch.file("zipped");
    std::fs::write(&zipped, [0x1f, 0x8b, 8, 0, 0, 0, 0, 0]).unwrap();
    for (arguments, part) in [
        (&["eth0", "passive"][..], "there are shm:NAME, inline:NAME and file:PATH"),
        (&["shm:", "passive"], "a name of 1 to 90 bytes"),
        (&["shm:nobody-shares-this", "passive"], "nobody shares it"),
        (&[&shared, "inline"], "is only looked at"),
        (&[&format!("{shared}?mode=lossless"), "passive"], "are variables here"),
        (&[&other, "passive"], "decides about frames"),
        (&[&other, "inline"], "no verdicts are wanted"),
        (&[&other, "inline", "pool=4096"], "at most 1024"),
        (&[&shared, "passive", "var.mode=fast"], "mode=lossless or lossy"),
        (&[&shared, "passive", "var.colour=red"], "colour=red"),
        (&[&shared, "passive", "var.quota=many"], "a number from 0"),
        (&[&shared, "passive", "filter=udp prot 53"], "syntax error"),
        (&["/nowhere/at/all", "read-file"], "No such file"),
        (&[&text, "read-file"], "neither pcap nor pcapng"),
        (&[&zipped, "read-file"], "unpack it first"),
        (&[&text, "read-file", "var.quota=3"], "are for rings"),
        (&["file:x", "inline"], "nowhere to go on to"),
        (&["file:x", "passive", "instances=2", "instance=1"], "would read all of it"),
    ] {
        let arguments = [&arguments[..2], &["read"], &arguments[2..]].concat();
        let said = said(host(module, &arguments));
        let why = said["why"].as_str().unwrap();
        assert!(said["failed"] == -1 && why.contains(part) && why.starts_with("linerate: "), "{arguments:?}: {said}");
    }
    feed.end().good();
}

/// A writer that dies is told from one that ends.
#[test]
fn a_writer_that_dies_is_an_error() {
    let Some(module) = module() else { return };
    let (name, scratch) = (ring_name(), Scratch::new());
    let mut feed = Feed::start(&name, 0, &[]);
    let ready = scratch.file("ready");
    let reader = reader(module, &name, &["read", &format!("ready={ready}"), "timeout=100"]);
    attached(&ready);
    feed.send(100);
    feed.running.signal(rustix::process::Signal::KILL);
    let said = said(reader);
    assert_eq!(said["statuses"]["6"], 1, "{said:#}");
    assert!(said["why"].as_str().unwrap().contains("whoever shared it has died"), "{said:#}");
    drop(feed);
}
