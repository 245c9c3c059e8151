//! Rings as ports: chains, merges, counting, sending.

use crate::share::fixtures::{
    account_of, assert_all, cat_into, frames, lossless, number, read_ring, ring_name, share_file, wait_for_frames,
};
use linerate_tests::support::program::{launch, run, start};
use linerate_tests::support::records;
use linerate_tests::support::{Scratch, wait_until};

#[test]
fn reader_writes_the_same_file_as_the_writer() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let file = scratch.file("in.pcap");
    records::write(&file, &frames(0..30_000));
    for kind in ["pcap", "pcap.zst"] {
        let (own, other) = (scratch.file(&format!("own.{kind}")), scratch.file(&format!("other.{kind}")));
        let writer = share_file(&file, &name, 1, &["-w", &own]);
        let json = read_ring(&lossless(&name), &other, &[]).end().good().json();
        assert_eq!((json["frames"].as_u64(), json["late"].as_u64()), (Some(30_000), Some(0)));
        writer.end().good();
        if kind == "pcap" {
            assert!(std::fs::read(own).unwrap() == std::fs::read(other).unwrap());
        } else {
            let plain = scratch.file("plain.pcap");
            run(&["capture", "-q", "-r", &other, "-w", &plain]).good();
            assert!(std::fs::read(plain).unwrap() == std::fs::read(&file).unwrap());
        }
    }
}

#[test]
fn frames_of_one_ring_are_shared_in_another() {
    let (scratch, first, second) = (Scratch::new(), ring_name(), ring_name());
    let (file, by_c, by_us) = (scratch.file("in.pcap"), scratch.file("c.pcap"), scratch.file("us.pcap"));
    records::write(&file, &frames(0..30_000));
    let small = ["--share-memory", "2MiB", "--share-block", "512KiB"];
    let writer = share_file(&file, &first, 1, &small);
    let port = lossless(&first);
    let chain = ["capture", "-i", &port, "--share", &second, "--share-wait", "2", "--lossless-readers", "--json"];
    let between = start(&[&chain[..], &small].concat());
    let (c, us) = (cat_into(&by_c, &["-l", "-w", &second]), read_ring(&lossless(&second), &by_us, &[]));
    let (pid, last) = (between.pid(), us.pid());
    c.end().good();
    us.end().good();
    let json = between.end().good().json();
    assert_eq!(account_of(&json, last).finished, 30_000);
    assert_eq!(account_of(&writer.end().good().json(), pid).finished, 30_000);
    let wanted = std::fs::read(&file).unwrap();
    assert!(std::fs::read(by_c).unwrap() == wanted && std::fs::read(by_us).unwrap() == wanted);
}

#[test]
fn ring_and_file_are_merged_by_time() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let (even, odd, merged) = (scratch.file("even.pcap"), scratch.file("odd.pcap"), scratch.file("merged.pcap"));
    let half = |rest| frames(0..20_000).into_iter().filter(|frame| number(frame) % 2 == rest).collect::<Vec<_>>();
    records::write(&even, &half(0));
    records::write(&odd, &half(1));
    let writer = share_file(&even, &name, 1, &[]);
    let json = read_ring(&lossless(&name), &merged, &["-r", &odd]).end().good().json();
    writer.end().good();
    assert_all("merged", &records::read(&merged), 0..20_000);
    assert_eq!((json["late"].as_u64(), json["balanced"].as_bool()), (Some(0), Some(true)));
}

#[test]
fn two_rings_are_merged_by_time() {
    let (scratch, names) = (Scratch::new(), [ring_name(), ring_name()]);
    let merged = scratch.file("merged.pcap");
    let writers = [0, 1].map(|rest| {
        let file = scratch.file(&format!("{rest}.pcap"));
        let half: Vec<_> = frames(0..20_000).into_iter().filter(|frame| number(frame) % 2 == rest).collect();
        records::write(&file, &half);
        share_file(&file, &names[rest as usize], 1, &["--share-memory", "2MiB", "--share-block", "512KiB"])
    });
    let ports = names.each_ref().map(|name| lossless(name)).join(",");
    read_ring(&ports, &merged, &[]).end().good();
    writers.into_iter().for_each(|writer| drop(writer.end().good()));
    assert_all("merged", &records::read(&merged), 0..20_000);
}

#[test]
fn count_reads_a_ring() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let file = scratch.file("in.pcap");
    records::write(&file, &frames(0..10_000));
    let writer = share_file(&file, &name, 1, &[]);
    let ended = launch(&["count", &lossless(&name), "--json"]).end().good();
    writer.end().good();
    let summary: serde_json::Value = serde_json::from_str(ended.output.lines().last().unwrap()).unwrap();
    assert_eq!(summary["record"], "summary");
    let bytes: u64 = frames(0..10_000).iter().map(|frame| u64::from(frame.wire)).sum();
    assert_eq!((summary["frames"].as_u64(), summary["bytes"].as_u64()), (Some(10_000), Some(bytes)), "{summary:#}");
}

/// A recording is replayed to a ring; a ring that is already shared cannot be sent to.
#[test]
fn ring_has_one_sender() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let (file, output) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    let sent = frames(0..10);
    records::write(&file, &sent);
    let sender = launch(&["replay", "-q", "--to", &format!("shm:{name}?wait=1&lossless=yes"), "-r", &file]);
    wait_until("the ring exists", || std::fs::read_to_string("/proc/net/unix").unwrap().contains(&name));
    run(&["capture", "-q", &format!("shm:{name}?mode=lossless"), "-w", &output]).good();
    sender.end().good();
    records::assert_same_frames("shm", &records::read(&output), &sent);
    let _writer = crate::share::fixtures::Feed::start(&name, 0, &[]);
    let other = ["replay", "-q", "--to", &format!("shm:{name}"), "-r", &file];
    run(&other).with_status(1).says("already shared by pid");
}

/// A ring with a socket in the file system, read to a file that grows with each frame.
#[test]
fn ring_with_a_socket_path_is_read() {
    let scratch = Scratch::new();
    let (socket, output) = (scratch.file("ring.sock"), scratch.file("out.pcap"));
    let mut feed = crate::share::fixtures::Feed::start(&socket, 1, &[]);
    let reader = read_ring(&lossless(&socket), &output, &[]);
    for count in [1, 2, 1000] {
        feed.send(count);
        wait_for_frames(&output, feed.sent());
    }
    feed.end().good();
    reader.end().good();
    assert_all("by its path", &records::read(&output), 0..1003);
    assert_eq!(scratch.names(), ["out.pcap"], "the socket is removed with its writer");
}
