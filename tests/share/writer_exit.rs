//! Death of the writer: committed frames are read, the death is reported, and another writer may start at once.

use crate::share::fixtures::{
    Feed, account_of, assert_all, cat_into, frame, frames, lossless, number, read_ring, ring_name, wait_for_frames,
};
use linerate_tests::support::Scratch;
use linerate_tests::support::may_make_labs;
use linerate_tests::support::program::{launch, start};
use linerate_tests::support::records;
use linerate_tests::support::wire::{ROOMY, Wire};
use rustix::process::Signal;
use std::time::{Duration, Instant};

#[test]
fn committed_frames_of_a_killed_writer_are_read() {
    let place = Scratch::new();
    for name in [ring_name(), place.file("ring.sock")] {
        let scratch = Scratch::new();
        let files = ["ours.pcap", "late.pcap", "c.pcap"].map(|file| scratch.file(file));
        let [ours, late, c] = &files;
        let mut feed = Feed::start(&name, 3, &["--share-memory", "8MiB"]);
        let readers = [read_ring(&lossless(&name), ours, &[]), read_ring(&lossless(&name), late, &[])];
        let cat = cat_into(c, &["-l", "-w", &name]);
        feed.send(10);
        wait_for_frames(late, 10);
        readers[1].signal(Signal::STOP);
        feed.send(20_000);
        wait_for_frames(ours, 20_010);
        wait_for_frames(c, 20_010);
        let pid = feed.running.pid();
        feed.running.signal(Signal::KILL);
        drop(feed);
        readers[1].signal(Signal::CONT);
        let died = format!("its writer (pid {pid}) died; all committed frames were read");
        for reader in readers {
            let ended = reader.end().with_status(1).says(&died);
            let json = ended.json();
            assert_eq!((json["frames"].as_u64(), json["balanced"].as_bool()), (Some(20_010), Some(true)), "{json:#}");
            assert!(json["failure"].as_str().unwrap().contains(&died));
        }
        cat.end().with_status(1).says("20010 frames, 0 skipped, 0 bad: the writer died");
        for file in &files {
            assert_all(file, &records::read(file), 0..20_010);
        }
        assert_is_free(&scratch, &name);
    }
}

/// Asserts that another writer may use the name at once.
fn assert_is_free(scratch: &Scratch, name: &str) {
    let output = scratch.file("next.pcap");
    let mut feed = Feed::start(name, 1, &[]);
    let reader = read_ring(&lossless(name), &output, &[]);
    feed.send(1000);
    feed.end().good();
    reader.end().good();
    assert_all("the next writer", &records::read(&output), 0..1000);
}

/// The writer is killed under load, at another moment each time.
#[test]
fn writer_killed_under_load_leaves_a_prefix_of_the_stream() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let [ours, c] = ["ours.pcap", "c.pcap"].map(|file| scratch.file(file));
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut most = 0;
    for round in 0..12 {
        let mut feed = Feed::start(&name, 2, &["--share-memory", "2MiB", "--share-block", "512KiB"]);
        let (reader, cat) = (read_ring(&lossless(&name), &ours, &[]), cat_into(&c, &["-l", "-w", &name]));
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        feed.send(1 + (random % 30_000) as u32);
        feed.running.signal(Signal::KILL);
        drop(feed);
        reader.end().with_status(1).says("died");
        cat.end().with_status(1).says("the writer died");
        for file in [&ours, &c] {
            let got = if std::fs::metadata(file).unwrap().len() > 0 { records::read(file) } else { Vec::new() };
            assert!(got.iter().enumerate().all(|(at, record)| *record == frame(at as u32)), "round {round}");
            most = most.max(got.len());
        }
    }
    assert!(most > 1000, "no writer ran long enough");
}

/// Ctrl-C ends the writer in order: its readers have all frames, and end too.
#[test]
fn interrupted_writer_ends_in_order() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let output = scratch.file("out.pcap");
    let mut feed = Feed::start(&name, 2, &[]);
    let reader = read_ring(&lossless(&name), &output, &[]);
    let pid = reader.pid();
    let count = launch(&["count", &lossless(&name), "--json"]);
    feed.send(5000);
    wait_for_frames(&output, 5000);
    feed.running.signal(Signal::INT);
    let json = feed.end().good().json();
    reader.end().good();
    let last: serde_json::Value = serde_json::from_str(count.end().good().output.lines().last().unwrap()).unwrap();
    assert_eq!(last["frames"].as_u64(), Some(5000));
    assert_eq!(account_of(&json, pid).finished, 5000);
    assert_all("interrupted", &records::read(&output), 0..5000);
}

/// Ctrl-C ends a reader: it has a part of the stream without gaps, the writer continues, and it may attach again.
#[test]
fn interrupted_reader_may_attach_again() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let [all, part] = ["all.pcap", "part.pcap"].map(|file| scratch.file(file));
    let mut feed = Feed::start(&name, 1, &["--share-memory", "2MiB", "--share-block", "512KiB"]);
    let lasting = read_ring(&lossless(&name), &all, &[]);
    lasting.wait_until_open();
    for _ in 0..5 {
        let reader = read_ring(&lossless(&name), &part, &[]);
        reader.wait_until_open();
        feed.send(12_000);
        let pid = reader.pid();
        let json = reader.interrupt().good().json();
        let got = if std::fs::metadata(&part).unwrap().len() > 24 { records::read(&part) } else { Vec::new() };
        let first = got.first().map_or(0, number);
        assert_all("a part", &got, first..first + got.len() as u32);
        assert_eq!(
            (json["balanced"].as_bool(), json["quiesced"].as_bool()),
            (Some(true), Some(true)),
            "{pid}: {json:#}"
        );
    }
    let sent = feed.sent();
    let json = feed.end().good().json();
    lasting.end().good();
    assert_eq!(crate::share::fixtures::accounts(&json).len(), 6);
    assert_all("all", &records::read(&all), 0..sent);
}

/// A stopped lossless reader delays neither Ctrl-C for long nor the accounting of every frame.
#[test]
fn interrupted_writer_does_not_wait_forever() {
    if !may_make_labs() {
        return;
    }
    let (wire, scratch, name) = (Wire::new(), Scratch::new(), ring_name());
    let (file, output) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    records::write(&file, &frames(0..60_000));
    let port = wire.port("b", "eth0", ROOMY);
    let small = ["--share-memory", "2MiB", "--share-block", "512KiB", "--json"];
    let ring = ["capture", "-i", &port, "--share", &name, "--lossless-readers", "--share-timeout", "60"];
    let writer = start(&[&ring[..], &small].concat());
    let reader = read_ring(&lossless(&name), &output, &[]);
    reader.wait_until_open();
    reader.signal(Signal::STOP);
    wire.replay(&file);
    let (pid, interrupted) = (reader.pid(), Instant::now());
    let json = writer.interrupt().json();
    // Five seconds for a block, one for closing.
    assert!(interrupted.elapsed() < Duration::from_secs(9), "it took {:?} to end", interrupted.elapsed());
    let (lost, account) = (json["drops"]["no_block"].as_u64().unwrap(), account_of(&json, pid));
    assert_eq!(
        (json["frames"].as_u64(), json["received"].as_u64()),
        (Some(account.received), Some(60_000)),
        "{json:#}"
    );
    assert_eq!(account.received + lost, 60_000);
    assert!(lost > 10_000 && account.outstanding > 1000 && account.outstanding == account.received, "{account:?}");
    assert_eq!(json["lost"], lost);
}

#[test]
fn writer_waiting_for_readers_can_be_interrupted() {
    let name = ring_name();
    let feed = Feed::start(&name, 3, &[]);
    let interrupted = Instant::now();
    feed.running.signal(Signal::INT);
    feed.end().good();
    assert!(interrupted.elapsed() < Duration::from_secs(3), "it took {:?} to end", interrupted.elapsed());
}
