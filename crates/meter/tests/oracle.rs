//! Flows of random frames, compared with a meter that keeps every packet in a list and has no table.

use crate::support::{self, Sent, metered, metered_until, sorted};
use linerate_burst::Nanos;
use linerate_meter::{Config, Direction, EndReason, Flow, Quality, Timeouts, Tunnels};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3600 * SECOND;
const START: u64 = 1_700_000_000 * SECOND;

/// Timeouts short enough to occur often.
fn config() -> Config {
    let timeouts = |idle: u64, active: u64| Timeouts { idle: Nanos(idle * SECOND), active: Nanos(active * SECOND) };
    Config {
        max_flows: 4096,
        timeouts: [timeouts(20, 60), timeouts(10, 30), timeouts(5, 5), timeouts(8, 40)],
        linger: Nanos(3 * SECOND),
        ..Config::default()
    }
}

/// Few hosts and ports, so that flows meet.
fn sent() -> impl Strategy<Value = Vec<Sent>> {
    let flags = prop_oneof![1 => prop::sample::select(vec![2u8, 2, 18, 17, 17, 4, 20, 0]), 9 => prop::sample::select(vec![16u8, 24])];
    let gap = prop_oneof![
        20 => 0u64..SECOND,
        3 => SECOND..12 * SECOND,
        1 => 12 * SECOND..70 * SECOND,
    ];
    let back = prop_oneof![3 => Just(0u64), 1 => 0..SECOND / 2];
    let one = (
        (0u8..2, 0u8..2, 1u16..2, 1u16..3),
        prop::sample::select(vec![6u8, 6, 6, 17, 17, 1, 47]),
        flags,
        (
            0usize..80,
            prop_oneof![20 => Just(64u8), 1 => Just(63)],
            prop_oneof![20 => Just(0u8), 1 => Just(3), 1 => Just(0xb8)],
        ),
        (prop_oneof![4 => Just(false), 1 => Just(true)], prop_oneof![8 => Just(0u16), 1 => 7u16..9], 0usize..3),
        (gap, back),
    );
    prop::collection::vec(one, 1..300).prop_map(|all| {
        let mut time = START;
        all.into_iter()
            .map(
                |(
                    (source, destination, port, other),
                    protocol,
                    flags,
                    (payload, ttl, tos),
                    (v6, vlan, padding),
                    (gap, back),
                )| {
                    time += gap;
                    Sent {
                        time: time - back,
                        source: (source, port),
                        destination: (destination, other),
                        protocol,
                        flags: if protocol == 6 { flags } else { 0 },
                        // An IPv6 packet of length 0 has an unspecified length.
                        payload: if protocol == 47 { payload.max(1) } else { payload },
                        ttl,
                        tos,
                        v6,
                        vlan,
                        padding,
                    }
                },
            )
            .collect()
    })
}

/// The packets of an open record, and the record that it continues.
type Open<'a> = (Vec<&'a Sent>, Option<PreviousRecord>);

/// State of the previous record: its originator and the evidence, and the TCP ends seen (FIN of each side, RST).
#[derive(Clone, Copy)]
struct PreviousRecord {
    direction: (bool, Direction),
    ends: [bool; 3],
}

/// The simplest possible meter: for each key the packets of its open record.
fn naive(sent: &[Sent], config: &Config) -> Vec<Flow> {
    let mut open: BTreeMap<_, Open<'_>> = BTreeMap::new();
    let mut flows = Vec::new();
    let class = |protocol: u8| match protocol {
        6 => 0,
        17 => 1,
        1 | 58 => 2,
        _ => 3,
    };
    let ends = |packets: &[&Sent], before: &Option<PreviousRecord>| {
        let fin = |higher| packets.iter().any(|one| one.flags & 1 != 0 && one.is_higher() == higher);
        let mut ends = [fin(false), fin(true), packets.iter().any(|one| one.flags & 4 != 0)];
        ends.iter_mut().zip(before.map_or([false; 3], |before| before.ends)).for_each(|(end, had)| *end |= had);
        ends
    };
    let has_ended = |ends: [bool; 3]| ends[2] || ends[0] && ends[1];
    for one in sent {
        let key = one.key(config.vlans);
        let timeouts = config.timeouts[class(one.protocol)];
        let mut continued = None;
        if let Some((packets, before)) = open.get(&key) {
            let last = packets.iter().map(|one| one.time).max().unwrap();
            let first = packets.iter().map(|one| one.time).min().unwrap();
            let had = ends(packets, before);
            let is_new = one.protocol == 6 && one.flags & 18 == 2;
            let patience = if has_ended(had) { config.linger.min(timeouts.idle) } else { timeouts.idle };
            let oldest = (timeouts.idle.0 + timeouts.active.0).min(16 * HOUR);
            let reason = if one.time.saturating_sub(last) > patience.0 || last.saturating_sub(one.time) > oldest {
                Some(if has_ended(had) { EndReason::End } else { EndReason::Idle })
            } else if is_new && had.contains(&true) {
                Some(EndReason::End)
            } else if one.time.saturating_sub(first) >= timeouts.active.0 {
                Some(EndReason::Active)
            } else {
                None
            };
            if let Some(reason) = reason {
                let (flow, direction) = record(packets, reason, before);
                flows.push(flow);
                continued = (reason == EndReason::Active).then_some(PreviousRecord { direction, ends: had });
                open.remove(&key);
            }
        }
        open.entry(key).or_insert((Vec::new(), continued)).0.push(one);
    }
    let now = sent.iter().map(|one| one.time).max().unwrap();
    for (packets, before) in open.values() {
        let last = packets.iter().map(|one| one.time).max().unwrap();
        let idle = config.timeouts[class(packets[0].protocol)].idle.0;
        let reason = if has_ended(ends(packets, before)) {
            EndReason::End
        } else if now - last > idle {
            EndReason::Idle
        } else {
            EndReason::Forced
        };
        flows.push(record(packets, reason, before).0);
    }
    flows
}

/// Returns the record, true if the originator is the higher end, and the evidence for it.
fn record(packets: &[&Sent], end: EndReason, before: &Option<PreviousRecord>) -> (Flow, (bool, Direction)) {
    let continued = before.is_some();
    let mut direction = before.map_or((packets[0].is_higher(), Direction::FirstPacket), |before| before.direction);
    for one in packets {
        if direction.1 == Direction::FirstPacket {
            direction = match (one.protocol, one.flags & 18) {
                (6, 2) => (one.is_higher(), Direction::Syn),
                (6, 18) => (one.is_other_higher(), Direction::SynAck),
                (1 | 58, _) => (one.is_higher(), Direction::IcmpType),
                _ => direction,
            };
        }
    }
    let of = |higher: bool| {
        let mine: Vec<&&Sent> = packets.iter().filter(|one| one.is_higher() == higher).collect();
        support::side(&mine)
    };
    let sides = [of(direction.0), of(!direction.0)];
    let flags = sides[0].tcp_flags | sides[1].tcp_flags;
    let backwards = [false, true].into_iter().any(|higher| {
        let times: Vec<u64> = packets.iter().filter(|one| one.is_higher() == higher).map(|one| one.time).collect();
        times.windows(2).enumerate().any(|(index, pair)| times[..=index].iter().max().unwrap() > &pair[1])
    });
    let mut quality = 0;
    for (is_so, bit) in [
        (backwards, Quality::OUT_OF_TIME),
        (packets[0].protocol == 6 && flags & 2 == 0 && !continued, Quality::MIDSTREAM),
        (sides.iter().any(|side| side.packets == 0), Quality::ONE_WAY),
        (continued, Quality::CONTINUED),
    ] {
        quality |= if is_so { bit.0 } else { 0 };
    }
    let flow = Flow {
        id: 0,
        ends: packets[0].ends_from(direction.0),
        protocol: packets[0].protocol_number(),
        vlans: [packets[0].vlan, 0],
        tunnel: None,
        sides,
        end,
        direction: direction.1,
        quality: Quality(quality),
        extensions: 0,
        flows: 1,
        macs: None,
        mpls: Default::default(),
        teids: [None; 2],
        tcp: None,
        stats: None,
        names: None,
        exporter: None,
    };
    (flow, direction)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_match_naive_metering(sent in sent(), vlans in any::<bool>(), bursts in prop::collection::vec(1usize..70, 1..8)) {
        let config = Config { vlans, ..config() };
        let expected = sorted(naive(&sent, &config));
        let found = sorted(metered(&sent, &config, &bursts));
        prop_assert_eq!(&found, &expected);
    }

    /// Records divided by the active timeout, joined, equal the undivided ones.
    #[test]
    fn joined_records_equal_the_full_record(sent in sent()) {
        let whole = Config { max_flows: 4096, ..Config::default() }.with_timeouts(Nanos(HOUR), Timeouts::MOST);
        let parts = whole.clone().with_timeouts(Nanos(HOUR), Nanos(20 * SECOND));
        let mut joined: Vec<Flow> = Vec::new();
        // One connection per key, as TCP never ends; a host that talks to itself has indistinguishable sides.
        let apart = |one: &Sent| one.ends()[0] != one.ends()[1];
        let sent: Vec<Sent> =
            sent.into_iter().filter(apart).map(|one| Sent { flags: one.flags & !5, ..one }).collect();
        prop_assume!(!sent.is_empty());
        for record in metered(&sent, &parts, &[32]) {
            let is_part = |flow: &&mut Flow| flow.end == EndReason::Active && flow.protocol == record.protocol && {
                flow.ends == record.ends || [flow.ends[1], flow.ends[0]] == record.ends
            };
            match joined.iter_mut().find(is_part).filter(|_| record.quality.contains(Quality::CONTINUED)) {
                Some(flow) => flow.join(&record),
                None => joined.push(record),
            }
        }
        prop_assert_eq!(sorted(joined), sorted(metered(&sent, &whole, &[32])));
    }

    /// Few enough that nothing is exported before the end: an exported record cannot include older packets.
    #[test]
    fn packets_that_are_late_by_hours_belong_to_the_expected_records(
        sent in prop::collection::vec((any::<bool>(), prop::sample::select(vec![1, 60, 600, 4000]), 0..100u64, 0..40u64), 2..200),
        (idle, active) in prop::sample::select(vec![(300, 1800), (1, 10), (1800, 300), (12 * 3600, 12 * 3600), (10, 5 * 3600)]),
    ) {
        let config = config().with_timeouts(Nanos(idle * SECOND), Nanos(active * SECOND));
        let mut time = START;
        let sent: Vec<Sent> = sent
            .into_iter()
            .map(|(is_back, step, gap, late)| {
                time += gap * step * SECOND / 100;
                // One in four is late, by up to 16 hours.
                let late = late.saturating_sub(30) * step * SECOND * 3 / 2;
                let one = Sent { payload: step as usize % 7, ..Sent::udp(time - late) };
                if is_back { one.turned() } else { one }
            })
            .collect();
        let now = sent.iter().map(|one| one.time).max().unwrap();
        prop_assert_eq!(sorted(metered_until(&sent, &config, Nanos(now))), sorted(naive(&sent, &config)));
    }

    /// With source and destination of every frame swapped, only the sides of the records are swapped.
    #[test]
    fn swapping_ends_swaps_only_the_sides(sent in sent()) {
        let config = config();
        let turned: Vec<Sent> = sent.iter().map(Sent::turned).collect();
        let swap = |flow: &Flow| {
            let mut flow = flow.clone();
            if flow.protocol != 1 && flow.protocol != 58 {
                flow.ends.swap(0, 1);
            } else {
                let [one, other] = flow.ends.map(|end| end.address);
                (flow.ends[0].address, flow.ends[1].address) = (other, one);
            }
            flow
        };
        let there = metered(&sent, &config, &[32]);
        let back = metered(&turned, &config, &[32]);
        // Swapped, the originator is the former responder, and the sides are the same.
        prop_assert_eq!(sorted(back), sorted(there.iter().map(swap).collect()));
    }

    #[test]
    fn any_bytes_are_metered_without_a_panic(
        frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..120), any::<u64>(), 0u32..200), 1..80),
        vlans in any::<bool>(),
        tunnels in prop::sample::select(vec![Tunnels::Outer, Tunnels::Inner, Tunnels::Both]),
    ) {
        let config = Config { vlans, tunnels, checksums: vlans, max_flows: 16, ..Config::default() };
        support::take_bytes(&frames, &config);
    }
}

/// A packet later than the wrap-around of coarse ages makes its record old, not young again.
#[test]
fn a_packet_that_is_very_late_does_not_hide_the_active_timeout() {
    let config = config().with_timeouts(Nanos(300 * SECOND), Nanos(1800 * SECOND));
    for late in (0..17 * 3600).step_by(50) {
        let at = |second: u64| Sent::udp(START + second * SECOND);
        let sent = [0, 1, 2].map(|second| at(20 * 3600 + second));
        let sent = [&sent[..], &[at(20 * 3600 - late)], &[3, 4].map(|second| at(20 * 3600 + second))].concat();
        let found = metered_until(&sent, &config, Nanos(START + 20 * HOUR));
        assert_eq!(sorted(found), sorted(naive(&sent, &config)), "{late} seconds late");
    }
}

#[test]
fn addresses_are_unchanged() {
    let sent = Sent { source: (2, 1), destination: (1, 2), ..Sent::udp(START) };
    let flows = metered(&[sent], &config(), &[1]);
    assert_eq!(flows[0].ends[0].address, IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)));
    assert_eq!((flows[0].ends[0].port, flows[0].ends[1].port), (1, 2));
}
