//! Frames of received streams in shared memory: with a reader that is slow, late, killed or malicious, and without one.

use crate::receive::testbed::{OWN, Stage, Way, sound, streams};
use linerate_tests::support::program::{Ended, Running, run, start};
use linerate_tests::support::{Scratch, has_tools, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// Returns a ring name that no other test uses.
fn name() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static USED: AtomicU32 = AtomicU32::new(0);
    format!("frames-{}-{}", std::process::id(), USED.fetch_add(1, Ordering::Relaxed))
}

/// Receives into four frames of 1 MiB and shares them.
fn share(stage: &Stage, name: &str, more: &[&str]) -> Running {
    let own = ["--share", name, "--frames", "4", "--frame-size", "1MiB"];
    stage.receive(&stage.port(Way::Packet, ""), &[&own, more].concat())
}

/// Starts a sending process for this amount of data.
fn send(stage: &Stage, size: &str) -> Running {
    let to = format!("{OWN}:5001");
    stage.wire.start_inside("client", &["send", &to, "--size", size, "-q", "--silence", "40"])
}

fn take(name: &str, more: &[&str]) -> Running {
    start(&[&["frames", name, "--check", "--json"], more].concat())
}

/// Returns a counter of the stage `store`.
fn counted(report: &Value, count: &str) -> u64 {
    let accounts = report["accounts"].as_array().expect("accounts");
    let store = accounts.iter().find(|account| account["stage"] == "store").expect("the stage store");
    let found = [&store[count], &store["drops"][count], &store["notes"][count]];
    found.into_iter().find_map(Value::as_u64).unwrap_or_default()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace")
}

/// Starts a script that uses the Python reader and prints lines as it runs.
fn python(text: &str, arguments: &[&str]) -> std::process::Child {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "60", "python3", "-S", "-c", text]).args(arguments);
    command.env("PYTHONPATH", root().join("python")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("python3")
}

fn ended(child: std::process::Child) -> Ended {
    Ended::of(child.wait_with_output().expect("its exit"))
}

#[test]
fn another_process_takes_every_byte_and_senders_wait_for_it() {
    let Some(stage) = Stage::up(true) else { return };
    let name = name();
    let receiver = share(&stage, &name, &["--streams", "2"]);
    let sender = send(&stage, "20MiB");
    // Four frames, plus what the sockets hold.
    wait_until("all frames are full", || stage.sent() > 3 * MIB);
    std::thread::sleep(Duration::from_secs(1));
    assert!(stage.sent() < 16 * MIB, "{} bytes were sent without a reader", stage.sent());
    let reader = take(&name, &[]);
    sender.end().good();
    send(&stage, "20MiB").end().good();
    let (taken, report) = (reader.end().good().json(), sound(receiver.end()));
    assert_eq!((&taken["bytes"], &taken["whole"], &taken["missing"]), (&(40 * MIB).into(), &true.into(), &0.into()));
    assert_eq!(streams(&taken), vec![("complete".to_owned(), 20 * MIB); 2]);
    assert_eq!((counted(&report, "readers"), counted(&report, "redelivered")), (1, 0));
    assert_eq!(
        (counted(&report, "delivered"), &report["frames"]),
        (taken["frames"].as_u64().unwrap(), &taken["frames"])
    );
}

#[test]
fn reader_writes_the_same_files_as_the_receiver() {
    let Some(stage) = Stage::up(true).filter(|_| has_tools(&["bash"])) else { return };
    let (name, scratch) = (name(), Scratch::new());
    let data: Vec<u8> = (0..5_000_017_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let (file, folder) = (scratch.file("data"), scratch.file("taken"));
    std::fs::write(&file, &data).expect("a file");
    let receiver = share(&stage, &name, &["--streams", "1"]);
    wait_until_shared(&name);
    let reader = start(&["frames", &name, "-w", &folder, "--json"]);
    let shell = format!("exec 3<>/dev/tcp/{OWN}/5001; cat {file} >&3; exec 3>&-");
    let client = stage.command("client", "bash", &["-c", &shell]).output().expect("bash");
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    let taken = reader.end().good().json();
    sound(receiver.end());
    assert_eq!((&taken["bytes"], &taken["balanced"]), (&data.len().into(), &true.into()));
    let files = linerate_tests::support::files(Path::new(&folder));
    let list = std::fs::read_to_string(Path::new(&folder).join("frames.csv")).expect("a list");
    let stream = files.iter().find(|file| !file.to_string_lossy().ends_with(".csv")).expect("a stream");
    assert!(std::fs::read(stream).expect("a file") == data);
    assert_eq!(
        (list.lines().count(), list.lines().last().unwrap().contains(",complete,stream-000000_10.7.0.1")),
        (6, true)
    );
}

#[test]
fn stalled_reader_stops_the_senders_without_loss() {
    let Some(stage) = Stage::up(true) else { return };
    let name = name();
    let receiver = share(&stage, &name, &["--streams", "1"]);
    wait_until_shared(&name);
    let reader = take(&name, &[]);
    let sender = send(&stage, "300MiB");
    wait_until("8 MiB are sent", || stage.sent() > 8 * MIB);
    reader.signal(Signal::STOP);
    std::thread::sleep(Duration::from_secs(1));
    let before = stage.sent();
    std::thread::sleep(Duration::from_secs(2));
    assert!(stage.sent() - before < MIB, "{} bytes while all frames were held", stage.sent() - before);
    reader.signal(Signal::CONT);
    sender.end().good();
    let (taken, report) = (reader.end().good().json(), sound(receiver.end()));
    assert_eq!((&taken["bytes"], streams(&report)), (&(300 * MIB).into(), vec![("complete".to_owned(), 300 * MIB)]));
}

/// Holds three of four frames and returns each late; compares frames with the sent file.
const LATE: &str = "
import linerate, sys, time, zlib
data = open(sys.argv[2], 'rb').read()
held, seen = [], 0
with linerate.FrameRing(sys.argv[1], reader='late') as ring:
    while ring.ended is None:
        frame = ring.next(timeout=1 if len(held) < 3 else 0.01)
        if frame is not None:
            assert frame.data == data[frame.offset:frame.offset + frame.length], frame.offset
            seen += frame.length
            held.append(frame)
        if len(held) == 3 or (ring.ended and held):
            first = held.pop(0)
            assert first.data == data[first.offset:first.offset + first.length], first.offset
            first.give_back()
            time.sleep(0.005)
    for frame in held:
        assert frame.data == data[frame.offset:frame.offset + frame.length], frame.offset
        frame.give_back()
    print(seen, ring.ended, frame.ending, frame.sender[0], frame.receiver)
";

#[test]
fn reader_that_returns_frames_late_gets_every_byte() {
    let Some(stage) = Stage::up(true).filter(|_| has_tools(&["python3", "bash"])) else { return };
    let (name, scratch) = (name(), Scratch::new());
    let data: Vec<u8> = (0..30_000_017_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let file = scratch.file("data");
    std::fs::write(&file, &data).expect("a file");
    let receiver = share(&stage, &name, &["--streams", "1"]);
    wait_until_shared(&name);
    let reader = python(LATE, &[&name, &file]);
    let shell = format!("exec 3<>/dev/tcp/{OWN}/5001; cat {file} >&3; exec 3>&-");
    let client = stage.command("client", "bash", &["-c", &shell]).output().expect("bash");
    assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
    let said = ended(reader).good().output;
    assert_eq!(said, format!("{} ended complete 10.7.0.1 ('{OWN}', 5001)\n", data.len()));
    sound(receiver.end());
}

/// Takes three frames, returns the second, prints their numbers and keeps the others.
const HOLDS: &str = "
import linerate, sys, time
ring = linerate.FrameRing(sys.argv[1], reader='holds')
frames = [ring.next() for _ in range(3)]
frames[1].give_back()
print([frame.id for frame in frames], flush=True)
time.sleep(60)
";

#[test]
fn frames_of_a_killed_reader_go_to_the_next_one() {
    let Some(stage) = Stage::up(true).filter(|_| has_tools(&["python3"])) else { return };
    let name = name();
    let receiver = share(&stage, &name, &["--streams", "1"]);
    wait_until_shared(&name);
    // Without timeout(1), so that the process that holds the frames dies at once.
    let mut first = Command::new("python3")
        .args(["-S", "-c", HOLDS, &name])
        .env("PYTHONPATH", root().join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3");
    let sender = send(&stage, "20MiB");
    let mut said = String::new();
    BufReader::new(first.stdout.take().expect("a pipe")).read_line(&mut said).expect("a line");
    assert_eq!(said, "[0, 1, 2]\n");
    let second = run(&["frames", &name]).with_status(1);
    assert!(second.errors.contains("another reader is attached, and the limit is one"), "{}", second.errors);
    first.kill().expect("SIGKILL");
    first.wait().expect("its exit");
    let reader = take(&name, &[]);
    sender.end().good();
    let (taken, ended) = (reader.end().good().json(), receiver.end());
    let report = sound(ended);
    assert_eq!(
        (&taken["bytes"], &taken["frames"]),
        (&(19 * MIB).into(), &(report["frames"].as_u64().unwrap() - 1).into())
    );
    assert!(taken["redelivered"].as_u64().unwrap() >= 2, "{taken:#}");
    assert_eq!(counted(&report, "redelivered"), taken["redelivered"].as_u64().unwrap());
    assert_eq!((counted(&report, "readers"), counted(&report, "readers_refused")), (2, 1));
    let events = report["events"].to_string();
    assert!(events.contains("reader \\\"holds\\\"") && events.contains("are offered again"), "{events}");
}

/// Takes a frame and overwrites its control memory.
const LIES: &str = "
import linerate, sys, time
ring = linerate.FrameRing(sys.argv[1], reader='lies')
ring.next()
for at in range(len(ring._longs)):
    ring._longs[at] = int(sys.argv[2])
time.sleep(0.5)
print(ring.next(timeout=5), ring.ended)
";

#[test]
fn malicious_reader_is_evicted_and_the_next_gets_every_byte() {
    let Some(stage) = Stage::up(true).filter(|_| has_tools(&["python3"])) else { return };
    for number in ["2", "77", "18446744073709551615"] {
        let name = name();
        let receiver = share(&stage, &name, &["--streams", "1"]);
        wait_until_shared(&name);
        let reader_process = python(LIES, &[&name, number]);
        let sender = send(&stage, "20MiB");
        drop(ended(reader_process));
        let reader = take(&name, &[]);
        sender.end().good();
        let (taken, report) = (reader.end().good().json(), sound(receiver.end()));
        // By chance it returned at most one of the frames handed to it.
        let missed = 20 * MIB - taken["bytes"].as_u64().unwrap();
        assert!(missed <= MIB && missed.is_multiple_of(MIB), "{number}: {taken:#}");
        assert_eq!((counted(&report, "readers_evicted"), counted(&report, "readers")), (1, 2), "{number}");
        let events = report["events"].to_string();
        assert!(events.contains("reader \\\"lies\\\"") && events.contains("was evicted"), "{events}");
    }
}

#[test]
fn end_waits_for_a_reader_and_reports_not_returned_frames() {
    let Some(stage) = Stage::up(true) else { return };
    let name = name();
    let receiver = share(&stage, &name, &["--streams", "1", "--share-timeout", "0.5"]);
    send(&stage, "2MiB").end().good();
    let report = receiver.end().good().json();
    assert_eq!(
        (&report["balanced"], counted(&report, "not_returned")),
        (&true.into(), report["frames"].as_u64().unwrap())
    );
    let events = report["events"].to_string();
    assert!(events.contains("were not returned within 0.5 s after the last: no reader took them"), "{events}");
    let unshared = run(&["frames", &name]).with_status(1);
    assert!(
        unshared.errors.contains(&format!("linerate receive PORT --tcp A:P --share {name}")),
        "{}",
        unshared.errors
    );
}

/// Frames replaced by newer ones because no reader takes them are counted and reported as lost.
#[test]
fn replaced_frames_are_counted_as_lost() {
    let Some(stage) = Stage::up(false) else { return };
    let (name, port) = (name(), stage.port(Way::Packet, ""));
    let udp = format!("{OWN}:7148");
    let own = ["receive", &port, "--udp", &udp, "--json", "-Z", "root", "--share", &name, "--drop", "oldest"];
    let frames = ["--frames", "4", "--frame-size", "256KiB", "--share-timeout", "0.2"];
    let receiver = start(&[&own[..], &frames].concat());
    wait_until_shared(&name);
    let send = ["send", &udp, "--udp", "--size", "4MiB", "--rate", "100mbps", "-q"];
    stage.wire.inside("client", &send).good();
    let report = receiver.interrupt().good().json();
    let [gone, left] = ["dropped_oldest", "not_returned"].map(|count| counted(&report, count));
    // 16 frames, less those of which a busy machine received no packet.
    assert!(gone >= 5 && left >= 2 && gone + left <= 16, "{report:#}");
    assert!(report["balanced"] == true, "{report:#}");
    assert!(report["lost"].as_u64().unwrap() >= gone + left, "{report:#}");
    let events = report["events"].to_string();
    assert!(
        events.contains(&format!("{gone} finished frames with")) && events.contains("replaced by newer ones"),
        "{events}"
    );
}

#[test]
fn frame_holders_are_shown_while_running() {
    let Some(stage) = Stage::up(true) else { return };
    let name = name();
    let tcp = format!("{OWN}:5001");
    let port = stage.port(Way::Packet, "");
    let own = ["receive", &port, "--tcp", &tcp, "--share", &name, "--interval", "0.1", "-T", "1.5", "-Z", "root"];
    let receiver = start(&own);
    wait_until_shared(&name);
    let reader = start(&["frames", &name, "-T", "0.7", "-q"]);
    let pid = reader.pid();
    reader.end().good();
    let errors = receiver.end().good().errors;
    assert!(errors.contains("no reader (start linerate frames NAME)"), "{errors}");
    assert!(errors.contains(&format!("frames: 0 held by the reader (pid {pid}), 0 waiting")), "{errors}");
}

/// The C, Python and Rust code of the guide equals the example files, and the readers take every byte sent.
#[test]
fn readers_of_the_guide_take_the_same_bytes() {
    let page = std::fs::read_to_string(root().join("docs/guide/receive.md")).expect("the guide");
    let read = |path: &str| std::fs::read_to_string(root().join(path)).expect(path);
    let blocks = |kind: &str| -> Vec<String> {
        let parts = page.split("\n```").filter_map(|part| part.strip_prefix(kind)?.strip_prefix('\n'));
        parts.map(|text| format!("{text}\n")).collect()
    };
    assert_eq!(blocks("c"), [read("examples/c/frames_sum.c")]);
    assert!(read("crates/linerate/examples/frames.rs").contains(blocks("rust")[0].trim_end()));
    let Some(stage) = Stage::up(true).filter(|_| has_tools(&["cc", "python3", "bash"])) else { return };
    let scratch = Scratch::new();
    let (file, program) = (scratch.file("data"), scratch.file("frames_sum"));
    let data: Vec<u8> = (0..5_000_017_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 9) as u8).collect();
    std::fs::write(&file, &data).expect("a file");
    let (source, include) = (root().join("examples/c/frames_sum.c"), root().join("c"));
    let flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O2", "-o", &program, "-I"];
    let compiled = Command::new("cc").args(flags).args([include, source]).output().expect("cc");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let sum: u64 = data.iter().map(|byte| u64::from(*byte)).sum();
    let by_c = format!("5 frames, {} bytes, 0 missing, sum {sum}\n", data.len());
    for (is_c, wanted) in [(true, by_c.as_str()), (false, "0 4194304 805713 missing []")] {
        let name = name();
        let receiver = share(&stage, &name, &["--streams", "1"]);
        wait_until_shared(&name);
        let reader = match is_c {
            true => Command::new("timeout")
                .args(["-s", "KILL", "60", &program, &name])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("the compiled reader"),
            false => python(&blocks("python")[0].replace("\"telescope\"", &format!("{name:?}")), &[]),
        };
        let shell = format!("exec 3<>/dev/tcp/{OWN}/5001; cat {file} >&3; exec 3>&-");
        let client = stage.command("client", "bash", &["-c", &shell]).output().expect("bash");
        assert!(client.status.success(), "{}", String::from_utf8_lossy(&client.stderr));
        let said = ended(reader).good().output;
        assert!(said.contains(wanted), "{wanted}: {said}");
        sound(receiver.end());
    }
}

fn wait_until_shared(name: &str) {
    let sockets = || std::fs::read_to_string("/proc/net/unix").expect("sockets");
    wait_until("frames are shared", || sockets().contains(&format!("@linerate/{name}")));
}
