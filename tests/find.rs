//! `linerate find`: selects the same packets as tcpdump; files that grow, disappear, change or are damaged.

use linerate_tests::support::filters::{FILTERS, select};
use linerate_tests::support::program::{launch, linerate, run, start};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::{Scratch, corpus, frames, has_tools, wait_until};
use rustix::fs::{CWD, FileType, mknodat};
use rustix::process::Signal;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Parts of the recording, 1 MiB each, with their own hosts and ports.
const ERAS: u64 = 8;
const SECOND: u64 = 1_000_000_000;

/// A few MiB of frames in time order.
fn recording() -> Vec<Record> {
    let sample = frames::sample();
    let start = sample[0].time;
    let mut all = Vec::new();
    for era in 0..ERAS {
        let begin = start + era * 10 * SECOND;
        for n in 0..1500u64 {
            let mut bytes = [&[2; 12][..], &[8, 0, 0x45, 0, 2, 178, 0, 0, 0, 0, 64, 6, 0, 0]].concat();
            bytes.extend([172, 16, era as u8, (n % 40) as u8, 10, 99, era as u8, 1]);
            bytes.extend((20_000 + era * 1000 + n % 300).to_be_bytes()[6..].iter().chain(&[1, 187]));
            bytes.resize(704, n as u8);
            all.push(Record { time: begin + n * 1_000_000, wire: bytes.len() as u32, bytes });
        }
        if era % 3 == 1 {
            let later = |one: &Record| Record { time: begin + 5 * SECOND + (one.time - start), ..one.clone() };
            all.extend(sample.iter().map(later));
        }
    }
    all
}

/// Writes the recording to a plain file, and with an index to each of `names`.
fn recorded(scratch: &Scratch, names: &[&str]) -> (String, Vec<Record>) {
    let (plain, all) = (scratch.file("plain.pcap"), recording());
    records::write(&plain, &all);
    for name in names {
        run(&["capture", "-q", "-r", &plain, "-w", &scratch.file(name), "--index"]).good();
    }
    (plain, all)
}

/// Returns the packets that `find` writes.
fn found(scratch: &Scratch, words: &[&str]) -> Vec<Record> {
    let output = scratch.file("found.pcap");
    run(&[&["find"], words, &["-w", &output]].concat()).good();
    records::read(&output)
}

#[test]
fn every_format_yields_what_tcpdump_selects() {
    if !has_tools(&["tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let names = ["all.pcapng", "all.pcap", "all.pcapng.zst", "all.pcap.gz", "all.pcapng.lz4", "all.pcap.lz4"];
    let (plain, all) = recorded(&scratch, &names);
    let own = [
        "host 172.16.3.7",
        "host 172.16.3.7 and port 23007",
        "net 172.16.5.0/24 and tcp",
        "portrange 22000-22010",
        "src host 10.0.0.2 or dst port 26001",
        "not net 172.16.0.0/16",
        "host 192.0.2.1",
    ];
    for (number, filter) in own.iter().chain(&FILTERS).enumerate() {
        let expected = select(&plain, filter);
        // Own filters run on every format, the others on one each.
        let some = if number < own.len() { &names[..] } else { &names[number % names.len()..][..1] };
        for name in some {
            let mut result = found(&scratch, &[&scratch.file(name), "-f", filter]);
            assert!(result == expected, "{name}: {filter}: {} of {}", result.len(), expected.len());
            result.sort_by_key(|record| record.time);
            assert!(result == expected, "{name}: {filter}: not in time order");
        }
    }
    assert!(found(&scratch, &[&scratch.file("all.pcapng.zst")]) == all);
}

#[test]
fn only_parts_that_may_match_are_read() {
    let scratch = Scratch::new();
    let names = ["all.pcapng", "all.pcap.zst", "all.pcap.lz4", "all.pcapng.lz4"];
    recorded(&scratch, &names);
    for name in names {
        let report = run(&["find", &scratch.file(name), "--json", "host", "172.16.6.7"]).good().json();
        let number = |field: &str| report[field].as_u64().unwrap();
        assert!(number("parts") >= ERAS && number("parts_read") <= 2, "{report}");
        assert!(number("read_bytes") * 2 < number("file_bytes"), "{report}");
        assert_eq!(number("frames"), 38, "{report}");
        assert_eq!(number("files_without_index"), 0);
    }
    let count = |words: &[&str]| run(&[&["find", &scratch.file("all.pcapng"), "--count"], words].concat()).good();
    assert_eq!(count(&["host", "192.0.2.77"]).output, "0\n");
    assert_eq!(
        count(&["--since", "1700000040", "--until", "2023-11-14T22:14:01Z", "net", "172.16.4.0/24"]).output,
        "1000\n"
    );
    let none = run(&["find", &scratch.file("all.pcapng"), "host", "192.0.2.77"]).good();
    assert!(none.output.is_empty() && none.errors.starts_with("no matching packets in "), "{}", none.errors);
    // Found packets are printed as linerate print does.
    for words in [&["-q", "-t"][..], &["-e", "-X", "-tttt", "-v"], &["--number", "-tt", "--nano"]] {
        let filter = ["host", "172.16.6.7"];
        let found = run(&[&["find", &scratch.file("all.pcap.zst")], words, &filter].concat()).good();
        let printed = run(&[&["print", &scratch.file("all.pcap.zst")], words, &filter].concat()).good();
        assert!(found.output.lines().count() >= 38 && found.output == printed.output, "{}", found.output);
    }
    // A search that ends early reads less than it had to; -r and indexes among the words are accepted.
    let first = run(&["find", &scratch.file("all.pcapng"), "-c", "1", "--json"]).good().json();
    assert!(first["read_bytes"].as_u64().unwrap() * 2 < first["file_bytes"].as_u64().unwrap(), "{first}");
    assert_eq!(first["run"]["interrupted"], false, "{first}");
    let [file, index] = ["all.pcapng", "all.pcapng.idx"].map(|name| scratch.file(name));
    let by_option = run(&["find", "-r", &file, "--count", "-q", "host", "172.16.6.7"]).good();
    let by_shell = run(&["find", &file, &index, "--count", "host", "172.16.6.7"]).good();
    assert_eq!((by_option.output.as_str(), by_shell.output.as_str()), ("38\n", "38\n"));
    let both = scratch.file("both.pcap");
    let printed = run(&["find", &scratch.file("all.pcapng"), "-w", &both, "--print", "-c", "3"]).good();
    assert_eq!((printed.output.lines().count(), records::read(&both).len()), (3, 3));
    // A reader of the lines that goes away shortens no file.
    let file = scratch.file("all.pcapng");
    let lines = std::io::pipe().map(|(_, lines)| lines).unwrap();
    let ended = linerate(&["find", &file, "-w", &both, "--print"]).stdout(lines).output().unwrap();
    assert_eq!((ended.status.code(), records::read(&both).len()), (Some(0), recording().len()));
    assert_eq!(run(&["find", &file, "-c", "0", "--count"]).good().output, format!("{}\n", recording().len()));
    run(&["find", &format!("{file}.idx")]).with_status(2).says("an index; name the capture file");
    for (words, problem) in [
        (&["--print", "-w", "-"][..], "both go to standard output"),
        (&["-v", "--count"], "-v needs --print"),
        (&["-X", "--json"], "-X needs --print"),
        (&["--print", "--make-index"], "--print has no effect with --make-index"),
    ] {
        run(&[&["find", &scratch.file("all.pcapng")], words].concat()).with_status(2).says(problem);
    }
    run(&["find", &scratch.file("nowhere"), "tcp"])
        .with_status(1)
        .says("no such file; files and directories come before");
    run(&["find", &scratch.file("all.pcapng"), "--since", "yesterday"]).with_status(2).says("not a time");
    run(&["find", &scratch.file("all.pcapng"), "hots", "1.2.3.4"]).with_status(2).says("hots");
}

#[test]
fn files_of_a_folder_are_merged_by_time() {
    let scratch = Scratch::new();
    let all = recording();
    fs::create_dir_all(scratch.file("day/hour")).unwrap();
    // Interleaved frames, consecutive files, one without an index, one compressed.
    let (half, rest) = all.split_at(all.len() / 2);
    let part = |of: &[Record], odd: usize| of.iter().skip(odd).step_by(2).cloned().collect::<Vec<_>>();
    let plain = scratch.file("plain");
    for (name, part, index) in [
        ("day/a.pcapng", part(half, 0), true),
        ("day/hour/b.pcap.zst", part(half, 1), true),
        ("day/z.pcap", part(rest, 0), false),
        ("day/hour/c.pcapng", part(rest, 1), true),
    ] {
        records::write(&plain, &part);
        let path = scratch.file(name);
        let words = ["capture", "-q", "-r", &plain, "-w", &path, "--index"];
        run(&words[..if index { 7 } else { 6 }]).good();
    }
    fs::write(scratch.file("day/notes.txt"), "no capture").unwrap();
    let day = scratch.file("day");
    assert!(found(&scratch, &[&day]) == all);
    let some: Vec<Record> = all.iter().filter(|record| record.bytes.starts_with(&[2; 12])).cloned().collect();
    assert!(found(&scratch, &[&scratch.file("day/hour"), &day, "net", "172.16.0.0/16"]) == some);
    let both = run(&["export", &day, "-w", &scratch.file("all.pcapng")]).good();
    both.says("z.pcap: no index, read in full").says("skipped 1 file (not .pcap");
    let again = scratch.file("again.pcap");
    run(&["capture", "-q", "-r", &scratch.file("all.pcapng"), "-w", &again]).good();
    assert!(records::read(&again) == all);
    run(&["find", &day, "-w", &scratch.file("day/a.pcapng")]).with_status(2).says("both read and written");
    // Same as tcpdump -c.
    assert!(found(&scratch, &[&day, "-c", "1234"]) == all[..1234]);
}

#[test]
fn stale_indexes_are_ignored_and_rebuilt() {
    let scratch = Scratch::new();
    let (plain, all) = recorded(&scratch, &["all.pcapng", "all.pcapng.gz"]);
    let folder = scratch.file("");
    fs::remove_file(scratch.file("all.pcapng.idx")).unwrap();
    fs::write(scratch.file("plain.pcap.idx"), "nonsense").unwrap();
    run(&["find", &plain, "--count"]).good();
    run(&["find", &plain]).good().says("index not used, file read in full: it is damaged");
    let made = run(&["find", &folder, "--make-index"]).good();
    assert!(
        made.errors.contains("plain.pcap.idx: 12,") && made.errors.contains("all.pcapng.gz: index is up to date"),
        "{}",
        made.errors
    );
    let report = |name: &str| run(&["find", &scratch.file(name), "--json", "host", "172.16.6.7"]).good().json();
    for name in ["plain.pcap", "all.pcapng"] {
        assert!(report(name)["parts_read"].as_u64().unwrap() <= 2, "{}", report(name));
        assert_eq!(report(name)["frames"], 38);
    }
    // A different recording under the same name.
    let others: Vec<Record> = all.iter().map(|one| Record { time: one.time + 12_345, ..one.clone() }).rev().collect();
    records::write(&plain, &others);
    run(&["find", &plain, "host 172.16.6.7"])
        .good()
        .says("it is of another file, or the file was changed since")
        .says("38 packets");
    // An address changed in place, where no sample is taken.
    run(&["find", &plain, "--make-index"]).good().says("plain.pcap.idx: 12,");
    let count = || run(&["find", &plain, "--count", "host 192.0.2.77"]).good();
    assert_eq!(count().output, "0\n");
    let mut bytes = fs::read(&plain).unwrap();
    let address = bytes.windows(4).rposition(|four| four == [172, 16, 6, 7]).unwrap();
    bytes[address..address + 4].copy_from_slice(&[192, 0, 2, 77]);
    fs::write(&plain, bytes).unwrap();
    // A clock tick later at least.
    let built = fs::metadata(format!("{plain}.idx")).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(&plain).unwrap();
    file.set_modified(built + Duration::from_millis(1)).unwrap();
    assert_eq!(count().says("modified after its index was built").output, "1\n");
    run(&["find", &plain, "--make-index"]).good().says("plain.pcap.idx: 12,");
    let rebuilt = run(&["find", &plain, "host 192.0.2.77"]).good().says("1 packet");
    assert!(!rebuilt.errors.contains("index not used"), "{}", rebuilt.errors);
    fs::remove_file(scratch.file("all.pcapng.gz.idx")).unwrap();
    run(&["find", &scratch.file("all.pcapng.gz"), "--make-index"]).with_status(1).says("compressed");
    run(&["capture", "-q", "-r", &plain, "-w", "-", "--index"]).with_status(1).says("needs a regular file");
}

/// Leftovers of a killed run are replaced; a run that is still building the index is not disturbed.
#[test]
fn index_build_recovers_from_a_killed_run() {
    let scratch = Scratch::new();
    let (plain, _) = recorded(&scratch, &[]);
    let (index, part) = (format!("{plain}.idx"), format!("{plain}.idx.part"));
    let left = vec![7; 3_000_000];
    fs::write(&part, &left).unwrap();
    let running = fs::File::open(&part).unwrap();
    running.lock().unwrap();
    run(&["find", &plain, "--make-index"]).good().says("another run is building it");
    assert!(fs::read(&part).unwrap() == left && fs::metadata(&index).is_err());
    drop(running);
    let counted = run(&["find", &scratch.file(""), "--count", "net 172.16.0.0/16"]).good();
    run(&["find", &plain, "--make-index"]).good().says("plain.pcap.idx: 12,");
    assert!(fs::metadata(&part).is_err() && fs::metadata(&index).is_ok_and(|data| data.len() < 1_000_000));
    let report = run(&["find", &plain, "--json", "net 172.16.0.0/16"]).good().json();
    assert_eq!(
        (report["frames"].to_string(), &report["files_without_index"]),
        (counted.output.trim().into(), &0.into())
    );
    // A symlink is not followed to another file.
    let other = scratch.file("other");
    fs::write(&other, "mine").unwrap();
    fs::remove_file(&index).unwrap();
    std::os::unix::fs::symlink(&other, &part).unwrap();
    run(&["find", &plain, "--make-index"]).with_status(1).says("no index built");
    assert_eq!(fs::read(&other).unwrap(), b"mine");
}

#[test]
fn killed_recording_is_searched_to_its_last_whole_packet() {
    for name in ["live.pcap", "live.pcapng", "live.pcapng.zst"] {
        let scratch = Scratch::new();
        let all = recording();
        let (fifo, output) = (scratch.file("fifo"), scratch.file(name));
        mknodat(CWD, &fifo, FileType::Fifo, 0o600.into(), 0).unwrap();
        let running = launch(&["capture", "-q", "-r", &fifo, "-w", &output, "--index"]);
        let mut pipe = OpenOptions::new().write(true).open(&fifo).unwrap();
        pipe.write_all(&records::header()).unwrap();
        pipe.write_all(&records::body(&all)).unwrap();
        let index = format!("{output}.idx");
        // The index may be ahead of a compressed file.
        let readable = || run(&["find", &output, "--count"]).output.trim().parse().unwrap_or(0);
        wait_until("most packets are recorded", || readable() > 4000);
        running.signal(Signal::KILL);
        running.end();
        // Cuts the last index entry in the middle.
        let torn = fs::read(&index).unwrap();
        fs::write(&index, &torn[..torn.len() - 100]).unwrap();
        let copy = scratch.file("copy.pcap");
        let whole = run(&["capture", "-q", "-r", &output, "-w", &copy]);
        assert!(whole.status <= 1, "{}", whole.errors);
        let whole = records::read(&copy);
        assert!(whole.len() > 4000 && all.starts_with(&whole), "{name}: {} frames", whole.len());
        let found = |words: &[&str]| {
            let found = scratch.file("found.pcap");
            let ended = run(&[&["find"], words, &["-w", &found]].concat());
            assert!(ended.status <= 1, "{}", ended.errors);
            records::read(&found)
        };
        assert!(found(&[&output]) == whole, "{name}");
        let is_one = |record: &&Record| record.bytes.starts_with(&[2; 12]) && record.bytes[26..30] == [172, 16, 2, 7];
        let some: Vec<Record> = whole.iter().filter(is_one).cloned().collect();
        assert!(found(&[&output, "host", "172.16.2.7"]) == some, "{name}");
    }
}

#[test]
fn recording_in_progress_can_be_searched() {
    let scratch = Scratch::new();
    let all = recording();
    let (fifo, output) = (scratch.file("fifo"), scratch.file("live.pcapng"));
    mknodat(CWD, &fifo, FileType::Fifo, 0o600.into(), 0).unwrap();
    let running = launch(&["capture", "-q", "-r", &fifo, "-w", &output, "--index"]);
    let mut pipe = OpenOptions::new().write(true).open(&fifo).unwrap();
    pipe.write_all(&records::header()).unwrap();
    let (is_done, body) = (AtomicBool::new(false), records::body(&all));
    wait_until("the file exists", || fs::metadata(&output).is_ok());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for piece in body.chunks(50_001) {
                pipe.write_all(piece).unwrap();
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
            is_done.store(true, Ordering::Relaxed);
        });
        let mut least = 0;
        while !is_done.load(Ordering::Relaxed) {
            // Other files of the folder appear and disappear during the search.
            let other = scratch.file("other.pcap");
            records::write(&other, &all[..3]);
            let searching =
                launch(&["find", &scratch.file(""), "-q", "-w", "-", "--format", "pcap", "net 172.16.0.0/16"]);
            let _ = fs::remove_file(&other);
            let ended = searching.end();
            // Only the removed file may be missing.
            assert!(ended.status == 0 || ended.errors.contains("other.pcap: it was moved"), "{}", ended.errors);
            assert!(!ended.errors.contains("live.pcapng"), "{}", ended.errors);
            let count = run(&["find", &output, "--count", "net 172.16.0.0/16"]).good().output;
            let count: usize = count.trim().parse().unwrap();
            assert!(count >= least, "{count} after {least}");
            least = count;
        }
    });
    drop(pipe);
    running.end().good();
    assert!(found(&scratch, &[&output]) == all);
    let report = run(&["find", &output, "--json", "host 172.16.6.7"]).good().json();
    assert_eq!((report["frames"].as_u64(), report["files_without_index"].as_u64()), (Some(38), Some(0)));
}

/// As logrotate does it: the file written after SIGHUP has its own index.
#[test]
fn files_after_sighup_have_their_own_index() {
    let scratch = Scratch::new();
    let all = recording();
    let (fifo, output) = (scratch.file("fifo"), scratch.file("live.pcapng"));
    mknodat(CWD, &fifo, FileType::Fifo, 0o600.into(), 0).unwrap();
    let running = start(&["capture", "-q", "-r", &fifo, "-w", &output, "--index"]);
    let mut pipe = OpenOptions::new().write(true).open(&fifo).unwrap();
    pipe.write_all(&records::header()).unwrap();
    let (half, rest) = all.split_at(all.len() / 2);
    pipe.write_all(&records::body(half)).unwrap();
    wait_until("half of the packets are recorded", || fs::metadata(&output).is_ok_and(|data| data.len() > 2_000_000));
    std::thread::sleep(std::time::Duration::from_millis(300));
    running.signal(Signal::HUP);
    let next = scratch.file("live.2.pcapng");
    wait_until("a new file is started", || fs::metadata(format!("{next}.idx")).is_ok());
    pipe.write_all(&records::body(rest)).unwrap();
    drop(pipe);
    running.end().good();
    assert!(found(&scratch, &[&output, &next]) == all);
    for path in [&output, &next] {
        let report = run(&["find", path, "--json", "host 192.0.2.1"]).good().json();
        assert_eq!((report["files_without_index"].as_u64(), report["parts_read"].as_u64()), (Some(0), Some(0)));
    }
}

/// An index whose file was moved away is not overwritten.
#[test]
fn index_of_a_moved_file_is_kept() {
    let scratch = Scratch::new();
    let all = recording();
    let (fifo, output) = (scratch.file("fifo"), scratch.file("live.pcapng"));
    mknodat(CWD, &fifo, FileType::Fifo, 0o600.into(), 0).unwrap();
    let running = start(&["capture", "-q", "-r", &fifo, "-w", &output, "--index"]);
    let mut pipe = OpenOptions::new().write(true).open(&fifo).unwrap();
    pipe.write_all(&records::header()).unwrap();
    pipe.write_all(&records::body(&all)).unwrap();
    wait_until("most packets are recorded", || fs::metadata(&output).is_ok_and(|data| data.len() > 6_000_000));
    std::thread::sleep(std::time::Duration::from_millis(300));
    let old = scratch.file("old.pcapng");
    fs::rename(&output, &old).unwrap();
    running.signal(Signal::HUP);
    let next = scratch.file("live.2.pcapng");
    wait_until("a new file is started", || fs::metadata(format!("{next}.idx")).is_ok());
    drop(pipe);
    running.end().good();
    fs::rename(format!("{output}.idx"), format!("{old}.idx")).unwrap();
    assert!(found(&scratch, &[&old, &next]) == all);
    let report = run(&["find", &old, "--json", "host 192.0.2.1"]).good().json();
    assert_eq!((report["files_without_index"].as_u64(), report["parts_read"].as_u64()), (Some(0), Some(0)));
}

/// Writes a file with two raw IP packets.
fn raw_ip(path: &str) {
    let mut bytes = records::header();
    bytes[20..24].copy_from_slice(&101u32.to_ne_bytes());
    fs::write(path, [bytes, records::body(&recording()[..2])].concat()).unwrap();
}

#[test]
fn filter_unfit_for_the_link_type_fails_also_with_index() {
    let scratch = Scratch::new();
    let [one, two] = ["one.pcap", "two.pcap"].map(|name| scratch.file(name));
    for path in [&one, &two] {
        raw_ip(path);
    }
    let search = ["find", &one, &two, "ether host 02:00:00:00:00:01"];
    for _ in ["read in full", "by their indexes"] {
        let ended = run(&search).with_status(1).says("2 skipped (the filter does not fit)");
        for path in [&one, &two] {
            let line = format!("linerate: {path}: packets of raw ip skipped, the filter does not fit");
            assert_eq!(ended.errors.matches(&line).count(), 1, "{}", ended.errors);
        }
        let json = run(&[&search[..], &["--json"]].concat()).with_status(1).json();
        assert_eq!(json["files_skipped"], 2, "{json}");
        run(&["find", &one, &two, "--make-index"]).good();
    }
}

/// Rejected packets are counted under one drop reason, and no file is left.
#[test]
fn pcap_file_rejects_a_second_link_type() {
    let scratch = Scratch::new();
    let [ethernet, raw, output] = ["a.pcap", "b.pcap", "out.pcap"].map(|name| scratch.file(name));
    records::write(&ethernet, &recording()[..3]);
    raw_ip(&raw);
    let ended =
        run(&["find", &ethernet, &raw, "-w", &output]).with_status(1).says("5 packets not written: link_type_mixed");
    assert!(!ended.errors.contains("write_failed") && fs::metadata(&output).is_err(), "{}", ended.errors);
    let json = run(&["capture", "-r", &ethernet, "-r", &raw, "-w", &output, "--index", "--json"]).with_status(1).json();
    assert_eq!(json["drops"], serde_json::json!({ "link_type_mixed": 5 }), "{json}");
    assert_eq!(scratch.names(), ["a.pcap", "b.pcap"]);
}

#[test]
fn index_of_an_input_is_rejected_as_output() {
    let scratch = Scratch::new();
    let (input, index) = (scratch.file("a.pcap"), scratch.file("a.pcap.idx"));
    records::write(&input, &recording()[..3]);
    let error = "a.pcap.idx: is the index of the input";
    for verb in
        [&["capture", "-r", &input][..], &["find", &input], &["flows", "-r", &input], &["streams", "-r", &input]]
    {
        run(&[verb, &["-w", &index]].concat()).with_status(2).says(error);
    }
    fs::rename(&input, &index).unwrap();
    run(&["capture", "-r", &index, "-w", &input, "--index"]).with_status(2).says("both read and written");
}

#[test]
fn skipped_files_of_a_folder_are_reported() {
    let scratch = Scratch::new();
    fs::create_dir_all(scratch.file("day")).unwrap();
    let (day, part) = (scratch.file("day"), scratch.file("day/b.pcap.part"));
    records::write(&scratch.file("day/a.pcap"), &recording()[..5]);
    records::write(&part, &recording()[5..9]);
    let made = run(&["find", &day, "--make-index"]).good();
    made.says("b.pcap.part: no index built: still being recorded");
    assert!(fs::metadata(scratch.file("day/a.pcap.idx")).is_ok() && fs::metadata(format!("{part}.idx")).is_err());
    assert_eq!(run(&["find", &day, "--count"]).good().output, "9\n");
    std::os::unix::fs::symlink(scratch.file("nowhere"), scratch.file("day/c.pcap")).unwrap();
    let with_link = run(&["find", &day, "--count"]).with_status(1);
    assert_eq!(with_link.output, "9\n");
    with_link.says("c.pcap: No such file or directory").says("; not searched");
}

/// All Ethernet captures of the corpus merged into one file, searched with filters that match some of them.
#[test]
fn real_captures_yield_what_tcpdump_selects() {
    let Some(folder) = corpus("ndpi") else { return };
    if !has_tools(&["tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let all = scratch.file("all.pcap");
    // Some have other link types, or end in the middle of a frame.
    let ethernet = "ether multicast or not ether multicast";
    let exported = run(&["export", folder.to_str().unwrap(), "-q", "-w", &all, "-f", ethernet]);
    assert!(exported.status <= 1, "{}", exported.errors);
    run(&["find", &all, "--make-index"]).good();
    let records = records::read(&all);
    assert!(records.len() > 10_000, "{}", records.len());
    let mut filters: Vec<String> =
        ["tcp port 80", "udp port 53", "ip6", "arp", "vlan", "net 10.0.0.0/8", "sctp", "ip[6:2] & 0x1fff != 0"]
            .map(String::from)
            .into();
    for record in records.iter().step_by(records.len() / 24) {
        if record.bytes.get(12..15) == Some(&[8, 0, 0x45]) && record.bytes.len() > 38 {
            let [a, b, c, d] = record.bytes[26..30] else { continue };
            let port = u16::from_be_bytes([record.bytes[34], record.bytes[35]]);
            filters.push(format!("host {a}.{b}.{c}.{d} and port {port}"));
            filters.push(format!("dst host {a}.{b}.{c}.{d} or (ip6 and port {port})"));
        }
    }
    let (mut read, mut parts) = (0, 0);
    for filter in &filters {
        let expected = select(&all, filter);
        assert!(found(&scratch, &[&all, "-f", filter]) == expected, "{filter}");
        let report = run(&["find", &all, "--json", "-f", filter]).good().json();
        read += report["parts_read"].as_u64().unwrap();
        parts += report["parts"].as_u64().unwrap();
    }
    assert!(read * 10 < parts * 7, "{read} of {parts} parts were read");
}

/// A pipe in a folder never blocks a run.
#[test]
fn pipes_instead_of_files_do_not_block() {
    let scratch = Scratch::new();
    let (file, records) = (scratch.file("a.pcap"), scratch.file("hours"));
    run(&["generate", "-q", "--to", &format!("pcap:{file}"), "-c", "9", "--udp"]).good();
    std::fs::create_dir(&records).unwrap();
    run(&["flows", "-q", "-r", &file, "-w", &format!("{records}/a.parquet")]).good();
    for pipe in [format!("{file}.idx"), format!("{records}/b.parquet")] {
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
    }
    run(&["find", &file, "--make-index"]);
    run(&["find", &file, "--count"]).good().shows("9");
    run(&["query", &records]).says("b.parquet");
}
