//! Findings: severity, state, reason and remedy.

use super::fix::Fix;
use super::port::Port;
use super::tree::Tree;
use serde::Serialize;
use std::path::PathBuf;

/// Severity of a finding; JSON prints these names, text prints ok, note, warning and error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// Check passed.
    Ok,
    /// Worth knowing; what is better depends on the use.
    Note,
    /// Packets may be lost under load, or differ from those on the wire.
    #[serde(rename = "warning")]
    Warn,
    /// Packets are lost, or do not arrive at all.
    #[serde(rename = "error")]
    Bad,
}

/// Result of a check.
#[derive(Debug)]
pub(super) struct Finding {
    pub severity: Severity,
    /// Current state.
    pub now: String,
    /// Why that matters, in one sentence.
    pub why: String,
    /// Commands that fix it; key `fix` in JSON.
    pub remedies: Vec<String>,
    /// Those that `--fix` applies, since they can be restored.
    pub fixes: Vec<Fix>,
}

impl Finding {
    pub(super) fn new(severity: Severity, now: impl Into<String>, why: impl Into<String>) -> Self {
        Finding { severity, now: now.into(), why: why.into(), remedies: Vec::new(), fixes: Vec::new() }
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

    /// Adds a command that fixes it.
    pub(super) fn remedy(mut self, command: impl Into<String>) -> Self {
        self.remedies.push(command.into());
        self
    }

    /// Adds a change for `--fix`, and its command unless one was given.
    pub(super) fn fix(mut self, fix: Fix, port: Option<&Port>) -> Self {
        if self.fixes.len() == self.remedies.len() {
            self.remedies.push(fix.command(port));
        }
        self.fixes.push(fix);
        self
    }
}

/// The host to check.
#[derive(Debug)]
pub(super) struct Machine {
    pub tree: Tree,
    /// Directory for captures, if given.
    pub folder: Option<PathBuf>,
    /// Firewall rules with their counters, if a program lists them.
    pub rules: Option<String>,
}

impl Machine {
    /// Returns the processors that are online.
    pub(super) fn processors(&self) -> Vec<u32> {
        super::tree::members(&self.tree.text("sys/devices/system/cpu/online").unwrap_or_default())
    }
}

/// A check. It returns `None` where its subject does not exist.
pub(super) struct Check {
    /// Name in text and JSON.
    pub name: &'static str,
    pub look: CheckFunction,
}

/// Subject of a check, and its function.
#[derive(Clone, Copy)]
pub(super) enum CheckFunction {
    Machine(fn(&Machine) -> Option<Finding>),
    Port(fn(&Machine, &Port) -> Option<Finding>),
}

impl Check {
    pub(super) const fn machine(name: &'static str, look: fn(&Machine) -> Option<Finding>) -> Self {
        Check { name, look: CheckFunction::Machine(look) }
    }

    pub(super) const fn port(name: &'static str, look: fn(&Machine, &Port) -> Option<Finding>) -> Self {
        Check { name, look: CheckFunction::Port(look) }
    }
}
