//! Batches in the partitions of a table.

use super::super::super::{Ending, Exporter};
use super::super::clock::Clock;
use super::store::{self, Store};
use super::{flows, ledger, of_store, options, scratch};
use linerate_burst::{Count, Ledger, Nanos};
use linerate_meter::Flow;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A day in 2023 and its length in ns.
const DAY: u64 = 86_400 * 1_000_000_000;
const BEGIN: u64 = 19_000 * DAY;

/// Returns the days of RowBinary rows, of a sensor with a name of one letter.
fn days(body: &[u8]) -> usize {
    parts(body, DAY)
}

fn hours(body: &[u8]) -> usize {
    parts(body, DAY / 24)
}

fn parts(body: &[u8], span: u64) -> usize {
    let length = crate::encode::rowbinary::end_of(body, 1).unwrap();
    let part = |row: &[u8]| u64::from_le_bytes(row[22..30].try_into().unwrap()) / span;
    body.chunks(length).map(part).collect::<BTreeSet<_>>().len()
}

/// Flows of a year and forged times go into a table with a partition per day, whatever else it is partitioned by.
#[test]
fn flows_of_many_days_fit_into_daily_partitions() {
    for (name, most, partitions, halved) in
        [("days", 100, days as fn(&[u8]) -> usize, false), ("hours", 20, hours, true)]
    {
        let root = scratch(name);
        let store = Store::start(|| store::Mood::Good);
        store.limit(most, partitions);
        let target = format!("clickhouse://127.0.0.1:{}/t", store.port);
        let mut ship = super::super::ship(&target, &options(&root, "rowbinary,rows=1000,end=30", "")).unwrap();
        let flow = |id: u64, at: u64| {
            let mut flow = Flow { id, ..crate::tests::flow() };
            (flow.sides[0].first, flow.sides[0].last) = (Nanos(at), Nanos(at));
            (flow.sides[1].first, flow.sides[1].last) = (Nanos(at), Nanos(at));
            flow
        };
        let stored = (0..700).map(|number| flow(number, BEGIN + number * DAY / 4));
        let forged = (700..1000).map(|number| flow(number, (number - 700) * 10 * DAY));
        ship.write(&stored.chain(forged).collect::<Vec<_>>(), Nanos(1)).unwrap();
        ship.finish(Ending::Complete).unwrap();
        let ledger = ledger(&ship);
        let (there, waiting) = (ledger.total(Count::DeliverAcknowledged), ledger.total(Count::DeliverWaiting));
        assert_eq!((there, waiting, ledger.imbalances()), (1000, 0, vec![]), "{name}");
        let arrived = of_store(&store);
        assert!(arrived.len() == 1000 && arrived.values().all(|times| *times == 1), "{arrived:?}");
        assert!(store.inserts().iter().all(|insert| partitions(&insert.body) <= most));
        assert_eq!(store.inserts().len() > 20, halved, "{}", store.inserts().len());
        assert_eq!(ship.spool.most_rows(), usize::MAX, "batches of one day may be as long as ever");
        std::fs::remove_dir_all(root).unwrap();
    }
}

static NOTICES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Retries after the deduplication window are counted; a table without deduplication is reported.
#[test]
fn possible_duplicates_are_counted() {
    const MINUTE: u64 = 60 * 1_000_000_000;
    let settings = "replicated_deduplication_window\t100\nreplicated_deduplication_window_seconds\t604800\nnon_replicated_deduplication_window\t0\n";
    let (replicated, plain) =
        ("ReplicatedMergeTree\tReplicatedMergeTree ORDER BY a\n", "MergeTree\tMergeTree ORDER BY a\n");
    let short =
        "ReplicatedMergeTree\tReplicatedMergeTree ORDER BY a SETTINGS replicated_deduplication_window_seconds = 600\n";
    for (at, (table, words, later, maybe, advice)) in [
        (replicated, "", 49, 0, ""),
        (replicated, "", 51, 10, ""),
        (replicated, "window=7200,", 100, 0, ""),
        (short, "window=7200,", 11, 10, ""),
        ("", "", 51, 10, ""),
        (plain, "", 1, 10, "ALTER TABLE `t` MODIFY SETTING non_replicated_deduplication_window = 10000"),
        ("Distributed\tDistributed(a, b, c)\n", "", 1, 10, "no deduplication in tables with engine Distributed"),
    ]
    .into_iter()
    .enumerate()
    {
        let root = scratch(&format!("window-{at}"));
        let is_lost = Arc::new(AtomicBool::new(true));
        let losing = Arc::clone(&is_lost);
        let store =
            Store::start(
                move || if losing.load(Ordering::Relaxed) { store::Mood::CutAfter } else { store::Mood::Good },
            );
        store.set_table(table, settings);
        let target = format!("clickhouse://127.0.0.1:{}/t", store.port);
        let mut options = options(&root, &format!("{words}rowbinary,rows=10"), "");
        options.notify = Some(|text| NOTICES.lock().unwrap().push(text));
        let mut run = |ids: std::ops::Range<u64>, at: u64, end: Duration| -> Ledger {
            options.ship.end = end;
            let mut ship = super::super::ship_by(&target, &options, Clock::at(at)).unwrap();
            ship.write(&flows(ids), Nanos(1)).unwrap();
            ship.finish(Ending::Complete).unwrap();
            ledger(&ship)
        };
        let first = run(0..10, BEGIN, Duration::from_millis(100));
        assert_eq!(first.total(Count::DeliverWaiting), 10);
        is_lost.store(false, Ordering::Relaxed);
        let second = run(10..20, BEGIN + later * MINUTE, Duration::from_secs(30));
        assert_eq!((second.total(Count::MaybeDuplicated), second.total(Count::DeliverResent)), (maybe, 1), "{at}");
        assert_eq!(second.total(Count::DeliverAcknowledged), 20);
        let notices: Vec<String> =
            NOTICES.lock().unwrap().drain(..).filter(|text| text.contains("no deduplication in")).collect();
        assert_eq!(
            notices.iter().filter(|text| text.contains(advice)).count(),
            if advice.is_empty() { 0 } else { 2 },
            "{notices:?}"
        );
        std::fs::remove_dir_all(root).unwrap();
    }
}

/// A table that certainly did not insert a batch has no duplicates, however long that lasts.
#[test]
fn certain_rejections_are_not_counted() {
    let root = scratch("certain");
    let mut asked = 0;
    let store = Store::start(move || {
        asked += 1;
        if asked < 5 { store::Mood::Error([242, 252][asked % 2]) } else { store::Mood::Good }
    });
    store.set_table("MergeTree\tMergeTree ORDER BY a\n", "");
    let target = format!("clickhouse://127.0.0.1:{}/t", store.port);
    let mut ship = super::super::ship(&target, &options(&root, "rowbinary,rows=10,end=30", "")).unwrap();
    ship.write(&flows(0..10), Nanos(1)).unwrap();
    ship.finish(Ending::Complete).unwrap();
    let ledger = ledger(&ship);
    assert_eq!((ledger.total(Count::MaybeDuplicated), ledger.total(Count::DeliverAcknowledged)), (0, 10));
    std::fs::remove_dir_all(root).unwrap();
}
