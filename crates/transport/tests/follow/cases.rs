//! Single cases.

use super::hosts::{ACK, FIN, RST, SYN, TestSegment, Watcher, answer, followed, sent};
use linerate_transport::follow::{Config, Ending, FollowOutcome, StartEvidence};
use std::time::Duration;

fn whole(segments: &[TestSegment]) -> Vec<Vec<u8>> {
    followed(Config::default(), segments).iter().map(|stream| stream.whole()).collect()
}

#[test]
fn both_directions_are_output_with_their_ends() {
    let streams = followed(
        Config::default(),
        &[
            sent(99, SYN, &[]),
            answer(499, 100, SYN, &[]),
            sent(100, ACK, b"question"),
            answer(500, 108, 0, b"answer"),
            TestSegment { ack: Some(506), ..sent(108, FIN, &[]) },
            answer(506, 109, FIN, b""),
        ],
    );
    let [question, answer] = &streams[..] else { panic!("two streams") };
    assert_eq!((question.whole(), answer.whole()), (b"question".to_vec(), b"answer".to_vec()));
    let (one, other) = (question.summary(), answer.summary());
    assert_eq!((one.other, other.other), (Some(other.about.stream), Some(one.about.stream)));
    assert_eq!((one.about.ends.from, one.about.ends.to), (other.about.ends.to, other.about.ends.from));
    assert_eq!(one.about.ends.from.to_string(), "10.0.0.1:1000");
    for summary in [one, other] {
        assert_eq!(
            (summary.about.connection, summary.about.began, summary.ending),
            (0, StartEvidence::Start, Ending::Fin)
        );
        assert_eq!((summary.missing_at_end, summary.tally.repeated), (0, 0));
    }
}

#[test]
fn repeats_keep_alives_and_probes_add_nothing() {
    let streams = followed(
        Config::default(),
        &[
            sent(99, SYN, &[]),
            sent(99, SYN, &[]),
            sent(100, ACK, b"abcd"),
            // A keep-alive, with and without the byte, and a probe of a zero window.
            sent(103, ACK, b"\0"),
            sent(103, ACK, b""),
            sent(104, ACK, b"e"),
            sent(104, ACK, b"efgh"),
            sent(100, ACK, b"abcdefghij"),
        ],
    );
    assert_eq!(streams.len(), 1);
    assert_eq!(streams[0].whole(), b"abcdefghij");
    assert_eq!(streams[0].summary().tally.repeated, 1 + 1 + 8);
}

#[test]
fn syn_may_carry_data_and_fin() {
    let segments =
        [sent(99, SYN, b"fast"), sent(100, ACK, b"fast open"), sent(109, ACK | FIN, b"!"), sent(110, ACK, b"?")];
    let streams = followed(Config::default(), &segments);
    assert_eq!(streams[0].whole(), b"fast open!");
    assert_eq!(streams[0].summary().tally.beyond, 1);
}

#[test]
fn syn_ack_defines_the_start_without_a_syn() {
    let streams = followed(Config::default(), &[answer(499, 100, SYN, &[]), sent(104, ACK, b"efgh")]);
    assert_eq!((&streams[0].gaps[..], streams[0].whole()), (std::slice::from_ref(&(0..4)), b"\0\0\0\0efgh".to_vec()));
    assert_eq!(streams[0].summary().about.began, StartEvidence::Start);
}

#[test]
fn connection_may_be_joined_in_the_middle() {
    let streams = followed(
        Config::default(),
        &[sent(5000, ACK, b"mid"), sent(4990, ACK, b"0123456789mid"), sent(5003, ACK, b"dle")],
    );
    assert_eq!(streams[0].whole(), b"middle");
    let summary = streams[0].summary();
    assert_eq!((summary.about.began, summary.tally.before, summary.tally.repeated), (StartEvidence::Middle, 10, 3));
    assert_eq!(summary.ending, Ending::Stopped);
}

#[test]
fn new_syn_starts_a_new_stream() {
    let segments = [
        sent(99, SYN, &[]),
        sent(100, ACK, b"one"),
        sent(103, ACK | FIN, &[]),
        sent(7777, SYN, &[]),
        sent(7778, ACK, b"two"),
        // A SYN-ACK with its own number starts no third connection.
        answer(11, 7778, SYN, &[]),
        answer(12, 7781, 0, b"back"),
    ];
    let streams = followed(Config::default(), &segments);
    let all: Vec<_> = streams.iter().map(|stream| (stream.whole(), stream.summary().about.connection)).collect();
    assert_eq!(all, [(b"one".to_vec(), 0), (b"two".to_vec(), 1), (b"back".to_vec(), 1)]);
    assert_eq!(streams[0].summary().ending, Ending::Fin);
}

#[test]
fn simultaneous_open_is_supported() {
    let segments = [
        sent(99, SYN, &[]),
        TestSegment { ack: None, flags: SYN, ..answer(499, 0, 0, &[]) },
        TestSegment { ack: Some(500), ..sent(99, SYN, &[]) },
        answer(499, 100, SYN, &[]),
        sent(100, ACK, b"a"),
        answer(500, 101, 0, b"b"),
    ];
    assert_eq!(whole(&segments), [b"a", b"b"]);
}

#[test]
fn reset_ends_both_directions_and_its_payload_is_ignored() {
    let segments = [
        sent(99, SYN, &[]),
        sent(100, ACK, b"data"),
        answer(500, 104, RST, b"go away"),
        // Still of the same connection.
        sent(102, ACK, b"ta and more"),
    ];
    let streams = followed(Config::default(), &segments);
    assert_eq!(streams.len(), 1);
    assert_eq!((streams[0].whole(), streams[0].summary().ending), (b"data and more".to_vec(), Ending::Reset));
}

#[test]
fn acknowledged_gap_is_skipped_after_a_delay() {
    let mut watcher = Watcher::new(Config { patience: Duration::from_millis(100), ..Config::default() });
    watcher.observe(&sent(99, SYN, &[]));
    watcher.observe(&sent(104, ACK, b"efgh"));
    for _ in 0..400 {
        watcher.observe(&sent(108, ACK, &[]));
    }
    assert!(watcher.out.streams.is_empty(), "not acknowledged: it may still arrive");
    watcher.observe(&answer(500, 108, 0, &[]));
    for _ in 0..50 {
        watcher.observe(&sent(108, ACK, &[]));
    }
    for _ in 0..150 {
        watcher.observe(&sent(108, ACK, &[]));
    }
    assert_eq!(watcher.out.streams.len(), 1);
    watcher.observe(&sent(100, ACK, b"abcdefgh"));
    let streams = watcher.done();
    assert_eq!((&streams[0].gaps[..], streams[0].whole()), (std::slice::from_ref(&(0..4)), b"\0\0\0\0efgh".to_vec()));
    let tally = streams[0].summary().tally;
    assert_eq!((tally.late, tally.repeated, tally.missing), (4, 4, 4));
}

#[test]
fn acknowledged_bytes_not_captured_are_missing_at_the_end() {
    let segments = [sent(99, SYN, &[]), sent(100, ACK, b"abcd"), sent(110, ACK | FIN, &[]), answer(500, 111, 0, &[])];
    let streams = followed(Config::default(), &segments);
    assert_eq!((streams[0].whole(), streams[0].summary().missing_at_end), (b"abcd".to_vec(), 6));
    let segments = [sent(99, SYN, &[]), sent(100, ACK, b"abcd"), answer(500, 107, 0, &[])];
    assert_eq!(followed(Config::default(), &segments)[0].summary().missing_at_end, 3);
}

#[test]
fn distant_segments_are_ignored_unless_confirmed() {
    let far = 100 + (1 << 30) + 50;
    let mut segments = vec![sent(99, SYN, &[]), sent(100, ACK, b"near"), sent(far, ACK, b"far"), sent(104, ACK, b"er")];
    let streams = followed(Config::default(), &segments);
    assert_eq!((streams[0].whole(), streams[0].summary().tally.far), (b"nearer".to_vec(), 3));
    segments.extend((0..20).map(|number| sent(far + 3 * number, ACK, b"far")));
    let streams = followed(Config::default(), &segments);
    assert_eq!((streams[0].gaps.len(), streams[0].summary().tally.bytes), (1, 6 + 3 * 5));
}

#[test]
fn invalid_checksums_are_ignored_on_request() {
    let wrong = TestSegment { has_wrong_checksum: true, ..sent(100, ACK, b"bad!") };
    let segments = [sent(99, SYN, &[]), wrong, sent(100, ACK, b"good")];
    assert_eq!(whole(&segments), [b"bad!"]);
    let mut watcher = Watcher::new(Config { checksums: true, ..Config::default() });
    let taken: Vec<FollowOutcome> = segments.iter().map(|sent| watcher.observe(sent)).collect();
    assert_eq!(taken, [FollowOutcome::Followed, FollowOutcome::BadChecksum, FollowOutcome::Followed]);
    assert_eq!(watcher.done()[0].whole(), b"good");
}

#[test]
fn fragments_and_other_protocols_are_counted_separately() {
    let mut watcher = Watcher::new(Config::default());
    let mut packet = sent(99, ACK, b"0123456789abcdef").packet();
    packet[6] = 0x20;
    assert_eq!(watcher.observe_frame(&packet, packet.len()), FollowOutcome::Fragment, "the first");
    packet[6..8].copy_from_slice(&[0, 3]);
    assert_eq!(watcher.observe_frame(&packet, packet.len()), FollowOutcome::Fragment, "the last");
    packet[6..8].copy_from_slice(&[0, 0]);
    assert_eq!(watcher.observe_frame(&packet[..30], packet.len()), FollowOutcome::Malformed, "cut in its header");
    packet[9] = 17;
    assert_eq!(watcher.observe_frame(&packet, packet.len()), FollowOutcome::NotTcp);
    assert_eq!(watcher.observe_frame(&[], 0), FollowOutcome::Malformed, "an empty packet");
    assert!(watcher.done().is_empty());
}

#[test]
fn idle_timeout_ends_a_connection_and_one_wrong_time_does_not() {
    let mut watcher = Watcher::new(Config { idle: Duration::from_secs(5), ..Config::default() });
    watcher.observe(&sent(99, SYN, &[]));
    watcher.observe(&sent(100, ACK, b"a"));
    // A timestamp far in the future.
    watcher.time += 40_000_000_000;
    watcher.observe(&TestSegment { port: 7, ..sent(1, ACK, b"x") });
    watcher.time -= 40_000_000_000;
    for _ in 0..2000 {
        watcher.observe(&TestSegment { port: 8, ..sent(1, ACK, b"") });
    }
    watcher.observe(&sent(101, ACK, b"b"));
    watcher.time += 7000;
    for _ in 0..200 {
        watcher.observe(&TestSegment { port: 8, ..sent(1, ACK, b"") });
    }
    watcher.observe(&sent(102, ACK, b"c"));
    let streams = watcher.done();
    let all: Vec<_> = streams.iter().map(|stream| (stream.whole(), stream.summary().ending)).collect();
    let wanted = [(b"ab".to_vec(), Ending::Silent), (b"x".to_vec(), Ending::Silent), (b"c".to_vec(), Ending::Stopped)];
    assert_eq!(all, wanted);
}
