//! Division of the work among metering threads, and flows too large to divide.

use super::output::Totals;
use super::text::{end, protocol};
use crate::view::rates::grouped;
use crate::view::table::table;
use linerate_engine::{Load, MeteringReport, imbalance};
use linerate_meter::Flow;
use serde::Serialize;

/// Work of one metering thread.
#[derive(Serialize)]
pub(super) struct WorkerJson {
    frames: u64,
    bytes: u64,
    flows: u64,
    busy_seconds: f64,
}

/// Flow with a large share of the traffic.
#[derive(Serialize)]
pub(super) struct ElephantJson {
    id: String,
    packets: u64,
    frame_bytes: u64,
    packets_share: f64,
    bytes_share: f64,
}

/// Minimum share of a named flow, in the run and in the busiest worker.
const MUCH: f64 = 0.1;
const MOST: f64 = 0.5;
/// Load of the busiest worker, relative to the mean, that causes a warning.
const UNEVEN: f64 = 1.5;

/// Large flow with its shares of all packets and bytes.
struct Elephant<'a> {
    flow: &'a Flow,
    packets: f64,
    bytes: f64,
}

pub(super) fn workers(metered: &MeteringReport) -> Vec<WorkerJson> {
    let worker = |load: &Load| {
        let Load { frames, bytes, flows, busy } = *load;
        WorkerJson { frames, bytes, flows, busy_seconds: busy.as_secs_f64() }
    };
    metered.workers.iter().map(worker).collect()
}

/// Returns the packets of the busiest worker relative to the mean.
pub(super) fn unevenness(metered: &MeteringReport) -> f64 {
    imbalance(&frames(metered))
}

pub(super) fn elephants(metered: &MeteringReport, totals: &Totals) -> Vec<ElephantJson> {
    let json = |elephant: Elephant<'_>| ElephantJson {
        id: format!("{:016x}", elephant.flow.id),
        packets: elephant.flow.packets(),
        frame_bytes: elephant.flow.frame_bytes(),
        packets_share: elephant.packets,
        bytes_share: elephant.bytes,
    };
    find(metered, totals).into_iter().map(json).collect()
}

/// Returns the table of workers; empty for one worker.
pub(super) fn text(metered: &MeteringReport, totals: &Totals) -> String {
    if metered.workers.len() < 2 {
        return String::new();
    }
    let heads = ["worker", "packets", "bytes", "flows", "share", "busy"];
    let mut rows = table(&heads, 1);
    let (all, seconds) = (metered.counts.frames.max(1) as f64, metered.elapsed.as_secs_f64().max(1e-9));
    for (index, load) in metered.workers.iter().enumerate() {
        rows.add_row([
            (index + 1).to_string(),
            grouped(load.frames),
            grouped(load.bytes),
            grouped(load.flows),
            percent(load.frames as f64 / all),
            percent(load.busy.as_secs_f64() / seconds),
        ]);
    }
    let mut text = format!("{rows}\n");
    let unevenness = unevenness(metered);
    if unevenness > UNEVEN {
        text += &format!(
            "  WARNING: one worker had {unevenness:.1} times the mean load: packets between two hosts go to the same worker\n"
        );
    }
    for Elephant { flow, packets, bytes } in find(metered, totals) {
        let [one, other] = flow.ends.map(end);
        let (packets, bytes) = (percent(packets), percent(bytes));
        text +=
            &format!("  elephant: {one} {other} {}: {packets} of packets, {bytes} of bytes\n", protocol(flow.protocol));
    }
    text
}

/// Returns the flows with a large share of packets or bytes, those with most packets first.
fn find<'a>(metered: &MeteringReport, totals: &'a Totals) -> Vec<Elephant<'a>> {
    let most = frames(metered).into_iter().max().unwrap_or(0) as f64;
    let (frames, bytes) = (metered.counts.frames.max(1) as f64, metered.counts.bytes.max(1) as f64);
    let mut found: Vec<&Flow> = Vec::new();
    // A packet in a tunnel also counts in the outer flow.
    for flow in totals.top_packets.iter().chain(&totals.top).filter(|flow| flow.tunnel.is_none() && flow.flows == 1) {
        let packets = flow.packets() as f64;
        let is_large = packets > MUCH * frames || packets > MOST * most || flow.frame_bytes() as f64 > MUCH * bytes;
        if is_large && !found.contains(&flow) {
            found.push(flow);
        }
    }
    let share = |flow: &'a Flow| Elephant {
        flow,
        packets: flow.packets() as f64 / frames,
        bytes: flow.frame_bytes() as f64 / bytes,
    };
    found.into_iter().map(share).collect()
}

fn frames(metered: &MeteringReport) -> Vec<u64> {
    metered.workers.iter().map(|load| load.frames).collect()
}

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use linerate_burst::Nanos;
    use linerate_meter::{Counts, Direction, End, EndReason, Quality, Side};
    use std::net::Ipv4Addr;

    pub(crate) fn flow(host: u8, packets: u64, frame_bytes: u64) -> Flow {
        let end = |host: u8| End { address: Ipv4Addr::new(10, 0, 0, host).into(), port: 9 };
        let side = Side { packets, frame_bytes, first: Nanos(1), last: Nanos(2), ..Side::default() };
        Flow {
            id: host.into(),
            ends: [end(host), end(0)],
            protocol: 6,
            vlans: [0; 2],
            tunnel: None,
            sides: [side, Side::default()],
            end: EndReason::Idle,
            direction: Direction::Syn,
            quality: Quality::default(),
            extensions: 0,
            flows: 1,
            macs: None,
            mpls: Default::default(),
            teids: [None; 2],
            tcp: None,
            stats: None,
            names: None,
            exporter: None,
        }
    }

    fn report(frames: &[u64]) -> MeteringReport {
        let load = |frames: &u64| Load { frames: *frames, bytes: *frames * 100, ..Load::default() };
        let all = frames.iter().sum();
        let counts = Counts { frames: all, bytes: all * 100, ..Counts::default() };
        MeteringReport { counts, workers: frames.iter().map(load).collect(), ..MeteringReport::default() }
    }

    #[test]
    fn uneven_load_and_elephants_are_reported() {
        let totals = Totals {
            top: vec![flow(3, 10, 9000), flow(1, 50, 5000)],
            top_packets: vec![flow(1, 50, 5000), flow(2, 9, 900)],
            ..Totals::default()
        };
        let shown = text(&report(&[100, 0, 0]), &totals);
        assert!(shown.contains("WARNING: one worker had 3.0 times"), "{shown}");
        assert!(shown.contains("10.0.0.1:9 10.0.0.0:9 TCP: 50.0 % of packets, 50.0 % of bytes"), "{shown}");
        assert!(shown.contains("10.0.0.3:9") && !shown.contains("10.0.0.2:9"), "by bytes, and not: {shown}");
        assert_eq!(shown.matches("10.0.0.1:9").count(), 1, "once: {shown}");
        let even = text(&report(&[500, 500]), &Totals::default());
        assert!(!even.contains("WARNING") && even.contains("50.0 %"), "{even}");
        assert_eq!(text(&report(&[500]), &totals), "");
    }

    #[test]
    fn half_of_the_busiest_worker_is_large() {
        let totals = Totals { top_packets: vec![flow(1, 70, 700), flow(2, 40, 400)], ..Totals::default() };
        let report = report(&[100; 10]);
        let found: Vec<u64> = find(&report, &totals).iter().map(|elephant| elephant.flow.id).collect();
        assert_eq!(found, [1]);
        assert_eq!(elephants(&report, &totals)[0].packets_share, 0.07);
    }
}
