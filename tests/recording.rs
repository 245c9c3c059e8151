//! Recordings as their user runs them: files one after the other, killed, filled up, beside all else that a capture does.
//!
//! `LINERATE_KILLS=500 cargo test --workspace --test online recording::killed` kills so many; 28 otherwise.

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

/// What files are written as.
const ENDINGS: [&str; 4] = ["pcap", "pcapng", "pcapng.zst", "pcap.gz"];

/// The files of a recording, in the order of their names.
fn recorded(folder: &str) -> Vec<PathBuf> {
    files(Path::new(folder))
}

/// The frames of files that are whole, one after the other, by our reader.
fn frames_of(scratch: &Scratch, paths: &[PathBuf]) -> Vec<Record> {
    let plain = scratch.file("plain.pcap");
    let frames = paths.iter().flat_map(|path| {
        let json = run(&["capture", "-r", path.to_str().unwrap(), "-w", &plain, "--json"]).good().json();
        assert_eq!(json["failure"], serde_json::Value::Null, "{}", path.display());
        records::read(&plain)
    });
    frames.collect()
}

/// As many frames as others see in files that are whole: capinfos in all of them, tshark in the last.
fn count_by_others(paths: &[PathBuf]) -> Option<usize> {
    if paths.is_empty() || !has_tools(&["tshark", "capinfos"]) {
        return None;
    }
    let names: Vec<&str> = paths.iter().map(|path| path.to_str().unwrap()).collect();
    let told = tool("capinfos", &[&["-Mrc", "-T"][..], &names].concat());
    let count = |line: &str| line.rsplit('\t').next().unwrap().trim().parse().expect("a number");
    let counts: Vec<usize> = told.lines().filter(|line| line.contains('\t')).map(count).collect();
    assert_eq!(counts.len(), paths.len(), "{told}");
    assert_eq!(seen_by_tshark(paths.last()?), *counts.last()?, "{paths:?}");
    Some(counts.iter().sum())
}

/// Frames before the end, or before it is cut.
fn seen_by_tshark(path: &Path) -> usize {
    let output = Command::new("tshark").args(["-n", "-T", "fields", "-e", "frame.number", "-r"]).arg(path).output();
    String::from_utf8_lossy(&output.expect("tshark").stdout).lines().count()
}

/// Many UDP packets of several sizes, 10 ms apart, which compress badly.
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
fn files_one_after_the_other_hold_every_frame_and_open_elsewhere() {
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
            assert!(notes.contains(&format!("files written {}, removed 0", paths.len())), "{notes}");
            assert!(json["balanced"] == true && json["frames"] == 1200, "{json}");
            records::assert_same_frames(&format!("{words:?}"), &frames_of(&scratch, &paths), &sent);
            let counted = count_by_others(&paths);
            assert!(counted.is_none_or(|counted| counted == 1200), "{words:?} {counted:?}");
        }
    }
}

#[test]
fn the_last_files_are_kept_and_tcpdump_reads_them() {
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

/// An index goes with its file.
#[test]
fn the_last_files_are_kept_with_their_indexes() {
    let (scratch, sent) = (Scratch::new(), many(2000));
    let (input, folder) = (scratch.file("in.pcap"), scratch.file("kept/"));
    records::write(&input, &sent);
    let options = ["--format", "pcap", "-C", "200KiB", "--keep-files", "2", "--index"];
    run(&[&["capture", "-r", &input, "-w", &folder][..], &options].concat()).good();
    let (indexes, paths): (Vec<PathBuf>, Vec<PathBuf>) =
        recorded(&folder).into_iter().partition(|path| path.extension().unwrap() == "idx");
    let names = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    let beside: Vec<String> = names(&paths).iter().map(|path| format!("{path}.idx")).collect();
    assert_eq!((paths.len(), names(&indexes)), (2, beside));
    let got = frames_of(&scratch, &paths);
    records::assert_same_frames("the last", &got, &sent[2000 - got.len()..]);
    let found = run(&["find", &folder, "--count"]).good().output;
    assert_eq!(found.split_whitespace().next().unwrap().replace(',', ""), got.len().to_string(), "{found}");
}

/// Where an index cannot be begun, here since its name would be too long, the files are complete without, and that is said once.
#[test]
fn a_recording_goes_on_without_an_index_that_cannot_be_begun() {
    let (scratch, sent) = (Scratch::new(), many(1200));
    let (input, folder) = (scratch.file("in.pcap"), scratch.file("kept"));
    records::write(&input, &sent);
    std::fs::create_dir(&folder).unwrap();
    // NAME.part is 253 bytes long, NAME.part.idx would be 257.
    let out = format!("{folder}/{}-%s.pcap", "x".repeat(232));
    let json = run(&["capture", "-r", &input, "-w", &out, "-G", "3", "--index", "--json"]).good().json();
    let paths = recorded(&folder);
    assert!(paths.len() > 2 && paths.iter().all(|path| path.extension().unwrap() == "pcap"), "{paths:?}");
    records::assert_same_frames("without", &frames_of(&scratch, &paths), &sent);
    assert!(json["balanced"] == true && json["frames"] == 1200 && json["lost"] == 0, "{json}");
    let said = format!("{} files are complete without their index, last error: ", paths.len());
    let events: Vec<String> = json["events"].as_array().unwrap().iter().map(ToString::to_string).collect();
    let told: Vec<&String> = events.iter().filter(|event| event.contains(&said)).collect();
    assert!(told.len() == 1 && told[0].contains(".pcap.idx: ") && told[0].contains("--make-index"), "{events:?}");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let scratch = Scratch::new();
    let input = scratch.file("in.pcap");
    records::write(&input, &many(3));
    let out = scratch.file("x.pcap");
    for (options, wanted) in [
        (&["-w", &out, "-W", "3"][..], "--keep-files needs -C, -G or -w DIR/"),
        (&["-w", &out, "--on-full", "go-on"], "--on-full needs -C, -G"),
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

/// Everything at once: a ring, flows, -c, compression, and SIGHUP in between.
#[test]
fn a_recording_goes_along_with_all_else() {
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
    wait_until("files are there", || recorded(&folder).len() > 2);
    // Frames may still be on their way when it comes: then it comes again.
    let heard = running.hear();
    let told = "packets in complete files";
    wait_until("the last is complete", || {
        running.signal(Signal::HUP);
        std::thread::sleep(Duration::from_millis(100));
        let is_open = recorded(&folder).iter().any(|path| path.extension().unwrap() == "part");
        !is_open && heard.lock().unwrap().contains(told)
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
            let told = tool("capinfos", &["-M", path.to_str().unwrap()]);
            assert!(told.contains("all of it") && told.contains("Number of interfaces in file: 1"), "{told}");
        });
    }
}

/// How recordings are written that are killed, each in turn with each ending.
const FORMS: [&[&str]; 7] = [
    &["-C", "60KiB"],
    &["-G", "5", "--direct"],
    &["-C", "200KiB", "--index"],
    &["-G", "3", "-W", "3", "--index"],
    &["-C", "100KiB", "--direct", "--index", "--sync", "file"],
    &["-C", "150KiB", "--keep-size", "500KiB"],
    &["-C", "100KiB", "--index", "--compress-threads", "3"],
];

/// Whenever it is killed, all files open to their ends, hold what came without a gap, and are searched as they are.
#[test]
fn a_recorder_that_was_killed_leaves_files_that_open() {
    let kills: usize = std::env::var("LINERATE_KILLS").map_or(28, |kills| kills.parse().unwrap());
    let sent = many(8000);
    for kill in 0..kills {
        let (ending, form) = (ENDINGS[kill % ENDINGS.len()], FORMS[kill % FORMS.len()]);
        // One thread alone can write what is not zstd.
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
        // Of several zstd frames Wireshark 4.0 reads the first 128 KiB.
        let is_for_others = !(ending.ends_with("zst") && form.contains(&"--index"));
        let got = left_by(&scratch, &paths, is_for_others, &context);
        let first = got.first().and_then(|first| sent.iter().position(|one| one.time == first.time)).unwrap_or(0);
        assert!(first == 0 || form.iter().any(|word| ["-W", "--keep-size"].contains(word)), "{context}: from {first}");
        records::assert_same_frames(&context, &got, &sent[first..first + got.len()]);
        let wanted = got.iter().filter(|one| one.bytes[29] == 4).count();
        let found = run(&["find", &folder, "--count", "src host 10.0.0.4"]);
        assert_eq!(found.output.trim().replace(',', ""), wanted.to_string(), "{context}: {}", found.errors);
    }
}

/// Records frames until it is killed, from the first file on, at moments that differ.
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
        wait_until("a file is there", || !recorded(folder).is_empty());
        std::thread::sleep(Duration::from_micros(kill as u64 * 7919 % 90_000));
        running.signal(Signal::KILL);
        running.end();
    });
}

/// The frames of files that a killed run has left, all of which can be read; those that have their names are whole.
fn left_by(scratch: &Scratch, paths: &[PathBuf], is_for_others: bool, context: &str) -> Vec<Record> {
    let is_part = |path: &Path| path.extension().unwrap() == "part";
    let complete: Vec<PathBuf> = paths.iter().filter(|path| !is_part(path)).cloned().collect();
    assert!(paths.len() - complete.len() <= 1, "{context}: {paths:?}");
    let (mut got, mut whole) = (Vec::new(), 0);
    for path in paths {
        let plain = scratch.file("plain.pcap");
        // One that was just begun has nothing in it yet.
        if std::fs::metadata(path).unwrap().len() == 0 {
            continue;
        }
        let _ = std::fs::remove_file(&plain);
        // A reader goes by what is in it, and says where it is cut.
        let ended = run(&["capture", "-q", "-r", path.to_str().unwrap(), "-w", &plain]);
        assert!(is_part(path) || ended.status == 0, "{context}: {} {}", path.display(), ended.errors);
        let frames = records::read(&plain);
        if is_part(path) && is_for_others && has_tools(&["tshark"]) {
            assert_eq!(seen_by_tshark(path), frames.len(), "{context}: {}", path.display());
        }
        whole += if is_part(path) { 0 } else { frames.len() };
        got.extend(frames);
    }
    let counted = if is_for_others { count_by_others(&complete) } else { None };
    assert!(counted.is_none_or(|count| count == whole), "{context}: {complete:?}");
    got
}

/// Opening and closing is the work of the thread that writes.
#[test]
fn rotation_does_not_hold_a_capture_up() {
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
