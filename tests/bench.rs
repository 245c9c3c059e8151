//! Quick runs of the benchmarks: each table has its rows and fits a terminal.

use linerate_tests::support::program::{Ended, Running, bench, spawn};
use linerate_tests::support::terminal::assert_fits;
use linerate_tests::support::{Scratch, has_tools, is_root, may_make_labs, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::sync::Mutex;

fn run(arguments: &[&str]) -> Ended {
    Ended::of(bench(arguments).output().expect("linerate-bench"))
}

fn launch(arguments: &[&str]) -> Running {
    spawn(&mut bench(arguments))
}

#[test]
fn options_of_other_tables_are_rejected() {
    let cases: [(&[&str], &str); 3] = [
        (&["dissect", "--size", "64"], "--size needs one of its tables: burst"),
        (&["render", "--quick", "--rounds", "3"], "--quick runs one round"),
        (&["burst", "--dpdk", "--no-reader"], "--dpdk measures one core without a reader"),
    ];
    for (arguments, text) in cases {
        run(arguments).with_status(2).says(text);
    }
}

#[test]
fn quick_benchmarks_print_all_rows() {
    // `tables_fit_a_terminal` runs the others.
    let rows = run(&["--quick", "--json", "dissect", "merge", "several"]).good().output;
    assert!(rows.lines().count() >= 20 && rows.contains("a pass for each"), "{rows}");
    for row in rows.lines() {
        let row: Value = serde_json::from_str(row).expect("a JSON document a line");
        assert_eq!(row["schema"], "linerate/bench/1");
        assert!(row["mpps"].as_f64().unwrap() > 0.0, "{row}");
    }
    let rows = run(&["--quick", "--json", "export"]).good().output;
    for case in ["ipfix in memory", "jsonl", "csv", "parquet, 2 threads", "parquet to kafka", "parquet to clickhouse"] {
        assert!(rows.contains(case), "{case}: {rows}");
    }
    assert!(rows.lines().all(|row| row.contains("\"cpu_ns\":")), "{rows}");
    if is_root() && has_tools(&["tcpdump"]) {
        let rows = run(&["--quick", "--json", "capture"]).good().output;
        assert!(rows.lines().count() >= 9, "{rows}");
        for row in rows.lines() {
            let row: Value = serde_json::from_str(row).expect("a JSON document a line");
            assert!(row["mpps"].as_f64().unwrap() > 0.0 && row["peer_mpps"].as_f64().unwrap() > 0.0, "{row}");
        }
        let rows = run(&["--quick", "--json", "inline", "--size", "64"]).good().output;
        assert_eq!(rows.lines().count(), 14, "{rows}");
        for row in rows.lines() {
            let row: Value = serde_json::from_str(row).expect("a JSON document a line");
            // Scattered memory frames have no time stamps; veth rows are compared with the Linux bridge.
            let (name, is_timed) =
                (row["case"].as_str().unwrap(), row["p50_us"].is_number() && row["p99_us"].is_number());
            assert!(row["mpps"].as_f64().unwrap() > 0.0 && row["limit_mpps"].as_f64().unwrap() > 0.0, "{row}");
            assert_eq!(is_timed, !name.starts_with("memory, scattered"), "{row}");
            assert_eq!(row["peer"] == "Linux bridge", !name.starts_with("memory"), "{row}");
        }
    }
}

#[test]
fn missing_peer_is_reported_once_with_its_package() {
    let ended =
        Ended::of(bench(&["--quick", "--json", "merge"]).env("PATH", "/nowhere").output().expect("a run")).good();
    let line = "mergecap: not installed (apt install wireshark-common)";
    assert_eq!(ended.errors.matches(line).count(), 1, "{}", ended.errors);
}

#[test]
fn new_flows_have_a_row_for_each_level() {
    let rows = run(&["--quick", "--json", "flows", "--flows", "1048576"]).good().output;
    for case in ["counters, 10,000 active, 1,000 new/s", "tcp, 10,000", "stats, 10,000"] {
        assert!(rows.contains(case), "{case}: {rows}");
    }
    for row in rows.lines().map(|row| serde_json::from_str::<Value>(row).expect("a JSON document a line")) {
        assert!(row["ns"].as_f64().unwrap() > 0.0 && row["flows"] == 10_000, "{row}");
    }
}

#[test]
fn receive_benchmark_has_all_rows_and_the_kernel_baseline() {
    if !may_make_labs() {
        return;
    }
    let text = run(&["--quick", "--json", "receive"]).good().output;
    let rows: Vec<Value> = text.lines().map(|row| serde_json::from_str(row).expect("a JSON document a line")).collect();
    // Two sizes, each with six super-frame receivers and five receivers for each of two MTUs.
    assert_eq!(rows.len(), 2 * (6 + 5 + 5), "{text}");
    for row in &rows {
        assert_eq!((&row["schema"], &row["bench"]), (&Value::from("linerate/bench/1"), &Value::from("receive")));
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        let (payload, l2) = (number("gbps_payload"), number("gbps_l2"));
        assert!(payload > 0.0 && number("cpu_s_per_gib") >= 0.0, "{row}");
        // Per packet: 52 bytes of IPv4 and TCP headers, and 18 bytes of Ethernet.
        let mtu = number("mtu");
        assert!((l2 / payload - (mtu + 18.0) / (mtu - 52.0)).abs() < 1e-9, "{row}");
        let micros = number("chunk") * 8.0 / payload / 1e3;
        assert!((micros / number("chunk_us") - 1.0).abs() < 1e-9, "{row}");
        let is_peer = row["case"].as_str().is_some_and(|case| case.starts_with("kernel"));
        assert!(is_peer == row["peer"].is_null() && is_peer == row["ratio"].is_null(), "{row}");
        assert!(is_peer || number("peer_gbps_payload") * number("ratio") / payload - 1.0 < 1e-9, "{row}");
        assert!(number("limit_gbps_payload").is_finite() && number("fixed_us").is_finite(), "{row}");
    }
}

#[test]
fn disk_benchmark_leaves_no_files() {
    let scratch = Scratch::new();
    let folder = scratch.file("");
    let words = ["disk", "--quick", "--folder", &folder];
    let ended = run(&words).good().shows("page cache").shows("memory that bridges a stall");
    assert!(ended.output.lines().all(|line| line.chars().count() <= 80), "{}", ended.output);
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
    let lines = run(&[&words[..], &["--json"]].concat()).good().output;
    for line in lines.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(
            row["bench"] == "disk" && row["gbytes"].as_f64().unwrap() > 0.0 && row["max_us"].as_f64().is_some(),
            "{row}"
        );
    }
    // The file is unlinked when it is opened.
    let running = launch(&["disk", "--folder", &folder]);
    let files = format!("/proc/{}/fd", running.pid());
    let is_written = |file: std::io::Result<std::fs::DirEntry>| {
        let target = file.and_then(|file| std::fs::read_link(file.path()));
        target.is_ok_and(|target| target.starts_with(&folder) && target.to_string_lossy().ends_with("(deleted)"))
    };
    wait_until("the file is written", || std::fs::read_dir(&files).is_ok_and(|mut files| files.any(is_written)));
    running.signal(Signal::TERM);
    running.end();
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
}

/// Runs two tables in parallel, as they mostly wait. The columns of `receive` depend on the terminal.
#[test]
fn tables_fit_a_terminal() {
    // A single round has no spread.
    let heads = ["case", "1 round"];
    let own_heads = ["super-frames", "payload", "fixed us", "s/GiB", "medians of up to", "published"];
    let tables = [
        "dissect",
        "pcap",
        "merge",
        "flows",
        "flow-files",
        "query",
        "export",
        "hand-over",
        "check",
        "memif",
        "switch",
        "render",
        "several",
    ];
    let mut cases: Vec<Vec<&str>> = tables.map(|table| vec!["--quick", table]).to_vec();
    cases.push(vec!["--quick", "burst", "--size", "64", "--ports", "1"]);
    if may_make_labs() {
        cases.extend(["capture", "replay"].map(|table| vec!["--quick", table]));
        cases.extend(["generate", "inline", "wire"].map(|table| vec!["--quick", table, "--size", "64"]));
    }
    let program = bench::<&str>(&[]).get_program().to_owned();
    let shown = Mutex::new(cases.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(arguments) = { shown.lock().unwrap().next() } {
                    let text = run(&arguments).good().output;
                    assert!(text.lines().all(|line| line.chars().count() <= 80), "{arguments:?}: {text}");
                    assert!(heads.iter().all(|head| text.contains(head)), "{arguments:?}: {text}");
                    let has = |word| text.split_whitespace().any(|cell| cell == word);
                    assert!(!has("spread") && !has("0.00"), "{arguments:?}: {text}");
                }
            });
        }
    });
    if may_make_labs() && has_tools(&["script", "stty"]) {
        for columns in [80, 200] {
            assert_fits(program.as_ref(), &["--quick", "receive"], columns, &own_heads);
        }
    }
}
