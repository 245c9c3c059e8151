//! Ports that a flow is sent and received at, given by their names or by those of devices.

use crate::device::{self, End, Ethernet, Gateway};
use crate::headers::{Destination, HeaderText};
use crate::read::{Faults, Object};
use std::collections::BTreeSet;

/// Transmit and receive ports of a flow.
#[derive(Debug, Default)]
pub(crate) struct FlowPorts<'a> {
    pub tx: String,
    pub rx: Vec<String>,
    /// Devices that send it.
    pub from: Vec<End<'a>>,
}

/// Parses the ports of a flow.
pub(crate) fn ends<'a>(flow: &mut Object<'_>, devices: &'a [Ethernet], faults: &mut Faults) -> FlowPorts<'a> {
    let Some(mut ends) = flow.object("tx_rx", faults) else {
        faults.add(&flow.at("tx_rx"), "missing");
        return FlowPorts::default();
    };
    let choice = ends.choice(&["port", "device"], faults);
    if choice.is_empty() {
        return FlowPorts::default();
    }
    let path = ends.at(choice);
    let Some(object) = ends.object(choice, faults) else {
        faults.add(&path, "missing");
        return FlowPorts::default();
    };
    let found = if choice == "port" { of_ports(object, faults) } else { of_devices(object, devices, faults) };
    ends.finish(faults);
    found
}

fn of_ports(mut port: Object<'_>, faults: &mut Faults) -> FlowPorts<'static> {
    let tx = port.needed("tx_name", faults).to_owned();
    let mut rx: Vec<String> = port.texts("rx_names", faults).into_iter().map(str::to_owned).collect();
    // Old name, from before there could be several.
    if let Some(name) = port.text("rx_name", faults).filter(|name| rx.is_empty() && !name.is_empty()) {
        rx.push(name.to_owned());
    }
    port.finish(faults);
    FlowPorts { tx, rx, from: Vec::new() }
}

/// Derives the ports from devices. The frames between them are defined by the packet only: no pairs are made.
fn of_devices<'a>(mut object: Object<'_>, devices: &'a [Ethernet], faults: &mut Faults) -> FlowPorts<'a> {
    if let Some(other) = object.text("mode", faults).filter(|mode| !["mesh", "one_to_one"].contains(mode)) {
        faults.add(&object.at("mode"), format_args!("invalid value {other:?}; expected mesh or one_to_one"));
    }
    if object.flag("bidirectional", faults) == Some(true) {
        faults.add(&object.at("bidirectional"), "flows are unidirectional; add a flow for the other direction");
    }
    let [from, to] = ["tx_names", "rx_names"].map(|list| {
        let mut all = Vec::new();
        for node in object.list(list, faults) {
            let Some(name) = node.text(faults) else { continue };
            let found = device::called(devices, name);
            if found.is_empty() {
                faults.add(&node.path, format_args!("no such device, interface or address {name:?}"));
            }
            all.extend(found);
        }
        all
    });
    let ports = |ends: &[End<'_>]| {
        let mut ports: Vec<String> = ends.iter().map(|end| end.ethernet.port.clone()).collect();
        let mut seen = BTreeSet::new();
        ports.retain(|port| seen.insert(port.clone()));
        ports
    };
    let (tx, rx) = (ports(&from), ports(&to));
    if from.is_empty() {
        faults.add(&object.at("tx_names"), "expected at least one name");
    }
    if tx.len() > 1 {
        let what = format_args!("several ports: {}; a flow is sent at one port", tx.join(", "));
        faults.add(&object.at("tx_names"), what);
    }
    object.finish(faults);
    FlowPorts { tx: tx.into_iter().next().unwrap_or_default(), rx, from }
}

/// Returns the gateway whose MAC address is the destination, if that depends on the sending devices.
pub(crate) fn gateway(headers: &[HeaderText], from: &[End<'_>], path: &str, faults: &mut Faults) -> Option<Gateway> {
    let inner = headers.iter().enumerate().skip(1);
    for (index, _) in inner.filter(|(_, header)| header.destination == Destination::Follows) {
        faults.add(&format!("{path}[{index}].ethernet.dst"), "\"auto\" is not supported for inner headers");
    }
    let first = headers.first().filter(|header| header.destination != Destination::Given)?;
    let path = format!("{path}[0].ethernet.dst");
    if from.is_empty() {
        if first.destination == Destination::Follows {
            faults.add(&path, "\"auto\" needs a flow between devices");
        }
        return None;
    }
    let is_v4 = !headers.iter().any(|header| header.header.is_some_and(|row| row.otg == "ipv6"));
    let mut found: Vec<&Gateway> = from.iter().filter_map(|end| end.gateway(is_v4)).collect();
    if found.is_empty() {
        let family = if is_v4 { "IPv4" } else { "IPv6" };
        faults.add(&path, format_args!("\"auto\" needs a gateway, but the sending devices have no {family} address"));
    }
    let first = found.pop()?;
    if let Some(other) = found.iter().find(|other| other.hop.target() != first.hop.target()) {
        faults.add(
            &path,
            format_args!(
                "the sending devices have different gateways {other}, {first}; use a flow for each, or an address"
            ),
        );
    }
    Some(*first)
}
