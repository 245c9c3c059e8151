//! Stopping a run by signals: its outputs are complete, also after repeated signals.

use linerate_tests::support::program::{Running, launch, linerate, run, spawn};
use linerate_tests::support::{Scratch, files, frames, records, wait_until};
use rustix::fs::{CWD, FileType, mknodat};
use rustix::process::Signal;
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;
use std::process::{ChildStdin, Stdio};
use std::time::Duration;

/// Rounds per test: races show only at some moments.
const ROUNDS: usize = 20;

/// Writes a few thousand packets per second to a program until it stops reading.
fn feed(mut to: ChildStdin) {
    let (header, body) = (records::header(), records::body(&frames::sample()));
    std::thread::spawn(move || {
        let mut result = to.write_all(&header);
        while result.is_ok() {
            result = to.write_all(&body);
            std::thread::sleep(Duration::from_millis(5));
        }
    });
}

/// Starts a run that reads an endless stream from standard input.
fn endless(arguments: &[&str]) -> Running {
    let mut command = linerate(arguments);
    let mut running = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    feed(running.take_input().unwrap());
    running.wait_until_open();
    running
}

/// Sends two signals, as timeout(1) does: one to the program, one to its group.
fn stop_twice(running: Running, round: usize) -> Value {
    // At different moments while the run ends.
    std::thread::sleep(Duration::from_millis(20));
    running.signal(Signal::TERM);
    std::thread::sleep(Duration::from_micros(100 * round as u64));
    running.signal(Signal::TERM);
    running.end().good().json()
}

#[test]
fn capture_is_complete_after_two_signals() {
    let scratch = Scratch::new();
    for round in 0..ROUNDS {
        for ending in ["pcapng", "pcapng.zst", "pcap.gz"] {
            let file = scratch.file(&format!("{round}.{ending}"));
            let json = stop_twice(endless(&["capture", "-r", "-", "-w", &file, "--json"]), round);
            let again = run(&["capture", "-r", &file, "--json"]).good().json();
            assert_eq!((&again["frames"], &again["failure"]), (&json["frames"], &Value::Null), "{file}");
        }
    }
}

#[test]
fn records_are_complete_after_two_signals() {
    let scratch = Scratch::new();
    for round in 0..ROUNDS {
        for name in ["flows.parquet", "flows.jsonl", "folder/"] {
            let place = scratch.file(&format!("{round}-{name}"));
            let json = stop_twice(endless(&["flows", "-r", "-", "--write", &place, "--json"]), round);
            assert_eq!((json["records_lost"].as_u64(), json["failure"].as_str()), (Some(0), None), "{json}");
            let written = json["records_written"].as_u64().unwrap();
            let made = if name == "folder/" { files(Path::new(&place)) } else { vec![place.clone().into()] };
            assert!(!made.is_empty() || written == 0, "{place}: {json}");
            for file in made {
                let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
                match name {
                    "flows.jsonl" => assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count() as u64, written),
                    _ => assert!(bytes.ends_with(b"PAR1"), "{} is cut off", file.display()),
                }
            }
        }
    }
}

#[test]
fn check_prints_its_report_after_two_signals() {
    for round in 0..ROUNDS {
        let to = format!("mem:endings{round}");
        let sent = ["generate", "--to", &to, "--check", &to, "-k", "ip/udp", "-c", "0", "--json"];
        let running = launch(&sent);
        running.wait_until_open();
        let json = stop_twice(running, round);
        let number = |value: &Value| value.as_u64().unwrap_or_default();
        assert_eq!(number(&json["check"]["sent"]), number(&json["frames"]), "{json}");
    }
}

#[test]
fn second_signal_reports_the_wait_and_third_ends() {
    let scratch = Scratch::new();
    let stuck = scratch.file("stuck.pcap");
    mknodat(CWD, &stuck, FileType::Fifo, 0o600.into(), 0).unwrap();
    // The pipe is open, but not read.
    let _reader = OpenOptions::new().read(true).write(true).open(&stuck).unwrap();
    let running = endless(&["capture", "-r", "-", "-w", &stuck]);
    std::thread::sleep(Duration::from_millis(300));
    running.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(200));
    running.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(1000));
    assert!(is_alive(&running), "two signals within a second count as one");
    running.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(300));
    assert!(is_alive(&running), "the second request must not end it");
    running.signal(Signal::INT);
    wait_until("the third request ends it", || !is_alive(&running));
    let ended = running.end().with_status(-1);
    assert_eq!(ended.errors.matches("press Ctrl-C again to exit").count(), 1, "{}", ended.errors);
}

#[test]
fn one_signal_ends_a_run_that_waits_in_open() {
    let scratch = Scratch::new();
    let (fifo, sample) = (scratch.file("fifo"), scratch.file("sample.pcap"));
    mknodat(CWD, &fifo, FileType::Fifo, 0o600.into(), 0).unwrap();
    records::write(&sample, &frames::sample());
    let to = format!("pcap:{fifo}");
    // Opening a FIFO for reading does not wait (odd.rs).
    let cases: [&[&str]; 3] = [
        &["capture", "-r", &sample, "-w", &fifo],
        &["flows", "-r", &sample, "--write", &fifo],
        &["generate", "--to", &to, "--udp"],
    ];
    for arguments in cases {
        let running = launch(arguments);
        wait_until("it waits for the reader of the FIFO", || {
            let call = std::fs::read_to_string(format!("/proc/{}/syscall", running.pid())).unwrap_or_default();
            // 257 is openat(2) on x86-64; no other wait here is in it.
            running.proc_status("State").is_some_and(|state| state.starts_with('S')) && call.starts_with("257 ")
        });
        running.signal(Signal::INT);
        wait_until("one signal ends it", || !is_alive(&running));
        running.end().with_status(-1);
    }
}

/// The signal may arrive at any time after the handlers are installed.
#[test]
fn early_signal_still_gives_a_report() {
    let mut early = 0;
    for round in 0..ROUNDS as u64 {
        // Allocating the flow table takes a while.
        let mut command = linerate(&["flows", "-r", "-", "-q", "--max-flows", "1000000"]);
        let mut running = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        let _stays_open = running.take_input();
        while !has_handler(&running, Signal::TERM) && is_alive(&running) {
            std::thread::yield_now();
        }
        // Ports are opened before privileges are dropped.
        early += u32::from(running.proc_status("NoNewPrivs").as_deref() == Some("0"));
        std::thread::sleep(Duration::from_micros(500 * round));
        running.signal(Signal::TERM);
        let ended = running.end().good();
        assert!(ended.output.contains("flows of"), "{round}: {ended:?}");
    }
    assert!(early > 0, "no signal arrived before the start");
}

/// The interim report has the text of the final report.
#[test]
fn usr1_prints_an_interim_report() {
    let scratch = Scratch::new();
    let (file, mem) = (scratch.file("all.pcapng"), format!("mem:so-far-{}", std::process::id()));
    let sent = ["generate", "-q", "--to", &mem, "--check", &mem, "-k", "ip/udp", "-c", "0"];
    let cases: [(&[&str], &str, &str); 4] = [
        (&["capture", "-q", "-r", "-", "-w", &file, "--flows", "-"], "bytes read in", "flows ended"),
        (&["count", "-q", "-r", "-", "--protocols"], "packets by size", "packets by protocol header"),
        (&["flows", "-q", "-r", "-"], "bytes metered in", "flows ended"),
        (&sent, "bytes sent in", "packets received"),
    ];
    for (arguments, one, other) in cases {
        let running = if arguments[0] == "generate" { launch(arguments) } else { endless(arguments) };
        running.wait_until_open();
        for _ in 0..3 {
            std::thread::sleep(Duration::from_millis(150));
            running.signal(Signal::USR1);
            assert!(is_alive(&running), "{arguments:?}");
        }
        std::thread::sleep(Duration::from_millis(150));
        let ended = running.interrupt().good();
        assert!((1..=3).contains(&ended.errors.matches("so far").count()), "{arguments:?}: {}", ended.errors);
        assert!(ended.errors.contains(one) && ended.errors.contains(other), "{arguments:?}: {}", ended.errors);
    }
}

#[test]
fn usr1_prints_an_interim_report_in_json() {
    for arguments in [&["check", "-q", "-r", "-", "--json"][..], &["check", "-q", "-r", "-", "--json"]] {
        let running = endless(arguments);
        std::thread::sleep(Duration::from_millis(300));
        running.signal(Signal::USR1);
        std::thread::sleep(Duration::from_millis(150));
        let ended = running.interrupt().good();
        let lines: Vec<Value> = ended.output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["record"], &lines[lines.len() - 1]["record"]), (&"so_far".into(), &"summary".into()));
        assert!(lines[0]["lost"].is_u64(), "{arguments:?}: {}", ended.output);
    }
}

/// Returns true if the process has a handler for a signal.
fn has_handler(running: &Running, signal: Signal) -> bool {
    let caught = running.proc_status("SigCgt").and_then(|mask| u64::from_str_radix(&mask, 16).ok());
    caught.is_some_and(|mask| mask & 1 << (signal.as_raw() - 1) != 0)
}

fn is_alive(running: &Running) -> bool {
    running.proc_status("State").is_some_and(|state| !state.starts_with('Z'))
}

/// The broker is unreachable: a second signal ends the wait, and the batches stay in the spool.
#[test]
fn two_signals_end_the_wait_for_a_broker() {
    let scratch = Scratch::new();
    let (input, spool) = (scratch.file("in.pcap"), scratch.file("spool"));
    records::write(&input, &frames::sample());
    let ship = format!("spool={spool},end=200");
    let started = std::time::Instant::now();
    let mut command = linerate(&["flows", "-r", &input, "-w", "kafka://127.0.0.1:1/t", "--ship", &ship, "--json"]);
    let mut running = spawn(command.stdout(Stdio::piped()));
    let heard = running.collect_errors();
    wait_until("the wait is reported", || heard.lock().unwrap().contains("records undelivered; waiting up to"));
    running.signal(Signal::INT);
    std::thread::sleep(Duration::from_millis(1500));
    running.signal(Signal::INT);
    let json = running.end().good().json();
    assert!(started.elapsed() < Duration::from_secs(100), "it waited for the whole `end` time");
    let waiting = json["accounts"].as_array().unwrap().iter().find(|account| account["stage"] == "deliver");
    assert!(waiting.unwrap()["drops"]["waiting"].as_u64() > Some(0), "{json}");
}
