//! Groups and their sums compared with a plain loop, and the limit on the number of groups.

use super::samples::{flows, store};
use linerate_burst::Nanos;
use linerate_meter::{Flow, Side};
use linerate_query::columns::Batch;
use linerate_query::{Answer, Filter, Key, Measure, PartialAnswer, Question, Value};
use linerate_tests::support::Scratch;
use linerate_tests::support::flows::full_flow;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Keys as text; key values of a flow by side; the sides that count.
type Keys = (&'static str, fn(&Flow, usize) -> Vec<Value>, Sides);

#[derive(Clone, Copy, PartialEq)]
enum Sides {
    Originator,
    Both,
    /// The one whose values are first in order.
    First,
}

fn end(flow: &Flow, side: usize) -> [Value; 2] {
    [Value::Address(flow.ends[side].address), Value::Number(flow.ends[side].port.into())]
}

fn cut(address: IpAddr, narrow: u32, wide: u32) -> Value {
    Value::Address(match address {
        IpAddr::V4(address) => IpAddr::V4((address.to_bits() & u32::MAX << (32 - narrow)).into()),
        IpAddr::V6(address) => IpAddr::V6((address.to_bits() & u128::MAX << (128 - wide)).into()),
    })
}

const KEYS: [Keys; 11] = [
    ("protocol", |flow, _| vec![Value::Number(flow.protocol.into())], Sides::Originator),
    ("orig_address", |flow, _| vec![Value::Address(flow.ends[0].address)], Sides::Originator),
    ("address", |flow, side| vec![Value::Address(flow.ends[side].address)], Sides::Both),
    ("resp_address/24", |flow, _| vec![cut(flow.ends[1].address, 24, 48)], Sides::Originator),
    (
        "address/16/32,port",
        |flow, side| vec![cut(flow.ends[side].address, 16, 32), Value::Number(flow.ends[side].port.into())],
        Sides::Both,
    ),
    (
        "vlan,end_reason",
        |flow, _| {
            let vlan = Some(flow.vlans[0]).filter(|vlan| *vlan != 0);
            vec![vlan.map_or(Value::None, |vlan| Value::Number(vlan.into())), Value::Text(flow.end.name().into())]
        },
        Sides::Originator,
    ),
    (
        "tcp_state",
        |flow, _| vec![flow.tcp.as_ref().map_or(Value::None, |tcp| Value::Text(tcp.state.name().into()))],
        Sides::Originator,
    ),
    (
        "quality_midstream,dstport",
        |flow, _| {
            let midstream = flow.quality.contains(linerate_meter::Quality::MIDSTREAM);
            vec![Value::Flag(midstream), Value::Number(flow.ends[1].port.into())]
        },
        Sides::Originator,
    ),
    ("first_time", |flow, _| vec![Value::Time(flow.first().0)], Sides::Originator),
    (
        "address,address",
        |flow, side| [side, 1 - side].map(|side| Value::Address(flow.ends[side].address)).to_vec(),
        Sides::First,
    ),
    (
        "address,port,address,port,protocol",
        |flow, side| {
            let ends = end(flow, side).into_iter().chain(end(flow, 1 - side));
            ends.chain([Value::Number(flow.protocol.into())]).collect()
        },
        Sides::First,
    ),
];

const MEASURES: &str = "records,flows,packets,bytes,payload_bytes,src_packets,dst_packets,duration";

/// Sums per group: records, flows, packets, bytes, payload bytes, packets of its end and of the other one, first and last time.
/// Unit n of a sum is at n / sum of the time of its record.
fn plain(flows: &[Flow], (_, key, sides): Keys, every: u64) -> BTreeMap<(u64, Vec<Value>), [u64; 9]> {
    let mut groups: BTreeMap<(u64, Vec<Value>), [u64; 9]> = BTreeMap::new();
    for flow in flows {
        let (first, last) = (flow.first().0, flow.last().0.max(flow.first().0));
        let own = (0, key(flow, 0));
        let other = (1, key(flow, 1));
        let is_within = sides != Sides::Originator && own.1 == other.1;
        let keys = match sides {
            Sides::Both if own.1 != other.1 => vec![own, other],
            Sides::First if own.1 > other.1 => vec![other],
            _ => vec![own],
        };
        let steps =
            first.checked_div(every).unwrap_or(0)..=last.saturating_sub(1).max(first).checked_div(every).unwrap_or(0);
        for ((side, key), step) in keys.iter().flat_map(|key| steps.clone().map(move |step| (key, step))) {
            let (start, end) = if every == 0 { (0, u64::MAX) } else { (step * every, (step + 1) * every) };
            let before = |sum: u64, time: u64| match time {
                _ if time <= first => 0,
                _ if time >= last => sum,
                _ => (u128::from(sum) * u128::from(time - first)).div_ceil(u128::from(last - first)) as u64,
            };
            let sums = groups.entry((step * every, key.clone())).or_insert([0, 0, 0, 0, 0, 0, 0, u64::MAX, 0]);
            let payload = flow.sides[0].payload_bytes.saturating_add(flow.sides[1].payload_bytes);
            let ends = [*side, 1 - side].map(|side| flow.sides[side].packets);
            let own = [1, flow.flows, flow.packets(), flow.frame_bytes(), payload, ends[0], ends[1]];
            let mut shares = if every == 0 { own } else { own.map(|sum| before(sum, end) - before(sum, start)) };
            if is_within {
                (shares[5], shares[6]) = (shares[5].saturating_add(shares[6]), shares[5].saturating_add(shares[6]));
            }
            sums.iter_mut().zip(shares).for_each(|(sum, one)| *sum = sum.saturating_add(one));
            let last = if every == 0 { flow.last().0 } else { last.min(end) };
            (sums[7], sums[8]) = (sums[7].min(first.max(start)), sums[8].max(last));
        }
    }
    groups
}

/// A record as seen by a query: its times and sums.
fn record(first: u64, last: u64, packets: u64, bytes: u64) -> Flow {
    let mut flow = full_flow();
    flow.sides[1] = Side::default();
    (flow.sides[0].first, flow.sides[0].last) = (Nanos(first), Nanos(last));
    (flow.sides[0].packets, flow.sides[0].frame_bytes, flow.flows) = (packets, bytes, 1);
    flow
}

/// Traffic of each step, not of the flows that begin in it, and rates over the step.
#[test]
fn records_are_spread_evenly_over_their_time_steps() {
    const S: u64 = 1_000_000_000;
    let mut question = Question { every: 10 * S, ..Question::new(Filter::every()) };
    question.measure(Some("records,flows,packets,bytes,bps,pps,duration"), None).unwrap();
    let question = Arc::new(question);
    let flows = [record(5 * S, 35 * S, 6, 3000), record(10 * S, 10 * S, 1, 60), record(30 * S, 40 * S, 2, 200)];
    let mut asked = PartialAnswer::new(&question, 1);
    asked.take(&Batch::of_flows(&flows, asked.columns()));
    let answer = asked.answer();
    let rows: Vec<(u64, Vec<f64>)> = answer
        .rows
        .iter()
        .map(|row| (row.time.unwrap() / S, question.measures.iter().map(|one| answer.value(row, one)).collect()))
        .collect();
    let s = S as f64;
    assert_eq!(
        rows,
        [
            (0, vec![1.0, 1.0, 1.0, 500.0, 400.0, 0.1, 5.0 * s]),
            (10, vec![1.0, 1.0, 3.0, 1060.0, 848.0, 0.3, 10.0 * s]),
            (20, vec![0.0, 0.0, 2.0, 1000.0, 800.0, 0.2, 10.0 * s]),
            (30, vec![1.0, 1.0, 3.0, 700.0, 560.0, 0.3, 10.0 * s]),
        ]
    );
}

/// A record of 584 years in steps of 1 ns: bounded work, and the right sum.
#[test]
fn a_record_has_a_bounded_number_of_shares() {
    let mut question = Question { every: 1, ..Question::new(Filter::every()) };
    question.measure(Some("bytes"), None).unwrap();
    let question = Arc::new(question);
    let mut asked = PartialAnswer::new(&question, 1);
    asked.take(&Batch::of_flows(&[record(1, u64::MAX, 7, u64::MAX)], asked.columns()));
    let answer = asked.answer();
    let bytes = &question.measures[0];
    let sum: u64 = answer.rows.iter().map(|row| answer.whole(row, bytes).unwrap()).sum();
    assert_eq!((answer.rows.len(), sum), (1 << 17, u64::MAX));
}

fn rows_of(answer: &Answer, question: &Question) -> BTreeMap<(u64, Vec<Value>), Vec<u64>> {
    let row = |row: &linerate_query::Row| {
        let values = question.measures.iter().map(|measure| answer.whole(row, measure).unwrap()).collect();
        ((row.time.unwrap_or(0), row.keys.clone()), values)
    };
    answer.rows.iter().map(row).collect()
}

fn question(keys: &str, every: u64, top: usize) -> Arc<Question> {
    let mut question = Question { keys: Key::parse(keys).unwrap(), every, top, ..Question::new(Filter::every()) };
    question.measure(Some(MEASURES), Some("bytes")).unwrap();
    Arc::new(question)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn groups_have_the_sums_of_their_records(
        flows in flows(), keys in 0..KEYS.len(), every in prop::sample::select(vec![0u64, 3_600_000_000_000, 7_000_000]),
        threads in 1..4usize, group in 1..25usize,
    ) {
        // Time steps replace this key.
        let keys = if every > 0 && KEYS[keys].0 == "first_time" { KEYS[0] } else { KEYS[keys] };
        let mut flows = flows;
        for flow in flows.iter_mut().filter(|_| every > 0) {
            let first = flow.first().0.min(u64::MAX / 2);
            for side in flow.sides.iter_mut().filter(|side| side.packets > 0) {
                let span = side.last.0 % (20 * every);
                (side.first, side.last) = (Nanos(first), Nanos(first + span));
            }
        }
        let question = question(keys.0, every, 10_000);
        let wanted: BTreeMap<(u64, Vec<Value>), Vec<u64>> = plain(&flows, keys, every)
            .into_iter()
            .map(|(key, sums)| (key, [&sums[..7], &[sums[8].saturating_sub(sums[7])]].concat()))
            .collect();
        // In batches, as records arrive.
        let mut asked = PartialAnswer::new(&question, 1);
        let columns = asked.columns().to_vec();
        flows.chunks(group).for_each(|some| asked.take(&Batch::of_flows(some, &columns)));
        let answer = asked.answer();
        prop_assert_eq!(&rows_of(&answer, &question), &wanted);
        prop_assert_eq!((answer.records, answer.others.is_none(), answer.evicted_groups), (flows.len() as u64, true, 0));
        // From a file, with several threads.
        let scratch = Scratch::new();
        let (asked, scan) = store(&scratch, &flows, group).ask(&question, None, threads, &|| true);
        prop_assert_eq!(scan.failures, Vec::<String>::new());
        let stored = asked.answer();
        prop_assert_eq!(&rows_of(&stored, &question), &wanted);
        for measure in &question.measures {
            prop_assert_eq!(stored.whole(&stored.totals, measure), answer.whole(&answer.totals, measure));
        }
    }

    /// The largest groups, and one row for the rest.
    #[test]
    fn top_groups_are_sorted_and_others_hold_the_rest(flows in flows(), top in 1..6usize) {
        let question = question("orig_address,dstport", 0, top);
        let mut asked = PartialAnswer::new(&question, 1);
        asked.take(&Batch::of_flows(&flows, asked.columns()));
        let answer = asked.answer();
        let keys: Keys = ("", |flow, _| vec![Value::Address(flow.ends[0].address), Value::Number(flow.ends[1].port.into())], Sides::Originator);
        let mut sizes: Vec<u64> = plain(&flows, keys, 0).into_values().map(|sums| sums[3]).collect();
        sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
        let bytes = Measure::one("bytes").unwrap();
        let of = |row: &linerate_query::Row| answer.whole(row, &bytes).unwrap();
        let shown: Vec<u64> = answer.rows.iter().map(of).collect();
        // Sizes are compared as floats, where some are equal.
        let real = |sizes: &[u64]| sizes.iter().map(|size| *size as f64).collect::<Vec<_>>();
        prop_assert_eq!(real(&shown), real(&sizes[..top.min(sizes.len())]));
        prop_assert_eq!(answer.groups, sizes.len() as u64);
        prop_assert_eq!(answer.others.is_some(), sizes.len() > top);
        let rest = answer.others.as_ref().map_or(0, of);
        let all = shown.iter().fold(rest, |sum, one| sum.saturating_add(*one));
        prop_assert_eq!(all, of(&answer.totals));
    }

    /// Complete records, largest first.
    #[test]
    fn largest_records_are_listed_in_order(flows in flows(), top in 1..9usize, threads in 1..4usize, group in 1..25usize) {
        let question = Arc::new(Question { top, ..Question::new(Filter::every()) });
        let scratch = Scratch::new();
        let store = store(&scratch, &flows, group);
        let bytes = Measure::one("packets").unwrap();
        let (asked, scan) = store.ask(&question, Some(Some(&bytes)), threads, &|| true);
        prop_assert_eq!(scan.failures, Vec::<String>::new());
        let found = store.records(asked).unwrap();
        let mut wanted = flows.clone();
        wanted.sort_by(|one, other| {
            let packets = |flow: &Flow| flow.packets() as f64;
            packets(other).total_cmp(&packets(one)).then(one.first().cmp(&other.first()))
        });
        wanted.truncate(top);
        let rank = |flows: &[Flow]| flows.iter().map(|flow| (flow.packets(), flow.first())).collect::<Vec<_>>();
        prop_assert_eq!(rank(&found), rank(&wanted));
        prop_assert!(found.iter().all(|flow| flows.contains(flow)));
        // Without a sort key: the first records by time.
        let (asked, _) = store.ask(&question, Some(None), threads, &|| true);
        let times: Vec<Nanos> = store.records(asked).unwrap().iter().map(Flow::first).collect();
        let mut all: Vec<Nanos> = flows.iter().map(Flow::first).collect();
        all.sort_unstable();
        prop_assert_eq!(times, all[..top.min(all.len())].to_vec());
    }
}

/// Heavy hitters are reported whatever else arrives, and no record is missing from the sums.
#[test]
fn too_many_groups_do_not_displace_the_largest() {
    const ROOM: usize = 500;
    let mut question = Question {
        keys: Key::parse("orig_address").unwrap(),
        most_groups: ROOM,
        top: 5,
        ..Question::new(Filter::every())
    };
    question.measure(Some("records,bytes"), Some("bytes")).unwrap();
    let question = Arc::new(question);
    let flow = |number: u32, bytes: u64| {
        let mut flow = full_flow();
        flow.ends[0].address = IpAddr::from(number.to_be_bytes());
        (flow.sides[0].frame_bytes, flow.sides[1].frame_bytes) = (bytes, 0);
        flow
    };
    let (mut asked, mut other) = (PartialAnswer::new(&question, 1), PartialAnswer::new(&question, 1));
    let columns = asked.columns().to_vec();
    let (mut records, mut bytes) = (0, 0);
    for round in 0..200u32 {
        let light = (0..200).map(|number| flow(0x0a00_0000 | round << 8 | number, 100));
        let heavy = (0..5).map(|number| flow(number, 1000 + u64::from(number)));
        let some: Vec<Flow> = light.chain(heavy).collect();
        records += some.len() as u64;
        bytes += some.iter().map(Flow::frame_bytes).sum::<u64>();
        let part = if round % 2 == 0 { &mut asked } else { &mut other };
        part.take(&Batch::of_flows(&some, &columns));
    }
    asked.join(other);
    let answer = asked.answer();
    let of = |row: &linerate_query::Row, name: &str| answer.whole(row, &Measure::one(name).unwrap()).unwrap();
    let heaviest: Vec<(Vec<Value>, u64)> = answer.rows.iter().map(|row| (row.keys.clone(), of(row, "bytes"))).collect();
    let wanted: Vec<(Vec<Value>, u64)> = (0..5u32)
        .rev()
        .map(|number| (vec![Value::Address(IpAddr::from(number.to_be_bytes()))], 200 * (1000 + u64::from(number))))
        .collect();
    assert_eq!(heaviest, wanted);
    assert!(
        answer.evicted_groups > 30_000 && answer.groups <= ROOM as u64 + 205,
        "{} {}",
        answer.evicted_groups,
        answer.groups
    );
    let others = answer.others.as_ref().unwrap();
    for (name, all) in [("records", records), ("bytes", bytes)] {
        assert_eq!(answer.rows.iter().chain([others]).map(|row| of(row, name)).sum::<u64>(), all, "{name}");
        assert_eq!(of(&answer.totals, name), all);
    }
}

#[test]
fn invalid_keys_and_measures_are_reported() {
    for (text, expected) in [
        ("adress", "adress: no such field (did you mean address?)"),
        ("sni", "sni: no such field (did you mean tls_server_name?)"),
        ("port/24", "not an address field"),
        ("address/129", "0 to 128 bits"),
        ("address/40/40", "32 bits"),
        ("stats_packet_times_ns", "cannot group by a list"),
        ("port,port,port", "duplicate key"),
        ("protocol,protocol", "duplicate key"),
    ] {
        let error = Key::parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
    for (text, expected) in
        [("byte", "did you mean bytes?"), ("protocol", "cannot be summed"), ("first_time", "cannot be summed")]
    {
        let error = Measure::parse(text).unwrap_err();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
