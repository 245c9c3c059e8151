//! A SYN with another number: of a new connection, late, or forged.

use super::hosts::{ACK, FIN, RST, SYN, Stream, TestSegment, answer, followed, sent};
use linerate_transport::follow::{Config, Ending};

fn begun() -> Vec<TestSegment> {
    vec![
        sent(99, SYN, &[]),
        answer(499, 100, SYN, &[]),
        TestSegment { ack: Some(500), ..sent(100, ACK, b"GET /1") },
        answer(500, 106, 0, b"one"),
    ]
}

fn goes_on() -> Vec<TestSegment> {
    vec![
        TestSegment { ack: Some(503), ..sent(106, ACK, b"GET /2") },
        answer(503, 112, 0, b"two"),
        TestSegment { ack: Some(506), ..sent(112, FIN, &[]) },
        answer(506, 113, FIN, b""),
    ]
}

fn of(streams: &[Stream], connection: u64) -> Vec<Vec<u8>> {
    let of_it = streams.iter().filter(|stream| stream.summary().about.connection == connection);
    of_it.map(|stream| stream.whole()).collect()
}

#[test]
fn stale_or_forged_syn_hides_nothing() {
    let numbers = [106, 107, 105, 101, 90, 503, 510, 70_000, 0x4000_0000, 0x9000_0000, u32::MAX];
    for number in numbers {
        for data in [&b""[..], b"forged"] {
            let syn = |number| sent(number, SYN, data);
            let forged = [
                vec![syn(number)],
                vec![answer(number, 106, SYN, data)],
                vec![answer(number, 99, SYN, data)],
                vec![answer(number, 0x8000_0000, SYN, data)],
                vec![syn(number), answer(77, number.wrapping_add(1), SYN, &[])],
                vec![syn(number), answer(number, 0x8000_0000, SYN, &[])],
                // One after the other, more than are kept.
                (0..9).map(|more| syn(number.wrapping_add(more * 12_345))).collect(),
                (0..9).map(|more| answer(number.wrapping_add(more * 12_345), 106, SYN, data)).collect(),
                vec![syn(number), sent(number.wrapping_add(1), RST, &[])],
                vec![syn(number), answer(0, number.wrapping_add(1), RST, &[])],
            ];
            for forged in forged {
                let streams = followed(Config::default(), &[begun(), forged.clone(), goes_on()].concat());
                assert_eq!(of(&streams, 0), [b"GET /1GET /2".to_vec(), b"onetwo".to_vec()], "{forged:?}");
                assert!(streams[..2].iter().all(|stream| stream.summary().ending == Ending::Fin), "{forged:?}");
            }
        }
    }
}

/// Similar sequence numbers are distinguished by the client's acknowledgement.
#[test]
fn stale_syn_ack_before_the_valid_one_hides_nothing() {
    for number in [0, 98, 400, 498, 502, 600, 60_000] {
        let stale = [
            answer(number, 100, SYN, &[]),
            answer(number, 80_000, SYN, b"?"),
            TestSegment { ack: None, ..answer(number, 0, SYN, &[]) },
            answer(number, 100, 0, b"?"),
        ];
        for stale in stale {
            let mut segments = begun();
            segments.insert(1, stale);
            segments.insert(3, TestSegment { ack: Some(500), ..sent(100, ACK, &[]) });
            segments.extend(goes_on());
            let streams = followed(Config::default(), &segments);
            let connection = streams.last().unwrap().summary().about.connection;
            assert_eq!(of(&streams, connection), [b"GET /1GET /2".to_vec(), b"onetwo".to_vec()], "{segments:?}");
        }
    }
    // A RST starts nothing, whatever it acknowledges.
    let segments = [&begun()[..1], &[answer(7, 300, SYN | RST, &[])], &begun()[1..], &goes_on()].concat();
    assert_eq!(of(&followed(Config::default(), &segments), 0), [b"GET /1GET /2".to_vec(), b"onetwo".to_vec()]);
    let reset = TestSegment { ack: Some(0), ..sent(0x9000_0000, SYN | RST, &[]) };
    let segments = [&begun()[..1], &[reset], &begun()[1..], &goes_on()].concat();
    assert_eq!(of(&followed(Config::default(), &segments), 0), [b"GET /1GET /2".to_vec(), b"onetwo".to_vec()]);
}

#[test]
fn late_syn_does_not_replace_the_valid_syn_ack() {
    let data = [
        TestSegment { ack: Some(500), ..sent(100, ACK, b"question") },
        answer(500, 108, 0, b"answer"),
        TestSegment { ack: Some(506), ..sent(108, ACK, &[]) },
    ];
    for stale in [answer(0x7000_0000, 0x1234_5678, SYN, &[]), answer(0x7000_0000, 80_000, SYN, b"?")] {
        for before in [vec![sent(99, SYN, &[])], vec![]] {
            let segments = [&before[..], &[stale.clone(), answer(499, 100, SYN, &[])], &data].concat();
            let streams = followed(Config::default(), &segments);
            let connection = streams.last().unwrap().summary().about.connection;
            assert_eq!(of(&streams, connection), [b"question".to_vec(), b"answer".to_vec()], "{segments:?}");
        }
    }
    // A SYN of the side of which only acknowledgements were seen.
    let answers = [answer(500, 106, 0, b"one"), answer(503, 112, 0, b"two")];
    let segments = [&answers[..1], &[sent(0x7000_0000, SYN, &[])], &answers[1..], &goes_on()[..1]].concat();
    assert_eq!(of(&followed(Config::default(), &segments), 0), [b"onetwo".to_vec(), b"GET /2".to_vec()]);
}

#[test]
fn replaced_connection_frees_its_entry() {
    let new = |client: u32, server: u32, text: &[u8]| {
        let end = client + 1 + text.len() as u32;
        vec![
            sent(client, SYN, &[]),
            answer(server, client + 1, SYN, &[]),
            TestSegment { ack: Some(server + 1), ..sent(client + 1, ACK, text) },
            answer(server + 1, end, 0, b"again"),
        ]
    };
    let closed = [begun(), goes_on()].concat();
    let reset = [begun(), vec![TestSegment { ack: Some(503), ..sent(106, RST, &[]) }]].concat();
    for (before, ending) in [(closed, Ending::Fin), (reset, Ending::Reset), (begun(), Ending::Reused)] {
        // Numbers as a host assigns them a few milliseconds later, and arbitrary ones.
        for (client, server) in [(20_099, 20_499), (112, 506), (0x9000_0000, 0x1000_0000)] {
            // The FIN of the previous connection may have this number.
            if ending == Ending::Reused && client == 112 {
                continue;
            }
            let parts = [before.clone(), new(client, server, b"new"), new(client + 70_000, server + 70_000, b"third")];
            let streams = followed(Config::default(), &parts.concat());
            let connections = [0, 1, 2].map(|connection| of(&streams, connection));
            assert_eq!(connections[0], of(&followed(Config::default(), &before), 0), "{ending:?} {client}");
            assert_eq!(connections[1], [b"new".to_vec(), b"again".to_vec()], "{ending:?} {client}");
            assert_eq!(connections[2], [b"third".to_vec(), b"again".to_vec()], "{ending:?} {client}");
            let endings: Vec<_> = streams.iter().step_by(2).map(|stream| stream.summary().ending).collect();
            assert_eq!(endings, [ending, Ending::Reused, Ending::Stopped], "{client}");
        }
    }
}

/// As when two captures of a connection are merged.
#[test]
fn syn_before_joined_data_starts_another_connection() {
    let middle = [TestSegment { ack: Some(9000), ..sent(20_000, ACK, b"middle") }, answer(9000, 20_006, 0, b"yes")];
    let start = [
        sent(9999, SYN, &[]),
        answer(4999, 10_000, SYN, &[]),
        TestSegment { ack: Some(5000), ..sent(10_000, ACK, b"start") },
        answer(5000, 10_005, 0, b"ok"),
    ];
    let streams = followed(Config::default(), &[&middle[..], &start].concat());
    let wanted = [[b"middle".to_vec(), b"yes".to_vec()], [b"start".to_vec(), b"ok".to_vec()]];
    assert_eq!([0, 1].map(|connection| of(&streams, connection)), wanted);
}

/// Only one direction was captured.
#[test]
fn one_sided_connection_is_replaced_too() {
    let of_client = |first: u32, text: &[u8]| vec![sent(first, SYN, &[]), sent(first + 1, ACK, text)];
    let segments = [of_client(99, b"one"), of_client(0x5000_0000, b"two"), of_client(0x2000_0000, b"three")].concat();
    let streams = followed(Config::default(), &segments);
    assert_eq!(
        [0, 1, 2].map(|connection| of(&streams, connection)),
        [[b"one".to_vec()], [b"two".to_vec()], [b"three".to_vec()]]
    );
}
