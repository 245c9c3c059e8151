//! Several instances of the module for libdaq in one process that share the frames of one ring (`-z N`), between ports
//! in memory; and an engine that holds and decides the maximum number of frames, as these instances do.

use super::answers::{Through, frames_through, patient, through_any};
use super::daq::{BLOCK, HOLD, INJECT, INJECT_BACK, NO_VERDICT, PASS, REPLACE, expected, frame, port};
use linerate_burst::Count;
use linerate_engine::{FailMode, InlinePolicy};
use linerate_share::{Verdict, VerdictReply};
use linerate_tests::support::daq::{attached, host, module};
use linerate_tests::support::program::Running;
use linerate_tests::support::records::Record;
use linerate_tests::support::{Scratch, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

const FRAMES: u32 = 4000;
const FLOWS: u32 = 64;
const INSTANCES: usize = 4;

/// Both directions of flows, with all verdicts that do not affect later frames.
fn frames() -> Vec<Record> {
    let ports = [PASS, BLOCK, REPLACE, INJECT, INJECT_BACK, HOLD, NO_VERDICT];
    let one = |number: u32| {
        let mut record = frame(number);
        let source = (2000 + number % FLOWS) as u16;
        let port = ports[(number % FLOWS) as usize % ports.len()];
        record.bytes[34..38].copy_from_slice(&[source, port].map(u16::to_be_bytes).concat());
        if number / FLOWS % 3 == 2 {
            // The reverse direction: addresses and ports are swapped.
            let ends = reversed(&record.bytes[26..38]);
            record.bytes[26..38].copy_from_slice(&ends);
        }
        record
    };
    (0..FRAMES).map(one).collect()
}

fn reversed(ends: &[u8]) -> Vec<u8> {
    [&ends[4..8], &ends[..4], &ends[10..12], &ends[8..10]].concat()
}

/// The frames per flow and direction, in order.
fn group_by_flow(frames: impl Iterator<Item = Vec<u8>>) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut flows: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
    frames.for_each(|bytes| flows.entry(bytes[26..38].to_vec()).or_default().push(bytes));
    flows
}

/// Sends frames through an engine of several instances; returns the result, and the report that `end` gives.
fn through_shares(
    module: &Path,
    policy: InlinePolicy,
    options: &[&str],
    end: impl FnOnce(Running) -> Value + Send,
) -> (Through, Value) {
    let (scratch, report) = (Scratch::new(), Mutex::new(Value::Null));
    let ready = scratch.file("ready");
    let frames: Vec<Vec<u8>> = frames().into_iter().map(|record| record.bytes).collect();
    let got = through_any(policy, (frames, 64), "", |name| {
        let instances = format!("instances={INSTANCES}");
        let (name, arguments) = (format!("var.name={name}"), (format!("inline:{name}"), format!("ready={ready}")));
        let own = [&arguments.0, "inline", "share", &arguments.1, &instances, "instance=1", "timeout=50", &name];
        let engine = host(module, &[&own, options].concat());
        attached(&ready);
        let report = &report;
        move || *report.lock().unwrap() = end(engine)
    });
    (got, report.into_inner().unwrap())
}

#[test]
fn instances_of_one_process_share_the_frames() {
    let Some(module) = module() else { return };
    // Fewer messages than may be held, and more.
    for (pool, hold) in [("pool=64", "hold=40"), ("pool=1024", "hold=100")] {
        let end = |engine: Running| engine.end().good().json();
        let (got, report) = through_shares(module, patient(), &[pool, hold], end);
        let ledger = &got.run.ledger;
        assert_eq!((ledger.lost(), ledger.total(Count::InlineUnused)), (0, 0), "{ledger:#?} {report:#}");
        assert_eq!(ledger.total(Count::InlinePolicyPassed), 0, "{ledger:#?} {report:#}");
        let all = report["instances"].as_array().unwrap();
        let received = all.iter().map(|one| one["stats"]["received"].as_u64().unwrap());
        assert_eq!(received.sum::<u64>(), u64::from(FRAMES), "{report:#}");
        let mut flows = BTreeSet::new();
        for one in all {
            // Status 3 is the end of the ring; each flow has both directions.
            assert_eq!(one["status"], 3, "{report:#}");
            let ends: Vec<String> = serde_json::from_value(one["ends"].clone()).unwrap();
            let own: BTreeSet<Vec<u8>> = ends.iter().map(|ends| one_way(&bytes(ends))).collect();
            assert!(!own.is_empty() && ends.len() == 2 * own.len(), "{report:#}");
            assert!(own.iter().all(|flow| flows.insert(flow.clone())), "a flow went to two instances: {report:#}");
        }
        assert_eq!(flows.len(), FLOWS as usize);
        let (there, back): (Vec<_>, Vec<_>) = frames().iter().map(as_expected).unzip();
        for (received, expected, way) in [(got.there, there, "there"), (got.back, back, "back")] {
            let (mut received, expected) =
                (group_by_flow(received.into_iter()), group_by_flow(expected.into_iter().flatten()));
            for (ends, frames) in expected {
                assert!(
                    received.remove(&ends).as_ref() == Some(&frames),
                    "{pool}: {ends:?} {way} differs from the verdicts"
                );
            }
            assert!(received.is_empty(), "{pool}: {:?} {way} should be blocked", received.keys());
        }
    }
}

/// Expected frames by destination port; all frames of the reverse direction pass.
fn as_expected(record: &Record) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    if port(record) >= 2000 {
        return (Some(record.bytes.clone()), None);
    }
    let (there, back) = expected(record);
    (there.map(|record| record.bytes), back.map(|record| record.bytes))
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn one_way(ends: &[u8]) -> Vec<u8> {
    ends.to_vec().min(reversed(ends))
}

/// An instance that stops while it has a frame ends the others; a killed process ends all. The policy decides frames.
#[test]
fn policy_decides_frames_of_a_stopped_instance() {
    let Some(module) = module() else { return };
    let policy = InlinePolicy { on_death: FailMode::Open, ..patient() };
    let (got, report) = through_shares(module, policy, &["leaves=2"], |engine| engine.end().good().json());
    assert_accounted(&got);
    let all = report["instances"].as_array().unwrap();
    assert_eq!(all[1], json!({"left": 1}), "{report:#}");
    let reason = "another instance stopped while it held frames";
    assert!([0, 2, 3].iter().all(|at| all[*at]["status"] == 6), "{report:#}");
    assert!(all.iter().any(|one| one["why"].as_str().is_some_and(|why| why.contains(reason))), "{report:#}");
    let kill = |engine: Running| {
        engine.signal(Signal::KILL);
        engine.end();
        Value::Null
    };
    assert_accounted(&through_shares(module, policy, &[], kill).0);
}

/// Asserts that each frame is forwarded or blocked, exactly once.
fn assert_accounted(got: &Through) {
    let ledger = &got.run.ledger;
    let of = |count| ledger.total(count);
    let forwarded = of(Count::InlinePassed) + of(Count::InlineReplaced) + of(Count::InlinePolicyPassed);
    assert!(of(Count::InlineNoEngine) > 0, "{ledger:#?}");
    assert_eq!(forwarded + of(Count::InlineBlocked), u64::from(FRAMES), "{ledger:#?}");
    assert_eq!((got.there.len() + got.back.len()) as u64, forwarded + of(Count::ForwardInjected), "{ledger:#?}");
    assert_eq!(ledger.lost(), 0, "{ledger:#?}");
}

/// Verdicts on held frames are processed before new frames are held: at most 1,024 are held at a time.
#[test]
fn decided_frames_make_room_for_others() {
    let frames: Vec<Vec<u8>> = frames().into_iter().map(|record| record.bytes).collect();
    let got = frames_through(patient(), frames, 64, |mut engine| {
        let mut held = Vec::new();
        let mut left = FRAMES as usize;
        while engine.ended().is_none() {
            held.drain(..).for_each(|ticket| engine.decide(ticket, Verdict::Pass));
            wait_until("enough frames are held", || {
                engine.look(|seen, _| {
                    held.push(seen.ticket);
                    VerdictReply::Later
                });
                held.len() >= left.min(900) || engine.ended().is_some()
            });
            left -= held.len();
            // The forwarder sees all of them held.
            thread::sleep(Duration::from_millis(20));
        }
    });
    assert_eq!((got.there.len(), got.run.ledger.lost()), (FRAMES as usize, 0), "{:#?}", got.run.ledger);
}
