//! State carried from a record to the next one after the active timeout.

use crate::support::segments::{ACK, FIN, RST, SYN, Segment, config, flows};
use linerate_burst::Nanos;
use linerate_meter::{Config, ConnState, EndReason, Flow, Level, Quality};

const SECOND: u64 = 1_000_000_000;

fn there(millis: u64, sequence: u32, acknowledgement: u32) -> Segment {
    Segment::at(millis, 0, sequence, acknowledgement)
}

fn back(millis: u64, sequence: u32, acknowledgement: u32) -> Segment {
    Segment::at(millis, 1, sequence, acknowledgement)
}

/// Meters with an active timeout of one second.
fn metered(segments: &[Segment], level: Level) -> Vec<Flow> {
    let config = Config { level, ..config() }.with_timeouts(Nanos(100 * SECOND), Nanos(SECOND));
    flows(segments, &config, &[32], false)
}

fn handshake() -> Vec<Segment> {
    vec![there(0, 100, 0).flags(SYN), back(1, 500, 101).flags(SYN | ACK), there(2, 101, 501)]
}

#[test]
fn a_closed_connection_does_not_swallow_the_next() {
    let fins = vec![there(900, 101, 501).flags(FIN | ACK), back(910, 501, 102).flags(FIN | ACK)];
    let reset = vec![back(910, 501, 101).flags(RST | ACK)];
    let half = vec![back(910, 501, 101).flags(FIN | ACK)];
    for level in [Level::Counters, Level::Tcp] {
        for (close, state, is_closed) in
            [(&fins, ConnState::Sf, true), (&reset, ConnState::Rstr, true), (&half, ConnState::S3, false)]
        {
            let straggler = there(1100, 102, 502);
            // A new connection, within the 5 s.
            let syn = there(3000, 50_000, 0).flags(SYN);
            let found = metered(&[&handshake()[..], close, &[straggler.clone(), syn.clone()]].concat(), level);
            let ends: Vec<_> = found.iter().map(|flow| (flow.end, flow.quality.contains(Quality::CONTINUED))).collect();
            assert_eq!(ends, [(EndReason::Active, false), (EndReason::End, true), (EndReason::Forced, false)]);
            if level == Level::Tcp {
                let states: Vec<_> = found.iter().map(|flow| flow.tcp.as_ref().unwrap().state).collect();
                assert_eq!(states, [state, state, ConnState::S0]);
            }
            // Long after: 5 s of silence end it, but not a half-open one.
            let late = there(50_000, 102, 502);
            let found = metered(&[&handshake()[..], close, &[straggler, late]].concat(), level);
            let expected = if is_closed { EndReason::End } else { EndReason::Active };
            assert_eq!((found.len(), found[1].end), (3, expected));
        }
    }
}

/// One FIN before the active timeout, the other one after it.
#[test]
fn both_fins_may_be_in_different_records() {
    let close = [there(900, 101, 501).flags(FIN | ACK), back(1200, 501, 102).flags(FIN | ACK)];
    for level in [Level::Counters, Level::Tcp] {
        let found = metered(&[&handshake()[..], &close].concat(), level);
        assert_eq!((found.len(), found[1].end), (2, EndReason::End));
    }
}

#[test]
fn sequence_number_of_an_unseen_syn_is_omitted() {
    let data = |millis, sequence| there(millis, sequence, 501).payload(10);
    // Only the responder's SYN with ACK was seen.
    let opened = [
        back(0, 500, 101).flags(SYN | ACK),
        data(2, 101),
        back(3, 501, 111),
        data(1100, 111),
        data(2200, 121),
        data(3300, 131),
    ];
    let isns = |found: &[Flow]| -> Vec<_> {
        found.iter().map(|flow| flow.tcp.as_ref().unwrap().sides.map(|side| side.isn)).collect()
    };
    let found = metered(&opened, Level::Tcp);
    assert_eq!(isns(&found), [[None, Some(500)]; 4]);
    assert!(found.iter().all(|flow| flow.tcp.as_ref().unwrap().state == ConnState::S1));
    // A SYN with sequence number 0 is seen like any other.
    let options = [2, 4, 5, 180];
    let late = [&opened[..], &[there(3400, 0, 0).flags(SYN).options(&options)]].concat();
    let found = metered(&late, Level::Tcp);
    assert_eq!(isns(&found)[3], [Some(0), Some(500)]);
    assert_eq!(found[3].tcp.as_ref().unwrap().sides[0].mss, Some(1460));
}
