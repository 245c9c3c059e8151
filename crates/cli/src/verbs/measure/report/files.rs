//! Report files: JSON, CSV, Markdown and HTML.

use super::Report;
use super::html::html;
use super::sections::sections;
use crate::exit::{error_text, usage};
use crate::privileges::Identity;
use crate::view::terminal::{print_stderr, shown};
use anyhow::Context;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Files that are replaced atomically after each trial: written under another name, then renamed.
#[derive(Default)]
pub(crate) struct Files<'a> {
    files: Vec<ReportFile>,
    /// User who writes the files.
    identity: Option<Identity>,
    /// Receiver of the report as JSON and HTML.
    receiver: Option<&'a mut (dyn FnMut(String, String) + Send)>,
}

/// Report file.
struct ReportFile {
    path: PathBuf,
    form: Form,
    /// Reason why the file is out of date, if it is.
    failure: Option<String>,
}

/// Format of a report.
#[derive(Clone, Copy)]
enum Form {
    Json,
    Csv,
    Markdown,
    Html,
}

impl<'a> Files<'a> {
    /// Passes reports as JSON and HTML to a receiver instead of files.
    #[cfg(feature = "serve")]
    pub(crate) fn for_receiver(receiver: &'a mut (dyn FnMut(String, String) + Send)) -> Self {
        Files { receiver: Some(receiver), ..Files::default() }
    }

    /// Checks that the files can be written by the user who will own them.
    pub(crate) fn create(paths: &[PathBuf], identity: &Identity) -> anyhow::Result<Self> {
        let file = |path: &PathBuf| Ok(ReportFile { path: path.clone(), form: Form::of(path)?, failure: None });
        let files = paths.iter().map(file).collect::<anyhow::Result<Vec<_>>>()?;
        let create = || {
            files.iter().try_for_each(|file| {
                let made = File::create(file.part()).and_then(|_| fs::remove_file(file.part()));
                made.with_context(|| format!("cannot write {}", file.path.display()))
            })
        };
        if !files.is_empty() {
            identity.by(create).map_err(|error| identity.explain(error))?;
        }
        Ok(Files { files, identity: Some(identity.clone()), receiver: None })
    }

    /// Writes the report so far. A failure is reported once, and retried the next time; the measurement continues.
    pub(crate) fn write(&mut self, report: &Report) {
        if let Some(receiver) = &mut self.receiver {
            let [json, html] = [Form::Json, Form::Html].map(|form| form.text(report));
            receiver(json, html);
        }
        let Some(identity) = self.identity.as_ref().filter(|_| !self.files.is_empty()) else { return };
        let texts: Vec<String> = self.files.iter().map(|file| file.form.text(report)).collect();
        let put = || Ok(self.files.iter().zip(&texts).map(|(file, text)| file.put(text)).collect());
        let results: Vec<anyhow::Result<()>> = match identity.by(put) {
            Ok(results) => results,
            Err(error) => self.files.iter().map(|_| Err(anyhow::anyhow!(error_text(&error)))).collect(),
        };
        for (file, result) in self.files.iter_mut().zip(results) {
            let failure = result.err().map(|error| error_text(&error));
            if let Some(new) = failure.as_ref().filter(|_| file.failure.is_none()) {
                print_stderr(format_args!("{}; retrying after the next trial\n", shown(new)));
            }
            file.failure = failure;
        }
    }

    /// Returns the failures of files that are out of date.
    pub(crate) fn failures(&self) -> impl Iterator<Item = &str> {
        self.files.iter().filter_map(|file| file.failure.as_deref())
    }
}

impl ReportFile {
    /// Returns the name of the file while it is being written.
    fn part(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".part");
        name.into()
    }

    fn put(&self, text: &str) -> anyhow::Result<()> {
        let part = self.part();
        let write = || {
            let mut file = File::create(&part)?;
            file.write_all(text.as_bytes())?;
            // Without this a crash of the host could leave an empty file.
            file.sync_data()?;
            fs::rename(&part, &self.path)
        };
        write()
            .inspect_err(|_| drop(fs::remove_file(&part)))
            .with_context(|| format!("cannot write {} (it keeps the previous report)", self.path.display()))
    }
}

impl Form {
    fn of(path: &Path) -> anyhow::Result<Self> {
        Ok(match path.extension().and_then(|ending| ending.to_str()) {
            Some("json") => Form::Json,
            Some("csv") => Form::Csv,
            Some("md") => Form::Markdown,
            Some("html") => Form::Html,
            _ => {
                return Err(usage(format!(
                    "{}: unknown report format; expected .json, .csv, .md or .html",
                    path.display()
                )));
            }
        })
    }

    fn text(self, report: &Report) -> String {
        match self {
            // Cannot fail: keys are strings, and non-finite numbers become null.
            Form::Json => serde_json::to_string_pretty(report).unwrap_or_default() + "\n",
            Form::Csv => csv(report),
            Form::Markdown => markdown(report),
            Form::Html => html(report),
        }
    }
}

/// Returns one line per trial.
fn csv(report: &Report) -> String {
    let mut text =
        "size,trial,test,offered_fps,duration_s,intended,sent,unsent,late,lateness_p99_us,received,lost,loss_ratio,duplicated,reordered,\
                    corrupted,foreign,p50_ns,p99_ns,tester\n"
            .to_owned();
    for size in &report.sizes {
        for row in &size.trials {
            let (account, counts) = (&row.account, &row.account.counts);
            let nanos = |nanos: Option<i64>| nanos.map_or_else(String::new, |nanos| nanos.to_string());
            let cells = [
                size.size.to_string(),
                row.trial.to_string(),
                row.test.to_owned(),
                row.offered.to_string(),
                row.duration_s.to_string(),
                counts.intended.to_string(),
                counts.sent.to_string(),
                counts.unsent.to_string(),
                counts.late.to_string(),
                account.lateness_p99_us.map_or_else(String::new, |us| us.to_string()),
                counts.received.to_string(),
                counts.lost.to_string(),
                counts.loss_ratio.to_string(),
                counts.duplicated.to_string(),
                counts.reordered.to_string(),
                counts.corrupted.to_string(),
                counts.foreign.to_string(),
                nanos(account.latency.latency_p50_ns),
                nanos(account.latency.latency_p99_ns),
                account.tester.as_deref().unwrap_or_default().replace([',', '"', '\n'], " "),
            ];
            let _ = writeln!(text, "{}", cells.join(","));
        }
    }
    text
}

/// Returns the facts above the results.
pub(super) fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let estimated = match report.estimated_s > 0.0 {
        true => format!(" (estimated {})", super::clock(report.estimated_s)),
        false => String::new(),
    };
    let mut facts = vec![
        ("result", report.summary()),
        ("device", report.device.clone().unwrap_or_default()),
        ("started", report.environment.started()),
        ("command", report.command.clone()),
        ("state", report.state.to_owned()),
        ("method", [&[report.method][..], &report.tests].concat().join(" ")),
        ("transmit port", report.to.clone()),
        ("receive port", report.check.clone()),
        ("directions", if report.bidirectional { "both" } else { "one" }.to_owned()),
        ("packets", report.packets.join(", ")),
        ("load", report.load.to_owned()),
        ("pauses", format!("a trial ends after {} s of silence; {} s between trials", report.quiet_s, report.settle_s)),
        ("duration", super::clock(report.seconds) + &estimated),
        ("version", format!("linerate {}", report.version)),
    ];
    facts.retain(|(_, what)| !what.is_empty());
    for goal in &report.goals {
        let what = format!(
            "{}: loss {} %, exceed ratio {} %, precision {} %, trials of {} to {} s, {} s in total per load",
            goal.name,
            goal.loss_ratio * 100.0,
            goal.exceed_ratio * 100.0,
            goal.width * 100.0,
            goal.initial_trial_s.min(goal.final_trial_s),
            goal.final_trial_s,
            goal.duration_sum_s,
        );
        facts.push(("goal", what));
    }
    facts.extend(report.environment.facts());
    facts.extend(report.remarks().into_iter().map(|remark| ("note", remark)));
    facts.extend(report.failure.iter().map(|failure| ("failure", failure.clone())));
    facts
}

fn markdown(report: &Report) -> String {
    let plain = |text: &str| text.replace(['|', '`', '<', '\n'], " ");
    let mut text = "# Measurement\n\n".to_owned();
    for (name, what) in facts(report) {
        let _ = writeln!(text, "- {name}: {}", plain(&what));
    }
    for section in sections(report) {
        let _ = write!(text, "\n## {}\n\n", plain(&section.title));
        let _ = write!(text, "| {} |\n|{}\n", section.heads.join(" | "), "---|".repeat(section.heads.len()));
        for row in &section.rows {
            let cells: Vec<String> = row.iter().map(|cell| plain(cell)).collect();
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::chart::plain_html;

    #[test]
    fn names_are_escaped_and_formats_recognised() {
        assert_eq!(plain_html("<img onerror=\"x\">&"), "&lt;img onerror=&quot;x&quot;&gt;&amp;");
        for (name, is_form) in
            [("a.json", true), ("a.html", true), ("a.md", true), ("a.csv", true), ("a", false), ("a.txt", false)]
        {
            assert_eq!(Form::of(Path::new(name)).is_ok(), is_form, "{name}");
        }
    }
}
