//! Inputs that provoke high memory or CPU use, and files that are not captures: bounded, interruptible, reported.

use linerate_tests::support::program::{Ended, Running, launch, run};
use linerate_tests::support::{Scratch, frames, has_tools, records};
use rustix::fs::{CWD, FileType, mknodat};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum memory of a run in KiB, for any input.
const MOST_MEMORY: u64 = 64 << 10;
/// Maximum processor time in seconds of a run with almost no work, on a busy and slow machine.
const MOST_WORK: f64 = 30.0;
/// Maximum time to end on such a machine.
const MOST_PATIENCE: Duration = Duration::from_secs(10);

fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let length = (12 + body.len() as u32).to_le_bytes();
    [&kind.to_le_bytes()[..], &length, body, &length].concat()
}

fn section() -> Vec<u8> {
    block(0x0a0d_0d0a, &[&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat())
}

fn interface(options: &[u8]) -> Vec<u8> {
    block(1, &[&[1, 0, 0, 0, 0, 0, 0, 0], options].concat())
}

fn frame() -> Vec<u8> {
    block(6, &[&[0u32, 0, 1, 60, 60].map(u32::to_le_bytes).concat()[..], &[0; 60]].concat())
}

fn option(code: u8, value: &[u8]) -> Vec<u8> {
    [&[code, 0][..], &(value.len() as u16).to_le_bytes(), value].concat()
}

/// A file of `head`, `times` copies of `again`, and `tail`, compressed by a program.
fn compressed(scratch: &Scratch, program: &str, head: &[u8], (again, times): (&[u8], usize), tail: &[u8]) -> String {
    let path = scratch.file(&format!("{times}.{program}"));
    let mut child = Command::new(program)
        .args(["-1", "-q", "-c"])
        .stdin(Stdio::piped())
        .stdout(File::create(&path).unwrap())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(head).unwrap();
    let many = (1 << 20) / again.len() + 1;
    let piece = again.repeat(many);
    (0..times / many).for_each(|_| input.write_all(&piece).unwrap());
    input.write_all(&again.repeat(times % many)).unwrap();
    input.write_all(tail).unwrap();
    drop(input);
    assert!(child.wait().unwrap().success());
    path
}

/// Result of a run, its peak memory in KiB, and its processor time in seconds, as read from /proc.
fn watched(running: Running) -> (Ended, u64, f64) {
    let (mut memory, mut work) = (0, 0.0);
    while let Some(text) = running.proc_status("VmHWM") {
        memory = text.trim_end_matches(" kB").parse().unwrap();
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", running.pid())).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
        if let (Some(user), Some(system)) = (ticks(11), ticks(12)) {
            work = (user + system) / 100.0;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    (running.end(), memory, work)
}

/// Counts and copies a file; both must succeed or fail with `error`, within the limits.
fn is_bounded(scratch: &Scratch, path: &str, more: &[&str], error: Option<&str>) -> Vec<Ended> {
    let output = scratch.file("copy.pcapng");
    let runs = [vec!["count", "-r", path, "--json"], vec!["capture", "-q", "-r", path, "-w", &output, "--json"]];
    let check = |arguments: &Vec<&str>| {
        let (ended, memory, work) = watched(launch(&[&arguments[..], more].concat()));
        assert!(memory < MOST_MEMORY, "{arguments:?} took {memory} KiB");
        assert!(work < MOST_WORK, "{arguments:?} took {work} s");
        match error {
            Some(error) => ended.with_status(1).says(error),
            None => ended.good(),
        }
    };
    runs.iter().map(check).collect()
}

#[test]
fn millions_of_empty_blocks_take_no_memory() {
    if !has_tools(&["gzip", "zstd"]) {
        return;
    }
    let scratch = Scratch::new();
    let tail = [interface(&[]), frame()].concat();
    for program in ["gzip", "zstd"] {
        let path = compressed(&scratch, program, &section(), (&block(4, &[]), 4_000_000), &tail);
        for ended in is_bounded(&scratch, &path, &[], None) {
            assert_eq!(ended.json()["accounts"][0]["received"], 1);
        }
    }
    // A real name takes four times its bytes in memory.
    let name = block(4, &[1, 0, 6, 0, 127, 0, 0, 1, b'a', 0, 0, 0]);
    let path = compressed(&scratch, "zstd", &section(), (&name, 1_000_000), &tail);
    for ended in is_bounded(&scratch, &path, &[], None) {
        let left_out = &ended.json()["accounts"][0]["notes"]["not_copied"];
        assert!(left_out.as_u64().unwrap() > 700_000, "{left_out} left out");
    }
}

#[test]
fn thousands_of_interfaces_are_cheap_a_million_rejected() {
    if !has_tools(&["zstd"]) {
        return;
    }
    let scratch = Scratch::new();
    let named = interface(&[option(2, &[1; 1024]), option(3, &[1; 1024])].concat());
    let path = compressed(&scratch, "zstd", &section(), (&named, 8_192), &frame());
    for more in [&[][..], &["--filter", "tcp port 80 or udp"]] {
        is_bounded(&scratch, &path, more, None);
    }
    for (interface, count) in [(named, 16_384), (interface(&[]), 1_000_000)] {
        let path = compressed(&scratch, "zstd", &section(), (&interface, count), &frame());
        is_bounded(&scratch, &path, &[], Some("more than 8192 interfaces in one file"));
    }
}

#[test]
fn million_sections_or_options_are_read() {
    if !has_tools(&["zstd"]) {
        return;
    }
    let scratch = Scratch::new();
    let tail = [section(), interface(&[]), frame()].concat();
    let path = compressed(&scratch, "zstd", &section(), (&section(), 1_000_000), &tail);
    is_bounded(&scratch, &path, &[], None);
    let options = option(1, &[]).repeat(100_000);
    let path = compressed(&scratch, "zstd", &section(), (&interface(&options), 1_000), &frame());
    is_bounded(&scratch, &path, &[], None);
}

/// 256 GB of blocks of 4 GB without a frame, as a sparse file of a few bytes on disk.
fn sparse_file(scratch: &Scratch) -> String {
    let path = scratch.file("desert.pcapng");
    let file = File::create(&path).unwrap();
    let begin = [section(), interface(&[])].concat();
    file.write_all_at(&begin, 0).unwrap();
    let length = u32::MAX - 3;
    let head = [0x0bad_u32.to_le_bytes(), length.to_le_bytes()].concat();
    (0..64).for_each(|n| file.write_all_at(&head, begin.len() as u64 + n * u64::from(length)).unwrap());
    path
}

#[test]
fn reading_a_file_without_packets_can_be_stopped() {
    let scratch = Scratch::new();
    let (path, output) = (sparse_file(&scratch), scratch.file("out.pcapng"));
    let verbs = [
        vec!["count", "-r", &path],
        vec!["capture", "-q", "-r", &path, "-w", &output],
        vec!["flows", "-q", "-r", &path],
        vec!["count", "-i", "faulty:pcap:FILE"],
    ];
    let faulty = format!("faulty:pcap:{path}");
    for mut arguments in verbs {
        arguments.iter_mut().filter(|word| word.starts_with("faulty")).for_each(|word| *word = &faulty);
        let running = launch(&arguments);
        running.wait_until_open();
        std::thread::sleep(Duration::from_millis(500));
        let interrupted = Instant::now();
        running.interrupt().good();
        let elapsed = interrupted.elapsed();
        assert!(elapsed < MOST_PATIENCE, "{arguments:?} ended {elapsed:?} after Ctrl-C");
        let started = Instant::now();
        run(&[&arguments[..], &["--duration", "1"]].concat()).good();
        assert!(started.elapsed() < MOST_PATIENCE, "{arguments:?} took {:?} for 1 s", started.elapsed());
    }
}

#[test]
fn file_without_packets_does_not_delay_other_ports() {
    let scratch = Scratch::new();
    let (path, fifo, all) = (sparse_file(&scratch), fifo(&scratch), frames::sample());
    let running = launch(&["count", "-r", &path, "-r", &fifo, "--json"]);
    running.wait_until_open();
    let mut pipe = OpenOptions::new().write(true).open(&fifo).unwrap();
    let file = scratch.file("sample.pcap");
    records::write(&file, &all);
    pipe.write_all(&std::fs::read(file).unwrap()).unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let ended = running.interrupt().good();
    assert!(ended.output.contains(&format!("\"frames\":{}", all.len())), "{}", ended.output);
}

fn fifo(scratch: &Scratch) -> String {
    let path = scratch.file("fifo");
    mknodat(CWD, &path, FileType::Fifo, 0o600.into(), 0).unwrap();
    path
}

#[test]
fn reading_a_stalled_fifo_can_be_stopped() {
    let scratch = Scratch::new();
    let fifo = fifo(&scratch);
    for stalls in [false, true] {
        let running = launch(&["count", "-r", &fifo]);
        running.wait_until_open();
        let mut pipe = stalls.then(|| OpenOptions::new().write(true).open(&fifo).unwrap());
        if let Some(pipe) = &mut pipe {
            pipe.write_all(&[section(), interface(&[]), frame()[..40].to_vec()].concat()).unwrap();
        }
        std::thread::sleep(Duration::from_millis(200));
        let asked = Instant::now();
        running.interrupt().good();
        assert!(asked.elapsed() < MOST_PATIENCE, "{:?}", asked.elapsed());
    }
}

/// A FIFO in place of a file of streams, rules, keys or passwords: a run does not wait for it forever.
#[test]
fn fifo_as_an_option_file_does_not_hang() {
    let scratch = Scratch::new();
    let (fifo, capture) = (&*fifo(&scratch), &*scratch.file("in.pcap"));
    records::write(capture, &frames::sample());
    let (pair, authority) = (format!("cert={fifo},key={fifo}"), format!("ca={fifo}"));
    let ship = format!("spool={},password={fifo}", scratch.file("spool"));
    let serve = ["serve", "--port", "p1=mem:fifo", "--listen", "127.0.0.1:0"];
    let measure = ["measure", "--to", "mem:fifo", "--check", "mem:fifo"];
    let cases: [(&[&str], &[&str]); 14] = [
        (&["generate", "--to", "null:x"], &["--streams", fifo]),
        (&serve, &["--streams", fifo]),
        (&serve, &["--token", fifo]),
        (&serve, &["--tls-cert", fifo, "--tls-key", fifo]),
        (&["switch", "mem:fifo", "mem:other", "-T", "0.1"], &["--rules", fifo]),
        (&["lab", "up"], &["--file", fifo]),
        (&["ctl", "/nosuch"], &["add-flows", fifo]),
        (&["ctl", "/nosuch"], &["replace-flows", fifo]),
        (&measure, &["--streams", fifo]),
        (&measure, &["--method", "y1564", "--services", fifo]),
        (&["collect", "ipfix+tls://127.0.0.1:0", "-w", "/dev/null"], &["--tls", &pair]),
        (&["flows", "-r", capture, "-w", "ipfix+tls://127.0.0.1:9"], &["--tls", &authority]),
        (&["flows", "-r", capture, "-w", "clickhouse://u@127.0.0.1:9/t"], &["--ship", &ship]),
        (&["find"], &[fifo]),
    ];
    let waits = |(command, option): &(&[&str], &[&str])| {
        let mut ends = Command::new("timeout");
        ends.args(["-s", "KILL", &MOST_PATIENCE.as_secs().to_string()])
            .arg(linerate_tests::support::program::program());
        let ended = ends.args(*command).args(*option).stdin(Stdio::null()).output().unwrap();
        ended.status.code().is_none_or(|code| code == 137)
    };
    let waiting: Vec<_> = cases.iter().filter(|case| waits(case)).collect();
    assert!(waiting.is_empty(), "{waiting:?}");
}

/// A packet of a stream may come from a pipe; waiting for it does not spin.
#[test]
fn waiting_for_a_packet_from_a_fifo_does_not_spin() {
    let scratch = Scratch::new();
    let (fifo, to) = (fifo(&scratch), format!("pcap:{}", scratch.file("out.pcap")));
    let packet = format!("file({fifo}#1)");
    let running = launch(&["generate", "--json", "--to", &to, "-k", &packet, "-c", "3"]);
    // The other end is open, but no data arrives.
    let mut pipe = OpenOptions::new().write(true).open(&fifo).unwrap();
    pipe.write_all(&section()).unwrap();
    let stat = || std::fs::read_to_string(format!("/proc/{}/schedstat", running.pid())).unwrap();
    let worked = || stat().split(' ').next().unwrap().parse::<u64>().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let before = worked();
    std::thread::sleep(Duration::from_secs(1));
    let spent = worked() - before;
    assert!(spent < 20_000_000, "{spent} ns of work in a second of waiting");
    pipe.write_all(&[interface(&[]), frame()].concat()).unwrap();
    drop(pipe);
    assert_eq!(running.end().good().json()["frames"], 3);
}

#[test]
fn files_that_are_not_captures_are_reported() {
    let scratch = Scratch::new();
    let socket = scratch.file("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    let cases = [
        (scratch.file(""), "a directory without capture files"),
        (socket, "is a socket; expected a file"),
        ("/dev/zero".to_owned(), "it begins with \\x00\\x00\\x00\\x00"),
        ("/dev/null".to_owned(), "it is empty"),
        ("/proc/cpuinfo".to_owned(), "not a pcap or pcapng file"),
        ("/proc/self/mem".to_owned(), "/proc/self/mem"),
    ];
    for (path, error) in cases {
        is_bounded(&scratch, &path, &[], Some(error));
    }
}

#[test]
fn compression_bombs_are_read_in_bounded_memory() {
    if !has_tools(&["gzip", "zstd"]) {
        return;
    }
    let scratch = Scratch::new();
    let zeros = vec![0; 1 << 20];
    // 10 GB each: many concatenated copies of a short file.
    let bomb = |program: &str, head: &[u8]| {
        let (first, rest) = (
            compressed(&scratch, program, head, (&zeros, 64), &[]),
            compressed(&scratch, program, &[], (&zeros, 65), &[]),
        );
        let path = scratch.file(&format!("bomb.{program}"));
        let bytes = [std::fs::read(first).unwrap(), std::fs::read(rest).unwrap().repeat(156)].concat();
        std::fs::write(&path, bytes).unwrap();
        path
    };
    for program in ["gzip", "zstd"] {
        is_bounded(&scratch, &bomb(program, &[]), &[], Some("it begins with \\x00\\x00\\x00\\x00"));
        let sound = [section(), interface(&[]), frame()].concat();
        is_bounded(&scratch, &bomb(program, &sound), &[], Some("block length 0"));
        // Zeros are records of 0 bytes, and so very many packets.
        let classic = linerate::pcap::pcap::file_header(linerate::burst::LinkType::ETHERNET, 0);
        let path = bomb(program, &classic);
        let (ended, memory, _) = watched(launch(&["count", "-r", &path, "--duration", "1"]));
        ended.good();
        assert!(memory < MOST_MEMORY, "{memory} KiB");
        let twice = compressed(&scratch, program, &std::fs::read(&path).unwrap(), (b"x", 0), &[]);
        is_bounded(&scratch, &twice, &[], Some("it is compressed twice"));
    }
}
