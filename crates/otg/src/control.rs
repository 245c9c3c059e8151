//! Requests besides configurations: states, updates, metrics, captures.

use crate::metrics::{FLOW_COLUMNS, PORT_COLUMNS};
use crate::read::{Faults, Node, Object};
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// State to apply. An empty list of names means all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Transmit state of flows.
    Traffic(Traffic, Vec<String>),
    /// Captures at ports: true to start, false to stop.
    Capture(bool, Vec<String>),
    /// Links: true for up, false for down.
    Link(bool, Vec<String>),
    /// Devices: true to start, false to stop.
    Protocols(bool),
}

/// Transmit action of flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Starts from the beginning, with counters at 0.
    Start,
    /// Stops.
    Stop,
    /// Pauses.
    Pause,
    /// Resumes.
    Resume,
}

impl State {
    /// Parses a state.
    ///
    /// # Errors
    /// Everything that is invalid or not supported.
    pub fn read(document: &Value) -> Result<State, Faults> {
        let mut faults = Faults::default();
        let mut root = Node::root(document).object(&mut faults);
        let state = match root.choice(&["traffic", "port", "protocol"], &mut faults) {
            "traffic" => root.object("traffic", &mut faults).and_then(|object| traffic(object, &mut faults)),
            "port" => root.object("port", &mut faults).and_then(|object| port(object, &mut faults)),
            "protocol" => root.object("protocol", &mut faults).and_then(|object| protocol(object, &mut faults)),
            _ => None,
        };
        root.finish(&mut faults);
        match state {
            Some(state) if faults.is_empty() => Ok(state),
            _ => {
                if faults.is_empty() {
                    faults.add("", "missing state");
                }
                Err(faults)
            }
        }
    }
}

fn names(object: &mut Object<'_>, name: &'static str, faults: &mut Faults) -> Vec<String> {
    object.texts(name, faults).into_iter().map(str::to_owned).collect()
}

/// Parses names of columns, which must be known.
fn columns(object: &mut Object<'_>, name: &'static str, known: &[&str], faults: &mut Faults) -> Vec<String> {
    let wanted = names(object, name, faults);
    for (index, other) in wanted.iter().enumerate().filter(|(_, name)| !known.contains(&name.as_str())) {
        let what = format_args!("{other:?} is not supported; expected one of {}", known.join(", "));
        faults.add(&format!("{}[{index}]", object.at(name)), what);
    }
    wanted
}

fn traffic(mut traffic: Object<'_>, faults: &mut Faults) -> Option<State> {
    traffic.choice(&["flow_transmit"], faults);
    let mut transmit = traffic.object("flow_transmit", faults)?;
    traffic.finish(faults);
    let flows = names(&mut transmit, "flow_names", faults);
    let state = match transmit.needed("state", faults) {
        "start" => Traffic::Start,
        "stop" => Traffic::Stop,
        "pause" => Traffic::Pause,
        "resume" => Traffic::Resume,
        other => {
            faults.add(
                &transmit.at("state"),
                format_args!("invalid value {other:?}; expected start, stop, pause or resume"),
            );
            return None;
        }
    };
    transmit.finish(faults);
    Some(State::Traffic(state, flows))
}

fn port(mut port: Object<'_>, faults: &mut Faults) -> Option<State> {
    let choice = port.choice(&["capture", "link"], faults);
    let (name, on, off) = match choice {
        "capture" => ("capture", "start", "stop"),
        "link" => ("link", "up", "down"),
        _ => return None,
    };
    let mut object = port.object(name, faults)?;
    port.finish(faults);
    let ports = names(&mut object, "port_names", faults);
    let state = object.needed("state", faults);
    if ![on, off].contains(&state) {
        faults.add(&object.at("state"), format_args!("invalid value {state:?}; expected {on} or {off}"));
    }
    object.finish(faults);
    let is_on = state == on;
    Some(if name == "capture" { State::Capture(is_on, ports) } else { State::Link(is_on, ports) })
}

fn protocol(mut protocol: Object<'_>, faults: &mut Faults) -> Option<State> {
    protocol.choice(&["all"], faults);
    let mut all = protocol.object("all", faults)?;
    let state = all.needed("state", faults);
    if !["start", "stop"].contains(&state) {
        faults.add(&all.at("state"), format_args!("invalid value {state:?}; expected start or stop"));
    }
    all.finish(faults);
    protocol.finish(faults);
    Some(State::Protocols(state == "start"))
}

/// Request for the gateways of interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbors {
    /// True for IPv4, false for IPv6.
    pub is_v4: bool,
    /// Names of the interfaces; all if empty.
    pub ethernets: Vec<String>,
}

impl Neighbors {
    /// Parses a request for neighbors.
    ///
    /// # Errors
    /// Everything that is invalid or not supported.
    pub fn read(document: &Value) -> Result<Neighbors, Faults> {
        let mut faults = Faults::default();
        let mut root = Node::root(document).object(&mut faults);
        let choice = root.choice(&["ipv4_neighbors", "ipv6_neighbors"], &mut faults);
        root.ignore(&["ipv4_neighbors", "ipv6_neighbors"]);
        let mut ethernets = Vec::new();
        if let Some(mut some) = (!choice.is_empty()).then(|| root.object(choice, &mut faults)).flatten() {
            ethernets = names(&mut some, "ethernet_names", &mut faults);
            some.finish(&mut faults);
        }
        root.finish(&mut faults);
        if faults.is_empty() { Ok(Neighbors { is_v4: choice == "ipv4_neighbors", ethernets }) } else { Err(faults) }
    }
}

/// Request for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Metrics {
    /// Port names (all if empty) and columns (all except the newest if empty).
    Ports(Vec<String>, Vec<String>),
    /// Flow names and columns, likewise.
    Flows(Vec<String>, Vec<String>),
}

impl Metrics {
    /// Parses a request for metrics.
    ///
    /// # Errors
    /// Everything that is invalid or not supported.
    pub fn read(document: &Value) -> Result<Metrics, Faults> {
        let mut faults = Faults::default();
        let mut root = Node::root(document).object(&mut faults);
        let choice = root.choice(&["port", "flow"], &mut faults);
        root.ignore(&["port", "flow"]);
        let wanted = match choice {
            "port" => {
                let mut ports = root.object("port", &mut faults);
                let (mut some, mut all) = (Vec::new(), Vec::new());
                if let Some(object) = &mut ports {
                    some = names(object, "port_names", &mut faults);
                    all = columns(object, "column_names", PORT_COLUMNS, &mut faults);
                }
                let wanted = Metrics::Ports(some, all);
                if let Some(object) = ports {
                    object.finish(&mut faults);
                }
                wanted
            }
            _ => {
                let mut flows = root.object("flow", &mut faults);
                let (mut some, mut all) = (Vec::new(), Vec::new());
                if let Some(object) = &mut flows {
                    some = names(object, "flow_names", &mut faults);
                    all = columns(object, "metric_names", FLOW_COLUMNS, &mut faults);
                }
                let wanted = Metrics::Flows(some, all);
                if let Some(mut flows) = flows {
                    // Without tags this makes no difference.
                    flows.ignore(&["tagged_metrics"]);
                    flows.finish(&mut faults);
                }
                wanted
            }
        };
        root.finish(&mut faults);
        if faults.is_empty() { Ok(wanted) } else { Err(faults) }
    }
}

/// Parses a request for a capture and returns the port name.
///
/// # Errors
/// Everything that is invalid or not supported.
pub fn capture(document: &Value) -> Result<String, Faults> {
    let mut faults = Faults::default();
    let mut root = Node::root(document).object(&mut faults);
    let name = root.needed("port_name", &mut faults).to_owned();
    if let Some(mut packets) = root.object("packets", &mut faults) {
        packets.choice(&["all"], &mut faults);
        packets.finish(&mut faults);
    }
    root.finish(&mut faults);
    if faults.is_empty() { Ok(name) } else { Err(faults) }
}

/// Updates the rate and size of flows in a configuration; returns it with the names of the flows.
///
/// # Errors
/// Everything that is invalid or not supported.
pub fn update(document: &Value, update: &Value) -> Result<(Value, Vec<String>), Faults> {
    let mut faults = Faults::default();
    let mut changed = document.clone();
    let mut root = Node::root(update).object(&mut faults);
    root.choice(&["flows"], &mut faults);
    let mut touched = Vec::new();
    let places = places(&changed);
    if let Some(mut flows) = root.object("flows", &mut faults) {
        let properties = flows.texts("property_names", &mut faults);
        for other in properties.iter().filter(|name| !["rate", "size"].contains(*name)) {
            faults.add(&flows.at("property_names"), format_args!("invalid value {other:?}; expected rate or size"));
        }
        for node in flows.list("flows", &mut faults) {
            let name = node.value.get("name").and_then(Value::as_str).unwrap_or_default();
            let Some(old) = places.get(name).map(|at| &mut changed["flows"][*at]) else {
                faults.add(&node.path, format_args!("no such flow {name:?}"));
                continue;
            };
            for property in &properties {
                match node.value.get(*property) {
                    Some(value) => old[*property] = value.clone(),
                    None => drop(old.as_object_mut().and_then(|old| old.remove(*property))),
                }
            }
            touched.push(name.to_owned());
        }
        flows.finish(&mut faults);
    }
    root.finish(&mut faults);
    if faults.is_empty() { Ok((changed, touched)) } else { Err(faults) }
}

/// Returns the index of each flow, by name.
fn places(document: &Value) -> HashMap<String, usize> {
    let flows = document.get("flows").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let named = flows.iter().enumerate().filter_map(|(at, flow)| Some((flow.get("name")?.as_str()?.to_owned(), at)));
    // For duplicate names the first one.
    named.rev().collect()
}

/// Adds flows to a configuration.
///
/// # Errors
/// Everything that is invalid or not supported.
pub fn append(document: &Value, request: &Value) -> Result<(Value, Vec<String>), Faults> {
    edit(document, request, "config_append_list", |flows, node, faults| {
        if !node.value.is_object() {
            faults.add(&node.path, "expected an object");
        }
        flows.push(node.value.clone());
        node.value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned()
    })
}

/// Removes flows from a configuration.
///
/// # Errors
/// Everything that is invalid or not supported.
pub fn delete(document: &Value, request: &Value) -> Result<(Value, Vec<String>), Faults> {
    let mut known: HashSet<String> = places(document).into_keys().collect();
    let (mut changed, touched) = edit(document, request, "config_delete_list", |_, node, faults| {
        let name = node.text(faults).unwrap_or_default();
        if !known.remove(name) {
            faults.add(&node.path, format_args!("no such flow {name:?}"));
        }
        name.to_owned()
    })?;
    let gone: HashSet<&str> = touched.iter().map(String::as_str).collect();
    let is_kept = |flow: &Value| flow.get("name").and_then(Value::as_str).is_none_or(|name| !gone.contains(name));
    if let Some(flows) = changed["flows"].as_array_mut() {
        flows.retain(is_kept);
    }
    Ok((changed, touched))
}

fn edit(
    document: &Value,
    request: &Value,
    list: &'static str,
    mut each: impl FnMut(&mut Vec<Value>, &Node<'_>, &mut Faults) -> String,
) -> Result<(Value, Vec<String>), Faults> {
    let mut faults = Faults::default();
    let mut changed = if document.is_object() { document.clone() } else { serde_json::json!({}) };
    let mut touched = Vec::new();
    let mut root = Node::root(request).object(&mut faults);
    let mut flows = changed.get("flows").and_then(Value::as_array).cloned().unwrap_or_default();
    for node in root.list(list, &mut faults) {
        let mut item = node.object(&mut faults);
        item.choice(&["flows"], &mut faults);
        for node in item.list("flows", &mut faults) {
            touched.push(each(&mut flows, &node, &mut faults));
        }
        item.finish(&mut faults);
    }
    root.finish(&mut faults);
    changed["flows"] = Value::Array(flows);
    if faults.is_empty() { Ok((changed, touched)) } else { Err(faults) }
}
