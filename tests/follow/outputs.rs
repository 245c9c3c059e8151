//! Outputs of streams: files and their index, records, one conversation.

use super::traffic::{conversation, segment};
use super::{followed, indexed};
use linerate_tests::support::program::{linerate, run};
use linerate_tests::support::{Scratch, records};
use std::os::unix::fs::PermissionsExt;

/// Writes a capture of two consecutive conversations.
fn two(scratch: &Scratch) -> String {
    let input = scratch.file("in.pcap");
    records::write(&input, &[conversation(1000), conversation(1001)].concat());
    input
}

#[test]
fn each_direction_has_a_file_and_an_index_entry() {
    let scratch = Scratch::new();
    let input = two(&scratch);
    let answer = ("10.0.0.2".to_owned(), 80, "10.0.0.1".to_owned(), 1001);
    for (gaps, wanted) in [
        ("zeros", &b"hello \0\0\0\0\0\0world\n"[..]),
        ("skip", b"hello \0world\n"),
        ("mark", b"hello \n[5 bytes missing]\n\0world\n"),
    ] {
        let streams = followed(&scratch, &input, &["--gaps", gaps]);
        assert_eq!(streams.len(), 4);
        let [one] = &streams[&answer][..] else { panic!("one") };
        assert_eq!(one.bytes, wanted, "{gaps}");
        assert_eq!(one.entry["file"], "010.000.000.002.00080-010.000.000.001.01001");
        assert_eq!(one.entry["gaps"].to_string(), "[[6,5]]");
        assert_eq!((&one.entry["length"], &one.entry["bytes"]), (&18.into(), &13.into()));
        assert_eq!((&one.entry["began"], &one.entry["ended"]), (&"start".into(), &"fin".into()));
        let other = streams.values().flatten().find(|other| other.entry["stream"] == one.entry["other"]).unwrap();
        assert_eq!((other.bytes.as_slice(), &other.entry["connection"]), (&b"GET /\n"[..], &one.entry["connection"]));
    }
}

#[test]
fn files_are_readable_only_by_their_owner() {
    let scratch = Scratch::new();
    let input = two(&scratch);
    followed(&scratch, &input, &[]);
    for entry in std::fs::read_dir(scratch.file("streams")).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "files contain private data");
    }
}

#[test]
fn reused_addresses_get_separate_files() {
    let scratch = Scratch::new();
    let input = scratch.file("in.pcap");
    let again: Vec<_> = (0..3u32)
        .flat_map(|n| {
            let (seq, at) = (n * 100_000, u64::from(n) * 10);
            [segment(at, 7, false, (seq, 0), 2, b""), segment(at + 1, 7, false, (seq + 1, 0), 16, &[b'a' + n as u8; 3])]
        })
        .collect();
    records::write(&input, &again);
    let streams = followed(&scratch, &input, &[]).into_values().next().unwrap();
    let files: Vec<_> = streams.iter().map(|one| (one.entry["file"].as_str().unwrap(), one.bytes.as_slice())).collect();
    let name = "010.000.000.001.00007-010.000.000.002.00080";
    let (second, third) = (format!("{name}c1"), format!("{name}c2"));
    assert_eq!(files, [(name, &b"aaa"[..]), (&second, b"bbb"), (&third, b"ccc")]);
}

#[test]
fn streams_above_the_open_file_limit_are_complete() {
    let scratch = Scratch::new();
    let input = scratch.file("in.pcap");
    let mut all = Vec::new();
    for round in 0..3u32 {
        for port in 1..700 {
            let time = u64::from(round) * 1000 + u64::from(port);
            all.push(segment(time, port, false, (round * 4, 0), 16, format!("{port:04}").as_bytes()));
        }
    }
    records::write(&input, &all);
    let streams = followed(&scratch, &input, &[]);
    assert_eq!(streams.len(), 699);
    for ((_, port, ..), one) in streams {
        assert_eq!(one[0].bytes, format!("{port:04}").repeat(3).into_bytes());
    }
}

#[test]
fn records_match_files() {
    let scratch = Scratch::new();
    let input = two(&scratch);
    let out = linerate(&["streams", "-q", "-r", &input, "-w", "-"]).output().unwrap().stdout;
    let mut rest = out.strip_prefix(b"LRSTRM1\n").expect("the magic");
    let mut events = Vec::new();
    while !rest.is_empty() {
        let (head, behind) = rest.split_at(32);
        let long = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap());
        let (kind, stream) = (head[0] as char, u32::from_le_bytes(head[4..8].try_into().unwrap()));
        assert!(long(16) / 1_000_000_000 == 1_700_000_010, "the time of the packets");
        let follows = if kind == 'G' { 0 } else { long(24) as usize };
        let (bytes, behind) = behind.split_at(follows);
        let shown = match kind {
            'B' | 'E' => {
                let entry: serde_json::Value = serde_json::from_slice(bytes).unwrap();
                assert_eq!(entry["stream"], stream);
                entry["src_port"].to_string()
            }
            'G' => long(24).to_string(),
            _ => String::from_utf8_lossy(bytes).into_owned(),
        };
        events.push(format!("{kind}{stream}@{} {shown}", long(8)));
        rest = behind;
    }
    let of = |stream: u32| {
        events.iter().filter(|one| one[1..].starts_with(&format!("{stream}@"))).cloned().collect::<Vec<_>>()
    };
    assert_eq!(of(0), ["B0@0 1000", "D0@0 GET /\n", "E0@6 1000"]);
    assert_eq!(of(3), ["B3@0 80", "D3@0 hello ", "G3@6 5", "D3@11 \0world\n", "E3@18 80"]);
}

#[test]
fn conversation_is_printed_in_three_formats() {
    let scratch = Scratch::new();
    let input = two(&scratch);
    let shown = |form: &str| {
        let out = linerate(&["streams", "-q", "-r", &input, "--follow", "1", "--form", form]).output().unwrap();
        String::from_utf8(out.stdout).unwrap()
    };
    assert_eq!(shown("raw"), "GET /\nhello \0world\n");
    assert_eq!(
        shown("ascii"),
        "--- 10.0.0.1:1001 > 10.0.0.2:80\nGET /\n\n--- 10.0.0.2:80 > 10.0.0.1:1001\nhello [5 bytes missing from offset 6]\n.world\n\n"
    );
    assert_eq!(
        shown("hex"),
        "00000000  47 45 54 20 2f 0a                                  GET /.\n\
         \t00000000  68 65 6c 6c 6f 20                                  hello \n\
         \t[5 bytes missing from offset 6]\n\
         \t0000000b  00 77 6f 72 6c 64 0a                               .world.\n"
    );
    let raw = run(&["streams", "-r", &input, "--follow", "1"]).good();
    raw.says("gaps in raw output: 1, 5 bytes in all; --form ascii or hex marks them");
    run(&["streams", "-q", "-r", &input, "--follow", "5"])
        .with_status(1)
        .says("--follow 5: no connection with data has this number; numbers start at 0");
}

#[test]
fn summary_counts_all_streams_and_lists_the_longest() {
    let scratch = Scratch::new();
    let input = two(&scratch);
    run(&["streams", "-r", &input])
        .good()
        .shows("4 streams with data in 2 connections, 38 bytes")
        .shows("2 gaps of 10 bytes")
        .shows("0 lost (notes: gaps 2)");
    let found = run(&["streams", "-r", &input, "--json"]).good().json();
    assert_eq!(
        (&found["schema"], &found["streams"], &found["missing"]),
        (&"linerate/streams/1".into(), &4.into(), &10.into())
    );
    assert_eq!((&found["balanced"], found["longest"].as_array().unwrap().len()), (&true.into(), 4));
    let found = run(&["streams", "-r", &input, "--json", "--top", "1"]).good().json();
    assert_eq!(found["longest"].as_array().unwrap().len(), 1);
    run(&["streams", "-r", &input, "--top", "3"]).good().shows("3 of 4 streams listed; --top N lists more");
    let folder = scratch.file("only");
    run(&["streams", "-q", "-r", &input, "-w", &folder, "--top", "3"]).with_status(2).says("--top has no effect");
    run(&["streams", "-q", "-r", &input, "-w", &folder, "port", "1001"]).good();
    assert_eq!(indexed(&folder).len(), 2);
}
