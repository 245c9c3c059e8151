//! Failures in the middle of a run leave complete frames and a clear message.

use linerate_tests::support::program::{Ended, launch, linerate, program, run};
use linerate_tests::support::records::{self, Record, assert_same_frames};
use linerate_tests::support::{Scratch, frames, has_tools, is_root, skip, tool};
use std::io::Read;
use std::process::{Command, Stdio};

/// About 2 MB of frames.
fn long(scratch: &Scratch) -> (String, Vec<Record>) {
    let (file, sample) = (scratch.file("long.pcap"), frames::sample());
    let all: Vec<Record> = sample.iter().cycle().take(30 * sample.len()).cloned().collect();
    records::write(&file, &all);
    (file, all)
}

#[test]
fn truncated_file_gives_its_complete_frames() {
    let scratch = Scratch::new();
    let (file, all) = long(&scratch);
    let whole = std::fs::read(&file).unwrap();
    let (cut, output) = (scratch.file("cut.pcap"), scratch.file("out.pcap"));
    for at in [whole.len() - 1, whole.len() / 2, 24 + 16 + 5, 24 + 7] {
        std::fs::write(&cut, &whole[..at]).unwrap();
        let _ = std::fs::remove_file(&output);
        run(&["capture", "-r", &cut, "-w", &output]).with_status(1).says("cut off").says(&cut);
        let complete = records::read(&cut);
        assert_same_frames(&format!("cut at {at}"), &records::read(&output), &complete);
        assert!(complete.len() < all.len());
    }
}

#[test]
fn full_disk_ends_the_capture_with_complete_frames() {
    if !is_root() {
        return skip("mounting a small file system needs root");
    }
    let scratch = Scratch::new();
    let (file, all) = long(&scratch);
    for format in ["pcap", "pcapng"] {
        let (tiny, rescued) = (scratch.file("tiny"), scratch.file("rescued"));
        std::fs::create_dir_all(&tiny).unwrap();
        let script = "mount -t tmpfs -o size=1m none \"$2\" || exit 99
            \"$0\" capture -r \"$1\" -w \"$2/out\" --format \"$3\" --json; status=$?
            cp \"$2/out\" \"$4\"; exit $status";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).arg(program()).args([&file, &tiny, format, &rescued]);
        let ended =
            Ended::of(command.output().unwrap()).with_status(1).says("No space left on device").says("make room");
        let json = ended.json();
        assert_eq!(json["balanced"], true, "{json}");
        let accounts = json["accounts"].as_array().unwrap();
        let write = accounts.iter().find(|account| account["stage"] == "write").unwrap();
        let written = write["delivered"].as_u64().unwrap() as usize;
        assert!(written > 0 && written < all.len());
        assert_eq!(json["lost"].as_u64(), write["drops"]["write_failed"].as_u64());
        let again = scratch.file("again.pcap");
        run(&["capture", "-r", &rescued, "-w", &again]).good();
        assert_same_frames(format, &records::read(&again), &all[..written]);
        if has_tools(&["tcpdump"]) {
            assert_eq!(tool("tcpdump", &["--count", "-nr", &rescued]).trim(), format!("{written} packets"));
        }
    }
}

#[test]
fn file_given_as_a_folder_is_reported_once() {
    let scratch = Scratch::new();
    let (input, _) = long(&scratch);
    let file = scratch.file("file");
    std::fs::write(&file, "mine").unwrap();
    let ended = run(&["streams", "-r", &input, "-w", &file]).with_status(1).says("use a new or empty folder");
    assert_eq!(ended.errors.matches("Not a directory").count(), 1, "{}", ended.errors);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
}

#[test]
fn full_device_is_an_error_even_without_packets() {
    let scratch = Scratch::new();
    let (file, _) = long(&scratch);
    run(&["capture", "-r", &file, "-w", "/dev/full"]).with_status(1).says("/dev/full").says("No space left");
    run(&["capture", "-r", &file, "-w", "/dev/full", "vlan 4000"]).with_status(1).says("/dev/full");
    run(&["generate", "--to", "pcap:/dev/full", "--udp", "--rate", "max"]).with_status(1).says("/dev/full");
}

/// The runtime opens /dev/null in place of a closed standard output.
#[test]
fn closed_standard_output_is_an_error() {
    let scratch = Scratch::new();
    let (file, _) = long(&scratch);
    for (arguments, closed) in [
        (&["count", "--json", "-r", &file][..], ">&-"),
        (&["count", "-r", &file], "1</dev/null"),
        (&["capture", "-q", "-r", &file, "-w", "-"], ">&-"),
        (&["flows", "-q", "-r", &file, "-w", "-"], ">&-"),
        (&["streams", "-q", "-r", &file, "--follow", "0"], ">&-"),
        (&["--help"], ">&-"),
    ] {
        let script = format!("exec \"$0\" \"$@\" {closed}");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).arg(program()).args(arguments);
        Ended::of(command.output().unwrap()).with_status(1).says("standard output");
    }
    // This run does not use standard output.
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$0\" \"$@\" >&-"]).arg(program()).args([
        "capture",
        "-q",
        "-r",
        &file,
        "-w",
        "/dev/null",
    ]);
    Ended::of(command.output().unwrap()).good();
}

/// Lines written to the pipe are counted, also those of a partly written block.
#[test]
fn lines_read_from_the_pipe_are_counted() {
    let scratch = Scratch::new();
    let (file, _) = long(&scratch);
    let mut command = linerate(&["capture", "-r", &file, "--print", "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut start = [0; 100];
    child.stdout.take().unwrap().read_exact(&mut start).unwrap();
    let ended = Ended::of(child.wait_with_output().unwrap());
    assert!(!ended.errors.contains("\"printed\": 0,"), "{}", ended.errors);
}

#[test]
fn closed_pipe_ends_the_capture() {
    let scratch = Scratch::new();
    let (file, _) = long(&scratch);
    let mut child =
        linerate(&["capture", "-r", &file, "-w", "-"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut start = [0; 1000];
    child.stdout.take().unwrap().read_exact(&mut start).unwrap();
    Ended::of(child.wait_with_output().unwrap()).good();
    assert!(!records::parse(&start).is_empty());
}

#[test]
fn capture_of_an_empty_pipe_can_be_stopped() {
    let scratch = Scratch::new();
    let fifo = scratch.file("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let output = scratch.file("out.pcap");
    let capture = launch(&["capture", "-r", &fifo, "-w", &output]);
    let writer = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    capture.wait_until_open();
    capture.interrupt().good();
    drop(writer);
    assert!(records::read(&output).is_empty());

    let limited = launch(&["capture", "-r", &fifo, "-w", &output, "--duration", "0.2"]);
    let _writer = std::fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    limited.end().good();
}
