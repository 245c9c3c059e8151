//! What was found, how bad it is, and what mends it.

use super::fix::Fix;
use super::port::Port;
use super::tree::Tree;
use serde::Serialize;
use std::path::PathBuf;

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// Frames may get lost at load, or look other than on the wire.
    Warn,
    /// Frames get lost, or do not come at all.
    Bad,
}

/// What a check has found.
#[derive(Debug)]
pub(super) struct Finding {
    pub severity: Severity,
    /// How it is now.
    pub now: String,
    /// Why that matters, in one sentence.
    pub why: String,
    /// Commands that mend it.
    pub mend: Vec<String>,
    /// Those of them that `--fix` does by itself: they can be put back.
    pub fixes: Vec<Fix>,
}

impl Finding {
    pub(super) fn new(severity: Severity, now: impl Into<String>, why: impl Into<String>) -> Self {
        Finding { severity, now: now.into(), why: why.into(), mend: Vec::new(), fixes: Vec::new() }
    }

    pub(super) fn ok(now: impl Into<String>, why: impl Into<String>) -> Self {
        Finding::new(Severity::Ok, now, why)
    }

    pub(super) fn note(now: impl Into<String>, why: impl Into<String>) -> Self {
        Finding::new(Severity::Note, now, why)
    }

    pub(super) fn warn(now: impl Into<String>, why: impl Into<String>) -> Self {
        Finding::new(Severity::Warn, now, why)
    }

    pub(super) fn bad(now: impl Into<String>, why: impl Into<String>) -> Self {
        Finding::new(Severity::Bad, now, why)
    }

    /// A command that mends it.
    pub(super) fn mend(mut self, command: impl Into<String>) -> Self {
        self.mend.push(command.into());
        self
    }

    /// What `--fix` does about it; its command is that of the fix unless one was given.
    pub(super) fn fix(mut self, fix: Fix, port: Option<&Port>) -> Self {
        if self.fixes.len() == self.mend.len() {
            self.mend.push(fix.command(port));
        }
        self.fixes.push(fix);
        self
    }
}

/// The machine that is looked at.
#[derive(Debug)]
pub(super) struct Machine {
    /// Its files.
    pub tree: Tree,
    /// Where captures are to be written, if that is asked.
    pub folder: Option<PathBuf>,
    /// The firewall's rules with their counters, if a program lists them.
    pub rules: Option<String>,
}

impl Machine {
    /// The processors that are there.
    pub(super) fn processors(&self) -> Vec<u32> {
        super::tree::members(&self.tree.text("sys/devices/system/cpu/online").unwrap_or_default())
    }
}

/// A row: what is looked at, and how. What does not exist on a machine is not spoken of.
pub(super) struct Check {
    /// Its name, in the output and in JSON.
    pub name: &'static str,
    /// Looks.
    pub look: Look,
}

/// At what a check looks.
#[derive(Clone, Copy)]
pub(super) enum Look {
    /// At the machine.
    Machine(fn(&Machine) -> Option<Finding>),
    /// At a port.
    Port(fn(&Machine, &Port) -> Option<Finding>),
}

impl Check {
    pub(super) const fn machine(name: &'static str, look: fn(&Machine) -> Option<Finding>) -> Self {
        Check { name, look: Look::Machine(look) }
    }

    pub(super) const fn port(name: &'static str, look: fn(&Machine, &Port) -> Option<Finding>) -> Self {
        Check { name, look: Look::Port(look) }
    }
}
