//! A hand-made connection with one of every event that tshark and linerate name: no capture has zero windows.

use crate::flows::analysis::{NAMES, RoundTrips, analyse};
use crate::flows::tshark::{differences, metered};
use linerate_tests::support::records::{Record, write};
use linerate_tests::support::{Scratch, has_tools};
use std::path::Path;

const FIN: u8 = 1;
const SYN: u8 = 2;
const ACK: u8 = 16;

/// Time in ms, sender (`>` client, `<` server), flags, sequence number, acknowledgement number, payload, window.
const SEGMENTS: [(u64, char, u8, u32, u32, usize, u16); 33] = [
    (0, '>', SYN, 0, 0, 0, 1000),
    (10, '<', SYN | ACK, 0, 1, 0, 1000),
    (13, '>', ACK, 1, 1, 0, 1000),
    (20, '>', ACK, 1, 1, 100, 1000),
    (31, '<', ACK, 1, 101, 0, 0),
    // Two window probes.
    (300, '>', ACK, 101, 1, 1, 1000),
    (310, '<', ACK, 1, 101, 0, 0),
    (700, '>', ACK, 101, 1, 1, 1000),
    (710, '<', ACK, 1, 101, 0, 0),
    (800, '<', ACK, 1, 101, 0, 1000),
    (810, '>', ACK, 101, 1, 100, 1000),
    (821, '<', ACK, 1, 201, 0, 1000),
    // Three duplicate acknowledgements, a fast retransmission.
    (830, '>', ACK, 201, 1, 100, 1000),
    (831, '>', ACK, 301, 1, 100, 1000),
    (832, '>', ACK, 401, 1, 100, 1000),
    (833, '>', ACK, 501, 1, 100, 1000),
    (842, '<', ACK, 1, 201, 0, 1000),
    (843, '<', ACK, 1, 201, 0, 1000),
    (844, '<', ACK, 1, 201, 0, 1000),
    (846, '>', ACK, 201, 1, 100, 1000),
    (857, '<', ACK, 1, 601, 0, 1000),
    // A spurious retransmission, and one after a timeout.
    (1200, '>', ACK, 201, 1, 100, 1000),
    (1300, '>', ACK, 601, 1, 100, 1000),
    (1600, '>', ACK, 601, 1, 100, 1000),
    (1612, '<', ACK, 1, 701, 0, 1000),
    // A gap that is filled at once, and one that is filled late.
    (1700, '>', ACK, 801, 1, 100, 1000),
    (1701, '>', ACK, 701, 1, 100, 1000),
    (1713, '<', ACK, 1, 901, 0, 1000),
    (1800, '>', ACK, 1001, 1, 100, 1000),
    (2200, '>', ACK, 901, 1, 100, 1000),
    (2213, '<', ACK, 1, 1101, 0, 1000),
    // A keep-alive.
    (9000, '>', ACK, 1100, 1, 0, 1000),
    (9100, '<', ACK | FIN, 1, 1101, 0, 1000),
];

#[test]
fn tshark_counts_every_event_alike() {
    if !has_tools(&["tshark"]) {
        return;
    }
    let scratch = Scratch::new();
    let file = scratch.file("made.pcap");
    let records: Vec<Record> = SEGMENTS.iter().enumerate().map(|(number, segment)| frame(number, segment)).collect();
    write(&file, &records);
    let path = Path::new(&file);
    let (ours, theirs) = (metered(path).expect("a record"), analyse(path));
    assert_eq!(differences(&ours, &theirs), Vec::<String>::new());
    let counts: Vec<_> = NAMES.iter().zip(ours.counts).collect();
    assert_eq!(ours.counts, [33, 4, 1, 1, 1, 1, 3, 2, 2, 3], "{counts:?}");
    // Only segments sent once are timed: both took 11 ms.
    let round_trips: Vec<_> = ours.round_trips.into_values().collect();
    assert_eq!(round_trips, [RoundTrips { count: 2, min: 10_742, max: 10_742, sum: 21_484 }]);
}

/// Builds an Ethernet and IPv4 frame without checksums.
fn frame(number: usize, segment: &(u64, char, u8, u32, u32, usize, u16)) -> Record {
    let (millis, from, flags, sequence, acknowledgement, payload, window) = *segment;
    let mut ends = [([10, 0, 0, 1], 40_000u16), ([10, 0, 0, 2], 7)];
    if from == '<' {
        ends.reverse();
    }
    let mut bytes = [&[2; 12][..], &[8, 0, 0x45, 0]].concat();
    bytes.extend(((40 + payload) as u16).to_be_bytes());
    bytes.extend((number as u16 + 1).to_be_bytes());
    bytes.extend([0x40, 0, 64, 6, 0, 0]);
    bytes.extend(ends.iter().flat_map(|(address, _)| *address));
    bytes.extend(ends.iter().flat_map(|(_, port)| port.to_be_bytes()));
    bytes.extend([sequence, acknowledgement].iter().flat_map(|number| number.to_be_bytes()));
    bytes.extend([0x50, flags]);
    bytes.extend([window, 0, 0].iter().flat_map(|word| word.to_be_bytes()));
    bytes.resize(bytes.len() + payload, b'x');
    Record { time: 1_000_000_000 + millis * 1_000_000, wire: bytes.len() as u32, bytes }
}
