//! Replays from files into files.

use linerate_tests::support::program::{linerate, run};
use linerate_tests::support::records::{self, Record, assert_same_frames};
use linerate_tests::support::wire::numbered;
use linerate_tests::support::{Scratch, frames};
use std::fs::File;
use std::time::Instant;

#[test]
fn preloaded_and_streamed_files_replay_alike() {
    let (scratch, all) = (Scratch::new(), numbered(2000));
    let (file, output) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    records::write(&file, &all);
    let to = format!("pcap:{output}");
    let common = ["replay", "--json", "--to", &to, "--rate", "max", "-r"];
    for (way, loops) in [(&[&file, "--loops", "3"][..], 3), (&[&file, "--loops", "2", "--preload"], 2)] {
        let json = run(&[&common[..], way].concat()).good().json();
        assert_eq!((json["frames"].as_u64(), json["loops"].as_u64()), (Some(loops * 2000), Some(loops)), "{json}");
        assert_same_frames("held", &records::read(&output), &(0..loops).flat_map(|_| all.clone()).collect::<Vec<_>>());
    }
    let mut piped = linerate(&[&common[..], &["-"]].concat());
    let ended = piped.stdin(File::open(&file).unwrap()).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_same_frames("ahead", &records::read(&output), &all);
}

/// Held in memory, read ahead, and held with addresses that change in each pass.
#[test]
fn recording_is_replayed_up_to_where_it_is_cut_off() {
    let (scratch, all) = (Scratch::new(), numbered(2000));
    let (file, output) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    records::write(&file, &all);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 5]).unwrap();
    let to = format!("pcap:{output}");
    let common = ["replay", "--json", "--to", &to, "--rate", "max", "-r"];
    let shift = ["--loops", "2", "--shift-ips", "256"];
    for how in [&[][..], &["--loops", "3"], &["--preload"], &shift] {
        let ended = run(&[&common[..], &[&file], how].concat()).with_status(1).says("cut off in the middle");
        assert_eq!(ended.json()["frames"], 1999, "{how:?}");
        assert_eq!(records::read(&output).len(), 1999, "{how:?}");
    }
    let mut piped = linerate(&[&common[..], &["-"]].concat());
    let ended = piped.stdin(File::open(&file).unwrap()).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert_same_frames("ahead", &records::read(&output), &all[..1999]);
}

#[test]
fn truncated_frames_are_dropped_or_padded() {
    let (scratch, mut all) = (Scratch::new(), frames::sample());
    let (file, output) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    let whole = all.clone();
    for record in all.iter_mut().step_by(3).filter(|record| record.bytes.len() > 64) {
        record.bytes.truncate(64);
    }
    let cut = all.iter().zip(&whole).filter(|(cut, whole)| cut != whole).count();
    assert!(cut > 10);
    records::write(&file, &all);
    let to = format!("pcap:{output}");
    let common = ["replay", "--json", "--to", &to, "--rate", "max", "-r", &file];
    let json = run(&common).good().json();
    let kept: Vec<Record> =
        all.iter().zip(&whole).filter(|(cut, whole)| cut == whole).map(|(_, w)| w.clone()).collect();
    assert_eq!(
        (json["frames"].as_u64(), json["drops"]["truncated"].as_u64()),
        (Some(kept.len() as u64), Some(cut as u64))
    );
    assert_same_frames("left out", &records::read(&output), &kept);

    let json = run(&[&common[..], &["--pad"]].concat()).good().json();
    assert_eq!((json["padded"].as_u64(), json["lost"].as_u64()), (Some(cut as u64), Some(0)), "{json}");
    let zeros = |record: &Record| {
        let mut bytes = record.bytes.clone();
        bytes.resize(record.wire as usize, 0);
        Record { bytes, ..record.clone() }
    };
    assert_same_frames("padded", &records::read(&output), &all.iter().map(zeros).collect::<Vec<_>>());
}

#[test]
fn both_sides_add_up_to_the_recording() {
    let (scratch, all) = (Scratch::new(), frames::sample());
    let [file, client, server] = ["in.pcap", "client.pcap", "server.pcap"].map(|name| scratch.file(name));
    records::write(&file, &all);
    let (to, to_server) = (format!("pcap:{client}"), format!("pcap:{server}"));
    for by in ["first-packet", "port", "ip=10.0.0.1", "mac=02:00:00:00:00:0a"] {
        let sides = ["--to", &to, "--to-server", &to_server, "--split-by", by];
        let json = run(&[&["replay", "--json", "--rate", "max", "-r", &file][..], &sides].concat()).good().json();
        let mut got = [records::read(&client), records::read(&server)];
        for (side, records) in got.iter().enumerate() {
            assert_eq!(json["ports"][side]["frames"].as_u64(), Some(records.len() as u64), "{by}: {json}");
        }
        // All sample frames have the same source MAC, and none is answered.
        assert_eq!(got[1].is_empty(), by.starts_with("mac") || by == "first-packet", "{by}");
        let mut both = std::mem::take(&mut got[0]);
        both.append(&mut got[1]);
        both.sort_by_key(|record| record.time);
        assert_same_frames(by, &both, &all);
    }
}

#[test]
fn invalid_options_are_rejected() {
    let (scratch, all) = (Scratch::new(), numbered(10));
    let file = scratch.file("in.pcap");
    records::write(&file, &all);
    let to = format!("pcap:{}", scratch.file("out.pcap"));
    for (arguments, expected) in [
        (&["--rewrite", "ip=10.0.0.0/8"][..], "ip=OLD:NEW"),
        (&["--rewrite", "vlan=5000"], "vlan=push:ID"),
        (&["--rewrite", "hop=3"], "src-mac"),
        (&["--shift-ips", "1/99"], "BITS"),
        (&["--loop-delay", "7"], "10ms"),
        (&["--split-by", "port"], "--to-server"),
        (&["--to-server", "pcap:/dev/null", "--split-by", "size"], "first-packet"),
        (&["--to-server", &to], "need two files"),
        (&["--rewrite-inner"], "--rewrite"),
        (&["--speed", "2", "--rate", "max"], "--rate"),
    ] {
        run(&[&["replay", "--to", &to, "-r", &file][..], arguments].concat()).with_status(2).says(expected);
    }
}

/// Files are not paced: a recording of hours is written at once, with the requested timestamps.
#[test]
fn hours_are_replayed_to_a_file_at_once() {
    const SECOND: u64 = 1_000_000_000;
    let (scratch, mut all) = (Scratch::new(), numbered(200));
    let (file, output) = (scratch.file("in.pcap"), scratch.file("out.pcap"));
    // More than an hour, with growing gaps and one step back in time.
    all.iter_mut().enumerate().for_each(|(at, record)| record.time = 77 * SECOND + (at * at) as u64 * SECOND / 10);
    all[100].time -= 30 * SECOND;
    records::write(&file, &all);
    let to = format!("pcap:{output}");
    let replayed = |arguments: &[&str]| {
        let began = Instant::now();
        let json = run(&[&["replay", "--json", "--to", &to, "-r", &file], arguments].concat()).good().json();
        assert!(began.elapsed().as_secs() < 40, "{arguments:?} took {:?}", began.elapsed());
        assert!(json["lateness_max_us"].is_null() && json["written_at_once"] == true, "{json}");
        let got = records::read(&output);
        (got.iter().map(|record| record.time - 77 * SECOND).collect::<Vec<_>>(), json, got)
    };
    let recorded: Vec<u64> = all.iter().map(|record| record.time - 77 * SECOND).collect();
    let mut due = recorded.clone();
    due[100] = due[99];
    let last = due[199];

    let (_, json, got) = replayed(&[]);
    assert!(got == all, "as recorded");
    assert_eq!(json["seconds"].as_f64(), Some(last as f64 / 1e9), "{json}");

    assert_eq!(replayed(&["--speed", "2"]).0, due.iter().map(|due| due / 2).collect::<Vec<_>>());
    assert_eq!(replayed(&["--rate", "1pps"]).0, (0..200).map(|at| at * SECOND).collect::<Vec<_>>());

    let (times, json, _) = replayed(&["--loops", "3", "--loop-delay", "100s"]);
    let pass = |turn: u64| due.iter().map(move |due| due + turn * (last + 100 * SECOND));
    assert_eq!(times, (0..3).flat_map(pass).collect::<Vec<_>>());
    assert_eq!(json["loops"], 3, "{json}");

    let (times, json, _) = replayed(&["--rate", "1pps", "--loops", "0", "--duration", "5000"]);
    assert_eq!(times, (0..5000).map(|at| at * SECOND).collect::<Vec<_>>());
    assert_eq!(json["seconds"].as_f64(), Some(5000.0), "{json}");
}
