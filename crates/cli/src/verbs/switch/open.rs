//! Ports of a switch: parsing, names and opening.

use super::Names;
use crate::exit::usage;
use crate::verbs::inputs::{is_file, link};
use crate::verbs::port_pair::{receive_whole, send_as};
use linerate_backends::faulty::Faults;
use linerate_backends::inventory::is_default_route;
use linerate_backends::{REGISTRY, open_rx, open_tx};
use linerate_burst::LinkType;
use linerate_port::{PortError, RxOptions, RxPort, Spec, Target, TxOptions, TxPort};
use linerate_switch::text::PortNames;
use linerate_switch::{PortNo, PortVlans};
use std::io::ErrorKind;

/// Maximum number of ports. Port numbers have 16 bits, and Open vSwitch reserves some of them.
const MOST_PORTS: usize = 1000;

/// Ports of a switch, numbered from 1.
pub(super) struct SwitchPorts {
    ports: Vec<Port>,
    /// Directory of the output of ports that are files.
    out: Option<String>,
}

struct Port {
    /// Name given by the user, if any.
    name: Option<String>,
    spec: Spec,
    /// True if frames are read from a file, and written to another one.
    is_file: bool,
    /// True if the port only sends.
    is_mirror: bool,
}

impl SwitchPorts {
    /// Parses `PORT`s and `NAME=PORT`s.
    pub(super) fn parse(texts: &[String], out: Option<&str>, yes: bool) -> anyhow::Result<Self> {
        let ports = texts.iter().map(|text| Port::parse(text, yes)).collect::<Result<Vec<_>, _>>()?;
        if ports.len() < 2 || ports.len() > MOST_PORTS {
            return Err(usage(format!("a switch needs 2 to {MOST_PORTS} ports")));
        }
        let files = ports.iter().any(|port| port.is_file);
        match out {
            None if files => {
                return Err(usage("ports that are files need --out DIR for the packets sent to them (DIR/1.pcap, ..)"));
            }
            Some(_) if !files => return Err(usage("--out needs a port that is a capture file, such as pcap:a.pcap")),
            _ => {}
        }
        let joined = SwitchPorts { ports, out: out.map(str::to_owned) };
        let Names { ports: names, .. } = joined.names(&[]);
        let ends: Vec<_> = joined.ports.iter().map(Port::end).collect::<Result<_, _>>()?;
        for (number, names) in names.iter().enumerate() {
            if let Some(before) = ends[..number].iter().position(|end| *end == ends[number]) {
                return Err(usage(format!(
                    "{} is given twice, as port {} and as port {}",
                    texts[number],
                    before + 1,
                    number + 1
                )));
            }
            if names.iter().any(|name| joined.ports[..number].iter().any(|port| port.name.as_ref() == Some(name))) {
                return Err(usage(format!("{}: duplicate port name", texts[number])));
            }
        }
        if joined.ports.iter().all(|port| port.is_mirror) {
            return Err(usage("no port receives packets: shm: ports only send"));
        }
        Ok(joined)
    }

    pub(super) fn len(&self) -> usize {
        self.ports.len()
    }

    pub(super) fn specs(&self) -> impl Iterator<Item = &Spec> {
        self.ports.iter().map(|port| &port.spec)
    }

    /// Returns the ports as text, with their names.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        let named = |port: &Port| match &port.name {
            Some(name) => format!("{name}, {}", port.spec),
            None => port.spec.to_string(),
        };
        self.ports.iter().map(named)
    }

    /// Returns the names of ports in rules: given by the user, or else the target or the whole port.
    pub(super) fn names(&self, rings: &[String]) -> Names {
        let names = |port: &Port| match &port.name {
            Some(name) => vec![name.clone()],
            None => vec![port.spec.target.clone(), port.spec.to_string()],
        };
        Names { ports: self.ports.iter().map(names).collect(), rings: rings.to_vec() }
    }

    pub(super) fn number(&self, text: &str) -> Option<PortNo> {
        self.names(&[]).number(text)
    }

    /// Returns the default VLANs of each port: a mirror is in none.
    pub(super) fn vlans(&self) -> Vec<PortVlans> {
        let vlans = |port: &Port| if port.is_mirror { PortVlans::none() } else { PortVlans::default() };
        self.ports.iter().map(vlans).collect()
    }

    /// Returns whether all input is from files.
    pub(super) fn is_all_files(&self) -> bool {
        self.ports.iter().all(|port| port.is_file || port.is_mirror)
    }

    /// Opens the ports that receive, and returns their numbers too.
    pub(super) fn open_rx(&self) -> anyhow::Result<(Vec<RxPort>, Vec<PortNo>)> {
        let plain = Faults::parse("seed=1").map_err(usage)?;
        let (mut ports, mut numbers) = (Vec::new(), Vec::new());
        for (number, port) in (1..).zip(&self.ports).filter(|(_, port)| !port.is_mirror) {
            ports.push(match port.is_file {
                true => open_rx(&port.spec, &RxOptions { lanes: 1, prompt: true, ..RxOptions::default() })?,
                false => receive_whole(&port.spec, &plain, true)?,
            });
            numbers.push(number);
        }
        Ok((ports, numbers))
    }

    /// Opens the ports that send: those that are files, or all others.
    pub(super) fn open_tx(&self, files: bool) -> anyhow::Result<Vec<(usize, TxPort)>> {
        let those = self.ports.iter().enumerate().filter(|(_, port)| port.is_file == files);
        let open = |(at, port): (usize, &Port)| -> Result<(usize, TxPort), PortError> {
            if port.is_file {
                let spec = Spec { options: Vec::new(), target: self.file_of(at), ..port.spec.clone() };
                return Ok((at, open_tx(&spec, &TxOptions::default())?));
            }
            Ok((at, send_as(&port.spec, &port.spec)?))
        };
        Ok(those.map(open).collect::<Result<_, _>>()?)
    }

    /// Opens the ports that are files, and returns all.
    pub(super) fn add_files(&self, live: Vec<(usize, TxPort)>) -> anyhow::Result<Vec<TxPort>> {
        if let Some(folder) = &self.out {
            std::fs::create_dir_all(folder).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => usage(format!("--out {folder}: not a directory")),
                _ => anyhow::Error::new(error).context(format!("--out {folder}")),
            })?;
        }
        let mut all = live;
        all.extend(self.open_tx(true)?);
        all.sort_by_key(|(at, _)| *at);
        Ok(all.into_iter().map(|(_, port)| port).collect())
    }

    /// Returns the output file of a port.
    fn file_of(&self, at: usize) -> String {
        let name = self.ports[at].name.clone().unwrap_or_else(|| (at + 1).to_string());
        format!("{}/{name}.pcap", self.out.as_deref().unwrap_or("."))
    }
}

impl Port {
    fn parse(text: &str, yes: bool) -> anyhow::Result<Self> {
        let is_word = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        };
        let (name, rest) = match text.split_once('=') {
            Some((name, rest)) if is_word(name) => (Some(name), rest),
            _ => (None, text),
        };
        if name.is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
            return Err(usage(format!("{text}: invalid port name; expected at least one letter")));
        }
        let spec = Spec::parse(rest).map_err(usage)?;
        let (backend, at) = REGISTRY.innermost(&spec)?;
        let is_on_host = matches!(backend.target, Target::Interface { .. }) && at.option("netns").is_none();
        if is_on_host && !yes && is_default_route(&at.target) {
            return Err(usage(format!(
                "{} carries the default route of this host; use --yes to join it anyway",
                at.target
            )));
        }
        if link(&spec) != LinkType::ETHERNET {
            return Err(usage(format!("{spec} carries IP packets, but a switch needs Ethernet frames; use mode=tap")));
        }
        let is_mirror = matches!(backend.target, Target::Ring);
        Ok(Port { name: name.map(str::to_owned), is_file: is_file(&spec), is_mirror, spec })
    }

    /// Returns the identity of a port, which must be unique.
    fn end(&self) -> Result<(Option<String>, String, String), PortError> {
        REGISTRY.innermost(&self.spec).map(|(_, at)| (at.option("netns").map(str::to_owned), at.scheme, at.target))
    }
}
