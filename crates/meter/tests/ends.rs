//! TCP ends that an endpoint would not accept.

use crate::support::segments::{ACK, FIN, RST, SYN, Segment, config, flows};
use linerate_meter::{Config, ConnState, EndReason, Flow, Level, Quality};

fn there(millis: u64, sequence: u32, acknowledgement: u32) -> Segment {
    Segment::at(millis, 0, sequence, acknowledgement)
}

fn back(millis: u64, sequence: u32, acknowledgement: u32) -> Segment {
    Segment::at(millis, 1, sequence, acknowledgement)
}

/// A connection with these segments in its middle; it continues for 20 s and ends normally.
fn around(middle: &[Segment]) -> Vec<Segment> {
    let scale = [3, 3, 4, 1];
    let begin = [
        there(0, 100, 0).flags(SYN).options(&scale),
        back(4, 500, 101).flags(SYN | ACK).options(&scale),
        there(6, 101, 501).window(60_000),
        back(7, 501, 101).window(50_000),
        there(8, 101, 501).payload(100).window(60_000),
    ];
    let end = [
        back(10_000, 501, 201).payload(50).window(50_000),
        there(20_000, 201, 551).flags(FIN | ACK).window(60_000),
        back(20_001, 551, 202).flags(FIN | ACK).window(50_000),
    ];
    [&begin[..], middle, &end[..]].concat()
}

fn metered(segments: &[Segment], level: Level) -> Vec<Flow> {
    flows(segments, &Config { level, ..config() }, &[32], false)
}

#[test]
fn distant_rst_or_fin_ends_nothing() {
    for level in [Level::Tcp, Level::Stats] {
        for guess in [
            there(9, 0x4000_0000, 501).flags(RST),
            there(9, 101u32.wrapping_sub(1 << 24), 501).flags(RST | ACK),
            back(9, 0x9000_0000, 101).flags(FIN | ACK),
            Segment { is_bad: true, ..there(9, 201, 501).flags(RST) },
        ] {
            let found = metered(&around(std::slice::from_ref(&guess)), level);
            assert_eq!(found.len(), 1, "{guess:?}: one record");
            let tcp = found[0].tcp.as_ref().unwrap();
            assert_eq!((tcp.state, found[0].end), (ConnState::Sf, EndReason::End), "{guess:?}");
            assert!(found[0].quality.contains(Quality::DOUBTFUL_END), "{guess:?}");
            assert_eq!(found[0].packets(), 9, "it is in the record");
            let flags = found[0].sides[0].tcp_flags | found[0].sides[1].tcp_flags;
            assert!(flags & guess.flags == guess.flags, "and its flags");
        }
    }
}

#[test]
fn an_end_within_a_window_ends_the_record() {
    for real in [
        there(9, 201, 501).flags(RST),
        // Within the window of the other side: 50,000 times 16.
        there(9, 201 + 799_000, 501).flags(RST),
        there(9, 201u32.wrapping_sub(60_000), 501).flags(RST | ACK),
    ] {
        let found = metered(&around(std::slice::from_ref(&real)), Level::Tcp);
        assert!(found.len() > 1, "{real:?}: late packets arrive after the linger time of 5 s");
        assert_eq!(found[0].tcp.as_ref().unwrap().state, ConnState::Rsto, "{real:?}");
        assert!(!found[0].quality.contains(Quality::DOUBTFUL_END));
    }
    let beyond = there(9, 201 + 801_000, 501).flags(RST);
    assert_eq!(metered(&around(&[beyond]), Level::Tcp).len(), 1);
}

/// The acknowledgement number identifies a reply to a SYN.
#[test]
fn first_packet_is_accepted_by_its_acknowledgement() {
    let refused = |number| [there(0, 100, 0).flags(SYN), back(1, 0, number).flags(RST | ACK)];
    let found = metered(&refused(101), Level::Tcp);
    assert_eq!(found[0].tcp.as_ref().unwrap().state, ConnState::Rej);
    let found = metered(&refused(0x7000_0000), Level::Tcp);
    assert_eq!(found[0].tcp.as_ref().unwrap().state, ConnState::S0);
    assert!(found[0].quality.contains(Quality::DOUBTFUL_END));
}

/// At level `counters` sequence numbers are not known.
#[test]
fn any_end_is_accepted_at_level_counters() {
    let found = metered(&around(&[there(9, 0x4000_0000, 501).flags(RST)]), Level::Counters);
    assert!(found.len() > 1 && !found.iter().any(|flow| flow.quality.contains(Quality::DOUBTFUL_END)));
}
