//! What `--fix` does, and how it is put back.

use super::port::Port;
use super::tree::Tree;
use crate::view::terminal::{fail, shown, tell};
use linerate_backends::interface::Changer;
use linerate_backends::netns::within;
use std::io;

/// A change that can be put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fix {
    /// An offload, turned on or off.
    Feature { name: String, on: bool },
    /// Descriptors of the receive rings.
    RxRing(u32),
    /// What a file below `/proc` or `/sys` says.
    File { path: String, value: String },
}

impl Fix {
    /// Turns an offload off.
    pub fn off(name: &str) -> Self {
        Fix::Feature { name: name.to_owned(), on: false }
    }

    /// Writes into a file.
    pub fn file(path: impl Into<String>, value: impl Into<String>) -> Self {
        Fix::File { path: path.into(), value: value.into() }
    }

    /// The command that does the same.
    pub fn command(&self, port: Option<&Port>) -> String {
        let of_port = |command: String| port.map_or_else(|| command.clone(), |port| port.command(&command));
        let interface = port.map(Port::interface).unwrap_or_default();
        match self {
            Fix::Feature { name, on } => {
                of_port(format!("ethtool -K {interface} {name} {}", if *on { "on" } else { "off" }))
            }
            Fix::RxRing(descriptors) => of_port(format!("ethtool -G {interface} rx {descriptors}")),
            Fix::File { path, value } => match path.strip_prefix("proc/sys/") {
                Some(name) => format!("sysctl -w {}={value}", name.replace('/', ".")),
                None => format!("tee /{path} <<< {value}"),
            },
        }
    }
}

/// A change to be made: where, and what.
#[derive(Debug)]
pub struct Step<'a> {
    pub port: Option<&'a Port>,
    pub fix: Fix,
}

impl Step<'_> {
    /// Makes the change, and says by what it is put back.
    fn make(&self, tree: &Tree) -> io::Result<Fix> {
        Ok(match (&self.fix, self.port) {
            (Fix::File { path, value }, _) => Fix::File { path: path.clone(), value: tree.replace(path, value)? },
            (Fix::Feature { name, on }, Some(port)) => {
                Fix::Feature { name: name.clone(), on: changer(port)?.set_feature(name, *on)? }
            }
            (Fix::RxRing(descriptors), Some(port)) => Fix::RxRing(changer(port)?.set_rx_ring(*descriptors)?),
            (Fix::Feature { .. } | Fix::RxRing(_), None) => return Err(io::ErrorKind::InvalidInput.into()),
        })
    }

    fn command(&self) -> String {
        self.fix.command(self.port)
    }
}

fn changer(port: &Port) -> io::Result<Changer> {
    within(port.netns.as_deref(), || Changer::new(&port.facts.found.name))
}

/// Changes that were made; put back, the last one first, when this goes, however that is.
#[derive(Debug)]
pub struct Made<'a> {
    tree: &'a Tree,
    undo: Vec<Step<'a>>,
}

impl<'a> Made<'a> {
    /// Makes changes. One that cannot be made is said, and the others are made. Whoever kills this process so that it cannot put
    /// anything back has read how it is done by hand.
    pub fn make(tree: &'a Tree, steps: Vec<Step<'a>>) -> Made<'a> {
        let mut made = Made { tree, undo: Vec::new() };
        for step in steps {
            let command = step.command();
            match step.make(tree) {
                Ok(back) => {
                    let back = Step { port: step.port, fix: back };
                    tell(format_args!("mended: {}\n  back:   {}\n", shown(&command), shown(&back.command())));
                    made.undo.push(back);
                }
                Err(error) => fail(format_args!("{command}: {error}: left as it is")),
            }
        }
        made
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.undo.len()
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        while let Some(step) = self.undo.pop() {
            match step.make(self.tree) {
                Ok(_) => tell(format_args!("put back: {}\n", shown(&step.command()))),
                Err(error) => fail(format_args!("cannot be put back: {error}: do it by {}", step.command())),
            }
        }
    }
}
