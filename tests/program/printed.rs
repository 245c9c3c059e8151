//! Output to closed pipes, full disks, and terminals that control characters in names would affect.

use linerate_burst::text::is_unseen;
use linerate_tests::support::program::{Ended, launch, linerate, run};
use linerate_tests::support::{Scratch, frames, records, wait_until};
use std::fs::{File, OpenOptions};
use std::io::PipeWriter;
use std::process::Stdio;

/// The sample as a file.
fn sample(scratch: &Scratch, name: &str) -> String {
    let file = scratch.file(name);
    records::write(&file, &frames::sample());
    file
}

/// Every verb that needs no privileges, with options that print to standard output.
fn printing(file: &str) -> Vec<Vec<String>> {
    let all = [
        "--help",
        "--version",
        "capture --help",
        "ports",
        "ports --json",
        "doctor",
        "doctor lo --json",
        "lab list",
        "lab list --json",
        "count -r FILE",
        "count -r FILE --json",
        "check -r FILE",
        "check -r FILE --json",
        "capture -r FILE --json",
        "capture -r FILE --print",
        "capture -r FILE -e -v -X",
        "capture -r FILE --print --stats --json",
        "capture -r FILE --count",
        "capture --list-ports",
        "capture -r FILE -w -",
        "capture -r FILE -w - --json",
        "flows -r FILE",
        "flows -r FILE --json",
        "flows -r FILE --write -",
        "flows -r FILE --by port",
        "flows -r FILE --by port --csv",
        "generate --to pcap:/dev/null --udp --rate max --json",
        "generate --to pcap:/dev/null --udp --rate max --json --interval 1",
        "replay --to pcap:/dev/null FILE --rate max --json",
        "generate --to pcap:/dev/null --udp --dry-run 1000",
        "generate --to pcap:- --udp",
        "replay --to pcap:- FILE",
        "demo --memory --replay FILE",
        "demo --memory --replay FILE --json",
    ];
    all.iter().map(|line| line.split(' ').map(|word| word.replace("FILE", file)).collect()).collect()
}

/// A pipe without a reader.
fn closed() -> PipeWriter {
    std::io::pipe().unwrap().1
}

fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").unwrap()
}

#[test]
fn closed_pipe_is_not_an_error() {
    let scratch = Scratch::new();
    let file = sample(&scratch, "sample.pcap");
    for arguments in printing(&file) {
        let ended = Ended::of(linerate(&arguments).stdout(closed()).stderr(Stdio::piped()).output().unwrap());
        assert_eq!(ended.status, 0, "{arguments:?}: {}", ended.errors);
        assert!(!ended.errors.contains("panicked") && !ended.errors.contains("roken pipe"), "{}", ended.errors);
    }
    // A lossless run counts undelivered records as lost.
    let lossless = linerate(&["flows", "-r", &file, "-w", "-", "--lossless"]).stdout(closed()).output().unwrap();
    assert_eq!(lossless.status.code(), Some(3), "{}", String::from_utf8_lossy(&lossless.stderr));
}

#[test]
fn full_standard_output_is_an_error() {
    let scratch = Scratch::new();
    for arguments in printing(&sample(&scratch, "sample.pcap")) {
        let ended = Ended::of(linerate(&arguments).stdout(full()).stderr(Stdio::piped()).output().unwrap());
        assert_eq!(ended.status, 1, "{arguments:?}: {}", ended.errors);
        assert!(ended.errors.contains("standard output: "), "{arguments:?}: {}", ended.errors);
        assert!(ended.errors.contains("No space left"), "{arguments:?}: {}", ended.errors);
    }
}

#[test]
fn failing_standard_error_is_ignored() {
    let scratch = Scratch::new();
    let file = sample(&scratch, "sample.pcap");
    let mut all: Vec<(Vec<String>, i32)> = printing(&file).into_iter().map(|arguments| (arguments, 0)).collect();
    let more = [
        ("capture -r FILE", 0),
        ("generate --to pcap:/dev/null --udp --rate max", 0),
        ("capture -r /nowhere/x.pcap", 1),
        ("capture", 2),
        ("fly", 2),
    ];
    let words = |line: &str| line.split(' ').map(|word| word.replace("FILE", &file)).collect();
    all.extend(more.iter().map(|(line, status)| (words(line), *status)));
    for (arguments, status) in all {
        for errors in [Stdio::from(closed()), Stdio::from(full())] {
            let ended = Ended::of(linerate(&arguments).stdout(Stdio::piped()).stderr(errors).output().unwrap());
            assert_eq!(ended.status, status, "{arguments:?}");
        }
    }
}

#[test]
fn control_characters_in_names_are_escaped() {
    let scratch = Scratch::new();
    let evil = sample(&scratch, "e\x1b]0;pwn\x07\x1b[31mv\u{202e}il\u{9b}\x7f\nlinerate: all is lost.pcap");
    let missing = format!("{evil}.missing");
    let (port, jsonl) = (format!("pcap:{evil}.out"), format!("{evil}.jsonl"));
    let cases: [(&[&str], i32); 12] = [
        (&["count", "-r", &evil], 0),
        (&["count", "-r", &evil, "--json"], 0),
        (&["count", "-r", &missing], 1),
        (&["capture", "-r", &evil], 0),
        (&["capture", "-r", &evil, "-w", &evil], 2),
        (&["capture", "-r", &evil, "--json"], 0),
        (&["capture", &evil, "-w", "/dev/null", "--format", "pcap"], 0),
        (&["flows", "-r", &evil, "--write", &jsonl], 0),
        (&["generate", "--to", &port, "--udp", "--rate", "max"], 0),
        (&["replay", "--to", &port, "-r", &evil, "--rate", "max"], 0),
        (&["generate", "--to", &evil, "--udp", "--rate", "max"], 1),
        (&[&evil], 2),
    ];
    for (arguments, status) in cases {
        let ended = Ended::of(linerate(arguments).output().unwrap());
        assert_eq!(ended.status, status, "{arguments:?}: {}", ended.errors);
        for text in [&ended.output, &ended.errors] {
            let found = text.chars().find(|c| *c != '\n' && is_unseen(*c));
            assert_eq!(found, None, "{arguments:?}: {text:?}");
            assert!(!text.contains("\nlinerate: all is lost") || status == 2, "{arguments:?}: {text}");
        }
        if arguments.contains(&"--json") {
            assert_eq!(ended.json()["ports"][0], format!("pcap:{evil}"));
        }
    }
}

/// Progress is measured on the input, not on the output.
#[test]
fn conversion_reports_progress_in_percent() {
    let scratch = Scratch::new();
    let to = format!("pcap:{}", scratch.file("in.pcap"));
    run(&["generate", "-q", "--to", &to, "-k", "ip/udp/payload(random)", "--size", "1500", "-c", "60000"]).good();
    // The file is larger than the blocks of a capture: it cannot be read completely before standard output is read.
    let mut running = launch(&["capture", "-r", &to[5..], "-w", "-", "--interval", "0.01"]);
    let percent = |line: &str| line.split(" %").next()?.rsplit(' ').next()?.parse::<u32>().ok();
    let percents =
        |errors: &str| -> Vec<u32> { errors.lines().filter(|line| line.contains(" %")).filter_map(percent).collect() };
    let (mut output, errors) = (running.take_output().unwrap(), running.collect_errors());
    wait_until("a part of the file is reported", || {
        percents(&errors.lock().unwrap()).iter().any(|percent| (1..100).contains(percent))
    });
    std::io::copy(&mut output, &mut std::io::sink()).unwrap();
    running.end().good();
    let errors = errors.lock().unwrap();
    let percents = percents(&errors);
    assert!(percents.is_sorted() && percents.iter().all(|percent| *percent <= 100), "{errors}");
    assert!(errors.contains(" s left"), "{errors}");
    // The size of a device is unknown.
    let text = run(&["capture", "-r", "/dev/null", "--interval", "0.01"]).errors;
    assert!(!text.contains(" %"), "{text}");
}
