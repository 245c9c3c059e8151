//! `capture --print` of files.

use linerate_tests::support::program::{launch, linerate, run};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::{Scratch, frames, has_tools, tool};
use std::io::{BufRead, BufReader};

/// Writes a file with packets of many protocols; returns its path and the number of packets.
fn sample(scratch: &Scratch) -> (String, usize) {
    let file = scratch.file("sample.pcap");
    let sample = frames::sample();
    records::write(&file, &sample);
    (file, sample.len())
}

/// Packet lines, without hex dump lines.
fn lines(output: &str) -> Vec<&str> {
    output.lines().filter(|line| !line.starts_with('\t')).collect()
}

#[test]
fn output_has_only_one_line_per_packet() {
    let scratch = Scratch::new();
    let (file, frames) = sample(&scratch);
    let ended = run(&["capture", "-r", &file, "--print"]).good();
    let lines = lines(&ended.output);
    assert_eq!(lines.len(), frames, "{}", ended.output);
    assert_eq!(lines[0], "22:13:20.000000 ARP, Request who-has 10.0.0.2 tell 10.0.0.1, length 28");
    let ended = ended.says("reading pcap:").says(&format!("{frames} packets printed")).says("packets read, 0 lost");
    assert!(!ended.output.contains("printed"), "{}", ended.output);
    let json = run(&["capture", "-r", &file, "--print", "--stats", "--json"]).good();
    let document: serde_json::Value = serde_json::from_str(&json.errors).unwrap();
    assert_eq!(
        (document["printed"].as_u64(), document["stats"]["frames"].as_u64()),
        (Some(frames as u64), Some(frames as u64))
    );
    assert_eq!(json.output, ended.output);
}

#[test]
fn options_select_the_fields_of_a_line() {
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
        (&[][..], format!("22:13:21.123456 IP {tcp}")),
        (&["-n", "-l", "--print"], format!("22:13:21.123456 IP {tcp}")),
        (&["-e"], format!("22:13:21.123456 {link}{tcp}")),
        (&["-q"], "22:13:21.123456 IP 10.0.0.1.4242 > 10.0.0.2.80: tcp 4".to_owned()),
        (&["--nano", "-S"], format!("22:13:21.123456999 IP {tcp}")),
        (&["-#"], format!("    2  22:13:21.123456 IP {tcp}")),
        (&["-t"], format!("IP {tcp}")),
        (&["-tt"], format!("1700000001.123456 IP {tcp}")),
        (&["-ttt", "--nano"], format!("00:00:01.000000210 IP {tcp}")),
        (&["-tttt"], format!("2023-11-14 22:13:21.123456 IP {tcp}")),
        (&["-ttttt"], format!("00:00:01.000000 IP {tcp}")),
        (
            &["-x"],
            format!(
                "{hex}\n\t0x0010:  0a00 0002 1092 0050 0000 0009 0000 0000\n\t0x0020:  5002 0007 0000 0000 0102 030a"
            ),
        ),
        (&["-AA"], "\t..............`...E..,....@...\n\t...\n\t......P........P..........".to_owned()),
        (&["-X", "-s", "34"], format!("{hex}  E..,....@.......")),
    ] {
        let output = run(&[&["capture", "-r", &file], options].concat()).good().output;
        assert!(output.trim_end().ends_with(&expected) || output.contains(&expected), "{options:?}: {output}");
    }
    for (options, reason) in [
        (&["-t", "-w", "x.pcap"][..], "-t needs --print next to other outputs"),
        (&["-X", "--json"], "-X needs --print next to other outputs"),
        (&["-tttttt"], "-t: at most five times, -ttttt"),
        (&["--print", "-w", "-"], "both go to standard output"),
        (&["--print", "--flows", "-"], "both go to standard output"),
        (&["--print", "--filter-for", "write=tcp"], "--filter-for write needs --write"),
    ] {
        run(&[&["capture", "-r", &file], options].concat()).with_status(2).says(reason);
    }
}

#[test]
fn printed_packets_have_their_own_filter() {
    let scratch = Scratch::new();
    let (file, frames) = sample(&scratch);
    let (all, some) = (scratch.file("all.pcap"), ["capture", "-r", &file, "--print", "-e"]);
    let output = run(&[&some[..], &["-w", &all, "--filter-for", "print=arp"]].concat()).good().output;
    assert!(!output.is_empty() && output.lines().all(|line| line.contains("Request who-has")), "{output}");
    assert_eq!(records::read(&all).len(), frames);
    let output = run(&[&some[..], &["-c", "3"]].concat()).good().output;
    assert_eq!(lines(&output).len(), 3);
    // Slicing also applies to printed packets.
    let output = run(&[&some[..], &["--slice", "l3", "--filter", "tcp and not vlan and ip"]].concat()).good().output;
    assert!(output.lines().all(|line| line.ends_with("[|tcp]")), "{output}");
    let output = run(&[&some[..], &["--shard", "1/2"]].concat()).good().output;
    assert!((1..frames).contains(&lines(&output).len()), "{output}");
}

#[test]
fn reader_of_three_lines_may_close_the_pipe() {
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
    assert_eq!(records::read(&kept).len(), frames, "the file gets all packets");
    // All lines are printed without a live reader.
    let output = linerate(&["capture", "-r", &file]).output().unwrap();
    assert_eq!(output.stdout.iter().filter(|byte| **byte == b'\n').count(), frames);
}

#[test]
fn count_prints_the_number_of_packets() {
    let scratch = Scratch::new();
    let (file, frames) = sample(&scratch);
    let ended = run(&["capture", "-r", &file, "--count"]).good();
    assert_eq!((ended.output, ended.errors), (format!("{frames}\n"), String::new()));
    let arp = run(&["capture", "-r", &file, "arp"]).good().output.lines().count();
    assert_eq!(run(&["capture", "-r", &file, "--count", "arp"]).good().output, format!("{arp}\n"));
}

/// Prints the same filter program as tcpdump in all three formats.
#[test]
fn compiled_filter_is_printed() {
    let scratch = Scratch::new();
    let (file, _) = sample(&scratch);
    if !has_tools(&["tcpdump"]) {
        return;
    }
    let text = scratch.file("filter");
    std::fs::write(&text, "tcp port 80 # the web\n or arp\n").unwrap();
    for form in ["-d", "-dd", "-ddd"] {
        let theirs = tool("tcpdump", &[form, "-r", &file, "tcp port 80 or arp"]);
        for words in [&["-r", &file, "tcp port 80 or arp"][..], &["-r", &file, "-F", &text], &["tcp port 80 or arp"]] {
            let ours = run(&[&["capture", form], words].concat()).good().output;
            assert_eq!(ours, theirs, "{words:?}");
        }
    }
    run(&["capture", "-L", "-r", &file]).good().shows("EN10MB (Ethernet)");
    run(&["capture", "-L", "nosuch0"]).with_status(1).says("nosuch0: no such interface");
}

#[test]
fn interfaces_are_listed() {
    run(&["capture", "-D"]).good().shows("lo");
    run(&["capture", "-D", "-r", "x"]).with_status(2);
}
