//! Several readers of one stream, with shards, filters, slices and limits.

use crate::share::fixtures::{
    FLOWS, account_of, assert_all, frame, frames, lossless, number, read_ring, ring_name, share_file,
};
use linerate_tests::support::Scratch;
use linerate_tests::support::program::Running;
use linerate_tests::support::records::{self, Record};

/// Runs readers with these arguments on one ring of `FRAMES` frames; returns what each has written.
fn read_by(readers: &[&[&str]]) -> Vec<Vec<Record>> {
    let (scratch, name) = (Scratch::new(), ring_name());
    let file = scratch.file("in.pcap");
    records::write(&file, &frames(0..FRAMES));
    let small = ["--share-memory", "8MiB", "--share-block", "512KiB"];
    let writer = share_file(&file, &name, readers.len() as u32, &small);
    let outputs: Vec<String> = (0..readers.len()).map(|reader| scratch.file(&format!("{reader}.pcap"))).collect();
    let start = |(output, arguments): (&String, &&[&str])| read_ring(&lossless(&name), output, arguments);
    let running: Vec<Running> = outputs.iter().zip(readers).map(start).collect();
    let pids: Vec<u32> = running.iter().map(Running::pid).collect();
    for reader in running {
        let json = reader.end().good().json();
        assert_eq!((json["received"].as_u64(), json["lost"].as_u64()), (Some(FRAMES.into()), Some(0)), "{json:#}");
        assert_eq!(json["balanced"], true);
    }
    let json = writer.end().good().json();
    for pid in pids {
        assert_eq!(account_of(&json, pid).finished, u64::from(FRAMES));
    }
    outputs.iter().map(|output| records::read(output)).collect()
}

const FRAMES: u32 = 50_000;

#[test]
fn four_shards_divide_a_ring_by_flow() {
    let shards = ["1/4", "2/4", "3/4", "4/4"].map(|shard| ["--shard", shard]);
    let got = read_by(&shards.each_ref().map(|shard| &shard[..]));
    let mut shard_of = vec![None; FLOWS as usize];
    for (shard, records) in got.iter().enumerate() {
        assert!(records.windows(2).all(|pair| number(&pair[0]) < number(&pair[1])));
        assert!(!records.is_empty(), "shard {shard} is empty");
        for record in records {
            let flow = &mut shard_of[(number(record) % FLOWS) as usize];
            assert_eq!(*flow.get_or_insert(shard), shard, "a flow in two shards");
        }
    }
    let mut all = got.concat();
    all.sort_by_key(number);
    assert_all("all shards", &all, 0..FRAMES);
}

#[test]
fn each_reader_has_its_own_filter() {
    let got = read_by(&[&["host 10.0.0.5"], &["--filter", "udp src port 53"], &["tcp"], &["less 100"]]);
    let wanted = |is: &dyn Fn(&Record) -> bool| -> Vec<Record> { frames(0..FRAMES).into_iter().filter(is).collect() };
    assert_eq!(got[0], wanted(&|record| number(record) % FLOWS == 5));
    assert_eq!(got[1], wanted(&|record| number(record) / FLOWS % 2 == 1));
    assert_eq!(got[2], []);
    assert_eq!(got[3], wanted(&|record| record.wire <= 100));
}

#[test]
fn each_reader_has_its_own_slice_and_limit() {
    let got = read_by(&[&["--slice", "40"], &["--slice", "l4"], &["--slice", "l3+10"], &[]]);
    for (records, length) in got.iter().zip([40, 42, 44, usize::MAX]) {
        assert_eq!(records.len(), FRAMES as usize);
        for (number, record) in records.iter().enumerate() {
            let mut wanted = frame(number as u32);
            wanted.bytes.truncate(length);
            assert!(*record == wanted, "frame {number} cut at {length}");
        }
    }
}

/// A limit ends only its own reader.
#[test]
fn reader_with_a_limit_does_not_affect_others() {
    let (scratch, name) = (Scratch::new(), ring_name());
    let (file, few, all) = (scratch.file("in.pcap"), scratch.file("few.pcap"), scratch.file("all.pcap"));
    records::write(&file, &frames(0..FRAMES));
    let writer = share_file(&file, &name, 2, &["--share-memory", "2MiB", "--share-block", "512KiB"]);
    let (few_reader, all_reader) =
        (read_ring(&lossless(&name), &few, &["-c", "1000"]), read_ring(&lossless(&name), &all, &[]));
    let (pid, other) = (few_reader.pid(), all_reader.pid());
    few_reader.end().good();
    all_reader.end().good();
    let json = writer.end().good().json();
    assert_all("few", &records::read(&few), 0..1000);
    assert_all("all", &records::read(&all), 0..FRAMES);
    assert_eq!(account_of(&json, other).finished, u64::from(FRAMES));
    let account = account_of(&json, pid);
    assert!(account.received >= 1000 && account.outstanding == 0, "{account:?}");
}
