//! The interface: driver, link, pause frames, and use by the host.

use super::finding::{Check, Finding, Machine};
use super::port::Port;

pub(super) const CHECKS: &[Check] =
    &[Check::port("driver", driver), Check::port("link", link), Check::port("pause", pause), Check::port("uses", uses)];

fn driver(_: &Machine, port: &Port) -> Option<Finding> {
    let facts = &port.facts;
    let fields = [("firmware", &facts.firmware), ("at", &facts.bus)];
    let fields = fields.iter().filter(|(_, value)| !value.is_empty() && *value != "N/A");
    let more: String = fields.map(|(name, value)| format!(", {name} {value}")).collect();
    let name = if facts.found.driver.is_empty() { "unknown driver" } else { &facts.found.driver };
    Some(Finding::ok(format!("{name}{more}"), "include these in a report to the vendor"))
}

fn link(_: &Machine, port: &Port) -> Option<Finding> {
    let (found, name) = (&port.facts.found, port.interface());
    if !found.up {
        let finding = Finding::bad("down", "no traffic in either direction");
        return Some(finding.remedy(port.command(format_args!("ip link set {name} up"))));
    }
    if !found.running {
        let why =
            if port.is_veth() { "its veth peer is down" } else { "no cable, no light, or the link partner is off" };
        return Some(Finding::bad("up, no carrier", why));
    }
    let changes = port.file("carrier_down_count").and_then(|count| count.parse::<u64>().ok()).unwrap_or_default();
    let speed = found.speed_mbps.map_or("up".to_owned(), |mbps| format!("up, {mbps} Mb/s"));
    Some(match (port.most_frames(), changes) {
        (_, 3..) => {
            Finding::note(format!("{speed}; link lost {changes} times"), "packets are dropped while the link is down")
        }
        (Some(most), _) => Finding::ok(speed, format!("up to {:.2} Mpps with 64-byte frames", most / 1e6)),
        (None, _) => Finding::ok(speed, "the driver reports no speed"),
    })
}

const STOPS: &str = "a full card stops the switch, which then drops packets that no counter here shows";

fn pause(_: &Machine, port: &Port) -> Option<Finding> {
    let [_, obeyed, sent] = port.facts.pause?;
    if !obeyed && !sent {
        return Some(Finding::ok("no pause frames", "drops happen, and are counted, on this host"));
    }
    let (now, why) = match (obeyed, sent) {
        (true, false) => ("pause frames are obeyed", "the link partner can stop this host from sending"),
        (false, _) => ("pause frames are sent", STOPS),
        (true, true) => ("pause frames are obeyed and sent", STOPS),
    };
    let name = port.interface();
    Some(Finding::note(now, why).remedy(port.command(format_args!("ethtool -A {name} autoneg off rx off tx off"))))
}

fn uses(_: &Machine, port: &Port) -> Option<Finding> {
    let uses = &port.facts.uses;
    if uses.is_empty() {
        return Some(Finding::ok("not used by the host", "a capture takes no traffic from the host"));
    }
    let now = uses.join(", ");
    Some(if port.is_xdp {
        Finding::warn(
            now,
            "xdp: diverts packets from the host, which loses this traffic; confirm with --take; packets that the host \
             sends are not captured",
        )
    } else {
        Finding::ok(
            now,
            "packet: copies packets of both directions; the host still gets them (direction=in|out for one)",
        )
    })
}
