//! Several instances of the module for libdaq in one process that decide about the frames of one ring (`-z N`), between ports in
//! memory; and an engine that holds and decides as many frames as may be held, which is what they do.

use super::answers::{Through, frames_through, patient, through_any};
use super::daq::{BLOCK, HOLD, INJECT, INJECT_BACK, NO_VERDICT, PASS, REPLACE, expected, frame, port};
use linerate_burst::Count;
use linerate_engine::{Fail, InlinePolicy};
use linerate_share::{Decide, Verdict};
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

/// Both directions of flows, each with all verdicts that say nothing of later frames.
fn frames() -> Vec<Record> {
    let ports = [PASS, BLOCK, REPLACE, INJECT, INJECT_BACK, HOLD, NO_VERDICT];
    let one = |number: u32| {
        let mut record = frame(number);
        let source = (2000 + number % FLOWS) as u16;
        let port = ports[(number % FLOWS) as usize % ports.len()];
        record.bytes[34..38].copy_from_slice(&[source, port].map(u16::to_be_bytes).concat());
        if number / FLOWS % 3 == 2 {
            // The other way round: addresses and ports.
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

/// Of each flow and direction the frames, in their order.
fn by_flow(frames: impl Iterator<Item = Vec<u8>>) -> BTreeMap<Vec<u8>, Vec<Vec<u8>>> {
    let mut flows: BTreeMap<Vec<u8>, Vec<Vec<u8>>> = BTreeMap::new();
    frames.for_each(|bytes| flows.entry(bytes[26..38].to_vec()).or_default().push(bytes));
    flows
}

/// Frames through an engine of several instances; what it said in the end, if `end` has it say something.
fn through_shares(
    module: &Path,
    policy: InlinePolicy,
    options: &[&str],
    end: impl FnOnce(Running) -> Value + Send,
) -> (Through, Value) {
    let (scratch, said) = (Scratch::new(), Mutex::new(Value::Null));
    let ready = scratch.file("ready");
    let frames: Vec<Vec<u8>> = frames().into_iter().map(|record| record.bytes).collect();
    let got = through_any(policy, (frames, 64), "", |name| {
        let instances = format!("instances={INSTANCES}");
        let (name, told) = (format!("var.name={name}"), (format!("inline:{name}"), format!("ready={ready}")));
        let own = [&told.0, "inline", "share", &told.1, &instances, "instance=1", "timeout=50", &name];
        let engine = host(module, &[&own, options].concat());
        attached(&ready);
        let said = &said;
        move || *said.lock().unwrap() = end(engine)
    });
    (got, said.into_inner().unwrap())
}

#[test]
fn instances_of_one_process_decide_in_shares() {
    let Some(module) = module() else { return };
    // Fewer messages than may be held, and more.
    for (pool, hold) in [("pool=64", "hold=40"), ("pool=1024", "hold=100")] {
        let end = |engine: Running| engine.end().good().json();
        let (got, said) = through_shares(module, patient(), &[pool, hold], end);
        let ledger = &got.run.ledger;
        assert_eq!((ledger.lost(), ledger.total(Count::InlineUnused)), (0, 0), "{ledger:#?} {said:#}");
        assert_eq!(ledger.total(Count::InlinePolicyPassed), 0, "{ledger:#?} {said:#}");
        let all = said["instances"].as_array().unwrap();
        let received = all.iter().map(|one| one["stats"]["received"].as_u64().unwrap());
        assert_eq!(received.sum::<u64>(), u64::from(FRAMES), "{said:#}");
        let mut flows = BTreeSet::new();
        for one in all {
            // End of the ring, and each flow with both directions.
            assert_eq!(one["status"], 3, "{said:#}");
            let ends: Vec<String> = serde_json::from_value(one["ends"].clone()).unwrap();
            let own: BTreeSet<Vec<u8>> = ends.iter().map(|ends| one_way(&bytes(ends))).collect();
            assert!(!own.is_empty() && ends.len() == 2 * own.len(), "{said:#}");
            assert!(own.iter().all(|flow| flows.insert(flow.clone())), "a flow of two instances: {said:#}");
        }
        assert_eq!(flows.len(), FLOWS as usize);
        let (there, back): (Vec<_>, Vec<_>) = frames().iter().map(as_expected).unzip();
        for (came, expected, way) in [(got.there, there, "there"), (got.back, back, "back")] {
            let (mut came, expected) = (by_flow(came.into_iter()), by_flow(expected.into_iter().flatten()));
            for (ends, frames) in expected {
                assert!(
                    came.remove(&ends).as_ref() == Some(&frames),
                    "{pool}: {ends:?} {way} is not as it was decided"
                );
            }
            assert!(came.is_empty(), "{pool}: {:?} {way} was to be blocked", came.keys());
        }
    }
}

/// What becomes of a frame, by the port that it is for; frames the other way are for none of them.
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

/// One that stops with a frame in its hands ends the others, and a process that is killed all of them: the policy has the frames.
#[test]
fn where_one_goes_the_policy_has_the_frames() {
    let Some(module) = module() else { return };
    let policy = InlinePolicy { on_death: Fail::Open, ..patient() };
    let (got, said) = through_shares(module, policy, &["leaves=2"], |engine| engine.end().good().json());
    assert_accounted(&got);
    let all = said["instances"].as_array().unwrap();
    assert_eq!(all[1], json!({"left": 1}), "{said:#}");
    let told = "another instance has stopped with frames in its hands";
    assert!([0, 2, 3].iter().all(|at| all[*at]["status"] == 6), "{said:#}");
    assert!(all.iter().any(|one| one["why"].as_str().is_some_and(|why| why.contains(told))), "{said:#}");
    let kill = |engine: Running| {
        engine.signal(Signal::KILL);
        engine.end();
        Value::Null
    };
    assert_accounted(&through_shares(module, policy, &[], kill).0);
}

/// Each frame goes or is blocked, and none twice.
fn assert_accounted(got: &Through) {
    let ledger = &got.run.ledger;
    let of = |count| ledger.total(count);
    let went = of(Count::InlinePassed) + of(Count::InlineReplaced) + of(Count::InlinePolicyPassed);
    assert!(of(Count::InlineNoEngine) > 0, "{ledger:#?}");
    assert_eq!(went + of(Count::InlineBlocked), u64::from(FRAMES), "{ledger:#?}");
    assert_eq!((got.there.len() + got.back.len()) as u64, went + of(Count::ForwardInjected), "{ledger:#?}");
    assert_eq!(ledger.lost(), 0, "{ledger:#?}");
}

/// What was said of held frames counts before frames that are held from then on: no more than 1,024 are.
#[test]
fn frames_that_are_decided_make_room_for_others() {
    let frames: Vec<Vec<u8>> = frames().into_iter().map(|record| record.bytes).collect();
    let got = frames_through(patient(), frames, 64, |mut engine| {
        let mut held = Vec::new();
        let mut left = FRAMES as usize;
        while engine.ended().is_none() {
            held.drain(..).for_each(|ticket| engine.decide(ticket, Verdict::Pass));
            wait_until("as many as are to be held", || {
                engine.look(|seen, _| {
                    held.push(seen.ticket);
                    Decide::Later
                });
                held.len() >= left.min(900) || engine.ended().is_some()
            });
            left -= held.len();
            // Whoever forwards sees all of them held.
            thread::sleep(Duration::from_millis(20));
        }
    });
    assert_eq!((got.there.len(), got.run.ledger.lost()), (FRAMES as usize, 0), "{:#?}", got.run.ledger);
}
