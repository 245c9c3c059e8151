//! Random connections, compared with values derived from the definitions.

use crate::support::naive_tcp::Naive;
use crate::support::segments::{ACK, CLIENT, FIN, MS, RST, START, SYN, Segment, config, flows};
use linerate_meter::{Flow, Retransmitted, Tcp, TcpSide};
use proptest::prelude::*;

/// Action of one step, and its side; numbers are derived from the segments sent so far.
#[derive(Clone, Debug)]
struct Step {
    side: usize,
    what: u8,
    number: u32,
    length: usize,
    acknowledged: u8,
    wait: u64,
    same_identification: bool,
    window: u16,
    is_bad: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let wait = prop_oneof![6 => 0u64..2 * MS, 2 => 2 * MS..30 * MS, 1 => 30 * MS..60 * MS];
    let window = prop_oneof![12 => Just(1000u16), 2 => 900u16..1100, 2 => Just(0)];
    let one = (0usize..2, 0u8..40, 0u32..12, 1usize..6, 0u8..12, wait, prop::bool::weighted(0.1), window, 0u8..60);
    let one = one.prop_map(|(side, what, number, length, acknowledged, wait, same_identification, window, bad)| Step {
        side,
        what,
        number,
        length,
        acknowledged,
        wait,
        same_identification,
        window,
        is_bad: bad == 0,
    });
    prop::collection::vec(one, 1..80)
}

/// Segments mostly in sequence.
fn segments(steps: &[Step], isns: [u32; 2], opens: bool) -> Vec<Segment> {
    let (mut next, mut acked) = (isns, [isns[1], isns[0]]);
    let mut identification = [1u16, 1];
    let mut time = START;
    let mut sent = Vec::new();
    let options = [2, 4, 5, 100, 3, 3, 2, 1, 4, 2, 1, 1];
    if opens {
        let there = Segment::at(0, 0, isns[0], 0).flags(SYN).options(&options);
        let back = Segment::at(2, 1, isns[1], isns[0].wrapping_add(1)).flags(SYN | ACK).options(&options[..8]);
        sent.extend([there, back]);
        next = isns.map(|isn| isn.wrapping_add(1));
        acked = [next[1], next[0]];
        time += 3 * MS;
    }
    for step in steps {
        time += step.wait;
        let (side, other) = (step.side, 1 - step.side);
        let (mut sequence, mut flags, mut payload) = (next[side], ACK, step.length);
        match step.what {
            0..=9 => {}
            10..=17 => payload = 0,
            18..=21 => sequence = next[side].wrapping_add(1 + step.number % 5),
            22..=25 => sequence = next[side].wrapping_sub(step.number),
            26..=28 => sequence = acked[other],
            29 => (sequence, payload) = (next[side].wrapping_sub(1), step.length % 2),
            30..=31 => payload = 1,
            32 => flags = ACK | FIN,
            33 if step.number < 2 => (flags, payload) = (RST | ACK, step.length % 2),
            // From a blind attacker.
            33 if step.number < 6 => (sequence, flags, payload) = (step.number * 0x3000_0000, RST | ACK, 0),
            34 => (sequence, flags, payload) = (isns[side], SYN | (step.number as u8 % 2 * ACK), step.length % 2),
            35 if step.number < 3 => (sequence, flags) = (step.number.wrapping_mul(0x9000_0000), SYN | ACK),
            36 if step.number < 2 => flags = SYN | FIN | RST | ACK,
            37 if step.number < 4 => sequence = next[side].wrapping_add(0x5000_0000),
            38 => flags = 0,
            39 => {
                // The other side requests it with duplicate acknowledgements.
                sequence = acked[other];
                for _ in 0..step.number % 5 {
                    sent.push(Segment { time, ..Segment::at(0, other, next[other], acked[other]) });
                }
            }
            _ => {}
        }
        acked[side] = match step.acknowledged {
            0..=4 => next[other],
            5 => acked[side].wrapping_sub(1),
            6 => next[other].wrapping_add(1),
            7 => next[other].wrapping_sub(2),
            _ => acked[side],
        };
        if !step.same_identification {
            identification[side] += 1;
        }
        let length = payload as u32 + u32::from(flags & FIN != 0) + u32::from(flags & SYN != 0);
        let end = sequence.wrapping_add(length);
        if end.wrapping_sub(next[side]) < 100 || sequence != next[side] && step.what >= 35 {
            next[side] = end;
            if step.what >= 35 && step.what < 38 {
                acked[other] = end;
            }
        }
        sent.push(Segment {
            time,
            side,
            sequence,
            acknowledgement: acked[side],
            flags,
            window: step.window,
            identification: if step.number == 11 { 0 } else { identification[side] },
            payload,
            options: Vec::new(),
            is_bad: step.is_bad && step.what < 34,
        });
    }
    sent
}

/// Expected results, a record for each run of segments: a SYN after FIN or RST starts another, unless it is late.
fn naive(segments: &[Segment]) -> Vec<Naive> {
    let mut records = Vec::new();
    let (mut open, mut is_closing) = (Naive::default(), false);
    for (index, one) in segments.iter().enumerate() {
        if is_closing && one.flags & (SYN | ACK) == SYN && !open.is_late_syn(one) {
            records.push(std::mem::take(&mut open));
            is_closing = false;
        }
        is_closing |= one.flags & (FIN | RST) != 0 && open.accepts_end(one);
        open.take(one);
        if index + 1 == segments.len() {
            records.push(std::mem::take(&mut open));
        }
    }
    records
}

/// Removes differences of floating point.
fn rounded(tcp: &Tcp) -> Tcp {
    let mut tcp = tcp.clone();
    for side in &mut tcp.sides {
        side.rtt.mean = side.rtt.mean.round();
        side.rtt.deviation = (side.rtt.deviation / 16.0).round();
    }
    tcp
}

fn originator(flow: &Flow) -> usize {
    usize::from(flow.ends[0].port != CLIENT)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, max_shrink_iters: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn statistics_match_the_definitions(
        steps in steps(),
        isns in prop_oneof![Just([100u32, 5000]), Just([u32::MAX - 20, u32::MAX - 2]), Just([(1 << 30) - 20, (1 << 31) - 30])],
        opens in any::<bool>(),
        turned in any::<bool>(),
        bursts in prop::collection::vec(1usize..40, 1..5),
    ) {
        let segments = segments(&steps, isns, opens);
        let found = flows(&segments, &config(), &bursts, turned);
        let expected = naive(&segments);
        prop_assume!(!expected.iter().any(|naive| naive.is_too_much));
        prop_assert_eq!(found.len(), expected.len());
        for (flow, naive) in found.iter().zip(&expected) {
            let tcp = flow.tcp.as_ref().expect("level tcp");
            prop_assert_eq!(rounded(tcp), rounded(&naive.tcp(originator(flow))));
        }
    }
}

#[test]
fn random_segments_cover_all_classes() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut all, mut retransmitted, mut states) = (TcpSide::default(), Retransmitted::default(), Vec::new());
    for round in 0..400 {
        let steps = steps().new_tree(&mut runner).unwrap().current();
        for flow in flows(&segments(&steps, [100, 5000], round % 2 == 0), &config(), &[32], false) {
            let tcp = flow.tcp.unwrap();
            states.push(tcp.state);
            for side in tcp.sides {
                all.gaps += side.gaps;
                all.out_of_order += side.out_of_order;
                all.copies += side.copies;
                all.duplicate_acks += side.duplicate_acks;
                all.keep_alives += side.keep_alives;
                all.window_probes += side.window_probes;
                all.zero_windows += side.zero_windows;
                retransmitted.timeout += side.retransmitted.timeout;
                retransmitted.fast += side.retransmitted.fast;
                retransmitted.spurious += side.retransmitted.spurious;
                retransmitted.unseen += side.retransmitted.unseen;
            }
        }
    }
    let counts = [
        all.gaps,
        all.out_of_order,
        all.copies,
        all.duplicate_acks,
        all.keep_alives,
        all.window_probes,
        all.zero_windows,
        retransmitted.timeout,
        retransmitted.fast,
        retransmitted.spurious,
        retransmitted.unseen,
    ];
    assert!(counts.iter().all(|count| *count >= 20), "{counts:?}");
    states.sort();
    states.dedup();
    assert!(states.len() >= 7, "{states:?}");
}
