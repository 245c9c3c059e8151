//! What was found, for people and as a document.

use super::finding::{Finding, Severity};
use super::port::Port;
use super::self_test::Tested;
use crate::view::terminal::{show, show_as_is, show_document, shown};
use serde::Serialize;

/// One finding, and whose it is: a port's, or the machine's.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub port: Option<&'a Port>,
    pub check: &'static str,
    pub finding: Finding,
}

impl Found<'_> {
    fn of(&self) -> &str {
        self.port.map_or("machine", |port| &port.name)
    }
}

/// Prints what is at least this bad, and how much is better.
pub(super) fn print(found: &[Found<'_>], least: Severity) {
    let mut of = None;
    for one in found {
        if of != Some(one.of()) {
            of = Some(one.of());
            show(format_args!("{}\n", shown(one.of())));
            let is_all_hidden =
                found.iter().filter(|other| other.of() == one.of()).all(|other| is_hidden(other, least));
            if is_all_hidden {
                show("  nothing to say\n");
            }
        }
        if !is_hidden(one, least) {
            print_one(one);
        }
    }
    let count = |severity: Severity| found.iter().filter(|one| one.finding.severity == severity).count();
    show(format_args!(
        "\n{} bad, {} to be warned of, {} to note, {} as it should be\n",
        count(Severity::Bad),
        count(Severity::Warn),
        count(Severity::Note),
        count(Severity::Ok)
    ));
}

/// The machine itself is shown whole from what is to note on.
fn is_hidden(one: &Found<'_>, least: Severity) -> bool {
    let least = if one.port.is_none() { least.min(Severity::Note) } else { least };
    one.finding.severity < least
}

fn print_one(one: &Found<'_>) {
    let Finding { severity, now, why, mend, .. } = &one.finding;
    show(format_args!("  {:4}  {}: {}\n", word(*severity), one.check, shown(now)));
    show(format_args!("        {}\n", shown(why)));
    // To be pasted: a line each, that nothing folds.
    for command in mend {
        show_as_is(format!("    {}\n", shown(command)).as_bytes());
    }
}

fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Ok => "ok",
        Severity::Note => "note",
        Severity::Warn => "warn",
        Severity::Bad => "BAD",
    }
}

/// Prints all as one document.
pub(super) fn document(found: &[Found<'_>], self_test: Option<&Tested>) -> anyhow::Result<()> {
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
    self_test: Option<&'a Tested>,
}

#[derive(Serialize)]
struct FindingJson<'a> {
    /// Nothing where it is about the machine.
    port: Option<&'a str>,
    check: &'static str,
    severity: Severity,
    now: &'a str,
    why: &'a str,
    mend: &'a [String],
    /// Whether `--fix` does it.
    fixed_by_fix: bool,
}

impl<'a> FindingJson<'a> {
    fn new(one: &'a Found<'_>) -> Self {
        let Finding { severity, now, why, mend, fixes } = &one.finding;
        FindingJson {
            port: one.port.map(|port| port.name.as_str()),
            check: one.check,
            severity: *severity,
            now,
            why,
            mend,
            fixed_by_fix: !fixes.is_empty() && *severity >= Severity::Warn,
        }
    }
}
