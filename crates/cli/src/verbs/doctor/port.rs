//! A port to check: its interface and its backend.

use super::tree::Tree;
use crate::view::terminal::fail;
use anyhow::Context;
use linerate_backends::REGISTRY;
use linerate_backends::interface::{InterfaceDetails, facts};
use linerate_backends::inventory::interfaces;
use linerate_backends::netns::{sysfs, within};
pub(super) use linerate_burst::text::quoted;
use linerate_port::Spec;
use std::borrow::Cow;
use std::io::{self, ErrorKind};

/// A port on an interface of this machine.
#[derive(Debug)]
pub(super) struct Port {
    /// As given by the user.
    pub name: String,
    /// True if the port uses XDP.
    pub is_xdp: bool,
    /// Network namespace, if not that of this process.
    pub netns: Option<String>,
    /// Settings and counters of the kernel and the driver.
    pub facts: InterfaceDetails,
    /// Files of its namespace.
    pub tree: Tree,
}

impl Port {
    /// Reads the interface of a port.
    pub(super) fn look(spec: &Spec) -> anyhow::Result<Port> {
        let at = REGISTRY.interface(spec).with_context(|| {
            format!("{spec}: not an interface of this host; expected a port such as eth0 or xdp:eth0")
        })?;
        let netns = at.option("netns").map(str::to_owned);
        Port::of(spec.to_string(), at.scheme == "xdp", &at.target, netns)
            .map_err(|error| anyhow::anyhow!("{spec}: {error}"))
    }

    /// Returns all interfaces of this network namespace that are up, except loopback. One that disappears is skipped; one
    /// that cannot be read is reported and skipped.
    pub(super) fn all() -> anyhow::Result<Vec<Port>> {
        let found = interfaces(None).context("cannot list interfaces")?;
        let names = found.into_iter().filter(|one| one.name != "lo" && one.up).map(|one| one.name);
        Ok(names
            .filter_map(|name| {
                Port::of(format!("packet:{name}"), false, &name, None)
                    .inspect_err(|error| {
                        if error.kind() != ErrorKind::NotFound {
                            fail(format_args!("{name}: {error}; not checked"));
                        }
                    })
                    .ok()
            })
            .collect())
    }

    /// Reads an interface by its name, which need not be valid in a port.
    fn of(name: String, is_xdp: bool, interface: &str, netns: Option<String>) -> io::Result<Port> {
        let (facts, tree) = within(netns.as_deref(), || {
            // Without privileges only /sys is available; it shows the namespace of the process that mounted it.
            let tree = sysfs().map_or_else(|_| Tree::at("/"), Tree::with_sys);
            Ok((facts(interface)?, tree))
        })?;
        Ok(Port { name, is_xdp, netns, facts, tree })
    }

    /// Returns the name of the interface, quoted for a shell.
    pub(super) fn interface(&self) -> Cow<'_, str> {
        quoted(&self.facts.found.name)
    }

    /// Returns a command in the namespace of the interface.
    pub(super) fn command(&self, command: impl std::fmt::Display) -> String {
        match &self.netns {
            None => command.to_string(),
            Some(netns) => format!("ip netns exec {} {command}", quoted(netns)),
        }
    }

    /// Returns a command that writes a file of its `/sys/class/net`.
    pub(super) fn write(&self, file: &str, value: &str) -> String {
        let path = format!("/sys/class/net/{}/{file}", self.interface());
        match &self.netns {
            None => format!("echo {value} > {path}"),
            // Outside the namespace the path is another file.
            Some(_) => format!("echo {value} | {}", self.command(format_args!("tee {path}"))),
        }
    }

    /// Returns the text of a file of its `/sys/class/net`.
    pub(super) fn file(&self, file: &str) -> Option<String> {
        self.tree.text(&format!("sys/class/net/{}/{file}", self.facts.found.name))
    }

    /// Returns the names in a folder of it.
    pub(super) fn files(&self, folder: &str) -> Vec<String> {
        self.tree.names(&format!("sys/class/net/{}/{folder}", self.facts.found.name))
    }

    /// Returns whether an offload is on.
    pub(super) fn has(&self, offload: &str) -> bool {
        self.facts.found.offloads.iter().any(|one| one == offload)
    }

    /// Returns whether an offload can be changed.
    pub(super) fn can_change(&self, offload: &str) -> bool {
        self.facts.changeable.iter().any(|one| one == offload)
    }

    /// Returns whether it is one end of a veth pair.
    pub(super) fn is_veth(&self) -> bool {
        self.facts.found.driver == "veth"
    }

    /// Returns the maximum rate in frames of 64 bytes per second.
    pub(super) fn most_frames(&self) -> Option<f64> {
        self.facts.found.speed_mbps.map(|mbps| mbps as f64 * 1e6 / 672.0)
    }
}
