//! Records of handmade connections, row by row of the tables in `docs/flows.md`.

use crate::support::{
    self,
    segments::{ACK, FIN, MS, RST, START, SYN, Segment, analysis, config, flows, flows_with},
};
use linerate_burst::Nanos;
use linerate_meter::{Config, ConnState, Level, Quality, TcpSide};
use proptest::prelude::*;

/// Segments from the client, from the server, at a millisecond.
fn there(millis: u64, sequence: u32, acknowledgement: u32) -> Segment {
    Segment::at(millis, 0, sequence, acknowledgement)
}

fn back(millis: u64, sequence: u32, acknowledgement: u32) -> Segment {
    Segment::at(millis, 1, sequence, acknowledgement)
}

/// The next sequence numbers are the client's 101 and the server's 501; 4 ms from SYN to SYN with ACK, 2 from there.
fn handshake() -> Vec<Segment> {
    let options = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
    vec![
        there(0, 100, 0).flags(SYN).options(&options),
        back(4, 500, 101).flags(SYN | ACK).options(&[2, 4, 5, 100, 3, 3, 20]),
        there(6, 101, 501),
    ]
}

fn opened(rest: &[Segment]) -> Vec<Segment> {
    [&handshake()[..], rest].concat()
}

/// Analysis of the client's side, after a handshake.
fn client(rest: &[Segment]) -> TcpSide {
    analysis(&opened(rest)).sides[0]
}

#[test]
fn handshake_yields_times_and_options() {
    let tcp = analysis(&opened(&[there(10, 101, 501).payload(10).window(500), back(17, 501, 111).window(3)]));
    assert_eq!((tcp.syn_to_syn_ack, tcp.syn_ack_to_ack), (Some(3_999_744), Some(1_999_872)));
    assert_eq!((tcp.state, tcp.history.0.as_str()), (ConnState::S1, "ShADa"));
    let [client, server] = tcp.sides;
    assert_eq!((client.isn, client.mss, client.window_scale), (Some(100), Some(1460), Some(7)));
    assert!(client.sack_permitted && client.timestamps && !server.sack_permitted && !server.timestamps);
    // A scale above 14 is 14.
    assert_eq!((server.isn, server.mss, server.window_scale), (Some(500), Some(1380), Some(14)));
    assert_eq!((client.window, server.window), ([500 << 7, 1000 << 7], [3 << 14, 3 << 14]));
    assert_eq!((client.rtt.count, client.rtt.min, client.rtt.max), (1, 7_000_064, 7_000_064));
    assert_eq!((client.rtt.mean, client.rtt.deviation), (7_000_064.0, 0.0));
    assert_eq!(server.rtt.count, 0);
}

#[test]
fn retransmitted_syn_omits_times() {
    let syn = |millis| there(millis, 100, 0).flags(SYN);
    let answer = |millis| back(millis, 500, 101).flags(SYN | ACK);
    let tcp = analysis(&[syn(0), syn(1000), answer(1004), there(1006, 101, 501)]);
    assert_eq!((tcp.syn_to_syn_ack, tcp.syn_ack_to_ack), (None, Some(1_999_872)));
    assert_eq!(tcp.sides[0].retransmitted.timeout, 1);
    let tcp = analysis(&[syn(0), answer(4), answer(1004), there(1006, 101, 501)]);
    assert_eq!((tcp.syn_to_syn_ack, tcp.syn_ack_to_ack), (Some(3_999_744), None));
}

/// As captured by two taps or two queues: the SYN, or the SYN with ACK, after the segments that follow it, also after
/// the end.
#[test]
fn late_captured_syn_joins_its_connection() {
    let rest = [
        there(6, 101, 501),
        there(7, 101, 501).payload(10),
        back(9, 501, 111).payload(20),
        there(10, 111, 521).flags(FIN | ACK),
        back(11, 521, 112).flags(FIN | ACK),
        there(12, 112, 522),
    ];
    let [syn, answer, _] = <[Segment; 3]>::try_from(handshake()).unwrap();
    let (first, second) = (std::slice::from_ref(&syn), std::slice::from_ref(&answer));
    let orders: [Vec<Segment>; 4] = [
        [second, &rest, first].concat(),
        [&rest, first, second].concat(),
        [first, &rest[..3], second, &rest[3..]].concat(),
        [&rest[..1], second, first, &rest[1..]].concat(),
    ];
    for segments in orders {
        let tcp = analysis(&segments);
        let clean = TcpSide { retransmitted: Default::default(), copies: 0, gaps: 0, ..tcp.sides[0] };
        assert_eq!((tcp.state, tcp.sides[0]), (ConnState::Sf, clean), "{:?}", tcp.history);
        assert_eq!((tcp.sides[0].isn, tcp.sides[1].isn), (Some(100), Some(500)));
        assert_eq!(tcp.sides[1].retransmitted.segments() + tcp.sides[1].gaps, 0);
    }
    // A different sequence number starts another connection, and so does that of an earlier SYN.
    for sequence in [99, 4000, 100] {
        let segments = [&opened(&rest)[..], &[there(20, sequence, 0).flags(SYN)]].concat();
        assert_eq!(flows(&segments, &config(), &[7], false).len(), 2, "{sequence}");
    }
}

/// A sender whose IPv4 identification never changes (RFC 6864 allows it).
#[test]
fn new_bytes_are_not_a_duplicate() {
    let same = |segment: Segment| Segment { identification: 1, ..segment.payload(10) };
    let data = |millis, sequence| same(there(millis, sequence, 501));
    for (rest, copies) in [
        (vec![data(10, 101), data(11, 121), data(12, 111)], 0),
        (vec![data(10, 101), data(11, 106)], 0),
        (vec![data(10, 101), data(11, 101), data(12, 101)], 2),
        // Another segment had the same identification, so it does not prove a copy.
        (vec![data(10, 101), data(11, 111), data(300, 111)], 0),
        (vec![data(10, 101), data(11, 111), data(12, 121).identification(7), data(13, 121).identification(7)], 1),
    ] {
        let found = client(&rest);
        assert_eq!(found.copies, copies, "{rest:?}");
    }
    assert_eq!(client(&[data(10, 101), data(11, 111), data(300, 111)]).retransmitted.timeout, 1);
}

/// Rows of the table of segments: further segments of the client, and its counters that are not 0.
#[test]
fn each_segment_has_one_class() {
    let data = |millis, sequence| there(millis, sequence, 501).payload(10);
    let none = TcpSide { rtt: Default::default(), ..client(&[]) };
    let found = |rest: &[Segment]| TcpSide { rtt: Default::default(), ..client(rest) };
    let lost = TcpSide { gaps: 1, gap_bytes: 10, ..none };
    let acked = |millis| back(millis, 501, 111);
    let cases: Vec<(&str, Vec<Segment>, TcpSide)> = vec![
        ("in order", vec![data(10, 101), data(11, 111)], none),
        ("gap", vec![data(10, 101), data(11, 121)], lost),
        (
            "far gap",
            vec![data(10, 101), data(11, 101 + (1 << 30))],
            TcpSide { gaps: 1, gap_bytes: (1 << 30) - 10, ..none },
        ),
        ("too far", vec![data(10, 101), data(11, 111 + (1 << 30)), data(12, 121 + (1 << 30))], none),
        ("far below", vec![data(10, 101), data(11, 110u32.wrapping_sub(1 << 30))], none),
        (
            "window probe",
            vec![
                data(10, 101),
                acked(11).window(0),
                there(12, 111, 501).payload(1),
                acked(13).window(0),
                data(14, 111),
            ],
            TcpSide { window_probes: 1, ..none },
        ),
        (
            "window probe taken",
            vec![data(10, 101), acked(11).window(0), there(12, 111, 501).payload(1), back(13, 501, 112), data(14, 112)],
            TcpSide { window_probes: 1, ..none },
        ),
        (
            "window probe sent again with more",
            vec![
                data(10, 101),
                acked(11).window(0),
                there(12, 111, 501).payload(1),
                acked(13),
                data(14, 111),
                back(15, 501, 122),
                data(16, 122),
            ],
            TcpSide { window_probes: 1, gaps: 1, gap_bytes: 1, ..none },
        ),
        ("keep-alive", vec![data(10, 101), acked(11), there(12, 110, 501)], TcpSide { keep_alives: 1, ..none }),
        (
            "keep-alive of a byte",
            vec![data(10, 101), acked(11), there(12, 110, 501).payload(1)],
            TcpSide { keep_alives: 1, retransmitted_bytes: 1, ..none },
        ),
        (
            "copy",
            vec![data(10, 101).identification(7), data(10, 101).identification(7)],
            TcpSide { copies: 1, retransmitted_bytes: 10, ..none },
        ),
        (
            "out of order",
            vec![data(10, 101), data(11, 121), data(16, 111)],
            TcpSide { gaps: 1, out_of_order: 1, ..none },
        ),
        ("fills a hole late", vec![data(10, 101), data(11, 121), data(18, 111)], {
            let mut side = TcpSide { gaps: 1, ..none };
            side.retransmitted.unseen = 1;
            side
        }),
        (
            "fills two holes, one of them old",
            vec![data(10, 101), data(11, 121), data(16, 141), data(18, 111).payload(40)],
            {
                let mut side = TcpSide { gaps: 2, retransmitted_bytes: 20, ..none };
                side.retransmitted.unseen = 1;
                side
            },
        ),
        ("spurious", vec![data(10, 101), acked(11), data(400, 101)], {
            let mut side = TcpSide { retransmitted_bytes: 10, ..none };
            side.retransmitted.spurious = 1;
            side
        }),
        ("fast", vec![data(10, 101), data(10, 111), data(10, 121), acked(12), acked(13), acked(14), data(34, 111)], {
            let mut side = TcpSide { retransmitted_bytes: 10, ..none };
            side.retransmitted.fast = 1;
            side
        }),
        (
            "not so fast",
            vec![data(10, 101), data(10, 111), data(10, 121), acked(12), acked(13), acked(14), data(35, 111)],
            {
                let mut side = TcpSide { retransmitted_bytes: 10, ..none };
                side.retransmitted.timeout = 1;
                side
            },
        ),
        ("timeout, with more than before", vec![data(10, 101), data(500, 101).payload(25)], {
            let mut side = TcpSide { retransmitted_bytes: 10, ..none };
            side.retransmitted.timeout = 1;
            side
        }),
        ("FIN again", vec![there(10, 101, 501).flags(FIN | ACK), there(300, 101, 501).flags(FIN | ACK)], {
            let mut side = none;
            side.retransmitted.timeout = 1;
            side
        }),
        ("zero window", vec![there(10, 101, 501).window(0)], TcpSide { zero_windows: 1, window: [0, 128_000], ..none }),
    ];
    for (name, rest, expected) in cases {
        assert_eq!(found(&rest), expected, "{name}");
    }
}

#[test]
fn duplicate_acks_are_counted_at_their_sender() {
    let data = |millis, sequence| there(millis, sequence, 501).payload(10);
    let tcp =
        analysis(&opened(&[data(10, 101), data(10, 111), back(12, 501, 111), back(13, 501, 111), back(14, 501, 111)]));
    assert_eq!((tcp.sides[0].duplicate_acks, tcp.sides[1].duplicate_acks), (0, 2));
    // A window that changes, nothing outstanding, or payload: not a duplicate.
    for last in [back(13, 501, 111).window(9), back(13, 501, 111).payload(1), back(13, 501, 121)] {
        let tcp = analysis(&opened(&[data(10, 101), data(10, 111), back(12, 501, 111), last]));
        assert_eq!(tcp.sides[1].duplicate_acks, 0);
    }
}

#[test]
fn retransmissions_are_not_timed() {
    let data = |millis, sequence| there(millis, sequence, 501).payload(10);
    assert_eq!(client(&[data(10, 101), data(15, 111), back(20, 501, 121)]).rtt.count, 1);
    assert_eq!(client(&[data(10, 101), data(15, 101), back(20, 501, 111)]).rtt.count, 0);
    // Nor data that waited for other data.
    assert_eq!(client(&[data(10, 111), data(15, 101), back(20, 501, 121)]).rtt.count, 0);
    // Nor by an earlier packet, or by RST.
    assert_eq!(client(&[data(10, 101), back(9, 501, 111)]).rtt.count, 0);
    assert_eq!(client(&[data(10, 101), back(20, 501, 111).flags(RST | ACK)]).rtt.count, 0);
}

#[test]
fn many_round_trips_are_all_counted() {
    let mut rest = Vec::new();
    let rounds = 70_000;
    for round in 0..rounds {
        let time = 10 + 8 * u64::from(round);
        rest.push(there(time, 101 + 10 * round, 501).payload(10));
        rest.push(back(time + 1 + u64::from(round % 2) * 2, 501, 111 + 10 * round));
    }
    let rtt = client(&rest).rtt;
    assert_eq!((rtt.count, rtt.min >> 14, rtt.max >> 14), (u64::from(rounds), 61, 183));
    assert!((rtt.mean - 2e6).abs() < 1024.0 && (rtt.deviation - 1e6).abs() < 1024.0, "{rtt:?}");
    // Long ones overflow the sums.
    let mut rest = Vec::new();
    for round in 0..8 {
        let time = 10 + 1_500_000 * u64::from(round);
        rest.push(there(time, 101 + 10 * round, 501).payload(10));
        rest.push(back(time + 1_400_000, 501, 111 + 10 * round));
    }
    let hours = Nanos(11 * 3600 * 1_000_000_000);
    let flows = flows(&opened(&rest), &config().with_timeouts(hours, hours), &[32], false);
    let rtt = flows[0].tcp.as_ref().unwrap().sides[0].rtt;
    assert_eq!((rtt.count, rtt.deviation), (8, 0.0));
    assert!((rtt.mean - 1.4e12).abs() < 1024.0);
}

/// Each state, determined by flags only.
#[test]
fn states_match_the_table() {
    use ConnState::*;
    type Case = (&'static [(usize, u8)], ConnState, &'static str);
    let cases: &[Case] = &[
        (&[(0, SYN)], S0, "S"),
        (&[(0, SYN), (1, SYN | ACK)], S1, "Sh"),
        (&[(0, SYN), (1, SYN | ACK), (0, ACK)], S1, "ShA"),
        (&[(0, SYN), (1, ACK), (0, ACK)], S0, "SaA"),
        (&[(0, SYN), (1, SYN | ACK), (0, FIN | ACK), (1, FIN | ACK)], Sf, "ShFf"),
        (&[(0, SYN), (1, RST | ACK)], Rej, "Sr"),
        (&[(0, SYN), (1, SYN | ACK), (0, FIN | ACK)], S2, "ShF"),
        (&[(0, SYN), (1, SYN | ACK), (1, FIN | ACK)], S3, "Shf"),
        (&[(0, SYN), (1, SYN | ACK), (0, RST)], Rsto, "ShR"),
        (&[(0, SYN), (1, SYN | ACK), (1, RST)], Rstr, "Shr"),
        (&[(0, SYN), (1, SYN | ACK), (0, RST), (1, RST)], Rej, "ShRr"),
        (&[(0, SYN), (1, SYN | ACK), (0, FIN | ACK), (1, FIN | ACK), (0, RST)], Sf, "ShFfR"),
        (&[(0, SYN), (1, SYN | ACK), (0, FIN | ACK), (0, RST), (1, FIN | ACK)], Sf, "ShFRf"),
        (&[(0, SYN), (1, SYN | ACK), (0, FIN | ACK), (1, RST)], Rstr, "ShFr"),
        (&[(0, SYN), (0, RST)], Rstos0, "SR"),
        (&[(1, SYN | ACK), (1, RST)], Rstrh, "hr"),
        (&[(0, SYN), (0, FIN)], Sh, "SF"),
        (&[(1, SYN | ACK), (1, FIN)], Shr, "hf"),
        (&[(1, SYN | ACK), (0, RST)], Rsto, "hR"),
        (&[(0, ACK), (1, ACK)], Oth, "Aa"),
        (&[(0, ACK), (1, ACK), (0, FIN | ACK), (1, FIN | ACK)], Sf, "AaFf"),
        (&[(0, ACK), (1, ACK), (0, FIN | ACK)], Sh, "AaF"),
        (&[(0, ACK), (1, ACK), (1, FIN | ACK)], Shr, "Aaf"),
        (&[(0, ACK), (1, ACK), (0, RST)], Oth, "AaR"),
        (&[(0, ACK), (1, ACK), (1, RST)], Rstrh, "Aar"),
        (&[(0, SYN), (1, SYN), (0, SYN | ACK), (1, SYN | ACK)], S1, "SsHh"),
        (&[(0, SYN | FIN)], Sh, "QSF"),
        (&[(0, SYN), (1, FIN | RST | ACK)], Rej, "Sir"),
        (&[(0, SYN | RST)], Oth, "QR"),
    ];
    for (packets, state, history) in cases {
        let mut next = [100, 500];
        let segments: Vec<Segment> = (10..)
            .zip(packets.iter())
            .map(|(millis, (side, flags))| {
                // A repeated SYN has the number of the first one.
                let is_again = flags & SYN != 0 && next[*side] % 100 == 1;
                let sequence = next[*side] - u32::from(is_again);
                next[*side] = sequence + u32::from(flags & (SYN | FIN) != 0);
                Segment::at(millis, *side, sequence, next[1 - side]).flags(*flags)
            })
            .collect();
        for turned in [false, true] {
            let flows = flows(&segments, &config(), &[32], turned);
            let tcp = flows[0].tcp.as_ref().unwrap();
            assert_eq!((tcp.state, tcp.history.0.as_str()), (*state, *history), "{packets:?}");
            let again: u64 = tcp.sides.iter().map(|side| side.retransmitted.segments()).sum();
            assert_eq!(again, 0, "{packets:?}");
        }
    }
}

#[test]
fn letters_repeat_at_powers_of_ten() {
    let mut rest = Vec::new();
    for number in 0..12 {
        rest.push(there(10 + u64::from(number), 101 + 20 * number, 501).payload(10));
        rest.push(back(10 + u64::from(number), 501, 101).window(0));
        rest.push(Segment { is_bad: true, ..back(10, 501, 101) });
    }
    rest.push(there(100, 101, 501).payload(10));
    let tcp = analysis(&opened(&rest));
    assert_eq!(tcp.history.0, "ShADawcGwcGT");
    assert_eq!((tcp.sides[0].gaps, tcp.sides[1].zero_windows), (11, 12));
    // Four of eleven holes are kept; all are counted.
    assert_eq!(tcp.sides[0].gap_bytes, 110);
}

#[test]
fn continued_record_keeps_the_connection_state() {
    let second = 1_000_000_000;
    let config = Config { checksums: false, ..config() }.with_timeouts(Nanos(100 * second), Nanos(30 * second));
    let mut rest = Vec::new();
    for number in 0..50u32 {
        let millis = 1000 * u64::from(number + 1);
        rest.push(there(millis, 101 + 10 * number, 501).payload(10));
        rest.push(back(millis + 5, 501, 111 + 10 * number).window(2));
        rest.push(there(millis + 6, 101 + 10 * number, 501).payload(10));
    }
    rest.push(there(55_000, 601, 501).flags(FIN | ACK));
    rest.push(back(55_001, 501, 602).flags(FIN | ACK).window(2));
    let flows = flows(&opened(&rest), &config, &[32], false);
    assert_eq!(flows.len(), 2);
    let tcps: Vec<_> = flows.iter().map(|flow| flow.tcp.as_ref().unwrap()).collect();
    assert!(flows[1].quality.contains(Quality::CONTINUED));
    assert_eq!((tcps[0].state, tcps[1].state), (ConnState::S1, ConnState::Sf));
    assert_eq!((tcps[0].history.0.as_str(), tcps[1].history.0.as_str()), ("ShADaTT", "DaTTFf"));
    for tcp in &tcps {
        let [client, server] = tcp.sides;
        assert_eq!((client.gaps, client.isn, client.mss), (0, Some(100), Some(1460)));
        assert_eq!((server.window, tcp.syn_to_syn_ack), ([2 << 14, 2 << 14], Some(3_999_744)));
    }
    let sum = |count: fn(&TcpSide) -> u64| tcps.iter().map(|tcp| count(&tcp.sides[0])).sum::<u64>();
    assert_eq!((sum(|side| side.retransmitted.spurious), sum(|side| side.retransmitted_bytes)), (50, 500));
    assert_eq!(sum(|side| side.rtt.count), 51);
}

/// Holes further below than any segment can be are not mistaken for ones above.
#[test]
fn holes_are_kept_apart_when_sequence_numbers_wrap() {
    let much = 8_000_000u32;
    let mut rest = vec![there(10, 201, 501).payload(100)];
    let mut next = 301u32;
    for round in 0..1200u64 {
        rest.push(there(20 + round, next, 501).payload(60_000));
        next = next.wrapping_add(60_000);
        rest.push(there(20 + round, next.wrapping_add(much), 501).payload(1));
        next = next.wrapping_add(much + 1);
        rest.push(there(20 + round, next.wrapping_sub(much + 1), 501).payload(60_000));
    }
    let side = client(&rest);
    assert_eq!((side.gaps, side.out_of_order, side.retransmitted_bytes), (1201, 1200, 0));
    assert_eq!(side.gap_bytes, 100 + 1200 * u64::from(much - 60_000));
}

/// The same with fast-path packets in between, in super-frames without a length.
#[test]
fn an_old_hole_is_not_filled_after_a_wrap() {
    const MUCH: u32 = 8_013_000;
    let data = |millis, sequence, payload| there(millis, sequence, 501).payload(payload);
    let mut sent = opened(&[data(10, 101, 10), data(11, 211, 10), back(12, 501, 111)]);
    let mut next = 221u32;
    for round in 0..536 {
        sent.push(data(13 + round, next, 10));
        next = next.wrapping_add(MUCH);
        sent.push(back(13 + round, 501, next));
    }
    assert_eq!(next, 925);
    sent.push(data(600, 111, 100));
    let config = Config { checksums: false, ..config() };
    let found = flows_with(&sent, &config, &[32], false, |segment, desc, frame| {
        if segment.payload == 10 && segment.time >= START + 13 * MS {
            frame[16..18].fill(0);
            desc.wire = 54 + MUCH;
        }
    });
    let side = found[0].tcp.as_ref().unwrap().sides[0];
    assert_eq!((side.gaps, side.gap_bytes), (1, 100));
    assert_eq!((side.retransmitted.spurious, side.retransmitted_bytes, side.rtt.count), (1, 100, 537));
}

#[test]
fn other_flows_and_levels_have_no_tcp_fields() {
    let segments = handshake();
    let counters = Config { level: Level::Counters, ..config() };
    assert_eq!(flows(&segments, &counters, &[32], false)[0].tcp, None);
    let udp = support::metered(&[support::Sent::udp(START)], &config(), &[1]);
    assert_eq!(udp[0].tcp, None);
    let [less, more] = [counters, config()].map(|config| config.bytes_per_flow());
    assert_eq!((less[0], more[0], Config::TROUBLE_BYTES), (96, 224, 272));
}

/// A record has no errors of the flow that used its memory before.
#[test]
fn records_start_without_errors() {
    let mut sent = Vec::new();
    for round in 0..3000u64 {
        let time = |segment: &Segment| Segment { time: segment.time + round * 10_000 * MS, ..segment.clone() };
        sent.extend(handshake().iter().map(time));
        let data = there(10, 101, 501).payload(10);
        let again = if round % 3 == 0 { vec![data.clone(), data] } else { vec![data] };
        sent.extend(again.iter().map(time));
        sent.push(time(&there(20, 111, 501).flags(RST)));
    }
    let flows = flows(&sent, &config(), &[100], false);
    let found: Vec<u64> = flows.iter().map(|flow| flow.tcp.as_ref().unwrap().sides[0].retransmitted_bytes).collect();
    assert_eq!(found.len(), 3000);
    assert!(found.iter().enumerate().all(|(round, bytes)| *bytes == if round % 3 == 0 { 10 } else { 0 }));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Segments of one flow with arbitrary numbers: no panic, and the same result with source and destination swapped.
    #[test]
    fn any_sequence_numbers_are_accepted(
        all in prop::collection::vec((any::<(u32, u32, u8, u16, u16)>(), 0usize..90, 0usize..2, any::<[u8; 12]>(), 0u64..1 << 33), 1..120),
        bursts in prop::collection::vec(1usize..40, 1..4),
    ) {
        let mut time = START;
        let segments: Vec<Segment> = all
            .into_iter()
            .map(|((sequence, acknowledgement, flags, window, identification), payload, side, options, wait)| {
                time += wait;
                let (options, is_bad) = (options.to_vec(), wait % 50 == 0);
                Segment { time, side, sequence, acknowledgement, flags, window, identification, payload, options, is_bad }
            })
            .collect();
        let results = |bursts: &[usize], turned| {
            let mut results: Vec<_> = flows(&segments, &config(), bursts, turned).into_iter().map(|flow| (flow.sides[0].first, flow.tcp)).collect();
            results.sort_by_key(|(first, _)| *first);
            results
        };
        let once = format!("{:?}", results(&[32], false));
        prop_assert_eq!(&once, &format!("{:?}", results(&bursts, false)));
        prop_assert_eq!(&once, &format!("{:?}", results(&bursts, true)));
    }

    #[test]
    fn any_bytes_are_metered_without_a_panic(
        frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..120), any::<u64>(), any::<u32>().prop_map(|more| more >> (more % 32))), 1..60),
    ) {
        let frames: Vec<_> = frames
            .into_iter()
            .map(|(mut bytes, time, more)| {
                // TCP in IPv4, more often than not.
                if bytes.len() >= 54 && time % 8 != 0 {
                    bytes[12..15].copy_from_slice(&[8, 0, 0x45]);
                    bytes[20..22].fill(0);
                    bytes[16..18].copy_from_slice(&((time % 3) as u16 * 40).to_be_bytes());
                    (bytes[23], bytes[46]) = (6, 0x50 | bytes[46] & 0x2f);
                    bytes[26..38].fill(1);
                }
                (bytes, time % (1 << 40), more)
            })
            .collect();
        support::take_bytes(&frames, &Config { checksums: false, ..config() });
    }
}
