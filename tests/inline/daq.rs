//! The module for libdaq 3 as the engine, driven by a test host that gives every verdict, replaces, injects and holds
//! frames, and writes garbage into frames it has seen.

use super::engine::{Scene, number, ring_name};
use linerate_tests::support::Scratch;
use linerate_tests::support::daq::{attached, host, module};
use linerate_tests::support::program::start;
use linerate_tests::support::records::{self, Record};
use linerate_tests::support::wire::settle;
use serde_json::json;

/// Number of frames; the destination port selects the verdict.
const FRAMES: u32 = 2000;
pub(super) const PASS: u16 = 10;
pub(super) const BLOCK: u16 = 11;
pub(super) const REPLACE: u16 = 12;
const WHITELIST: u16 = 13;
const BLACKLIST: u16 = 14;
const IGNORE: u16 = 15;
pub(super) const INJECT: u16 = 16;
pub(super) const INJECT_BACK: u16 = 17;
pub(super) const HOLD: u16 = 18;
pub(super) const NO_VERDICT: u16 = 19;

/// A UDP frame with its number in it, to one of these ports.
pub(super) fn frame(number: u32) -> Record {
    let (port, payload) = (PASS + (number % 10) as u16, 18 + (number % 700) as u16);
    let mut bytes = [[2, 0, 0, 0, 0, 0x0b], [2, 0, 0, 0, 0, 0x0a]].concat();
    bytes.extend([8, 0, 0x45, 0]);
    bytes.extend((28 + payload).to_be_bytes());
    bytes.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([1000 + port, port, 8 + payload, 0].map(u16::to_be_bytes).concat());
    bytes.extend(number.to_be_bytes());
    bytes.extend((4..payload).map(|at| (at ^ number as u16) as u8));
    Record { time: u64::from(number), wire: bytes.len() as u32, bytes }
}

pub(super) fn port(record: &Record) -> u16 {
    u16::from_be_bytes(record.bytes[36..38].try_into().unwrap())
}

/// The same with another last byte.
fn ending(record: &Record, last: u8) -> Record {
    let mut other = record.clone();
    *other.bytes.last_mut().unwrap() = last;
    other
}

/// Expected frames on the other side, and back towards the source.
pub(super) fn expected(record: &Record) -> (Option<Record>, Option<Record>) {
    match port(record) {
        BLOCK | BLACKLIST => (None, None),
        REPLACE => (Some(ending(record, 0x5a)), None),
        INJECT => (Some(ending(record, 0xaa)), None),
        INJECT_BACK => (Some(record.clone()), Some(ending(record, 0xbb))),
        PASS | WHITELIST | IGNORE | HOLD | NO_VERDICT => (Some(record.clone()), None),
        port => panic!("unexpected port {port}"),
    }
}

/// The bytes of frames for a port, in order of arrival.
fn flow(records: &[Record], of: u16) -> Vec<&[u8]> {
    records.iter().filter(|record| port(record) == of).map(|record| record.bytes.as_slice()).collect()
}

#[test]
fn libdaq_verdicts_are_applied() {
    let Some(module) = module() else { return };
    let Some(scene) = Scene::up() else { return };
    let (scratch, ring) = (Scratch::new(), ring_name());
    let [ready, file, there, back] = ["ready", "in.pcap", "there.pcap", "back.pcap"].map(|name| scratch.file(name));
    let all: Vec<Record> = (0..FRAMES).map(frame).collect();
    records::write(&file, &all);
    // On a busy machine an engine may stop for a while.
    let inline = scene.inline(&ring, &["--budget", "20000", "--hold", "20000"]);
    let input = format!("inline:{ring}");
    let engine = host(module, &[&input, "inline", "decide", &format!("ready={ready}"), "timeout=50"]);
    attached(&ready);
    let captures = [("b", &there), ("a", &back)].map(|(host, file)| {
        start(&["capture", "-i", &scene.0.port(host, "eth0", "&ring=32MiB&timeout=1"), "-w", file, "--json"])
    });
    scene.0.replay_with(&["-r", &file, "--rate", "4kpps"]);
    let expected: Vec<_> = all.iter().map(expected).collect();
    let wanted: [Vec<Record>; 2] = [
        expected.iter().filter_map(|(there, _)| there.clone()).collect(),
        expected.iter().filter_map(|(_, back)| back.clone()).collect(),
    ];
    settle(&there, &wanted[0]);
    settle(&back, &wanted[1]);
    captures.into_iter().for_each(|capture| drop(capture.interrupt().good()));
    let json = inline.interrupt().good().json();
    let ended = engine.end().good();
    assert_eq!(ended.errors, format!("linerate: {input}: verdicts for reason 5: {}\n", FRAMES / 10));
    let report = ended.json();
    for (file, wanted) in [(&there, &wanted[0]), (&back, &wanted[1])] {
        let got = records::read(file);
        for port in PASS..=NO_VERDICT {
            assert!(flow(&got, port) == flow(wanted, port), "{file}, port {port}: {json:#}\n{report:#}");
        }
        assert_eq!(got.len(), wanted.len(), "{file}");
    }
    let each = u64::from(FRAMES / 10);
    assert_eq!((&json["balanced"], &json["quiesced"]), (&json!(true), &json!(true)), "{json:#}");
    let of = |way: usize, name: &str| number(&json["directions"][way]["verdicts"], name);
    assert_eq!(["replaced", "policy_passed", "policy_dropped"].map(|name| of(0, name)), [each, 0, 0], "{json:#}");
    // Includes the injected frames: one each way.
    let sent = [of(0, "passed") + of(0, "replaced") + each, each];
    assert_eq!([0, 1].map(|way| number(&json["directions"][way], "frames")), sent, "{json:#}");
    let (stats, seen) = (&report["stats"], |port: u16| report["counts"][port.to_string()].as_u64().unwrap_or(0));
    assert_eq!((report["status"].as_u64(), stats["injected"].as_u64()), (Some(3), Some(2 * each)), "{report:#}");
    // The engine still sees some frames of listed flows, until the list takes effect.
    assert!((1..=each).contains(&seen(WHITELIST)) && (1..=each).contains(&seen(BLACKLIST)), "{report:#}");
    let verdicts = [4 * each, 2 * each, each, seen(WHITELIST), seen(BLACKLIST), seen(IGNORE)];
    assert_eq!(stats["verdicts"], json!(verdicts), "{report:#}");
    assert_eq!((&stats["hw_dropped"], &report["directions"]), (&json!(0), &json!([[1, 2]])), "{report:#}");
    // All capabilities; 0x80, the filter, only with libpcap.
    assert_eq!(report["capabilities"].as_u64().unwrap() & !0x80, 0x15f, "{report:#}");
}
