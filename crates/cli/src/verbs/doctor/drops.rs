//! Packets that an interface has dropped so far: card and ring, queueing disciplines, bridge port.

use super::finding::{Check, Finding, Machine};
use super::port::Port;
use crate::view::rates::counted;

pub(super) const CHECKS: &[Check] = &[
    Check::port("drops", drops),
    Check::port("qdisc", qdisc),
    Check::port("bridge-port", bridge_port),
    Check::port("stamps", stamps),
];

/// Maximum number of counters shown; a driver has hundreds.
const SHOWN: usize = 6;
/// Parts of the names of counters for packets that found no free descriptor or buffer.
const NO_ROOM: [&str; 8] = ["miss", "no_buf", "nobuf", "nodesc", "no_desc", "out_of_buffer", "discard", "fifo"];

fn drops(_: &Machine, port: &Port) -> Option<Finding> {
    let losses = &port.facts.losses;
    if losses.is_empty() {
        return Some(Finding::ok(
            format!("0 dropped, {} received", counted(port.facts.received, "packet")),
            "no drops in the card and its driver; for drops above them see udp, tcp, ip and firewall-drops",
        ));
    }
    let no_room = |name: &str| NO_ROOM.iter().any(|word| name.contains(word));
    let mut sorted: Vec<&(String, u64)> = losses.iter().collect();
    sorted.sort_by_key(|(name, value)| (!no_room(name), std::cmp::Reverse(*value)));
    let shown: Vec<String> = sorted.iter().take(SHOWN).map(|(name, value)| format!("{name} {value}")).collect();
    let more = losses.len().saturating_sub(SHOWN);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let now = format!("{}{more}; {} received", shown.join(", "), counted(port.facts.received, "packet"));
    let name = port.interface();
    let command = port.command(format_args!("ethtool -S {name} | grep -E 'miss|drop|err|buf|full'"));
    let is_loss = losses.iter().any(|(name, _)| no_room(name));
    Some(if is_loss {
        Finding::warn(
            now,
            "the card or its receive ring was full: use more queues, larger rings or dedicated processors",
        )
    } else {
        Finding::note(now, "rx_dropped includes packets of protocols without a receiver; errors are damaged packets")
    })
    .map(|finding| finding.remedy(command))
}

fn qdisc(_: &Machine, port: &Port) -> Option<Finding> {
    let disciplines = &port.facts.disciplines;
    let (kind, dropped) = disciplines.iter().max_by_key(|(_, dropped)| *dropped)?;
    if *dropped == 0 {
        return Some(Finding::ok(format!("{kind}: 0 packets dropped"), "no transmit queue was full"));
    }
    let why = "a transmit queue was full, or a tc rule dropped packets";
    let command = port.command(format_args!("tc -s qdisc show dev {}", port.interface()));
    Some(
        Finding::warn(format!("{kind}: {} dropped since it was attached", counted(*dropped, "packet")), why)
            .remedy(command),
    )
}

/// States of a bridge port (`BR_STATE_*`, linux/if_bridge.h).
const STATES: [&str; 5] = ["disabled", "listening", "learning", "forwarding", "blocking"];

fn bridge_port(_: &Machine, port: &Port) -> Option<Finding> {
    let state = port.file("brport/state")?;
    let name = state.parse::<usize>().ok().and_then(|state| STATES.get(state)).unwrap_or(&"in an unknown state");
    if *name == "forwarding" {
        return Some(Finding::ok("forwarding", "the bridge forwards packets of this interface"));
    }
    let why = "the bridge drops packets from this interface and sends none to it";
    let command = port.command(format_args!("bridge -d link show dev {}", port.interface()));
    Some(Finding::warn(*name, why).remedy(command))
}

fn stamps(_: &Machine, port: &Port) -> Option<Finding> {
    Some(match port.facts.stamps_by {
        Some(clock) => Finding::ok(
            format!("hardware time stamps available (clock ptp{clock})"),
            "packet:...?stamp=hardware uses them: they do not include softirq delay",
        ),
        None => Finding::ok("kernel time stamps only", "taken in the softirq, so they include its delay"),
    })
}
