//! Destinations of records: files, streams and hourly folders.

use super::crash::feed;
use super::round_trip::flat;
use super::rows::{Row, groups, read};
use linerate_tests::support::program::{linerate, program, run, spawn};
use linerate_tests::support::{Scratch, corpus, files, has_tools, wait_until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Real traffic of many protocols.
pub(super) const MIX: &str = "real-mix.pcap";

/// Serializes a row, as a sort key.
fn text(row: &Row) -> String {
    serde_json::to_string(row).unwrap()
}

/// Rounds floats and sorts rows.
pub(super) fn sorted(mut rows: Vec<Row>) -> Vec<Row> {
    rows.iter_mut().for_each(round);
    rows.sort_by_cached_key(text);
    rows
}

/// Rounds floats: the last digit can differ after a trip through JSON.
fn round(row: &mut Row) {
    for value in row.values_mut().filter(|value| value.is_f64()) {
        *value = value.as_f64().map(|real| format!("{real:.9e}")).into();
    }
}

/// Returns all complete files in a folder, or none if the program has not created it yet.
pub(super) fn parquet_files(folder: &str) -> Vec<PathBuf> {
    if !Path::new(folder).exists() {
        return Vec::new();
    }
    files(Path::new(folder))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|ending| ending == "parquet"))
        .collect()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn all_formats_have_the_same_records() {
    let Some(capture) = corpus(MIX) else { return };
    let capture = capture.to_str().unwrap();
    let scratch = Scratch::new();
    let [json, parquet, zeek, folder] =
        ["flows.jsonl", "flows.parquet", "conn.log", "flows/"].map(|name| scratch.file(name));
    for write in [&json, &parquet, &zeek, &folder] {
        let summary = run(&["flows", "-r", capture, "--level", "stats", "--write", write, "--json", "--id-seed", "t"])
            .good()
            .json();
        assert_eq!(summary["records_lost"], 0);
        assert!(summary["records_written"].as_u64().unwrap() > 1_000, "{summary}");
    }
    assert_eq!(scratch.names(), ["conn.log", "flows", "flows.jsonl", "flows.parquet"]);
    let lines_of = |path: &str| lines(&std::fs::read_to_string(path).unwrap());
    let own = lines_of(&json);
    let rows = sorted(own.iter().map(flat).collect());
    assert_eq!(sorted(read(Path::new(&parquet))), rows);
    let files = parquet_files(&folder);
    assert_eq!(sorted(files.iter().flat_map(|path| read(path)).collect()), rows);
    for path in files.iter().map(PathBuf::as_path).chain([Path::new(&parquet)]) {
        let times: Vec<u64> = read(path).iter().map(|row| row["first_time"].as_u64().unwrap()).collect();
        assert!(times.is_sorted(), "{path:?}");
    }
    let conns = lines_of(&zeek);
    let sum = |lines: &[Value], get: &dyn Fn(&Value) -> u64| lines.iter().map(get).sum::<u64>();
    assert_eq!(conns.len(), own.len());
    let uids: BTreeSet<&str> = conns.iter().map(|conn| conn["uid"].as_str().unwrap()).collect();
    let parents = conns.iter().flat_map(|conn| conn["tunnel_parents"].as_array()).flatten();
    assert!(parents.clone().count() > 0 && parents.clone().all(|uid| uids.contains(uid.as_str().unwrap())));
    assert_eq!(
        sum(&conns, &|conn| conn["orig_ip_bytes"].as_u64().unwrap()),
        sum(&own, &|flow| flow["orig"]["packet_bytes"].as_u64().unwrap())
    );
    let shown = run(&["flows", "-r", capture, "--write", "-", "--format", "zeek"]).good();
    assert_eq!(lines(&shown.output).len(), own.len());
}

/// Each target has its own thread and its own account.
#[test]
fn records_are_written_to_several_targets() {
    let scratch = Scratch::new();
    let capture = scratch.file("hours.pcap");
    std::fs::write(&capture, hours(30)).unwrap();
    let [json, zeek, folder] = ["flows.jsonl", "conn.log", "flows/"].map(|name| scratch.file(name));
    let everywhere = ["flows", "-r", &capture, "--write", &json, "-w", &folder, "-w", &zeek, "-w", "-"];
    let ended = run(&[&everywhere[..], &["--json"]].concat()).good();
    let summary: Value = serde_json::from_str(ended.errors.lines().last().unwrap()).unwrap();
    let accounts: Vec<&Value> =
        summary["accounts"].as_array().unwrap().iter().filter(|account| account["stage"] == "export").collect();
    for (account, (subject, files)) in
        accounts.iter().zip([(&*json, 1), (&folder, 30), (&zeek, 1), ("standard output", 0)])
    {
        let counted = (&account["subject"], &account["received"], &account["delivered"], &account["notes"]["files"]);
        assert_eq!(counted, (&subject.into(), &30.into(), &30.into(), &files.into()), "{account}");
    }
    assert_eq!(accounts.len(), 4);
    assert_eq!((&summary["records_written"], &summary["records_lost"]), (&120.into(), &0.into()));
    let text = |path: &str| lines(&std::fs::read_to_string(path).unwrap());
    assert_eq!((text(&json).len(), text(&zeek).len()), (30, 30));
    assert_eq!(sorted(text(&json).iter().map(flat).collect()), sorted(lines(&ended.output).iter().map(flat).collect()));
    let rows: Vec<Row> = parquet_files(&folder).iter().flat_map(|path| read(path)).collect();
    assert_eq!(sorted(rows), sorted(text(&json).iter().map(flat).collect()));
    let text_output = run(&["flows", "-r", &capture, "-w", &json, "-w", &zeek]).good().output;
    for path in [&json, &zeek] {
        assert!(text_output.contains(&format!("  30 records written to {path}, in 1 file\n")), "{text_output}");
    }

    for (targets, expected) in [
        (&["a.jsonl", "a.jsonl"][..], "a.jsonl: named twice"),
        (&["null", "a.jsonl"], "leave out either it or the other targets"),
        (&["amqp://host/topic"], "\"amqp://host/topic\": unsupported destination; expected one of -, FILE, DIR/"),
    ] {
        let writes: Vec<&str> = targets.iter().flat_map(|target| ["--write", target]).collect();
        run(&[&["flows", "-r", &capture][..], &writes].concat()).with_status(2).says(expected);
    }
}

/// The run ends with an error, and records for other targets are complete.
#[test]
fn failing_target_does_not_affect_the_others() {
    let scratch = Scratch::new();
    let [capture, json, nowhere] = ["hours.pcap", "flows.jsonl", "none/b.log"].map(|name| scratch.file(name));
    std::fs::write(&capture, hours(2000)).unwrap();
    let ended = run(&["flows", "-r", &capture, "-w", "/dev/full", "-w", &json, "--json"]).with_status(1);
    let ended = ended.says("records could not be written: /dev/full: cannot write: No space left");
    let summary: Value = serde_json::from_str(&ended.output).unwrap();
    let written = lines(&std::fs::read_to_string(&json).unwrap()).len() as u64;
    assert!(written > 0);
    assert_eq!(summary["records_written"], written);
    let accounts = summary["accounts"].as_array().unwrap();
    let full = accounts.iter().find(|account| account["subject"] == "/dev/full").unwrap();
    assert_eq!((&full["received"], &full["drops"]["export_failed"]), (&written.into(), &written.into()));
    assert_eq!((&summary["lost"], &summary["balanced"]), (&0.into(), &true.into()), "of frames");
    assert!(!Path::new(&format!("{json}.part")).exists());

    run(&["flows", "-r", &capture, "-w", &json, "-w", &nowhere]).with_status(1).says("none");
    assert!(!Path::new(&format!("{json}.part")).exists(), "the first target's part file is removed");
}

/// Row groups have a fixed size: larger ones would only use more memory.
#[test]
fn parquet_row_groups_are_full() {
    const GROUP: i64 = 1 << 17;
    let scratch = Scratch::new();
    let path = scratch.file("flows.parquet");
    let mut running = spawn(linerate(&["flows", "-r", "-", "--write", &path, "-q"]).stdin(Stdio::piped()));
    feed(running.take_input().unwrap(), 3 * GROUP as u32 + 9);
    running.end().good();
    assert_eq!(groups(Path::new(&path)), [GROUP, GROUP, GROUP, 9]);
}

/// A file's folder is the hour in which all its flows started, for any number of hours.
#[test]
fn output_folder_is_split_by_hour() {
    let scratch = Scratch::new();
    let capture = scratch.file("hours.pcap");
    std::fs::write(&capture, hours(40)).unwrap();
    let folder = scratch.file("flows/");
    let summary = run(&["flows", "-r", &capture, "--write", &folder, "--json"]).good().json();
    assert_eq!((&summary["records_written"], &summary["files"]), (&40.into(), &40.into()));
    for path in parquet_files(&folder) {
        let [row] = &read(&path)[..] else { panic!("{path:?}") };
        let hour = row["first_time"].as_u64().unwrap() / 3_600_000_000_000;
        let date = ["2000-02-28", "2000-02-29", "2000-03-01"].get((hour as usize - FIRST_HOUR) / 24);
        let wanted = format!("hour={:02}", hour % 24);
        let name = path.to_str().unwrap();
        assert!(name.contains(&wanted), "{name}: {hour}");
        assert!(date.is_none_or(|date| name.contains(&format!("/date={date}/"))), "{name}: {hour}");
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 40usize.div_ceil(24));
}

/// A capture whose packets claim a new hour each does not create a folder per packet.
#[test]
fn hours_beyond_two_days_share_an_undated_folder() {
    const NONE: &str = "date=__HIVE_DEFAULT_PARTITION__/hour=__HIVE_DEFAULT_PARTITION__/";
    let scratch = Scratch::new();
    let capture = scratch.file("hours.pcap");
    std::fs::write(&capture, hours(8000)).unwrap();
    let folder = scratch.file("flows/");
    let summary = run(&["flows", "-r", &capture, "--write", &folder, "--json"]).good().json();
    assert_eq!((&summary["records_written"], &summary["files"]), (&8000.into(), &49.into()));
    let (none, dated): (Vec<_>, Vec<_>) =
        parquet_files(&folder).into_iter().partition(|path| path.to_str().unwrap().contains(NONE));
    let rows = |paths: &[PathBuf]| paths.iter().map(|path| read(path).len()).collect::<Vec<_>>();
    assert_eq!((rows(&none), rows(&dated)), (vec![8000 - 48], vec![1; 48]));
}

/// 2000-02-28 00:00 UTC, in hours since the epoch.
const FIRST_HOUR: usize = 951_696_000 / 3_600;

/// Builds a capture file with one UDP packet per hour.
fn hours(count: u32) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend([192, 0, 2, 1, 192, 0, 2, 2, 0, 1, 0, 2, 0, 8, 0, 0]);
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4u32, 0x0004_0002, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for hour in 0..count {
        let length = packet.len() as u32;
        for word in [FIRST_HOUR as u32 * 3600 + hour * 3600 + 1799, 0, length, length] {
            file.extend(word.to_le_bytes());
        }
        file.extend(&packet);
    }
    file
}

#[test]
fn devices_are_not_replaced_and_leftovers_are_kept() {
    use std::os::unix::fs::FileTypeExt;
    let scratch = Scratch::new();
    let capture = scratch.file("hours.pcap");
    std::fs::write(&capture, hours(3)).unwrap();
    run(&["flows", "-r", &capture, "--write", "/dev/null"]).good();
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    assert!(!Path::new("/dev/null.part").exists());

    let [path, part] = ["flows.jsonl", "flows.jsonl.part"].map(|name| scratch.file(name));
    std::fs::write(&part, "of a run before").unwrap();
    run(&["flows", "-r", &capture, "--write", &path]).good().says("flows.jsonl.1.part");
    assert_eq!(std::fs::read_to_string(scratch.file("flows.jsonl.1.part")).unwrap(), "of a run before");
    assert!(Path::new(&path).exists() && !Path::new(&part).exists());

    run(&["flows", "-r", &capture, "--write", &path, "--format", "xml"]).with_status(2).says("jsonl");
    run(&["flows", "-r", &capture, "--write", "/dev/null/x/"]).with_status(1).says("/dev/null/x");
}

/// Without it, a power cut could leave a synced file in a folder whose entry was never synced.
#[test]
fn new_folders_are_synced_in_their_parents() {
    if !has_tools(&["strace"]) {
        return;
    }
    let scratch = Scratch::new();
    let [capture, calls, folder] = ["hours.pcap", "calls", "flows"].map(|name| scratch.file(name));
    std::fs::write(&capture, hours(26)).unwrap();
    let mut traced = Command::new("strace");
    traced.args(["-f", "-y", "-e", "trace=fsync", "-o", &calls]).arg(program());
    traced.args(["flows", "-r", &capture, "--write", &format!("{folder}/"), "-q"]);
    spawn(traced.stdout(Stdio::null())).end().good();
    let calls = std::fs::read_to_string(&calls).unwrap();
    let synced = |path: &str| calls.matches(&format!("<{path}>) = 0")).count();
    assert_eq!(synced(scratch.file("").trim_end_matches('/')), 1, "{calls}");
    assert_eq!(synced(&folder), 2, "once for each date: {calls}");
    assert_eq!(synced(&format!("{folder}/date=2000-02-28")), 24, "{calls}");
    assert_eq!(synced(&format!("{folder}/date=2000-02-29/hour=01")), 1, "{calls}");
}

/// A directory takes the final name while records are written.
#[test]
fn failed_rename_is_reported() {
    for name in ["flows.jsonl", "flows.parquet"] {
        let scratch = Scratch::new();
        let [path, part] = [name, &format!("{name}.part")].map(|name| scratch.file(name));
        let mut running = spawn(linerate(&["flows", "-r", "-", "--write", &path, "-q"]).stdin(Stdio::piped()));
        wait_until("the part file exists", || Path::new(&part).exists());
        std::fs::create_dir(&path).unwrap();
        std::fs::write(Path::new(&path).join("file"), "of somebody").unwrap();
        running.take_input().unwrap().write_all(&hours(3)).unwrap();
        let ended = running.end().with_status(1);
        let expected = format!("all records are in {part}, but it cannot replace {path}; rename one of them");
        ended.says(&expected).says("0 records lost, 3 written");
        assert!(std::fs::metadata(&part).unwrap().len() > 0);
    }
}

/// Removing a file while it is written loses its records.
#[test]
fn records_of_a_removed_file_are_lost() {
    for name in ["flows.jsonl", "flows.parquet"] {
        let scratch = Scratch::new();
        let [path, part] = [name, &format!("{name}.part")].map(|name| scratch.file(name));
        let mut running = spawn(linerate(&["flows", "-r", "-", "--write", &path, "-q"]).stdin(Stdio::piped()));
        wait_until("the part file exists", || Path::new(&part).exists());
        std::fs::remove_file(&part).unwrap();
        running.take_input().unwrap().write_all(&hours(3)).unwrap();
        let ended = running.end().with_status(1).says(&format!("{part}: removed while it was written"));
        ended.says("3 records lost, 0 written, 0 files complete");
        assert!(scratch.names().is_empty(), "no file remains");
    }
}

#[test]
fn fields_without_a_zeek_name_are_reported_at_once() {
    let scratch = Scratch::new();
    let [capture, log] = ["hours.pcap", "conn.log"].map(|name| scratch.file(name));
    std::fs::write(&capture, hours(1)).unwrap();
    let errors = |options: &[&str]| run(&[&["flows", "-r", &capture, "--write"], options].concat()).good().errors;
    let expected = "--level stats: zeek cannot store its fields; --level tcp writes the same";
    assert!(errors(&["-", "--format", "zeek", "--level", "stats"]).contains(expected));
    assert!(errors(&[&log, "--level", "stats"]).contains(expected), "format chosen by file name");
    for fine in [&["-", "--format", "zeek"][..], &[&log, "--level", "tcp"], &["-", "--level", "stats"]] {
        let errors = errors(fine);
        assert!(!errors.contains("cannot store"), "{fine:?}: {errors}");
    }
    errors(&[&log, "--macs"]);
    let line = &lines(&std::fs::read_to_string(&log).unwrap())[0];
    assert_eq!(
        (&line["orig_l2_addr"], &line["resp_l2_addr"]),
        (&"02:00:00:00:00:02".into(), &"02:00:00:00:00:01".into())
    );
}
