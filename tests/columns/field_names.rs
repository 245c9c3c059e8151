//! Field names of the JSON and Zeek formats; docs/flows.md lists all Zeek names (house.rs writes its other tables).

use super::round_trip::flat;
use linerate_export::encode;
use linerate_meter::{Direction, EndReason, Flow, Quality};
use linerate_tests::support::Scratch;
use linerate_tests::support::flows::{any_flow, full_flow};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs::File;
use std::path::Path;

fn lines(form: &str, flows: &[Flow]) -> Vec<Value> {
    let path = Scratch::new();
    let path = (path.file("flows"), path);
    encode(form, flows, Box::new(File::create(&path.0).unwrap())).unwrap();
    let text = std::fs::read_to_string(&path.0).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Collects every path of a document, joined by dots; paths of the two directions count once.
fn paths(prefix: &str, value: &Value, found: &mut BTreeSet<String>) {
    let Value::Object(fields) = value else {
        found.insert(prefix.to_owned());
        return;
    };
    for (name, value) in fields {
        let is_side = prefix.is_empty() && ["orig", "resp"].contains(&name.as_str());
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        paths(if is_side { "" } else { &path }, value, found);
    }
}

#[test]
fn flows_page_lists_every_zeek_name() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/flows.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut zeek = BTreeSet::new();
    paths("", &lines("zeek", &[full_flow()])[0], &mut zeek);
    let missing: Vec<&String> = zeek.iter().filter(|name| !page.contains(&format!("`{name}`"))).collect();
    assert_eq!(missing, Vec::<&String>::new(), "Zeek names missing in docs/flows.md");
}

/// Files of all levels have the same columns, so queries do not depend on the level.
#[test]
fn columns_are_json_paths() {
    let names: BTreeSet<String> = flat(&lines("jsonl", &[full_flow()])[0]).into_keys().collect();
    let columns: BTreeSet<String> =
        encode::columns::schema().fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, columns);
}

#[test]
fn zeek_format_uses_zeek_names() {
    let mut flow = full_flow();
    flow.sides[0].payload_bytes = 100;
    let tcp = flow.tcp.as_mut().unwrap();
    tcp.sides[0].retransmitted_bytes = 30;
    tcp.sides[0].gap_bytes = 7;
    let line = &lines("zeek", std::slice::from_ref(&flow))[0];
    assert_eq!(
        line,
        &json!({
            "ts": 1_700_000_000.0, "uid": "C0000000000000001", "id.orig_h": "192.0.2.1", "id.orig_p": 1,
            "id.resp_h": "192.0.2.2", "id.resp_p": 2, "proto": "tcp", "service": "quic,ssl", "orig_bytes": 77, "resp_bytes": 0,
            "conn_state": "SF", "missed_bytes": 7, "history": "ShAD", "orig_pkts": 2, "orig_ip_bytes": 0, "resp_pkts": 2,
            "resp_ip_bytes": 0, "tunnel_parents": ["C0000000000000004"], "ip_proto": 6, "community_id": flow.community_id(0), "orig_l2_addr": "ff:ff:ff:ff:ff:ff",
            "resp_l2_addr": "ff:ff:ff:ff:ff:ff", "vlan": 1, "inner_vlan": 2,
        })
    );
    flow.sides[1].last.0 += 2_000;
    assert_eq!(lines("zeek", std::slice::from_ref(&flow))[0]["duration"], 0.000_002);
    flow.tcp = None;
    let line = &lines("zeek", std::slice::from_ref(&flow))[0];
    assert_eq!(line["conn_state"], "OTH", "the TCP header was truncated");
    flow.quality = Quality::default();
    flow.tunnel = None;
    let line = &lines("zeek", std::slice::from_ref(&flow))[0];
    let absent = ["conn_state", "history", "missed_bytes", "tunnel_parents"];
    assert!(absent.iter().all(|name| line.get(name).is_none()), "{line}");
    flow.protocol = 17;
    let line = &lines("zeek", std::slice::from_ref(&flow))[0];
    assert_eq!([&line["conn_state"], &line["history"], &line["missed_bytes"]], [&json!("SF"), &json!("Dd"), &json!(0)]);
    flow.quality = Quality::PAYLOAD_UNKNOWN;
    assert_eq!(lines("zeek", &[flow])[0].get("orig_bytes"), None, "not counted by the exporter");
}

/// As in logs of Zeek's own tests: icmp6-neighbor-solicit and -toobig, and core.tcp.missing-syn.
#[test]
fn zeek_format_has_types_of_replies_and_turned_originators() {
    let mut flow = full_flow();
    flow.protocol = 58;
    for (kind, code, expected) in [(135, 0, 136), (128, 0, 129), (2, 7, 7)] {
        (flow.ends[0].port, flow.ends[1].port) = (kind, code);
        let line = &lines("zeek", std::slice::from_ref(&flow))[0];
        assert_eq!([&line["id.orig_p"], &line["id.resp_p"]], [kind, expected]);
    }
    flow.protocol = 6;
    flow.direction = Direction::SynAck;
    assert_eq!(lines("zeek", &[flow])[0]["history"], "^ShAD");
}

#[test]
fn records_of_different_flows_have_different_uids() {
    let mut flow = full_flow();
    flow.quality = Quality::default();
    flow.end = EndReason::End;
    flow.flows = 1;
    let later = |flow: &Flow| {
        let mut flow = flow.clone();
        flow.sides.iter_mut().for_each(|side| (side.first.0, side.last.0) = (side.first.0 + 9, side.last.0 + 9));
        flow
    };
    let uids = |flows: &[Flow]| lines("zeek", flows).iter().map(|line| line["uid"].clone()).collect::<Vec<_>>();
    let is_one = |one: &Flow, other: &Flow| {
        let uids = uids(&[one.clone(), other.clone(), one.clone()]);
        assert!(
            uids[0] == uids[2] && uids[0].as_str().unwrap().len() == 17,
            "the same record has the same uid: {uids:?}"
        );
        uids[0] == uids[1]
    };
    assert!(!is_one(&flow, &later(&flow)), "a reused port");
    // Parts of a long flow, and outer flows that records of tunneled flows refer to.
    let mut piece = later(&flow);
    piece.quality = Quality::CONTINUED;
    let mut before = flow.clone();
    before.end = EndReason::Active;
    assert!(is_one(&before, &piece));
    let outer = |protocol: u8, port: u16| {
        let mut outer = flow.clone();
        (outer.protocol, outer.ends[1].port) = (protocol, port);
        outer
    };
    for (protocol, port, may_be_outer) in [(47, 0, true), (17, 4789, true), (17, 53, false), (1, 0, false)] {
        let outer = outer(protocol, port);
        assert_eq!(is_one(&outer, &later(&outer)), may_be_outer, "{protocol} {port}");
    }
    // A flood record has no id.
    let mut flood = outer(17, 4789);
    (flood.id, flood.flows, flood.quality) = (0, 1000, Quality::EVICTED);
    assert!(!is_one(&flood, &later(&flood)));
    let changes: [fn(&mut Flow); 3] = [|flow| flow.ends[1].port += 1, |flow| flow.protocol = 6, |flow| flow.flows += 1];
    for change in changes {
        let mut other = flood.clone();
        change(&mut other);
        assert!(!is_one(&flood, &other));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn any_flow_has_its_counts_in_the_zeek_format(flow in any_flow()) {
        let line = &lines("zeek", std::slice::from_ref(&flow))[0];
        prop_assert_eq!(line["orig_pkts"].as_u64(), Some(flow.sides[0].packets));
        prop_assert_eq!(line["resp_ip_bytes"].as_u64(), Some(flow.sides[1].packet_bytes));
        let micros = (line["ts"].as_f64().unwrap() * 1e6).round();
        prop_assert!((micros - (flow.first().0 / 1_000) as f64).abs() <= 8.0, "{} {:?}", micros, flow.first());
    }
}
