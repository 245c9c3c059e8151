//! What each part of a capture gets of its own: the file, the shared ring, the flow records, the counts, the lines.

use super::super::inputs::{Inputs, check_filter};
use super::selection::SelectionArgs;
use crate::exit::usage;
use linerate_engine::Selection;
use linerate_engine::select::{Shard, Slice};
use serde::Serialize;
use std::fmt::{self, Display};
use std::str::FromStr;

/// Options of single parts.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "What single parts of a capture get: write, share, flows, count, print")]
pub(super) struct PartArgs {
    /// Let a part have only frames that pass this text too, as in --filter-for 'flows=tcp port 443'; may be given for
    /// each part
    #[arg(long, value_name = "PART=TEXT")]
    filter_for: Vec<For<Text>>,
    /// How much of a frame a part keeps, where not all keep the same (--slice), as in --slice-for share=l4+64
    #[arg(long, value_name = "PART=SLICE", conflicts_with_all = ["slice", "snap"])]
    slice_for: Vec<For<Slice>>,
    /// Which shard a part gets, where not all keep the same one (--shard), as in --shard-for flows=1/4
    #[arg(long, value_name = "PART=I/N", conflicts_with = "shard")]
    shard_for: Vec<For<Shard>>,
}

/// What takes frames of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Part {
    Write,
    Share,
    Flows,
    Count,
    Print,
}

/// A value of one part.
#[derive(Clone, Debug)]
struct For<T> {
    part: Part,
    value: T,
}

type Text = String;

/// What a part gets of its own, for programs.
#[derive(Serialize)]
pub(super) struct PartJson {
    part: Part,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    slice: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shard: Option<String>,
}

impl PartArgs {
    /// What is given twice or without its part is a mistake; `there` are the parts that were asked for.
    pub(super) fn check(&self, there: &[Part], inputs: &Inputs) -> anyhow::Result<()> {
        self.filter_for.iter().try_for_each(|one| check_filter(&one.value, &inputs.specs))?;
        check_option("--filter-for", &self.filter_for, there)?;
        check_option("--slice-for", &self.slice_for, there)?;
        check_option("--shard-for", &self.shard_for, there)?;
        match self.slice_for.iter().find(|one| matches!(one.part, Part::Flows | Part::Count)) {
            Some(one) => Err(usage(format!("--slice-for {}: flows and counts are of whole frames", one.part))),
            None => Ok(()),
        }
    }

    /// What a part selects, of what all do.
    pub(super) fn selection(&self, part: Part, all: Selection, args: &SelectionArgs) -> Selection {
        Selection {
            also: of(&self.filter_for, part).unwrap_or_default(),
            slice: of(&self.slice_for, part).or(all.slice),
            shard: of(&self.shard_for, part).map(|shard| args.by_packet(shard)).or(all.shard),
            ..all
        }
    }

    /// Whether the file and the ring get the same.
    pub(super) fn are_alike(&self) -> bool {
        [Part::Write, Part::Share].iter().all(|part| self.of_part(*part).is_none())
    }

    /// For programs.
    pub(super) fn json(&self) -> Vec<PartJson> {
        let all = [Part::Write, Part::Share, Part::Flows, Part::Count, Part::Print];
        all.into_iter().filter_map(|part| self.of_part(part)).collect()
    }

    fn of_part(&self, part: Part) -> Option<PartJson> {
        let filter = of(&self.filter_for, part);
        let slice = of(&self.slice_for, part).map(|slice| slice.to_string());
        let shard = of(&self.shard_for, part).map(|shard| shard.to_string());
        (filter.is_some() || slice.is_some() || shard.is_some()).then_some(PartJson { part, filter, slice, shard })
    }
}

fn of<T: Clone>(all: &[For<T>], part: Part) -> Option<T> {
    all.iter().find(|one| one.part == part).map(|one| one.value.clone())
}

fn check_option<T>(option: &str, all: &[For<T>], there: &[Part]) -> anyhow::Result<()> {
    for (at, For { part, .. }) in all.iter().enumerate() {
        if !there.contains(part) {
            return Err(usage(format!("{option} {part} means nothing without --{part}: there is no such part")));
        }
        if all[..at].iter().any(|other| other.part == *part) {
            return Err(usage(format!("{option} {part} is given twice: join the texts by and, or leave one out")));
        }
    }
    Ok(())
}

impl<T: FromStr<Err: Display>> FromStr for For<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (part, value) = text.split_once('=').ok_or("it begins with the part, as in flows=...")?;
        let value = value.trim();
        if value.is_empty() {
            return Err(format!("nothing stands behind {part}="));
        }
        Ok(For { part: part.trim().parse()?, value: value.parse().map_err(|error: T::Err| error.to_string())? })
    }
}

impl FromStr for Part {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "write" => Part::Write,
            "share" => Part::Share,
            "flows" => Part::Flows,
            "count" => Part::Count,
            "print" => Part::Print,
            _ => return Err(format!("{text:?} is no part of a capture: write, share, flows, count or print")),
        })
    }
}

impl Display for Part {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Part::Write => "write",
            Part::Share => "share",
            Part::Flows => "flows",
            Part::Count => "count",
            Part::Print => "print",
        })
    }
}
