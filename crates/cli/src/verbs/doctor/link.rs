//! The interface itself: whose driver, whether there is a link, how long its packets are, who else uses it.

use super::finding::{Check, Finding, Machine};
use super::port::Port;

pub(super) const CHECKS: &[Check] =
    &[Check::port("driver", driver), Check::port("link", link), Check::port("pause", pause), Check::port("uses", uses)];

fn driver(_: &Machine, port: &Port) -> Option<Finding> {
    let facts = &port.facts;
    let said = [("firmware", &facts.firmware), ("at", &facts.bus)];
    let said = said.iter().filter(|(_, value)| !value.is_empty() && *value != "N/A");
    let more: String = said.map(|(name, value)| format!(", {name} {value}")).collect();
    let name = if facts.found.driver.is_empty() { "no driver's name" } else { &facts.found.driver };
    Some(Finding::ok(format!("{name}{more}"), "what is to be said when its makers are asked"))
}

fn link(_: &Machine, port: &Port) -> Option<Finding> {
    let (found, name) = (&port.facts.found, port.interface());
    if !found.up {
        let finding = Finding::bad("down", "nothing comes and nothing goes");
        return Some(finding.mend(port.command(format_args!("ip link set {name} up"))));
    }
    if !found.running {
        let why = if port.is_veth() { "its other end is down" } else { "no cable, no light, or the other side is off" };
        return Some(Finding::bad("up, without a carrier", why));
    }
    let changes = port.file("carrier_down_count").and_then(|count| count.parse::<u64>().ok()).unwrap_or_default();
    let speed = found.speed_mbps.map_or("up".to_owned(), |mbps| format!("up, {mbps} Mb/s"));
    Some(match (port.most_frames(), changes) {
        (_, 3..) => {
            Finding::note(format!("{speed}; it was lost {changes} times"), "frames are lost while there is none")
        }
        (Some(most), _) => Finding::ok(speed, format!("frames of 64 bytes come at up to {:.2} M a second", most / 1e6)),
        (None, _) => Finding::ok(speed, "its driver knows no speed"),
    })
}

const STOPS: &str = "a card that is full stops the switch, which loses frames where nobody here counts them";

fn pause(_: &Machine, port: &Port) -> Option<Finding> {
    let [_, obeyed, sent] = port.facts.pause?;
    if !obeyed && !sent {
        return Some(Finding::ok("no pause frames", "what is lost is lost here, and counted here"));
    }
    let (now, why) = match (obeyed, sent) {
        (true, false) => ("pause frames are obeyed", "whoever is at the other end can hold up what this host sends"),
        (false, _) => ("pause frames are sent", STOPS),
        (true, true) => ("pause frames are obeyed and sent", STOPS),
    };
    let name = port.interface();
    Some(Finding::note(now, why).mend(port.command(format_args!("ethtool -A {name} autoneg off rx off tx off"))))
}

fn uses(_: &Machine, port: &Port) -> Option<Finding> {
    let uses = &port.facts.uses;
    if uses.is_empty() {
        return Some(Finding::ok("the host has no use for it", "all that comes is for the capture"));
    }
    let now = uses.join(", ");
    Some(if port.is_xdp {
        Finding::warn(
            now,
            "xdp: takes frames away from the host, which would be cut off: it has to be meant (--take); it does not see \
             packets that the host sends",
        )
    } else {
        Finding::ok(
            now,
            "packet: takes nothing away from the host, and sees both directions (direction=in|out for one)",
        )
    })
}
