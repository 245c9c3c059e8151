//! Output files: existing files, frames that a format cannot hold, empty outputs.

use super::{ETHERNET, RAW, frames};
use linerate::pcap::Reader;
use linerate_tests::support::pcapng::{Blocks, udp};
use linerate_tests::support::program::{launch, run};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::{Scratch, has_tools, wait_until};
use rustix::fs::{CWD, FileType, mknodat};
use std::fs::{self, OpenOptions};
use std::io::Write;

/// A pcapng file with one frame of each link type.
fn mixed(links: &[u16]) -> Vec<u8> {
    let mut blocks = Blocks::new(false);
    blocks.section(&[]);
    links.iter().for_each(|link| blocks.interface(*link, 0, &[]));
    for (at, link) in links.iter().enumerate() {
        let frame = udp(at as u8, 40);
        let frame = if *link == RAW { &frame[14..] } else { &frame[..] };
        blocks.frame(at as u32, 1_700_000_000_000_000 + at as u64, frame, frame.len() as u32, &[]);
    }
    blocks.done()
}

/// Writes `count` frames, one per second from `start` on.
fn some(path: &str, start: u64, count: u8) {
    let record = |n: u8| Record { time: (start + u64::from(n)) * 1_000_000_000, wire: 82, bytes: udp(n, 40) };
    records::write(path, &(0..count).map(record).collect::<Vec<_>>());
}

fn link_types(path: &str) -> Vec<u16> {
    let mut reader = Reader::open(path).unwrap();
    reader.fill().unwrap();
    reader.interfaces().iter().map(|interface| interface.link.0).collect()
}

#[test]
fn file_being_written_is_locked_for_other_runs() {
    let scratch = Scratch::new();
    let (fifo, input, output) = (scratch.file("fifo"), scratch.file("in.pcap"), scratch.file("out.pcapng"));
    mknodat(CWD, &fifo, FileType::Fifo, 0o600.into(), 0).unwrap();
    some(&input, 1_700_000_000, 9);
    let running = launch(&["capture", "-q", "-r", &fifo, "-w", &output, "--index"]);
    let mut pipe = OpenOptions::new().write(true).open(&fifo).unwrap();
    pipe.write_all(&fs::read(&input).unwrap()).unwrap();
    wait_until("frames are written", || fs::metadata(&output).is_ok_and(|data| data.len() > 500));
    for second in [
        &["capture", "-q", "-r", &input, "-w", &output][..],
        &["find", &input, "-q", "-w", &output],
        &["replay", "-q", "-r", &input, "--to", &format!("pcap:{output}")],
    ] {
        run(second).with_status(1).says("is being written by another run").says("write to another file");
    }
    drop(pipe);
    running.end().good();
    assert_eq!(frames(&output).len(), 9);
    // The lock is released.
    run(&["capture", "-q", "-r", &input, "-w", &output]).good();
}

#[test]
fn failed_start_leaves_an_existing_file_unchanged() {
    let scratch = Scratch::new();
    let [input, empty, text] = ["in.pcap", "empty.pcap", "text.pcap"].map(|name| scratch.file(name));
    some(&input, 1_700_000_000, 9);
    fs::write(&empty, "").unwrap();
    fs::write(&text, "this is no capture file, but long enough for one").unwrap();
    let missing = scratch.file("missing.pcap");
    for name in ["out.pcap", "out.pcapng", "out.pcapng.zst"] {
        let output = scratch.file(name);
        run(&["capture", "-q", "-r", &input, "-w", &output, "--index"]).good();
        let index = format!("{output}.idx");
        let before = [fs::read(&output).unwrap(), fs::read(&index).unwrap()];
        let port = format!("pcap:{output}");
        for (from, status) in [(&empty, 1), (&text, 1), (&missing, 1)] {
            run(&["capture", "-q", "-r", from, "-w", &output, "--index"]).with_status(status);
            run(&["find", from, "-q", "-w", &output]).with_status(status);
            run(&["replay", "-q", "-r", from, "--to", &port]).with_status(status);
        }
        run(&["capture", "-q", "-r", &input, "-w", &output, "--index", "no such filter"]).with_status(2);
        run(&["capture", "-q", "nosuchport0", "-w", &output, "--index"]);
        assert!(before == [fs::read(&output).unwrap(), fs::read(&index).unwrap()], "{name}");
    }
}

#[test]
fn several_link_types_need_pcapng() {
    let scratch = Scratch::new();
    let (input, pcapng) = (scratch.file("in.pcapng"), scratch.file("out.pcapng"));
    fs::write(&input, mixed(&[ETHERNET, RAW, ETHERNET])).unwrap();
    for name in ["out.pcap", "out.pcap.gz"] {
        let output = scratch.file(name);
        for verb in [&["capture", "-q", "-r"][..], &["find", "-q"]] {
            fs::write(&output, "as it was").unwrap();
            let ended = run(&[verb, &[&input, "-w", &output]].concat()).with_status(1);
            ended.says("a pcap file holds one link type").says("write pcapng");
            assert_eq!(fs::read(&output).unwrap(), b"as it was");
            // A filter may leave a single link type.
            run(&[verb, &[&input, "-w", &output, "udp src port 4096 or udp src port 4098"]].concat()).good();
            assert_eq!(frames(&output).len(), 2);
        }
    }
    run(&["capture", "-q", "-r", &input, "-w", &pcapng]).good();
    assert_eq!((frames(&pcapng).len(), link_types(&pcapng)), (3, vec![ETHERNET, RAW, ETHERNET]));
    for verb in [&["capture", "-q", "-r"][..], &["find", "-q"]] {
        let piped = scratch.file("piped");
        let mut program = linerate_tests::support::program::linerate(&[verb, &[&input, "-w", "-"]].concat());
        let status = program.stdout(fs::File::create(&piped).unwrap()).status().unwrap();
        assert!(status.success() && frames(&piped).len() == 3);
    }
}

#[test]
fn empty_output_has_the_link_type_of_the_input() {
    let scratch = Scratch::new();
    let input = scratch.file("in.pcapng");
    fs::write(&input, mixed(&[RAW, RAW])).unwrap();
    for name in ["out.pcap", "out.pcapng"] {
        let output = scratch.file(name);
        for verb in [&["capture", "-q", "-r"][..], &["find", "-q"]] {
            run(&[verb, &[&input, "-w", &output, "host 192.0.2.9"]].concat()).good();
            assert_eq!((link_types(&output)[0], frames(&output).len()), (RAW, 0), "{verb:?}");
        }
    }
}

#[test]
fn more_files_than_merge_lanes_are_merged() {
    let scratch = Scratch::new();
    let names: Vec<String> = (0..150).map(|n| scratch.file(&format!("{n}.pcap"))).collect();
    // Each file overlaps its neighbours in time.
    names.iter().enumerate().for_each(|(n, name)| some(name, 1_700_000_000 + n as u64, 5));
    let read: Vec<&str> = names.iter().flat_map(|name| ["-r", name.as_str()]).collect();
    let (output, found) = (scratch.file("out.pcap"), scratch.file("found.pcap"));
    let report = run(&[&["capture", "--json", "-w", &output], &read[..]].concat()).good().json();
    assert_eq!((report["frames"].as_u64(), report["balanced"].as_bool()), (Some(750), Some(true)));
    run(&[&["find", "-q"], &names.iter().map(String::as_str).collect::<Vec<_>>()[..], &["-w", &found]].concat()).good();
    let merged = frames(&output);
    assert!(merged.is_sorted_by_key(|(time, ..)| *time));
    let sorted = |path: &str| {
        let mut all = frames(path);
        all.sort();
        all
    };
    assert_eq!(sorted(&output), sorted(&found));
    // A damaged file is reported, and the other files are complete.
    let cut = fs::read(&names[3]).unwrap();
    fs::write(&names[3], &cut[..cut.len() - 5]).unwrap();
    let ended = run(&[&["capture", "-q", "-w", &output], &read[..]].concat()).with_status(1);
    ended.says("3.pcap");
    assert_eq!(frames(&output).len(), 749);
    run(&[&["capture", "-q", "-c", "7", "-w", &output], &read[..]].concat()).good();
    assert_eq!(frames(&output).len(), 7);
}

#[test]
fn other_programs_read_compressed_files_with_an_index() {
    if !has_tools(&["gzip", "zstd", "lz4", "tshark"]) {
        return;
    }
    let scratch = Scratch::new();
    let input = scratch.file("in.pcap");
    let long = |n: u64| Record { time: (1_700_000_000 + n) * 1_000_000_000, wire: 1442, bytes: udp(n as u8, 1400) };
    records::write(&input, &(0..3000).map(long).collect::<Vec<_>>());
    for ending in ["gz", "zst", "lz4"] {
        let output = scratch.file(&format!("out.pcap.{ending}"));
        run(&["capture", "-q", "-r", &input, "-w", &output, "--index"]).good();
        super::check_whole(&output);
        // tshark reads only the first of several zstd frames.
        if ending != "zst" {
            assert_eq!(super::tshark_fields(&output, &["frame.number"]).len(), 3000, "{ending}");
        }
        assert_eq!(run(&["find", &output, "--count"]).good().output, "3000\n");
    }
}

#[test]
fn fcs_is_counted_once_and_not_replayed() {
    let scratch = Scratch::new();
    let [input, copy, sent] = ["in.pcap", "copy.pcapng", "sent.pcap"].map(|name| scratch.file(name));
    let record =
        |n: u8| Record { time: 1_700_000_000_000_000_000, wire: 86, bytes: [&udp(n, 40)[..], b"FCS!"].concat() };
    records::write(&input, &[record(1), record(2)]);
    let mut bytes = fs::read(&input).unwrap();
    bytes[20..24].copy_from_slice(&0x2400_0001u32.to_le_bytes());
    fs::write(&input, &bytes).unwrap();
    run(&["capture", "-q", "-r", &input, "-w", &copy]).good();
    for path in [&input, &copy] {
        let count = run(&["count", "-r", path, "--json"]).good().json();
        assert_eq!(count["size_max_bytes"].as_u64(), Some(86), "{count}");
        run(&["replay", "-q", "-r", path, "--to", &format!("pcap:{sent}")]).good();
        assert_eq!(records::read(&sent).iter().map(|record| record.bytes.len()).collect::<Vec<_>>(), [82, 82]);
    }
    assert!(fs::read(&copy).unwrap().windows(4).filter(|bytes| bytes == b"FCS!").count() == 2);
}

#[test]
fn all_verbs_exit_alike_for_the_same_file() {
    let scratch = Scratch::new();
    let [whole, cut, empty, none] =
        ["whole.pcap", "cut.pcap", "empty.pcap", "none.pcap"].map(|name| scratch.file(name));
    some(&whole, 1_700_000_000, 9);
    let bytes = fs::read(&whole).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 5]).unwrap();
    fs::write(&none, &bytes[..24]).unwrap();
    fs::write(&empty, "").unwrap();
    for (path, status) in [(&whole, 0), (&none, 0), (&cut, 1), (&empty, 1), (&scratch.file("missing.pcap"), 1)] {
        for verb in ["capture", "count", "flows", "streams"] {
            run(&[verb, "-q", "-r", path]).with_status(status);
        }
        run(&["find", path]).with_status(status);
    }
    assert_eq!(run(&["find", "--count", &cut]).with_status(1).output, "8\n");
}

#[test]
fn unrepresentable_data_is_counted() {
    let scratch = Scratch::new();
    let (input, output) = (scratch.file("in.pcapng"), scratch.file("out.pcapng"));
    let mut blocks = Blocks::new(true);
    blocks.section(&[]);
    let offset = (-3600i64).to_be_bytes();
    blocks.interface(ETHERNET, 0, &[(14, &offset)]);
    blocks.block(0x4000_0bad, &[0, 0, 0, 5]);
    blocks.frame(0, 0, &udp(1, 40), 82, &[]);
    fs::write(&input, blocks.done()).unwrap();
    let report = run(&["capture", "--json", "-r", &input, "-w", &output]).good().json();
    let notes = &report["accounts"][0]["notes"];
    assert_eq!((notes["time_changed"].as_u64(), notes["not_copied"].as_u64()), (Some(1), Some(1)), "{notes}");
    run(&["find", &input, "-w", &output]).good().says("time_changed").says("not_copied");
}

#[test]
fn clamped_times_are_reported_with_an_index_too() {
    let scratch = Scratch::new();
    let (input, output) = (scratch.file("in.pcapng"), scratch.file("out.pcap"));
    // Before 1970 and after 2554.
    for offset in [-3600i64, 20_000_000_000] {
        let mut blocks = Blocks::new(true);
        blocks.section(&[]);
        let offset = offset.to_be_bytes();
        blocks.interface(ETHERNET, 0, &[(14, &offset)]);
        blocks.frame(0, 0, &udp(1, 40), 82, &[]);
        fs::write(&input, blocks.done()).unwrap();
        for _ in 0..2 {
            run(&["find", &input, "-w", &output]).good().says("time_changed");
            assert_eq!(records::read(&output).len(), 1);
            run(&["find", &input, "-w", &output, "ip6"]).good().says("time_changed");
            assert!(records::read(&output).is_empty());
            run(&["find", &input, "--make-index"]).good();
        }
        fs::remove_file(format!("{input}.idx")).unwrap();
    }
}

#[test]
fn same_output_file_twice_is_rejected() {
    let scratch = Scratch::new();
    let [input, kept, link, other] = ["in.pcap", "kept.csv", "link.csv", "other.csv"].map(|name| scratch.file(name));
    some(&input, 1_700_000_000, 9);
    fs::write(&kept, "kept").unwrap();
    std::os::unix::fs::symlink(&kept, &link).unwrap();
    let same_file = scratch.file("./new.csv");
    let new = scratch.file("new.csv");
    for [one, two] in [[&kept, &kept], [&kept, &link], [&link, &kept], [&new, &same_file]] {
        run(&["capture", "-r", &input, "--format", "pcap", "-w", one, "--flows", two])
            .with_status(2)
            .says("named twice");
        run(&["flows", "-r", &input, "-w", one, "-w", two]).with_status(2).says("named twice");
    }
    for verb in [&["capture", "-r", &input, "-w", "-", "--flows"][..], &["flows", "-r", &input, "-w", "-", "-w"]] {
        run(&[verb, &["/dev/stdout"]].concat()).with_status(2).says("named twice");
    }
    assert_eq!(fs::read(&kept).unwrap(), b"kept");
    run(&["capture", "-q", "-r", &input, "--format", "pcap", "-w", &new, "--flows", &other]).good();
}
