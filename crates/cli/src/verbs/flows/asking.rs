//! Options that ask about records: by which fields they are put together, what is added up, in which order.

use super::output::Shown;
use crate::exit::usage;
use linerate_burst::Nanos;
use linerate_query::{Filter, Key, Question, step};
use linerate_record::file::{Replaced, replace};
use std::sync::Arc;
use std::time::SystemTime;

/// What is asked about records.
#[derive(Debug, clap::Args)]
pub(super) struct AskArgs {
    /// Put records together by these fields, with commas between, as in resp_port, or orig_address/24,protocol; address and port
    /// are those of either end
    #[arg(long, value_name = "FIELD[/LEN],...")]
    by: Option<String>,
    /// How many flows, groups or records are shown [default: 10]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// What they stand in order by: bytes (the default; stored records that are not put together stand as they are stored),
    /// packets; of groups and stored records also flows, bps, pps, bpp, duration, and any field that counts something; of groups
    /// records
    #[arg(long, value_name = "MEASURE")]
    sort: Option<String>,
    /// What is told of each group, as measures of --sort [default: flows,packets,bytes]
    #[arg(long, value_name = "MEASURE,...")]
    sum: Option<String>,
    /// Put records together by steps of time, in which their first packets are, as in 5m
    #[arg(long, value_name = "SPAN")]
    every: Option<String>,
    /// Of stored records, those of which a packet was seen at this time or later, as in 2026-11-22T10:00, or -1h
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    since: Option<String>,
    /// Of stored records, those of which a packet was seen before this time
    #[arg(long, value_name = "T", allow_hyphen_values = true)]
    until: Option<String>,
    /// Print groups, or stored records, as CSV
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Draw what is told by --every as SVG into this file
    #[arg(long, value_name = "FILE")]
    plot: Option<String>,
}

/// Groups that are shown at the most.
const MOST: usize = 1_000_000;

/// Which stored records are meant.
pub(super) struct Wanted {
    pub since: u64,
    pub until: u64,
    pub question: Question,
}

impl AskArgs {
    /// Whether records are put together.
    pub(super) fn is_of_groups(&self) -> bool {
        self.by.is_some() || self.every.is_some()
    }

    /// By what records or flows stand in order, if that was said.
    pub(super) fn sort(&self) -> Option<&str> {
        self.sort.as_deref()
    }

    /// What is shown of records that are metered or collected; `is_shown` says whether anything is.
    pub(super) fn shown(&self, is_shown: bool) -> anyhow::Result<Shown> {
        if let Some(option) =
            [("--since", &self.since), ("--until", &self.until)].iter().find(|(_, given)| given.is_some())
        {
            return Err(usage(format!(
                "{} means nothing here: it is of stored records (--from flows/), or of frames in linerate find",
                option.0
            )));
        }
        self.check_shown(is_shown)?;
        if self.is_of_groups() {
            let question = self.question(Filter::every())?;
            return Ok(Shown { top: None, question: Some(Arc::new(question)) });
        }
        self.refuse_without_groups(&[("--csv", self.csv)])?;
        match self.sort() {
            None | Some("bytes" | "packets") => Ok(Shown { top: self.top()?, question: None }),
            Some(other) => {
                Err(usage(format!("--sort {other}: flows stand by bytes or packets; groups (--by) by any measure")))
            }
        }
    }

    /// Refuses what is asked where nothing is shown of it.
    pub(super) fn check_shown(&self, is_shown: bool) -> anyhow::Result<()> {
        let given = [
            ("--by", self.by.is_some() && self.plot.is_none()),
            ("--top", self.top.is_some() && self.plot.is_none()),
            ("--sort", self.sort.is_some() && self.plot.is_none()),
            ("--every", self.every.is_some() && self.plot.is_none()),
            ("--csv", self.csv),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given && !is_shown) {
            Some((option, _)) => Err(usage(format!("{option} means nothing beside --quiet: nothing is shown"))),
            None => Ok(()),
        }
    }

    /// Whether it was said how many are shown.
    pub(super) fn has_top(&self) -> bool {
        self.top.is_some()
    }

    /// What is asked of stored records.
    pub(super) fn wanted(&self, filter: &str) -> anyhow::Result<Wanted> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = Nanos::ZERO.after(now);
        let time = |option: &str, text: &Option<String>| {
            let parse = |text: &String| {
                linerate_record::when::parse(text, now).map_err(|error| usage(format!("{option} {text}: {error}")))
            };
            text.as_ref().map(parse).transpose()
        };
        let since = time("--since", &self.since)?.map_or(0, |time| time.0);
        let until = time("--until", &self.until)?.map_or(u64::MAX, |time| time.0);
        if until <= since {
            return Err(usage("--until is not behind --since: nothing is between them"));
        }
        let parsed =
            Filter::parse(filter, now).map_err(|mistake| usage(format!("filter, {}", mistake.within(filter))))?;
        if !self.is_of_groups() {
            self.refuse_without_groups(&[])?;
            if self.sort() == Some("records") {
                return Err(usage("--sort records means nothing without --by or --every: each is one"));
            }
        }
        let question = self.question(parsed.and(Filter::active(since, until)))?;
        Ok(Wanted { since, until, question })
    }

    fn refuse_without_groups(&self, more: &[(&'static str, bool)]) -> anyhow::Result<()> {
        let given = [("--sum", self.sum.is_some()), ("--plot", self.plot.is_some())];
        match given.iter().chain(more).find(|(_, is_given)| *is_given) {
            Some((option, _)) => {
                Err(usage(format!("{option} means nothing without --by or --every: nothing is put together")))
            }
            None => Ok(()),
        }
    }

    fn top(&self) -> anyhow::Result<Option<usize>> {
        match self.top {
            Some(0) | Some(MOST..) if self.top != Some(MOST) => Err(usage(format!("--top: from 1 to {MOST}"))),
            top => Ok(top),
        }
    }

    fn question(&self, filter: Filter) -> anyhow::Result<Question> {
        let mut question = Question::new(filter);
        if let Some(by) = &self.by {
            question.keys = Key::parse(by).map_err(|error| usage(format!("--by: {error}")))?;
        }
        if let Some(every) = &self.every {
            question.every = step(every).map_err(|error| usage(format!("--every: {error}")))?;
        }
        if self.plot.is_some() && self.every.is_none() {
            return Err(usage("--plot means nothing without --every: it draws what was over time"));
        }
        if self.top.is_some() && self.every.is_some() && self.by.is_none() {
            return Err(usage("--top means nothing beside --every without --by: every step is told"));
        }
        question.top = self.top()?.unwrap_or(question.top);
        if self.is_of_groups() {
            let error = |error| usage(format!("--sum, --sort: {error}"));
            question.measure(self.sum.as_deref(), self.sort.as_deref()).map_err(error)?;
        }
        Ok(question)
    }

    /// The file to draw into, opened before the run may open no other; what it has stays until there is a picture.
    pub(super) fn drawing(&self) -> anyhow::Result<Option<Replaced>> {
        let open = |path: &String| replace(path).map_err(|error| anyhow::anyhow!("{path}: cannot be written: {error}"));
        self.plot.as_ref().map(open).transpose()
    }

    /// What is asked, for a picture.
    pub(super) fn title(&self) -> String {
        let by = self.by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
        format!("every {}{by}", self.every.as_deref().unwrap_or_default())
    }
}
