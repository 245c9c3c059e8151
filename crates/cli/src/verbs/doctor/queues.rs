//! Queues of the card: number, ring size, and distribution of packets.

use super::finding::{Check, Finding, Machine};
use super::fix::Fix;
use super::port::Port;
use super::tree::list;
use crate::view::rates::counted;
use linerate_backends::interface::HASHES_PORTS;
use std::collections::BTreeSet;

pub(super) const CHECKS: &[Check] = &[
    Check::port("queues", queues),
    Check::port("rx-ring", rx_ring),
    Check::port("rss", table),
    Check::port("rss-symmetric", symmetric),
    Check::port("rss-fields", fields),
];

/// Packets per second of one processor with AF_PACKET, rounded, from the benchmarks of this project.
const ONE_PROCESSOR: f64 = 1e6;
/// Time in microseconds that a ring should buffer at line rate, for a late softirq.
const SHORT_US: f64 = 250.0;

fn queues(machine: &Machine, port: &Port) -> Option<Finding> {
    let channels = port.facts.channels?;
    let cores = machine.processors().len() as u32;
    let now = format!(
        "{} of {}, {}",
        channels.rx,
        counted(channels.most_rx.into(), "receive queue"),
        counted(cores.into(), "processor")
    );
    let wanted = cores.min(channels.most_rx);
    if channels.rx >= wanted && channels.rx > cores {
        return Some(Finding::note(now, "several queues share a processor: a small cost without a benefit"));
    }
    if channels.rx >= wanted {
        return Some(Finding::ok(now, "each queue can have its own processor"));
    }
    let why = format!("one queue uses one processor: about {} Mpps with packet:", ONE_PROCESSOR / 1e6);
    // On a veth pair the sending processor processes its packets: more queues gain nothing.
    let finding = if port.is_veth() { Finding::note(now, why) } else { Finding::warn(now, why) };
    let kind = if channels.combined { "combined" } else { "rx" };
    Some(finding.remedy(port.command(format_args!("ethtool -L {} {kind} {wanted}", port.interface()))))
}

fn rx_ring(_: &Machine, port: &Port) -> Option<Finding> {
    let (now, most) = port.facts.rx_ring.filter(|(now, _)| *now > 0)?;
    let lasts = port.most_frames().map(|rate| f64::from(now) / rate * 1e6);
    let state = format!("{now} of {most} descriptors per ring");
    let why = match lasts {
        Some(us) => format!("full after {us:.0} us without a softirq at line rate (64 bytes, one queue)"),
        None => "buffers packets while the softirq is late".to_owned(),
    };
    Some(if now < most && lasts.is_none_or(|us| us < SHORT_US) {
        Finding::warn(state, why).fix(Fix::RxRing(most), Some(port))
    } else if now < most {
        Finding::note(state, why).fix(Fix::RxRing(most), Some(port))
    } else {
        Finding::ok(state, why)
    })
}

fn table(_: &Machine, port: &Port) -> Option<Finding> {
    let (spread, channels) = (port.facts.spread.as_ref()?, port.facts.channels?);
    let used: BTreeSet<u32> = spread.table.iter().copied().collect();
    let idle: Vec<u32> = (0..channels.rx).filter(|queue| !used.contains(queue)).collect();
    if channels.rx < 2 {
        return None;
    }
    Some(if idle.is_empty() {
        Finding::ok(format!("{} queues in use", used.len()), "flows are spread over all queues")
    } else {
        let now = format!("queues {} get no packets by hash", list(&idle));
        Finding::warn(now, "the other queues, and their processors, get all packets")
            .remedy(port.command(format_args!("ethtool -X {} equal {}", port.interface(), channels.rx)))
    })
}

fn symmetric(_: &Machine, port: &Port) -> Option<Finding> {
    let (spread, channels) = (port.facts.spread.as_ref()?, port.facts.channels?);
    if channels.rx < 2 || spread.key.is_empty() {
        return None;
    }
    Some(if spread.is_symmetric() {
        Finding::ok("the hash is symmetric", "both directions of a connection arrive in one queue, in order")
    } else {
        let half = spread.key.len() / 2;
        let key = format!("$(printf ':6d:5a%.0s' {{1..{half}}} | cut -c2-)");
        let why = "the directions of a connection arrive in two queues, and only time stamps order them";
        Finding::note("the hash is not symmetric", why)
            .remedy(port.command(format_args!("ethtool -X {} hkey {key}", port.interface())))
    })
}

fn fields(_: &Machine, port: &Port) -> Option<Finding> {
    port.facts.channels.filter(|channels| channels.rx > 1)?;
    let hashed = &port.facts.hashed;
    let without: Vec<&str> =
        hashed.iter().filter(|(_, fields)| fields & HASHES_PORTS != HASHES_PORTS).map(|(flow, _)| *flow).collect();
    Some(match (hashed.is_empty(), without.first()) {
        (true, _) => return None,
        (false, None) => Finding::ok("addresses and ports", "connections between two hosts are spread over queues"),
        (false, Some(_)) => {
            let now = format!("ports are not hashed for {}", without.join(", "));
            let why = "all such packets between two hosts arrive in one queue (if hashed, fragments arrive in another)";
            let commands = without
                .iter()
                .map(|flow| port.command(format_args!("ethtool -N {} rx-flow-hash {flow} sdfn", port.interface())));
            commands.fold(Finding::note(now, why), Finding::remedy)
        }
    })
}
