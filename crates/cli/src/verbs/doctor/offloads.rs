//! What the card and the stack do to frames before a capture sees them.

use super::finding::{Check, Finding, Machine};
use super::fix::Fix;
use super::port::Port;

pub(super) const CHECKS: &[Check] = &[
    Check::port("gro", gro),
    Check::port("gro-hw", gro_hardware),
    Check::port("lro", lro),
    Check::port("segmentation", segmentation),
    Check::port("vlan-strip", vlan),
    Check::port("fcs", fcs),
    Check::port("rx-all", all),
];

const GRO: &str = "rx-gro";
const GRO_HARDWARE: &str = "rx-gro-hw";
const LRO: &str = "rx-lro";
const STRIP: &str = "rx-vlan-hw-parse";
const FCS: &str = "rx-fcs";
const ALL: &str = "rx-all";

/// Frames that come joined are counted as one, and their sizes are of no wire.
const JOINED: &str =
    "frames of a connection come joined, up to 64 KiB: counts, sizes and gaps are not those of the wire";

fn gro(_: &Machine, port: &Port) -> Option<Finding> {
    Some(match (port.has(GRO), port.is_xdp) {
        (false, _) => Finding::ok("off", "the stack joins no frames"),
        (true, true) => Finding::ok("on, behind XDP", "xdp: has frames before they are joined"),
        (true, false) => Finding::warn("on", JOINED).fix(Fix::off(GRO), Some(port)),
    })
}

fn gro_hardware(_: &Machine, port: &Port) -> Option<Finding> {
    joined_by_card(port, GRO_HARDWARE)
}

fn lro(_: &Machine, port: &Port) -> Option<Finding> {
    joined_by_card(port, LRO)
}

/// What the card joins even XDP sees joined.
fn joined_by_card(port: &Port, offload: &'static str) -> Option<Finding> {
    if port.has(offload) {
        return Some(Finding::warn("on: the card joins frames", JOINED).fix(Fix::off(offload), Some(port)));
    }
    port.can_change(offload).then(|| Finding::ok("off", "the card joins no frames"))
}

fn segmentation(_: &Machine, port: &Port) -> Option<Finding> {
    let on = port.has("tx-tcp-segmentation") || port.has("tx-generic-segmentation");
    Some(match (on, port.is_veth()) {
        (false, _) => Finding::ok("off", "what the host sends here is as long as on a wire"),
        (true, false) => Finding::ok(
            "on",
            "it is about frames that this host sends; direction=inout shows those before they are cut",
        ),
        (true, true) => {
            let name = port.interface();
            let why = "what the host sends into this end comes out at the other one uncut, up to 64 KiB";
            Finding::note("on, and no card cuts them", why)
                .mend(port.command(format_args!("ethtool -K {name} tso off gso off")))
        }
    })
}

fn vlan(_: &Machine, port: &Port) -> Option<Finding> {
    if !port.has(STRIP) {
        return port.can_change(STRIP).then(|| Finding::ok("off", "VLAN tags stay where they are"));
    }
    Some(if port.is_xdp {
        let why = "where the driver does not tell XDP what it took out, frames come without their tag";
        Finding::note("the card takes VLAN tags out", why).fix(Fix::off(STRIP), Some(port))
    } else {
        Finding::ok("the card takes VLAN tags out", "packet: puts them back where they were")
    })
}

fn fcs(_: &Machine, port: &Port) -> Option<Finding> {
    port.has(FCS).then(|| {
        let why = "each frame comes with four bytes more at its end, which are taken for its payload";
        Finding::warn("frames come with their FCS", why).fix(Fix::off(FCS), Some(port))
    })
}

fn all(_: &Machine, port: &Port) -> Option<Finding> {
    match (port.has(ALL), port.can_change(ALL)) {
        (true, _) => {
            Some(Finding::note("frames with a wrong FCS come too", "they are damaged, and nothing says which they are"))
        }
        (false, true) => {
            Some(Finding::ok("frames with a wrong FCS stay in the card", "it counts them as rx_crc_errors or alike"))
        }
        (false, false) => None,
    }
}
