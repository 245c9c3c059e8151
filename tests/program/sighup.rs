//! SIGHUP completes files and starts new ones; it ends runs that lost their terminal or write no files.

use linerate_tests::support::program::{Running, linerate, program, run, spawn};
use linerate_tests::support::{Scratch, files, frames, has_tools, records, tool, wait_until};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rustix::process::Signal;
use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Starts a run that reads an endless stream from standard input, some thousand packets per second.
fn endless(mut command: Command) -> Running {
    let mut running = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut to = running.take_input().unwrap();
    std::thread::spawn(move || {
        let (mut result, mut frames) = (to.write_all(&records::header()), frames::sample());
        while result.is_ok() {
            // Timestamps advance, so that flows end by timeout.
            frames.iter_mut().for_each(|frame| frame.time += 10_000_000_000);
            result = to.write_all(&records::body(&frames));
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    running.wait_until_open();
    running
}

fn has_more_than(path: &str, bytes: u64) -> bool {
    std::fs::metadata(path).is_ok_and(|data| data.len() > bytes)
}

/// Returns the number of packets in a complete file, which tshark reads too.
fn frames_in(path: &str) -> u64 {
    let json = run(&["capture", "-r", path, "--json"]).good().json();
    assert_eq!(json["failure"], Value::Null, "{path}");
    let frames = json["frames"].as_u64().unwrap();
    if has_tools(&["tshark"]) {
        assert_eq!(tool("tshark", &["-r", path]).lines().count() as u64, frames, "{path}");
    }
    frames
}

#[test]
fn moved_capture_file_is_complete_and_a_new_one_starts() {
    let scratch = Scratch::new();
    for ending in ["pcapng", "pcap", "pcapng.zst", "pcap.gz"] {
        let [out, first, second, numbered] =
            ["out", "moved1", "moved2", "out.2"].map(|name| scratch.file(&format!("{name}.{ending}")));
        let running = endless(linerate(&["capture", "-r", "-", "-w", &out, "--json"]));
        let turn = || {
            running.signal(Signal::HUP);
            wait_until("a new file exists", || has_more_than(&out, 1000));
        };
        wait_until("frames are written", || has_more_than(&out, 1000));
        std::fs::rename(&out, &first).unwrap();
        turn();
        // logrotate creates an empty file itself.
        std::fs::rename(&out, &second).unwrap();
        std::fs::write(&out, "").unwrap();
        turn();
        // The file was not moved.
        running.signal(Signal::HUP);
        wait_until("a numbered file exists", || has_more_than(&numbered, 1000));
        let ended = running.interrupt().good();
        let parts = [&first, &second, &out, &numbered].map(|path| frames_in(path));
        let json = ended.json();
        assert_eq!(json["frames"], parts.iter().sum::<u64>(), "{ending} {parts:?}");
        assert!(parts.iter().all(|frames| *frames > 0) && json["balanced"] == true, "{parts:?} {json}");
        assert_eq!(ended.errors.matches(": closed with ").count(), 3, "{}", ended.errors);
        assert!(ended.errors.contains(&format!("continuing in out.2.{ending}")), "{}", ended.errors);
    }
}

/// An open file remains usable after its folder was removed.
#[test]
fn open_file_is_kept_if_no_new_one_can_be_created() {
    let scratch = Scratch::new();
    let (folder, moved) = (scratch.file("folder"), scratch.file("moved.pcapng"));
    std::fs::create_dir(&folder).unwrap();
    let out = format!("{folder}/out.pcapng");
    let running = endless(linerate(&["capture", "-r", "-", "-w", &out, "--json"]));
    wait_until("frames are written", || has_more_than(&out, 1000));
    std::fs::rename(&out, &moved).unwrap();
    std::fs::remove_dir(&folder).unwrap();
    let before = std::fs::metadata(&moved).unwrap().len();
    running.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(300));
    wait_until("packets are still written", || has_more_than(&moved, before + 10_000));
    let ended = running.interrupt().good().says("out.pcapng: No such file").says("the current file is still written");
    assert_eq!(ended.json()["frames"], frames_in(&moved));
}

#[test]
fn hangup_completes_records_and_starts_a_new_file() {
    let scratch = Scratch::new();
    let count = |path: &str| match path.rsplit_once('.').unwrap().1 {
        "zst" => tool("zstd", &["-dcq", path]).lines().count() as u64,
        "jsonl" => std::fs::read_to_string(path).unwrap().lines().count() as u64,
        _ => {
            let file = ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap();
            file.metadata().file_metadata().num_rows() as u64
        }
    };
    for ending in ["jsonl", "jsonl.zst", "parquet"] {
        if ending.ends_with("zst") && !has_tools(&["zstd"]) {
            continue;
        }
        let [out, moved, numbered] = ["f", "moved", "f.2"].map(|name| scratch.file(&format!("{name}.{ending}")));
        // Flows end and start again.
        let running = endless(linerate(&["flows", "-r", "-", "-w", &out, "--idle", "1", "--json"]));
        std::thread::sleep(Duration::from_millis(300));
        running.signal(Signal::HUP);
        wait_until("the first is complete", || has_more_than(&out, 10));
        std::thread::sleep(Duration::from_millis(300));
        running.signal(Signal::HUP);
        wait_until("the second is complete", || has_more_than(&numbered, 10));
        let part = format!("{out}.part");
        wait_until("the third has started", || Path::new(&part).exists());
        std::thread::sleep(Duration::from_millis(300));
        // The file is moved while it is being written.
        std::fs::rename(&part, &moved).unwrap();
        running.signal(Signal::HUP);
        wait_until("the fourth has started", || Path::new(&part).exists());
        let ended = running.interrupt().good();
        let third = scratch.file(&format!("f.3.{ending}"));
        let parts = [&out, &numbered, &moved, &third].map(|path| count(path));
        let json = ended.json();
        assert_eq!((&json["records_written"], &json["records_lost"]), (&parts.iter().sum::<u64>().into(), &0.into()));
        assert_eq!(ended.errors.matches(": complete, ").count(), 3, "{}", ended.errors);
        assert!(!Path::new(&part).exists());
    }
}

#[test]
fn hangup_flushes_records_to_a_folder() {
    let scratch = Scratch::new();
    let folder = scratch.file("flows/");
    let running = endless(linerate(&["flows", "-r", "-", "-w", &folder, "--idle", "1", "--json"]));
    std::thread::sleep(Duration::from_millis(300));
    assert!(files(Path::new(&folder)).is_empty(), "records are buffered for a minute");
    running.signal(Signal::HUP);
    wait_until("files exist", || {
        files(Path::new(&folder)).iter().any(|file| file.extension().is_some_and(|e| e == "parquet"))
    });
    let json = running.interrupt().good().json();
    assert_eq!((json["records_lost"].as_u64(), json["failure"].as_str()), (Some(0), None), "{json}");
}

#[test]
fn hangup_rotates_packets_and_records_together() {
    let scratch = Scratch::new();
    let [out, flows] = ["out.pcapng", "f.jsonl"].map(|name| scratch.file(name));
    let running = endless(linerate(&["capture", "-r", "-", "-w", &out, "--flows", &flows, "--json"]));
    wait_until("frames are written", || has_more_than(&out, 1000));
    running.signal(Signal::HUP);
    wait_until("both are complete", || {
        Path::new(&flows).exists() && has_more_than(&scratch.file("out.2.pcapng"), 1000)
    });
    let json = running.interrupt().good().json();
    let parts = ["out.pcapng", "out.2.pcapng"].map(|name| frames_in(&scratch.file(name)));
    assert_eq!(json["frames"], parts.iter().sum::<u64>());
}

#[test]
fn runs_without_files_end_in_order() {
    let cases: [&[&str]; 4] = [
        &["count", "-r", "-", "--json"],
        &["capture", "-r", "-", "-w", "-", "--flows", "/dev/null"],
        &["flows", "-r", "-", "-w", "-"],
        &["capture", "-r", "-", "-w", "-", "--json"],
    ];
    for arguments in cases {
        let mut running = endless(linerate(arguments));
        let output = running.take_output().unwrap();
        let reader = std::thread::spawn(move || std::io::copy(&mut { output }, &mut std::io::sink()));
        std::thread::sleep(Duration::from_millis(100));
        running.signal(Signal::HUP);
        running.end().good();
        reader.join().unwrap().unwrap();
    }
}

#[test]
fn ignored_hangup_stays_ignored() {
    let scratch = Scratch::new();
    let out = scratch.file("out.pcapng");
    let mut command = Command::new("nohup");
    command.arg(program()).args(["capture", "-r", "-", "-w", &out, "--json"]);
    let running = endless(command);
    wait_until("frames are written", || has_more_than(&out, 1000));
    running.signal(Signal::HUP);
    std::thread::sleep(Duration::from_millis(300));
    let json = running.interrupt().good().json();
    assert_eq!(json["frames"], frames_in(&out), "{:?}", scratch.names());
}

/// SIGHUP with a terminal starts new files; a hangup of the terminal ends the run.
#[test]
fn run_at_a_terminal_rotates_and_ends_with_the_terminal() {
    if !has_tools(&["script"]) {
        return;
    }
    // The first is the session leader, the second a child of it.
    for line in ["exec PROGRAM", "PROGRAM; true"] {
        let scratch = Scratch::new();
        let [out, numbered, pid, feed, shown] =
            ["out.pcapng", "out.2.pcapng", "pid", "feed", "shown"].map(|name| scratch.file(name));
        std::fs::write(&feed, [records::header(), records::body(&frames::sample())].concat()).unwrap();
        // The writer of its input outlives the terminal.
        let program = format!("{} capture -q -r - -w {out}", program().display());
        let fed = format!("sh -c 'echo $$ > {pid}; exec {program}' < {feed}.fifo");
        tool("mkfifo", &[&format!("{feed}.fifo")]);
        let line = line.replace("exec PROGRAM", &format!("exec {fed}")).replace("PROGRAM", &fed);
        let mut terminal = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(std::fs::File::create(&shown).unwrap())
            .spawn()
            .unwrap();
        let mut to = std::fs::OpenOptions::new().write(true).open(format!("{feed}.fifo")).unwrap();
        to.write_all(&std::fs::read(&feed).unwrap()).unwrap();
        wait_until("frames are written", || has_more_than(&out, 1000));
        let number = std::fs::read_to_string(&pid).unwrap().trim().parse().unwrap();
        let process = rustix::process::Pid::from_raw(number).unwrap();
        let is_alive = || {
            let status = std::fs::read_to_string(format!("/proc/{number}/status")).unwrap_or_default();
            status.contains("linerate") && !status.contains("zombie")
        };
        let check_alive = || {
            let text = std::fs::read_to_string(&shown).unwrap_or_default();
            assert!(is_alive(), "ended although its terminal is open: {line}\n{text}");
        };
        check_alive();
        rustix::process::kill_process(process, Signal::HUP).unwrap();
        wait_until("a new file exists", || {
            check_alive();
            Path::new(&numbered).exists()
        });
        std::thread::sleep(Duration::from_millis(1200));
        check_alive();
        terminal.kill().unwrap();
        terminal.wait().unwrap();
        wait_until("it ends with its terminal", || !is_alive());
        assert!(frames_in(&out) > 0);
        frames_in(&numbered);
    }
}
