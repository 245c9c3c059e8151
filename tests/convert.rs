//! `capture --read FILE --write FILE` as a converter between all formats, checked with `tshark` and `capinfos` on
//! both sides.

mod outputs;

use linerate::pcap::Reader;
use linerate_tests::support::pcapng::everything;
use linerate_tests::support::program::{linerate, run};
use linerate_tests::support::{Scratch, corpus, has_tools, tool, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::process::{Command, Stdio};

/// Field values of each frame, as `tshark` prints them.
fn tshark_fields(path: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut arguments = vec!["-n", "-r", path, "-T", "fields"];
    fields.iter().for_each(|field| arguments.extend(["-e", field]));
    let lines = tool("tshark", &arguments);
    lines.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// Link types.
const ETHERNET: u16 = 1;
const RAW: u16 = 101;

/// Fields that every format keeps.
const PLAIN: [&str; 3] = ["frame.len", "frame.cap_len", "frame.encap_type"];
/// Fields that only pcapng keeps.
const RICH: [&str; 5] =
    ["frame.time_epoch", "frame.comment", "frame.interface_name", "frame.interface_description", "frame.packet_flags"];

/// Reads a file back with linerate's reader: time, wire length and bytes of each frame.
fn frames(path: &str) -> Vec<(u64, u32, Vec<u8>)> {
    let mut reader = Reader::open(path).unwrap_or_else(|error| panic!("{error}"));
    let mut found = Vec::new();
    loop {
        let burst = reader.fill().unwrap_or_else(|error| panic!("{error}"));
        let shown = burst.len();
        found.extend(burst.iter().map(|(desc, frame)| (desc.time.0, desc.wire, frame.to_vec())));
        if shown == 0 {
            return found;
        }
        reader.consume(shown);
    }
}

/// Converts a file and checks for status 0 and no errors.
fn convert(from: &str, to: &str, more: &[&str]) {
    let from = format!("pcap:{from}");
    let ended = run(&[&["capture", "-q", "-i", &from, "--write", to], more].concat());
    assert_eq!((ended.status, ended.errors.as_str()), (0, ""), "{from} to {to}");
}

/// Returns the file itself and its copies compressed by gzip, zstd and lz4.
fn compressed(path: &str) -> [String; 4] {
    tool("gzip", &["-k", path]);
    tool("zstd", &["-q", "-k", path]);
    tool("lz4", &["-q", "-k", path, &format!("{path}.lz4")]);
    [path.to_owned(), format!("{path}.gz"), format!("{path}.zst"), format!("{path}.lz4")]
}

/// Checks a compressed file with the reference tool of its format.
fn check_whole(path: &str) {
    if path.ends_with(".gz") {
        tool("gzip", &["-t", path]);
    } else if path.ends_with(".zst") {
        tool("zstd", &["-q", "-t", path]);
    } else if path.ends_with(".lz4") {
        tool("lz4", &["-q", "-t", path]);
    }
}

#[test]
fn pcapng_metadata_survives_every_compression() {
    if !has_tools(&["tshark", "capinfos", "gzip", "zstd", "lz4"]) {
        return;
    }
    for big in [false, true] {
        let scratch = Scratch::new();
        let source = scratch.file("in.pcapng");
        std::fs::write(&source, everything(big, RAW)).unwrap();
        let fields = [&PLAIN[..], &RICH].concat();
        let (mut expected, bytes) = (tshark_fields(&source, &fields), frames(&source));
        // A simple packet block has no time; it gets the time of the previous frame.
        let before = expected[3][3].clone();
        assert_eq!(std::mem::replace(&mut expected[4][3], before), "");
        // Wireshark 4.0 counts interfaces across sections.
        for frame in &mut expected[6..] {
            frame[5..7].clone_from_slice(&["wlan0".to_owned(), String::new()]);
        }
        assert_eq!((expected.len(), bytes.len()), (36, 36));
        for (number, from) in compressed(&source).iter().enumerate() {
            for ending in ["pcapng", "pcapng.gz", "pcapng.zst", "pcapng.lz4", "anything.gz"] {
                let to = scratch.file(&format!("{number}.{ending}"));
                convert(from, &to, &[]);
                check_whole(&to);
                assert_eq!(frames(&to), bytes, "{to}");
                if big == (number % 2 == 0) {
                    // Converts the output once more.
                    let again = scratch.file(&format!("{number}.again.{ending}"));
                    convert(&to, &again, &[]);
                    assert_eq!(tshark_fields(&again, &fields), expected, "{again}");
                }
            }
        }
    }
}

#[test]
fn section_and_interface_options_survive() {
    if !has_tools(&["capinfos", "tshark"]) {
        return;
    }
    let scratch = Scratch::new();
    let (source, to) = (scratch.file("in.pcapng"), scratch.file("out.pcapng"));
    std::fs::write(&source, everything(true, RAW)).unwrap();
    convert(&source, &to, &["--comment", "made by a test", "--comment", "twice"]);
    let classic = scratch.file("out.pcap");
    run(&["capture", "-r", &source, "-w", &classic, "--comment", "x"]).with_status(2).says("--comment needs pcapng");
    let text = tool("capinfos", &[&to]);
    for line in [
        "Number of interfaces in file: 5",
        "Capture hardware:    a machine",
        "Capture oper-sys:    an OS",
        "Capture application: a program",
        "Name = eth0",
        "Description = in the middle",
        "Speed = 10000000000",
        "Operating system = another OS",
        "Hardware = a card",
        "Filter string = tcp",
        "Comment = a cable",
        "Comment = of the second section",
        "Name = never used",
        "Capture length = 96",
        "Capture comment:     first of the section",
        "Capture comment:     second",
        "Capture comment:     made by a test",
        "Capture comment:     twice",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    // Block types with the options that tshark knows by name.
    let kinds = tool("tshark", &["-r", &to, "-X", "read_format:MIME Files Format", "-V"]);
    // Decryption secrets are shown as bytes.
    for line in ["peer.", "434c49454e545f52414e444f4d", "told at the end", "Number of Received Packets: 1000"] {
        assert!(kinds.contains(line), "{line:?} is not in {kinds}");
    }
    assert!(!kinds.contains("not to be copied"));
}

#[test]
fn file_statistics_are_in_the_ledger() {
    let scratch = Scratch::new();
    let (source, to) = (scratch.file("in.pcapng"), scratch.file("out.pcapng.zst"));
    std::fs::write(&source, everything(false, RAW)).unwrap();
    for (from, frames) in [(&source, 36), (&to, 36)] {
        let out = scratch.file("again.pcapng");
        let ended = run(&["capture", "--json", "-r", from, "-w", if from == &source { &to } else { &out }]);
        let json: serde_json::Value = serde_json::from_str(&ended.output).expect("JSON");
        let receive = &json["accounts"].as_array().expect("accounts")[0];
        assert_eq!((&receive["received"], &json["lost"]), (&frames.into(), &0.into()));
        assert_eq!((&receive["notes"]["file_seen"], &receive["notes"]["file_dropped"]), (&1050.into(), &9.into()));
    }
}

#[test]
fn comments_stay_with_their_frames() {
    if !has_tools(&["tshark"]) {
        return;
    }
    let scratch = Scratch::new();
    let (source, to) = (scratch.file("in.pcapng"), scratch.file("out.pcapng"));
    std::fs::write(&source, everything(false, RAW)).unwrap();
    // Every third frame of the second section has a comment; the filter drops half of them.
    convert(&source, &to, &["udp[1] & 1 == 1"]);
    let expected: Vec<_> = tshark_fields(&source, &["udp.srcport", "frame.comment", "frame.time_epoch"])
        .into_iter()
        .filter(|line| line[0].parse::<u16>().is_ok_and(|port| port & 1 == 1))
        .collect();
    assert!(expected.len() > 15 && expected.iter().filter(|line| !line[1].is_empty()).count() > 5);
    assert_eq!(tshark_fields(&to, &["udp.srcport", "frame.comment", "frame.time_epoch"]), expected);
    // Truncated frames keep their comments too.
    let cut = scratch.file("cut.pcapng");
    convert(&source, &cut, &["-s", "20"]);
    assert_eq!(tshark_fields(&cut, &["frame.comment"]), tshark_fields(&source, &["frame.comment"]));
}

#[test]
fn pcap_and_pcapng_convert_into_each_other() {
    if !has_tools(&["tshark", "gzip", "zstd", "lz4"]) {
        return;
    }
    let scratch = Scratch::new();
    let made = scratch.file("made.pcapng");
    // pcap holds a single link type.
    std::fs::write(&made, everything(false, ETHERNET)).unwrap();
    let sources = [("nanos.pcap", "pcap"), ("micros.pcap", "pcap-micros"), ("one.pcapng", "pcapng")];
    for (name, format) in sources {
        let source = scratch.file(name);
        convert(&made, &source, &["--format", format]);
        let expected = tshark_fields(&source, &PLAIN);
        assert_eq!(expected.len(), 36, "{name}");
        let times = frames(&source);
        for from in compressed(&source) {
            for (ending, format) in [("pcap", "pcap"), ("pcap", "pcap-micros"), ("pcapng", "pcapng"), ("cap", "pcap")] {
                for compression in ["", ".gz", ".zst", ".lz4"] {
                    let to = scratch.file(&format!("out.{ending}{compression}"));
                    convert(&from, &to, &["--format", format]);
                    check_whole(&to);
                    // Each pair of formats and of compressions is compared once.
                    if from.ends_with(if compression.is_empty() { "pcap" } else { compression }) {
                        assert_eq!(tshark_fields(&to, &PLAIN), expected, "{from} to {to} as {format}");
                    }
                    let unit = if format == "pcap-micros" { 1000 } else { 1 };
                    let rounded =
                        |(time, wire, bytes): &(u64, u32, Vec<u8>)| (time / unit * unit, *wire, bytes.clone());
                    assert_eq!(frames(&to), times.iter().map(rounded).collect::<Vec<_>>(), "{from} to {to}");
                }
            }
        }
    }
}

#[test]
fn several_files_are_merged_by_time() {
    if !has_tools(&["tshark", "capinfos"]) {
        return;
    }
    let scratch = Scratch::new();
    let (left, right, to) = (scratch.file("left.pcapng.gz"), scratch.file("right.pcap.zst"), scratch.file("to.pcapng"));
    let made = scratch.file("made.pcapng");
    std::fs::write(&made, everything(true, ETHERNET)).unwrap();
    convert(&made, &left, &["--comment", "left"]);
    convert(&made, &right, &[]);
    let both = format!("pcap:{left},pcap:{right}");
    run(&["capture", "-q", "-i", &both, "--write", &to]).with_status(0);
    let mut expected = [frames(&left), frames(&right)].concat();
    expected.sort_by_key(|frame| frame.0);
    let found = frames(&to);
    assert_eq!(found.len(), 72);
    assert!(found.is_sorted_by_key(|frame| frame.0));
    assert!(found.iter().map(|frame| frame.0).eq(expected.iter().map(|frame| frame.0)));
    let comments = |path: &str| {
        let lines = tshark_fields(path, &["frame.comment"]);
        lines.into_iter().flatten().filter(|comment| !comment.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(comments(&to), comments(&made));
    assert!(tool("capinfos", &[&to]).contains("Capture comment:     left"));
}

/// Number of complete frames in a possibly truncated file.
fn complete(path: &str) -> usize {
    let Ok(mut reader) = Reader::open(path) else { return 0 };
    let mut found = 0;
    while let Ok(shown @ 1..) = reader.fill().map(|burst| burst.len()) {
        found += shown;
        reader.consume(shown);
    }
    found
}

#[test]
fn stopped_or_killed_run_leaves_a_readable_file() {
    if !has_tools(&["tshark", "gzip", "zstd", "lz4"]) {
        return;
    }
    let scratch = Scratch::new();
    let (made, pipe) = (scratch.file("made.pcapng"), scratch.file("made.pcap"));
    std::fs::write(&made, everything(false, ETHERNET)).unwrap();
    convert(&made, &pipe, &[]);
    let bytes = std::fs::read(&pipe).unwrap();
    for (ending, signal) in [
        ("gz", Signal::TERM),
        ("zst", Signal::TERM),
        ("lz4", Signal::TERM),
        ("gz", Signal::KILL),
        ("zst", Signal::KILL),
        ("lz4", Signal::KILL),
    ] {
        let to = scratch.file(&format!("{signal:?}.pcapng.{ending}"));
        let mut command = linerate(&["capture", "-q", "-r", "-", "-w", &to]);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("the program");
        let mut input = child.stdin.take().expect("a pipe");
        // Written in two parts; the pipe stays open.
        input.write_all(&bytes[..1000]).unwrap();
        wait_until("the first frames are written", || complete(&to) > 3);
        input.write_all(&bytes[1000..]).unwrap();
        wait_until("all frames are written", || complete(&to) == 36);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(complete(&to), 36);
        if signal == Signal::TERM {
            assert_eq!(status.code(), Some(0));
            check_whole(&to);
        }
        // tshark reports the truncation and prints all frames before it.
        let output = Command::new("tshark").args(["-nr", &to]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 36, "{to}");
    }
}

#[test]
fn compressed_pipe_is_read_byte_by_byte() {
    if !has_tools(&["gzip", "zstd", "lz4"]) {
        return;
    }
    let scratch = Scratch::new();
    let made = scratch.file("made.pcapng");
    std::fs::write(&made, everything(false, ETHERNET)).unwrap();
    for from in &compressed(&made)[1..] {
        let to = scratch.file("to.pcapng");
        let mut command = linerate(&["capture", "-q", "-r", "-", "-w", &to]);
        let mut child = command.stdin(Stdio::piped()).spawn().expect("the program");
        let mut input = child.stdin.take().expect("a pipe");
        let bytes = std::fs::read(from).unwrap();
        for byte in &bytes[..60] {
            input.write_all(&[*byte]).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
        input.write_all(&bytes[60..]).unwrap();
        drop(input);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_eq!(frames(&to), frames(&made));
    }
}

#[test]
fn corpus_captures_convert_without_changes() {
    let Some(folder) = corpus("tcpdump") else { return };
    if !has_tools(&["tshark"]) {
        return;
    }
    let scratch = Scratch::new();
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    let pcapng = entries.iter().filter(|path| path.extension().is_some_and(|ending| ending == "pcapng"));
    let pcap = entries.iter().filter(|path| path.extension().is_some_and(|ending| ending == "pcap"));
    let mut converted = 0;
    for path in pcapng.take(8).chain(pcap.step_by(60)) {
        let from = path.to_str().expect("a path in UTF-8");
        let output = Command::new("tshark").args(["-nr", from, "-c", "1"]).output().unwrap();
        if !output.status.success() || Reader::open(from).is_err() {
            continue;
        }
        let to = [scratch.file("a.pcapng.gz"), scratch.file("b.pcapng.zst")];
        let ended = run(&["capture", "-q", "-r", from, "-w", &to[0]]);
        if ended.status != 0 {
            continue;
        }
        convert(&to[0], &to[1], &[]);
        let fields = [&PLAIN[..], &["frame.time_epoch", "frame.comment", "frame.interface_name"]].concat();
        let fields: Vec<&str> = match from.ends_with(".pcapng") {
            true => fields,
            false => fields.into_iter().filter(|field| *field != "frame.interface_name").collect(),
        };
        assert_eq!(tshark_fields(&to[1], &fields), tshark_fields(from, &fields), "{from}");
        assert_eq!(frames(&to[1]), frames(from), "{from}");
        converted += 1;
    }
    assert!(converted > 12, "{converted}");
}
