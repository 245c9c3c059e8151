//! Segments that somebody else may have sent, and clocks that are wrong.

use super::hosts::{ACK, FIN, RST, SYN, answer, followed, sent};
use linerate_receive::follow::{Config, Ending};

#[test]
fn an_acknowledgement_that_nobody_can_mean_is_not_believed() {
    for wrong in
        [answer(500, 0x7000_0000, 0, &[]), answer(500, 102 + (1 << 30) + 5, 0, &[]), answer(500, 900, RST, &[])]
    {
        let streams = followed(Config::default(), &[sent(99, SYN, &[]), sent(100, ACK, b"abcd"), wrong.clone()]);
        assert_eq!(streams[0].summary().missing_at_end, 0, "{wrong:?}");
    }
}

#[test]
fn a_fin_that_the_receiver_did_not_take_is_none() {
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
