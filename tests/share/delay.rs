//! Readers that are stopped: nobody waits for a lossy one, everybody for a lossless one, as long as patience lasts.

use crate::share::stage::{
    Feed, account_of, assert_all, cat_into, frame, lossless, number, read_ring, ring_name, wait_for_frames,
};
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::{Scratch, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Blocks that 60,000 frames fill many times over.
const SMALL: [&str; 4] = ["--share-memory", "2MiB", "--share-block", "512KiB"];
/// Frames before the stop, while stopped, after it.
const PARTS: [u32; 3] = [100, 60_000, 5000];
const ALL: u32 = PARTS[0] + PARTS[1] + PARTS[2];

/// Fails unless these are some of the frames, in order.
fn assert_some(got: &[Record]) {
    assert!(got.windows(2).all(|pair| number(&pair[0]) < number(&pair[1])));
    assert!(got.iter().all(|record| *record == frame(number(record))));
}

#[test]
fn a_stopped_lossy_reader_is_skipped_and_told() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let [ours, c, lossy] = ["ours.pcap", "c.pcap", "lossy.pcap"].map(|file| scratch.file(file));
    let mut feed = Feed::start(&name, 3, &SMALL);
    let others = [read_ring(&lossless(&name), &ours, &[]), cat_into(&c, &["-l", "-w", &name])];
    let stopped = read_ring(&format!("shm:{name}"), &lossy, &[]);
    feed.send(PARTS[0]);
    wait_for_frames(&lossy, feed.sent());
    stopped.signal(Signal::STOP);
    feed.send(PARTS[1]);
    for other in [&ours, &c] {
        wait_for_frames(other, feed.sent());
    }
    stopped.signal(Signal::CONT);
    feed.send(PARTS[2]);
    let pids = others.each_ref().map(|other| other.pid());
    let pid = stopped.pid();
    let written = feed.end().good().json();
    others.into_iter().for_each(|other| drop(other.end().good()));
    let read = stopped.end().good().json();

    for (file, pid) in [&ours, &c].into_iter().zip(pids) {
        assert_all(file, &records::read(file), 0..ALL);
        assert_eq!(account_of(&written, pid).finished, u64::from(ALL));
    }
    let (account, got) = (account_of(&written, pid), records::read(&lossy));
    assert!(account.skipped > 20_000 && account.waits == 0, "{account:?}");
    assert_eq!((account.received, account.outstanding), (u64::from(ALL), 0), "{account:?}");
    assert_some(&got);
    assert_all("before the stop", &got[..PARTS[0] as usize], 0..PARTS[0]);
    let said = (read["received"].as_u64(), read["drops"]["skipped"].as_u64(), read["frames"].as_u64());
    assert_eq!(said, (Some(ALL.into()), Some(account.skipped), Some(got.len() as u64)), "{read:#}");
    assert_eq!((read["balanced"].as_bool(), account.finished), (Some(true), got.len() as u64));
    assert_eq!(written["lost"], 0, "{written:#}");
}

/// Feeds while `stopped` is; whether all was taken within this time, and the feed once it was.
fn feed_within(mut feed: Feed, frames: u32, time: Duration) -> (bool, impl FnOnce() -> Feed) {
    let (done, is_done) = channel();
    let feeding = thread::spawn(move || {
        feed.send(frames);
        let _ = done.send(());
        feed
    });
    let in_time = is_done.recv_timeout(time).is_ok();
    (in_time, move || feeding.join().expect("a feed"))
}

/// Waits until a reader that runs gets nothing more, as the writer waits for another.
fn wait_until_held(running: &str) {
    let (mut last, mut same) = (0, 0);
    wait_until("the writer is held up", || {
        thread::sleep(Duration::from_millis(100));
        let frames = records::read(running).len();
        same = if frames > PARTS[0] as usize && frames == last { same + 1 } else { 0 };
        last = frames;
        same == 3
    });
}

#[test]
fn a_stopped_lossless_reader_holds_everybody_up_and_misses_nothing() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let [held, other] = ["held.pcap", "other.pcap"].map(|file| scratch.file(file));
    let mut feed = Feed::start(&name, 2, &SMALL);
    let (stopped, running) = (read_ring(&lossless(&name), &held, &[]), cat_into(&other, &["-w", &name]));
    feed.send(PARTS[0]);
    wait_for_frames(&held, feed.sent());
    wait_for_frames(&other, feed.sent());
    stopped.signal(Signal::STOP);
    let (in_time, feed) = feed_within(feed, PARTS[1], Duration::from_millis(500));
    assert!(!in_time, "the writer goes on without a reader that it should wait for");
    wait_until_held(&other);
    stopped.signal(Signal::CONT);
    let mut feed = feed();
    feed.send(PARTS[2]);
    let pid = stopped.pid();
    let json = feed.end().good().json();
    stopped.end().good();
    running.end().good();
    assert_all("held", &records::read(&held), 0..ALL);
    let account = account_of(&json, pid);
    assert!(account.finished == u64::from(ALL) && account.waits >= 1 && account.skipped == 0, "{account:?}");
    let notes = json["accounts"].as_array().unwrap().iter().map(|account| account["notes"]["waited_us"].as_u64());
    assert!(notes.flatten().sum::<u64>() >= 300_000, "{json:#}");
    assert_eq!(json["lost"], 0);
}

#[test]
fn a_lossless_reader_that_comes_back_within_the_patience_gets_every_frame() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let [held, other] = ["held.pcap", "other.pcap"].map(|file| scratch.file(file));
    let mut feed = Feed::start(&name, 2, &[&SMALL[..], &["--share-patience", "60"]].concat());
    let (stopped, running) = (read_ring(&lossless(&name), &held, &[]), read_ring(&lossless(&name), &other, &[]));
    feed.send(PARTS[0]);
    wait_for_frames(&held, feed.sent());
    stopped.signal(Signal::STOP);
    let (in_time, feed) = feed_within(feed, PARTS[1], Duration::from_millis(700));
    assert!(!in_time, "the writer goes on without a reader that holds all blocks");
    stopped.signal(Signal::CONT);
    let feed = feed();
    let (pid, other_pid, sent) = (stopped.pid(), running.pid(), feed.sent());
    let json = feed.end().good().json();
    stopped.end().good();
    running.end().good();
    for (file, pid) in [(&held, pid), (&other, other_pid)] {
        assert_all(file, &records::read(file), 0..sent);
        let account = account_of(&json, pid);
        assert!(account.finished == u64::from(sent) && account.skipped == 0, "{account:?}");
    }
    assert_eq!(events(&json), Vec::<&str>::new());
}

#[test]
fn a_reader_that_does_not_come_back_is_put_out() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let [held, other] = ["held.pcap", "other.pcap"].map(|file| scratch.file(file));
    let mut feed = Feed::start(&name, 2, &[&SMALL[..], &["--share-patience", "0.4"]].concat());
    let (stopped, running) = (read_ring(&lossless(&name), &held, &[]), read_ring(&lossless(&name), &other, &[]));
    feed.send(PARTS[0]);
    wait_for_frames(&held, feed.sent());
    stopped.signal(Signal::STOP);
    let (in_time, feed) = feed_within(feed, PARTS[1], Duration::from_secs(10));
    assert!(in_time, "the writer waits for ever");
    let mut feed = feed();
    stopped.signal(Signal::CONT);
    feed.send(PARTS[2]);
    let (pid, writer, other_pid) = (stopped.pid(), feed.running.pid(), running.pid());
    let json = feed.end().good().json();
    stopped.end().with_status(1).says(&format!("evicted by its writer (pid {writer})"));
    running.end().good();
    assert_all("other", &records::read(&other), 0..ALL);
    assert_all("held", &records::read(&held), 0..PARTS[0]);
    assert_eq!(account_of(&json, other_pid).finished, u64::from(ALL));
    let begins = format!("linerate (pid {pid}) was evicted: it blocked the writer");
    assert!(matches!(&events(&json)[..], [event] if event.starts_with(&begins)), "{json:#}");
    let account = account_of(&json, pid);
    assert!(account.reclaimed > 1000 && account.received < u64::from(ALL), "{account:?}");
}

fn events(json: &Value) -> Vec<&str> {
    json["events"].as_array().expect("events").iter().filter_map(Value::as_str).collect()
}

#[test]
fn a_killed_lossless_reader_holds_nobody_up() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let [held, other] = ["held.pcap", "other.pcap"].map(|file| scratch.file(file));
    let mut feed = Feed::start(&name, 2, &SMALL);
    let (stopped, running) = (read_ring(&lossless(&name), &held, &[]), cat_into(&other, &["-l", "-w", &name]));
    feed.send(PARTS[0]);
    wait_for_frames(&held, feed.sent());
    stopped.signal(Signal::STOP);
    let (in_time, feed) = feed_within(feed, PARTS[1], Duration::from_millis(300));
    assert!(!in_time, "the writer goes on without a reader that it should wait for");
    wait_until_held(&other);
    stopped.signal(Signal::KILL);
    let pid = stopped.pid();
    assert_eq!(stopped.end().status, -1);
    let mut feed = feed();
    feed.send(PARTS[2]);
    let json = feed.end().good().json();
    running.end().good();
    assert_all("other", &records::read(&other), 0..ALL);
    let account = account_of(&json, pid);
    assert!(account.reclaimed > 1000 && account.waits >= 1 && account.outstanding == 0, "{account:?}");
    assert!(account.received < u64::from(ALL), "it is charged with what came after its death: {account:?}");
}
