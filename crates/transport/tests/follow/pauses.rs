//! A pause in a capture changes only times, and what expires during it.

use super::hosts::{ACK, FIN, RST, SYN, Stream, TestSegment, Watcher, answer, sent};
use linerate_transport::follow::{Config, Ending};
use proptest::prelude::*;
use std::ops::Range;
use std::time::Duration;

/// A frame of another connection.
fn other() -> TestSegment {
    TestSegment { port: 8, ..sent(1, ACK, b"") }
}

/// Connections that depend on correct time: gaps that are acknowledged before their bytes arrive, ends followed by
/// retransmissions, a SYN that is answered late. Each waits for the next one in milliseconds.
fn conversations() -> Vec<(TestSegment, u64)> {
    let at = |port: u16, sent: TestSegment| TestSegment { port, ..sent };
    vec![
        (at(1000, sent(99, SYN, &[])), 1),
        (at(2000, sent(99, SYN, &[])), 1),
        (at(1000, answer(499, 100, SYN, &[])), 1),
        (at(1000, sent(100, ACK, b"one")), 1),
        (at(1000, sent(106, ACK, b"three")), 1),
        (at(1000, answer(500, 111, 0, b"ok")), 60),
        (at(1000, sent(103, ACK, b"two")), 1),
        (at(1000, TestSegment { ack: Some(502), ..sent(111, FIN, &[]) }), 1),
        (at(1000, answer(502, 112, FIN, &[])), 300),
        (at(1000, sent(106, ACK, b"three")), 1),
        (at(3000, sent(99, SYN, &[])), 1),
        (at(3000, answer(499, 100, RST, &[])), 200),
        (at(3000, answer(499, 100, RST, &[])), 1),
        (at(2000, answer(499, 100, SYN, &[])), 20),
        (at(2000, sent(104, ACK, b"late")), 1),
        (at(2000, answer(500, 108, 0, b"ok")), 900),
        (at(2000, sent(100, ACK, b"not ")), 1),
    ]
}

/// Returns everything reported about streams except times.
fn reported(streams: &[Stream]) -> Vec<impl PartialEq + std::fmt::Debug + use<>> {
    let reported = |stream: &Stream| {
        let summary = stream.summary();
        let (about, gaps): (_, Vec<Range<u64>>) = (summary.about, stream.gaps.clone());
        (about, stream.whole(), gaps, summary.ending, summary.tally, summary.missing_at_end, summary.other)
    };
    streams.iter().map(reported).collect()
}

/// Runs the conversations, with `others` frames between their segments, after `before` frames and a pause.
fn after(before: usize, pause: u64, others: &[usize]) -> Vec<Stream> {
    let mut watcher = Watcher::new(Config { idle: Duration::from_secs(1 << 40), ..Config::default() });
    watcher.observe(&sent(99, SYN, &[]));
    watcher.observe(&sent(100, ACK, b"before"));
    (0..before).for_each(|_| _ = watcher.observe(&other()));
    watcher.time += pause;
    for ((sent, wait), others) in conversations().iter().zip(others.iter().cycle()) {
        watcher.observe(&TestSegment { port: sent.port + 1, ..sent.clone() });
        // As many frames as requested, in the time available.
        (0..*others).for_each(|_| {
            watcher.observe(&other());
            watcher.time -= 1;
        });
        watcher.time += wait;
    }
    watcher.observe(&sent(106, ACK, b" and after"));
    watcher.done()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pause_changes_nothing_that_is_not_due(
        before in 0_usize..200,
        pause in prop_oneof![1_u64..20_000, 20_000_u64..10_000_000, 10_000_000_u64..100_000_000_000],
        others in prop::collection::vec(0_usize..80, 1..20),
    ) {
        prop_assert_eq!(reported(&after(before, pause, &others)), reported(&after(before, 0, &others)));
    }
}

/// Events within the frames by which the clock lags, in each of the lists of connections.
#[test]
fn data_after_a_pause_has_its_correct_age() {
    for pause in [11_000, 61_000, 3_601_000, 1 << 40] {
        for frames in [0, 1, 30, 58, 59, 62, 63, 64, 65, 200] {
            let mut watcher = Watcher::new(Config { idle: Duration::from_secs(5), ..Config::default() });
            watcher.observe(&other());
            watcher.time += pause;
            let at = |port: u16, sent: TestSegment| TestSegment { port, ..sent };
            watcher.observe(&at(1000, sent(99, SYN, &[])));
            watcher.observe(&at(2000, sent(99, SYN, b"early")));
            watcher.observe(&at(3000, sent(99, SYN, b"done")));
            watcher.observe(&at(3000, TestSegment { ack: Some(500), ..sent(104, FIN, &[]) }));
            watcher.observe(&at(3000, answer(500, 105, FIN, &[])));
            (0..frames).for_each(|_| _ = watcher.observe(&other()));
            watcher.observe(&at(1000, sent(100, ACK, b"data")));
            watcher.observe(&at(2000, sent(105, ACK, b" and late")));
            watcher.observe(&at(3000, sent(100, ACK, b"done")));
            (0..200).for_each(|_| _ = watcher.observe(&other()));
            let streams = watcher.done();
            let all: Vec<_> =
                streams.iter().map(|stream| (stream.whole(), stream.summary().about.connection)).collect();
            let wanted = [(b"early and late".to_vec(), 2), (b"done".to_vec(), 3), (b"data".to_vec(), 1)];
            assert_eq!(all, wanted, "{pause} {frames}");
        }
    }
}

#[test]
fn recent_acknowledgement_is_not_treated_as_old() {
    let mut watcher = Watcher::new(Config { patience: Duration::from_secs(1), ..Config::default() });
    watcher.observe(&sent(99, SYN, &[]));
    watcher.observe(&sent(103, ACK, b"two"));
    watcher.time += 990;
    watcher.observe(&answer(500, 106, 0, &[]));
    watcher.time += 60;
    watcher.observe(&other());
    watcher.observe(&sent(100, ACK, b"one"));
    let streams = watcher.done();
    assert_eq!((streams[0].whole(), streams[0].gaps.len()), (b"onetwo".to_vec(), 0));
}

#[test]
fn idle_time_before_the_last_frames_counts() {
    for frames in [1, 10, 63, 64, 100] {
        let mut watcher = Watcher::new(Config { idle: Duration::from_secs(5), ..Config::default() });
        watcher.observe(&sent(99, SYN, &[]));
        watcher.observe(&sent(100, ACK, b"one"));
        watcher.time += 100_000;
        (0..frames).for_each(|_| _ = watcher.observe(&TestSegment { port: 8, ..sent(1, ACK, b"x") }));
        let endings: Vec<Ending> = watcher.done().iter().map(|stream| stream.summary().ending).collect();
        assert_eq!(endings, [Ending::Silent, Ending::Stopped], "{frames}");
    }
}

#[test]
fn one_wrong_time_does_not_hold_data_for_ever() {
    for place in 0..200 {
        let mut watcher = Watcher::new(Config { idle: Duration::from_secs(5), ..Config::default() });
        let observe = |watcher: &mut Watcher, frame: u64, sent: &TestSegment| {
            let wrong = if frame == place { 1 << 40 } else { 0 };
            watcher.time += wrong;
            watcher.observe(sent);
            watcher.time -= wrong;
        };
        watcher.observe(&other());
        watcher.time += 100_000;
        (0..200).for_each(|frame| {
            observe(&mut watcher, frame, &TestSegment { port: 1000 + frame as u16, ..sent(1, ACK, b"x") })
        });
        for _ in 0..2 {
            watcher.time += 7000;
            (0..300).for_each(|_| _ = watcher.observe(&other()));
        }
        let streams = watcher.done();
        assert_eq!(streams.iter().filter(|stream| stream.summary().ending != Ending::Silent).count(), 0, "{place}");
    }
}
