//! Packets that an interface has lost so far: at its card and ring, at its queueing disciplines, at a bridge port.

use super::finding::{Check, Finding, Machine};
use super::port::Port;
use crate::view::rates::counted;

pub(super) const CHECKS: &[Check] = &[
    Check::port("drops", drops),
    Check::port("qdisc", qdisc),
    Check::port("bridge-port", bridge_port),
    Check::port("stamps", stamps),
];

/// Counters that are shown; a driver has hundreds.
const SHOWN: usize = 6;
/// Words in the names of counters for frames that found no room.
const NO_ROOM: [&str; 8] = ["miss", "no_buf", "nobuf", "nodesc", "no_desc", "out_of_buffer", "discard", "fifo"];

fn drops(_: &Machine, port: &Port) -> Option<Finding> {
    let losses = &port.facts.losses;
    if losses.is_empty() {
        return Some(Finding::ok(
            format!("none of {} received", counted(port.facts.received, "frame")),
            "the card and its driver counted no loss; udp, tcp, ip and firewall-drops count above them",
        ));
    }
    let no_room = |name: &str| NO_ROOM.iter().any(|word| name.contains(word));
    let mut sorted: Vec<&(String, u64)> = losses.iter().collect();
    sorted.sort_by_key(|(name, value)| (!no_room(name), std::cmp::Reverse(*value)));
    let shown: Vec<String> = sorted.iter().take(SHOWN).map(|(name, value)| format!("{name} {value}")).collect();
    let more = losses.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let now = format!("{}{more}, of {} received", shown.join(", "), counted(port.facts.received, "frame"));
    let name = port.interface();
    let command = port.command(format_args!("ethtool -S {name} | grep -E 'miss|drop|err|buf|full'"));
    let is_loss = losses.iter().any(|(name, _)| no_room(name));
    Some(if is_loss {
        Finding::warn(
            now,
            "frames found no room in the card or its ring: more queues, deeper rings, processors of their own",
        )
    } else {
        Finding::note(now, "rx_dropped are also frames that nobody wanted; errors are damaged ones")
    })
    .map(|finding| finding.mend(command))
}

fn qdisc(_: &Machine, port: &Port) -> Option<Finding> {
    let disciplines = &port.facts.disciplines;
    let (kind, dropped) = disciplines.iter().max_by_key(|(_, dropped)| *dropped)?;
    if *dropped == 0 {
        return Some(Finding::ok(format!("{kind}: 0 packets dropped"), "no queue of packets to send was full"));
    }
    let why = "packets to send found their queue full, or a tc rule dropped them";
    let command = port.command(format_args!("tc -s qdisc show dev {}", port.interface()));
    Some(
        Finding::warn(format!("{kind}: {} dropped since it was set up", counted(*dropped, "packet")), why)
            .mend(command),
    )
}

/// States of a bridge port (`BR_STATE_*`, linux/if_bridge.h).
const STATES: [&str; 5] = ["disabled", "listening", "learning", "forwarding", "blocking"];

fn bridge_port(_: &Machine, port: &Port) -> Option<Finding> {
    let state = port.file("brport/state")?;
    let name = state.parse::<usize>().ok().and_then(|state| STATES.get(state)).unwrap_or(&"in an unknown state");
    if *name == "forwarding" {
        return Some(Finding::ok("forwarding", "the bridge takes packets from it"));
    }
    let why = "the bridge drops packets from this interface, and sends none to it";
    let command = port.command(format_args!("bridge -d link show dev {}", port.interface()));
    Some(Finding::warn(*name, why).mend(command))
}

fn stamps(_: &Machine, port: &Port) -> Option<Finding> {
    Some(match port.facts.stamps_by {
        Some(clock) => Finding::ok(
            format!("the card can stamp frames (clock ptp{clock})"),
            "packet:...?stamp=hardware takes these stamps: no softirq stands between them and the wire",
        ),
        None => {
            Finding::ok("by the kernel alone", "a stamp is taken when the softirq gets to a frame: late by its wait")
        }
    })
}
