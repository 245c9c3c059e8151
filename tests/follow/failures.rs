//! Limits and failures: full disks, existing folders, closed pipes, live ports.

use super::traffic::{conversation, segment};
use super::{followed, indexed};
use linerate_tests::support::program::{linerate, run, start};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, is_root, may_make_labs, records, wait_until};
use serde_json::Value;
use std::io::{Read, Write};
use std::process::Command;
use std::process::Stdio;

#[test]
fn existing_files_are_not_overwritten() {
    let scratch = Scratch::new();
    let (input, folder) = (scratch.file("in.pcap"), scratch.file("taken"));
    records::write(&input, &conversation(1000));
    std::fs::create_dir(&folder).unwrap();
    run(&["streams", "-r", &input, "-w", &folder]).good();
    run(&["streams", "-r", &input, "-w", &folder]).with_status(1).says("use a new or empty folder");
    run(&["streams", "-r", &input, "-w", &input]).with_status(2);
    run(&["streams", "-r", &input, "-w", &format!("{input}/x")]).with_status(1);
}

#[test]
fn syn_flood_creates_no_files() {
    let scratch = Scratch::new();
    let input = scratch.file("in.pcap");
    let flood = (1..5000).map(|port| segment(u64::from(port), port, false, (port.into(), 0), 2, b""));
    records::write(&input, &flood.collect::<Vec<_>>());
    assert!(followed(&scratch, &input, &[]).is_empty());
    assert_eq!(std::fs::read_dir(scratch.file("streams")).unwrap().count(), 1, "only the index");
    let found = run(&["streams", "-r", &input, "--max-connections", "10", "--json"]).good().json();
    assert_eq!((&found["most_connections"], &found["streams"], &found["evicted"]), (&10.into(), &0.into(), &0.into()));
}

#[test]
fn streams_above_max_files_are_counted() {
    let scratch = Scratch::new();
    let (input, folder) = (scratch.file("in.pcap"), scratch.file("few"));
    let many = (1..100).map(|port| segment(u64::from(port), port, false, (1, 0), 16, b"x"));
    records::write(&input, &many.collect::<Vec<_>>());
    let ended = run(&["streams", "--json", "-r", &input, "-w", &folder, "--max-files", "9"]).with_status(1);
    let found = ended.says("90 streams have no file").json();
    assert_eq!(
        (&found["files"], &found["drops"]["unwritten"], &found["balanced"]),
        (&9.into(), &90.into(), &true.into())
    );
    assert_eq!(indexed(&folder).values().flatten().count(), 9);
}

#[test]
fn full_disk_ends_the_run_and_keeps_written_data() {
    if !is_root() {
        return;
    }
    let scratch = Scratch::new();
    let (input, disk) = (scratch.file("in.pcap"), scratch.file("disk"));
    let much: Vec<_> = (0..2000).map(|n| segment(n.into(), 7, false, (n * 1000, 0), 16, &[n as u8; 1000])).collect();
    records::write(&input, &much);
    std::fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=1m", "none", &disk]).status().unwrap();
    assert!(mounted.success());
    let folder = format!("{disk}/streams");
    let ended = run(&["streams", "--json", "-r", &input, "-w", &folder]);
    let file = std::fs::read(format!("{folder}/010.000.000.001.00007-010.000.000.002.00080")).unwrap();
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    let found = ended.with_status(1).says("No space left").json();
    assert_eq!(found["balanced"], true);
    assert!(found["drops"]["unwritten"].as_u64().unwrap() > 0);
    let wanted: Vec<u8> = (0..2000u32).flat_map(|n| [n as u8; 1000]).collect();
    assert!(file.len() > 500_000 && wanted.starts_with(&file), "{}", file.len());
}

/// Checks the length of each file against its index entry.
fn check_index(folder: &str) -> Vec<Value> {
    let lines = std::fs::read_to_string(format!("{folder}/streams.jsonl")).unwrap();
    let entries: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for entry in &entries {
        let Some(Ok(file)) = entry["file"].as_str().map(|name| std::fs::metadata(format!("{folder}/{name}"))) else {
            continue;
        };
        let length = entry["written"].as_u64().or(entry["length"].as_u64());
        assert_eq!(length, Some(file.len()), "{entry}");
    }
    entries
}

#[test]
fn index_is_correct_after_a_failure() {
    let scratch = Scratch::new();
    let folder = scratch.file("streams");
    let bytes = |time: u64, port: u16, seq: u32, data: &[u8]| segment(time, port, false, (seq, 0), 16, data);
    let first: Vec<_> = (1..300).map(|port| bytes(1, port, 1, b"abcd")).collect();
    let name = |port: u16| format!("{folder}/010.000.000.001.{port:05}-010.000.000.002.00080");
    let mut command = linerate(&["streams", "--json", "-r", "-", "-w", &folder]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    let file = scratch.file("in.pcap");
    records::write(&file, &first);
    input.write_all(&std::fs::read(&file).unwrap()).unwrap();
    wait_until("all data is written", || std::fs::read(name(299)).is_ok_and(|bytes| bytes == b"abcd"));
    // The first file is closed by now, as more files exist than may be open, and cannot be reopened.
    std::fs::remove_file(name(1)).unwrap();
    let second: Vec<_> = [290, 291, 292, 1, 293].map(|port| bytes(2, port, 5, b"efgh")).to_vec();
    records::write(&file, &second);
    input.write_all(&std::fs::read(&file).unwrap()[24..]).unwrap();
    drop(input);
    let ended = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(1) && errors.contains("No such file"), "{errors}");
    let entries = check_index(&folder);
    assert_eq!(entries.len(), 299);
    let of = |port: u16| entries.iter().find(|entry| entry["src_port"] == port).unwrap();
    assert_eq!((&of(1)["bytes"], &of(1)["written"]), (&8.into(), &4.into()));
    assert_eq!((&of(290)["bytes"], &of(290)["written"]), (&8.into(), &Value::Null), "its file is complete");
}

#[test]
fn failed_write_affects_only_its_stream() {
    let scratch = Scratch::new();
    let (input, folder) = (scratch.file("in.pcap"), scratch.file("streams"));
    let hostile = [
        segment(1, 7, false, (99, 0), 2, b""),
        segment(2, 7, false, (100, 0), 16, b"one"),
        segment(3, 7, false, (100 + (1 << 29), 0), 16, b"two"),
        segment(4, 7, true, (500, 103 + (1 << 29)), 16, b""),
        segment(3000, 7, false, (103 + (1 << 29), 0), 16, b"three"),
    ];
    records::write(&input, &[&hostile[..], &conversation(1000)].concat());
    let program = linerate(&["streams", "--json", "-r", &input, "-w", &folder]);
    let limited = "trap '' XFSZ; ulimit -f 100; exec \"$@\"";
    let mut command = Command::new("bash");
    let ended =
        command.args(["-c", limited, "bash"]).arg(program.get_program()).args(program.get_args()).output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.code() == Some(1) && errors.contains("1 file is incomplete"), "{errors}");
    let entries = check_index(&folder);
    let hostile = entries.iter().find(|entry| entry["src_port"] == 7).unwrap();
    assert_eq!((&hostile["bytes"], &hostile["written"]), (&11.into(), &3.into()));
    let others: Vec<_> = entries.iter().filter(|entry| entry["src_port"] != 7).collect();
    assert_eq!(others.len(), 2, "other streams continue");
    assert!(others.iter().all(|entry| entry["written"].is_null()));
}

#[test]
fn closed_output_pipe_is_not_a_failure() {
    let scratch = Scratch::new();
    let input = scratch.file("in.pcap");
    let much: Vec<_> = (0..4000).map(|n| segment(n.into(), 7, false, (n * 1000, 0), 16, &[n as u8; 1000])).collect();
    records::write(&input, &much);
    let mut command = linerate(&["streams", "--json", "-r", &input, "-w", "-"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut some = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let ended = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(0), "{errors}");
    let found: serde_json::Value = serde_json::from_str(&errors).unwrap();
    assert_eq!((&found["balanced"], &found["lost"]), (&true.into(), &0.into()), "{errors}");
}

#[test]
fn live_port_is_followed_until_interrupted() {
    if !may_make_labs() {
        return;
    }
    let wire = Wire::of(&["a:eth0,b:eth0"]);
    let scratch = Scratch::new();
    let (input, folder) = (scratch.file("in.pcap"), scratch.file("live"));
    records::write(&input, &[conversation(1000), conversation(1001)].concat());
    let running = start(&["streams", "-q", &wire.port("b", "eth0", ""), "-w", &folder]);
    run(&["replay", "-q", "--to", &wire.port("a", "eth0", ""), "-r", &input, "--speed", "20"]).good();
    let name = format!("{folder}/010.000.000.002.00080-010.000.000.001.01001");
    wait_until("data is written during the run", || {
        std::fs::read(&name).is_ok_and(|bytes| bytes.starts_with(b"hello "))
    });
    running.interrupt().good();
    let streams = indexed(&folder);
    assert_eq!(streams.len(), 4);
    assert!(streams.values().flatten().all(|one| one.entry["ended"] == "fin"));
}
