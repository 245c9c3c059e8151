//! The ports of a switch: what they are called, and how they are opened.

use super::Names;
use crate::exit::usage;
use crate::verbs::inputs::{is_file, link};
use crate::verbs::joined::{receive_whole, send_as};
use linerate_backends::faulty::Faults;
use linerate_backends::inventory::is_default_route;
use linerate_backends::{REGISTRY, open_rx, open_tx};
use linerate_burst::LinkType;
use linerate_port::{PortError, RxOptions, RxPort, Spec, Target, TxOptions, TxPort};
use linerate_switch::text::PortNames;
use linerate_switch::{PortNo, PortVlans};
use std::io::ErrorKind;

/// The most ports: they are numbered by 16 bits, some of which mean something else to Open vSwitch.
const MOST_PORTS: usize = 1000;

/// The ports, from port 1 on.
pub(super) struct Joined {
    ports: Vec<Port>,
    /// Where frames go that leave by a file.
    out: Option<String>,
}

struct Port {
    /// The name that the user gave it, if any.
    name: Option<String>,
    spec: Spec,
    /// Frames come from a file, and those that leave go to another one.
    is_file: bool,
    /// Frames leave by it, and none come.
    is_mirror: bool,
}

impl Joined {
    /// Reads `PORT`s and `NAME=PORT`s.
    pub(super) fn parse(texts: &[String], out: Option<&str>, yes: bool) -> anyhow::Result<Self> {
        let ports = texts.iter().map(|text| Port::parse(text, yes)).collect::<Result<Vec<_>, _>>()?;
        if ports.len() < 2 || ports.len() > MOST_PORTS {
            return Err(usage(format!("a switch has two ports or more, and {MOST_PORTS} at the most")));
        }
        let files = ports.iter().any(|port| port.is_file);
        match out {
            None if files => {
                return Err(usage(
                    "a file is given as a port: --out DIR says where frames go that leave by it (DIR/1.pcap, ..)",
                ));
            }
            Some(_) if !files => return Err(usage("--out is for ports that are files, and there is none")),
            _ => {}
        }
        let joined = Joined { ports, out: out.map(str::to_owned) };
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
                return Err(usage(format!("{}: another port has this name", texts[number])));
            }
        }
        if joined.ports.iter().all(|port| port.is_mirror) {
            return Err(usage("frames come by none of these ports: rings are written alone"));
        }
        Ok(joined)
    }

    pub(super) fn len(&self) -> usize {
        self.ports.len()
    }

    pub(super) fn specs(&self) -> impl Iterator<Item = &Spec> {
        self.ports.iter().map(|port| &port.spec)
    }

    /// The ports as people know them.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        let named = |port: &Port| match &port.name {
            Some(name) => format!("{name}, {}", port.spec),
            None => port.spec.to_string(),
        };
        self.ports.iter().map(named)
    }

    /// How ports are called in rules: as the user named them, or by what they are.
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

    /// The VLANs of each, unless others are asked for: a mirror is in none.
    pub(super) fn vlans(&self) -> Vec<PortVlans> {
        let vlans = |port: &Port| if port.is_mirror { PortVlans::none() } else { PortVlans::default() };
        self.ports.iter().map(vlans).collect()
    }

    /// Whether all that comes lies in files.
    pub(super) fn is_all_files(&self) -> bool {
        self.ports.iter().all(|port| port.is_file || port.is_mirror)
    }

    /// Opens those that frames come by, with the number of each.
    pub(super) fn open_rx(&self) -> anyhow::Result<(Vec<RxPort>, Vec<PortNo>)> {
        let plain = Faults::parse("seed=1").map_err(usage)?;
        let (mut ports, mut numbers) = (Vec::new(), Vec::new());
        for (number, port) in (1..).zip(&self.ports).filter(|(_, port)| !port.is_mirror) {
            ports.push(match port.is_file {
                true => open_rx(&port.spec, &RxOptions { lanes: 1, ..RxOptions::default() })?,
                false => receive_whole(&port.spec, &plain, true)?,
            });
            numbers.push(number);
        }
        Ok((ports, numbers))
    }

    /// Opens those that frames leave by: interfaces and rings, or those that are files.
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

    /// All of them, once the files are there too.
    pub(super) fn add_files(&self, live: Vec<(usize, TxPort)>) -> anyhow::Result<Vec<TxPort>> {
        if let Some(folder) = &self.out {
            std::fs::create_dir_all(folder).map_err(|error| match error.kind() {
                ErrorKind::AlreadyExists => usage(format!("--out {folder}: this is there, and is no folder")),
                _ => anyhow::Error::new(error).context(format!("--out {folder}")),
            })?;
        }
        let mut all = live;
        all.extend(self.open_tx(true)?);
        all.sort_by_key(|(at, _)| *at);
        Ok(all.into_iter().map(|(_, port)| port).collect())
    }

    /// The file that frames go to which leave by a port.
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
            return Err(usage(format!("{text}: a name that is a number would be taken for the number of a port")));
        }
        let spec = Spec::parse(rest).map_err(usage)?;
        let (backend, at) = REGISTRY.innermost(&spec)?;
        let is_on_host = matches!(backend.target, Target::Interface { .. }) && at.option("netns").is_none();
        if is_on_host && !yes && is_default_route(&at.target) {
            return Err(usage(format!(
                "{} carries the default route of this machine: give --yes if it is really to be joined",
                at.target
            )));
        }
        if link(&spec) != LinkType::ETHERNET {
            return Err(usage(format!(
                "{spec} has IP packets, and a switch is for Ethernet frames: mode=tap has them"
            )));
        }
        let is_mirror = matches!(backend.target, Target::Ring);
        Ok(Port { name: name.map(str::to_owned), is_file: is_file(&spec), is_mirror, spec })
    }

    /// What may be given once alone.
    fn end(&self) -> Result<(Option<String>, String, String), PortError> {
        REGISTRY.innermost(&self.spec).map(|(_, at)| (at.option("netns").map(str::to_owned), at.scheme, at.target))
    }
}
