//! The work of each parser is bounded by a constant times the length of its input, whatever its content.

use crate::cursor::work;
use crate::dns::{Addresses, Message};
use crate::{Protocol, Protocols, Stream, http, protocol, quic, ssh, tls};
use proptest::collection::vec;
use proptest::prelude::*;

/// Steps per byte, and steps of an empty input.
const PER_BYTE: usize = 24;
const LEAST: usize = 64;

/// DNS messages with arbitrary labels and pointers, most of which point to names.
fn dns() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        3 => (0u16..400).prop_map(|back| vec![0xff, 0xff, back as u8, (back >> 8) as u8]),
        2 => (1u8..64).prop_map(|length| [vec![length], vec![b'a'; length.into()]].concat()),
        1 => Just(vec![0]),
        2 => prop::sample::select(vec![1u8, 5, 16, 28]).prop_map(|kind| vec![0, kind, 0, 1, 0, 0, 0, 60, 0, 0]),
    ];
    (vec(piece, 1..200), any::<u8>(), 0..6usize).prop_map(|(pieces, answers, repeat)| {
        let mut bytes = vec![0x12, 0x34, 0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0, 1, b'a', 0, 0, 1, 0, 1];
        for piece in pieces {
            let at = bytes.len();
            match piece[..] {
                // A pointer this many bytes back.
                [0xff, 0xff, low, high] => {
                    let back = usize::from(u16::from_le_bytes([low, high]));
                    bytes.extend((0xc000 | at.saturating_sub(back).max(12) as u16).to_be_bytes());
                }
                _ => bytes.extend(piece),
            }
        }
        let end = bytes.len().min(600);
        (0..repeat).for_each(|_| bytes.extend_from_within(end / 2..end));
        bytes
    })
}

/// Chains of pointers in which all answers end: the worst case per byte.
fn chain(pointers: usize, answers: usize) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 0x81, 0x80, 0, 1, 0, 64, 0, 0, 0, 0, 1, b'a', 0, 0, 1, 0, 1];
    let data = bytes.len() + 12;
    bytes.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 60]);
    bytes.extend((pointers as u16 * 2).to_be_bytes());
    (0..pointers)
        .for_each(|at| bytes.extend((0xc000 | if at == 0 { 12 } else { data + 2 * at - 2 } as u16).to_be_bytes()));
    let last = 0xc000 | (data + 2 * pointers - 2) as u16;
    (0..answers)
        .for_each(|_| bytes.extend([last.to_be_bytes().as_slice(), &[0, 16, 0, 1, 0, 0, 0, 60, 0, 0]].concat()));
    bytes
}

fn steps(bytes: &[u8]) -> usize {
    let mut most = work::of(|| Message::parse(bytes)).max(work::of(|| Addresses::parse(bytes)));
    for known in [None, Some(Protocol::Dns), Some(Protocol::Ssh), Some(Protocol::Tls)] {
        most = most.max(work::of(|| protocol::read(bytes, known, Protocols::ALL)));
    }
    let mut stream = Stream::default();
    most = most.max(work::of(|| quic::crypto(bytes, &mut stream)));
    most = most.max(work::of(|| quic::initial(bytes))).max(work::of(|| tls::quic_client_hello(bytes)));
    most.max(work::of(|| http::request(bytes)))
        .max(work::of(|| http::status(bytes)))
        .max(work::of(|| ssh::line(bytes, true)))
}

#[test]
fn chains_of_pointers_cost_no_more_than_their_bytes() {
    for (pointers, answers) in [(1, 64), (63, 64), (126, 64), (127, 64), (620, 64), (7600, 63)] {
        let bytes = chain(pointers, answers);
        let steps = steps(&bytes);
        assert!(
            steps <= LEAST + PER_BYTE * bytes.len(),
            "{steps} steps for {} bytes, {pointers} pointers",
            bytes.len()
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn work_is_bounded_by_bytes(
        bytes in prop_oneof![
            dns(),
            vec(any::<u8>(), 0..2000),
            // Lines, records of one byte, short frames: many starts.
            (0..2000usize).prop_map(|count| [b"GET / HTTP/1.1\n".as_slice(), &b"a:\n b\n".repeat(count)].concat()),
            (0..2000usize).prop_map(|count| b"HTTP/1.1 100\n\n".repeat(count)),
            (0..2000usize).prop_map(|count| b"\n".repeat(count)),
            (0..2000usize).prop_map(|count| [[22, 3, 1, 0, 1, 1], [22, 3, 1, 0, 1, 0]].concat().repeat(count)),
            (vec(0..4u8, 0..2000)),
        ]
    ) {
        let steps = steps(&bytes);
        prop_assert!(steps <= LEAST + PER_BYTE * bytes.len(), "{} steps for {} bytes", steps, bytes.len());
    }
}
