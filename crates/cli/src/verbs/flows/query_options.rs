//! Options of queries: groups, sums, order.

use super::output::{ResultOptions, Totals};
use crate::exit::usage;
use linerate_burst::Nanos;
use linerate_pcap::file::{ReplacedFile, replace};
use linerate_query::columns::of_name;
use linerate_query::{Filter, Key, Measure, Question, step};
use std::sync::Arc;
use std::time::SystemTime;

/// Options of grouping, order and columns.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Groups and order")]
pub(crate) struct QueryArgs {
    /// Group by fields, such as resp_port or orig_address/24,protocol; address and port: of either end;
    /// address,address: pairs of hosts
    #[arg(long, value_name = "FIELD[/LEN],...")]
    by: Option<String>,
    /// Show the first N rows; 0 for all [default: 10]
    #[arg(long, value_name = "N")]
    top: Option<usize>,
    /// Sort by bytes or packets; groups and stored records also by flows, bps, pps, bpp, duration or a counter field,
    /// groups by records, stored records by time [default: time, first of --sum, or bytes]
    #[arg(long, value_name = "MEASURE")]
    sort: Option<String>,
    /// Columns of each group, named like those of --sort [default: flows,packets,bytes]
    #[arg(long, value_name = "MEASURE,...")]
    sum: Option<String>,
    /// Group by time, in steps such as 60 or 5m; the sums of each record are spread evenly over its time
    #[arg(long, value_name = "SPAN")]
    every: Option<String>,
    /// Print groups, or stored records, as CSV
    #[arg(long, conflicts_with = "json")]
    pub csv: bool,
    /// Draw the groups of --every as SVG into a file
    #[arg(long, value_name = "FILE")]
    plot: Option<String>,
}

/// Maximum number of groups shown.
const MOST: usize = 1_000_000;

/// Selection of stored records.
pub(super) struct RecordSelection {
    pub since: u64,
    pub until: u64,
    pub question: Question,
}

impl QueryArgs {
    /// Puts the flows of the result in the given order.
    pub(super) fn order(&self, totals: &mut Totals) {
        if self.sort() == Some("packets") && totals.answer.is_none() {
            totals.top = totals.top_packets.clone();
        }
    }

    /// Returns whether records are grouped.
    pub(super) fn is_of_groups(&self) -> bool {
        self.by.is_some() || self.every.is_some()
    }

    /// Returns the measure by which stored records are sorted; `None` is their time.
    pub(super) fn measure(&self) -> anyhow::Result<Option<Measure>> {
        let sort = self.sort().filter(|sort| *sort != "time" || self.is_of_groups());
        sort.map(Measure::one).transpose().map_err(|error| usage(format!("--sort: {error}")))
    }

    /// Returns the order of records or flows, if given.
    pub(super) fn sort(&self) -> Option<&str> {
        self.sort.as_deref()
    }

    /// Returns what is shown of metered or collected records; `is_shown`: a result is printed.
    pub(super) fn shown(&self, is_shown: bool) -> anyhow::Result<ResultOptions> {
        self.check_shown(is_shown)?;
        if self.is_of_groups() {
            let question = self.question(Filter::every())?;
            return Ok(ResultOptions { top: None, question: Some(Arc::new(question)) });
        }
        self.refuse_without_groups(&[("--csv", self.csv)])?;
        match self.sort() {
            None | Some("bytes" | "packets") => Ok(ResultOptions { top: self.top()?, question: None }),
            Some(other) => Err(usage(format!(
                "--sort {other}: flows are sorted by bytes or packets; groups (--by) by any measure"
            ))),
        }
    }

    /// Refuses options of the result if none is printed.
    pub(super) fn check_shown(&self, is_shown: bool) -> anyhow::Result<()> {
        let given = [
            ("--by", self.by.is_some() && self.plot.is_none()),
            ("--top", self.top.is_some() && self.plot.is_none()),
            ("--sort", self.sort.is_some() && self.plot.is_none()),
            ("--every", self.every.is_some() && self.plot.is_none()),
            ("--csv", self.csv),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given && !is_shown) {
            Some((option, _)) => Err(usage(format!("{option} has no effect with --quiet: no result is printed"))),
            None => Ok(()),
        }
    }

    /// Returns whether the number of rows is given.
    pub(super) fn has_top(&self) -> bool {
        self.top.is_some()
    }

    /// Returns the query of stored records.
    pub(super) fn wanted(
        &self,
        filter: &str,
        since: Option<&str>,
        until: Option<&str>,
    ) -> anyhow::Result<RecordSelection> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let now = Nanos::ZERO.after(now);
        let time = |option: &str, text: Option<&str>| {
            let parse = |text: &str| {
                linerate_pcap::time_parser::parse(text, now).map_err(|error| usage(format!("{option} {text}: {error}")))
            };
            text.map(parse).transpose()
        };
        let since = time("--since", since)?.map_or(0, |time| time.0);
        let until = time("--until", until)?.map_or(u64::MAX, |time| time.0);
        if until <= since {
            return Err(usage("--until must be after --since"));
        }
        let parsed =
            Filter::parse(filter, now).map_err(|mistake| usage(format!("filter, {}", mistake.within(filter))))?;
        if !self.is_of_groups() {
            self.refuse_without_groups(&[])?;
            if self.sort() == Some("records") {
                return Err(usage("--sort records needs --by or --every: each record counts as one"));
            }
        }
        let question = self.question(parsed.and(Filter::active(since, until)))?;
        Ok(RecordSelection { since, until, question })
    }

    fn refuse_without_groups(&self, more: &[(&'static str, bool)]) -> anyhow::Result<()> {
        let given = [("--sum", self.sum.is_some()), ("--plot", self.plot.is_some())];
        match given.iter().chain(more).find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(usage(format!("{option} needs --by or --every: records are not grouped"))),
            None => Ok(()),
        }
    }

    fn top(&self) -> anyhow::Result<Option<usize>> {
        match self.top {
            Some(0) => Ok(Some(MOST)),
            Some(top) if top > MOST => Err(usage(format!("--top {top}: too many; expected at most {MOST}"))),
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
            if question.keys.iter().any(|key| Some(key.id(0)) == of_name("first_time")) {
                return Err(usage("--by first_time: --every groups by time already; remove one of them"));
            }
        }
        if self.plot.is_some() && self.every.is_none() {
            return Err(usage("--plot needs --every: it draws values over time"));
        }
        if self.top.is_some() && self.every.is_some() && self.by.is_none() {
            return Err(usage("--top needs --by with --every: all time steps are shown"));
        }
        question.top = self.top()?.unwrap_or(question.top);
        if self.is_of_groups() {
            if self.sort() == Some("time") {
                return Err(usage(match &self.every {
                    Some(_) => "--sort time: time steps are in that order already; remove it",
                    None => "--sort time: groups have no time; --every 1h adds it, or remove --by",
                }));
            }
            let error = |error| usage(format!("--sum, --sort: {error}"));
            question.measure(self.sum.as_deref(), self.sort.as_deref()).map_err(error)?;
        }
        Ok(question)
    }

    /// Opens the file of the picture before the run is confined; its contents are kept until the picture is complete.
    pub(super) fn drawing(&self) -> anyhow::Result<Option<ReplacedFile>> {
        let open = |path: &String| replace(path).map_err(|error| anyhow::anyhow!("{path}: cannot write: {error}"));
        self.plot.as_ref().map(open).transpose()
    }

    /// Returns the title of the picture.
    pub(super) fn title(&self) -> String {
        let by = self.by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
        format!("every {}{by}", self.every.as_deref().unwrap_or_default())
    }
}
