//! What `--fix` does, and how it is put back.

use super::port::{Port, quoted};
use super::tree::Tree;
use crate::view::terminal::{fail, tell_whole};
use anyhow::{Context, bail};
use linerate_backends::interface::Changer;
use linerate_backends::netns::within;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;

/// A change that can be put back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fix {
    /// An offload, turned on or off.
    Feature { name: String, on: bool },
    /// Descriptors of the receive rings.
    RxRing(u32),
    /// What a file below `/proc` or `/sys` says.
    File { path: String, value: String },
}

impl Fix {
    /// Turns an offload off.
    pub(super) fn off(name: &str) -> Self {
        Fix::Feature { name: name.to_owned(), on: false }
    }

    /// Writes into a file.
    pub(super) fn file(path: impl Into<String>, value: impl Into<String>) -> Self {
        Fix::File { path: path.into(), value: value.into() }
    }

    /// The command that does the same.
    pub(super) fn command(&self, port: Option<&Port>) -> String {
        let of_port = |command: String| port.map_or_else(|| command.clone(), |port| port.command(&command));
        let interface = port.map(Port::interface).unwrap_or_default();
        match self {
            Fix::Feature { name, on } => {
                of_port(format!("ethtool -K {interface} {name} {}", if *on { "on" } else { "off" }))
            }
            Fix::RxRing(descriptors) => of_port(format!("ethtool -G {interface} rx {descriptors}")),
            Fix::File { path, value } => match path.strip_prefix("proc/sys/") {
                Some(name) => format!("sysctl -w {}={}", name.replace('/', "."), quoted(value)),
                None => format!("echo {} > /{path}", quoted(value)),
            },
        }
    }
}

/// A change to be made: where, and what.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub port: Option<&'a Port>,
    pub fix: Fix,
}

impl<'a> Step<'a> {
    /// Makes the change, and says how it is put back.
    fn make(&self, tree: &Tree) -> io::Result<Undo<'a>> {
        let changer = self.port.map(changer).transpose()?;
        let back = self.fix.make(tree, changer.as_ref())?;
        // A driver may take another number than it was given.
        let set = self.fix.now(tree, changer.as_ref())?;
        Ok(Undo { port: self.port, changer, set, back })
    }

    fn command(&self) -> String {
        self.fix.command(self.port)
    }
}

impl Fix {
    /// Makes the change, and says what there was.
    fn make(&self, tree: &Tree, changer: Option<&Changer>) -> io::Result<Fix> {
        let of_port = || changer.ok_or(io::ErrorKind::InvalidInput);
        Ok(match self {
            Fix::File { path, value } => Fix::file(path, tree.replace(path, value)?),
            Fix::Feature { name, on } => Fix::Feature { name: name.clone(), on: of_port()?.set_feature(name, *on)? },
            Fix::RxRing(descriptors) => Fix::RxRing(of_port()?.set_rx_ring(*descriptors)?),
        })
    }

    /// What there is of the same.
    fn now(&self, tree: &Tree, changer: Option<&Changer>) -> io::Result<Fix> {
        let of_port = || changer.ok_or(io::ErrorKind::InvalidInput);
        Ok(match self {
            Fix::File { path, .. } => Fix::file(path, tree.text(path).ok_or(io::ErrorKind::NotFound)?),
            Fix::Feature { name, .. } => Fix::Feature { name: name.clone(), on: of_port()?.has_feature(name)? },
            Fix::RxRing(_) => Fix::RxRing(of_port()?.rx_ring()?),
        })
    }
}

fn changer(port: &Port) -> io::Result<Changer> {
    let found = &port.facts.found;
    within(port.netns.as_deref(), || Changer::new(&found.name, found.index))
}

/// How a change is put back.
#[derive(Debug)]
struct Undo<'a> {
    port: Option<&'a Port>,
    /// That made it: a name may be another interface's by then.
    changer: Option<Changer>,
    /// What was there when it was made.
    set: Fix,
    back: Fix,
}

impl Undo<'_> {
    /// Puts it back; not so where somebody else has changed the same since.
    fn make(&self, tree: &Tree) -> io::Result<bool> {
        if self.set.now(tree, self.changer.as_ref())? != self.set {
            return Ok(false);
        }
        self.back.make(tree, self.changer.as_ref()).map(|_| true)
    }

    fn command(&self) -> String {
        self.back.command(self.port)
    }
}

/// The right to change this machine. Of two that did so at once the second would put back what the first one had set.
#[derive(Debug)]
pub(super) struct Turn {
    _locked: File,
}

impl Turn {
    /// Takes it, until this goes or the process ends.
    pub(super) fn take() -> anyhow::Result<Turn> {
        // Root alone can make files there.
        const LOCK: &str = "/run/linerate-doctor.lock";
        let opened = File::options().create(true).truncate(false).write(true).mode(0o600).open(LOCK);
        let file = opened.with_context(|| format!("--fix: cannot open {LOCK}, which root alone may"))?;
        match file.try_lock() {
            Ok(()) => Ok(Turn { _locked: file }),
            Err(TryLockError::WouldBlock) => {
                bail!("another linerate doctor --fix runs on this machine ({LOCK}): end it first, and it puts all back")
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("--fix: cannot lock {LOCK}")),
        }
    }
}

/// Changes that were made; put back, the last one first, when this goes, however that is.
#[derive(Debug)]
pub(super) struct Made<'a> {
    tree: &'a Tree,
    undo: Vec<Undo<'a>>,
}

impl<'a> Made<'a> {
    /// Makes changes. One that cannot be made is said, and the others are made. Whoever kills this process so that it cannot put
    /// anything back has read how it is done by hand.
    pub(super) fn make(tree: &'a Tree, steps: Vec<Step<'a>>) -> Made<'a> {
        let mut made = Made { tree, undo: Vec::new() };
        for step in steps {
            let command = step.command();
            match step.make(tree) {
                Ok(undo) => {
                    tell_whole(&format!("mended: {command}"));
                    tell_whole(&format!("  back:   {}", undo.command()));
                    made.undo.push(undo);
                }
                Err(error) => fail(format_args!("{command}: {error}: left as it is")),
            }
        }
        made
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.undo.len()
    }
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        while let Some(undo) = self.undo.pop() {
            let command = undo.command();
            match undo.make(self.tree) {
                Ok(true) => tell_whole(&format!("put back: {command}")),
                Ok(false) => {
                    fail("changed by somebody else meanwhile: left; before all it was as this makes it:");
                    tell_whole(&format!("  {command}"));
                }
                Err(error) => {
                    fail(format_args!("cannot be put back: {error}: do it by"));
                    tell_whole(&format!("  {command}"));
                }
            }
        }
    }
}
