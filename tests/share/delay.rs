//! Stopped readers: a lossy one does not delay others; a lossless one blocks the writer, up to its patience.

use crate::share::fixtures::{
    Feed, account_of, assert_all, cat_into, frame, lossless, number, read_ring, ring_name, wait_for_frames,
};
use linerate_tests::support::program::Running;
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::{Scratch, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::sync::Mutex;
use std::thread::{self, JoinHandle};

/// A ring much smaller than 60,000 frames.
const SMALL: [&str; 4] = ["--share-memory", "2MiB", "--share-block", "512KiB"];
/// Frames before, during, and after the stop.
const PARTS: [u32; 3] = [100, 60_000, 5000];
const ALL: u32 = PARTS[0] + PARTS[1] + PARTS[2];

/// Asserts that these are some of the frames, in order.
fn assert_some(got: &[Record]) {
    assert!(got.windows(2).all(|pair| number(&pair[0]) < number(&pair[1])));
    assert!(got.iter().all(|record| *record == frame(number(record))));
}

#[test]
fn stopped_lossy_reader_is_skipped_and_reported() {
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
    let counts = (read["received"].as_u64(), read["drops"]["skipped"].as_u64(), read["frames"].as_u64());
    assert_eq!(counts, (Some(ALL.into()), Some(account.skipped), Some(got.len() as u64)), "{read:#}");
    assert_eq!((read["balanced"].as_bool(), account.finished), (Some(true), got.len() as u64));
    assert_eq!(written["lost"], 0, "{written:#}");
}

/// Sends `frames` frames from a thread that ends once the writer has read them.
fn feed_in_background(mut feed: Feed, frames: u32) -> JoinHandle<Feed> {
    thread::spawn(move || {
        feed.send(frames);
        feed
    })
}

/// Waits until the writer has read them.
fn wait_until_fed(feeding: JoinHandle<Feed>) -> Feed {
    wait_until("the writer has read its input", || feeding.is_finished());
    feeding.join().expect("a feed")
}

/// Waits until the writer reports that it waits for this reader.
fn wait_until_blocked(errors: &Mutex<String>, reader: &Running) {
    let blocked = format!("waiting for linerate (pid {})", reader.pid());
    wait_until("the reader blocks the writer", || errors.lock().unwrap().contains(&blocked));
}

#[test]
fn stopped_lossless_reader_blocks_others_and_loses_nothing() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let [held, other] = ["held.pcap", "other.pcap"].map(|file| scratch.file(file));
    let mut feed = Feed::start(&name, 2, &SMALL);
    let (stopped, running) = (read_ring(&lossless(&name), &held, &[]), cat_into(&other, &["-w", &name]));
    feed.send(PARTS[0]);
    wait_for_frames(&held, feed.sent());
    wait_for_frames(&other, feed.sent());
    stopped.signal(Signal::STOP);
    let errors = feed.running.collect_errors();
    let feeding = feed_in_background(feed, PARTS[1]);
    wait_until_blocked(&errors, &stopped);
    stopped.signal(Signal::CONT);
    let mut feed = wait_until_fed(feeding);
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
fn lossless_reader_resumed_within_patience_gets_all() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let [held, other] = ["held.pcap", "other.pcap"].map(|file| scratch.file(file));
    let mut feed = Feed::start(&name, 2, &[&SMALL[..], &["--share-timeout", "60"]].concat());
    let (stopped, running) = (read_ring(&lossless(&name), &held, &[]), read_ring(&lossless(&name), &other, &[]));
    feed.send(PARTS[0]);
    wait_for_frames(&held, feed.sent());
    stopped.signal(Signal::STOP);
    let errors = feed.running.collect_errors();
    let feeding = feed_in_background(feed, PARTS[1]);
    wait_until_blocked(&errors, &stopped);
    stopped.signal(Signal::CONT);
    let feed = wait_until_fed(feeding);
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
fn reader_stopped_beyond_patience_is_evicted() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let [held, other] = ["held.pcap", "other.pcap"].map(|file| scratch.file(file));
    let mut feed = Feed::start(&name, 2, &[&SMALL[..], &["--share-timeout", "0.4"]].concat());
    let (stopped, running) = (read_ring(&lossless(&name), &held, &[]), read_ring(&lossless(&name), &other, &[]));
    feed.send(PARTS[0]);
    wait_for_frames(&held, feed.sent());
    stopped.signal(Signal::STOP);
    let feeding = feed_in_background(feed, PARTS[1]);
    let mut feed = wait_until_fed(feeding);
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
fn killed_lossless_reader_blocks_no_other() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let [held, other] = ["held.pcap", "other.pcap"].map(|file| scratch.file(file));
    let mut feed = Feed::start(&name, 2, &SMALL);
    let (stopped, running) = (read_ring(&lossless(&name), &held, &[]), cat_into(&other, &["-l", "-w", &name]));
    feed.send(PARTS[0]);
    wait_for_frames(&held, feed.sent());
    stopped.signal(Signal::STOP);
    let errors = feed.running.collect_errors();
    let feeding = feed_in_background(feed, PARTS[1]);
    wait_until_blocked(&errors, &stopped);
    stopped.signal(Signal::KILL);
    let pid = stopped.pid();
    assert_eq!(stopped.end().status, -1);
    let mut feed = wait_until_fed(feeding);
    feed.send(PARTS[2]);
    let json = feed.end().good().json();
    running.end().good();
    assert_all("other", &records::read(&other), 0..ALL);
    let account = account_of(&json, pid);
    assert!(account.reclaimed > 1000 && account.waits >= 1 && account.outstanding == 0, "{account:?}");
    assert!(account.received < u64::from(ALL), "frames sent after its death are in its account: {account:?}");
}
