//! `capture --from FILE --write FILE` as a converter between all formats that are read and written, beside
//! what `tshark` and `capinfos` say of both sides.

mod outputs;

use linerate::record::Reader;
use linerate_tests::support::pcapng::everything;
use linerate_tests::support::program::{linerate, run};
use linerate_tests::support::{Scratch, corpus, has_tools, tool, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::process::{Command, Stdio};

/// What a file says of each frame, as `tshark` tells it.
fn told(path: &str, fields: &[&str]) -> Vec<Vec<String>> {
    let mut arguments = vec!["-n", "-r", path, "-T", "fields"];
    fields.iter().for_each(|field| arguments.extend(["-e", field]));
    let lines = tool("tshark", &arguments);
    lines.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// Link types.
const ETHERNET: u16 = 1;
const RAW: u16 = 101;

/// What every format keeps, but for nanoseconds.
const PLAIN: [&str; 3] = ["frame.len", "frame.cap_len", "frame.encap_type"];
/// What pcapng keeps beside it.
const RICH: [&str; 5] =
    ["frame.time_epoch", "frame.comment", "frame.interface_name", "frame.interface_description", "frame.packet_flags"];

/// Everything read back by the reader: time, wire length, bytes.
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

/// Converts, and checks that the program is content.
fn convert(from: &str, to: &str, more: &[&str]) {
    let from = format!("pcap:{from}");
    let ended = run(&[&["capture", "-q", "-i", &from, "--write", to], more].concat());
    assert_eq!((ended.status, ended.errors.as_str()), (0, ""), "{from} to {to}");
}

/// The same file four times: as it is, and as others compress it.
fn compressed(path: &str) -> [String; 4] {
    tool("gzip", &["-k", path]);
    tool("zstd", &["-q", "-k", path]);
    tool("lz4", &["-q", "-k", path, &format!("{path}.lz4")]);
    [path.to_owned(), format!("{path}.gz"), format!("{path}.zst"), format!("{path}.lz4")]
}

/// That a compressed file is sound in the eyes of the program that made the format.
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
fn pcapng_keeps_all_it_says_through_every_compression() {
    if !has_tools(&["tshark", "capinfos", "gzip", "zstd", "lz4"]) {
        return;
    }
    for big in [false, true] {
        let scratch = Scratch::new();
        let source = scratch.file("in.pcapng");
        std::fs::write(&source, everything(big, RAW)).unwrap();
        let fields = [&PLAIN[..], &RICH].concat();
        let (mut expected, bytes) = (told(&source, &fields), frames(&source));
        // A simple packet has no time; here it takes that of the frame before it.
        let before = expected[3][3].clone();
        assert_eq!(std::mem::replace(&mut expected[4][3], before), "");
        // Wireshark 4.0 counts interfaces from the first section on.
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
                    // Once more, from what was written here.
                    let again = scratch.file(&format!("{number}.again.{ending}"));
                    convert(&to, &again, &[]);
                    assert_eq!(told(&again, &fields), expected, "{again}");
                }
            }
        }
    }
}

#[test]
fn what_is_said_of_sections_and_interfaces_survives() {
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
    // The kinds of block, each with the options that tshark knows by name.
    let kinds = tool("tshark", &["-r", &to, "-X", "read_format:MIME Files Format", "-V"]);
    // The secrets are shown as bytes.
    for line in ["peer.", "434c49454e545f52414e444f4d", "told at the end", "Number of Received Packets: 1000"] {
        assert!(kinds.contains(line), "{line:?} is not in {kinds}");
    }
    assert!(!kinds.contains("not to be copied"));
}

#[test]
fn statistics_of_a_file_stand_in_the_ledger() {
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
fn comments_go_with_the_frames_left_out_and_stay_with_the_others() {
    if !has_tools(&["tshark"]) {
        return;
    }
    let scratch = Scratch::new();
    let (source, to) = (scratch.file("in.pcapng"), scratch.file("out.pcapng"));
    std::fs::write(&source, everything(false, RAW)).unwrap();
    // Every third frame of the second section has a comment; half of them are left out.
    convert(&source, &to, &["udp[1] & 1 == 1"]);
    let expected: Vec<_> = told(&source, &["udp.srcport", "frame.comment", "frame.time_epoch"])
        .into_iter()
        .filter(|line| line[0].parse::<u16>().is_ok_and(|port| port & 1 == 1))
        .collect();
    assert!(expected.len() > 15 && expected.iter().filter(|line| !line[1].is_empty()).count() > 5);
    assert_eq!(told(&to, &["udp.srcport", "frame.comment", "frame.time_epoch"]), expected);
    // Cut frames keep their comments too.
    let cut = scratch.file("cut.pcapng");
    convert(&source, &cut, &["-s", "20"]);
    assert_eq!(told(&cut, &["frame.comment"]), told(&source, &["frame.comment"]));
}

#[test]
fn pcap_and_pcapng_convert_into_each_other() {
    if !has_tools(&["tshark", "gzip", "zstd", "lz4"]) {
        return;
    }
    let scratch = Scratch::new();
    let made = scratch.file("made.pcapng");
    // One link type, as pcap has it.
    std::fs::write(&made, everything(false, ETHERNET)).unwrap();
    let sources = [("nanos.pcap", "pcap"), ("micros.pcap", "pcap-micros"), ("one.pcapng", "pcapng")];
    for (name, format) in sources {
        let source = scratch.file(name);
        convert(&made, &source, &["--format", format]);
        let expected = told(&source, &PLAIN);
        assert_eq!(expected.len(), 36, "{name}");
        let times = frames(&source);
        for from in compressed(&source) {
            for (ending, format) in [("pcap", "pcap"), ("pcap", "pcap-micros"), ("pcapng", "pcapng"), ("cap", "pcap")] {
                for compression in ["", ".gz", ".zst", ".lz4"] {
                    let to = scratch.file(&format!("out.{ending}{compression}"));
                    convert(&from, &to, &["--format", format]);
                    check_whole(&to);
                    // Each pair of formats and of compressions once.
                    if from.ends_with(if compression.is_empty() { "pcap" } else { compression }) {
                        assert_eq!(told(&to, &PLAIN), expected, "{from} to {to} as {format}");
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
fn several_files_become_one_in_order() {
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
        let lines = told(path, &["frame.comment"]);
        lines.into_iter().flatten().filter(|comment| !comment.is_empty()).collect::<Vec<_>>()
    };
    assert_eq!(comments(&to), comments(&made));
    assert!(tool("capinfos", &[&to]).contains("Capture comment:     left"));
}

/// Complete frames at the beginning of a file that may be cut off.
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
fn a_run_that_is_stopped_or_killed_leaves_a_file_that_can_be_read() {
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
        // In two pieces, and the pipe stays open: more could follow.
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
        // Cut off, tshark says, but shows what is there.
        let output = Command::new("tshark").args(["-nr", &to]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 36, "{to}");
    }
}

#[test]
fn a_compressed_pipe_may_come_byte_by_byte() {
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
fn captures_of_the_corpus_convert_without_a_difference() {
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
        assert_eq!(told(&to[1], &fields), told(from, &fields), "{from}");
        assert_eq!(frames(&to[1]), frames(from), "{from}");
        converted += 1;
    }
    assert!(converted > 12, "{converted}");
}
