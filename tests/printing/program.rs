//! `capture --print` of files.

use linerate_tests::support::program::{launch, linerate, run};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::{Scratch, frames};
use std::io::{BufRead, BufReader};

/// A file of frames of many protocols, and how many they are.
fn sample(scratch: &Scratch) -> (String, usize) {
    let file = scratch.file("sample.pcap");
    let sample = frames::sample();
    records::write(&file, &sample);
    (file, sample.len())
}

/// Lines of frames, without those of their bytes.
fn lines(output: &str) -> Vec<&str> {
    output.lines().filter(|line| !line.starts_with('\t')).collect()
}

#[test]
fn each_frame_has_a_line_and_all_else_is_said_elsewhere() {
    let scratch = Scratch::new();
    let (file, frames) = sample(&scratch);
    let ended = run(&["capture", "-r", &file, "--print"]).good();
    let lines = lines(&ended.output);
    assert_eq!(lines.len(), frames, "{}", ended.output);
    assert_eq!(lines[0], "22:13:20.000000 ARP, Request who-has 10.0.0.2 tell 10.0.0.1, length 28");
    let ended =
        ended.says("capturing pcap:").says(&format!("printed {frames} frames")).says("packets captured, 0 lost");
    assert!(!ended.output.contains("printed"), "{}", ended.output);
    let json = run(&["capture", "-r", &file, "--print", "--count", "--json"]).good();
    let document: serde_json::Value = serde_json::from_str(&json.errors).unwrap();
    assert_eq!(
        (document["printed"].as_u64(), document["count"]["frames"].as_u64()),
        (Some(frames as u64), Some(frames as u64))
    );
    assert_eq!(json.output, ended.output);
}

#[test]
fn options_say_what_is_in_a_line() {
    let scratch = Scratch::new();
    let file = scratch.file("one.pcap");
    let packet = "0200000000070200000000088100600508004500002c00010000400600000a0000010a00000210920050000000090000000050020007000000000102030a";
    let bytes: Vec<u8> =
        (0..packet.len()).step_by(2).map(|at| u8::from_str_radix(&packet[at..at + 2], 16).unwrap()).collect();
    let frame = |time| Record { time, wire: bytes.len() as u32, bytes: bytes.clone() };
    records::write(&file, &[frame(1_700_000_000_123_456_789), frame(1_700_000_001_123_456_999)]);
    let tcp = "10.0.0.1.4242 > 10.0.0.2.80: Flags [S], seq 9:13, win 7, length 4";
    let link = "02:00:00:00:00:08 > 02:00:00:00:00:07, ethertype 802.1Q (0x8100), length 62: vlan 5, p 3, ethertype IPv4 (0x0800), ";
    let hex = "\t0x0000:  4500 002c 0001 0000 4006 0000 0a00 0001";
    for (options, expected) in [
        (&["--print"][..], format!("22:13:21.123456 IP {tcp}")),
        (&["--print=link"], format!("22:13:21.123456 {link}{tcp}")),
        (&["--print=brief"], "22:13:21.123456 IP 10.0.0.1.4242 > 10.0.0.2.80: tcp 4".to_owned()),
        (&["--print=nanos,absolute"], format!("22:13:21.123456999 IP {tcp}")),
        (&["--print", "--print-time", "none"], format!("IP {tcp}")),
        (&["--print", "--print-time", "epoch"], format!("1700000001.123456 IP {tcp}")),
        (&["--print", "--print-time", "date"], format!("2023-11-14 22:13:21.123456 IP {tcp}")),
        (&["--print=nanos", "--print-time", "delta"], format!("00:00:01.000000210 IP {tcp}")),
        (&["--print", "--print-time", "first"], format!("00:00:01.000000 IP {tcp}")),
        (
            &["--print", "--print-bytes", "hex"],
            format!(
                "{hex}\n\t0x0010:  0a00 0002 1092 0050 0000 0009 0000 0000\n\t0x0020:  5002 0007 0000 0000 0102 030a"
            ),
        ),
        (
            &["--print", "--print-bytes", "ascii,link"],
            "\t..............`...E..,....@...\n\t...\n\t......P........P..........".to_owned(),
        ),
        (&["--print", "--print-bytes", "hex,ascii", "-s", "34"], format!("{hex}  E..,....@.......")),
    ] {
        let output = run(&[&["capture", "-q", "-r", &file], options].concat()).good().output;
        assert!(output.trim_end().ends_with(&expected) || output.contains(&expected), "{options:?}: {output}");
    }
    for (options, reason) in [
        (&["--print-time", "none"][..], "--print-time means nothing without --print"),
        (&["--print-bytes", "hex"], "--print-bytes means nothing without --print"),
        (&["--print=link,loud"], "\"loud\" is none of link, verbose"),
        (&["--print", "--print-bytes", "link"], "say hex, ascii, or both"),
        (&["--print=brief,verbose"], "more of each header, or less?"),
        (&["--print=brief,absolute"], "brief lines have no numbers"),
        (&["--print", "-w", "-"], "both go to standard output"),
        (&["--print", "--flows", "-"], "both go to standard output"),
        (&["--print", "--filter-for", "write=tcp"], "means nothing without --write"),
        (&["-e"], "--print=link"),
        (&["-X"], "--print-bytes hex,ascii"),
    ] {
        run(&[&["capture", "-r", &file], options].concat()).with_status(2).says(reason);
    }
}

#[test]
fn what_is_printed_is_selected_on_its_own() {
    let scratch = Scratch::new();
    let (file, frames) = sample(&scratch);
    let (all, some) = (scratch.file("all.pcap"), ["capture", "-q", "-r", &file, "--print=link"]);
    let output = run(&[&some[..], &["-w", &all, "--filter-for", "print=arp"]].concat()).good().output;
    assert!(!output.is_empty() && output.lines().all(|line| line.contains("ARP, Request")), "{output}");
    assert_eq!(records::read(&all).len(), frames);
    let output = run(&[&some[..], &["-c", "3"]].concat()).good().output;
    assert_eq!(lines(&output).len(), 3);
    // What is kept of a frame is what is printed of it.
    let output = run(&[&some[..], &["--slice", "l3", "--filter", "tcp and not vlan and ip"]].concat()).good().output;
    assert!(output.lines().all(|line| line.ends_with("[|tcp]")), "{output}");
    let output = run(&[&some[..], &["--shard", "1/2"]].concat()).good().output;
    assert!((1..frames).contains(&lines(&output).len()), "{output}");
}

#[test]
fn a_reader_of_three_lines_has_enough() {
    let scratch = Scratch::new();
    let (file, frames) = (scratch.file("many.pcap"), 60_000);
    let to = format!("pcap:{file}");
    run(&["generate", "-q", "--to", &to, "-k", "ip/udp", "-c", &frames.to_string()]).good();
    let kept = scratch.file("kept.pcap");
    for more in [&[][..], &["-w", &kept]] {
        let mut running = launch(&[&["capture", "-r", &file, "--print"], more].concat());
        let mut lines = BufReader::new(running.take_output().unwrap()).lines();
        assert!((0..3).all(|_| lines.next().unwrap().unwrap().contains("UDP, length")));
        drop(lines);
        let ended = running.end().good().says("reader_gone");
        assert!(!ended.errors.contains("roken pipe"), "{}", ended.errors);
    }
    assert_eq!(records::read(&kept).len(), frames, "whoever else wants frames gets them");
    // Nobody waits for lines, and none is missing.
    let output = linerate(&["capture", "-q", "-r", &file, "--print"]).output().unwrap();
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), frames);
}

#[test]
fn interfaces_are_listed_instead() {
    run(&["capture", "-D"]).good().shows("lo");
    run(&["capture", "-D", "-r", "x"]).with_status(2);
}
