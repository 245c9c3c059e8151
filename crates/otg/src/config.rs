//! A configuration: ports, what they capture, and flows.

use crate::device::{self, Ethernet};
use crate::flow::{Flow, MOST_BYTES, Setup};
use crate::read::{Faults, Node, Object};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::{BTreeMap, BTreeSet};

/// A configuration that is right as far as can be said without a machine.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The ports, in order.
    pub ports: Vec<Port>,
    /// The captures.
    pub captures: Vec<Capture>,
    /// The interfaces of devices, in order.
    pub devices: Vec<Ethernet>,
    /// The flows, in order.
    pub flows: Vec<Flow>,
    /// What is not quite as was asked for.
    pub warnings: Vec<String>,
    /// Bytes of their frames, each size of each once.
    pub bytes: usize,
}

/// The text of a configuration: its flows are read one by one, since as a tree of values they would take thirty times the memory.
#[derive(Debug)]
pub struct Text<'a> {
    /// All of it but its flows.
    pub frame: Value,
    flows: Vec<&'a RawValue>,
}

/// A port.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// What it is, as whoever runs the server knows it; its name where nothing is said.
    pub location: String,
    /// The rate of its line in bits per second, where the configuration says so.
    pub speed: Option<f64>,
}

/// What is captured at ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// At which.
    pub ports: Vec<String>,
    /// How it is to be handed out.
    pub format: Format,
    /// The oldest frames go when there is no room; else the newest.
    pub overwrite: bool,
    /// Bytes kept of each frame; all where nothing is said.
    pub slice: Option<u64>,
}

/// A format of capture files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pcap, in nanoseconds.
    Pcap,
    /// pcapng.
    Pcapng,
}

/// What clients send as the MTU where nobody has said anything.
const USUAL_MTU: u64 = 1500;
/// Flows at most.
const MOST_FLOWS: usize = 1 << 16;

impl<'a> Text<'a> {
    /// Takes a text apart.
    ///
    /// # Errors
    /// If it is no JSON.
    pub fn parse(text: &'a str) -> Result<Self, serde_json::Error> {
        let Ok(mut fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(text) else {
            // What is no object is told as such.
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
    /// Reads all of it.
    ///
    /// # Errors
    /// Everything that is wrong or not supported, each with its path.
    pub fn read(document: &Value, setup: &Setup) -> Result<Config, Faults> {
        Config::of(document, &[], setup)
    }

    /// The same of a text.
    ///
    /// # Errors
    /// As above.
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
            faults.add("flows", format_args!("{} flows: at most {MOST_FLOWS}", here + apart));
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
                faults.add(&port.at("name"), format_args!("another port is called {name:?}"));
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
                faults.add(&layer.at("speed"), format_args!("{other:?} is not known"));
            }
            // They have usual values that clients always send. Links are as they are: what else is asked for is told.
            let mtu = layer.number("mtu", faults).filter(|mtu| *mtu != USUAL_MTU);
            let (media, promiscuous) = (layer.text("media", faults), layer.flag("promiscuous", faults));
            let told = [
                mtu.map(|mtu| format!("{}: {mtu} is not set", layer.at("mtu"))),
                media.map(|media| format!("{}: {media} is not chosen", layer.at("media"))),
                (promiscuous == Some(false)).then(|| format!("{}: all frames are received", layer.at("promiscuous"))),
            ];
            self.warnings.extend(told.into_iter().flatten().map(|what| what + ": links are left as they are"));
            layer.ignore(&["name", "ieee_media_defaults", "auto_negotiate"]);
            for name in names {
                match self.ports.iter_mut().find(|port| port.name == name) {
                    Some(port) => port.speed = bits.ok().flatten().or(port.speed),
                    None => faults.add(&layer.at("port_names"), format_args!("no port is called {name:?}")),
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
                    faults.add(&capture.at("format"), format_args!("{other:?}: pcap or pcapng"));
                    Format::Pcap
                }
            };
            let ports = capture.texts("port_names", faults);
            for name in ports.iter().filter(|name| self.port(name).is_none()) {
                faults.add(&capture.at("port_names"), format_args!("no port is called {name:?}"));
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
        // That of a device was told where it is.
        let unknown = |name: &&String| self.port(name).is_none() && !self.devices.iter().any(|one| one.port == **name);
        for name in [&flow.tx].into_iter().chain(&flow.rx).filter(unknown) {
            faults.add(&format!("{}.tx_rx.port", node.path), format_args!("no port is called {name:?}"));
        }
        if !names.insert(flow.name.clone()) {
            faults.add(&format!("{}.name", node.path), format_args!("another flow is called {:?}", flow.name));
        }
        self.flows.push(flow);
    }

    /// A port by its name.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// What is captured at a port.
    pub fn capture(&self, port: &str) -> Option<&Capture> {
        self.captures.iter().find(|capture| capture.ports.iter().any(|name| name == port))
    }
}

/// Options that clients always send, as long as they have their usual values.
fn options(root: &mut Object<'_>, faults: &mut Faults) {
    let Some(mut options) = root.object("options", faults) else { return };
    // Ports are taken from nobody: they were named when the server began.
    options.ignore(&["port_options"]);
    options.finish(faults);
}

/// Bits per second: `speed_10_gbps`, `speed_100_fd_mbps`.
fn speed_of(text: &str) -> Option<f64> {
    let (number, unit) = text.strip_prefix("speed_")?.split_once('_')?;
    let unit = match unit {
        "gbps" => 1e9,
        "mbps" | "fd_mbps" | "hd_mbps" => 1e6,
        _ => return None,
    };
    number.parse::<u32>().ok().map(|number| f64::from(number) * unit)
}
