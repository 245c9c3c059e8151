//! The receiver over whole frames: against the plain definitions, and on hostile bytes.

use linerate_burst::{Block, Desc, Flags, Nanos};
use linerate_generate::check::{Check, CheckSummary, Matcher, Options, StreamRow, Totals};
use linerate_generate::trailer::{Key, Trailer};
use linerate_headers::build::{Frame, Header};
use linerate_headers::{Link, MacAddr, ethernet, geneve, icmp, ipv4, ipv6, mpls, tcp, udp, vlan, vxlan};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const KEY: Key = Key(0x1234_5678_9abc_def0);
const LINKS: [Option<Link>; 1] = [Some(Link::Ethernet)];
const START: u64 = 1_700_000_000_000_000_000;

/// Local experimental EtherType (IEEE 802, clause 9.2.3), where nothing else is dissected.
fn ethernet() -> ethernet::Header {
    let (destination, source) = (MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2]));
    ethernet::Header { destination, source, ether_type: 0x88b5 }
}

fn ipv4() -> ipv4::Header {
    ipv4::Header { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into(), ..ipv4::Header::new(0) }
}

fn ipv6() -> ipv6::Header {
    ipv6::Header { source: [0xfd; 16].into(), destination: [0xfe; 16].into(), ..ipv6::Header::new(0) }
}

fn udp() -> udp::Header {
    udp::Header { source_port: 1000, destination_port: 2000 }
}

/// Returns a frame with these headers, with `padding` bytes of payload before the trailer.
fn frame(headers: &[&dyn Header], padding: usize, trailer: Trailer) -> Vec<u8> {
    let payload = [&vec![0x55; padding][..], &trailer.bytes(&KEY)].concat();
    Frame::new(headers, &payload).to_vec().unwrap()
}

fn datagram(stream: u32, sequence: u64, sent: u64) -> Vec<u8> {
    frame(&[&ethernet(), &ipv4(), &udp()], 2, Trailer { stream, sequence, time: sent })
}

/// Frames with their times.
fn block(frames: &[(u64, Vec<u8>)]) -> Block {
    let bytes: usize = frames.iter().map(|(_, frame)| frame.len() + 80).sum();
    let mut block = Block::new(bytes + 1024, frames.len() + 1);
    for (time, frame) in frames {
        assert!(block.push(&Desc::new(Nanos(*time), 0, frame.len() as u32), frame));
    }
    block
}

fn check(frames: &[(u64, Vec<u8>)]) -> Check {
    let mut check = Check::new(KEY, Options::default());
    check.take(block(frames).burst(), &LINKS);
    check
}

fn one(frame: Vec<u8>) -> Totals {
    check(&[(START, frame)]).totals()
}

/// Received, corrupted, damaged, foreign.
fn found(totals: Totals) -> [u64; 4] {
    [totals.received, totals.corrupted, totals.damaged, totals.foreign()]
}

#[test]
fn trailers_are_found_after_headers_of_all_kinds() {
    let trailer = Trailer { stream: 3, sequence: 0, time: 0 };
    let (eth, v4, v6, udp) = (ethernet(), ipv4(), ipv6(), udp());
    let tag = vlan::Header { id: 7, priority: 0, drop_eligible: false, ether_type: 0 };
    let tcp = tcp::Header { source_port: 1, destination_port: 2, ..tcp::Header::default() };
    let ping = icmp::Header { kind: 8, code: 0, rest: [0, 1, 0, 2] };
    let vxlan = vxlan::Header::new(9);
    let geneve = geneve::Header { control: false, critical: false, protocol: 0, vni: 9, options: &[] };
    let labels = &[mpls::Entry { label: 16, traffic_class: 0, ttl: 9 }][..];
    let stacks: &[&[&dyn Header]] = &[
        &[&eth, &v4, &udp],
        &[&eth, &v6, &udp],
        &[&eth, &tag, &v4, &tcp],
        &[&eth, &tag, &tag, &v6, &tcp],
        &[&eth, &v4, &ping],
        &[&eth, &labels, &v4, &udp],
        &[&eth, &v4, &v4, &udp],
        &[&eth, &v4, &v6, &udp],
        &[&eth, &v4, &udp, &vxlan, &eth, &v4, &udp],
        &[&eth, &v6, &udp, &geneve, &eth, &v6, &tcp],
        &[&eth],
    ];
    for (index, headers) in stacks.iter().enumerate() {
        let whole = frame(headers, 30, trailer);
        assert_eq!(found(one(whole.clone())), [1, 0, 0, 0], "stack {index}");
        let has_ip = headers.len() > 1;
        let padded = [&whole[..], &[0; 9]].concat();
        assert_eq!(found(one(padded))[0], u64::from(has_ip), "stack {index} with padding");
        let mut broken = whole;
        let payload = broken.len() - 20;
        broken[payload] ^= 4;
        assert_eq!(found(one(broken)), [1, u64::from(has_ip), 0, 0], "stack {index} with a wrong byte");
    }
}

/// Modifies a frame like a router: other MAC addresses, a lower hop count, an updated checksum.
fn route(frame: &mut [u8]) {
    frame[..12].copy_from_slice(&[6; 12]);
    frame[22] -= 1;
    frame[24..26].fill(0);
    let sum = linerate_headers::Sum::of(&frame[14..34]).checksum();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

#[test]
fn router_rewrites_are_ignored() {
    let sent = datagram(1, 0, START);
    let mut routed = sent.clone();
    route(&mut routed);
    assert_eq!(found(one(routed.clone())), [1, 0, 0, 0]);

    let mut check = Check::new(Key(99), Options::default());
    check.count_only(5, Matcher::new(&sent, &[(sent.len() - 16, sent.len())]));
    let mut other = routed.clone();
    other[30] ^= 1;
    let padded = [&routed[..], &[0]].concat();
    check.take(block(&[(START, routed), (START + 8, padded), (START + 9, other)]).burst(), &LINKS);
    let rows: Vec<StreamRow> = check.report(Some(&[0, 0, 0, 0, 0, 3])).rows().collect();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].stream, rows[0].mark, rows[0].counts.received, rows[0].counts.lost), (5, "count", 2, 1));
    assert_eq!(check.totals().foreign(), 1);
}

#[test]
fn unfinished_checksums_are_not_damage() {
    let mut unfinished = datagram(1, 0, START);
    unfinished[40] ^= 0x10;
    let mut desc = Desc::new(Nanos(START), 0, unfinished.len() as u32);
    for (flags, corrupted) in [(Flags::NONE, 1), (Flags::CHECKSUM_PARTIAL, 0)] {
        desc.flags = flags;
        let mut block = Block::new(1024, 2);
        assert!(block.push(&desc, &unfinished));
        let mut check = Check::new(KEY, Options::default());
        check.take(block.burst(), &LINKS);
        assert_eq!(check.totals().corrupted, corrupted, "{flags:?}");
    }
    let mut careless = Check::new(KEY, Options { verify: false, ..Options::default() });
    careless.take(block(&[(START, unfinished)]).burst(), &LINKS);
    assert_eq!(found(careless.totals()), [1, 0, 0, 0]);
}

#[test]
fn every_flipped_bit_after_the_link_header_is_detected() {
    let whole = datagram(1, 1, START);
    for bit in 14 * 8..whole.len() * 8 {
        let mut hit = whole.clone();
        hit[bit / 8] ^= 0x80 >> (bit % 8);
        let totals = check(&[(START, hit), (START, whole.clone())]).totals();
        let in_trailer = bit >= (whole.len() - 16) * 8;
        assert_eq!((totals.corrupted, totals.damaged), if in_trailer { (0, 1) } else { (1, 0) }, "bit {bit}");
        assert_eq!(totals.foreign(), 0, "bit {bit}");
    }
}

#[test]
fn foreign_frames_are_foreign() {
    let arp = [&[0xff; 12][..], &[8, 6], &[0; 46]].concat();
    let payload = [&[0x55, 0x55][..], &Trailer { stream: 1, sequence: 0, time: 0 }.bytes(&Key(4))].concat();
    let stray = Frame::new(&[&ethernet(), &ipv4(), &udp()], &payload).to_vec().unwrap();
    let mut frames: Vec<_> = (0..100).map(|sequence| (START, datagram(0, sequence, START))).collect();
    frames.extend([(START, arp), (START, stray), (START, vec![]), (START, vec![1; 14])]);
    assert_eq!(found(check(&frames).totals()), [100, 0, 0, 4]);
}

#[test]
fn single_bit_error_without_checksum_is_detected() {
    let whole = frame(&[&ethernet()], 30, Trailer { stream: 1, sequence: 5, time: 9 });
    let mut hit = whole.clone();
    hit[50] ^= 1;
    assert_eq!(found(check(&[(START, whole), (START, hit.clone())]).totals()), [1, 0, 1, 0]);
    assert_eq!(found(one(hit)), [0, 0, 0, 1], "of a stream without received frames");
}

#[test]
fn truncated_frames_are_counted_as_cut() {
    let whole = datagram(1, 0, START);
    let mut block = Block::new(1024, 2);
    let desc = Desc { wire: whole.len() as u32, ..Desc::new(Nanos(START), 0, 40) };
    assert!(block.push(&desc, &whole[..40]));
    let mut check = Check::new(KEY, Options::default());
    check.take(block.burst(), &LINKS);
    assert_eq!((check.totals().cut, check.totals().foreign()), (1, 0));
}

#[test]
fn a_hundred_thousand_streams_take_two_kibibytes_each() {
    let mut check = Check::new(KEY, Options { streams: 100_000, ..Options::default() });
    for first in (0..100_000u32).step_by(1000) {
        let frames: Vec<_> = (first..first + 1000).map(|stream| (START, datagram(stream, 0, START))).collect();
        check.take(block(&frames).burst(), &LINKS);
    }
    assert_eq!(check.streams(), 100_000);
    assert!(check.memory() <= 100_000 * 2048, "{} bytes", check.memory());
    assert_eq!(check.report(None).summary().streams, 100_000);
}

#[test]
fn stream_numbers_do_not_exhaust_memory() {
    let mut check = Check::new(KEY, Options { streams: 100, ..Options::default() });
    let frames: Vec<_> = (0..1000).map(|n| (START, datagram((1 << 24) - 1 - n * 16_000, 0, START))).collect();
    check.take(block(&frames).burst(), &LINKS);
    assert_eq!((check.streams(), check.totals().over_limit, check.totals().foreign()), (100, 900, 0));
    assert!(check.memory() < 70 << 20, "{} bytes", check.memory());
}

/// Fault of one frame of a schedule.
#[derive(Clone, Debug)]
struct Event {
    stream: u32,
    fault: u8,
    latency: u64,
    /// Number of places by which it is delayed, or after which it is repeated.
    delay: u64,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = (0u32..4, any::<u8>(), 0u64..3_000_000, 0u64..50).prop_map(|(stream, fault, latency, delay)| Event {
        stream,
        fault,
        latency,
        delay,
    });
    prop::collection::vec(event, 1..400)
}

/// A received frame: its place in the order, stream, sequence and latency.
type Received = (u64, u32, u64, u64);

fn play(events: &[Event]) -> ([u64; 4], Vec<Received>) {
    let mut sent = [0; 4];
    let mut received = Vec::new();
    for (place, event) in events.iter().enumerate() {
        let sequence = sent[event.stream as usize];
        sent[event.stream as usize] += 1;
        let one = |delay| (place as u64 + delay, event.stream, sequence, event.latency);
        match event.fault {
            0..30 => {}
            30..60 => received.extend([one(0), one(event.delay)]),
            60..90 => received.push(one(event.delay)),
            _ => received.push(one(0)),
        }
    }
    received.sort_by_key(|one| one.0);
    (sent, received)
}

/// Reference implementation, over the list of all received frames of each stream: received, lost, duplicated,
/// reordered.
fn naive(received: &[Received], sent: &[u64]) -> BTreeMap<u32, [u64; 4]> {
    let mut rows = BTreeMap::new();
    for (stream, sent) in sent.iter().enumerate().filter(|(_, sent)| **sent > 0) {
        let mut seen = BTreeSet::new();
        let (mut duplicated, mut reordered) = (0, 0);
        for (_, _, sequence, _) in received.iter().filter(|one| one.1 as usize == stream) {
            let overtaken = seen.last().is_some_and(|highest| highest > sequence);
            match seen.insert(*sequence) {
                false => duplicated += 1,
                true => reordered += u64::from(overtaken),
            }
        }
        let distinct = seen.len() as u64;
        rows.insert(stream as u32, [distinct + duplicated, sent - distinct, duplicated, reordered]);
    }
    rows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn reports_match_the_definitions(events in events(), cut in 0usize..400) {
        let (sent, received) = play(&events);
        let frames: Vec<(u64, Vec<u8>)> = received.iter().map(|(place, stream, sequence, latency)| {
            let received = START + place * 1000;
            (received, datagram(*stream, *sequence, received - latency))
        }).collect();
        let mut check = Check::new(KEY, Options::default());
        let (one, other) = frames.split_at(cut.min(frames.len()));
        check.take(block(one).burst(), &LINKS);
        check.take(block(other).burst(), &LINKS);

        let found: BTreeMap<u32, [u64; 4]> = check.report(Some(&sent)).rows().map(|row| {
            let counts = row.counts;
            (row.stream, [counts.received, counts.lost, counts.duplicated, counts.reordered])
        }).collect();
        prop_assert_eq!(&found, &naive(&received, &sent));
        let summary: CheckSummary = check.report(Some(&sent)).summary();
        prop_assert_eq!((summary.counts.received, summary.damaged, summary.foreign), (frames.len() as u64, 0, 0));
        prop_assert_eq!(summary.counts.lost, found.values().map(|row| row[1]).sum::<u64>());
        for row in check.report(None).rows() {
            let of_stream = || received.iter().filter(|one| one.1 == row.stream);
            let latencies: BTreeSet<u64> = of_stream().map(|one| one.3).collect();
            prop_assert_eq!(row.delay.latency_min_ns, latencies.first().map(|latency| *latency as i64));
            prop_assert_eq!(row.delay.latency_max_ns, latencies.last().map(|latency| *latency as i64));
            let highest = of_stream().map(|one| one.2 + 1).max().unwrap_or(0);
            let numbers: BTreeSet<u64> = of_stream().map(|one| one.2).collect();
            prop_assert_eq!(row.counts.lost, highest - numbers.len() as u64);
            prop_assert_eq!(Some(&row.counts.lost_before_first), numbers.first());
        }
    }

    /// Any bytes are handled without a panic, and each frame is counted once.
    #[test]
    fn any_bytes_are_classified(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..120), 0..40),
        likely in prop::collection::vec((0usize..120, any::<u8>(), 0usize..60), 0..60),
        link in prop::sample::select(vec![None, Some(Link::Ethernet), Some(Link::RawIp), Some(Link::Sll)]),
    ) {
        let mut frames: Vec<(u64, Vec<u8>)> = frames.into_iter().map(|frame| (START, frame)).collect();
        for (at, byte, length) in likely {
            let mut frame = datagram(1, u64::from(byte) << 32, START);
            let at = at % frame.len();
            frame[at] = byte;
            frame.truncate(frame.len() - length);
            frames.push((u64::from(byte), frame));
        }
        let mut check = Check::new(KEY, Options::default());
        check.count_only(7, Matcher::new(&frames.last().cloned().unwrap_or_default().1, &[(3, 9)]));
        check.take(block(&frames).burst(), &[link]);
        let totals = check.totals();
        prop_assert!(totals.foreign() <= totals.frames);
        check.report(None).summary();
        check.report(Some(&[1, 2, 3])).rows().for_each(drop);
    }
}
