//! Batches that are set aside, dropped, delayed or damaged are reported by name and counted.

use super::super::open;
use super::broker::{self, Broker};
use super::store::{self, Store};
use super::{flows, ledger, of_broker, of_store, options, scratch};
use crate::encode::Format;
use crate::export::{Ending, Exporter, Options};
use linerate_burst::{Count, Nanos};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

/// A Parquet file is one message; without Parquet each record is one.
#[cfg(feature = "parquet")]
#[test]
fn messages_have_the_origin_of_their_records() {
    let root = scratch("headers");
    let broker = Broker::start("flows-1", 3, |_| broker::Mood::Good);
    let target = format!("kafka://127.0.0.1:{}/flows-1", broker.port);
    let mut ship = open(&target, &options(&root, "rows=10", "")).unwrap();
    ship.write(&flows(0..95), Nanos(1)).unwrap();
    ship.finish(Ending::Complete).unwrap();
    let messages = broker.messages();
    assert_eq!((broker.counts().iter().sum::<usize>(), broker.counts().iter().max()), (10, Some(&4)), "round robin");
    let mut batches: Vec<&str> = messages.iter().map(|message| message.headers["batch"].as_str()).collect();
    batches.sort_unstable();
    assert_eq!(batches, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
    let rows: u64 = messages.iter().map(|message| message.headers["rows"].parse::<u64>().unwrap()).sum();
    assert_eq!(rows, 95);
    for message in &messages {
        assert_eq!((&*message.headers["schema"], &*message.headers["sensor"]), ("linerate/flow/1", "s"));
        assert_eq!((message.headers["run"].len(), &message.key), (16, &None));
        let is_parquet = message.value.starts_with(b"PAR1") && message.value.ends_with(b"PAR1");
        assert_eq!(is_parquet, message.headers["format"] == "parquet");
    }
    let ledger = ledger(&*ship);
    assert_eq!((ledger.total(Count::DeliverAcknowledged), ledger.total(Count::DeliverBatches)), (95, 10));
    assert_eq!((ledger.total(Count::Exported), ledger.total(Count::DeliverWaiting)), (95, 0));
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn lanes_keep_the_records_of_a_flow_in_one_partition() {
    let root = scratch("lanes");
    let broker = Broker::start("t", 4, |_| broker::Mood::Good);
    let target = format!("kafka://127.0.0.1:{}/t", broker.port);
    let mut ship = open(&target, &options(&root, "rows=100,lanes=4", "jsonl")).unwrap();
    for _ in 0..3 {
        ship.write(&flows(0..40), Nanos(1)).unwrap();
    }
    ship.finish(Ending::Complete).unwrap();
    assert_eq!(broker.counts(), [30; 4]);
    let mut of: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    broker.messages().into_iter().for_each(|message| *of.entry(message.key.unwrap()).or_default() += 1);
    assert!(of.len() == 40 && of.values().all(|count| *count == 3));
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn rejected_batches_are_set_aside_and_others_continue() {
    let root = scratch("refused");
    let (mut asked, mut inserts) = (0, 0);
    let broker = Broker::start("t", 1, move |key| {
        asked += u32::from(key == 0);
        if key == 0 && asked == 2 { broker::Mood::Error(87) } else { broker::Mood::Good }
    });
    let store = Store::start(move || {
        inserts += 1;
        if inserts == 2 { store::Mood::Error(33) } else { store::Mood::Good }
    });
    let targets = [format!("kafka://127.0.0.1:{}/t", broker.port), format!("clickhouse://127.0.0.1:{}/t", store.port)];
    for (target, more) in targets.iter().zip(["", "rowbinary,"]) {
        let format = if more.is_empty() { "jsonl" } else { "" };
        let mut ship = super::super::ship(target, &options(&root, &format!("{more}rows=10"), format)).unwrap();
        ship.write(&flows(0..40), Nanos(1)).unwrap();
        ship.finish(Ending::Complete).unwrap();
        let ledger = ledger(&ship);
        assert_eq!((ledger.total(Count::DeliverAcknowledged), ledger.total(Count::DeliverRefused)), (30, 10));
        assert!(ledger.imbalances().is_empty());
        let folder = ship.spool.path().to_path_buf();
        let kept: Vec<String> = std::fs::read_dir(&folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(
            kept.iter()
                .filter(|name| name.ends_with("-00000001.jsonl.refused") || name.ends_with(".rowbinary.refused"))
                .count(),
            1,
            "{kept:?}"
        );
    }
    assert_eq!((of_broker(&broker).len(), of_store(&store).len()), (30, 30));
    std::fs::remove_dir_all(root).unwrap();
}

/// A batch that is too long for a broker is split until it fits, whatever is in flight after it; only a single record
/// is set aside.
#[test]
fn long_batches_are_split() {
    // An empty Parquet file has 40 kB.
    for (format, rows, limit) in [("jsonl", 64, 6_000), ("parquet", 8192, 90_000), ("", 64, 700)] {
        let (more, all) = (if format.is_empty() { "rowbinary," } else { "" }, rows * 2);
        if Format::named(format).is_none() && more.is_empty() {
            continue;
        }
        let root = scratch(&format!("long-{format}"));
        let broker = Broker::start("t", 2, |_| broker::Mood::Good);
        broker.limit(limit);
        let target = format!("kafka://127.0.0.1:{}/t", broker.port);
        let options = options(&root, &format!("{more}rows={rows},end=60"), format);
        let mut ship = super::super::ship(&target, &options).unwrap();
        // Ids that do not compress.
        ship.write(&flows((0..all).map(|id: u64| id.wrapping_mul(0x9e37_79b9_7f4a_7c15))), Nanos(1)).unwrap();
        ship.finish(Ending::Complete).unwrap();
        let ledger = ledger(&ship);
        let (refused, there) = (ledger.total(Count::DeliverRefused), ledger.total(Count::DeliverAcknowledged));
        assert_eq!((refused, there, ledger.imbalances()), (0, all, vec![]), "{format}");
        assert_eq!((broker.problems(), ledger.total(Count::MaybeDuplicated)), (vec![], 0));
        let rows_of = |message: &broker::Message| message.headers["rows"].parse::<u64>().unwrap();
        let messages = broker.messages();
        if format == "jsonl" {
            let arrived = of_broker(&broker);
            assert!(arrived.len() as u64 == all && arrived.values().all(|times| *times == 1), "{arrived:?}");
        } else {
            assert_eq!(messages.iter().map(rows_of).sum::<u64>(), all, "{format}");
            assert!(messages.len() > 3 && messages.iter().all(|message| message.value.len() < limit));
        }
        let numbers: BTreeSet<&str> = messages.iter().map(|message| message.headers["batch"].as_str()).collect();
        assert!((2..messages.len()).contains(&numbers.len()), "parts have the number of their batch");
        assert!((ship.spool.most_rows() as u64) < rows, "later batches are shorter at once");
        std::fs::remove_dir_all(root).unwrap();
    }
    let root = scratch("long-one");
    let broker = Broker::start("t", 1, |_| broker::Mood::Good);
    broker.limit(100);
    let target = format!("kafka://127.0.0.1:{}/t", broker.port);
    let mut ship = super::super::ship(&target, &options(&root, "rows=4,end=30", "jsonl")).unwrap();
    ship.write(&flows(0..4), Nanos(1)).unwrap();
    ship.finish(Ending::Complete).unwrap();
    assert_eq!((ledger(&ship).total(Count::DeliverRefused), broker.messages().len()), (4, 0));
    std::fs::remove_dir_all(root).unwrap();
}

/// Batches are numbered in order and complete for any number of threads.
#[test]
fn batches_of_several_threads_are_in_order() {
    for threads in [1, 3] {
        let root = scratch(&format!("threads-{threads}"));
        let broker = Broker::start("t", 1, |_| broker::Mood::Good);
        let target = format!("kafka://127.0.0.1:{}/t", broker.port);
        let options = Options { threads, ..options(&root, "rows=10,end=30", "jsonl") };
        let mut ship = super::super::ship(&target, &options).unwrap();
        ship.most = 4_000;
        (0..4).for_each(|part| ship.write(&flows(part * 95..part * 95 + 95), Nanos(1)).unwrap());
        ship.finish(Ending::Complete).unwrap();
        let messages = broker.messages();
        let number = |message: &broker::Message| message.headers["batch"].parse::<u64>().unwrap();
        assert!(messages.is_sorted_by_key(number) && number(messages.last().unwrap()) > 40);
        let line = |message: &broker::Message| serde_json::from_slice::<serde_json::Value>(&message.value).unwrap();
        assert!(messages.iter().all(|message| line(message)["batch"] == number(message)));
        assert_eq!(of_broker(&broker).len(), 380);
        std::fs::remove_dir_all(root).unwrap();
    }
}

#[test]
fn setup_errors_are_reported_at_the_start() {
    let root = scratch("setup");
    let store = Store::start(|| store::Mood::Error(516));
    let mut ship = open(&format!("clickhouse://127.0.0.1:{}/t", store.port), &options(&root, "rowbinary", "")).unwrap();
    ship.write(&flows(0..4), Nanos(1)).unwrap();
    let said = || {
        std::thread::sleep(Duration::from_millis(1));
        ship.tick(Nanos(2)).err()
    };
    let error = std::iter::repeat_with(said).take(60_000).flatten().next().expect("nothing was reported").to_string();
    assert!(error.contains("Code: 516") && error.contains("kept in"), "{error}");
    let _ = ship.finish(Ending::Failed);
    assert_eq!(ledger(&*ship).total(Count::DeliverWaiting), 4);
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn a_full_spool_drops_and_reports_the_oldest() {
    let root = scratch("full");
    let store = Store::start(|| store::Mood::Down(100_000));
    let target = format!("clickhouse://127.0.0.1:{}/t", store.port);
    let mut options = options(&root, "rowbinary,rows=10,end=0", "");
    options.ship.most = 10_000;
    let mut ship = super::super::ship(&target, &options).unwrap();
    ship.write(&flows(0..1000), Nanos(1)).unwrap();
    ship.finish(Ending::Complete).unwrap();
    let first = ledger(&ship);
    assert!(first.imbalances().is_empty());
    let (dropped, waiting) = (first.total(Count::SpoolDropped), first.total(Count::DeliverWaiting));
    assert!(dropped > 500 && waiting > 50 && dropped + waiting == 1000, "{dropped} {waiting}");
    drop(ship);
    // The next run delivers the rest: the newest batches, and those that were in flight.
    let better = Store::start(|| store::Mood::Good);
    std::fs::rename(
        root.join(super::super::folder_of(&target)),
        root.join(super::super::folder_of(&format!("clickhouse://127.0.0.1:{}/t", better.port))),
    )
    .unwrap();
    let mut ship = super::super::ship(&format!("clickhouse://127.0.0.1:{}/t", better.port), &options).unwrap();
    ship.ship.end = Duration::from_secs(30);
    ship.finish(Ending::Complete).unwrap();
    let second = ledger(&ship);
    assert_eq!((second.total(Count::DeliverResumed), second.total(Count::DeliverAcknowledged)), (waiting, waiting));
    let arrived = of_store(&better);
    assert_eq!(arrived.len() as u64, waiting);
    assert!((1000 - waiting + 40..1000).all(|id| arrived.contains_key(&id)), "{arrived:?}");
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn waiting_for_space_loses_nothing_before_the_end() {
    let root = scratch("wait");
    let store = Store::start(|| store::Mood::Good);
    let target = format!("clickhouse://127.0.0.1:{}/t", store.port);
    let mut options = options(&root, "rowbinary,rows=10,end=0.2,full=wait", "");
    options.ship.most = 5_000;
    let mut ship = super::super::ship(&target, &options).unwrap();
    ship.write(&flows(0..1000), Nanos(1)).unwrap();
    store.down(Duration::from_secs(1000));
    let ending = ship.ending().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            ending();
        });
        ship.write(&flows(1000..2000), Nanos(1)).unwrap();
    });
    ship.finish(Ending::Complete).unwrap();
    let ledger = ledger(&ship);
    assert_eq!(ledger.total(Count::SpoolDropped), 0);
    let no_room = ledger.total(Count::ExportNoRoom);
    assert!(no_room > 0 && ledger.total(Count::Exported) + no_room == 2000, "{no_room}");
    assert_eq!(
        ledger.total(Count::Exported),
        ledger.total(Count::DeliverAcknowledged) + ledger.total(Count::DeliverWaiting)
    );
    assert!((0..900).all(|id| of_store(&store).get(&id) == Some(&1)));
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn spools_are_exclusive_and_damage_is_reported() {
    let root = scratch("damage");
    let target = "clickhouse://127.0.0.1:1/t";
    let options = options(&root, "rowbinary,rows=10,end=0", "");
    let mut ship = super::super::ship(target, &options).unwrap();
    assert!(open(target, &options).err().unwrap().to_string().contains("another run uses this spool"));
    ship.write(&flows(0..50), Nanos(1)).unwrap();
    ship.finish(Ending::Complete).unwrap();
    let folder = ship.spool.path().to_path_buf();
    drop(ship);
    let mut names: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.retain(|path| path.extension().is_some_and(|ending| ending == "rowbinary"));
    names.sort();
    // One file is truncated, one is missing, one has a flipped bit, and one is a partial batch of a crashed run.
    let bytes = std::fs::read(&names[0]).unwrap();
    std::fs::write(&names[0], &bytes[..100]).unwrap();
    std::fs::remove_file(&names[1]).unwrap();
    let mut other = std::fs::read(&names[2]).unwrap();
    other[77] ^= 1;
    std::fs::write(&names[2], other).unwrap();
    std::fs::write(folder.join("0123456789abcdef-00000000.rowbinary"), "half").unwrap();
    let store = Store::start(|| store::Mood::Good);
    let moved = format!("clickhouse://127.0.0.1:{}/t", store.port);
    std::fs::rename(folder, root.join(super::super::folder_of(&moved))).unwrap();
    let mut ship = super::super::ship(&moved, &options).unwrap();
    ship.ship.end = Duration::from_secs(30);
    ship.finish(Ending::Complete).unwrap();
    let ledger = ledger(&ship);
    assert_eq!((ledger.total(Count::SpoolDamaged), ledger.total(Count::DeliverAcknowledged)), (30, 20));
    assert_eq!((ledger.imbalances(), of_store(&store).len()), (vec![], 20));
    let left: Vec<_> = std::fs::read_dir(ship.spool.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.iter().filter(|name| name.to_str().unwrap().ends_with(".damaged")).count(), 2, "{left:?}");
    assert_eq!(left.len(), 4, "{left:?}");
    std::fs::remove_dir_all(root).unwrap();
}

/// A broker that has forgotten a producer responds like a real one, and nothing is lost.
#[test]
fn new_numbers_are_used_if_a_broker_expects_others() {
    let root = scratch("numbers");
    let mut asked = 0;
    let broker = Broker::start("t", 1, move |key| {
        asked += u32::from(key == 0);
        if key == 0 && asked == 3 { broker::Mood::Error(45) } else { broker::Mood::Good }
    });
    let target = format!("kafka://127.0.0.1:{}/t", broker.port);
    let mut ship = super::super::ship(&target, &options(&root, "rows=10", "jsonl")).unwrap();
    ship.write(&flows(0..30), Nanos(1)).unwrap();
    while !ship.spool.is_empty() {
        std::thread::yield_now();
    }
    broker.forget();
    ship.write(&flows(30..60), Nanos(1)).unwrap();
    ship.finish(Ending::Complete).unwrap();
    let arrived = of_broker(&broker);
    assert!(arrived.len() == 60 && arrived.values().all(|times| *times == 1), "{arrived:?}");
    assert_eq!(ledger(&ship).total(Count::MaybeDuplicated), 0, "never sent with the rejected numbers");
    std::fs::remove_dir_all(root).unwrap();
}

/// The topic is deleted and recreated with fewer partitions: undelivered batches wait and arrive.
#[test]
fn deleted_topics_are_waited_for() {
    let root = scratch("topic");
    let broker = Broker::start("t", 3, |_| broker::Mood::Good);
    let target = format!("kafka://127.0.0.1:{}/t", broker.port);
    let mut ship = super::super::ship(&target, &options(&root, "rows=10,end=30", "jsonl")).unwrap();
    ship.write(&flows(0..60), Nanos(1)).unwrap();
    while !ship.spool.is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(of_broker(&broker).len(), 60);
    broker.create(0);
    ship.write(&flows(60..120), Nanos(1)).unwrap();
    while ship.spool.tally().outages == 0 {
        std::thread::yield_now();
    }
    assert_eq!((ship.spool.lag().records, broker.messages().len()), (60, 0));
    broker.create(1);
    ship.finish(Ending::Complete).unwrap();
    let arrived = of_broker(&broker);
    assert!(arrived.len() == 60 && (60..120).all(|id| arrived[&id] == 1), "{arrived:?}");
    assert_eq!((ledger(&ship).total(Count::DeliverAcknowledged), broker.problems()), (120, vec![]));
    std::fs::remove_dir_all(root).unwrap();
}
