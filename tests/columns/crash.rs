//! Files left by a killed run and by a full disk.

use super::destinations::parquet_files;
use super::rows::count;
use linerate_tests::support::program::{Ended, linerate, program, spawn};
use linerate_tests::support::{Scratch, has_tools, is_root, skip, wait_until};
use rustix::process::Signal;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Header of a pcap file.
const HEADER: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1];

/// Writes flows of one packet, one per millisecond, to a program until it exits or `count` is reached.
pub(super) fn feed(mut to: impl Write, count: u32) {
    let mut bytes: Vec<u8> = HEADER.iter().flat_map(|word| word.to_le_bytes()).collect();
    for number in 0..count {
        let ends = [10u32 << 24 | number, 11 << 24].map(u32::to_be_bytes).concat();
        let headers = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        let packet = [&headers[..], &ends, &[0, 1, 0, 2, 0, 8, 0, 0]].concat();
        let length = packet.len() as u32;
        for word in [1_600_000_000 + number / 1000, number % 1000 * 1000, length, length] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(packet);
        if bytes.len() > 1 << 16 || number + 1 == count {
            match to.write_all(&bytes) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return,
                result => result.unwrap(),
            }
            bytes.clear();
        }
    }
}

#[test]
fn killed_run_keeps_finished_files() {
    let scratch = Scratch::new();
    let folder = scratch.file("flows/");
    // Flows end after 0.1 s, and a new file starts every 0.1 s.
    let arguments = ["flows", "-r", "-", "--idle", "0.1", "--rotate", "0.1", "--write", &folder, "-q"];
    let mut running = spawn(linerate(&arguments).stdin(Stdio::piped()).stdout(Stdio::null()));
    let input = running.take_input().unwrap();
    let feeder = std::thread::spawn(move || feed(input, u32::MAX >> 8));
    wait_until("three files are complete", || parquet_files(&folder).len() >= 3);
    running.signal(Signal::KILL);
    let _ = running.end();
    feeder.join().unwrap();
    let files = parquet_files(&folder);
    let rows: usize = files.iter().map(|path| count(path)).sum();
    assert!(rows > 100, "{rows} rows in {files:?}");
    // Another run adds only its own file to the folder.
    let mut running =
        spawn(linerate(&["flows", "-r", "-", "--write", &folder, "--append", "-q"]).stdin(Stdio::piped()));
    feed(running.take_input().unwrap(), 1000);
    assert_eq!(running.end().status, 0);
    let after = parquet_files(&folder);
    assert_eq!(after.len(), files.len() + 1);
    assert_eq!(after.iter().map(|path| count(path)).sum::<usize>(), rows + 1000);
}

/// Runs the program in a tmpfs of this many KiB and passes its result and a copy of the folder to `look`.
fn in_a_tiny_folder(kib: u32, write: &str, look: impl FnOnce(&Ended, &Path)) {
    if !is_root() {
        return skip("a tmpfs can only be mounted by root; writing to a full disk was not tried");
    }
    let scratch = Scratch::new();
    let [tiny, copy] = ["tiny", "copy"].map(|name| scratch.file(name));
    std::fs::create_dir(&tiny).unwrap();
    let rotate = if write.ends_with('/') { "--rotate 0.05" } else { "" };
    let script = format!(
        r#"mount -t tmpfs -o size={kib}k none "$1" || exit 77; "$2" flows -r - --idle 0.1 {rotate} --write "$1/$4" -q
           status=$?; cp -a "$1" "$3"; exit $status"#
    );
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &script, "sh", &tiny]).arg(program()).args([&copy, write]);
    command.env_remove("SUDO_UID").env_remove("SUDO_GID").stdin(Stdio::piped());
    let mut running = spawn(&mut command);
    feed(running.take_input().unwrap(), 2_000_000);
    let ended = running.end();
    assert_ne!(ended.status, 77, "{}", ended.errors);
    look(&ended, Path::new(&copy));
}

#[test]
fn full_disk_keeps_finished_files_and_is_reported() {
    in_a_tiny_folder(2000, "flows/", |ended, folder| {
        assert_eq!(ended.status, 1, "{}", ended.errors);
        for word in ["records could not be written", ".parquet: cannot write: No space left", "records lost"] {
            assert!(ended.errors.contains(word), "{word:?} is not in {}", ended.errors);
        }
        let files = parquet_files(folder.to_str().unwrap());
        let rows: usize = files.iter().map(|path| count(path)).sum();
        assert!(ended.errors.contains(&format!("{rows} written, {} files complete", files.len())), "{}", ended.errors);
        let all = linerate_tests::support::files(folder);
        assert_eq!(all.len(), files.len(), "no unreadable file remains: {all:?}");
    });
}

#[test]
fn full_disk_leaves_complete_lines() {
    // Compressed records are smaller, so their disk is smaller.
    for (kib, ending, reader) in [(1000, "jsonl", "cat"), (40, "jsonl.gz", "gzip -dc"), (40, "jsonl.zst", "zstd -dcq")]
    {
        let reader: Vec<&str> = reader.split(' ').collect();
        if !has_tools(&reader[..1]) {
            continue;
        }
        in_a_tiny_folder(kib, &format!("flows.{ending}"), |ended, folder| {
            assert_eq!(ended.status, 1, "{}", ended.errors);
            let part = folder.join(format!("flows.{ending}.part"));
            // Read through stdin: the tools reject the ending `.part`. They fail if the stream has no end.
            let input = std::fs::File::open(&part).unwrap();
            let read = std::process::Command::new(reader[0]).args(&reader[1..]).stdin(input).output().unwrap();
            assert!(read.status.success(), "{ending}: {}", String::from_utf8_lossy(&read.stderr));
            let text = String::from_utf8(read.stdout).unwrap();
            assert!(text.ends_with('\n') && text.lines().count() > 100, "{ending}: {} lines", text.lines().count());
            assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
            assert!(ended.errors.contains(&format!("{} written", text.lines().count())), "{}", ended.errors);
        });
    }
}
