//! A SYN flood fills the flow table and does not change the records of real clients.

use crate::flows::clients::Clients;
use crate::flows::live::{Hosts, check_clients, check_protocols, check_sockets, of_hosts};
use crate::flows::metered::{TCP, sums};
use crate::flows::testbed::{Flood, Meter, Stage, TARGET, Way};
use linerate_tests::support::wait_until;

/// Flood rate that leaves the machine time for the clients.
const RATE: &str = "100kpps";
/// The flood exceeds the flow table many times.
const MAX_FLOWS: &str = "16384";
const LEAST: u64 = 300_000;

#[test]
fn flood_changes_no_count_by_packet() {
    check_under_flood(Way::Packet);
}

#[test]
fn flood_changes_no_count_by_xdp() {
    check_under_flood(Way::Xdp);
}

fn check_under_flood(way: Way) {
    let Some(stage) = Stage::up(false) else { return };
    let port = stage.flood_port();
    let before = Hosts::look(&stage);
    let meter = Meter::start(&stage, way, &["-i", &port, "--max-flows", MAX_FLOWS]);
    let flood = Flood::start(&stage, RATE);
    wait_until("the table is full", || stage.flood_frames() > LEAST / 4);
    let clients = Clients::run(&stage);
    let after = Hosts::look(&stage);
    let sent = flood.end();
    let Some(metered) = meter.end() else { return };

    let flooded = sent - metered.lost_of_flood;
    assert!(flooded > LEAST, "{flooded} frames of a flood of {sent}");
    assert!(metered.number("aggregated_flows") > flooded / 2, "{:#}", metered.summary);
    assert!(metered.summary["records"]["evicted"].as_u64() > Some(flooded / 2), "{:#}", metered.summary);
    assert_eq!(metered.number("peak_flows").to_string(), MAX_FLOWS);
    let flood = metered.records.iter().filter(|record| record.resp.0 == TARGET);
    let [there, back] = sums(flood.clone());
    assert_eq!((there.packets, back.packets), (flooded, 0), "packets of the flood in its records");
    assert!(flood.clone().all(|record| (record.protocol, record.resp.1) == (TCP, 80)));
    assert_eq!(flood.map(|record| record.flows).sum::<u64>(), flooded, "flows of the flood in its records");

    for record in of_hosts(&metered) {
        let is_marked = record.quality.iter().any(|name| name == "evicted" || name == "sensor_loss");
        assert!(record.flows == 1 && !is_marked, "affected by the flood: {record:?}");
    }
    check_protocols(&metered, &before, &after);
    check_sockets(&metered, &after);
    check_clients(&metered, &clients, &before, &after);
}
