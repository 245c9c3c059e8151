//! Output of findings as text and JSON.

use super::finding::{Finding, Severity};
use super::port::Port;
use super::self_test::SelfTestResult;
use crate::view::rates::counted;
use crate::view::terminal::{show, show_as_is, show_document, shown};
use serde::Serialize;

/// A finding of a port, or of the machine.
#[derive(Debug)]
pub(super) struct PortFinding<'a> {
    pub port: Option<&'a Port>,
    pub check: &'static str,
    pub finding: Finding,
}

impl PortFinding<'_> {
    fn of(&self) -> &str {
        self.port.map_or("machine", |port| &port.name)
    }
}

/// Prints findings of at least this severity, and the number of each.
pub(super) fn print(found: &[PortFinding<'_>], least: Severity) {
    let mut of = None;
    for one in found {
        if of != Some(one.of()) {
            of = Some(one.of());
            show(format_args!("{}\n", shown(one.of())));
            let is_all_hidden =
                found.iter().filter(|other| other.of() == one.of()).all(|other| is_hidden(other, least));
            if is_all_hidden {
                show("  ok\n");
            }
        }
        if !is_hidden(one, least) {
            print_one(one);
        }
    }
    let count = |severity: Severity| found.iter().filter(|one| one.finding.severity == severity).count() as u64;
    show(format_args!(
        "\n{}, {}, {}, {} ok\n",
        counted(count(Severity::Bad), "error"),
        counted(count(Severity::Warn), "warning"),
        counted(count(Severity::Note), "note"),
        count(Severity::Ok)
    ));
}

/// Returns whether a finding is not shown. Notes of the machine always are.
fn is_hidden(one: &PortFinding<'_>, least: Severity) -> bool {
    let least = if one.port.is_none() { least.min(Severity::Note) } else { least };
    one.finding.severity < least
}

fn print_one(one: &PortFinding<'_>) {
    let Finding { severity, now, why, remedies, .. } = &one.finding;
    show(format_args!("  {:7}  {}: {}\n", word(*severity), one.check, shown(now)));
    show(format_args!("           {}\n", shown(why)));
    // One unfolded line each, for pasting.
    for command in remedies {
        show_as_is(format!("    {}\n", shown(command)).as_bytes());
    }
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "ok",
        Severity::Note => "note",
        Severity::Warn => "warning",
        Severity::Bad => "error",
    }
}

/// Prints all findings as one JSON document.
pub(super) fn document(found: &[PortFinding<'_>], self_test: Option<&SelfTestResult>) -> anyhow::Result<()> {
    let worst = found.iter().map(|one| one.finding.severity).max().unwrap_or(Severity::Ok);
    let findings = found.iter().map(FindingJson::new).collect();
    show_document(&DoctorJson { schema: "linerate/doctor/1", worst, findings, self_test })?;
    Ok(())
}

#[derive(Serialize)]
struct DoctorJson<'a> {
    schema: &'static str,
    worst: Severity,
    findings: Vec<FindingJson<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    self_test: Option<&'a SelfTestResult>,
}

#[derive(Serialize)]
struct FindingJson<'a> {
    /// `None` for the machine.
    port: Option<&'a str>,
    check: &'static str,
    severity: Severity,
    now: &'a str,
    why: &'a str,
    fix: &'a [String],
    /// True if `--fix` fixes it.
    fixed_by_fix: bool,
}

impl<'a> FindingJson<'a> {
    fn new(one: &'a PortFinding<'_>) -> Self {
        let Finding { severity, now, why, remedies, fixes } = &one.finding;
        FindingJson {
            port: one.port.map(|port| port.name.as_str()),
            check: one.check,
            severity: *severity,
            now,
            why,
            fix: remedies,
            fixed_by_fix: !fixes.is_empty() && *severity >= Severity::Warn,
        }
    }
}
