//! A port that is looked at: its interface, and what it is to be opened by.

use super::tree::Tree;
use crate::view::terminal::fail;
use anyhow::Context;
use linerate_backends::REGISTRY;
use linerate_backends::interface::{Facts, facts};
use linerate_backends::inventory::interfaces;
use linerate_backends::netns::{sysfs, within};
pub(super) use linerate_burst::text::quoted;
use linerate_port::Spec;
use std::borrow::Cow;
use std::io::{self, ErrorKind};

/// A port on an interface of this machine.
#[derive(Debug)]
pub(super) struct Port {
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
    pub(super) fn look(spec: &Spec) -> anyhow::Result<Port> {
        let at = REGISTRY.interface(spec).with_context(|| {
            format!("{spec}: it is no interface of this machine: a doctor looks at ports such as eth0 and xdp:eth0")
        })?;
        let netns = at.option("netns").map(str::to_owned);
        Port::of(spec.to_string(), at.scheme == "xdp", &at.target, netns)
            .map_err(|error| anyhow::anyhow!("{spec}: {error}"))
    }

    /// All interfaces of this network namespace that are up, but the loopback. One that goes meanwhile is left out; one that
    /// cannot be looked at is said, and hides no other.
    pub(super) fn all() -> anyhow::Result<Vec<Port>> {
        let found = interfaces(None).context("cannot list interfaces")?;
        let names = found.into_iter().filter(|one| one.name != "lo" && one.up).map(|one| one.name);
        Ok(names
            .filter_map(|name| {
                Port::of(format!("packet:{name}"), false, &name, None)
                    .inspect_err(|error| {
                        if error.kind() != ErrorKind::NotFound {
                            fail(format_args!("{name}: {error}: not looked at"));
                        }
                    })
                    .ok()
            })
            .collect())
    }

    /// By the name of the interface, which need not be one that a port can have.
    fn of(name: String, is_xdp: bool, interface: &str, netns: Option<String>) -> io::Result<Port> {
        let (facts, tree) = within(netns.as_deref(), || {
            // Without privileges there is no other than the usual one, which has the interfaces of whoever mounted it.
            let tree = sysfs().map_or_else(|_| Tree::at("/"), Tree::with_sys);
            Ok((facts(interface)?, tree))
        })?;
        Ok(Port { name, is_xdp, netns, facts, tree })
    }

    /// The name of the interface, as a shell takes it for one word.
    pub(super) fn interface(&self) -> Cow<'_, str> {
        quoted(&self.facts.found.name)
    }

    /// A command that is about the interface.
    pub(super) fn command(&self, command: impl std::fmt::Display) -> String {
        match &self.netns {
            None => command.to_string(),
            Some(netns) => format!("ip netns exec {} {command}", quoted(netns)),
        }
    }

    /// A command that writes into a file of its `/sys/class/net`.
    pub(super) fn write(&self, file: &str, value: &str) -> String {
        let path = format!("/sys/class/net/{}/{file}", self.interface());
        match &self.netns {
            None => format!("echo {value} > {path}"),
            // The file is another one outside.
            Some(_) => format!("echo {value} | {}", self.command(format_args!("tee {path}"))),
        }
    }

    /// What a file of its `/sys/class/net` says.
    pub(super) fn file(&self, file: &str) -> Option<String> {
        self.tree.text(&format!("sys/class/net/{}/{file}", self.facts.found.name))
    }

    /// The names in a folder of it.
    pub(super) fn files(&self, folder: &str) -> Vec<String> {
        self.tree.names(&format!("sys/class/net/{}/{folder}", self.facts.found.name))
    }

    /// Whether an offload is on.
    pub(super) fn has(&self, offload: &str) -> bool {
        self.facts.found.offloads.iter().any(|one| one == offload)
    }

    /// Whether it can be changed.
    pub(super) fn can_change(&self, offload: &str) -> bool {
        self.facts.changeable.iter().any(|one| one == offload)
    }

    /// Whether it is one end of a pair without a wire.
    pub(super) fn is_veth(&self) -> bool {
        self.facts.found.driver == "veth"
    }

    /// The most frames a second that its wire can bring: 64 bytes each.
    pub(super) fn most_frames(&self) -> Option<f64> {
        self.facts.found.speed_mbps.map(|mbps| mbps as f64 * 1e6 / 672.0)
    }
}
