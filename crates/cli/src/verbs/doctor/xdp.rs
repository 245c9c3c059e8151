//! XDP: driver support, attached programs, and tc filters of the interface.

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

/// Largest MTU of drivers without multi-buffer frames: a page without the headroom and tailroom of XDP, and less where
/// receive buffers are multiples of 1 KiB (igb, vmxnet3).
const ONE_BUFFER: u32 = 3_498;
const ROUNDED_BUFFER: u32 = 3_046;

fn features(_: &Machine, port: &Port) -> Option<Finding> {
    let features = port.facts.xdp_features?;
    let has = |bit: u64| features & bit != 0;
    if !has(XDP_BASIC) {
        let now = "the driver does not support XDP";
        let why = "xdp: works only in generic mode, no faster than packet:";
        return Some(if port.is_xdp { Finding::warn(now, why) } else { Finding::ok(now, why) });
    }
    let words = [
        (XDP_ZERO_COPY, "zero copy for AF_XDP", "no zero copy for AF_XDP"),
        (XDP_BUFFERS, "multi-buffer frames", "single-buffer frames"),
        (XDP_SENDS, "sends redirected packets", "does not send redirected packets"),
    ];
    let words: Vec<&str> = words.into_iter().map(|(bit, yes, no)| if has(bit) { yes } else { no }).collect();
    let now = format!("supported by the driver; {}", words.join(", "));
    Some(if !has(XDP_SENDS) && port.is_veth() {
        Finding::note(now, "xdp-live: on this end needs GRO, or an XDP program, on the veth peer")
    } else {
        Finding::ok(now, "xdp: gets packets before the network stack")
    })
}

fn program(_: &Machine, port: &Port) -> Option<Finding> {
    let Some((id, name, in_driver)) = &port.facts.xdp_program else {
        return Some(Finding::ok("no XDP program", "no packets are diverted before the capture"));
    };
    let place = if *in_driver { "in the driver" } else { "in generic mode" };
    let called = if name.is_empty() { String::new() } else { format!(" ({name})") };
    let now = format!("program {id}{called} {place}");
    let mode = if *in_driver { "xdp" } else { "xdpgeneric" };
    let command = port.command(format_args!("ip link set {} {mode} off", port.interface()));
    // One attached by a BPF link is detached when its last holder ends, and by no command of ip.
    let advice = "stop its owner; if it has none:";
    Some(if port.is_xdp {
        let why = "xdp: cannot open: an interface has one program, and that of another owner is not replaced";
        Finding::bad(now, format!("{why}; {advice}")).remedy(command)
    } else {
        let why = "packets that it diverts or drops do not reach packet:, and are not counted here";
        Finding::warn(now, format!("{why}; {advice}")).remedy(command)
    })
}

fn mtu(_: &Machine, port: &Port) -> Option<Finding> {
    let mtu = port.facts.found.mtu;
    let takes_long = port.facts.xdp_features.is_some_and(|features| features & XDP_BUFFERS != 0);
    let name = port.interface();
    let command = || port.command(format_args!("ip link set {name} mtu {ROUNDED_BUFFER}"));
    let slower = "xdp: runs in generic mode, no faster than packet:, if its frames do not fit one buffer of the driver";
    Some(if port.is_xdp && mtu > ONE_BUFFER && !takes_long {
        Finding::warn(format!("{mtu} bytes"), slower).remedy(command())
    } else if port.is_xdp && mtu > ROUNDED_BUFFER && !takes_long {
        Finding::note(format!("{mtu} bytes"), slower).remedy(command())
    } else {
        Finding::ok(format!("{mtu} bytes"), "most cards drop longer packets and count them as errors")
    })
}

fn filters(_: &Machine, port: &Port) -> Option<Finding> {
    let kinds = port.facts.disciplines.iter().map(|(kind, _)| kind.as_str());
    let hooks: Vec<&str> = kinds.filter(|kind| ["ingress", "clsact"].contains(kind)).collect();
    Some(if hooks.is_empty() {
        Finding::ok("no tc filters", "no packets are redirected or dropped by tc")
    } else {
        let name = port.interface();
        let why = "captures get incoming packets before tc filters drop or redirect them; XDP runs before both";
        Finding::note(format!("tc filters may be attached ({})", hooks.join(", ")), why)
            .remedy(port.command(format_args!("tc filter show dev {name} ingress")))
    })
}

fn peer(_: &Machine, port: &Port) -> Option<Finding> {
    let (number, name) = port.facts.peer.as_ref().filter(|_| port.is_veth())?;
    let why = "offloads without a card: packets have wrong checksums, and long ones are not segmented";
    if name.is_empty() {
        return Some(Finding::note(format!("the peer is interface {number} of another namespace"), why));
    }
    let quoted = super::port::quoted(name);
    Some(
        Finding::note(format!("the peer is {name}"), why)
            .remedy(port.command(format_args!("ethtool -K {quoted} tx off tso off gso off"))),
    )
}
