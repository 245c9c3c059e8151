//! A port that is looked at: its interface, and what it is to be opened by.

use super::tree::Tree;
use anyhow::Context;
use linerate_backends::REGISTRY;
use linerate_backends::interface::{Facts, facts};
use linerate_backends::inventory::interfaces;
use linerate_backends::netns::{sysfs, within};
use linerate_port::Spec;
use std::borrow::Cow;

/// A port on an interface of this machine.
#[derive(Debug)]
pub struct Port {
    /// As the user named it.
    pub name: String,
    /// Whether frames are taken from the interface by XDP.
    pub is_xdp: bool,
    /// The network namespace that it is in, if not this process's own.
    pub netns: Option<String>,
    /// What the kernel and the driver say.
    pub facts: Facts,
    /// The files of its namespace.
    pub tree: Tree,
}

impl Port {
    /// Looks at the interface of a port.
    pub fn look(spec: &Spec) -> anyhow::Result<Port> {
        let at = REGISTRY.interface(spec).with_context(|| {
            format!("{spec}: it is no interface of this machine: a doctor looks at ports such as eth0 and xdp:eth0")
        })?;
        let netns = at.option("netns").map(str::to_owned);
        let seen = within(netns.as_deref(), || {
            // Without privileges there is no other than the usual one, which has the interfaces of whoever mounted it.
            let tree = sysfs().map_or_else(|_| Tree::at("/"), Tree::with_sys);
            Ok((facts(&at.target)?, tree))
        });
        let (facts, tree) = seen.map_err(|error| anyhow::anyhow!("{spec}: {error}"))?;
        Ok(Port { name: spec.to_string(), is_xdp: at.scheme == "xdp", netns, facts, tree })
    }

    /// All interfaces of this network namespace that are up, but the loopback.
    pub fn all() -> anyhow::Result<Vec<Port>> {
        let found = interfaces(None).context("cannot list interfaces")?;
        let names = found.iter().filter(|one| one.name != "lo" && one.up).map(|one| one.name.as_str());
        names.map(|name| Port::look(&Spec::parse(&format!("packet:{name}"))?)).collect()
    }

    /// The name of the interface, as a shell takes it for one word.
    pub fn interface(&self) -> Cow<'_, str> {
        quoted(&self.facts.found.name)
    }

    /// A command that is about the interface.
    pub fn command(&self, command: impl std::fmt::Display) -> String {
        match &self.netns {
            None => command.to_string(),
            Some(netns) => format!("ip netns exec {} {command}", quoted(netns)),
        }
    }

    /// A command that writes into a file of its `/sys/class/net`.
    pub fn write(&self, file: &str, value: &str) -> String {
        let path = format!("/sys/class/net/{}/{file}", self.interface());
        match &self.netns {
            None => format!("echo {value} > {path}"),
            // The file is another one outside.
            Some(_) => self.command(format_args!("tee {path} <<< {value}")),
        }
    }

    /// What a file of its `/sys/class/net` says.
    pub fn file(&self, file: &str) -> Option<String> {
        self.tree.text(&format!("sys/class/net/{}/{file}", self.facts.found.name))
    }

    /// The names in a folder of it.
    pub fn files(&self, folder: &str) -> Vec<String> {
        self.tree.names(&format!("sys/class/net/{}/{folder}", self.facts.found.name))
    }

    /// Whether an offload is on.
    pub fn has(&self, offload: &str) -> bool {
        self.facts.found.offloads.iter().any(|one| one == offload)
    }

    /// Whether it can be changed.
    pub fn can_change(&self, offload: &str) -> bool {
        self.facts.changeable.iter().any(|one| one == offload)
    }

    /// Whether it is one end of a pair without a wire.
    pub fn is_veth(&self) -> bool {
        self.facts.found.driver == "veth"
    }

    /// The most frames a second that its wire can bring: 64 bytes each.
    pub fn most_frames(&self) -> Option<f64> {
        self.facts.found.speed_mbps.map(|mbps| mbps as f64 * 1e6 / 672.0)
    }
}

/// A word that a shell takes as it is.
pub fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._:@-/+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.into();
    }
    format!("'{}'", word.replace('\'', "'\\''")).into()
}
