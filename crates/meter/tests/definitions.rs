//! Edge cases of the definitions in `docs/flows.md`.

use crate::support::segments::{ACK, FIN, RST, START, SYN, Segment, analysis, config, flows};
use linerate_burst::Nanos;
use linerate_meter::{Config, Direction, EndReason, Level};

/// Segments from the client, from the server, nanoseconds after the start.
fn there(nanos: u64, sequence: u32, acknowledgement: u32) -> Segment {
    Segment { time: START + nanos, ..Segment::at(0, 0, sequence, acknowledgement) }
}

fn back(nanos: u64, sequence: u32, acknowledgement: u32) -> Segment {
    Segment { time: START + nanos, ..Segment::at(0, 1, sequence, acknowledgement) }
}

/// Times are truncated to units: a handshake within one unit has duration 0, and counts as measured.
#[test]
fn a_handshake_shorter_than_a_unit_counts() {
    let opened = [there(0, 100, 0).flags(SYN), back(100, 500, 101).flags(SYN | ACK), there(215, 101, 501)];
    let data = |nanos, sequence| there(nanos, sequence, 501).payload(10);
    for (since, filled, is_prompt) in [(2048, 2048 + 185, true), (2048, 2048 + 1023, true), (2048, 2048 + 1024, false)]
    {
        let rest = [data(2000, 101), data(since, 121), data(filled, 111)];
        let tcp = analysis(&[&opened[..], &rest].concat());
        assert_eq!((tcp.syn_to_syn_ack, tcp.syn_ack_to_ack), (Some(0), Some(0)));
        let client = tcp.sides[0];
        let found = (client.out_of_order, client.retransmitted.unseen);
        assert_eq!(found, (u64::from(is_prompt), u64::from(!is_prompt)), "filled at {filled}");
    }
}

/// The first packet with evidence determines the originator.
#[test]
fn reordered_handshake_is_recognised_by_syn_ack() {
    let found = flows(
        &[back(0, 500, 101).flags(SYN | ACK), there(9, 100, 0).flags(SYN), there(20, 101, 501)],
        &config(),
        &[32],
        false,
    );
    assert_eq!((found.len(), found[0].direction, found[0].ends[0].port), (1, Direction::SynAck, 1000));
}

/// Also if the run ends within the linger time of 5 s.
#[test]
fn closed_connection_is_ended_at_the_end_of_the_run() {
    let opened = [there(0, 100, 0).flags(SYN), back(100, 500, 101).flags(SYN | ACK), there(215, 101, 501)];
    let close = [there(900, 101, 501).flags(FIN | ACK), back(910, 501, 102).flags(FIN | ACK)];
    let reset = [there(900, 101, 501).flags(RST | ACK)];
    for level in [Level::Counters, Level::Tcp] {
        let config = Config { level, ..config() };
        let end = |rest: &[Segment]| flows(&[&opened[..], rest].concat(), &config, &[32], false)[0].end;
        assert_eq!((end(&close), end(&reset)), (EndReason::End, EndReason::End));
        assert_eq!((end(&close[..1]), end(&[])), (EndReason::Forced, EndReason::Forced));
    }
}

/// Without packets in a direction, TTLs and windows are 0.
#[test]
fn a_direction_without_packets_is_all_zero() {
    let config = config().with_timeouts(Nanos(1_000_000_000), Nanos(1_000_000_000));
    let found = flows(&[there(0, 100, 0).flags(SYN)], &config, &[32], false);
    let [orig, resp] = &found[0].sides;
    assert_eq!((orig.ttl, resp.ttl, resp.first), ([64, 64], [0, 0], Nanos(0)));
    let sides = found[0].tcp.as_ref().unwrap().sides;
    assert_eq!(sides.map(|side| side.window), [[0, 0]; 2], "a SYN's window does not count");
}
