//! Lengths, gaps and first packets, compared with values computed from a list of all packets of each record.

use crate::support::{self, Sent, metered_frames};
use linerate_burst::{Desc, Nanos};
use linerate_headers::Link;
use linerate_meter::{Config, Flow, Level, PacketBurst, PacketStats, Stats, StatsSide, SummaryStatistics, Timeouts};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::IpAddr;

const SECOND: u64 = 1_000_000_000;
const MILLISECOND: u64 = 1_000_000;
const START: u64 = 1_700_000_000 * SECOND;

/// A packet with a TCP window, TCP options and flags of IPv4.
#[derive(Clone, Debug)]
struct StatsPacket {
    sent: Sent,
    window: u16,
    options: Vec<u8>,
    ip_flags: u8,
}

impl StatsPacket {
    fn plain(sent: Sent) -> StatsPacket {
        StatsPacket { sent, window: 0, options: Vec::new(), ip_flags: 0 }
    }

    fn is_tcp(&self) -> bool {
        self.sent.protocol == 6
    }

    fn options(&self) -> &[u8] {
        if self.is_tcp() { &self.options } else { &[] }
    }

    /// The frame of `sent`, with the additional fields inserted.
    fn frame(&self) -> Vec<u8> {
        let mut frame = self.sent.frame();
        if !self.sent.v6 {
            frame[20] |= self.ip_flags << 5;
        }
        if self.is_tcp() {
            let (header, at, length) = if self.sent.v6 { (40, 18, 0) } else { (20, 16, 20) };
            let (tcp, options) = (14 + header, self.options());
            frame[tcp + 14..tcp + 16].copy_from_slice(&self.window.to_be_bytes());
            frame[tcp + 12] += (options.len() << 2) as u8;
            frame.splice(tcp + 20..tcp + 20, options.iter().copied());
            let bytes = length + 20 + options.len() + self.sent.payload;
            frame[at..at + 2].copy_from_slice(&(bytes as u16).to_be_bytes());
        }
        frame
    }

    fn packet_bytes(&self) -> u64 {
        let headers = match (self.sent.protocol, self.sent.v6) {
            (6, _) => 20 + self.options().len(),
            (17 | 1, _) => 8,
            _ => 0,
        };
        (headers + self.sent.payload + if self.sent.v6 { 40 } else { 20 }) as u64
    }

    /// Hosts, ports and protocol, the same for both directions; all ICMP here is requests, and the requester is the
    /// originator.
    fn key(&self) -> (Vec<(IpAddr, u16)>, u8) {
        key(self.sent.ends().map(|end| (end.address, end.port)), self.sent.protocol_number())
    }
}

fn key(ends: [(IpAddr, u16); 2], protocol: u8) -> (Vec<(IpAddr, u16)>, u8) {
    let mut ends = ends.to_vec();
    if !matches!(protocol, 1 | 58) {
        ends.sort();
    }
    (ends, protocol)
}

/// Each record with its packets: those of a key are split in order.
fn with_packets<'a>(flows: &'a [Flow], packets: &'a [StatsPacket]) -> Vec<(&'a Flow, Vec<&'a StatsPacket>)> {
    let mut by_key: BTreeMap<_, Vec<&StatsPacket>> = BTreeMap::new();
    packets.iter().for_each(|packet| by_key.entry(packet.key()).or_default().push(packet));
    let of_flow = |flow: &'a Flow| {
        let packets = by_key.get_mut(&key(flow.ends.map(|end| (end.address, end.port)), flow.protocol)).unwrap();
        (flow, packets.drain(..flow.packets() as usize).collect())
    };
    flows.iter().map(of_flow).collect()
}

fn is_from_originator(flow: &Flow, packet: &StatsPacket) -> bool {
    packet.sent.ends()[0].address == flow.ends[0].address
}

/// Expected statistics of a record, from its packets.
fn naive(flow: &Flow, packets: &[&StatsPacket], most: usize) -> Stats {
    let micros = |time: u64| time / 1000;
    let began = packets.iter().map(|packet| packet.sent.time).min().unwrap();
    let listed = |packet: &&&StatsPacket| packet.sent.payload > 0 || packet.sent.protocol == 1;
    let list = |packet: &&StatsPacket| PacketStats {
        time: (micros(packet.sent.time) - micros(began)) * 1000,
        from_originator: is_from_originator(flow, packet),
        payload: packet.sent.payload as u16,
        tcp_flags: packet.sent.flags,
    };
    let sides = [true, false].map(|originator| {
        let mine: Vec<&StatsPacket> =
            packets.iter().copied().filter(|packet| is_from_originator(flow, packet) == originator).collect();
        side(&mine)
    });
    Stats { sides, packets: packets.iter().filter(listed).take(most).map(list).collect() }
}

fn side(packets: &[&StatsPacket]) -> StatsSide {
    let Some(first) = packets.first() else { return StatsSide::default() };
    let times: Vec<u64> = packets.iter().map(|packet| packet.sent.time).collect();
    let gaps: Vec<u64> = (1..times.len())
        .map(|index| {
            let (least, most) = (*times[..index].iter().min().unwrap(), *times[..index].iter().max().unwrap());
            times[index].saturating_sub(most) + least.saturating_sub(times[index])
        })
        .collect();
    let content: Vec<&&StatsPacket> =
        packets.iter().filter(|packet| packet.sent.payload > 0 || packet.sent.protocol == 1).collect();
    let millis =
        |pair: &[&&StatsPacket]| (pair[1].sent.time / MILLISECOND).saturating_sub(pair[0].sent.time / MILLISECOND);
    let syn = packets.iter().find(|packet| packet.is_tcp() && packet.sent.flags & 2 != 0);
    let kinds = packets.iter().flat_map(|packet| kinds(packet.options()));
    StatsSide {
        lengths: spread(packets.iter().map(|packet| packet.packet_bytes()).collect()),
        gaps: spread(gaps),
        length_histogram: histogram(content.iter().map(|packet| packet.sent.payload as u64)),
        gap_histogram: histogram(content.windows(2).map(millis)),
        ip_flags: if first.sent.v6 { 0 } else { first.ip_flags },
        first_window: if first.is_tcp() { first.window } else { 0 },
        tcp_options: kinds.fold(0, |bits, kind| bits | 1 << kind),
        syn_bytes: syn.map_or(0, |packet| packet.packet_bytes() as u16),
    }
}

/// Kinds of well-formed options.
fn kinds(options: &[u8]) -> Vec<u8> {
    match options {
        [] => Vec::new(),
        [0, ..] => vec![0],
        [1, behind @ ..] => [&[1], &kinds(behind)[..]].concat(),
        [kind, length, ..] => [&[*kind], &kinds(&options[usize::from(*length)..])[..]].concat(),
        [_] => unreachable!("whole options"),
    }
}

fn spread(numbers: Vec<u64>) -> SummaryStatistics {
    let Some(max) = numbers.iter().copied().max() else { return SummaryStatistics::default() };
    let count = numbers.len() as f64;
    let mean = numbers.iter().sum::<u64>() as f64 / count;
    let squares: f64 = numbers.iter().map(|number| (*number as f64 - mean).powi(2)).sum();
    SummaryStatistics { min: *numbers.iter().min().unwrap(), max, mean, deviation: (squares / count).sqrt() }
}

fn histogram(numbers: impl Iterator<Item = u64>) -> [u64; 8] {
    let mut bins = [0; 8];
    for number in numbers {
        bins[[16, 32, 64, 128, 256, 512, 1024].iter().filter(|least| number >= **least).count()] += 1;
    }
    bins
}

/// Compares for equality, with a tolerance for means and deviations.
fn assert_alike(found: &Stats, expected: &Stats) {
    let rounded = |stats: &Stats| {
        let mut stats = stats.clone();
        for side in &mut stats.sides {
            for spread in [&mut side.lengths, &mut side.gaps] {
                (spread.mean, spread.deviation) = (0.0, 0.0);
            }
        }
        stats
    };
    assert_eq!(rounded(found), rounded(expected));
    for (found, expected) in found.sides.iter().zip(&expected.sides) {
        for (found, expected) in [(found.lengths, expected.lengths), (found.gaps, expected.gaps)] {
            let is_near = |one: f64, other: f64| (one - other).abs() <= 1e-6 * expected.mean + 1e-9;
            assert!(is_near(found.mean, expected.mean), "{found:?}, not {expected:?}");
            assert!(is_near(found.deviation, expected.deviation), "{found:?}, not {expected:?}");
        }
    }
}

fn config(packets: usize) -> Config {
    let timeouts = Timeouts { idle: Nanos(20 * SECOND), active: Nanos(60 * SECOND) };
    Config { max_flows: 64, level: Level::Stats, packets, timeouts: [timeouts; 4], ..Config::default() }
}

fn metered(packets: &[StatsPacket], config: &Config, bursts: &[usize]) -> Vec<Flow> {
    let frames: Vec<(Desc, Vec<u8>)> = packets
        .iter()
        .map(|packet| {
            let frame = packet.frame();
            (Desc::new(Nanos(packet.sent.time), 0, frame.len() as u32), frame)
        })
        .collect();
    metered_frames(&frames, Link::Ethernet, config, bursts).0
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    let timestamps = [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2];
    prop::sample::select(vec![
        vec![],
        timestamps.to_vec(),
        timestamps.to_vec(),
        vec![2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7],
        [&timestamps[..], &[1, 1, 5, 10, 0, 0, 0, 1, 0, 0, 0, 2]].concat(),
        vec![34, 2, 0, 0],
    ])
}

/// Few hosts, so that flows have many packets, and gaps of all bins; some records exceed a timeout.
fn packets() -> impl Strategy<Value = Vec<StatsPacket>> {
    let flags = prop_oneof![1 => prop::sample::select(vec![2u8, 18]), 9 => prop::sample::select(vec![16u8, 24])];
    let gap = prop_oneof![
        10 => 0..40 * MILLISECOND,
        10 => 0..2 * SECOND,
        1 => SECOND..30 * SECOND,
    ];
    let back = prop_oneof![6 => Just(0u64), 1 => 0..SECOND];
    let payload = prop_oneof![2 => Just(0usize), 3 => 0usize..100, 3 => 0usize..1400];
    let protocol = prop::sample::select(vec![6u8, 6, 6, 17, 1, 47]);
    let one = (any::<[bool; 2]>(), protocol, flags, payload, (gap, back), (any::<u16>(), options(), 0u8..8));
    prop::collection::vec(one, 1..250).prop_map(|all| {
        let mut time = START;
        all.into_iter()
            .map(|([turned, v6], protocol, flags, payload, (gap, back), (window, options, ip_flags))| {
                time += gap;
                let sent = Sent {
                    protocol,
                    v6,
                    flags: if protocol == 6 { flags } else { 0 },
                    // An IPv6 packet of length 0 has an unspecified length.
                    payload: if protocol == 47 { payload.max(1) } else { payload },
                    ..Sent::udp(time - back)
                };
                let sent = if turned { sent.turned() } else { sent };
                StatsPacket { sent, window, options, ip_flags: ip_flags & 0b110 }
            })
            .collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn statistics_match_a_list_of_all_packets(
        sent in packets(),
        most in prop::sample::select(vec![0usize, 1, 2, 30, 255]),
        bursts in prop::collection::vec(1usize..70, 1..8),
    ) {
        let config = config(most);
        let flows = metered(&sent, &config, &bursts);
        for (flow, packets) in with_packets(&flows, &sent) {
            assert_alike(flow.stats.as_ref().unwrap(), &naive(flow, &packets, most));
        }
    }

    /// No other field of a record depends on the level.
    #[test]
    fn counters_are_the_same_at_every_level(sent in packets()) {
        let counters = metered(&sent, &Config { level: Level::Counters, ..config(30) }, &[32]);
        let stats = metered(&sent, &config(30), &[32]);
        prop_assert!(counters.iter().all(|flow| flow.stats.is_none()));
        let without: Vec<Flow> = stats.into_iter().map(|flow| Flow { tcp: None, stats: None, ..flow }).collect();
        prop_assert_eq!(without, counters);
    }

    /// With source and destination swapped in every frame, records have the same values for originator and responder.
    #[test]
    fn swapping_ends_changes_no_statistics(sent in packets()) {
        let turned: Vec<StatsPacket> =
            sent.iter().map(|one| StatsPacket { sent: one.sent.turned(), ..one.clone() }).collect();
        let stats = |sent: &[StatsPacket]| {
            let mut stats: Vec<String> =
                metered(sent, &config(30), &[32]).iter().map(|flow| format!("{:?}", flow.stats)).collect();
            stats.sort();
            stats
        };
        prop_assert_eq!(stats(&turned), stats(&sent));
    }

    #[test]
    fn any_bytes_are_metered_without_a_panic(
        frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..120), any::<u64>(), any::<u32>()), 1..80),
        packets in prop::sample::select(vec![0usize, 3, 255]),
    ) {
        let frames: Vec<_> = frames.into_iter().map(|(bytes, time, more)| (bytes, time, more >> 1)).collect();
        support::take_bytes(&frames, &Config { max_flows: 16, ..config(packets) });
    }
}

/// A flow of `packets` packets with 100 bytes of payload, 20 ms apart.
fn steady(packets: u64) -> Vec<StatsPacket> {
    (0..packets)
        .map(|number| StatsPacket::plain(Sent { payload: 100, ..Sent::udp(START + number * 20 * MILLISECOND) }))
        .collect()
}

/// Three times more than two bytes can count.
#[test]
fn full_bins_lose_nothing() {
    let packets = 3 * 65_536 + 7;
    let endless = Config { timeouts: [Timeouts { idle: Nanos(SECOND), active: Timeouts::MOST }; 4], ..config(30) };
    let flows = metered(&steady(packets), &endless, &[64]);
    let stats = flows[0].stats.as_ref().unwrap();
    let side = &stats.sides[0];
    assert_eq!(flows.len(), 1);
    assert_eq!(side.length_histogram, [0, 0, 0, packets, 0, 0, 0, 0]);
    assert_eq!(side.gap_histogram, [0, packets - 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(side.lengths, SummaryStatistics { min: 128, max: 128, mean: 128.0, deviation: 0.0 });
    assert_eq!((side.gaps.min, side.gaps.max, side.gaps.mean), (20 * MILLISECOND, 20 * MILLISECOND, 2e7));
    assert!(side.gaps.deviation < 20.0, "{}", side.gaps.deviation);
    // A record that reuses its memory has none of its counts.
    let mut again = steady(packets);
    again.extend(steady(2).into_iter().map(|one| {
        let time = one.sent.time + 6 * 3600 * SECOND;
        StatsPacket { sent: Sent { time, source: (1, 9), ..one.sent }, ..one }
    }));
    let flows = metered(&again, &Config { max_flows: 1, ..endless }, &[64]);
    let last = flows.iter().find(|flow| flow.packets() == 2).unwrap().stats.as_ref().unwrap();
    assert_eq!(last.sides[0].length_histogram, [0, 0, 0, 2, 0, 0, 0, 0]);
    assert_eq!(last.packets.len(), 2);
}

/// A record after an active timeout has only its own packets.
#[test]
fn statistics_restart_after_the_active_timeout() {
    let flows = metered(&steady(4000), &config(30), &[32]);
    let found: Vec<_> = flows
        .iter()
        .map(|flow| {
            let stats = flow.stats.as_ref().unwrap();
            (flow.packets(), stats.sides[0].length_histogram[3], stats.packets.len(), stats.packets[0].time)
        })
        .collect();
    assert_eq!(found, [(3000, 3000, 30, 0), (1000, 1000, 30, 0)]);
}

#[test]
fn bursts_are_runs_of_listed_packets() {
    let times = [0, 1, 2, 1002, 2002, 2500, 2999, 3998, 9000, 9001, 9002].map(|time| time * MILLISECOND);
    let packet = |(index, time): (usize, u64)| {
        let sent = Sent { payload: 10 + index, ..Sent::udp(START + time) };
        StatsPacket::plain(if time == 2500 * MILLISECOND { sent.turned() } else { sent })
    };
    let sent: Vec<StatsPacket> = times.into_iter().enumerate().map(packet).collect();
    let bursts = |most: usize, from_originator: bool, least: u64| {
        let flows = metered(&sent, &config(most), &[32]);
        flows[0].stats.as_ref().unwrap().bursts(from_originator, Nanos(SECOND), least)
    };
    let burst = |packets, payload_bytes, first: u64, last: u64| PacketBurst {
        packets,
        payload_bytes,
        first: first * MILLISECOND,
        last: last * MILLISECOND,
    };
    assert_eq!(bursts(30, true, 3), [burst(3, 33, 0, 2), burst(3, 47, 2002, 3998), burst(3, 57, 9000, 9002)]);
    assert_eq!(bursts(30, true, 1)[1], burst(1, 13, 1002, 1002), "1,000 ms exceed the gap");
    assert_eq!(bursts(30, false, 1), [burst(1, 15, 2500, 2500)]);
    assert_eq!(bursts(10, true, 3).len(), 2, "the last burst is not listed whole");
    assert_eq!(bursts(0, true, 1), []);
}
