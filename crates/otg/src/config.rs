//! Configuration: ports, captures and flows.

use crate::device::{self, Ethernet};
use crate::flow::{Flow, MOST_BYTES, Setup};
use crate::read::{Faults, Node, Object};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};

/// Configuration, validated as far as possible without the machine.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Ports, in order.
    pub ports: Vec<Port>,
    /// Captures.
    pub captures: Vec<Capture>,
    /// Interfaces of devices, in order.
    pub devices: Vec<Ethernet>,
    /// Flows, in order.
    pub flows: Vec<Flow>,
    /// Parts of the configuration that were approximated.
    pub warnings: Vec<String>,
    /// Bytes of their frames, each size once.
    pub bytes: usize,
}

/// Text of a configuration: its flows are parsed one by one, because a tree of values would take thirty times the
/// memory.
#[derive(Debug)]
pub struct Text<'a> {
    /// Everything except the flows.
    pub frame: Value,
    flows: Vec<&'a RawValue>,
}

/// Port.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Name.
    pub name: String,
    /// Location known to the server; the name if not given.
    pub location: String,
    /// Line rate in bits per second, if the configuration gives it.
    pub speed: Option<f64>,
}

/// Capture at ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// Names of the ports.
    pub ports: Vec<String>,
    /// Format of the capture file.
    pub format: Format,
    /// True to drop the oldest frames when full; else the newest are dropped.
    pub overwrite: bool,
    /// Bytes kept of each frame; all if not given.
    pub slice: Option<u64>,
}

/// Format of capture files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pcap, with nanoseconds.
    Pcap,
    /// pcapng.
    Pcapng,
}

/// Default MTU, which clients always send.
const USUAL_MTU: u64 = 1500;
const MOST_FLOWS: usize = 1 << 16;

impl<'a> Text<'a> {
    /// Splits a text into flows and the rest.
    ///
    /// # Errors
    /// If the text is not valid JSON.
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        let Ok(mut fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) else {
            // Non-objects are reported later.
            return Ok(Text { frame: serde_json::from_str(text)?, flows: Vec::new() });
        };
        let flows = fields.get("flows").and_then(|flows| serde_json::from_str(flows.get()).ok());
        if flows.is_some() {
            fields.remove("flows");
        }
        let value = |(name, text): (String, &RawValue)| Ok((name, serde_json::from_str(text.get())?));
        let frame = fields.into_iter().map(value).collect::<Result<_, serde_json::Error>>()?;
        Ok(Text { frame: Value::Object(frame), flows: flows.unwrap_or_default() })
    }
}

impl Config {
    /// Parses a configuration.
    ///
    /// # Errors
    /// Everything that is invalid or not supported, each with its path.
    pub fn read(document: &Value, setup: &Setup) -> Result<Config, Faults> {
        Config::of(document, &[], setup)
    }

    /// Like [`Config::read`], from a text.
    ///
    /// # Errors
    /// Like [`Config::read`].
    pub fn read_text(text: &Text<'_>, setup: &Setup) -> Result<Config, Faults> {
        Config::of(&text.frame, &text.flows, setup)
    }

    fn of(document: &Value, flows: &[&RawValue], setup: &Setup) -> Result<Config, Faults> {
        let mut faults = Faults::default();
        let mut config = Config::default();
        let mut root = Node::root(document).object(&mut faults);
        config.ports(&mut root, &mut faults);
        config.layer1(&mut root, &mut faults);
        config.captures(&mut root, &mut faults);
        let ports: Vec<&str> = config.ports.iter().map(|port| &*port.name).collect();
        config.devices = device::read(&mut root, &ports, &mut faults);
        options(&mut root, &mut faults);
        let nodes = root.list("flows", &mut faults);
        let (here, apart) = (nodes.len(), flows.len());
        if here + apart > MOST_FLOWS {
            faults.add("flows", format_args!("{} flows; expected at most {MOST_FLOWS}", here + apart));
        }
        let mut names = BTreeSet::new();
        for (index, node) in nodes.iter().take(MOST_FLOWS).enumerate() {
            config.flow(node, index, &mut names, setup, &mut faults);
        }
        for (index, text) in flows.iter().take(MOST_FLOWS).enumerate() {
            let path = format!("flows[{index}]");
            match serde_json::from_str(text.get()) {
                Ok(value) => config.flow(&Node { path, value: &value }, index, &mut names, setup, &mut faults),
                Err(error) => faults.add(&path, error),
            }
        }
        root.finish(&mut faults);
        if faults.is_empty() { Ok(config) } else { Err(faults) }
    }

    fn ports(&mut self, root: &mut Object<'_>, faults: &mut Faults) {
        let mut names = BTreeSet::new();
        for node in root.list("ports", faults) {
            let mut port = node.object(faults);
            let name = port.needed("name", faults).to_owned();
            let location = port.text("location", faults).filter(|location| !location.is_empty());
            let location = location.unwrap_or(&name).to_owned();
            if !names.insert(name.clone()) {
                faults.add(&port.at("name"), format_args!("duplicate port name {name:?}"));
            }
            port.finish(faults);
            self.ports.push(Port { name, location, speed: None });
        }
    }

    fn layer1(&mut self, root: &mut Object<'_>, faults: &mut Faults) {
        for node in root.list("layer1", faults) {
            let mut layer = node.object(faults);
            let names = layer.texts("port_names", faults);
            let speed = layer.text("speed", faults);
            let bits = speed.map(|speed| speed_of(speed).ok_or(speed)).transpose();
            if let Err(other) = bits {
                faults.add(
                    &layer.at("speed"),
                    format_args!("unknown speed {other:?}; expected one such as speed_10_gbps"),
                );
            }
            // Clients always send default values for these. Links are not changed: other values cause warnings.
            let mtu = layer.number("mtu", faults).filter(|mtu| *mtu != USUAL_MTU);
            let (media, promiscuous) = (layer.text("media", faults), layer.flag("promiscuous", faults));
            let unsupported = [
                mtu.map(|mtu| format!("{}: {mtu} is not applied", layer.at("mtu"))),
                media.map(|media| format!("{}: {media} is not applied", layer.at("media"))),
                (promiscuous == Some(false)).then(|| format!("{}: all frames are received", layer.at("promiscuous"))),
            ];
            self.warnings.extend(unsupported.into_iter().flatten().map(|what| what + "; links are not changed"));
            layer.ignore(&["name", "ieee_media_defaults", "auto_negotiate"]);
            for name in names {
                match self.ports.iter_mut().find(|port| port.name == name) {
                    Some(port) => port.speed = bits.ok().flatten().or(port.speed),
                    None => faults.add(&layer.at("port_names"), format_args!("no such port {name:?}")),
                }
            }
            layer.finish(faults);
        }
    }

    fn captures(&mut self, root: &mut Object<'_>, faults: &mut Faults) {
        for node in root.list("captures", faults) {
            let mut capture = node.object(faults);
            let format = match capture.text("format", faults) {
                None | Some("pcap") => Format::Pcap,
                Some("pcapng") => Format::Pcapng,
                Some(other) => {
                    faults.add(&capture.at("format"), format_args!("invalid value {other:?}; expected pcap or pcapng"));
                    Format::Pcap
                }
            };
            let ports = capture.texts("port_names", faults);
            for name in ports.iter().filter(|name| self.port(name).is_none()) {
                faults.add(&capture.at("port_names"), format_args!("no such port {name:?}"));
            }
            let (overwrite, slice) = (capture.flag("overwrite", faults), capture.number("packet_size", faults));
            capture.ignore(&["name"]);
            capture.finish(faults);
            let ports = ports.into_iter().map(str::to_owned).collect();
            self.captures.push(Capture { ports, format, overwrite: overwrite.unwrap_or(true), slice });
        }
    }

    fn flow(
        &mut self,
        node: &Node<'_>,
        index: usize,
        names: &mut BTreeSet<String>,
        setup: &Setup,
        faults: &mut Faults,
    ) {
        let seed = linerate_burst::random::mix(setup.seed.wrapping_add(index as u64));
        let known = |name: &str| setup.lines.iter().find(|(known, _)| known == name).map(|(_, line)| *line);
        let line = |name: &str| self.port(name).and_then(|port| port.speed).or_else(|| known(name));
        let mut warnings = Vec::new();
        let room = MOST_BYTES.saturating_sub(self.bytes);
        let flow = Flow::read(node, seed, (&self.devices, line), room, faults, &mut warnings);
        self.warnings.append(&mut warnings);
        let Some(flow) = flow else { return };
        self.bytes += flow.stream.variants.iter().map(|variant| variant.frame.len()).sum::<usize>();
        // Unknown ports of devices are already reported there.
        let unknown = |name: &&String| self.port(name).is_none() && !self.devices.iter().any(|one| one.port == **name);
        for name in [&flow.tx].into_iter().chain(&flow.rx).filter(unknown) {
            faults.add(&format!("{}.tx_rx.port", node.path), format_args!("no such port {name:?}"));
        }
        if !names.insert(flow.name.clone()) {
            faults.add(&format!("{}.name", node.path), format_args!("duplicate flow name {:?}", flow.name));
        }
        self.flows.push(flow);
    }

    /// Returns a port by name.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// Returns the capture at a port.
    pub fn capture(&self, port: &str) -> Option<&Capture> {
        self.captures.iter().find(|capture| capture.ports.iter().any(|name| name == port))
    }
}

/// Parses options that clients always send; only default values are accepted.
fn options(root: &mut Object<'_>, faults: &mut Faults) {
    let Some(mut options) = root.object("options", faults) else { return };
    // Ports are never taken over from others: the server is started with them.
    options.ignore(&["port_options"]);
    options.finish(faults);
}

/// Parses a speed to bits per second: `speed_10_gbps`, `speed_100_fd_mbps`.
fn speed_of(text: &str) -> Option<f64> {
    let (number, unit) = text.strip_prefix("speed_")?.split_once('_')?;
    let unit = match unit {
        "gbps" => 1e9,
        "mbps" | "fd_mbps" | "hd_mbps" => 1e6,
        _ => return None,
    };
    number.parse::<u32>().ok().map(|number| f64::from(number) * unit)
}
