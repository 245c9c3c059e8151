//! Sensors that send flow records to a broker and to a database: the real program with a test broker and database.
//!
//! The tests of `linerate-records` (`export/ship/tests.rs`) simulate crashes at a thousand points with the same broker
//! and database. Here processes are really killed. `scripts/fleet` runs Kafka and ClickHouse themselves.

#[allow(dead_code, reason = "tests of records use the rest")]
pub(crate) mod broker;
#[allow(dead_code, reason = "tests of records use the rest")]
pub(crate) mod store;

use broker::{Broker, Message};
use linerate_tests::support::program::{Ended, linerate, program, run, spawn};
use linerate_tests::support::{Scratch, corpus, files, has_peer, has_tools, is_root, skip, wait_until};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use store::Store;

/// Header of a capture file.
const HEADER: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1];

/// Capture records of one-packet flows, 1 ms apart.
fn packets(numbers: std::ops::Range<u32>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for number in numbers {
        let ends = [10u32 << 24 | number, 11 << 24].map(u32::to_be_bytes).concat();
        let headers = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0];
        let packet = [&headers[..], &ends, &[0, 1, 0, 2, 0, 8, 0, 0]].concat();
        for word in [1_700_000_000 + number / 1000, number % 1000 * 1000, packet.len() as u32, packet.len() as u32] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(packet);
    }
    bytes
}

fn capture_of(count: u32) -> Vec<u8> {
    HEADER.iter().flat_map(|word| word.to_le_bytes()).chain(packets(0..count)).collect()
}

/// Writes flows to a program until its pipe closes.
fn feed(mut input: impl Write + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut bytes = capture_of(0);
        for number in 0.. {
            bytes.extend(packets(number * 100..number * 100 + 100));
            match input.write_all(&bytes) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return,
                result => result.unwrap(),
            }
            bytes.clear();
            std::thread::sleep(Duration::from_millis(2));
        }
    })
}

fn line(message: &Message) -> Value {
    serde_json::from_slice(&message.value).unwrap()
}

/// Checks by their own numbers that each record exists once and each batch is complete; returns the number of records.
fn each_once(lines: &[Value]) -> usize {
    let mut runs: BTreeMap<(&str, &str), BTreeMap<u64, BTreeSet<u64>>> = BTreeMap::new();
    for line in lines {
        let of = |name: &str| line[name].as_u64().unwrap();
        let run = (line["sensor"].as_str().unwrap(), line["run"].as_str().unwrap());
        assert!(runs.entry(run).or_default().entry(of("batch")).or_default().insert(of("row")), "twice: {line}");
    }
    for (run, batches) in &runs {
        for (expected, (batch, rows)) in batches.iter().enumerate() {
            assert_eq!(expected as u64, *batch, "a batch of {run:?} is not there");
            assert_eq!(rows.last().map(|last| last + 1), Some(rows.len() as u64), "rows of {run:?} {batch}");
        }
    }
    lines.len()
}

/// The account of a stage, for a target.
fn account<'a>(summary: &'a Value, stage: &str, subject: &str) -> &'a Value {
    let accounts = summary["accounts"].as_array().unwrap();
    accounts.iter().find(|account| account["stage"] == stage && account["subject"] == subject).unwrap()
}

/// Broker and database receive the same records as a file, with equal sums.
#[test]
fn broker_and_database_receive_the_records_of_a_file() {
    let Some(capture) = corpus("real-mix.pcap") else { return };
    let (scratch, broker, store) =
        (Scratch::new(), Broker::start("t", 3, |_| broker::Mood::Good), Store::start(|| store::Mood::Good));
    let [file, spool, secret] = ["flows.jsonl", "spool", "secret"].map(|name| scratch.file(name));
    std::fs::write(&secret, "a b c\nnot this\n").unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
    let kafka = format!("kafka://127.0.0.1:1,127.0.0.1:{}/t", broker.port);
    let clickhouse = format!("clickhouse://ann@127.0.0.1:{}/net.flows", store.port);
    let ship = format!("spool={spool},sensor=lab-1,end=30,rows=1000,password={secret}");
    let common = ["flows", "-r", capture.to_str().unwrap(), "--level", "tcp", "--id-seed", "t", "--json"];
    let lines_of = |more: &[&str]| {
        let summary = run(&[&common[..], more].concat()).good().json();
        assert_eq!((&summary["records_lost"], &summary["balanced"]), (&0.into(), &true.into()));
        summary
    };
    let summary = lines_of(&["-w", &kafka, "-w", &file, "--format", "jsonl", "--ship", &ship]);
    let wanted: Vec<Value> =
        std::fs::read_to_string(&file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let mut lines: Vec<Value> = broker.messages().iter().map(line).collect();
    assert_eq!(each_once(&lines), wanted.len());
    let of = account(&summary, "deliver", &kafka);
    assert_eq!(
        (&of["received"], &of["delivered"], &of["notes"]["maybe_duplicated"]),
        (&wanted.len().into(), &wanted.len().into(), &0.into())
    );
    let text = |lines: &mut Vec<Value>| {
        for line in lines.iter_mut().map(|line| line.as_object_mut().unwrap()) {
            ["sensor", "run", "batch", "row"].iter().for_each(|name| drop(line.remove(*name)));
        }
        lines.sort_by_cached_key(Value::to_string);
        lines.clone()
    };
    assert_eq!(text(&mut lines), text(&mut wanted.clone()));

    let summary = lines_of(&["-w", &clickhouse, "--ship", &ship]);
    assert_eq!(account(&summary, "deliver", &clickhouse)["delivered"], wanted.len());
    let inserts = store.inserts();
    let sum = |name: &str| wanted.iter().map(|line| line["orig"][name].as_u64().unwrap()).sum::<u64>();
    let (mut rows, mut bytes) = (0, 0);
    for insert in &inserts {
        assert_eq!((insert.user.as_deref(), insert.password.as_deref()), (Some("ann"), Some("a b c")));
        assert!(insert.query["query"].starts_with("INSERT%20INTO%20%60net%60.%60flows%60%20FORMAT%20Parquet"));
        assert_eq!((&*insert.query["async_insert"], &*insert.query["insert_deduplicate"]), ("0", "1"));
        assert_eq!(insert.query["insert_deduplication_token"].find('-'), Some(16));
        let path = scratch.file("batch.parquet");
        std::fs::write(&path, &insert.body).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(std::fs::File::open(&path).unwrap()).unwrap();
        assert!(reader.schema().field_with_name("community_id").is_err(), "any store computes it");
        for batch in reader.build().unwrap().map(Result::unwrap) {
            use arrow_array::{cast::AsArray, types::UInt64Type};
            rows += batch.num_rows();
            bytes += batch["orig_frame_bytes"].as_primitive::<UInt64Type>().values().iter().sum::<u64>();
            assert_eq!(batch["sensor"].as_string::<i32>().value(0), "lab-1");
        }
    }
    assert_eq!((rows, bytes), (wanted.len(), sum("frame_bytes")));
    assert_eq!(files(std::path::Path::new(&spool)).len(), 4, "a lock and a journal each");
}

#[test]
fn invalid_targets_and_ship_options_are_rejected() {
    let scratch = Scratch::new();
    let capture = scratch.file("few.pcap");
    std::fs::write(&capture, capture_of(3)).unwrap();
    let spool = format!("spool={}", scratch.file("spool"));
    for (more, error) in [
        (&["-w", "kafka://h/t"][..], "set --ship spool=DIR"),
        (&["-w", "kafka://h/", "--ship", &spool], "invalid topic"),
        (&["-w", "kafka://u@h/t", "--ship", &spool], "Kafka SASL needs a user"),
        (&["-w", "kafka://h/t", "--ship", &format!("{spool},sasl=plain")], "Kafka SASL needs a user"),
        (&["-w", "kafka://u@h/t", "--ship", &format!("{spool},sasl=plain")], "sends the password in clear text"),
        (&["-w", "clickhouse://u@h/t", "--ship", &format!("{spool},sasl=plain")], "sasl= applies only to Kafka"),
        (&["-w", "kafka://h/t", "--ship", &spool, "--tls", "ca=a"], "--tls needs a TLS target"),
        (&["-w", "kafka+tls://h/t", "--ship", &spool, "--tls", "a"], "expected ca=FILE"),
        (&["-w", "a.csv", "--export-threads", "2"], "--export-threads needs a Parquet, kafka://"),
        (&["-w", "clickhouse://h/a.b.c", "--ship", &spool], "invalid table"),
        (&["-w", "clickhouse://u:secret@h/t", "--ship", &spool], "--ship password=FILE"),
        (&["-w", "clickhouse://h/t", "--format", "csv", "--ship", &spool], "unsupported format for ClickHouse"),
        (&["-w", "kafka://h/t", "--format", "zeek", "--ship", &spool], "expected parquet, jsonl"),
        (&["-w", "kafka://h/t", "--compress", "zstd", "--ship", &spool], "--compress needs a file"),
        (&["-w", "a.jsonl", "--ship", &spool], "--ship needs a kafka://"),
        (&["-w", "kafka://h/t", "--ship", "spool"], "expected one of spool=DIR"),
    ] {
        let ended = run(&[&["flows", "-r", &capture][..], more].concat()).with_status(2).says(error);
        assert!(!ended.errors.contains("u:secret@") || error.contains("password"), "{}", ended.errors);
    }
    assert_eq!(scratch.names(), ["few.pcap"]);
    let secret = scratch.file("secret");
    std::fs::write(&secret, "secret\n").unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o644)).unwrap();
    let ship = format!("{spool},password={secret}");
    let error = format!("{secret}: password file is world-readable; run chmod o= {secret}");
    let ended = run(&["flows", "-r", &capture, "-w", "clickhouse+https://u@h/t", "--ship", &ship]);
    assert!(ended.with_status(1).errors.contains(&error));
}

/// SCRAM succeeds with the right password only; the broker stores only its hash.
#[test]
fn scram_login_needs_the_right_password() {
    let (scratch, broker) = (Scratch::new(), Broker::start("t", 1, |_| broker::Mood::Good));
    broker.require_scram("bob", "to be kept");
    let [capture, spool, secret] = ["few.pcap", "spool", "secret"].map(|name| scratch.file(name));
    std::fs::write(&capture, capture_of(30)).unwrap();
    let target = format!("kafka://bob@127.0.0.1:{}/t", broker.port);
    let send = |password: &str, sasl: &str| {
        std::fs::write(&secret, password).unwrap();
        std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
        let ship = format!("spool={spool},end=30,sasl={sasl},password={secret}");
        run(&["flows", "-r", &capture, "-w", &target, "--format", "jsonl", "--ship", &ship])
    };
    drop(send("another", "scram-sha-256").with_status(1).says("check the password"));
    drop(send("to be kept", "scram-sha-512").with_status(1).says("only SCRAM-SHA-256"));
    drop(send("to be kept", "scram-sha-256").good());
    let lines: Vec<Value> = broker.messages().iter().map(line).collect();
    assert_eq!((each_once(&lines), broker.problems()), (90, vec![]), "including the records of the failed runs");
}

/// A rejected batch that was set aside can be sent again once it has its Parquet name.
#[test]
fn rejected_batches_can_be_sent_again() {
    let scratch = Scratch::new();
    let mut asked = 0;
    let store = Store::start(move || {
        asked += 1;
        if asked == 1 { store::Mood::Error(33) } else { store::Mood::Good }
    });
    let [capture, spool, refused] = ["few.pcap", "spool", "refused"].map(|name| scratch.file(name));
    std::fs::write(&capture, capture_of(30)).unwrap();
    std::fs::create_dir(&refused).unwrap();
    let target = format!("clickhouse://127.0.0.1:{}/t", store.port);
    let send = |from: &[&str]| {
        let ship = format!("spool={spool},end=30");
        run(&[from, &["-w", &target, "--ship", &ship, "--json"]].concat())
    };
    drop(send(&["flows", "-r", &capture]).good());
    let is_aside = |path: &std::path::PathBuf| path.to_string_lossy().ends_with(".parquet.refused");
    let aside: Vec<_> = files(std::path::Path::new(&spool)).into_iter().filter(is_aside).collect();
    assert_eq!((aside.len(), store.inserts().len()), (1, 0));
    std::fs::rename(&aside[0], format!("{refused}/a.parquet")).unwrap();
    let summary = send(&["query", &refused]).good().json();
    assert_eq!(account(&summary, "deliver", &target)["delivered"], 30, "{summary}");
    assert_eq!(store.inserts().len(), 1);
}

/// Records for an unreachable broker are kept across runs; output and exit status report undelivered records.
#[test]
fn spooled_records_are_delivered_by_a_later_run() {
    let (scratch, broker) = (Scratch::new(), Broker::start("t", 2, |_| broker::Mood::Good));
    let [capture, spool] = ["few.pcap", "spool"].map(|name| scratch.file(name));
    std::fs::write(&capture, capture_of(300)).unwrap();
    let target = format!("kafka://127.0.0.1:{}/t", broker.port);
    broker.down(Duration::from_secs(1000));
    let once = |ship: &str| {
        let ship = format!("spool={spool},{ship}");
        run(&["flows", "-r", &capture, "-w", &target, "--format", "jsonl", "--ship", &ship, "--lossless"])
    };
    let shown = once("end=0.1").with_status(3).output;
    assert!(shown.contains(&format!("  300 records spooled for {target}\n")), "{shown}");
    assert!(shown.contains("300 in the spool, to be sent by the next run to this target\n"), "{shown}");
    broker.down(Duration::ZERO);
    let ended = once("end=30").good();
    assert!(ended.errors.contains("sending 300 records in 1 batch of an earlier run first"), "{}", ended.errors);
    assert!(ended.output.contains("600 delivered, including earlier runs, in 2 batches"), "{}", ended.output);
    let lines: Vec<Value> = broker.messages().iter().map(line).collect();
    assert_eq!(each_once(&lines), 600);
}

/// The sensor is killed repeatedly while the broker loses answers; each spooled record arrives exactly once.
#[test]
fn killed_sensor_delivers_spooled_records_exactly_once() {
    const KILLS: u32 = 12;
    let (scratch, asked) = (Scratch::new(), Arc::new(AtomicU32::new(0)));
    // Scattered: with a fixed period, requests after a cut could align each batch with the next cut.
    let dice = |number: u32| number.wrapping_mul(0x9e37_79b1) >> 24;
    let broker = Broker::start("t", 2, move |key| match (key, dice(asked.fetch_add(1, Ordering::Relaxed))) {
        (0, 0..32) => broker::Mood::CutAfter,
        (0, 32..64) => broker::Mood::Slow(20),
        _ => broker::Mood::Good,
    });
    let spool = scratch.file("spool");
    let target = format!("kafka://127.0.0.1:{}/t", broker.port);
    let ship = format!("spool={spool},rows=50,age=0.02,end=120");
    let arguments =
        ["flows", "-r", "-", "--idle", "0.05", "-w", &target, "--format", "jsonl", "--ship", &ship, "--json"];
    for kill in 0..KILLS {
        let mut running = spawn(linerate(&arguments).stdin(Stdio::piped()).stdout(Stdio::null()));
        let input = running.take_input().unwrap();
        let before = broker.messages().len();
        let feeder = feed(input);
        wait_until("messages arrive", || broker.messages().len() > before + 30 * kill as usize % 200);
        running.signal(Signal::KILL);
        let _ = running.end();
        feeder.join().unwrap();
    }
    let mut running = spawn(linerate(&arguments).stdin(Stdio::piped()).stdout(Stdio::piped()));
    running.take_input().unwrap().write_all(&capture_of(9)).unwrap();
    let summary = running.end().good().json();
    let of = account(&summary, "deliver", &target);
    assert_eq!((&of["drops"]["waiting"], &of["notes"]["maybe_duplicated"]), (&0.into(), &0.into()), "{of}");
    let lines: Vec<Value> = broker.messages().iter().map(line).collect();
    assert!(each_once(&lines) > 30 * KILLS as usize);
    assert_eq!(broker.problems(), [""; 0]);
    let runs: BTreeSet<&str> = lines.iter().map(|line| line["run"].as_str().unwrap()).collect();
    assert!(runs.len() > 4, "{} runs", runs.len());
}

#[test]
fn full_spool_disk_is_reported_and_the_run_continues() {
    if !is_root() {
        return skip("a tmpfs can only be mounted by root; a full disk was not tested");
    }
    let scratch = Scratch::new();
    let [tiny, capture] = ["tiny", "many.pcap"].map(|name| scratch.file(name));
    std::fs::create_dir(&tiny).unwrap();
    std::fs::write(&capture, capture_of(60_000)).unwrap();
    // No process listens on port 1.
    let script = r#"mount -t tmpfs -o size=800k none "$1" || exit 77
        exec "$2" flows -r "$3" -w clickhouse://127.0.0.1:1/t --ship "rowbinary,spool=$1,rows=1000,end=0" --json"#;
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", script, "sh", &tiny]).arg(program()).arg(&capture);
    command.env_remove("SUDO_UID").env_remove("SUDO_GID");
    let ended = Ended::of(command.output().unwrap()).good();
    let summary = ended.json();
    let of = account(&summary, "deliver", "clickhouse://127.0.0.1:1/t");
    let (dropped, waiting) = (of["drops"]["spool_dropped"].as_u64().unwrap(), of["drops"]["waiting"].as_u64().unwrap());
    assert!(dropped > 30_000 && waiting > 1000 && dropped + waiting == 60_000, "{of}");
    assert!(ended.errors.contains(": spool full; dropped the "), "{}", ended.errors);
    assert_eq!(summary["balanced"], true);
}

#[test]
fn spool_is_exclusive_and_its_backlog_is_in_the_metrics() {
    let scratch = Scratch::new();
    let spool = format!("spool={},rows=100,age=0.05,end=0", scratch.file("spool"));
    let arguments = ["flows", "-r", "-", "--idle", "0.01", "-w", "kafka://127.0.0.1:1/t", "--ship", &spool];
    let mut command = linerate(&arguments);
    let mut running = spawn(command.args(["--metrics", "127.0.0.1:0"]).stdin(Stdio::piped()).stdout(Stdio::null()));
    let log = running.collect_errors();
    let feeder = feed(running.take_input().unwrap());
    let address = || Some(log.lock().unwrap().split("http://").nth(1)?.split_once("/metrics")?.0.to_owned());
    wait_until("the metrics address is printed", || address().is_some());
    let address = address().unwrap();
    let page = || {
        let mut connection = TcpStream::connect(&address).unwrap();
        connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        connection.read_to_string(&mut page).unwrap();
        page
    };
    let sample = |page: &str, name: &str| {
        let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|value| value.parse::<u64>().unwrap())
    };
    wait_until("records are spooled", || {
        sample(&page(), "linerate_spool_records").is_some_and(|records| records >= 1000)
    });
    let page = page();
    assert!(
        sample(&page, "linerate_spool_batches").unwrap() >= 10 && sample(&page, "linerate_spool_bytes").unwrap() > 1000
    );
    assert_eq!(
        (sample(&page, "linerate_shipped_records_total"), sample(&page, "linerate_shipping_lost_records_total")),
        (Some(0), Some(0))
    );
    let mut second = linerate(&arguments);
    drop(Ended::of(second.stdin(Stdio::null()).output().unwrap()).with_status(1).says("another run uses this spool"));
    wait_until("the connection error is reported", || log.lock().unwrap().contains("Connection refused"));
    running.signal(Signal::KILL);
    drop(running.end());
    feeder.join().unwrap();
}

/// DuckDB and ClickHouse read the spooled batches.
#[test]
fn batch_is_a_parquet_file() {
    if !has_tools(&["python3"]) {
        return;
    }
    let Some(capture) = corpus("real-mix.pcap") else { return };
    let python = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/python/bin/python");
    if !has_peer(python.exists(), "DuckDB and ClickHouse in target/python") {
        return;
    }
    let (scratch, mut in_messages) = (Scratch::new(), 0);
    let spool = scratch.file("spool");
    let broker = Broker::start("t", 2, |_| broker::Mood::Good);
    for (target, end) in [("clickhouse://127.0.0.1:1/t", 0), (&*format!("kafka://127.0.0.1:{}/t", broker.port), 30)] {
        let ship = format!("spool={spool},end={end},rows=300,sensor=a");
        run(&["flows", "-r", capture.to_str().unwrap(), "-w", target, "--ship", &ship, "-q"]).good();
    }
    // Messages of the topic, next to the batches spooled for the database.
    std::fs::create_dir(format!("{spool}/messages")).unwrap();
    for (number, message) in broker.messages().iter().enumerate() {
        std::fs::write(format!("{spool}/messages/{number}.parquet"), &message.value).unwrap();
        in_messages += message.headers["rows"].parse::<u64>().unwrap();
    }
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/guide/fleet.md")).unwrap();
    let tables = page.split("```sql\n").nth(1).unwrap().split("```").next().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/fleet/read.py");
    let output = Command::new(python).args([script, &spool, tables]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&read["duckdb"], &read["once"]), (&read["clickhouse"], &true.into()), "{read}");
    assert!(in_messages > 1000 && read["duckdb"][0] == 2 * in_messages, "{read} {in_messages}");
}
