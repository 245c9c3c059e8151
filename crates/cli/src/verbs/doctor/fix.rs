//! Changes that `--fix` makes and restores.

use super::port::{Port, quoted};
use super::tree::Tree;
use crate::view::terminal::{fail, print_unfolded};
use anyhow::{Context, bail};
use linerate_backends::interface::Changer;
use linerate_backends::netns::within;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;

/// A change that can be restored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fix {
    /// Turns an offload on or off.
    Feature { name: String, on: bool },
    /// Sets the number of descriptors of the receive rings.
    RxRing(u32),
    /// Writes a file below `/proc` or `/sys`.
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

    /// Returns the equivalent shell command.
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

/// A change to make, and its port.
#[derive(Debug)]
pub(super) struct Step<'a> {
    pub port: Option<&'a Port>,
    pub fix: Fix,
}

impl<'a> Step<'a> {
    /// Makes the change, and returns how to restore it.
    fn make(&self, tree: &Tree) -> io::Result<Undo<'a>> {
        let changer = self.port.map(changer).transpose()?;
        let back = self.fix.make(tree, changer.as_ref())?;
        // A driver may round the number.
        let set = self.fix.now(tree, changer.as_ref())?;
        Ok(Undo { port: self.port, changer, set, back })
    }

    fn command(&self) -> String {
        self.fix.command(self.port)
    }
}

impl Fix {
    /// Makes the change, and returns the previous state.
    fn make(&self, tree: &Tree, changer: Option<&Changer>) -> io::Result<Fix> {
        let of_port = || changer.ok_or(io::ErrorKind::InvalidInput);
        Ok(match self {
            Fix::File { path, value } => Fix::file(path, tree.replace(path, value)?),
            Fix::Feature { name, on } => Fix::Feature { name: name.clone(), on: of_port()?.set_feature(name, *on)? },
            Fix::RxRing(descriptors) => Fix::RxRing(of_port()?.set_rx_ring(*descriptors)?),
        })
    }

    /// Returns the current state.
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

/// Restores a change.
#[derive(Debug)]
struct Undo<'a> {
    port: Option<&'a Port>,
    /// Handle of the changed interface: its name may belong to another one by then.
    changer: Option<Changer>,
    /// State right after the change.
    set: Fix,
    back: Fix,
}

impl Undo<'_> {
    /// Restores it, and returns false without doing so if it was changed by another program since.
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

/// Lock for changes of this host. Of two concurrent runs the second would restore what the first one had set.
#[derive(Debug)]
pub(super) struct FixLock {
    _locked: File,
}

impl FixLock {
    /// Takes the lock, until this is dropped or the process ends.
    pub(super) fn take() -> anyhow::Result<FixLock> {
        // Only root can create files there.
        const LOCK: &str = "/run/linerate-doctor.lock";
        let opened = File::options().create(true).truncate(false).write(true).mode(0o600).open(LOCK);
        let file = opened.with_context(|| format!("--fix: cannot open {LOCK}; run as root"))?;
        match file.try_lock() {
            Ok(()) => Ok(FixLock { _locked: file }),
            Err(TryLockError::WouldBlock) => {
                bail!(
                    "another linerate doctor --fix runs on this host ({LOCK}); stop it first, and it restores its changes"
                )
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("--fix: cannot lock {LOCK}")),
        }
    }
}

/// Changes that were made. Dropping this restores them, the last one first.
#[derive(Debug)]
pub(super) struct AppliedFixes<'a> {
    tree: &'a Tree,
    undo: Vec<Undo<'a>>,
}

impl<'a> AppliedFixes<'a> {
    /// Makes changes; one that fails is reported, and the others are made. Prints how to restore each, for the case that this
    /// process is killed.
    pub(super) fn make(tree: &'a Tree, steps: Vec<Step<'a>>) -> AppliedFixes<'a> {
        let mut made = AppliedFixes { tree, undo: Vec::new() };
        for step in steps {
            let command = step.command();
            match step.make(tree) {
                Ok(undo) => {
                    print_unfolded(&format!("fixed: {command}"));
                    print_unfolded(&format!("  undo: {}", undo.command()));
                    made.undo.push(undo);
                }
                Err(error) => fail(format_args!("{command}: {error}; not changed")),
            }
        }
        made
    }

    /// Returns the number of changes.
    pub(super) fn len(&self) -> usize {
        self.undo.len()
    }
}

impl Drop for AppliedFixes<'_> {
    fn drop(&mut self) {
        while let Some(undo) = self.undo.pop() {
            let command = undo.command();
            match undo.make(self.tree) {
                Ok(true) => print_unfolded(&format!("restored: {command}")),
                Ok(false) => {
                    fail("changed by another program since, not restored; to restore it:");
                    print_unfolded(&format!("  {command}"));
                }
                Err(error) => {
                    fail(format_args!("cannot restore: {error}; to restore it:"));
                    print_unfolded(&format!("  {command}"));
                }
            }
        }
    }
}
