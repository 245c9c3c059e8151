//! The program: stored records compared with DuckDB, captures compared with stored records, and every output format.

use linerate_tests::support::program::run;
use linerate_tests::support::{Scratch, corpus, files, frames, has_peer, records};
use serde_json::Value;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Real traffic of many protocols.
const MIX: &str = "real-mix.pcap";

/// Runs queries in DuckDB on a view `flows` of the folder `flows/`.
fn duckdb(folder: &str, queries: &[&str]) -> Option<Vec<Vec<Value>>> {
    let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/python/bin/python");
    if !has_peer(python.exists(), "DuckDB in target/python") {
        return None;
    }
    let view = "CREATE VIEW flows AS SELECT * FROM read_parquet('flows/**/*.parquet', hive_partitioning = true)";
    let statements: Vec<&str> = std::iter::once(view).chain(queries.iter().copied()).collect();
    let mut child = Command::new(python)
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("columns/ask.py"))
        .arg("duckdb")
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&serde_json::to_vec(&statements).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let answers: Vec<Vec<Value>> = serde_json::from_slice(&output.stdout).unwrap();
    Some(answers.into_iter().skip(1).collect())
}

/// Returns groups as rows of these members, and the summary that follows them.
fn groups(arguments: &[&str], members: &[&str]) -> (Vec<Value>, Value) {
    let ended = run(&[&["query", "--json"], arguments].concat()).good();
    let mut lines: Vec<Value> = ended.output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = lines.pop().unwrap();
    let row = |line: &Value| -> Value {
        assert_eq!(line["schema"], "linerate/flows-group/1");
        members.iter().map(|member| line[*member].clone()).collect::<Vec<_>>().into()
    };
    (lines.iter().map(row).collect(), summary)
}

fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        _ => match (one.as_f64(), other.as_f64()) {
            (Some(one), Some(other)) => (one - other).abs() <= 1e-9 * one.abs(),
            _ => one == other,
        },
    }
}

#[test]
fn answers_match_duckdb() {
    let Some(capture) = corpus(MIX) else { return };
    let scratch = Scratch::new();
    let folder = scratch.file("flows/");
    run(&["flows", "-q", "-r", capture.to_str().unwrap(), "--level", "tcp", "-w", &folder]).good();
    const SUMS: &str = "sum(flows), sum(orig_packets + resp_packets), sum(orig_frame_bytes + resp_frame_bytes)";
    const MEMBERS: [&str; 3] = ["flows", "packets", "bytes"];
    // Here: filter, keys, further options. In DuckDB: selected columns and condition.
    let questions: [(&str, &str, &[&str], &str, &str); 7] = [
        ("", "resp_port,protocol", &[], "resp_port, protocol", "true"),
        ("not tunnel_kind", "orig_address", &[], "orig_address", "tunnel_kind IS NULL"),
        (
            "tcp and bytes > 1k",
            "orig_address,resp_address",
            &[],
            "orig_address, resp_address",
            "protocol = 6 AND orig_frame_bytes + resp_frame_bytes > 1000",
        ),
        (
            "src net 10.0.0.0/8 or dst port 53",
            "end_reason",
            &[],
            "end_reason",
            "orig_address LIKE '10.%' OR (resp_port = 53 AND protocol IN (6, 17, 132))",
        ),
        (
            "quality_one_way and duration > 1s",
            "direction",
            &[],
            "direction",
            "quality_one_way AND duration_ns > 1000000000",
        ),
        (
            "flags S and not flags A",
            "tcp_state",
            &[],
            "tcp_state",
            "((orig_tcp_flags | resp_tcp_flags) & 2) = 2 AND ((orig_tcp_flags | resp_tcp_flags) & 16) = 0",
        ),
        (
            "orig_tcp_retransmitted_fast > 0 or resp_tcp_rtt_mean_ns > 1ms",
            "protocol",
            &[],
            "protocol",
            "orig_tcp_retransmitted_fast > 0 OR resp_tcp_rtt_mean_ns > 1000000",
        ),
    ];
    let queries: Vec<String> = questions
        .iter()
        .map(|(_, _, _, keys, condition)| format!("SELECT {keys}, {SUMS} FROM flows WHERE {condition} GROUP BY ALL"))
        .chain(["SELECT count(*) FROM flows".to_owned()])
        .collect();
    let Some(theirs) = duckdb(&scratch.file(""), &queries.iter().map(String::as_str).collect::<Vec<_>>()) else {
        return;
    };
    let sorted = |mut rows: Vec<Value>| {
        rows.sort_by_cached_key(|row| {
            // DuckDB returns sums as floats.
            let cells: Vec<String> = row
                .as_array()
                .unwrap()
                .iter()
                .map(|cell| cell.as_f64().map_or(cell.to_string(), |n| n.to_string()))
                .collect();
            cells
        });
        rows
    };
    let mut records = 0.0;
    for ((filter, keys, more, ..), theirs) in questions.iter().zip(&theirs) {
        let members: Vec<&str> = keys.split(',').chain(MEMBERS).collect();
        for (workers, top) in [("1", "1000000"), ("3", "0")] {
            let base = [&folder, "--by", keys, "--top", top, "--workers", workers, "-f", filter];
            let (ours, summary) = groups(&[&base[..], more].concat(), &members);
            let (ours, theirs) = (sorted(ours), sorted(theirs.clone()));
            assert!(same(&ours.clone().into(), &theirs.clone().into()), "{filter} by {keys}: {ours:?}\n{theirs:?}");
            assert!(!ours.is_empty() || filter.contains("retransmitted"), "{filter} by {keys}: no rows to compare");
            if filter.is_empty() {
                records = summary["query"]["records"].as_f64().unwrap();
            }
        }
    }
    assert_eq!(theirs.last().unwrap()[0][0].as_f64(), Some(records));
    by_time(&folder, &scratch.file(""));
}

/// Compares time steps, and records that overlap a time window.
fn by_time(folder: &str, here: &str) {
    let queries = [
        // Bytes are spread evenly over a record: `until` counts those before a time, rounded up.
        "CREATE OR REPLACE MACRO until(bytes, first, last, time) AS CASE WHEN time <= first THEN 0
         WHEN time >= last THEN bytes ELSE (bytes::HUGEINT * (time - first) + last - first - 1) // (last - first) END",
        "WITH records AS (SELECT epoch_ns(first_time) AS first, epoch_ns(last_time) AS last,
         orig_frame_bytes + resp_frame_bytes AS bytes FROM flows),
         steps AS (SELECT *, unnest(generate_series(first // 60000000000, greatest(first, last - 1) // 60000000000))
         * 60000000000 AS step FROM records)
         SELECT step, sum(until(bytes, first, last, step + 60000000000) - until(bytes, first, last, step))
         FROM steps GROUP BY step ORDER BY step",
        "SELECT epoch_ns(min(first_time)), epoch_ns(max(last_time)), epoch_ns(quantile_disc(first_time, 0.5)) FROM flows",
    ];
    let Some(theirs) = duckdb(here, &queries) else { return };
    let (ours, _) = groups(&[folder, "--every", "1m"], &["time_ns", "bytes"]);
    assert!(same(&ours.clone().into(), &theirs[1].clone().into()), "{ours:?}\n{:?}", theirs[1]);
    let middle = theirs[2][0][2].as_f64().unwrap() as u64 / 1_000_000_000;
    let [since, until] = [middle, middle + 2].map(|time| time.to_string());
    let count = format!(
        "SELECT count(*) FROM flows WHERE epoch_ns(last_time) >= {since}000000000 AND epoch_ns(first_time) < {until}000000000"
    );
    let Some(theirs) = duckdb(here, &[&count]) else { return };
    let (_, summary) = groups(&[folder, "--every", "1m", "--since", &since, "--until", &until], &[]);
    assert_eq!(summary["query"]["records"].as_f64(), theirs[0][0][0].as_f64());
}

/// Live flows and stored records give the same answers.
#[test]
fn captures_and_stored_records_give_the_same_answers() {
    let scratch = Scratch::new();
    let [capture, folder] = ["in.pcap", "flows/"].map(|name| scratch.file(name));
    records::write(&capture, &frames::sample());
    run(&["flows", "-q", "-r", &capture, "-w", &folder]).good();
    for keys in [
        &["--by", "address/24,protocol"][..],
        &["--by", "dstport", "--every", "10ms"],
        &["--every", "20ms", "--sum", "bps,records"],
    ] {
        let stored = run(&[&["query", &folder, "--json"], keys].concat()).good();
        let stored: Vec<Value> = stored.output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (summary, rows) = stored.split_last().unwrap();
        let live = run(&[&["flows", "-r", &capture, "--json"], keys].concat()).good().json();
        let mut all = live["query"]["rows"].as_array().unwrap().clone();
        all.iter_mut().for_each(|row| row["schema"] = "linerate/flows-group/1".into());
        assert!(!rows.is_empty());
        assert_eq!(all, rows, "{keys:?}");
        assert_eq!(live["query"]["total"], summary["query"]["total"]);
        // The same for flows exported by IPFIX.
        let ipfix = scratch.file("flows.ipfix");
        run(&["flows", "-q", "-r", &capture, "-w", &ipfix, "--ipfix", "biflow,full"]).good();
        let collected = run(&[&["collect", &ipfix, "--json"], keys].concat()).good().json();
        assert_eq!(collected["query"]["total"]["bytes"], summary["query"]["total"]["bytes"]);
    }
    let text = run(&["flows", "-r", &capture, "--by", "protocol", "--top", "1"]).good().output;
    assert!(text.contains("other") && text.contains(" %") && !text.contains("top flows"), "{text}");
    let csv = run(&["flows", "-r", &capture, "--by", "protocol", "--csv"]).good().output;
    assert!(csv.starts_with("protocol,flows,packets,bytes\n") && csv.lines().count() > 2, "{csv}");
    let picture = scratch.file("a.svg");
    run(&["query", &folder, "--by", "protocol", "--every", "10ms", "--plot", &picture]).good();
    let svg = std::fs::read_to_string(&picture).unwrap();
    assert!(svg.starts_with("<svg xmlns") && svg.contains("UDP") && !svg.contains("NaN"), "{svg}");
}

/// Rows that cannot match are skipped by folder name, by statistics, and by the columns of the filter.
#[test]
fn data_that_cannot_match_is_not_read() {
    let scratch = Scratch::new();
    let (capture, folder) = (scratch.file("hours.pcap"), scratch.file("flows/"));
    std::fs::write(&capture, hours(40)).unwrap();
    run(&["flows", "-q", "-r", &capture, "-w", &folder]).good();
    assert_eq!(files(folder.as_ref()).len(), 40);
    let read = |more: &[&str]| {
        let (_, summary) = groups(&[&[&folder, "--every", "1h"], more].concat(), &[]);
        ["records", "files", "files_skipped", "row_groups_skipped", "row_groups_empty", "rows_read"]
            .map(|name| if name == "records" { &summary["query"][name] } else { &summary[name] }.as_u64().unwrap())
    };
    assert_eq!(read(&[]), [40, 40, 0, 0, 0, 40]);
    let until = (FIRST_HOUR + 10) * 3600;
    assert_eq!(read(&["--until", &until.to_string()]), [10, 10, 30, 0, 0, 10], "by folder name");
    let since = (FIRST_HOUR + 30) * 3600;
    // Records of the day before can last that long.
    assert_eq!(read(&["--since", &since.to_string()]), [10, 34, 6, 24, 0, 10], "by statistics of the last packets");
    assert_eq!(read(&["src host 10.0.0.7"]), [1, 40, 0, 39, 0, 1], "by minimum and maximum address");
    assert_eq!(read(&["src net 10.0.0.8/29"]), [8, 40, 0, 0, 32, 40], "by the address column");
    let bytes = |more: &[&str]| {
        let (_, summary) = groups(&[&[&folder, "--every", "1h"], more].concat(), &[]);
        ["bytes_read", "bytes"].map(|name| summary[name].as_u64().unwrap())
    };
    let ([all, of], [some, same]) = (bytes(&[]), bytes(&["--until", &until.to_string()]));
    assert!(0 < some && some < all / 3, "{some} {all} {of}");
    assert_eq!((of, of), (same, files(folder.as_ref()).iter().map(|file| file.metadata().unwrap().len()).sum()));
    assert_eq!(read(&["bytes > 1M"]), [0, 40, 0, 40, 0, 0], "by statistics");
    assert_eq!(read(&["not bytes > 1M"]), [40, 40, 0, 0, 0, 40]);
    let text = run(&["query", &folder, "src", "host", "10.0.0.7"]).good().output;
    assert!(text.contains("1 of 40 records matched") && text.contains("40 of 40 files, 1 of 40 row groups"), "{text}");
}

/// A filter of a column that no record has a value of cannot match: the report names it.
#[test]
fn columns_without_a_value_are_named() {
    let scratch = Scratch::new();
    let (capture, folder) = (scratch.file("hours.pcap"), scratch.file("flows/"));
    std::fs::write(&capture, hours(3)).unwrap();
    run(&["flows", "-q", "-r", &capture, "-w", &folder]).good();
    let text = run(&["query", &folder, "tcp_state = S0"]).good().output;
    assert!(text.starts_with("0 of 3 records matched"), "{text}");
    assert!(text.contains("no record has a value of tcp_state (recorded with flows --level tcp)\n"), "{text}");
    let text = run(&["query", &folder, "--by", "tls_server_name"]).good().output;
    assert!(text.contains("no record has a value of tls_server_name (recorded with flows --names)\n"), "{text}");
    let (_, summary) = groups(&[&folder, "tcp_state = S0 or tls_server_name ~ example"], &[]);
    assert_eq!(summary["absent"], serde_json::json!(["tcp_state", "tls_server_name"]));
}

/// JSON and CSV list the first records; a note states how many there are.
#[test]
fn unlisted_records_are_noted() {
    let scratch = Scratch::new();
    let (capture, folder) = (scratch.file("hours.pcap"), scratch.file("flows/"));
    std::fs::write(&capture, hours(30)).unwrap();
    run(&["flows", "-q", "-r", &capture, "-w", &folder]).good();
    for form in ["--csv", "--json"] {
        run(&["query", &folder, form])
            .good()
            .says("10 of 30 records listed; --top N lists more, -w FILE.csv writes all");
        assert_eq!(run(&["query", &folder, form, "--top", "40"]).good().errors, "");
    }
    // A time as in records: nanoseconds.
    let since = FIRST_HOUR * 3600 * 1_000_000_000;
    let (_, summary) = groups(&[&folder, "--by", "protocol", "--since", &since.to_string()], &[]);
    assert_eq!(summary["query"]["records"], 30);
}

const FIRST_HOUR: u64 = 460_000;

/// Builds a capture with one packet per hour, each from another host.
fn hours(count: u32) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1].iter().flat_map(|word| word.to_le_bytes()).collect();
    for number in 0..count {
        let ends = [10u32 << 24 | number, 11 << 24].map(u32::to_be_bytes).concat();
        let headers = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        let packet = [&headers[..], &ends, &[0, 1, 0, 2, 0, 8, 0, 0]].concat();
        let length = packet.len() as u32;
        for word in [(FIRST_HOUR as u32 + number) * 3600 + 5, 0, length, length] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(packet);
    }
    bytes
}

/// Stored records converted to another format equal records written in it directly.
#[test]
fn stored_records_are_written_in_every_format() {
    let Some(capture) = corpus(MIX) else { return };
    let capture = capture.to_str().unwrap();
    let scratch = Scratch::new();
    let sorted = |path: &Path| {
        let mut lines: Vec<String> = std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect();
        lines.retain(|line| !line.starts_with("#open") && !line.starts_with("#close"));
        lines.sort_unstable();
        lines
    };
    let parquet = scratch.file("all.parquet");
    let level = ["--level", "stats", "--id-seed", "t"];
    run(&[&["flows", "-q", "-r", capture, "-w", &parquet], &level[..]].concat()).good();
    for name in ["flows.jsonl", "flows.csv", "conn.log", "conn.tsv"] {
        let [own, other] = ["own-", "other-"].map(|kind| PathBuf::from(scratch.file(&format!("{kind}{name}"))));
        run(&[&["flows", "-q", "-r", capture, "-w", own.to_str().unwrap()], &level[..]].concat()).good();
        run(&["query", "-q", &parquet, "-w", other.to_str().unwrap()]).good();
        assert!(sorted(&own) == sorted(&other), "{name}");
    }
    let [tcp, folder] = ["tcp.jsonl", "tcp/"].map(|name| scratch.file(name));
    let shown = run(&["query", &parquet, "-w", &tcp, "-w", &folder, "tcp", "and", "bytes > 500"]).good().output;
    let lines = std::fs::read_to_string(&tcp).unwrap();
    let own: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(own.len() > 10 && own.iter().all(|flow| flow["protocol"] == 6), "{shown}");
    let (_, summary) = groups(&[&folder, "--by", "protocol"], &[]);
    assert_eq!(summary["query"]["records"], own.len());
    run(&["query", &folder, "-w", &folder, "--append"]).with_status(2).says("inside the input");
}

/// Lists the first records by time or the largest ones, as text, JSON lines and CSV.
#[test]
fn records_are_listed_by_time_or_by_size() {
    let scratch = Scratch::new();
    let [capture, folder] = ["in.pcap", "flows/"].map(|name| scratch.file(name));
    records::write(&capture, &frames::sample());
    run(&["flows", "-q", "-r", &capture, "-w", &folder]).good();
    let list = |more: &[&str]| -> Vec<Value> {
        let ended = run(&[&["query", &folder, "--json"], more].concat()).good();
        let mut lines: Vec<Value> = ended.output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.pop().unwrap()["schema"], "linerate/query/1");
        assert!(lines.iter().all(|line| line["schema"] == "linerate/flow/1"));
        lines
    };
    let times: Vec<u64> = list(&[]).iter().map(|line| line["first_time_ns"].as_u64().unwrap()).collect();
    assert!(times.len() > 2 && times.is_sorted(), "{times:?}");
    assert_eq!(list(&["--sort", "time"]), list(&[]));
    let bytes =
        |line: &Value| line["orig"]["frame_bytes"].as_u64().unwrap() + line["resp"]["frame_bytes"].as_u64().unwrap();
    let sizes: Vec<u64> = list(&["--sort", "bytes", "--top", "3"]).iter().map(bytes).collect();
    assert!(sizes.len() == 3 && sizes.is_sorted_by(|one, other| one >= other), "{sizes:?}");
    assert_eq!(list(&["host", "203.0.113.99"]), Vec::<Value>::new());
    let csv = run(&["query", &folder, "--csv", "--top", "2"]).good().output;
    assert!(csv.starts_with("id,community_id,first_time,") && csv.lines().count() == 3, "{csv}");
    let text = run(&["query", &folder]).good().output;
    assert!(text.contains("records ") && text.contains("UDP"), "{text}");
}

#[test]
fn options_without_effect_are_rejected() {
    let scratch = Scratch::new();
    let [capture, folder] = ["in.pcap", "flows/"].map(|name| scratch.file(name));
    records::write(&capture, &frames::sample());
    run(&["flows", "-q", "-r", &capture, "-w", &folder]).good();
    let wrong: [(&[&str], &str); 19] = [
        (
            &["flows", "-r", &capture, "--by", "port", "--csv", "-w", "-"],
            "--csv and --write - both use standard output",
        ),
        (&["query", &folder, "--by", "address", "--sort", "time"], "groups have no time; --every 1h adds it"),
        (&["query", &folder, "-w", "a.jsonl", "--workers", "2"], "--workers has no effect with --write"),
        (&["query", &folder, "-q", "-w", "a.jsonl", "--by", "port"], "--by has no effect with --quiet"),
        (&["flows", "-r", &capture, "--since", "-1h"], "--since: not an option here; linerate find FILE --since T"),
        (
            &["flows", "-r", &capture, "--by", "tls.server_name"],
            "--by, --sum, --sort: tls_server_name needs --names all",
        ),
        (&["flows", "-r", &capture, "--by", "tcp.state"], "--by, --sum, --sort: tcp_state needs --level tcp"),
        (&["flows", "-r", &capture, "--csv"], "--csv needs --by or --every"),
        (&["flows", "-r", &capture, "--sum", "bytes"], "--sum needs --by or --every"),
        (&["flows", "-r", &capture, "--sort", "bps"], "flows are sorted by bytes or packets"),
        (&["flows", "-r", &capture, "--by", "port", "--plot", "a.svg"], "--plot needs --every"),
        (&["flows", "-r", &capture, "-w", "null", "--top", "1000001"], "--top 1000001: too many"),
        (&["query", &folder, "--level", "tcp"], "--level: no such option"),
        (&["query", &folder, "byts > 5"], "filter, at character 1, \"byts > 5\": byts: no such keyword"),
        (&["query", &folder, "--since", "2026-01-02", "--until", "2026-01-01"], "--until must be after --since"),
        (&["query", &folder, "--every", "0"], "--every: 0: invalid time step; examples: 10, 5m, 1h"),
        (&["query", &folder, "--by", "adress"], "--by: adress: no such field (did you mean address?)"),
        (&["query", &folder, "--every", "1m", "--top", "3"], "--top needs --by with --every"),
        (&["flows", "-i", &folder], "linerate query"),
    ];
    for (arguments, expected) in wrong {
        run(arguments).with_status(2).says(expected);
    }
}
