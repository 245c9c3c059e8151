//! Inputs and outputs: files, pipes, devices, several inputs merged by time.

use linerate_tests::support::program::{Ended, launch, linerate, run};
use linerate_tests::support::records::{self, Record, assert_same_frames, assert_times_never_go_back};
use linerate_tests::support::{Scratch, corpus, frames, has_tools, is_root, may_change_user, tool};
use rustix::fs::{CWD, FileType, mknodat};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::process::Stdio;

/// The sample as a file.
fn sample(scratch: &Scratch) -> (String, Vec<Record>) {
    let (file, sample) = (scratch.file("sample.pcap"), frames::sample());
    records::write(&file, &sample);
    (file, sample)
}

fn fifo(scratch: &Scratch) -> String {
    let path = scratch.file("fifo");
    mknodat(CWD, &path, FileType::Fifo, 0o600.into(), 0).unwrap();
    path
}

#[test]
fn two_files_are_merged_by_time() {
    let scratch = Scratch::new();
    let (_, all) = sample(&scratch);
    let (left, right, output) = (scratch.file("l.pcap"), scratch.file("r.pcap"), scratch.file("both.pcap"));
    let part = |rest| all.iter().enumerate().filter(move |(at, _)| at % 3 / 2 == rest).map(|(_, one)| one.clone());
    records::write(&left, &part(0).collect::<Vec<_>>());
    records::write(&right, &part(1).collect::<Vec<_>>());
    run(&["capture", "-r", &right, "-r", &left, "-w", &output]).good();
    assert!(records::read(&output) == all);
    run(&["capture", "-r", &right, "-r", &left, "-w", &output, "--copy-threads", "2"]).good();
    assert!(records::read(&output) == all);
    if has_tools(&["mergecap"]) {
        let merged = scratch.file("merged.pcap");
        tool("mergecap", &["-F", "nsecpcap", "-w", &merged, &left, &right]);
        assert!(records::read(&merged) == records::read(&output));
    }
}

#[test]
fn a_directory_is_read_as_its_capture_files() {
    let scratch = Scratch::new();
    let (file, all) = sample(&scratch);
    let [folder, empty, output] = ["kept", "empty", "out.pcap"].map(|name| scratch.file(name));
    for folder in [&folder, &empty] {
        fs::create_dir(folder).unwrap();
    }
    for (name, rest) in [("b.pcap", 0), ("a.pcap", 1)] {
        let part = all.iter().enumerate().filter(|(at, _)| at % 2 == rest).map(|(_, one)| one.clone());
        records::write(&format!("{folder}/{name}"), &part.collect::<Vec<_>>());
    }
    fs::write(format!("{folder}/notes.txt"), "not a capture").unwrap();
    for words in [&["merge", &folder, "-w", &output][..], &["capture", "-r", &folder, "-w", &output]] {
        run(words).good().says("kept: 1 other file not read");
        assert!(records::read(&output) == all, "{words:?}");
    }
    let twice = [&folder, &folder, &folder].map(String::as_str);
    run(&[&["count"], &twice[..]].concat()).good().says("b.pcap and 2 more\n");
    run(&["count", &empty]).with_status(1).says("empty: a directory without capture files");
    run(&["capture", "-i", "lo", "-r", &file, "-w", &output]).with_status(2).says("leave out the file or the port");
}

/// `offset=` corrects the clock of one port, so that its packets merge in the right order.
#[test]
fn offset_corrects_the_clock_of_one_port() {
    let scratch = Scratch::new();
    let (_, all) = sample(&scratch);
    let (left, right, output) = (scratch.file("l.pcap"), scratch.file("r.pcap"), scratch.file("both.pcap"));
    let part = |rest| all.iter().enumerate().filter(move |(at, _)| at % 3 / 2 == rest).map(|(_, one)| one.clone());
    let slow = |mut one: Record| {
        one.time -= 2_000_000_500;
        one
    };
    records::write(&left, &part(0).collect::<Vec<_>>());
    records::write(&right, &part(1).map(slow).collect::<Vec<_>>());
    let shifted = format!("pcap:{right}?offset=2000000.5us");
    run(&["capture", "-i", &format!("pcap:{left}"), "-i", &shifted, "-w", &output]).good();
    assert!(records::read(&output) == all);
    let shifted = format!("pcap:{right}?offset=yesterday");
    run(&["capture", &shifted]).with_status(2).says("invalid offset 'yesterday'");
}

#[test]
fn real_captures_merge_as_mergecap_does() {
    let names = ["real-mix.pcap", "ndpi/ultrasurf.pcap"];
    let [Some(one), Some(other)] = names.map(corpus) else { return };
    if !has_tools(&["mergecap"]) {
        return;
    }
    let scratch = Scratch::new();
    let (output, merged) = (scratch.file("both.pcapng"), scratch.file("merged.pcapng"));
    let [one, other] = [one, other].map(|path| path.to_str().unwrap().to_owned());
    run(&["capture", "-r", &one, "-r", &other, "-w", &output]).good();
    tool("mergecap", &["-w", &merged, &one, &other]);
    let list = |file| tool("tshark", &["-r", file, "-T", "fields", "-e", "frame.time_epoch", "-e", "frame.len"]);
    assert!(list(&output) == list(&merged));
}

#[test]
fn standard_input_and_output_carry_packets() {
    let scratch = Scratch::new();
    let (file, all) = sample(&scratch);
    let mut child = linerate(&["capture", "-r", "-", "-w", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || {
        // In pieces that end in the middle of headers and frames.
        fs::read(file).unwrap().chunks(1013).for_each(|piece| {
            input.write_all(piece).unwrap();
            std::thread::sleep(std::time::Duration::from_micros(300));
        });
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success());
    assert!(records::parse(&output.stdout) == all);
    let json: serde_json::Value = serde_json::from_slice(&output.stderr).expect("JSON on standard error");
    assert_eq!(json["frames"], all.len());
}

#[test]
fn tshark_reads_packets_from_standard_output() {
    if !has_tools(&["tshark"]) {
        return;
    }
    let scratch = Scratch::new();
    let (file, all) = sample(&scratch);
    for format in ["pcap", "pcapng"] {
        let mut child = linerate(&["capture", "-q", "-r", &file, "-w", "-", "--format", format])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let reader = std::process::Command::new("tshark")
            .args(["-r", "-", "-T", "fields", "-e", "frame.len"])
            .stdin(child.stdout.take().unwrap())
            .output()
            .unwrap();
        assert!(child.wait().unwrap().success() && reader.status.success(), "{format}");
        let lengths: Vec<u32> =
            String::from_utf8_lossy(&reader.stdout).lines().map(|line| line.parse().unwrap()).collect();
        assert!(lengths == all.iter().map(|record| record.wire).collect::<Vec<_>>(), "{format}");
    }
}

#[test]
fn fifo_is_read_and_written_and_kept() {
    let scratch = Scratch::new();
    let (file, all) = sample(&scratch);
    let path = fifo(&scratch);
    let before = fs::metadata(&path).unwrap();
    let writing = launch(&["capture", "-q", "-r", &file, "-w", &path, "--format", "pcap"]);
    let read = fs::read(&path).unwrap();
    writing.end().good();
    assert!(records::parse(&read) == all);

    let output = scratch.file("out.pcap");
    let reading = launch(&["capture", "-q", "-r", &path, "-w", &output]);
    fs::write(&path, &read).unwrap();
    reading.end().good();
    assert!(records::read(&output) == all);
    let after = fs::metadata(&path).unwrap();
    assert!(after.file_type().is_fifo());
    assert_eq!((before.ino(), before.mode(), before.uid()), (after.ino(), after.mode(), after.uid()));
}

#[test]
fn device_is_written_to_and_kept() {
    let scratch = Scratch::new();
    let (file, all) = sample(&scratch);
    let before = fs::metadata("/dev/null").unwrap();
    let ended = run(&["capture", "-r", &file, "-w", "/dev/null", "-Z", "nobody", "--json"]).good();
    let after = fs::metadata("/dev/null").unwrap();
    assert!(after.file_type().is_char_device());
    let identity = |data: &fs::Metadata| (data.dev(), data.ino(), data.mode(), data.uid(), data.gid(), data.rdev());
    assert_eq!(identity(&before), identity(&after));
    assert_eq!(ended.json()["frames"], all.len());
}

#[test]
fn existing_file_is_truncated_and_keeps_its_inode() {
    let scratch = Scratch::new();
    let (file, all) = sample(&scratch);
    let output = scratch.file("out.pcap");
    fs::write(&output, vec![0x55; 1 << 20]).unwrap();
    fs::set_permissions(&output, fs::Permissions::from_mode(0o646)).unwrap();
    let before = fs::metadata(&output).unwrap();
    let user = if is_root() { &["-Z", "nobody"][..] } else { &[] };
    run(&[&["capture", "-r", &file, "-w", &output, "tcp"], user].concat()).good();
    let after = fs::metadata(&output).unwrap();
    let identity = |data: &fs::Metadata| (data.ino(), data.uid(), data.gid(), data.mode());
    assert_eq!(identity(&before), identity(&after));
    let written = records::read(&output);
    assert_eq!(records::file_size(&written), after.len());
    assert!(!written.is_empty() && written.len() < all.len());
}

#[test]
fn new_file_belongs_to_the_target_user() {
    if !may_change_user() {
        return;
    }
    let scratch = Scratch::new();
    let (file, _) = sample(&scratch);
    let output = scratch.file("out.pcapng");
    run(&["capture", "-r", &file, "-w", &output, "-Z", "nobody"]).good();
    assert_eq!(fs::metadata(&output).unwrap().uid(), 65534);

    // Under sudo the files belong to the caller.
    let output = scratch.file("sudo.pcapng");
    let mut command = linerate(&["capture", "-r", &file, "-w", &output]);
    Ended::of(command.env("SUDO_UID", "12345").env("SUDO_GID", "12346").output().unwrap()).good();
    let data = fs::metadata(&output).unwrap();
    assert_eq!((data.uid(), data.gid()), (12345, 12346));
}

#[test]
fn snap_length_and_count_are_applied() {
    let scratch = Scratch::new();
    let (file, all) = sample(&scratch);
    for (snap, count) in [(60, 7), (14, 100), (0, 1), (1500, 10_000)] {
        let output = scratch.file("out.pcap");
        let ended =
            run(&["capture", "-r", &file, "-w", &output, "--json", "-s", &snap.to_string(), "-c", &count.to_string()]);
        let keep = if snap == 0 { usize::MAX } else { snap };
        let wanted: Vec<Record> = all.iter().take(count).cloned().collect();
        let cut = |record: Record| Record { bytes: record.bytes[..keep.min(record.bytes.len())].to_vec(), ..record };
        let wanted: Vec<Record> = wanted.into_iter().map(cut).collect();
        assert_same_frames(&format!("-s {snap} -c {count}"), &records::read(&output), &wanted);
        let json = ended.good().json();
        assert_eq!(json["bytes"], wanted.iter().map(|record| record.bytes.len()).sum::<usize>());
        assert_eq!(json["balanced"], true, "{json}");
    }
}

#[test]
fn real_capture_survives_a_round_trip() {
    let Some(file) = corpus("real-mix.pcap") else { return };
    let file = file.to_str().unwrap();
    let scratch = Scratch::new();
    let (pcap, pcapng) = (scratch.file("a.pcap"), scratch.file("a.pcapng"));
    run(&["capture", "-r", file, "-w", &pcapng]).good();
    run(&["capture", "-r", &pcapng, "-w", &pcap]).good();
    let (got, wanted) = (records::read(&pcap), records::read(file));
    assert!(got == wanted);
    assert_times_never_go_back(&got);
    if has_tools(&["capinfos"]) {
        let facts = |file| tool("capinfos", &["-TmMQrcdua", file]).split_once(',').unwrap().1.to_owned();
        assert_eq!(facts(&pcapng), facts(file));
    }
}
