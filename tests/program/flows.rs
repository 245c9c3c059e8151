//! Flow records: the same for any number of workers and input files; and the worker statistics of the summary.

use linerate_headers::build::Frame;
use linerate_headers::{MacAddr, ethernet, ipv4, udp};
use linerate_tests::support::program::{Ended, program, run};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::{Scratch, corpus, has_tools, tool};
use serde_json::Value;
use std::fs;
use std::process::Command;

const SECOND: u64 = 1_000_000_000;

/// Both directions of 100 pairs of hosts in turn; the last pair has as many packets as all others together.
fn conversations() -> Vec<Record> {
    let frame = |number: u64| {
        let host = if number.is_multiple_of(2) { (number / 2 % 99) as u8 } else { 200 };
        let address = |host: u8| [10, 0, 0, host].into();
        let (from, to) = if (number / 400).is_multiple_of(2) { (host, 250) } else { (250, host) };
        let link = ethernet::Header { source: MacAddr([2; 6]), destination: MacAddr([4; 6]), ether_type: 0 };
        let network = ipv4::Header { source: address(from), destination: address(to), ..ipv4::Header::new(0) };
        let ports = udp::Header { source_port: 53, destination_port: 53 };
        let bytes = Frame::new(&[&link, &network, &ports], &number.to_be_bytes()).to_vec().unwrap();
        Record { time: 1_700_000_000 * SECOND + number * 1_000_000, wire: bytes.len() as u32, bytes }
    };
    (0..4000).map(frame).collect()
}

/// Sorted lines of standard output.
fn lines(arguments: &[&str]) -> Vec<String> {
    let ended = run(&[&["flows", "--write", "-", "--id-seed", "t"], arguments].concat()).good();
    let mut lines: Vec<String> = ended.output.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn any_number_of_workers_writes_the_same_records() {
    let scratch = Scratch::new();
    let file = scratch.file("conversations.pcap");
    records::write(&file, &conversations());
    let one = lines(&["-r", &file]);
    assert_eq!(one.len(), 100);
    assert!(lines(&["-r", &file, "--workers", "3"]) == one);
    let written = scratch.file("flows.jsonl");
    run(&["flows", "-r", &file, "--workers", "8", "--write", &written, "-q"]).good();
    assert_eq!(fs::read_to_string(&written).unwrap().lines().count(), 100);
    if let Some(mix) = corpus("real-mix.pcap") {
        let mix = mix.to_str().unwrap();
        let one = lines(&["-r", mix]);
        assert!(one.len() > 1000 && lines(&["-r", mix, "--workers", "3"]) == one);
    }
}

/// Each direction has its own file, as from a tap; packets are processed in order of time.
#[test]
fn several_files_are_one_stream() {
    let scratch = Scratch::new();
    let (there, back, both) = (scratch.file("there.pcap"), scratch.file("back.pcap"), scratch.file("both.pcap"));
    // The first packet determines the responder of a flow; idle timeouts end flows in between.
    let mut all = conversations();
    for (number, record) in all.iter_mut().enumerate() {
        record.time += number as u64 / 1200 * 20 * SECOND;
    }
    let part = |is_back| all.iter().enumerate().filter(move |(at, _)| (at / 400 % 2 == 1) == is_back);
    records::write(&there, &part(false).map(|(_, one)| one.clone()).collect::<Vec<_>>());
    records::write(&back, &part(true).map(|(_, one)| one.clone()).collect::<Vec<_>>());
    records::write(&both, &all);
    if has_tools(&["mergecap"]) {
        tool("mergecap", &["-F", "nsecpcap", "-w", &both, &there, &back]);
    }
    let idle = ["--idle", "tcp=1,udp=10"];
    let expected = lines(&[&["-r", &both][..], &idle].concat());
    assert_eq!(expected.len(), 400);
    assert!(!expected.iter().any(|line| line.contains("out_of_time")));
    for workers in ["1", "3"] {
        let found = lines(&[&["-r", &back, "-r", &there, "--workers", workers][..], &idle].concat());
        assert!(found == expected, "{workers} workers: {} lines of {}", found.len(), expected.len());
    }
}

#[test]
fn summary_reports_worker_load_and_elephants() {
    let scratch = Scratch::new();
    let file = scratch.file("conversations.pcap");
    records::write(&file, &conversations());
    let ids = ["--id-seed", "t"];
    let json = run(&[&["flows", "-r", &file, "--workers", "8", "--json"], &ids[..]].concat()).good().json();
    let workers = json["workers"].as_array().unwrap();
    let sum = |name: &str| workers.iter().map(|worker| worker[name].as_u64().unwrap()).sum::<u64>();
    assert_eq!((workers.len(), sum("frames"), sum("flows")), (8, 4000, 100));
    assert_eq!(Value::from(sum("bytes")), json["bytes"]);
    assert!(json["worker_imbalance"].as_f64().unwrap() >= 4.0, "one worker has half of all packets");
    let elephants = json["elephants"].as_array().unwrap();
    assert_eq!(elephants.len(), 1);
    assert_eq!((&elephants[0]["packets_share"], &elephants[0]["packets"]), (&0.5.into(), &2000.into()));
    // With an active timeout of half a second.
    let parts =
        run(&[&["flows", "-r", &file, "--workers", "8", "--active", "0.5", "--json"], &ids[..]].concat()).good().json();
    assert!(parts["records"]["active"].as_u64().unwrap() > 500, "{parts}");
    assert_eq!((&parts["elephants"], &parts["top"][0]["orig"]), (&json["elephants"], &json["top"][0]["orig"]));
    let text = run(&["flows", "-r", &file, "--workers", "8"]).good().output;
    for expected in ["WARNING: one worker had", "elephant: 10.0.0.200:53 10.0.0.250:53 UDP: 50.0 % of packets"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    let text = run(&["flows", "-r", &file]).good().output;
    assert!(!text.contains("elephant") && !text.contains("worker"), "{text}");
}

#[test]
fn packets_of_unknown_link_types_are_counted() {
    let scratch = Scratch::new();
    let file = scratch.file("usb.pcap");
    records::write(&file, &conversations());
    let mut bytes = fs::read(&file).unwrap();
    bytes[20] = 220;
    fs::write(&file, bytes).unwrap();
    for workers in ["1", "2"] {
        let arguments = ["flows", "-r", &file, "--workers", workers];
        let json = run(&[&arguments[..], &["--json"]].concat()).good().json();
        assert_eq!((&json["unknown_link"], &json["not_ip"], &json["flows"]), (&4000.into(), &0.into(), &0.into()));
        assert_eq!((&json["unknown_link_bytes"], &json["unknown_link_types"][0]), (&json["bytes"], &220.into()));
        let text = run(&arguments).good().output;
        assert!(text.contains("4,000 packets of unknown link type (220)\n"), "{text}");
        assert!(!text.contains("not IP"), "{text}");
    }
}

#[test]
fn wrong_options_are_named() {
    for (arguments, expected) in [
        (&["--workers", "0"][..], "--workers: expected 1 to 64"),
        (&["--workers", "65"], "--workers: expected 1 to 64"),
        (&["--idle", "sctp=9"], "expected tcp, udp, icmp, other"),
        (&["--active", "tcp=x"], "--active: \"tcp=x\": invalid timeout"),
        (&["--max-flows", "99999999"], "or more with more --workers"),
        (&["--workers", "64", "--max-flows", "1000000000"], "MiB are free"),
        (&["--format", "zeek"], "--format needs --write"),
        (&["--write", ""], "expected FILE, - or DIR/"),
    ] {
        let ended = run(&[&["flows", "-r", "nowhere.pcap"], arguments].concat());
        assert_eq!(ended.status, 2, "{arguments:?}: {}", ended.errors);
        assert!(ended.errors.contains(expected), "{arguments:?}: {}", ended.errors);
    }
}

/// Under `ulimit -v` the flow table is smaller, so that the run does not fail later.
#[test]
fn flow_table_fits_the_address_space_limit() {
    let scratch = Scratch::new();
    let file = scratch.file("conversations.pcap");
    records::write(&file, &conversations());
    let most = |limit: &str, more: &str| {
        let line = format!("ulimit -v {limit}; exec \"$0\" flows -r {file} --level stats --json {more}");
        let ended = Ended::of(Command::new("sh").arg("-c").arg(line).arg(program()).output().unwrap()).good();
        (ended.json()["max_bytes"].as_u64().unwrap(), ended.errors)
    };
    let (usual, silent) = most("unlimited", "");
    assert!(usual > 1 << 30 && !silent.contains("ulimit"), "{usual}: {silent}");
    let (bounded, errors) = most("1048576", "");
    assert!((1 << 27..=1 << 29).contains(&bounded), "{bounded}");
    assert!(errors.contains("--max-flows reduced to 262,144: ulimit -v allows 1,024 MiB"), "{errors}");
    // An explicit size is kept if it fits.
    assert!(most("1048576", "--max-flows 524288 --workers 2").0 > 1 << 29);
}

#[test]
fn outputs_are_kept_if_the_input_is_unreadable() {
    let scratch = Scratch::new();
    let (file, written) = (scratch.file("conversations.pcap"), scratch.file("flows.jsonl"));
    records::write(&file, &conversations());
    let bytes = fs::read(&file).unwrap();
    let ended = run(&["flows", "-r", &file, "--write", &file]);
    assert_eq!(ended.status, 2, "{}", ended.errors);
    assert!(ended.errors.contains("both read and written"), "{}", ended.errors);
    assert!(fs::read(&file).unwrap() == bytes);

    run(&["flows", "-r", &file, "--write", &written, "-q"]).good();
    let good = fs::read(&written).unwrap();
    let text = scratch.file("text");
    fs::write(&text, "not a capture file").unwrap();
    assert_eq!(run(&["flows", "-r", &text, "--write", &written, "-q"]).status, 1);
    assert!(fs::read(&written).unwrap() == good);
    assert!(!fs::exists(format!("{written}.part")).unwrap());
}
