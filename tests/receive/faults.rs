//! Faulty links, and senders and receivers that fail.

use crate::receive::testbed::{OWN, Stage, Way, note, sound, streams};
use linerate_tests::support::wait_until;
use rustix::process::Signal;

const MIB: u64 = 1 << 20;

#[test]
fn every_byte_arrives_over_a_faulty_link() {
    let Some(stage) = Stage::up(false) else { return };
    for (faults, size) in [
        ("drop=1%", 8),
        ("burst=0.1%x30", 8),
        ("repeat=2%", 8),
        ("reorder=1%x20", 8),
        // One bit: a 16-bit checksum misses some changes of two or more bits.
        ("corrupt=1%x1", 8),
        ("truncate=1%", 8),
        ("pad=5%x40", 8),
        ("drop=1%&burst=0.05%x10&repeat=1%&reorder=1%x50&corrupt=0.5%x1&truncate=0.5%&pad=1%x9", 6),
    ] {
        let size_of = format!("{size}MiB");
        let report = stage.send_over_faulty_link(faults, &["--size", &size_of], |port| {
            stage.receive(port, &["--check", "--streams", "1"])
        });
        assert_eq!(report["balanced"], true, "{faults}: {report:#}");
        assert_eq!(streams(&report), [("complete".to_owned(), size * MIB)], "{faults}");
    }
}

#[test]
fn data_of_a_killed_sender_is_kept() {
    let Some(stage) = Stage::up(true) else { return };
    let running = stage.receive(&stage.port(Way::Packet, ""), &["--check", "--streams", "1"]);
    let to = format!("{OWN}:5001");
    let arguments = ["send", &to, "-q", "--duration", "50", "--silence", "20"];
    let client = stage.wire.start_inside("client", &arguments);
    wait_until("50 MiB are sent", || stage.sent() > 50 * MIB);
    client.signal(Signal::KILL);
    drop(client);
    let report = sound(running.end());
    let [(ended, bytes)] = &streams(&report)[..] else { panic!("{report:#}") };
    assert!(["reset", "complete"].contains(&ended.as_str()) && *bytes > 40 * MIB, "{report:#}");
}

#[test]
fn wrong_byte_is_found_and_ends_the_run() {
    let Some(stage) = Stage::up(true) else { return };
    let running = stage.receive(&stage.port(Way::Packet, ""), &["--check", "--key", "7", "--streams", "1"]);
    stage.send(&format!("{OWN}:5001"), &["--size", "1MiB", "--key", "8"]);
    let ended = running.end().with_status(1);
    assert!(ended.errors.contains("byte 0 of the stream is"), "{}", ended.errors);
}

#[test]
fn other_ports_answer_only_with_a_reset() {
    let Some(stage) = Stage::up(true) else { return };
    for (silent, said) in [(false, "refused"), (true, "no answer")] {
        let more: &[&str] = if silent { &["--silent"] } else { &[] };
        let running = stage.receive(&stage.port(Way::Packet, ""), more);
        let ended =
            stage.send(&format!("{OWN}:5002"), &["--size", "1MiB", "--silence", if silent { "1" } else { "10" }]);
        assert!(ended.status == 1 && ended.errors.to_lowercase().contains(said), "{said}: {}", ended.errors);
        let report = running.interrupt().good().json();
        assert_eq!((streams(&report), &report["balanced"]), (Vec::new(), &true.into()), "{report:#}");
    }
}

#[test]
fn tagged_frames_are_counted_where_tags_are_invisible() {
    let Some(stage) = Stage::up(true) else { return };
    let running = stage.receive(&stage.port(Way::Packet, ""), &["--check"]);
    let to = stage.wire.port("client", "eth0", "");
    let syn = |dst: &str| format!("vlan(id=7)/ip(src=10.7.0.1,dst={dst})/tcp(dport=5001,flags=syn)");
    let (own, other) = (syn(OWN), syn("10.7.0.8"));
    stage
        .wire
        .inside("client", &["generate", "--to", &to, "-k", &own, "-k", &other, "-c", "300", "-q", "-Z", "root"])
        .good();
    stage.send(&format!("{OWN}:5001"), &["--size", "1MiB"]).good();
    let report = sound(running.interrupt());
    assert_eq!((note(&report, "receive", "vlan_unseen"), note(&report, "tcp", "syns")), (300, 1), "{report:#}");
    assert_eq!(streams(&report), [("complete".to_owned(), MIB)]);
}
