//! Changes of the card and the stack to packets before a capture gets them.

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

/// Reason for GRO, hardware GRO and LRO.
const JOINED: &str = "packets of a connection are merged, up to 64 KiB: counts, sizes and gaps differ from the wire";

fn gro(_: &Machine, port: &Port) -> Option<Finding> {
    Some(match (port.has(GRO), port.is_xdp) {
        (false, _) => Finding::ok("off", "the stack does not merge packets"),
        (true, true) => Finding::ok("on, after XDP", "xdp: gets packets before they are merged"),
        (true, false) => Finding::warn("on", JOINED).fix(Fix::off(GRO), Some(port)),
    })
}

fn gro_hardware(_: &Machine, port: &Port) -> Option<Finding> {
    joined_by_card(port, GRO_HARDWARE)
}

fn lro(_: &Machine, port: &Port) -> Option<Finding> {
    joined_by_card(port, LRO)
}

/// Checks an offload of the card, which applies to XDP too.
fn joined_by_card(port: &Port, offload: &'static str) -> Option<Finding> {
    if port.has(offload) {
        return Some(Finding::warn("on: the card merges packets", JOINED).fix(Fix::off(offload), Some(port)));
    }
    port.can_change(offload).then(|| Finding::ok("off", "the card does not merge packets"))
}

fn segmentation(_: &Machine, port: &Port) -> Option<Finding> {
    let on = port.has("tx-tcp-segmentation") || port.has("tx-generic-segmentation");
    Some(match (on, port.is_veth()) {
        (false, _) => Finding::ok("off", "the host sends packets of wire size"),
        (true, false) => {
            Finding::ok("on", "affects only packets that this host sends: captures get them before segmentation")
        }
        (true, true) => {
            let name = port.interface();
            let why = "packets of up to 64 KiB reach the veth peer unsegmented";
            Finding::note("on, without a card", why)
                .remedy(port.command(format_args!("ethtool -K {name} tso off gso off")))
        }
    })
}

fn vlan(_: &Machine, port: &Port) -> Option<Finding> {
    if !port.has(STRIP) {
        return port.can_change(STRIP).then(|| Finding::ok("off", "VLAN tags stay in the packet"));
    }
    Some(if port.is_xdp {
        let why = "packets lack their tag if the driver does not pass it to XDP";
        Finding::note("the card strips VLAN tags", why).fix(Fix::off(STRIP), Some(port))
    } else {
        Finding::ok("the card strips VLAN tags", "packet: inserts them again")
    })
}

fn fcs(_: &Machine, port: &Port) -> Option<Finding> {
    port.has(FCS).then(|| {
        let why = "each frame has four extra bytes at its end, which count as payload";
        Finding::warn("frames include their FCS", why).fix(Fix::off(FCS), Some(port))
    })
}

fn all(_: &Machine, port: &Port) -> Option<Finding> {
    match (port.has(ALL), port.can_change(ALL)) {
        (true, _) => {
            Some(Finding::note("frames with a wrong FCS are received too", "they are damaged, and not marked as such"))
        }
        (false, true) => Some(Finding::ok(
            "frames with a wrong FCS are dropped by the card",
            "it counts them as rx_crc_errors or similar",
        )),
        (false, false) => None,
    }
}
