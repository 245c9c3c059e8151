//! Traffic that exhausts memory or files, or tries to end other connections.

use super::hosts::{ACK, SYN, TestSegment, Watcher, answer, sent};
use linerate_transport::follow::{Config, Ending, Overlap};
use proptest::prelude::*;

fn small() -> Config {
    Config { connections: 100, memory: 20_000, stream_memory: 8000, ..Config::default() }
}

#[test]
fn syn_flood_does_not_affect_connections_with_data() {
    let mut watcher = Watcher::new(small());
    watcher.observe(&sent(99, SYN, &[]));
    watcher.observe(&sent(100, ACK, b"still "));
    for port in 2000..60_000 {
        watcher.observe(&TestSegment { port, ..sent(u32::from(port) * 77, SYN, &[]) });
    }
    watcher.observe(&sent(106, ACK, b"here"));
    let counts = watcher.follow.counts();
    assert_eq!((counts.most_connections, counts.evicted, counts.streams), (100, 0, 1));
    assert_eq!(watcher.done()[0].whole(), b"still here");
}

#[test]
fn stream_flood_evicts_the_quietest_and_counts_them() {
    let mut watcher = Watcher::new(small());
    for port in 1000..2000 {
        watcher.observe(&TestSegment { port, ..sent(1, ACK, b"x") });
    }
    assert_eq!(watcher.follow.counts().evicted, 900);
    let streams = watcher.done();
    assert_eq!(streams.len(), 1000);
    assert_eq!(streams.iter().filter(|stream| stream.summary().ending == Ending::Evicted).count(), 900);
}

#[test]
fn one_stream_with_gaps_leaves_memory_for_others() {
    let mut watcher = Watcher::new(small());
    watcher.observe(&sent(99, SYN, &[]));
    for number in 0..10_000 {
        watcher.observe(&sent(102 + 10 * number, ACK, b"x"));
        assert!(watcher.follow.held() <= 20_000);
    }
    let streams = watcher.done();
    let tally = streams[0].summary().tally;
    assert_eq!((tally.bytes, tally.gaps), (10_000, 10_000));
    assert!(tally.unlisted > 0 && streams[0].summary().gaps.len() as u64 == tally.gaps - tally.unlisted);
}

#[test]
fn gap_lists_leave_room_for_held_data() {
    let mut watcher = Watcher::new(small());
    watcher.observe(&sent(99, SYN, &[]));
    for number in 0..10_000 {
        watcher.observe(&sent(102 + 10 * number, ACK, b"x"));
        watcher.observe(&answer(500, 103 + 10 * number, 0, &[]));
    }
    watcher.time += 2000;
    for _ in 0..200 {
        watcher.observe(&TestSegment { port: 7, ..sent(1, ACK, b"") });
    }
    watcher.observe(&TestSegment { port: 9, ..sent(99, SYN, &[]) });
    for number in [1, 2, 0] {
        watcher.observe(&TestSegment { port: 9, ..sent(100 + 3 * number, ACK, b"abc") });
    }
    let streams = watcher.done();
    assert!(streams[0].summary().tally.unlisted > 0);
    assert_eq!((streams[1].whole(), streams[1].gaps.len()), (b"abcabcabc".to_vec(), 0));
}

#[test]
fn many_streams_with_gaps_stay_within_the_total_memory() {
    let mut watcher = Watcher::new(small());
    for round in 0..50 {
        for port in 0..90 {
            if round == 0 {
                watcher.observe(&TestSegment { port, ..sent(99, SYN, &[]) });
            }
            watcher.observe(&TestSegment { port, ..sent(110 + 20 * round, ACK, &[7; 10]) });
            assert!(watcher.follow.held() <= 20_000 + 200, "{}", watcher.follow.held());
        }
    }
    for stream in watcher.done() {
        assert_eq!(stream.summary().tally.bytes, 500);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any segments: output in order, within its bounds, and all memory freed (checked by `StreamCollector` and `done`).
    #[test]
    fn any_segments_are_handled(
        segments in prop::collection::vec(
            (0_u16..3, any::<bool>(), prop_oneof![0_u32..300, any::<u32>()], any::<Option<u16>>(), 0_u16..64, 0_usize..90, 0_usize..60, 0_u64..3000),
            1..200,
        ),
        overlap in prop::sample::select(Overlap::NAMES.to_vec()),
    ) {
        let config = Config { connections: 2, memory: 4000, stream_memory: 2000, overlap: overlap.1, ..Config::default() };
        let mut watcher = Watcher::new(config);
        for (port, is_answer, seq, ack, flags, len, cut, wait) in segments {
            watcher.time += wait;
            let data = vec![seq as u8; len];
            watcher.observe(&TestSegment { port, is_answer, ack: ack.map(u32::from), cut: cut.min(len), ..sent(seq, flags, &data) });
            prop_assert!(watcher.follow.held() <= 4000 + 400);
        }
        watcher.done();
    }
}
