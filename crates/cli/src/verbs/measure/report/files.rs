//! Reports as files: what a document says, for other readers.

use super::Report;
use super::html::html;
use super::sections::sections;
use crate::exit::{told, usage};
use crate::privileges::Identity;
use crate::view::terminal::{shown, tell};
use anyhow::Context;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

/// Files that are written again after every trial, each whole or not at all: beside its place, and then put there.
#[derive(Default)]
pub(crate) struct Files<'a> {
    files: Vec<Kept>,
    /// Who writes them.
    identity: Option<Identity>,
    /// Who gets it as JSON and as HTML.
    told: Option<&'a mut (dyn FnMut(String, String) + Send)>,
}

/// One of them.
struct Kept {
    path: PathBuf,
    form: Form,
    /// Why the file is older than what is known, if it is.
    failure: Option<String>,
}

/// What a report is written as.
#[derive(Clone, Copy)]
enum Form {
    Json,
    Csv,
    Markdown,
    Html,
}

impl<'a> Files<'a> {
    /// For somebody who gets them as JSON and as HTML.
    #[cfg(feature = "serve")]
    pub(crate) fn told(told: &'a mut (dyn FnMut(String, String) + Send)) -> Self {
        Files { told: Some(told), ..Files::default() }
    }

    /// Finds out that they can be written, by whoever is to have them.
    pub(crate) fn create(paths: &[PathBuf], identity: &Identity) -> anyhow::Result<Self> {
        let kept = |path: &PathBuf| Ok(Kept { path: path.clone(), form: Form::of(path)?, failure: None });
        let files = paths.iter().map(kept).collect::<anyhow::Result<Vec<_>>>()?;
        let create = || {
            files.iter().try_for_each(|file| {
                let made = File::create(file.beside()).and_then(|_| fs::remove_file(file.beside()));
                made.with_context(|| format!("cannot write {}", file.path.display()))
            })
        };
        if !files.is_empty() {
            identity.by(create).map_err(|error| identity.explain(error))?;
        }
        Ok(Files { files, identity: Some(identity.clone()), told: None })
    }

    /// Writes what there is by now. What cannot be written is said once, and tried again the next time: what was measured is no worse
    /// for it.
    pub(crate) fn write(&mut self, report: &Report) {
        if let Some(told) = &mut self.told {
            let [json, html] = [Form::Json, Form::Html].map(|form| form.text(report));
            told(json, html);
        }
        let Some(identity) = self.identity.as_ref().filter(|_| !self.files.is_empty()) else { return };
        let texts: Vec<String> = self.files.iter().map(|file| file.form.text(report)).collect();
        let put = || Ok(self.files.iter().zip(&texts).map(|(file, text)| file.put(text)).collect());
        let results: Vec<anyhow::Result<()>> = match identity.by(put) {
            Ok(results) => results,
            Err(error) => self.files.iter().map(|_| Err(anyhow::anyhow!(told(&error)))).collect(),
        };
        for (file, result) in self.files.iter_mut().zip(results) {
            let failure = result.err().map(|error| told(&error));
            if let Some(new) = failure.as_ref().filter(|_| file.failure.is_none()) {
                tell(format_args!("{}; it is tried again after the next trial\n", shown(new)));
            }
            file.failure = failure;
        }
    }

    /// Why files lack what is known by now, each.
    pub(crate) fn failures(&self) -> impl Iterator<Item = &str> {
        self.files.iter().filter_map(|file| file.failure.as_deref())
    }
}

impl Kept {
    /// Where it is written before it takes its place.
    fn beside(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".part");
        name.into()
    }

    fn put(&self, text: &str) -> anyhow::Result<()> {
        let part = self.beside();
        let write = || {
            let mut file = File::create(&part)?;
            file.write_all(text.as_bytes())?;
            // Else a machine that dies may leave an empty file in the place of a whole one.
            file.sync_data()?;
            fs::rename(&part, &self.path)
        };
        write()
            .inspect_err(|_| drop(fs::remove_file(&part)))
            .with_context(|| format!("cannot write {}, which has what was known before", self.path.display()))
    }
}

impl Form {
    fn of(path: &Path) -> anyhow::Result<Self> {
        Ok(match path.extension().and_then(|ending| ending.to_str()) {
            Some("json") => Form::Json,
            Some("csv") => Form::Csv,
            Some("md") => Form::Markdown,
            Some("html") => Form::Html,
            _ => return Err(usage(format!("{}: a report is .json, .csv, .md or .html", path.display()))),
        })
    }

    fn text(self, report: &Report) -> String {
        match self {
            // Keys are texts, and numbers that are none become null: nothing in it can fail.
            Form::Json => serde_json::to_string_pretty(report).unwrap_or_default() + "\n",
            Form::Csv => csv(report),
            Form::Markdown => markdown(report),
            Form::Html => html(report),
        }
    }
}

/// Every trial, a line each.
fn csv(report: &Report) -> String {
    let mut text =
        "size,trial,test,offered_fps,duration_s,intended,sent,unsent,late,behind_p99_us,received,lost,loss_ratio,duplicated,reordered,\
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
                account.behind_p99_us.map_or_else(String::new, |us| us.to_string()),
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

/// What stands above the results, a line each.
pub(super) fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let way = if report.is_both { "<->" } else { "->" };
    let foretold = match report.estimated_s > 0.0 {
        true => format!(" of {} foretold", super::clock(report.estimated_s)),
        false => String::new(),
    };
    let mut facts = vec![
        ("result", report.summary()),
        ("device", report.device.clone().unwrap_or_default()),
        ("started", report.environment.started()),
        ("command", report.command.clone()),
        ("state", report.state.to_owned()),
        ("method", [&[report.method][..], &report.tests].concat().join(" ")),
        ("from and to", format!("{} {way} device {way} {}", report.to, report.check)),
        ("packets", report.packets.join(", ")),
        ("load", report.load.to_owned()),
        ("waits", format!("{} s of silence end a trial, {} s lie between two", report.quiet_s, report.settle_s)),
        ("took", super::clock(report.seconds) + &foretold),
        ("version", format!("linerate {}", report.version)),
    ];
    facts.retain(|(_, what)| !what.is_empty());
    for goal in &report.goals {
        let what = format!(
            "{}: loss {} %, bad time {} %, width {} %, trials {} to {} s, {} s decide",
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
    use crate::view::picture::plain_html;

    #[test]
    fn names_are_text_in_every_form() {
        assert_eq!(plain_html("<img onerror=\"x\">&"), "&lt;img onerror=&quot;x&quot;&gt;&amp;");
        for (name, is_form) in
            [("a.json", true), ("a.html", true), ("a.md", true), ("a.csv", true), ("a", false), ("a.txt", false)]
        {
            assert_eq!(Form::of(Path::new(name)).is_ok(), is_form, "{name}");
        }
    }
}
