//! Recordings as users run them: rotation, SIGKILL, full disks, and all other outputs of a capture at the same time.
//!
//! `LINERATE_KILLS=500 cargo test --workspace --test online recording::killed` kills 500 recorders instead of 28.

mod disk;
mod trigger;

use linerate_tests::support::program::{linerate, run, spawn};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::wire::Wire;
use linerate_tests::support::{Scratch, files, has_tools, judge, may_make_labs, tool, wait_until};
use rustix::process::Signal;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// File name endings of the formats written.
const ENDINGS: [&str; 4] = ["pcap", "pcapng", "pcapng.zst", "pcap.gz"];

/// Files of a recording, sorted by name.
fn recorded(folder: &str) -> Vec<PathBuf> {
    files(Path::new(folder))
}

/// Frames of complete files in file order, read by linerate.
fn frames_of(scratch: &Scratch, paths: &[PathBuf]) -> Vec<Record> {
    let plain = scratch.file("plain.pcap");
    let frames = paths.iter().flat_map(|path| {
        let json = run(&["capture", "-r", path.to_str().unwrap(), "-w", &plain, "--json"]).good().json();
        assert_eq!(json["failure"], serde_json::Value::Null, "{}", path.display());
        records::read(&plain)
    });
    frames.collect()
}

/// Number of frames that capinfos counts in complete files; tshark checks the last file.
fn count_by_wireshark(paths: &[PathBuf]) -> Option<usize> {
    if paths.is_empty() || !has_tools(&["tshark", "capinfos"]) {
        return None;
    }
    let names: Vec<&str> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    let report = tool("capinfos", &[&["-Mrc", "-T"][..], &names].concat());
    let count = |line: &str| line.rsplit('\t').next().unwrap().trim().parse().expect("a number");
    let counts: Vec<usize> = report.lines().filter(|line| line.contains('\t')).map(count).collect();
    assert_eq!(counts.len(), paths.len(), "{report}");
    assert_eq!(count_by_tshark(paths.last()?), *counts.last()?, "{paths:?}");
    Some(counts.iter().sum())
}

/// Number of frames that tshark reads up to the end of the file or its truncation.
fn count_by_tshark(path: &Path) -> usize {
    let output = Command::new("tshark").args(["-n", "-T", "fields", "-e", "frame.number", "-r"]).arg(path).output();
    String::from_utf8_lossy(&output.expect("tshark").stdout).lines().count()
}

/// UDP packets of several sizes, 10 ms apart, with payloads that compress badly.
fn many(count: u32) -> Vec<Record> {
    let mut noise = 7u32;
    let frame = |number: u32| {
        let payload = 10 + number as usize * 37 % 900;
        let length = (28 + payload) as u16;
        let mut bytes = vec![2, 0, 0, 0, 0, 0x0b, 2, 0, 0, 0, 0, 0x0a, 8, 0, 0x45, 0];
        bytes.extend(length.to_be_bytes());
        bytes.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, number as u8 % 9, 10, 0, 0, 53, 0x80, 0, 0x27, 0x0f]);
        bytes.extend((length - 20).to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend((0..payload).map(|_| {
            noise = noise.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (noise >> 24) as u8
        }));
        let time = 1_700_000_000_000_000_000 + u64::from(number) * 10_000_000;
        Record { time, wire: bytes.len() as u32, bytes }
    };
    (0..count).map(frame).collect()
}

#[test]
fn rotated_files_hold_every_frame_and_open_in_wireshark() {
    let (scratch, sent) = (Scratch::new(), many(1200));
    let input = scratch.file("in.pcap");
    records::write(&input, &sent);
    for (number, options) in
        [&["-C", "130KiB"][..], &["-G", "3"], &["-C", "200KiB", "--rotate", "5"]].iter().enumerate()
    {
        for ending in ENDINGS {
            let folder = scratch.file(&format!("{number}-{ending}"));
            std::fs::create_dir(&folder).unwrap();
            let out = format!("{folder}/x-%s.{ending}");
            let words = [&["capture", "-r", &input, "-w", &out, "--json"][..], options].concat();
            let json = run(&words).good().json();
            let paths = recorded(&folder);
            assert!(paths.len() > 2 && paths.iter().all(|path| path.to_str().unwrap().ends_with(ending)), "{paths:?}");
            let notes = json["events"].to_string();
            assert!(notes.contains(&format!("{} files written, 0 deleted", paths.len())), "{notes}");
            assert!(json["balanced"] == true && json["frames"] == 1200, "{json}");
            records::assert_same_frames(&format!("{words:?}"), &frames_of(&scratch, &paths), &sent);
            let counted = count_by_wireshark(&paths);
            assert!(counted.is_none_or(|counted| counted == 1200), "{words:?} {counted:?}");
        }
    }
}

#[test]
fn newest_files_are_kept_and_tcpdump_reads_them() {
    let (scratch, sent) = (Scratch::new(), many(3000));
    let input = scratch.file("in.pcap");
    records::write(&input, &sent);
    let keep: [(&[&str], usize); 3] = [(&["-W", "3"], 3), (&["--keep-files", "1"], 1), (&["--keep-size", "400KiB"], 4)];
    for (number, (options, wanted)) in keep.iter().enumerate() {
        let folder = scratch.file(&format!("kept{number}/"));
        let words = ["capture", "-r", &input, "-w", &folder, "--format", "pcap", "-C", "100KiB", "-v"];
        let ended = run(&[&words[..], options].concat()).good();
        let paths = recorded(&folder);
        assert!(paths.len() == *wanted || paths.len() + 1 == *wanted, "{options:?} {paths:?}\n{}", ended.output);
        let got = frames_of(&scratch, &paths);
        records::assert_same_frames(&format!("{options:?}"), &got, &sent[sent.len() - got.len()..]);
        ended.shows("files_removed");
        if has_tools(&["tcpdump"]) {
            let lines = |path: &PathBuf| tool("tcpdump", &["-n", "-r", path.to_str().unwrap()]).lines().count();
            assert_eq!(paths.iter().map(lines).sum::<usize>(), got.len());
        }
    }
}

/// Without -C too, no file exceeds the limit of all.
#[test]
fn size_limit_holds_without_rotation() {
    let (scratch, sent) = (Scratch::new(), many(3000));
    let (input, folder) = (scratch.file("in.pcap"), scratch.file("kept/"));
    records::write(&input, &sent);
    run(&["capture", "-q", "-r", &input, "-w", &folder, "--format", "pcap", "--keep-size", "400KiB"]).good();
    let paths = recorded(&folder);
    let bytes: u64 = paths.iter().map(|path| path.metadata().unwrap().len()).sum();
    assert!(paths.len() > 4 && (200 << 10..=400 << 10).contains(&bytes), "{bytes} {paths:?}");
    let got = frames_of(&scratch, &paths);
    records::assert_same_frames("the newest", &got, &sent[sent.len() - got.len()..]);
}

/// Headers state the length to which packets are truncated.
#[test]
fn files_state_their_snap_length() {
    let (scratch, sent) = (Scratch::new(), many(100));
    let input = scratch.file("in.pcap");
    records::write(&input, &sent);
    for (name, at) in [("a.pcap", 16), ("b-%s.pcap", 16), ("c.pcapng", 0), ("d-%s.pcapng", 0)] {
        let rotation: &[&str] = if name.contains('%') { &["-C", "1MiB"] } else { &[] };
        run(&[&["capture", "-q", "-r", &input, "-w", &scratch.file(name), "-s", "90"], rotation].concat()).good();
        let start = name.get(..1).unwrap();
        let written = scratch.names().into_iter().find(|written| written.starts_with(start)).unwrap();
        let bytes = std::fs::read(scratch.file(&written)).unwrap();
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        // In pcapng the interface follows the section header.
        let at = if at == 0 { word(4) as usize + 12 } else { at };
        assert_eq!(word(at), 90, "{written}");
    }
}

/// A name that only hides the file is one.
#[test]
fn hidden_files_are_recorded() {
    let scratch = Scratch::new();
    let input = scratch.file("in.pcap");
    records::write(&input, &many(3));
    run(&["capture", "-q", "-r", &input, "-w", &scratch.file(".hidden.pcap"), "-C", "1MiB"]).good();
    assert!(scratch.names().iter().any(|name| name.starts_with(".hidden")), "{:?}", scratch.names());
}

/// An index is deleted together with its file.
#[test]
fn newest_files_are_kept_with_their_indexes() {
    let (scratch, sent) = (Scratch::new(), many(2000));
    let (input, folder) = (scratch.file("in.pcap"), scratch.file("kept/"));
    records::write(&input, &sent);
    let options = ["--format", "pcap", "-C", "200KiB", "--keep-files", "2", "--index"];
    run(&[&["capture", "-r", &input, "-w", &folder][..], &options].concat()).good();
    let (indexes, paths): (Vec<PathBuf>, Vec<PathBuf>) =
        recorded(&folder).into_iter().partition(|path| path.extension().unwrap() == "idx");
    let names = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    let expected: Vec<String> = names(&paths).iter().map(|path| format!("{path}.idx")).collect();
    assert_eq!((paths.len(), names(&indexes)), (2, expected));
    let got = frames_of(&scratch, &paths);
    records::assert_same_frames("the last", &got, &sent[2000 - got.len()..]);
    let found = run(&["find", &folder, "--count"]).good().output;
    assert_eq!(found.split_whitespace().next().unwrap().replace(',', ""), got.len().to_string(), "{found}");
}

/// If no index can be created, here since its name is too long, the files are complete. The failure is reported once.
#[test]
fn recording_continues_without_an_index() {
    let (scratch, sent) = (Scratch::new(), many(1200));
    let (input, folder) = (scratch.file("in.pcap"), scratch.file("kept"));
    records::write(&input, &sent);
    std::fs::create_dir(&folder).unwrap();
    // NAME.part is 253 bytes long, NAME.part.idx would be 257.
    let out = format!("{folder}/{}-%s.pcap", "x".repeat(232));
    let json = run(&["capture", "-r", &input, "-w", &out, "-G", "3", "--index", "--json"]).good().json();
    let paths = recorded(&folder);
    assert!(paths.len() > 2 && paths.iter().all(|path| path.extension().unwrap() == "pcap"), "{paths:?}");
    records::assert_same_frames("without an index", &frames_of(&scratch, &paths), &sent);
    assert!(json["balanced"] == true && json["frames"] == 1200 && json["lost"] == 0, "{json}");
    let text = format!("{} files are complete without their index, last error: ", paths.len());
    let events: Vec<String> = json["events"].as_array().unwrap().iter().map(ToString::to_string).collect();
    let notes: Vec<&String> = events.iter().filter(|event| event.contains(&text)).collect();
    assert!(notes.len() == 1 && notes[0].contains(".pcap.idx: ") && notes[0].contains("--make-index"), "{events:?}");
}

#[test]
fn invalid_option_combinations_are_rejected() {
    let scratch = Scratch::new();
    let input = scratch.file("in.pcap");
    records::write(&input, &many(3));
    let out = scratch.file("x.pcap");
    for (options, wanted) in [
        (&["-w", &out, "-W", "3"][..], "--keep-files needs -C, -G or -w DIR/"),
        (&["-w", &scratch.file("kept/"), "-W", "3"], "--keep-files needs -C, -G or --keep-size"),
        (&["-w", &scratch.file(".zst"), "-C", "1MiB"], "no file name; name files by time, as in "),
        (&["-w", &out, "--on-full", "continue"], "--on-full needs -C, -G"),
        (&["-w", "-", "-C", "1MiB"], "-C and -G need -w FILE or -w DIR/"),
        (&["-w", "/dev/null", "-C", "1MiB"], "/dev/null: not a regular file"),
        (&["-w", &out, "-C", "1MiB", "--keep-size", "9"], "missing unit; write 9MiB"),
        (&["-w", &out, "-C", "5B"], "too small; at least 1KiB"),
        (&["-w", &out, "-C", "2MiB", "--keep-size", "3MiB"], "at least twice --rotate-size"),
        (&["-w", &out, "-G", "0"], "more than 0 seconds"),
        (&["-w", &scratch.file("%Q.pcap"), "-G", "5"], "supported are %Y"),
        (&["-w", &out, "-C", "1MiB", "--after", "3"], "--after needs --before"),
        (&["-w", &out, "-C", "1MiB", "--before-memory", "3MiB"], "--before-memory needs --before"),
        (&["-C", "1MiB"], "--rotate-size needs --write"),
        (&["-G", "5"], "--rotate needs --write or --flows"),
    ] {
        let ended = run(&[&["capture", "-r", &input][..], options].concat());
        assert!(ended.status != 0 && ended.errors.contains(wanted), "{options:?}: {} {}", ended.status, ended.errors);
        assert_eq!(scratch.names(), ["in.pcap"], "{options:?}");
    }
}

/// Combines a shared ring, flows, -c, compression and a SIGHUP in one run.
#[test]
fn recording_combines_with_all_other_outputs() {
    let scratch = Scratch::new();
    let (folder, flows) = (scratch.file("kept/"), scratch.file("flows/"));
    let mut command = linerate(&[
        "capture",
        "-r",
        "-",
        "-w",
        &format!("{folder}x-%s.pcapng.zst"),
        "-C",
        "70KiB",
        "-G",
        "1000",
        "--flows",
        &flows,
        "--share",
        &scratch.file("ring"),
        "--share-memory",
        "8MiB",
        "-c",
        "4000",
        "--json",
        "--comment",
        "all of it",
    ]);
    std::fs::create_dir(&folder).unwrap();
    let mut running = spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut to = running.take_input().unwrap();
    running.wait_until_open();
    let sent = many(4000);
    to.write_all(&records::header()).unwrap();
    to.write_all(&records::body(&sent[..2000])).unwrap();
    to.flush().unwrap();
    wait_until("files exist", || recorded(&folder).len() > 2);
    // Packets may still be in flight when the signal arrives, so it is sent again.
    let log = running.collect_errors();
    let note = "packets in complete files";
    wait_until("the last file is complete", || {
        running.signal(Signal::HUP);
        std::thread::sleep(Duration::from_millis(100));
        let is_open = recorded(&folder).iter().any(|path| path.extension().unwrap() == "part");
        !is_open && log.lock().unwrap().contains(note)
    });
    let before = recorded(&folder).len();
    let rest = records::body(&sent[2000..]);
    let writer = std::thread::spawn(move || to.write_all(&rest));
    let ended = running.end().good();
    writer.join().unwrap().unwrap();
    let (json, paths) = (ended.json(), recorded(&folder));
    assert!(paths.len() > before + 2, "{paths:?}");
    assert!(json["frames"] == 4000 && json["balanced"] == true && json["flows"]["records"] != 0, "{json}");
    records::assert_same_frames("all", &frames_of(&scratch, &paths), &sent);
    assert!(!recorded(&flows).is_empty());
    if has_tools(&["capinfos"]) {
        paths.iter().for_each(|path| {
            let report = tool("capinfos", &["-M", path.to_str().unwrap()]);
            assert!(report.contains("all of it") && report.contains("Number of interfaces in file: 1"), "{report}");
        });
    }
}

/// Options of the recordings that are killed; each is combined with each ending.
const FORMS: [&[&str]; 7] = [
    &["-C", "60KiB"],
    &["-G", "5", "--direct"],
    &["-C", "200KiB", "--index"],
    &["-G", "3", "-W", "3", "--index"],
    &["-C", "100KiB", "--direct", "--index", "--sync", "file"],
    &["-C", "150KiB", "--keep-size", "500KiB"],
    &["-C", "100KiB", "--index", "--compress-threads", "3"],
];

/// Whenever the recorder is killed, all files can be read to their end, have no gap, and can be searched.
#[test]
fn killed_recorder_leaves_readable_files() {
    let kills: usize = std::env::var("LINERATE_KILLS").map_or(28, |kills| kills.parse().unwrap());
    let sent = many(8000);
    for kill in 0..kills {
        let (ending, form) = (ENDINGS[kill % ENDINGS.len()], FORMS[kill % FORMS.len()]);
        // Only zstd has several compression threads.
        let form = if ending.ends_with("zst") {
            form
        } else {
            form.split(|word| *word == "--compress-threads").next().unwrap()
        };
        let (scratch, context) = (Scratch::new(), format!("kill {kill}: {ending} {form:?}"));
        let folder = scratch.file("kept");
        std::fs::create_dir(&folder).unwrap();
        kill_recorder(&[&["-w", &format!("{folder}/x-%s.{ending}")], form].concat(), &folder, &sent, kill);
        let paths: Vec<PathBuf> =
            recorded(&folder).into_iter().filter(|path| path.extension().unwrap() != "idx").collect();
        // Wireshark 4.0 reads only the first 128 KiB of several zstd frames.
        let is_read_by_wireshark = !(ending.ends_with("zst") && form.contains(&"--index"));
        let got = recovered_frames(&scratch, &paths, is_read_by_wireshark, &context);
        let first = got.first().and_then(|first| sent.iter().position(|one| one.time == first.time)).unwrap_or(0);
        assert!(first == 0 || form.iter().any(|word| ["-W", "--keep-size"].contains(word)), "{context}: from {first}");
        records::assert_same_frames(&context, &got, &sent[first..first + got.len()]);
        let wanted = got.iter().filter(|one| one.bytes[29] == 4).count();
        let found = run(&["find", &folder, "--count", "src host 10.0.0.4"]);
        assert_eq!(found.output.trim().replace(',', ""), wanted.to_string(), "{context}: {}", found.errors);
    }
}

/// Records frames and kills the recorder after its first file exists, at a delay that depends on `kill`.
fn kill_recorder(options: &[&str], folder: &str, sent: &[Record], kill: usize) {
    let mut command = linerate(&[&["capture", "-r", "-", "-q"][..], options].concat());
    let mut running = spawn(command.stdin(Stdio::piped()));
    let mut to = running.take_input().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = to.write_all(&records::header());
            for frames in sent.chunks(50) {
                if to.write_all(&records::body(frames)).is_err() {
                    return;
                }
                std::thread::sleep(Duration::from_micros(300));
            }
        });
        wait_until("a file exists", || !recorded(folder).is_empty());
        std::thread::sleep(Duration::from_micros(kill as u64 * 7919 % 90_000));
        running.signal(Signal::KILL);
        running.end();
    });
}

/// Frames of the files that a killed run left. All files must be readable, and those without `.part` complete.
fn recovered_frames(scratch: &Scratch, paths: &[PathBuf], is_read_by_wireshark: bool, context: &str) -> Vec<Record> {
    let is_part = |path: &Path| path.extension().unwrap() == "part";
    let complete: Vec<PathBuf> = paths.iter().filter(|path| !is_part(path)).cloned().collect();
    assert!(paths.len() - complete.len() <= 1, "{context}: {paths:?}");
    let (mut got, mut whole) = (Vec::new(), 0);
    for path in paths {
        let plain = scratch.file("plain.pcap");
        // A file that was just created is still empty.
        if std::fs::metadata(path).unwrap().len() == 0 {
            continue;
        }
        let _ = std::fs::remove_file(&plain);
        // The reader detects the format by content and reports a truncation.
        let ended = run(&["capture", "-q", "-r", path.to_str().unwrap(), "-w", &plain]);
        assert!(is_part(path) || ended.status == 0, "{context}: {} {}", path.display(), ended.errors);
        let frames = records::read(&plain);
        if is_part(path) && is_read_by_wireshark && has_tools(&["tshark"]) {
            assert_eq!(count_by_tshark(path), frames.len(), "{context}: {}", path.display());
        }
        whole += if is_part(path) { 0 } else { frames.len() };
        got.extend(frames);
    }
    let counted = if is_read_by_wireshark { count_by_wireshark(&complete) } else { None };
    assert!(counted.is_none_or(|count| count == whole), "{context}: {complete:?}");
    got
}

/// The writer thread opens and closes files.
#[test]
fn rotation_does_not_delay_the_capture() {
    if !may_make_labs() {
        return;
    }
    let (scratch, wire) = (Scratch::new(), Wire::of(&["a:eth0,b:eth0"]));
    let folder = scratch.file("kept/");
    let port = wire.port("b", "eth0", "");
    let running = linerate_tests::support::program::start(&[
        "capture", &port, "-w", &folder, "-C", "256KiB", "-W", "5", "--json", "--user", "root", "udp",
    ]);
    let to = wire.port("a", "eth0", "");
    run(&["generate", "--to", &to, "--udp", "-c", "60000", "--rate", "max", "--size", "128", "-q", "--user", "root"])
        .good();
    std::thread::sleep(Duration::from_millis(500));
    let json = running.interrupt().good().json();
    let (frames, lost) = (json["frames"].as_u64().unwrap(), json["lost"].as_u64().unwrap());
    assert_eq!((frames + lost, json["balanced"].as_bool()), (60_000, Some(true)), "{json}");
    judge(lost == 0, &format!("{lost} of 60,000 frames were lost at full speed, with a new file every 256 KiB"));
    assert_eq!(recorded(&folder).len(), 5);
}
