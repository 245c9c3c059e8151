//! Runs the examples.

#[allow(dead_code)]
#[path = "../examples/attach.rs"]
mod attach;
#[allow(dead_code)]
#[path = "../examples/capture.rs"]
mod capture;
#[allow(dead_code)]
#[path = "../examples/engine.rs"]
mod engine;
#[allow(dead_code)]
#[path = "../examples/flows.rs"]
mod flows;
#[allow(dead_code)]
#[path = "../examples/packets.rs"]
mod packets;
#[allow(dead_code)]
#[path = "../examples/stream.rs"]
mod stream;

use linerate::Error;
use linerate::burst::{Block, Desc, Interface, Ledger, LinkType, Nanos, Sink, StampSource};
use linerate::engine::{Capture, Inline, InlinePolicy, Progress, Receive, Selection, Sharing, SharingOptions, Stop};
use linerate::meter::Config;
use linerate::pcap::{Format, Output, Writer};
use linerate::port::{RxOptions, Spec, TxOptions, open_rx, open_tx};
use linerate::share::{Access, AttachOptions, Options};
use std::path::PathBuf;
use std::time::Duration;

/// Creates a directory with a capture of 90 datagrams of three flows and ten non-IP frames.
fn recording(name: &str) -> (PathBuf, String) {
    let folder = std::env::temp_dir().join(format!("linerate-examples-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("in.pcap").to_str().unwrap().to_owned();
    let mut block = Block::new(1 << 16, 128);
    for index in 0..100u8 {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        frame.extend([192, 0, 2, 1, 192, 0, index % 3, 2, 0, 1, 0, 53, 0, 8, 0, 0]);
        if index >= 90 {
            frame[12] = 0x86;
        }
        let time = Nanos(1_700_000_000_000_000_000 + u64::from(index) * 1000);
        assert!(block.push(&Desc::new(time, 0, frame.len() as u32), &frame));
    }
    let mut writer = Writer::new(Output::open(&file).unwrap(), Format::Pcap);
    let interfaces = [Interface::new("made", LinkType::ETHERNET, StampSource::User)];
    writer.accept(block.view(0, &interfaces)).unwrap();
    writer.finish(&Ledger::new()).unwrap();
    (folder, file)
}

#[test]
fn capture_contains_what_the_filter_selects() {
    let (folder, file) = recording("capture");
    let out = folder.join("out.pcapng").to_str().unwrap().to_owned();
    assert_eq!(capture::run(&format!("pcap:{file}"), &out, "ip dst 192.0.1.2").unwrap(), 30);
    assert_eq!(capture::run(&format!("pcap:{out}"), &file, "").unwrap(), 30);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn flows_are_records() {
    let (folder, file) = recording("flows");
    assert_eq!(flows::run(&format!("pcap:{file}"), "").unwrap(), 3);
    assert_eq!(flows::run(&file, "ip dst 192.0.1.2").unwrap(), 1);
    std::fs::remove_dir_all(folder).unwrap();
}

/// The packets of two files with the same times alternate.
#[test]
fn packets_are_merged_and_printed() {
    let (folder, file) = recording("packets");
    let mut printed = Vec::new();
    let bytes = packets::run(&format!("{file},{file}"), "ip or ip6", &mut printed).unwrap();
    let printed = String::from_utf8(printed).unwrap();
    assert_eq!(bytes, [("192.0.2.1".parse().unwrap(), 2 * 90 * 42)].into(), "{printed}");
    let lines: Vec<&str> = printed.lines().collect();
    assert_eq!((lines.len(), lines[181.min(lines.len()) - 1]), (181, "180 packets, 0 lost"), "{printed}");
    assert!(
        lines[..180].is_sorted()
            && lines[0].ends_with("IP 192.0.2.1.1 > 192.0.0.2.53: domain [length 0 < 12] (invalid)"),
        "{printed}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

/// Errors come before anything is opened, limits and stops end a run, and what arrived by then is counted.
#[test]
fn input_ends_as_requested() {
    let (folder, file) = recording("input");
    let open = || linerate::open(&file).unwrap();
    let kind = |error: Error| format!("{error:?}").split([' ', '(']).next().unwrap().to_owned();
    assert_eq!(kind(open().filter("udp prot 53").err().unwrap()), "Filter");
    assert_eq!(kind(linerate::open("no-such-interface").unwrap().packets().err().unwrap()), "Port");
    assert_eq!(kind(open().write("/proc/none.pcap").err().unwrap()), "Create");
    let mut packets = open().limit(7).packets().unwrap();
    let mut count = 0;
    while let Some(packet) = packets.next().unwrap() {
        assert_eq!((packet.bytes().len(), packet.interface().link), (42, LinkType::ETHERNET));
        count += 1;
    }
    assert!(packets.next().unwrap().is_none(), "the end stays the end");
    let seen = packets.finish().unwrap();
    assert_eq!((count, seen.packets(), seen.lost(), seen.is_exact()), (7, 7, 0, true));
    // Left early: what was taken counts, and the rest is not claimed to be exact.
    let mut packets = open().packets().unwrap();
    let ports = packets.next().unwrap().and_then(|packet| packet.ports());
    let seen = packets.finish().unwrap();
    assert_eq!((ports, seen.packets(), seen.is_exact()), (Some([1, 53]), 1, false));
    let stop = Stop::new();
    stop.request();
    assert_eq!(open().stop(&stop).flows(&Config::default()).unwrap().count(), 0, "stopped before it began");
    std::fs::remove_dir_all(folder).unwrap();
}

/// The most frequent failure: packets before it are delivered, and the result is known in all three ways.
#[test]
fn damaged_file_fails_after_its_packets() {
    let (folder, file) = recording("damaged");
    let whole = std::fs::read(&file).unwrap();
    let [cut, out] = ["cut.pcap", "a,b.pcap"].map(|name| folder.join(name).to_str().unwrap().to_owned());
    std::fs::write(&cut, &whole[..whole.len() - 10]).unwrap();
    let so_far = |error: Error| match error {
        Error::Run { summary, .. } => summary.map(|summary| (summary.packets(), summary.is_exact())),
        error => panic!("{error}"),
    };
    let open = || linerate::open(&cut).unwrap();
    assert_eq!(so_far(open().write(&out).unwrap_err()), Some((99, false)));
    assert_eq!(linerate::open_file(&out).flows(&Config::default()).unwrap().count(), 3);
    let mut flows = open().flows(&Config::default()).unwrap();
    let failure = flows.find_map(Result::err).unwrap();
    assert_eq!((so_far(failure), flows.count()), (Some((99, false)), 3));
    let mut packets = open().packets().unwrap();
    let mut count = 0;
    let failure = loop {
        match packets.next() {
            Ok(_) => count += 1,
            Err(error) => break error,
        }
    };
    assert_eq!((count, so_far(failure)), (99, None));
    let seen = packets.finish().unwrap();
    assert_eq!((seen.packets(), seen.is_exact()), (99, false));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn stream_arrives_complete() {
    let memory = format!("mem:examples-{}", std::process::id());
    assert_eq!(stream::run(&memory, &memory).unwrap(), 5000);
}

#[test]
fn ring_is_read_in_place() {
    let (folder, file) = recording("attach");
    let name = format!("examples-{}", std::process::id());
    let options = SharingOptions {
        name: name.clone(),
        ring: Options::default(),
        access: Access { lossless: true, ..Access::default() },
        wait_for: 1,
        patience: Some(Duration::from_secs(20)),
    };
    let sharing = Sharing::create(options).unwrap();
    let port = open_rx(&Spec::file(&file), &RxOptions::default()).unwrap();
    let sharer = std::thread::spawn(move || {
        let mut capture = Capture::new(Selection::default(), Vec::new()).share(Some(sharing));
        Receive::all(vec![port]).run(&mut [&mut capture])
    });
    let networks = attach::run(&name).unwrap();
    assert!(sharer.join().unwrap().failure.is_none());
    assert_eq!((networks.frames, networks.bytes[..3].iter().sum::<u64>()), (100, 90 * 42));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn engine_decides_which_packets_pass() {
    let name = format!("engine-{}", std::process::id());
    let pipe = |number: u32| {
        let spec = Spec::parse(&format!("mem:{name}-{number}")).unwrap();
        let to = open_tx(&spec, &TxOptions::default()).unwrap();
        (to, open_rx(&spec, &RxOptions::default()).unwrap())
    };
    let [(mut into, from), (to, _far), (idle, other), (back, _near)] = [0, 1, 2, 3].map(pipe);
    let access = Access { engine: Some(String::new()), ..Access::default() };
    let ring = Options { slots: 8, ..Options::default() };
    let options = SharingOptions { name: name.clone(), ring, access, wait_for: 0, patience: None };
    let sharing = Sharing::create(options).unwrap();
    let policy = InlinePolicy { budget: Duration::from_secs(20), ..InlinePolicy::default() };
    let mut inline = Inline::new(["one", "other"], [to, back], sharing, policy, Progress::new());
    let joined = std::thread::spawn(move || {
        let run = Receive::all(vec![from, other]).run(&mut [&mut inline]);
        (run.failure.is_none(), inline.sent()[0].frames)
    });
    let engine = AttachOptions::default().engine(&name).unwrap();
    let deciding = std::thread::spawn(move || engine::run(engine));
    // Waits until the engine is admitted.
    std::thread::sleep(Duration::from_millis(50));
    let mut block = Block::new(1 << 16, 16);
    for index in 0..16 {
        let text = if index % 4 == 1 { "\x07EXAMPLE\x03com\0" } else { "\x07example\x03org\0" };
        let frame = [&[index; 60], text.as_bytes()].concat();
        assert!(block.push(&Desc::new(Nanos(index.into()), 0, frame.len() as u32), &frame));
    }
    assert_eq!(into.queues[0].send(block.burst()).unwrap(), 16);
    into.queues[0].flush(Nanos::ZERO).unwrap();
    drop((into, idle));
    assert_eq!((joined.join().unwrap(), deciding.join().unwrap()), ((true, 12), 4));
}
