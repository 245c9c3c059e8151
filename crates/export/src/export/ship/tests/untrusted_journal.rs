//! Journals of earlier runs that must not be trusted.

use super::super::clock::Clock;
use super::super::journal::{Batch, Id, Outcome};
use super::super::spool::{Spool, Terms};
use super::broker::{self, Broker};
use super::{flows, ledger, of_broker, options, scratch};
use crate::export::directory::Directory;
use crate::export::{Ending, Exporter};
use linerate_burst::{Count, Ledger, Nanos};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Start time in 2023, and an hour, in ns.
const BEGIN: u64 = 1_700_000_000_000_000_000;
const HOUR: u64 = 3600 * 1_000_000_000;

/// Broker that can lose its responses, and a spool for it.
struct Pair {
    root: PathBuf,
    broker: Broker,
    is_lost: Arc<AtomicBool>,
    target: String,
}

impl Pair {
    fn new(name: &str) -> Self {
        Pair::with(name, |_| broker::Mood::CutAfter)
    }

    /// Sets the outcome of batches by their number while responses are lost.
    fn with(name: &str, mood: fn(u64) -> broker::Mood) -> Self {
        let is_lost = Arc::new(AtomicBool::new(false));
        let (losing, mut number) = (Arc::clone(&is_lost), 0);
        let broker = Broker::start("t", 1, move |key| match key {
            0 if losing.load(Ordering::Relaxed) => {
                number += 1;
                mood(number - 1)
            }
            _ => broker::Mood::Good,
        });
        let target = format!("kafka://127.0.0.1:{}/t", broker.port);
        Pair { root: scratch(name), broker, is_lost, target }
    }

    /// Runs a sensor with these ids at a time; it waits up to `end` for undelivered records.
    fn run(&self, ids: Range<u64>, at: u64, end: Duration) -> Ledger {
        let mut options = options(&self.root, "rows=10", "jsonl");
        options.ship.end = end;
        let mut ship = super::super::ship_by(&self.target, &options, Clock::at(at)).unwrap();
        ship.write(&flows(ids), Nanos(1)).unwrap();
        ship.finish(Ending::Complete).unwrap();
        assert_eq!(ledger(&ship).imbalances(), []);
        ledger(&ship)
    }

    /// Runs a sensor whose batches arrive, but whose responses are lost.
    fn run_unconfirmed(&self, ids: Range<u64>, at: u64) {
        let count = ids.end - ids.start;
        assert_eq!(self.run_losing_responses(ids, at), count);
    }

    /// Runs a sensor that loses responses; returns the number of undelivered records.
    fn run_losing_responses(&self, ids: Range<u64>, at: u64) -> u64 {
        self.is_lost.store(true, Ordering::Relaxed);
        let ledger = self.run(ids, at, Duration::from_millis(200));
        self.is_lost.store(false, Ordering::Relaxed);
        ledger.total(Count::DeliverWaiting)
    }

    fn folder(&self) -> PathBuf {
        self.root.join(super::super::folder_of(&self.target))
    }
}

const LONG: Duration = Duration::from_secs(30);

/// Flips a bit in the last line of this kind.
fn damage(folder: &Path, kind: u8) {
    let mut bytes = std::fs::read(folder.join("journal")).unwrap();
    let line = bytes.chunks_mut(64).rfind(|line| line[4] == kind).unwrap();
    line[50] ^= 1;
    std::fs::write(folder.join("journal"), bytes).unwrap();
}

/// The first batch is confirmed, the next four are not; then the connection ends, repeatedly.
fn five(number: u64) -> broker::Mood {
    match number {
        0 => broker::Mood::Good,
        1..=4 => broker::Mood::Mute,
        _ => broker::Mood::CutBefore,
    }
}

/// It remembers only the last batch, and rejects the earlier ones by their numbers.
#[test]
fn restarted_brokers_get_no_duplicates() {
    let pair = Pair::with("again", five);
    assert_eq!(pair.run_losing_responses(0..70, BEGIN), 60);
    assert_eq!(pair.broker.messages().len(), 50);
    pair.broker.down(Duration::ZERO);
    let ledger = pair.run(70..80, BEGIN + HOUR, LONG);
    let arrived = of_broker(&pair.broker);
    assert!(arrived.len() == 80 && arrived.values().all(|times| *times == 1), "{arrived:?}");
    assert_eq!((ledger.total(Count::MaybeDuplicated), pair.broker.producers()), (0, 1));
    assert_eq!((ledger.total(Count::DeliverAcknowledged), pair.broker.problems()), (70, vec![]));
}

/// Its number is behind all batches sent again: none of them is appended.
#[test]
fn broker_after_loss_gets_later_batches_from_a_new_producer() {
    let pair = Pair::with("gap", five);
    pair.run(0..30, BEGIN, LONG);
    assert_eq!(pair.run_losing_responses(30..100, BEGIN + HOUR), 60);
    pair.broker.lose(10);
    let ledger = pair.run(100..110, BEGIN + 2 * HOUR, LONG);
    let arrived = of_broker(&pair.broker);
    let there = (0..10).chain(40..110);
    assert!(arrived.len() == 80 && there.clone().all(|id| arrived.get(&id) == Some(&1)), "{arrived:?}");
    // Batches with numbers may have been appended.
    let counted = ledger.total(Count::MaybeDuplicated);
    assert!((40..=60).contains(&counted) && pair.broker.producers() == 2, "{counted}");
}

/// With a damaged line the last number is unknown: if a number were used twice, the broker would ignore the second
/// batch as a duplicate.
#[test]
fn damaged_journals_do_not_cause_reused_numbers() {
    let pair = Pair::new("doubt");
    pair.run(0..30, BEGIN, LONG);
    damage(&pair.folder(), 3);
    let second = pair.run(30..60, BEGIN + HOUR, LONG);
    let arrived = of_broker(&pair.broker);
    assert!(arrived.len() == 60 && arrived.values().all(|times| *times == 1), "{arrived:?}");
    assert_eq!((second.total(Count::MaybeDuplicated), pair.broker.producers()), (0, 2));
    // Possible duplicates are counted once.
    pair.run_unconfirmed(60..70, BEGIN + 2 * HOUR);
    damage(&pair.folder(), 3);
    let third = pair.run(70..80, BEGIN + 3 * HOUR, LONG);
    let arrived = of_broker(&pair.broker);
    assert!((0..80).all(|id| arrived[&id] == 1 + u64::from((60..70).contains(&id))), "{arrived:?}");
    assert_eq!((third.total(Count::MaybeDuplicated), pair.broker.producers()), (10, 3));
    let fourth = pair.run(80..90, BEGIN + 4 * HOUR, LONG);
    assert_eq!((fourth.total(Count::MaybeDuplicated), pair.broker.producers()), (0, 3), "recovery happens once");
    assert_eq!((of_broker(&pair.broker).len(), pair.broker.problems()), (90, vec![]));
    std::fs::remove_dir_all(&pair.root).unwrap();
}

/// A broker forgets a producer after a day; after a clock change an old producer seems to be of the future.
#[test]
fn producers_expire_after_some_hours() {
    for (then, twice) in [(BEGIN + 19 * HOUR, false), (BEGIN + 21 * HOUR, true), (BEGIN - HOUR, true)] {
        let pair = Pair::new(&format!("clock-{then}"));
        pair.run_unconfirmed(0..10, BEGIN);
        let ledger = pair.run(10..20, then, LONG);
        let (maybe, producers) = (ledger.total(Count::MaybeDuplicated), pair.broker.producers());
        assert_eq!((maybe, producers), (if twice { 10 } else { 0 }, 1 + i64::from(twice)), "{then}");
        let arrived = of_broker(&pair.broker);
        assert!((0..20).all(|id| arrived[&id] == 1 + u64::from(twice && id < 10)), "{then}: {arrived:?}");
        // No batches in flight: the next ones use a new producer, or the old one.
        pair.run(20..30, then + 21 * HOUR, LONG);
        assert_eq!((pair.broker.producers(), of_broker(&pair.broker).len()), (producers + 1, 30));
        std::fs::remove_dir_all(&pair.root).unwrap();
    }
}

/// After a power failure the journal is as of its last sync.
#[test]
fn batches_are_deleted_after_their_journal_line_is_synced() {
    let root = scratch("power");
    let terms = Terms { most: 1 << 20, has_numbers: false, clock: Clock::at(BEGIN), notify: drop };
    let open = || Spool::open(Directory::open(&root).unwrap(), terms).unwrap();
    let id = Id { run: 7, number: 0 };
    let batch = Batch { id, form: 2, lane: 0, rows: 5, bytes: 0, crc: 0, first: 0, last: 0, made: 0 };
    let file = root.join("0000000000000007-00000000.rowbinary");
    let spool = open();
    assert!(spool.add(batch, b"five rows").unwrap());
    let on_disk = std::fs::read(root.join("journal")).unwrap();
    spool.done(id, Outcome::Delivered).unwrap();
    drop(spool);
    std::fs::write(root.join("journal"), on_disk).unwrap();
    let spool = open();
    assert_eq!((spool.tally().resumed, spool.tally().damaged, spool.is_empty()), (5, 0, false));
    // A look for the next batch deletes delivered files.
    spool.done(id, Outcome::Delivered).unwrap();
    assert!(file.exists() && spool.first(Duration::ZERO).is_none() && !file.exists());
    // The rejection is on disk, but the file is not renamed yet.
    assert!(spool.add(batch, b"five rows").unwrap());
    spool.done(id, Outcome::Refused).unwrap();
    drop(spool);
    let refused = root.join("0000000000000007-00000000.rowbinary.refused");
    std::fs::rename(&refused, &file).unwrap();
    let spool = open();
    assert!(refused.exists() && !file.exists() && spool.aside() == 1);
    std::fs::remove_dir_all(root).unwrap();
}
