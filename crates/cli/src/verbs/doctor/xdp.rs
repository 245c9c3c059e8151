//! XDP: what the driver does with it, who has a program there, and what else hangs on the interface.

use super::finding::{Check, Finding, Machine};
use super::port::Port;
use linerate_backends::interface::{XDP_BASIC, XDP_BUFFERS, XDP_SENDS, XDP_ZERO_COPY};

pub(super) const CHECKS: &[Check] = &[
    Check::port("xdp", features),
    Check::port("xdp-program", program),
    Check::port("mtu", mtu),
    Check::port("tc", filters),
    Check::port("peer", peer),
];

/// What one buffer of a page holds beside what a driver needs around it: the longest frame without several buffers.
const ONE_BUFFER: u32 = 3_498;

fn features(_: &Machine, port: &Port) -> Option<Finding> {
    let features = port.facts.xdp_features?;
    let has = |bit: u64| features & bit != 0;
    if !has(XDP_BASIC) {
        let now = "the driver runs no XDP programs";
        let why = "xdp: works in generic mode alone, behind the driver, no faster than packet:";
        return Some(if port.is_xdp { Finding::warn(now, why) } else { Finding::ok(now, why) });
    }
    let words = [
        (XDP_ZERO_COPY, "zero copy for AF_XDP", "no zero copy for AF_XDP"),
        (XDP_BUFFERS, "frames of several buffers", "frames of one buffer"),
        (XDP_SENDS, "sends what is redirected to it", "sends nothing that is redirected to it"),
    ];
    let words: Vec<&str> = words.into_iter().map(|(bit, yes, no)| if has(bit) { yes } else { no }).collect();
    let now = format!("in the driver; {}", words.join(", "));
    Some(if !has(XDP_SENDS) && port.is_veth() {
        Finding::note(now, "xdp-live: into this end needs GRO, or an XDP program, at the other one")
    } else {
        Finding::ok(now, "xdp: takes frames before the stack has made packets of them")
    })
}

fn program(_: &Machine, port: &Port) -> Option<Finding> {
    let Some((id, name, in_driver)) = &port.facts.xdp_program else {
        return Some(Finding::ok("no XDP program", "nothing takes frames away before the capture"));
    };
    let place = if *in_driver { "in the driver" } else { "in generic mode" };
    let called = if name.is_empty() { String::new() } else { format!(" ({name})") };
    let now = format!("program {id}{called} {place}");
    let mode = if *in_driver { "xdp" } else { "xdpgeneric" };
    let command = port.command(format_args!("ip link set {} {mode} off", port.interface()));
    // One that hangs on a link of BPF goes with the last who holds that, and by no command of ip.
    let advice = "end its owner; if it has none:";
    Some(if port.is_xdp {
        let why = "an interface has one program, and somebody else's is never replaced: xdp: does not open";
        Finding::bad(now, format!("{why}; {advice}")).mend(command)
    } else {
        let why = "frames that it takes or drops never come to packet:, and nothing here counts them";
        Finding::warn(now, format!("{why}; {advice}")).mend(command)
    })
}

fn mtu(_: &Machine, port: &Port) -> Option<Finding> {
    let mtu = port.facts.found.mtu;
    let takes_long = port.facts.xdp_features.is_some_and(|features| features & XDP_BUFFERS != 0);
    let name = port.interface();
    Some(if port.is_xdp && mtu > ONE_BUFFER && !takes_long {
        let why = format!("XDP frames of this driver lie in one buffer of {ONE_BUFFER} bytes: it refuses the program");
        Finding::bad(format!("{mtu} bytes"), why)
            .mend(port.command(format_args!("ip link set {name} mtu {ONE_BUFFER}")))
    } else {
        Finding::ok(format!("{mtu} bytes"), "longer frames are dropped by most cards, and counted as errors")
    })
}

fn filters(_: &Machine, port: &Port) -> Option<Finding> {
    let kinds = port.facts.disciplines.iter().map(|(kind, _)| kind.as_str());
    let hooks: Vec<&str> = kinds.filter(|kind| ["ingress", "clsact"].contains(kind)).collect();
    Some(if hooks.is_empty() {
        Finding::ok("no tc filters", "nothing redirects frames behind the capture")
    } else {
        let name = port.interface();
        let why = "what they drop or redirect on the way in a capture has seen before; XDP stands before both";
        Finding::note(format!("tc filters may hang on it ({})", hooks.join(", ")), why)
            .mend(port.command(format_args!("tc filter show dev {name} ingress")))
    })
}

fn peer(_: &Machine, port: &Port) -> Option<Finding> {
    let (number, name) = port.facts.peer.as_ref().filter(|_| port.is_veth())?;
    let why = "checksums of its senders are left to a card that is not there, and come wrong; long packets come uncut";
    if name.is_empty() {
        return Some(Finding::note(
            format!("the other end is number {number} of another namespace"),
            format!("there too: {why}"),
        ));
    }
    let quoted = super::port::quoted(name);
    Some(
        Finding::note(format!("the other end is {name}"), why)
            .mend(port.command(format_args!("ethtool -K {quoted} tx off tso off gso off"))),
    )
}
