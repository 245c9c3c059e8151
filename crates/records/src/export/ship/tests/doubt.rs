//! What an earlier run has noted, where that is not to be believed.

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

/// 2023, and an hour, in ns.
const BEGIN: u64 = 1_700_000_000_000_000_000;
const HOUR: u64 = 3600 * 1_000_000_000;

/// A broker whose answers are lost as long as that is asked for, and a spool for it.
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

    /// What becomes of batches, by how many came before, as long as answers are lost.
    fn with(name: &str, mood: fn(u64) -> broker::Mood) -> Self {
        let is_lost = Arc::new(AtomicBool::new(false));
        let (losing, mut came) = (Arc::clone(&is_lost), 0);
        let broker = Broker::start("t", 1, move |key| match key {
            0 if losing.load(Ordering::Relaxed) => {
                came += 1;
                mood(came - 1)
            }
            _ => broker::Mood::Good,
        });
        let target = format!("kafka://127.0.0.1:{}/t", broker.port);
        Pair { root: scratch(name), broker, is_lost, target }
    }

    /// A run that sends these, at a time; it waits so long for what is not delivered.
    fn run(&self, ids: Range<u64>, at: u64, end: Duration) -> Ledger {
        let mut options = options(&self.root, "rows=10", "jsonl");
        options.ship.end = end;
        let mut ship = super::super::ship_by(&self.target, &options, Clock::at(at)).unwrap();
        ship.write(&flows(ids), Nanos(1)).unwrap();
        ship.finish(Ending::Complete).unwrap();
        assert_eq!(ledger(&ship).imbalances(), []);
        ledger(&ship)
    }

    /// A run whose batches come, and whose answers do not.
    fn run_unheard(&self, ids: Range<u64>, at: u64) {
        let count = ids.end - ids.start;
        assert_eq!(self.run_half_heard(ids, at), count);
    }

    /// A run that loses answers; how many of its records wait.
    fn run_half_heard(&self, ids: Range<u64>, at: u64) -> u64 {
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

/// Changes a bit in the last line of this kind.
fn damage(folder: &Path, kind: u8) {
    let mut bytes = std::fs::read(folder.join("journal")).unwrap();
    let line = bytes.chunks_mut(64).rfind(|line| line[4] == kind).unwrap();
    line[50] ^= 1;
    std::fs::write(folder.join("journal"), bytes).unwrap();
}

/// The first batch is heard of, and four that come next are not; then the connection ends, again and again.
fn five(came: u64) -> broker::Mood {
    match came {
        0 => broker::Mood::Good,
        1..=4 => broker::Mood::Mute,
        _ => broker::Mood::CutBefore,
    }
}

/// It remembers the last batch alone, and refuses those before it by their numbers.
#[test]
fn a_broker_that_has_started_again_has_nothing_twice() {
    let pair = Pair::with("again", five);
    assert_eq!(pair.run_half_heard(0..70, BEGIN), 60);
    assert_eq!(pair.broker.messages().len(), 50);
    pair.broker.down(Duration::ZERO);
    let ledger = pair.run(70..80, BEGIN + HOUR, LONG);
    let arrived = of_broker(&pair.broker);
    assert!(arrived.len() == 80 && arrived.values().all(|times| *times == 1), "{arrived:?}");
    assert_eq!((ledger.total(Count::MaybeDuplicated), pair.broker.producers()), (0, 1));
    assert_eq!((ledger.total(Count::DeliverAcknowledged), pair.broker.problems()), (70, vec![]));
}

/// It is behind those that are sent again: none of them is there.
#[test]
fn a_broker_that_has_lost_batches_gets_the_others_by_another_producer() {
    let pair = Pair::with("gap", five);
    pair.run(0..30, BEGIN, LONG);
    assert_eq!(pair.run_half_heard(30..100, BEGIN + HOUR), 60);
    pair.broker.lose(10);
    let ledger = pair.run(100..110, BEGIN + 2 * HOUR, LONG);
    let arrived = of_broker(&pair.broker);
    let there = (0..10).chain(40..110);
    assert!(arrived.len() == 80 && there.clone().all(|id| arrived.get(&id) == Some(&1)), "{arrived:?}");
    // What had numbers may have come, as far as anybody knows.
    let counted = ledger.total(Count::MaybeDuplicated);
    assert!((40..=60).contains(&counted) && pair.broker.producers() == 2, "{counted}");
}

/// Which number was used last nobody knows where a line is damaged: one that is used twice has the broker take the second batch for the first.
#[test]
fn a_damaged_journal_has_no_number_used_twice() {
    let pair = Pair::new("doubt");
    pair.run(0..30, BEGIN, LONG);
    damage(&pair.folder(), 3);
    let second = pair.run(30..60, BEGIN + HOUR, LONG);
    let arrived = of_broker(&pair.broker);
    assert!(arrived.len() == 60 && arrived.values().all(|times| *times == 1), "{arrived:?}");
    assert_eq!((second.total(Count::MaybeDuplicated), pair.broker.producers()), (0, 2));
    // What may have come is counted, once.
    pair.run_unheard(60..70, BEGIN + 2 * HOUR);
    damage(&pair.folder(), 3);
    let third = pair.run(70..80, BEGIN + 3 * HOUR, LONG);
    let arrived = of_broker(&pair.broker);
    assert!((0..80).all(|id| arrived[&id] == 1 + u64::from((60..70).contains(&id))), "{arrived:?}");
    assert_eq!((third.total(Count::MaybeDuplicated), pair.broker.producers()), (10, 3));
    let fourth = pair.run(80..90, BEGIN + 4 * HOUR, LONG);
    assert_eq!((fourth.total(Count::MaybeDuplicated), pair.broker.producers()), (0, 3), "doubts are of one run");
    assert_eq!((of_broker(&pair.broker).len(), pair.broker.problems()), (90, vec![]));
    std::fs::remove_dir_all(&pair.root).unwrap();
}

/// A broker forgets a producer after a day; a clock that was set back makes an old one look as if it were of tomorrow.
#[test]
fn a_producer_is_known_for_some_hours() {
    for (then, twice) in [(BEGIN + 19 * HOUR, false), (BEGIN + 21 * HOUR, true), (BEGIN - HOUR, true)] {
        let pair = Pair::new(&format!("clock-{then}"));
        pair.run_unheard(0..10, BEGIN);
        let ledger = pair.run(10..20, then, LONG);
        let (maybe, producers) = (ledger.total(Count::MaybeDuplicated), pair.broker.producers());
        assert_eq!((maybe, producers), (if twice { 10 } else { 0 }, 1 + i64::from(twice)), "{then}");
        let arrived = of_broker(&pair.broker);
        assert!((0..20).all(|id| arrived[&id] == 1 + u64::from(twice && id < 10)), "{then}: {arrived:?}");
        // Nothing is under way: what comes next is of a new producer, or of the old one.
        pair.run(20..30, then + 21 * HOUR, LONG);
        assert_eq!((pair.broker.producers(), of_broker(&pair.broker).len()), (producers + 1, 30));
        std::fs::remove_dir_all(&pair.root).unwrap();
    }
}

/// Power fails: the journal is as it was when it was brought to the disk last.
#[test]
fn a_batch_is_removed_once_it_is_on_the_disk_why() {
    let root = scratch("power");
    let terms = Terms { most: 1 << 20, has_numbers: false, clock: Clock::at(BEGIN), told: drop };
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
    // Whoever looks for more has what was delivered go.
    spool.done(id, Outcome::Delivered).unwrap();
    assert!(file.exists() && spool.first(Duration::ZERO).is_none() && !file.exists());
    // It is on the disk that a batch was refused, and it has not got its other name yet.
    assert!(spool.add(batch, b"five rows").unwrap());
    spool.done(id, Outcome::Refused).unwrap();
    drop(spool);
    let refused = root.join("0000000000000007-00000000.rowbinary.refused");
    std::fs::rename(&refused, &file).unwrap();
    let spool = open();
    assert!(refused.exists() && !file.exists() && spool.aside() == 1);
    std::fs::remove_dir_all(root).unwrap();
}
