//! Reports as files: what a document says, for other readers.

use super::Report;
use super::html::html;
use super::sections::sections;
use crate::exit::usage;
use crate::privileges::Identity;
use anyhow::Context;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Files that are written again after every trial.
#[derive(Default)]
pub struct Files<'a> {
    files: Vec<(PathBuf, File, Form)>,
    /// Who gets it as JSON and as HTML.
    told: Option<&'a mut (dyn FnMut(String, String) + Send)>,
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
    pub fn told(told: &'a mut (dyn FnMut(String, String) + Send)) -> Self {
        Files { files: Vec::new(), told: Some(told) }
    }

    /// Makes them, with the rights of whoever is to have them: a thread becomes that user, and no more than makes files.
    pub fn create(paths: &[PathBuf], identity: &Identity) -> anyhow::Result<Self> {
        let forms = paths.iter().map(|path| Form::of(path)).collect::<anyhow::Result<Vec<_>>>()?;
        let create = || -> anyhow::Result<Vec<File>> {
            identity.assume()?;
            let create = |path: &PathBuf| {
                File::create(path)
                    .with_context(|| format!("cannot write {}", path.display()))
                    .map_err(|error| identity.explain(error))
            };
            paths.iter().map(create).collect()
        };
        if paths.is_empty() {
            return Ok(Files::default());
        }
        let files = std::thread::scope(|scope| scope.spawn(create).join());
        let files = files.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let files =
            paths.iter().cloned().zip(files).zip(forms).map(|((path, file), form)| (path, file, form)).collect();
        Ok(Files { files, told: None })
    }

    /// Writes what there is by now.
    pub fn write(&mut self, report: &Report) -> anyhow::Result<()> {
        if let Some(told) = &mut self.told {
            told(Form::Json.text(report)?, Form::Html.text(report)?);
        }
        for (path, file, form) in &mut self.files {
            let text = form.text(report)?;
            let written = file
                .seek(SeekFrom::Start(0))
                .and_then(|_| file.write_all(text.as_bytes()))
                .and_then(|()| file.set_len(text.len() as u64));
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
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

    fn text(self, report: &Report) -> anyhow::Result<String> {
        Ok(match self {
            Form::Json => serde_json::to_string_pretty(report)? + "\n",
            Form::Csv => csv(report),
            Form::Markdown => markdown(report),
            Form::Html => html(report),
        })
    }
}

/// Every trial, a line each.
fn csv(report: &Report) -> String {
    let mut text =
        "size,trial,test,offered_fps,duration_s,intended,sent,unsent,received,lost,loss_ratio,duplicated,reordered,\
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
pub fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let way = if report.is_both { "<->" } else { "->" };
    let foretold = match report.estimated_s > 0.0 {
        true => format!(" of {} foretold", super::clock(report.estimated_s)),
        false => String::new(),
    };
    let mut facts = vec![
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
