//! Segments that may be forged, and wrong clocks.

use super::hosts::{ACK, FIN, RST, SYN, TestSegment, Watcher, answer, followed, sent};
use linerate_transport::follow::{Config, Ending};
use std::time::Duration;

#[test]
fn impossible_acknowledgement_is_ignored() {
    for wrong in
        [answer(500, 0x7000_0000, 0, &[]), answer(500, 102 + (1 << 30) + 5, 0, &[]), answer(500, 900, RST, &[])]
    {
        let streams = followed(Config::default(), &[sent(99, SYN, &[]), sent(100, ACK, b"abcd"), wrong.clone()]);
        assert_eq!(streams[0].summary().missing_at_end, 0, "{wrong:?}");
    }
}

#[test]
fn unacknowledged_fin_is_ignored() {
    let segments = [
        sent(99, SYN, &[]),
        sent(100, ACK, b"abcd"),
        sent(102, ACK | FIN, &[]),
        sent(104, ACK | FIN, &[]),
        answer(500, 108, 0, &[]),
        sent(108, ACK, b"more"),
        sent(112, ACK | FIN, &[]),
        answer(500, 113, 0, &[]),
    ];
    let streams = followed(Config::default(), &segments);
    assert_eq!(streams[0].whole(), b"abcd\0\0\0\0more");
    assert_eq!((streams[0].summary().ending, streams[0].summary().missing_at_end), (Ending::Fin, 0));
    let far =
        [sent(99, SYN, &[]), sent(100, ACK, b"abcd"), sent(0x7000_0000, ACK | FIN, &[]), sent(104, ACK | FIN, &[])];
    let streams = followed(Config::default(), &far);
    assert_eq!((streams[0].summary().ending, streams[0].summary().missing_at_end), (Ending::Fin, 0));
}

#[test]
fn reset_rejected_by_its_receiver_ends_nothing() {
    let begun = [sent(99, SYN, &[]), answer(499, 100, SYN, &[]), sent(100, ACK, b"abcd"), answer(500, 104, 0, b"ok")];
    let wrong = [answer(501 + (1 << 30) + 5, 104, RST, &[]), answer(400, 104, RST, &[])];
    // In the window, but its alleged sender continues.
    let guessed = [answer(502, 104, RST, &[]), sent(104, ACK, b"e"), answer(502, 105, 0, &[])];
    for after in [&wrong[..1], &wrong[1..], &guessed] {
        let mut watcher = Watcher::new(Config { connections: 10, ..Config::default() });
        begun.iter().chain(after).for_each(|sent| {
            watcher.observe(sent);
        });
        for port in 2000..2010 {
            watcher.observe(&TestSegment { port, ..sent(1, ACK, b"x") });
        }
        assert_eq!(watcher.follow.counts().evicted, 1, "it was open");
        assert!(watcher.done()[..2].iter().all(|stream| stream.summary().ending != Ending::Reset));
    }
    let real = followed(Config::default(), &[&begun[..], &[answer(502, 104, RST, &[])]].concat());
    assert!(real.iter().all(|stream| stream.summary().ending == Ending::Reset));
}

#[test]
fn syn_with_rst_acts_as_a_reset() {
    let begun = [sent(99, SYN, &[]), answer(499, 100, SYN, &[]), sent(100, ACK, b"abcd")];
    // Anywhere else: its receiver drops it, and later segments belong to the same stream.
    let forged = [sent(0x7000_0000, SYN | RST, &[]), sent(104, ACK, b"efgh"), sent(108, ACK | FIN, &[])];
    let streams = followed(Config::default(), &[&begun[..], &forged].concat());
    assert_eq!((streams.len(), streams[0].whole()), (1, b"abcdefgh".to_vec()));
    assert_eq!(streams[0].summary().ending, Ending::Fin);
    // At the current position it acts as a RST.
    let streams = followed(Config::default(), &[&begun[..], &[sent(104, SYN | RST, &[])]].concat());
    assert_eq!(streams[0].summary().ending, Ending::Reset);
}

#[test]
fn uncaptured_fin_is_not_a_missing_byte() {
    let over = [sent(99, SYN, &[]), sent(100, ACK, b"abcd"), answer(500, 105, FIN, b"ok")];
    assert_eq!(followed(Config::default(), &over)[0].summary().missing_at_end, 0);
    let is_open = [sent(99, SYN, &[]), sent(100, ACK, b"abcd"), answer(500, 105, 0, b"ok")];
    assert_eq!(followed(Config::default(), &is_open)[0].summary().missing_at_end, 1, "it may be a byte");
}

#[test]
fn first_timestamp_in_the_future_does_not_stop_the_clock() {
    let mut watcher = Watcher::new(Config { idle: Duration::from_secs(5), ..Config::default() });
    watcher.time += 40_000_000_000;
    watcher.observe(&sent(99, SYN, &[]));
    watcher.time -= 40_000_000_000;
    watcher.observe(&sent(100, ACK, b"a"));
    for _ in 0..200 {
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
    assert_eq!(all, [(b"ab".to_vec(), Ending::Silent), (b"c".to_vec(), Ending::Stopped)]);
}
