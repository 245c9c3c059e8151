//! Readers killed at any moment: the survivors get all frames, and the writer accounts for every frame.

use crate::share::fixtures::{Feed, accounts, assert_all, cat_into, lossless, read_ring, ring_name};
use linerate_tests::support::program::Running;
use linerate_tests::support::records;
use linerate_tests::support::{Scratch, wait_until};
use rustix::process::Signal;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Default of `LINERATE_KILLS`, the number of readers to kill.
const KILLS: u32 = 80;
/// Maximum number of concurrent readers, without the two survivors.
const TOGETHER: usize = 4;
/// Frames sent at a time.
const PIECE: u32 = 500;

#[test]
fn killed_readers_do_not_affect_the_others() {
    let kills = std::env::var("LINERATE_KILLS").ok().map_or(KILLS, |text| text.parse().expect("a number of kills"));
    let (scratch, name) = (Scratch::new(), ring_name());
    let [ours, c] = ["ours.pcap", "c.pcap"].map(|file| scratch.file(file));
    let mut feed = Feed::start(&name, 2, &["--share-memory", "16MiB", "--share-block", "512KiB"]);
    let survivors = [read_ring(&lossless(&name), &ours, &[]), cat_into(&c, &["-l", "-w", &name])];
    let pids = survivors.each_ref().map(Running::pid);
    // Otherwise a reader to be killed could be among the first two, with which the feed starts.
    let maps = |pid| std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    wait_until("both have attached", || pids.iter().all(|pid| maps(*pid).contains("memfd:")));
    let is_over = AtomicBool::new(false);
    let feed = thread::scope(|scope| {
        let feeding = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                feed.send(PIECE);
                thread::sleep(Duration::from_millis(3));
            }
            feed
        });
        kill_readers(kills, &name, &scratch);
        is_over.store(true, Ordering::Relaxed);
        feeding.join().expect("a feed")
    });
    let sent = feed.sent();
    let json = feed.end().good().json();
    survivors.into_iter().for_each(|survivor| drop(survivor.end().good()));
    for file in [&ours, &c] {
        assert_all(file, &records::read(file), 0..sent);
    }
    assert_eq!((json["frames"].as_u64(), json["lost"].as_u64()), (Some(sent.into()), Some(0)));
    let accounts = accounts(&json);
    let killed =
        accounts.iter().filter(|account| !pids.iter().any(|pid| account.subject.ends_with(&format!("(pid {pid})"))));
    let (mut attached, mut reclaimed) = (0, 0);
    for account in killed {
        assert_eq!(account.outstanding, 0, "{account:?}");
        attached += 1;
        reclaimed += u32::from(account.reclaimed > 0);
    }
    eprintln!("{kills} killed, {attached} of them attached, {reclaimed} while they held blocks; {sent} frames");
    assert!(attached >= kills / 4 && reclaimed >= kills / 10, "{attached} attached, {reclaimed} held blocks");
    assert_eq!(accounts.len() as u32, attached + 2);
    assert_eq!(json["events"].as_array().unwrap().len(), 0, "protocol errors: {:?}", json["events"]);
}

/// Starts readers of every kind and kills each at a random moment of its life.
fn kill_readers(kills: u32, name: &str, scratch: &Scratch) {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut living = VecDeque::new();
    for kill in 0..kills {
        let file = scratch.file(&format!("{}", kill % 8));
        living.push_back(match kill % 4 {
            0 => read_ring(&lossless(name), &file, &[]),
            1 => cat_into(&file, &["-l", "-w", name]),
            2 => read_ring(&format!("shm:{name}?slots=2"), &file, &[]),
            _ => cat_into(&file, &["-q", "3", name]),
        });
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        if kill % 3 == 0 {
            // While it starts or attaches.
            thread::sleep(Duration::from_micros(random % 4000));
            end_by_kill(living.pop_back());
        }
        thread::sleep(Duration::from_micros(random / 4096 % 12_000));
        if living.len() > random as usize / 64 % TOGETHER {
            end_by_kill(living.pop_front());
        }
    }
    living.into_iter().for_each(|reader| end_by_kill(Some(reader)));
}

fn end_by_kill(reader: Option<Running>) {
    let Some(reader) = reader else { return };
    reader.signal(Signal::KILL);
    let ended = reader.end();
    assert!(ended.status == -1, "the reader ended by itself: {}", ended.errors);
}
