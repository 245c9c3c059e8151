//! Screens in sizes from tiny to large, compared with `golden/` (`UPDATE_DOCS=1 cargo test --workspace --lib top` writes it).

use super::model::{InputField, Model, Zoom};
use super::source::QueryOutcome;
use crate::verbs::snapshot::{ActionTotal, DropCount, FlowQuery, Flows, OneFlow, Port, Reader, Row, SCHEMA, Snapshot};
use crate::view::screen::keys::Key;
use crate::view::screen::picture;
use std::path::Path;

/// Returns a snapshot after this many seconds of constant traffic.
fn snapshot(seconds: u64) -> Snapshot {
    let port = |name: &str, rate: u64, lost: u64, bytes: Option<u64>| Port {
        name: name.to_owned(),
        frames: rate * seconds + seconds * seconds * rate / 9,
        lost: lost * seconds,
        wire_bytes: bytes.map(|bytes| bytes * seconds),
    };
    let dropped = |stage: &str, cause: &str, subject: &str, is_lost, frames: u64| DropCount {
        stage: stage.to_owned(),
        cause: cause.to_owned(),
        subject: subject.to_owned(),
        is_lost,
        frames,
    };
    let row = |place: u64| Row {
        keys: vec![format!("10.0.0.{place}:4{place:04}"), format!("[2001:db8::{place}]:443"), "TCP".to_owned()],
        name: if place == 2 { "www.example.org".to_owned() } else { String::new() },
        packets: 9000 / (place + 1),
        bytes: 9_000_000 / (place + 1),
        flows: 1,
        flow: Some(OneFlow {
            retransmissions: place % 3,
            total_bytes: 7_000_000_000 >> (3 * place).min(30),
            seconds: 3.5 * place as f64,
        }),
    };
    Snapshot {
        schema: SCHEMA.to_owned(),
        verb: "capture".to_owned(),
        version: "0.1.0".to_owned(),
        pid: 4711,
        seconds: seconds as f64,
        done: vec![ActionTotal {
            what: "captured".to_owned(),
            frames: 1_250_000 * seconds,
            wire_bytes: 500_000_000 * seconds,
        }],
        ports: vec![port("packet:eth0", 1_200_000, 3, Some(480_000_000)), port("xdp:eth1", 50_000, 0, None)],
        drops: vec![
            dropped("select", "filtered", "", false, 500),
            dropped("receive", "ring_full", "packet:eth0@0", true, 3 * seconds),
            dropped("merge", "late", "xdp:eth1", true, 7),
        ],
        readers: vec![Reader {
            name: "ids (pid 77)".to_owned(),
            frames: 1000 * seconds,
            lag: 512,
            skipped: 0,
            waited_us: 1_500_000,
        }],
        flows: Some(Flows {
            seconds: 1.0,
            open: 12_345,
            started: 250 * seconds,
            active: 1200,
            unreported: 0,
            packets: 30_000,
            bytes: 30_000_000,
            retransmissions: 12,
            heads: ["originator", "responder", "protocol"].map(str::to_owned).into(),
            rows: (0..40).map(row).collect(),
        }),
        without_flows: String::new(),
    }
}

fn model() -> Model {
    let mut model = Model::new("./run.sock".to_owned(), FlowQuery::default(), None);
    (1..=30).for_each(|seconds| model.see(QueryOutcome::Snapshot(Box::new(snapshot(seconds)))));
    model
}

fn assert_golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/verbs/top/golden").join(name);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), text, "{name}: UPDATE_DOCS=1 writes it");
}

#[test]
fn screens_match_golden_files() {
    for (width, height) in [(80, 24), (200, 60), (20, 5)] {
        assert_golden(&format!("{width}x{height}"), &picture(&mut model(), width, height));
    }
}

#[test]
fn a_screen_of_any_size_is_drawn() {
    for width in [1, 2, 3, 10, 39, 79, 81, 300] {
        for height in [1, 2, 3, 4, 7, 12, 70] {
            let mut model = model();
            for keys in ["", "z", "z", "z", "z", "?", "b", "/"] {
                keys.chars().for_each(|key| assert!(model.key(Key::Char(key))));
                let text = picture(&mut model, width, height);
                assert!(text.lines().count() == usize::from(height));
            }
        }
    }
}

#[test]
fn keys_change_query_and_view() {
    let mut model = model();
    let press =
        |model: &mut Model, keys: &str| keys.chars().for_each(|key| assert!(model.key(Key::Char(key)), "{key}"));
    press(&mut model, "h");
    assert_eq!(model.ask.by.as_deref(), Some("address"));
    press(&mut model, "sf");
    assert_eq!((model.ask.by.as_deref(), model.ask.sort.name()), (None, "packets"));
    press(&mut model, "/hots 1");
    assert!(model.key(Key::Enter) && model.ask.filter.is_empty(), "invalid filter");
    assert_eq!(model.typing, Some((InputField::Filter, "hots 1".to_owned())));
    assert!(picture(&mut model, 80, 24).lines().last().unwrap().contains("filter: hots 1_   filter, at"));
    "ts 1".chars().for_each(|_| assert!(model.key(Key::Back)));
    press(&mut model, "st 10.0.0.1");
    assert!(model.key(Key::Enter) && model.typing.is_none() && model.ask.filter == "host 10.0.0.1");
    press(&mut model, "bresp_port");
    assert!(model.key(Key::Escape) && model.ask.by.is_none(), "cancelled");
    press(&mut model, "z");
    assert_eq!(model.zoom, Zoom::Flows);
    press(&mut model, "?");
    assert!(picture(&mut model, 80, 24).contains("Press any key to return"));
    press(&mut model, "x ");
    let before = picture(&mut model, 80, 24);
    assert!(before.lines().next().unwrap().contains("PAUSED"));
    model.see(QueryOutcome::Snapshot(Box::new(snapshot(31))));
    assert_eq!(picture(&mut model, 80, 24), before, "paused");
    assert!(model.key(Key::End) && model.offset == 39 && model.key(Key::Home) && model.offset == 0);
    assert!(!model.key(Key::Char('q')));
}

#[test]
fn outage_is_reported_and_a_new_run_resets_counters() {
    let mut model = model();
    model.see(QueryOutcome::Unreachable("connection refused".to_owned()));
    let text = picture(&mut model, 80, 24);
    assert!(text.contains("no answer for 0 s (connection refused)") && text.contains("packet:eth0"), "{text}");
    model.see(QueryOutcome::Snapshot(Box::new(Snapshot { pid: 4712, ..snapshot(1) })));
    let text = picture(&mut model, 80, 24);
    assert!(!text.contains("no answer") && model.before.is_none() && model.history.is_empty(), "{text}");
}

#[test]
fn extreme_numbers_are_shown() {
    let most = |mut snapshot: Snapshot| {
        snapshot.seconds = 1e300;
        snapshot.done[0].frames = u64::MAX;
        snapshot.done[0].wire_bytes = u64::MAX;
        snapshot.drops.iter_mut().for_each(|dropped| (dropped.frames, dropped.is_lost) = (u64::MAX, true));
        snapshot.ports =
            (0..3000).map(|_| Port { frames: u64::MAX, wire_bytes: Some(u64::MAX), ..Port::default() }).collect();
        snapshot.readers[0].frames = u64::MAX;
        let flows = snapshot.flows.as_mut().unwrap();
        (flows.seconds, flows.bytes, flows.retransmissions) = (-1.0, 1, u64::MAX);
        flows.rows.iter_mut().for_each(|row| (row.bytes, row.packets, row.keys) = (u64::MAX, u64::MAX, Vec::new()));
        snapshot
    };
    let mut model = model();
    for keys in ["f", "h", "zzz", "zz"] {
        keys.chars().for_each(|key| assert!(model.key(Key::Char(key))));
        model.see(QueryOutcome::Snapshot(Box::new(most(snapshot(31)))));
        assert!(picture(&mut model, 120, 30).lines().count() == 30);
        model.see(QueryOutcome::Snapshot(Box::new(snapshot(1))));
        assert!(picture(&mut model, 120, 30).lines().count() == 30);
    }
}

#[test]
fn untrusted_names_do_not_move_the_cursor() {
    let mut model = model();
    let mut hostile = snapshot(31);
    hostile.ports[0].name = "\x1b[2Jeth\n\u{9b}31m\u{202e}".to_owned();
    hostile.verb = "\x1b]0;x\x07".to_owned();
    hostile.readers[0].name = "\r\x1b[H".to_owned();
    hostile.drops[1].subject = "\x1b[5m".to_owned();
    let flows = hostile.flows.as_mut().unwrap();
    flows.rows[0].name = "\x1b[?1049l".to_owned();
    flows.rows[1].keys[0] = "\x7f\x08".to_owned();
    model.see(QueryOutcome::Snapshot(Box::new(hostile)));
    for zoom in 0..5 {
        let text = picture(&mut model, 200, 60);
        assert!(!text.contains(|c: char| c.is_control() && c != '\n' || c == '\u{202e}'), "{zoom}: {text}");
        assert!(model.key(Key::Char('z')));
    }
}
