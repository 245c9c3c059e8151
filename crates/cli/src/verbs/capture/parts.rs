//! Selection of single outputs of a capture: file, shared ring, flow records, statistics, printed lines.

use super::super::inputs::{Inputs, check_filter};
use super::selection::SelectionArgs;
use crate::exit::usage;
use linerate_engine::Selection;
use linerate_engine::select::{Shard, Slice};
use serde::Serialize;
use std::fmt::{self, Display};
use std::str::FromStr;

/// Options of single outputs.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Single outputs: write, share, flows, stats, print")]
pub(super) struct PartArgs {
    /// Filter of one output, such as --filter-for 'flows=tcp port 443'; repeatable
    #[arg(long, value_name = "PART=TEXT")]
    filter_for: Vec<OutputValue<Text>>,
    /// --slice of one output, such as --slice-for share=l4+64; repeatable
    #[arg(long, value_name = "PART=SLICE", conflicts_with_all = ["slice", "snap"])]
    slice_for: Vec<OutputValue<Slice>>,
    /// --shard of one output, such as --shard-for flows=1/4; repeatable
    #[arg(long, value_name = "PART=I/N", conflicts_with = "shard")]
    shard_for: Vec<OutputValue<Shard>>,
}

/// Output of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum OutputKind {
    Write,
    Share,
    Flows,
    Stats,
    Print,
}

/// Value for one output.
#[derive(Clone, Debug)]
struct OutputValue<T> {
    part: OutputKind,
    value: T,
}

type Text = String;

/// Selection of one output in the JSON document.
#[derive(Serialize)]
pub(super) struct PartJson {
    part: OutputKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slice: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<String>,
}

impl PartArgs {
    /// Refuses options given twice or without their output; `there` are the outputs of the run.
    pub(super) fn check(&self, there: &[OutputKind], inputs: &Inputs) -> anyhow::Result<()> {
        self.filter_for.iter().try_for_each(|one| check_filter(&one.value, &inputs.specs))?;
        check_option("--filter-for", &self.filter_for, there)?;
        check_option("--slice-for", &self.slice_for, there)?;
        check_option("--shard-for", &self.shard_for, there)?;
        match self.slice_for.iter().find(|one| matches!(one.part, OutputKind::Flows | OutputKind::Stats)) {
            Some(one) => Err(usage(format!("--slice-for {}: flows and statistics use whole packets", one.part))),
            None => Ok(()),
        }
    }

    /// Returns the selection of an output, based on that of all.
    pub(super) fn selection(&self, part: OutputKind, all: Selection, args: &SelectionArgs) -> Selection {
        Selection {
            also: of(&self.filter_for, part).unwrap_or_default(),
            slice: of(&self.slice_for, part).or(all.slice),
            shard: of(&self.shard_for, part).map(|shard| args.by_packet(shard)).or(all.shard),
            ..all
        }
    }

    /// Returns whether file and ring have the same selection.
    pub(super) fn are_alike(&self) -> bool {
        [OutputKind::Write, OutputKind::Share].iter().all(|part| self.of_part(*part).is_none())
    }

    /// Returns the outputs with a selection of their own.
    pub(super) fn json(&self) -> Vec<PartJson> {
        let all = [OutputKind::Write, OutputKind::Share, OutputKind::Flows, OutputKind::Stats, OutputKind::Print];
        all.into_iter().filter_map(|part| self.of_part(part)).collect()
    }

    fn of_part(&self, part: OutputKind) -> Option<PartJson> {
        let filter = of(&self.filter_for, part);
        let slice = of(&self.slice_for, part).map(|slice| slice.to_string());
        let shard = of(&self.shard_for, part).map(|shard| shard.to_string());
        (filter.is_some() || slice.is_some() || shard.is_some()).then_some(PartJson { part, filter, slice, shard })
    }
}

fn of<T: Clone>(all: &[OutputValue<T>], part: OutputKind) -> Option<T> {
    all.iter().find(|one| one.part == part).map(|one| one.value.clone())
}

fn check_option<T>(option: &str, all: &[OutputValue<T>], there: &[OutputKind]) -> anyhow::Result<()> {
    for (at, OutputValue { part, .. }) in all.iter().enumerate() {
        if !there.contains(part) {
            return Err(usage(format!("{option} {part} needs --{part}: the capture has no such output")));
        }
        if all[..at].iter().any(|other| other.part == *part) {
            return Err(usage(format!("{option} {part}: given twice; join both with 'and', or leave one out")));
        }
    }
    Ok(())
}

impl<T: FromStr<Err: Display>> FromStr for OutputValue<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (part, value) = text.split_once('=').ok_or("missing output; write PART=..., such as flows=...")?;
        let value = value.trim();
        if value.is_empty() {
            return Err(format!("{part}=: missing value"));
        }
        Ok(OutputValue { part: part.trim().parse()?, value: value.parse().map_err(|error: T::Err| error.to_string())? })
    }
}

impl FromStr for OutputKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "write" => OutputKind::Write,
            "share" => OutputKind::Share,
            "flows" => OutputKind::Flows,
            "stats" => OutputKind::Stats,
            "print" => OutputKind::Print,
            _ => return Err(format!("{text:?}: no such output; expected write, share, flows, stats or print")),
        })
    }
}

impl Display for OutputKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            OutputKind::Write => "write",
            OutputKind::Share => "share",
            OutputKind::Flows => "flows",
            OutputKind::Stats => "stats",
            OutputKind::Print => "print",
        })
    }
}
