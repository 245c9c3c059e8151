//! Between which ports a flow goes, said by their names or by those of devices.

use crate::device::{self, End, Ethernet, Gateway};
use crate::headers::{Destination, Written};
use crate::read::{Faults, Object};
use std::collections::BTreeSet;

/// Where a flow is sent, and where it should come to.
#[derive(Debug, Default)]
pub(crate) struct Ends<'a> {
    pub tx: String,
    pub rx: Vec<String>,
    /// The devices that send it.
    pub from: Vec<End<'a>>,
}

/// Reads them.
pub(crate) fn ends<'a>(flow: &mut Object<'_>, devices: &'a [Ethernet], faults: &mut Faults) -> Ends<'a> {
    let Some(mut ends) = flow.object("tx_rx", faults) else {
        faults.add(&flow.at("tx_rx"), "it is missing");
        return Ends::default();
    };
    let choice = ends.choice(&["port", "device"], faults);
    if choice.is_empty() {
        return Ends::default();
    }
    let path = ends.at(choice);
    let Some(object) = ends.object(choice, faults) else {
        faults.add(&path, "it is missing");
        return Ends::default();
    };
    let found = if choice == "port" { of_ports(object, faults) } else { of_devices(object, devices, faults) };
    ends.finish(faults);
    found
}

fn of_ports(mut port: Object<'_>, faults: &mut Faults) -> Ends<'static> {
    let tx = port.needed("tx_name", faults).to_owned();
    let mut rx: Vec<String> = port.texts("rx_names", faults).into_iter().map(str::to_owned).collect();
    // Its name before there could be several.
    if let Some(name) = port.text("rx_name", faults).filter(|name| rx.is_empty() && !name.is_empty()) {
        rx.push(name.to_owned());
    }
    port.finish(faults);
    Ends { tx, rx, from: Vec::new() }
}

/// Which frames there are between them is what the packet says: pairs are not made of them.
fn of_devices<'a>(mut object: Object<'_>, devices: &'a [Ethernet], faults: &mut Faults) -> Ends<'a> {
    if let Some(other) = object.text("mode", faults).filter(|mode| !["mesh", "one_to_one"].contains(mode)) {
        faults.add(&object.at("mode"), format_args!("{other:?}: mesh or one_to_one"));
    }
    if object.flag("bidirectional", faults) == Some(true) {
        faults.add(&object.at("bidirectional"), "a flow goes one way: write one for the other");
    }
    let [from, to] = ["tx_names", "rx_names"].map(|list| {
        let mut all = Vec::new();
        for node in object.list(list, faults) {
            let Some(name) = node.text(faults) else { continue };
            let found = device::called(devices, name);
            if found.is_empty() {
                faults.add(&node.path, format_args!("no device, interface or address is called {name:?}"));
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
        faults.add(&object.at("tx_names"), "one at least");
    }
    if tx.len() > 1 {
        let what = format_args!("they are at {}: a flow is sent at one port", tx.join(", "));
        faults.add(&object.at("tx_names"), what);
    }
    object.finish(faults);
    Ends { tx: tx.into_iter().next().unwrap_or_default(), rx, from }
}

/// The gateway whose MAC address is the destination, where that follows from who sends.
pub(crate) fn gateway(headers: &[Written], from: &[End<'_>], path: &str, faults: &mut Faults) -> Option<Gateway> {
    let inner = headers.iter().enumerate().skip(1);
    for (index, _) in inner.filter(|(_, header)| header.destination == Destination::Follows) {
        faults.add(&format!("{path}[{index}].ethernet.dst"), "nothing here says what it should be");
    }
    let first = headers.first().filter(|header| header.destination != Destination::Given)?;
    let path = format!("{path}[0].ethernet.dst");
    if from.is_empty() {
        if first.destination == Destination::Follows {
            faults.add(&path, "nothing here says what it should be: \"auto\" is for flows of devices");
        }
        return None;
    }
    let is_v4 = !headers.iter().any(|header| header.header.is_some_and(|row| row.otg == "ipv6"));
    let mut found: Vec<&Gateway> = from.iter().filter_map(|end| end.gateway(is_v4)).collect();
    if found.is_empty() {
        let family = if is_v4 { "IPv4" } else { "IPv6" };
        faults.add(&path, format_args!("it follows from a gateway, and those that send have no {family} address"));
    }
    let first = found.pop()?;
    if let Some(other) = found.iter().find(|other| other.hop.target() != first.hop.target()) {
        faults
            .add(&path, format_args!("those that send have gateways {other}, {first}: a flow for each, or an address"));
    }
    Some(*first)
}
