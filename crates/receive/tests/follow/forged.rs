//! Segments that somebody else may have sent, and clocks that are wrong.

use super::hosts::{ACK, RST, SYN, answer, followed, sent};
use linerate_receive::follow::Config;

#[test]
fn an_acknowledgement_that_nobody_can_mean_is_not_believed() {
    for wrong in
        [answer(500, 0x7000_0000, 0, &[]), answer(500, 102 + (1 << 30) + 5, 0, &[]), answer(500, 900, RST, &[])]
    {
        let streams = followed(Config::default(), &[sent(99, SYN, &[]), sent(100, ACK, b"abcd"), wrong.clone()]);
        assert_eq!(streams[0].summary().missing_at_end, 0, "{wrong:?}");
    }
}
