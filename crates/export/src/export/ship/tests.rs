//! Delivery under crashes and failures: compares the records exported with those that arrived.

#[path = "../../../../../tests/fleet/broker.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod broker;
#[path = "../../../../../tests/fleet/store.rs"]
#[allow(dead_code, reason = "others use the rest")]
mod store;

mod batch_reports;
mod set_aside;
mod table;
mod untrusted_journal;

use super::super::{Ending, Exporter, Options};
use super::DeliveryOptions;
use crate::encode::Format;
use broker::Broker;
use linerate_burst::{Ledger, Nanos, Stage};
use linerate_meter::Flow;
use std::collections::BTreeMap;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use store::Store;

/// Simulated crash of the process after a number of steps.
#[derive(Default)]
pub(super) struct CrashPoint {
    /// Steps left plus one; 0: no crash.
    left: AtomicU64,
}

impl CrashPoint {
    fn after(&self, steps: u64) {
        self.left.store(steps + 1, Ordering::Relaxed);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.left.load(Ordering::Relaxed) == 1
    }

    pub(super) fn step(&self) -> Result<()> {
        let one_less = |left: u64| if left > 1 { Some(left - 1) } else { None };
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        if self.is_dead() { Err(Error::other("dead")) } else { Ok(()) }
    }
}

/// Seeded random numbers (SplitMix64).
#[derive(Clone)]
struct RandomNumbers(u64);

impl RandomNumbers {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ mixed >> 31) % most
    }
}

/// Uses a memory file system if available: thousands of files are synced.
fn scratch(name: &str) -> PathBuf {
    let memory = Path::new("/dev/shm");
    let root = if memory.is_dir() { memory.to_path_buf() } else { std::env::temp_dir() };
    let root = root.join(format!("linerate-ship-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&root);
    std::fs::create_dir_all(&root).unwrap();
    root
}

fn options(spool: &Path, words: &str, format: &str) -> Options {
    let text = format!("spool={},sensor=s,{words}", spool.display());
    Options { ship: DeliveryOptions::parse(&text).unwrap(), format: Format::named(format), ..Options::default() }
}

fn flows(ids: impl Iterator<Item = u64>) -> Vec<Flow> {
    ids.map(|id| Flow { id, ..crate::tests::flow() }).collect()
}

/// Number of arrivals per flow id.
type ArrivalCounts = BTreeMap<u64, u64>;

fn arrived(ids: impl Iterator<Item = u64>) -> ArrivalCounts {
    let mut arrived = ArrivalCounts::new();
    ids.for_each(|id| *arrived.entry(id).or_default() += 1);
    arrived
}

/// Counts ids in JSON lines, one per message.
fn of_broker(broker: &Broker) -> ArrivalCounts {
    let id = |message: &broker::Message| {
        let line: serde_json::Value = serde_json::from_slice(&message.value).unwrap();
        u64::from_str_radix(line["id"].as_str().unwrap(), 16).unwrap()
    };
    arrived(broker.messages().iter().map(id))
}

/// Counts ids in RowBinary rows of constant length; the id follows sensor, run, batch, row, time and duration.
fn of_store(store: &Store) -> ArrivalCounts {
    let length = crate::encode::rowbinary::rows_from(
        &[&crate::tests::flow()],
        &crate::encode::Origin { sensor: "s".into(), run: 0, batch: 0 },
    )
    .len();
    let rows = store.inserts().into_iter().flat_map(|insert| {
        assert_eq!(insert.body.len() % length, 0);
        insert.body.chunks(length).map(<[u8]>::to_vec).collect::<Vec<_>>()
    });
    arrived(rows.map(|row| u64::from_le_bytes(row[38..46].try_into().unwrap())))
}

fn ledger(exporter: &dyn Exporter) -> Ledger {
    let mut ledger = Ledger::new();
    exporter.counters(ledger.account(Stage::Export, exporter.name()));
    exporter.accounts(&mut ledger);
    ledger
}

/// Runs a sensor and a destination that both crash repeatedly; returns the number of crashes.
fn lives(seed: u64, to_kafka: bool) -> u64 {
    let mut chance = RandomNumbers(seed);
    let root = scratch(&format!("lives-{seed}-{to_kafka}"));
    let (mut moods, is_calm) = (chance.clone(), Arc::new(AtomicU64::new(0)));
    let calm = Arc::clone(&is_calm);
    let mut one_of_three = move || {
        if calm.load(Ordering::Relaxed) == 1 { None } else { (moods.below(3) == 0).then(|| moods.below(1 << 32)) }
    };
    let (mut broker, mut store) = (None, None);
    let (target, words, format) = if to_kafka {
        use broker::Mood::*;
        let mood = move |_| {
            one_of_three().map_or(Good, |which| match which % 10 {
                0 => CutBefore,
                1..=3 => CutAfter,
                4 => Error([3, 6, 7, 14, 19, 56][which as usize / 10 % 6]),
                5 => ErrorAfter(20),
                6 => Garbage,
                7 => Half,
                8 => Slow(1),
                _ => Down(3),
            })
        };
        let broker = broker.insert(Broker::start("t", 1 + seed as usize % 3, mood));
        let lanes = 1 + seed % 2 * 3;
        (format!("kafka://127.0.0.1:{}/t", broker.port), format!("lanes={lanes},rows=7,end=30"), "jsonl")
    } else {
        use store::Mood::*;
        let mood = move || {
            one_of_three().map_or(Good, |which| match which % 8 {
                0 => CutBefore,
                1 => CutWithin,
                2..=4 => CutAfter,
                5 => Error([242, 252, 319, 210][which as usize / 8 % 4]),
                6 => Garbage,
                _ => Down(3),
            })
        };
        let store = store.insert(Store::start(mood));
        (format!("clickhouse://127.0.0.1:{}/t", store.port), "rowbinary,rows=7,end=30".to_owned(), "")
    };
    let options = options(&root, &words, format);
    let (mut next, mut sure, mut unsure, mut deaths) = (0, Vec::new(), Vec::new(), 0);
    for life in 0.. {
        let is_last = life == 12;
        is_calm.store(u64::from(is_last), Ordering::Relaxed);
        let mut ship = super::ship(&target, &options).unwrap();
        if !is_last {
            ship.spool.death.after(chance.below(90));
        }
        for _ in 0..chance.below(12) {
            let ids: Vec<u64> = (next..next + 1 + chance.below(20)).collect();
            next += ids.len() as u64;
            match ship.write(&flows(ids.iter().copied()), Nanos(1)) {
                Ok(()) => sure.extend(ids),
                Err(error) => {
                    assert!(error.to_string().contains("dead"), "{error}");
                    unsure.extend(ids);
                    break;
                }
            }
            if chance.below(3) == 0 {
                std::thread::sleep(Duration::from_millis(chance.below(4)));
            }
        }
        if is_last {
            ship.finish(Ending::Complete).unwrap();
            assert!(ship.spool.is_empty(), "{:?}", ship.spool.lag());
            let tally = ship.spool.tally();
            assert_eq!((tally.dropped, tally.refused, tally.damaged, tally.maybe_duplicated), (0, 0, 0, 0));
            assert!(ledger(&ship).imbalances().is_empty());
            break;
        }
        // The crashed run writes nothing to disk from now on.
        deaths += 1;
        ship.spool.death.after(0);
        ship.over.after(Duration::ZERO);
        let _ = ship.sender.end();
    }
    let arrived = broker.as_ref().map_or_else(|| of_store(store.as_ref().unwrap()), of_broker);
    let twice: Vec<_> = arrived.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "seed {seed}: twice: {twice:?}");
    let lost: Vec<_> = sure.iter().filter(|id| !arrived.contains_key(id)).collect();
    assert!(lost.is_empty(), "seed {seed}: lost: {lost:?}");
    assert!(arrived.keys().all(|id| *id < next) && arrived.len() <= sure.len() + unsure.len());
    assert_eq!(broker.map_or(Vec::new(), |broker| broker.problems()), [""; 0]);
    std::fs::remove_dir_all(root).unwrap();
    deaths
}

#[test]
fn thousand_crashes_lose_and_duplicate_nothing() {
    let killed = AtomicU64::new(0);
    let seed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while killed.load(Ordering::Relaxed) < 1000 {
                    let seed = seed.fetch_add(1, Ordering::Relaxed);
                    killed.fetch_add(lives(seed, seed.is_multiple_of(2)), Ordering::Relaxed);
                }
            });
        }
    });
    assert!(killed.load(Ordering::Relaxed) >= 1000);
}
