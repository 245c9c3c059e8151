//! Sensors that send flow records to a broker and to a database: by the real program, beside a broker and a database of tests.
//!
//! What happens to records when processes die in the middle of anything is tried a thousand times in the tests of `linerate-records`
//! (`export/ship/tests.rs`), with the same broker and database; here processes are really killed. `scripts/fleet` does it with those of others.

#[allow(dead_code, reason = "tests of records use the rest")]
pub(crate) mod broker;
#[allow(dead_code, reason = "tests of records use the rest")]
pub(crate) mod store;

use broker::{Broker, Message};
use linerate_tests::support::program::{Ended, linerate, program, run, spawn};
use linerate_tests::support::{Scratch, corpus, files, has_tools, is_root, lack, skip, wait_until};
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

/// A capture file that has only begun.
const HEADER: [u32; 6] = [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1];

/// Flows of one packet, a millisecond apart, from a number on, as what follows in a capture file.
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

/// Writes flows to a program until it is gone.
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

/// Each record once, and each batch of each run whole, by what records say themselves; how many of them there are.
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

/// The same records come to both as to a file, with sums equal, whatever is asked for.
#[test]
fn a_broker_and_a_database_get_what_a_file_gets() {
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
fn what_is_meant_is_said_and_the_rest_refused() {
    let scratch = Scratch::new();
    let capture = scratch.file("few.pcap");
    std::fs::write(&capture, capture_of(3)).unwrap();
    let spool = format!("spool={}", scratch.file("spool"));
    for (more, says) in [
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
        let ended = run(&[&["flows", "-r", &capture][..], more].concat()).with_status(2).says(says);
        assert!(!ended.errors.contains("u:secret@") || says.contains("password"), "{}", ended.errors);
    }
    assert_eq!(scratch.names(), ["few.pcap"]);
    let secret = scratch.file("secret");
    std::fs::write(&secret, "secret\n").unwrap();
    std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o644)).unwrap();
    let ship = format!("{spool},password={secret}");
    let says = format!("{secret}: password file is world-readable; run chmod o= {secret}");
    let ended = run(&["flows", "-r", &capture, "-w", "clickhouse+https://u@h/t", "--ship", &ship]);
    assert!(ended.with_status(1).errors.contains(&says));
}

/// A broker that has the password by its hash alone lets us in, and nobody with another one.
#[test]
fn one_signs_in_by_scram() {
    let (scratch, broker) = (Scratch::new(), Broker::start("t", 1, |_| broker::Mood::Good));
    broker.sign_in_by_scram("bob", "to be kept");
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
    assert_eq!((each_once(&lines), broker.problems()), (90, vec![]), "those of the runs before came as well");
}

/// A batch that was set aside goes to a table that takes it, once it has its name again.
#[test]
fn what_was_set_aside_is_sent_as_records_that_are_stored() {
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

/// Records wait for one who is away, over runs; what is not delivered is said, and the exit status says it too.
#[test]
fn a_broker_that_is_away_gets_all_of_it_later() {
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

/// The sensor is killed again and again while the broker loses answers; what it had spooled is there once.
#[test]
fn a_killed_sensor_loses_what_it_had_in_memory_and_doubles_nothing() {
    const KILLS: u32 = 12;
    let (scratch, asked) = (Scratch::new(), Arc::new(AtomicU32::new(0)));
    // Scattered: after a cut some questions come in between, and each batch could meet the next one.
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
        wait_until("something has come", || broker.messages().len() > before + 30 * kill as usize % 200);
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
fn a_spool_that_is_full_by_its_disk_is_named_and_the_run_goes_on() {
    if !is_root() {
        return skip("a tmpfs can only be mounted by root; a full disk was not tried");
    }
    let scratch = Scratch::new();
    let [tiny, capture] = ["tiny", "many.pcap"].map(|name| scratch.file(name));
    std::fs::create_dir(&tiny).unwrap();
    std::fs::write(&capture, capture_of(60_000)).unwrap();
    // Port 1 is nobody's.
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
fn two_runs_do_not_share_a_spool_and_how_far_it_is_behind_can_be_scraped() {
    let scratch = Scratch::new();
    let spool = format!("spool={},rows=100,age=0.05,end=0", scratch.file("spool"));
    let arguments = ["flows", "-r", "-", "--idle", "0.01", "-w", "kafka://127.0.0.1:1/t", "--ship", &spool];
    let mut command = linerate(&arguments);
    let mut running = spawn(command.args(["--metrics", "127.0.0.1:0"]).stdin(Stdio::piped()).stdout(Stdio::null()));
    let heard = running.hear();
    let feeder = feed(running.take_input().unwrap());
    let address = || Some(heard.lock().unwrap().split("http://").nth(1)?.split_once("/metrics")?.0.to_owned());
    wait_until("the address is said", || address().is_some());
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
    wait_until("records wait", || sample(&page(), "linerate_spool_records").is_some_and(|records| records >= 1000));
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
    wait_until("it is said that nobody is there", || heard.lock().unwrap().contains("Connection refused"));
    running.signal(Signal::KILL);
    drop(running.end());
    feeder.join().unwrap();
}

/// What stands in the spool is what DuckDB and ClickHouse read.
#[test]
fn a_batch_is_a_file_of_parquet() {
    if !has_tools(&["python3"]) {
        return;
    }
    let Some(capture) = corpus("real-mix.pcap") else { return };
    let python = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/python/bin/python");
    if !python.exists() {
        return lack("target/python has no DuckDB and ClickHouse");
    }
    let (scratch, mut in_messages) = (Scratch::new(), 0);
    let spool = scratch.file("spool");
    let broker = Broker::start("t", 2, |_| broker::Mood::Good);
    for (target, end) in [("clickhouse://127.0.0.1:1/t", 0), (&*format!("kafka://127.0.0.1:{}/t", broker.port), 30)] {
        let ship = format!("spool={spool},end={end},rows=300,sensor=a");
        run(&["flows", "-r", capture.to_str().unwrap(), "-w", target, "--ship", &ship, "-q"]).good();
    }
    // Messages of the topic, as they lie there, beside what is spooled for the database.
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
