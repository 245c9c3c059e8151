//! Scripts, at least one per rule.

use crate::oracle::compare::Comparison;
use crate::oracle::script::{ACK, FIN, Offer, PSH, RST, SYN, Script, Segment, Stamp, Step, URG, bare, data, syn};

#[test]
fn kernel_sends_the_same_answers_for_each_clause() {
    let Some(mut comparison) = Comparison::up() else { return };
    let mut found = Vec::new();
    for script in scripts() {
        for (offer, is_v6) in [(Offer::All, false), (Offer::Sack, false), (Offer::Nothing, false), (Offer::All, true)] {
            let script = Script { offer, is_v6, ..script.clone() };
            found.extend(comparison.play(&script).err());
        }
    }
    comparison.report();
    assert!(found.is_empty(), "{} unknown differences:\n{}", found.len(), found.join("\n"));
}

fn scripts() -> Vec<Script> {
    [handshakes(), in_order(), gaps(), duplicates(), beyond(), fins(), invalid(), stamps(), windows(), odd()].concat()
}

/// Returns `count` consecutive segments of `len` bytes.
fn run(from: i64, len: usize, count: i64) -> impl Iterator<Item = Segment> {
    (0..count).map(move |at| data(from + at * len as i64, len))
}

fn handshakes() -> Vec<Script> {
    let from_start =
        |name, segments: &[Segment]| Script::from_start(name, segments.iter().map(|segment| Step::Send(*segment)));
    let confirm = bare(0, ACK);
    vec![
        from_start("a SYN, twice", &[syn(), syn(), confirm, data(0, 10)]),
        from_start("data with the end of the handshake", &[syn(), data(0, 10).with(ACK | PSH)]),
        from_start("data in the SYN", &[data(-1, 10).with(SYN), confirm]),
        from_start("a reset instead of an acknowledgement", &[syn(), bare(0, RST), confirm]),
        from_start("a reset with another sequence number", &[syn(), bare(1, RST), confirm, data(0, 3)]),
        from_start("a wrong acknowledgement first", &[syn(), confirm.acks(1), confirm, data(0, 3)]),
        from_start("FIN with the end of the handshake", &[syn(), bare(0, FIN | ACK)]),
        from_start("an acknowledgement without a connection", &[bare(0, ACK)]),
        from_start("data without a connection", &[data(0, 100)]),
        from_start("a reset without a connection", &[bare(0, RST), bare(0, RST | ACK)]),
        from_start("a FIN without a connection", &[bare(0, FIN | ACK)]),
        from_start("SYN and ACK without a connection", &[bare(0, SYN | ACK)]),
        from_start("SYN and FIN without a connection", &[bare(0, SYN | FIN)]),
        from_start("no flags", &[bare(0, 0)]),
        from_start("only FIN", &[bare(0, FIN)]),
        from_start("all flags", &[bare(0, 0x3f)]),
    ]
}

fn in_order() -> Vec<Script> {
    let mut scripts = vec![
        Script::of("in order", run(0, 1000, 5)),
        Script::of("in order, pushed", run(0, 1000, 5).map(|segment| segment.with(ACK | PSH))),
        Script::of("bytes one by one", run(0, 1, 40)),
        Script::of("many segments", run(0, 1400, 60)),
        Script::of("without ACK", [data(0, 100).with(0), data(0, 100).with(PSH), data(0, 100)]),
    ];
    for isn in [u32::MAX, 0xffff_fff0, 0x7fff_fff0] {
        let segments = [run(0, 7, 5).collect(), vec![data(60, 9), data(45, 30), data(35, 10)]].concat();
        scripts.push(Script { isn, ..Script::of("sequence numbers wrap", segments) });
    }
    scripts
}

fn gaps() -> Vec<Script> {
    vec![
        Script::of("a gap, filled", [data(0, 100), data(200, 100), data(100, 100), data(300, 10)]),
        Script::of("a gap that grows at its end", [data(200, 100), data(300, 100), data(400, 10), data(0, 200)]),
        Script::of("a gap that shrinks", [data(200, 100), data(100, 100), data(50, 50), data(0, 50)]),
        Script::of("half a gap", [data(200, 100), data(0, 100), data(100, 100)]),
        Script::of("two gaps", [data(100, 100), data(300, 100), data(0, 100), data(200, 100)]),
        Script::of("three gaps, last one first", [data(500, 100), data(300, 100), data(100, 100), data(0, 600)]),
        Script::of("six gaps", (0..6).map(|at| data(100 + at * 200, 100)).chain([data(0, 1200)])),
        Script::of(
            "gaps, first one filled",
            (0..5).map(|at| data(100 + at * 200, 100)).chain([data(0, 100), data(200, 100), data(1000, 7)]),
        ),
        Script::of("gaps that merge", [data(100, 100), data(300, 100), data(200, 100), data(0, 100)]),
        Script::of("the whole window backwards", (0..20).rev().map(|at| data(at * 1000, 1000))),
    ]
}

fn duplicates() -> Vec<Script> {
    vec![
        Script::of("a duplicate", [data(0, 100), data(0, 100), data(100, 5)]),
        Script::of("a partial duplicate", [data(0, 100), data(20, 30), data(100, 5)]),
        Script::of("a duplicate with new bytes", [data(0, 100), data(50, 100), data(150, 5)]),
        Script::of("a duplicate after a gap", [data(100, 100), data(100, 100), data(0, 100)]),
        Script::of("a partial duplicate after a gap", [data(100, 100), data(120, 30), data(0, 100)]),
        Script::of("overlap from the left", [data(100, 100), data(50, 100), data(0, 50)]),
        Script::of("overlap to the right", [data(100, 100), data(150, 100), data(0, 100)]),
        Script::of("overlap on both sides", [data(100, 100), data(50, 200), data(0, 50)]),
        Script::of(
            "overlap of several blocks",
            [data(100, 50), data(200, 50), data(300, 50), data(50, 350), data(0, 50)],
        ),
        Script::of("a gap with overlap on both sides", [data(100, 100), data(300, 100), data(150, 200), data(0, 100)]),
        Script::of("the gap and a part of the block after it", [data(100, 100), data(0, 150), data(200, 5)]),
        Script::of("the gap and more than the block after it", [data(100, 100), data(0, 250), data(250, 5)]),
        Script::of("far below", [data(0, 1000), data(-500, 100), data(1000, 5)]),
        Script::of("from before the first byte", [data(-10, 100), data(90, 10)]),
        Script::of("a duplicate with other bytes", [data(0, 100), data(50, 100).other(), data(150, 5)]),
        Script::of("overlap with other bytes after a gap", [data(100, 100), data(150, 100).other(), data(0, 100)]),
        Script::of("overlap with other bytes on both sides", [data(100, 100), data(50, 200).other(), data(0, 50)]),
    ]
}

fn beyond() -> Vec<Script> {
    vec![
        Script::of("far above the window", [data(1_000_000, 100).at_edge(), data(0, 10)]),
        Script::of("just above the window", [data(1, 100).at_edge(), data(0, 10)]),
        Script::of("data at the edge", [data(0, 100).at_edge(), data(0, 10)]),
        Script::of("no data at the edge", [bare(0, ACK).at_edge(), data(0, 10)]),
        Script::of("no data above the window", [bare(1, ACK).at_edge(), data(0, 10)]),
        Script::of("FIN above the window", [bare(1, FIN | ACK).at_edge(), data(0, 10)]),
        Script::of("half the sequence space away", [data(0x7fff_ff00, 10), data(0, 10)]),
    ]
}

fn fins() -> Vec<Script> {
    let fin = FIN | ACK;
    vec![
        Script::of("FIN", [data(0, 100), bare(100, fin), bare(101, ACK).acks(1), bare(101, ACK).acks(1)]),
        Script::of("FIN with data", [data(0, 100).with(fin), bare(101, ACK).acks(1)]),
        Script::of("FIN with data after a gap", [data(100, 100).with(fin), data(0, 100), bare(201, ACK).acks(1)]),
        Script::of("FIN without data after a gap", [bare(100, fin), data(0, 100), bare(101, ACK).acks(1)]),
        Script::of("a FIN, twice", [bare(0, fin), bare(0, fin), bare(1, ACK).acks(1)]),
        Script::of("a FIN with data, twice", [data(0, 10).with(fin), data(0, 10).with(fin), bare(11, ACK).acks(1)]),
        Script::of("data after FIN", [bare(0, fin), data(1, 100)]),
        Script::of("data after a FIN after a gap", [data(100, 10).with(fin), data(111, 10), data(0, 100)]),
        Script::of("two FINs", [data(100, 10).with(fin), data(150, 10).with(fin), data(0, 160)]),
        Script::of("a FIN before received bytes", [data(200, 100), data(50, 50).with(fin), data(0, 200)]),
        Script::of("the receiver's FIN, not acknowledged", [bare(0, fin), bare(1, ACK), bare(1, ACK).acks(1)]),
        Script::of("the receiver's FIN, then a reset", [bare(0, fin), bare(1, RST)]),
        Script::of("data after both FINs", [bare(0, fin), bare(1, ACK).acks(1), data(1, 10).acks(1)]),
        Script::of("reset", [data(0, 100), bare(100, RST), data(100, 10)]),
        Script::of("reset with ACK", [data(0, 100), bare(100, RST | ACK), data(100, 10)]),
        Script::of("reset with data", [data(0, 100), data(100, 50).with(RST | ACK)]),
    ]
}

fn invalid() -> Vec<Script> {
    let mut scripts = Vec::new();
    for at in [-1, 0, 50, 99, 101, 5000] {
        scripts.push(Script::of(&format!("reset at {at}"), [data(0, 100), bare(at, RST), data(100, 10)]));
    }
    for at in [-1, 0, 100, 500] {
        let segments = |flags| [data(0, 100), bare(at, flags), data(100, 10)];
        scripts.push(Script::of(&format!("SYN at {at}"), segments(SYN)));
        scripts.push(Script::of(&format!("SYN and ACK at {at}"), segments(SYN | ACK)));
    }
    for ack in [-100_000, -1, 1, 2, 100_000, 0x4000_0000] {
        let segments = [data(0, 100), data(100, 100).acks(ack), data(100, 100)];
        scripts.push(Script::of(&format!("acknowledges {ack}"), segments));
        let segments = [data(0, 100), bare(100, ACK).acks(ack), data(100, 100)];
        scripts.push(Script::of(&format!("acknowledges {ack} without data"), segments));
    }
    scripts.extend([
        Script::of("reset above the window", [data(0, 100), bare(10, RST).at_edge(), data(100, 10)]),
        Script::of("reset at the edge", [data(0, 100), bare(0, RST).at_edge(), data(100, 10)]),
        Script::of("reset after a block", [data(100, 100), bare(200, RST), data(0, 100)]),
        Script::of("reset at a block", [data(100, 100), bare(100, RST), data(0, 100)]),
    ]);
    scripts
}

fn stamps() -> Vec<Script> {
    let old = |segment: Segment, ago| segment.stamped(Stamp::Ago(ago));
    vec![
        Script::of("an old timestamp", [data(0, 100), old(data(100, 100), 10), data(100, 100)]),
        Script::of("a very old timestamp", [data(0, 100), old(data(100, 100), 0x7fff_0000), data(100, 100)]),
        Script::of("an old timestamp, no data", [data(0, 100), old(bare(100, ACK), 10), data(100, 100)]),
        Script::of("an old timestamp, duplicate", [data(0, 100), old(data(0, 100), 10), data(100, 100)]),
        Script::of("an old timestamp, reset", [data(0, 100), old(bare(100, RST), 10)]),
        Script::of("an old timestamp, FIN", [data(0, 100), old(bare(100, FIN | ACK), 10), data(100, 9)]),
        Script::of("the same timestamp", [data(0, 100), old(data(100, 100), 0), old(data(200, 100), 0)]),
        Script::of("the timestamp that fills a gap", [data(0, 100), data(200, 100), data(300, 50), data(100, 100)]),
        Script::of(
            "an old timestamp that fills a gap",
            [data(0, 10), data(200, 100), old(data(10, 190), 1), data(300, 5)],
        ),
        Script::of(
            "no timestamp",
            [data(0, 100), data(100, 100).stamped(Stamp::Missing), data(100, 100), data(200, 5)],
        ),
        Script::of("no timestamp, reset", [data(0, 100), bare(100, RST).stamped(Stamp::Missing)]),
    ]
}

fn windows() -> Vec<Script> {
    // Steps after the window has closed.
    let closed = |more: &[Step]| [&[Step::Stop, Step::Fill], more].concat();
    let probe = Step::Send(bare(-1, ACK));
    let byte = Step::Send(data(0, 1));
    vec![
        Script::steps("a closed window, probed", closed(&[probe, byte, probe, byte, byte])),
        Script::steps(
            "a closed window, opened",
            closed(&[probe, Step::Go, data(0, 1000).into(), data(1000, 10).into()]),
        ),
        Script::steps("a closed window, no data", closed(&[bare(0, ACK).into(), bare(1, ACK).into()])),
        Script::steps("a closed window, FIN above it", closed(&[bare(1, FIN | ACK).into(), probe])),
        Script::steps("a closed window, reset", closed(&[bare(0, RST).into()])),
        Script::steps(
            "a closed window, reset with other sequence numbers",
            closed(&[bare(1, RST).into(), bare(-1, RST).into(), probe]),
        ),
        Script::steps("a closed window, SYN", closed(&[bare(0, SYN).into(), probe])),
        Script::steps("a closed window, FIN", closed(&[bare(0, FIN | ACK).into()])),
    ]
}

fn odd() -> Vec<Script> {
    vec![
        Script::of("keep-alive", [data(0, 100), bare(99, ACK), bare(99, ACK), data(100, 10)]),
        Script::of("keep-alive with a byte", [data(0, 100), data(99, 1), data(100, 10)]),
        Script::of("keep-alive before data", [bare(-1, ACK), data(0, 10)]),
        Script::of("urgent", [data(0, 100).with(ACK | URG), data(100, 100).with(ACK | URG | PSH), data(200, 9)]),
        Script::of("urgent after a gap", [data(100, 100).with(ACK | URG), data(0, 100), data(200, 9)]),
        Script::of("no data", [bare(0, ACK), bare(0, ACK), data(0, 10)]),
        Script::of("no data, ahead", [bare(50, ACK), data(0, 10)]),
    ]
}
