//! Options of a ring whose reader decides about frames: how it is made, and what happens where nobody says anything.

use super::inputs::span;
use super::units::size;
use crate::exit::usage;
use crate::privileges::{Identity, group_number};
use crate::view::rates::grouped;
use linerate_engine::{Fail, InlinePolicy, Release, Sharing, SharingOptions};
use linerate_share::{Access, Error};

/// The same of every verb that has such a ring.
#[derive(Debug, clap::Args)]
pub(super) struct DecideArgs {
    /// Memory for frames that wait for the engine or for a port
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub share_memory: String,
    /// Memory of one block: a power of two from 512KiB to 64MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    pub share_block: String,
    /// Let members of this group attach too, beside root and the user of this program
    #[arg(long, value_name = "GROUP")]
    pub share_group: Option<String>,
    /// Only an engine with this name may decide (inspect --name NAME) [default: the first that comes]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    engine: String,
    /// What happens to frames while there is no engine, and to those that it leaves undecided when it goes
    #[arg(long, value_name = "HOW", default_value = "closed")]
    on_death: How,
    /// What happens to frames that the engine does not decide in time, and to those undecided at the end of the run
    #[arg(long, value_name = "HOW", default_value = "closed")]
    on_overload: How,
    /// How many milliseconds the engine may keep a frame undecided once it has looked at it
    #[arg(long, value_name = "MS", default_value_t = 1100.0)]
    hold: f64,
    /// How many milliseconds a frame may wait until the engine looks at it
    #[arg(long, value_name = "MS", default_value_t = 50.0)]
    budget: f64,
    /// Which frames wait behind one that the engine keeps undecided
    #[arg(long, value_name = "BY", default_value = "flow")]
    order: By,
    /// How many frames of its own the engine may have sent in a second, both ways together; none beyond them goes
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    inject_limit: u32,
}

/// What becomes of frames without a verdict.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum How {
    /// They pass
    Open,
    /// They are dropped
    Closed,
}

/// Which frames wait behind one that is held.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum By {
    /// Those of its flow
    Flow,
    /// All that came later the same way
    Arrival,
}

/// What was asked for, as it is told.
#[derive(serde::Serialize)]
pub(super) struct Said {
    share: String,
    engine: Option<String>,
    on_death: &'static str,
    on_overload: &'static str,
    hold_us: u64,
    budget_us: u64,
    order: &'static str,
    inject_limit: u32,
    memory: String,
    block: String,
}

/// Fewest blocks: half for other readers, some for the engine, one to go on with.
const LEAST_BLOCKS: u64 = 8;

impl DecideArgs {
    /// What happens where nobody says anything.
    pub(super) fn policy(&self) -> anyhow::Result<InlinePolicy> {
        let fail = |how| match how {
            How::Open => Fail::Open,
            How::Closed => Fail::Closed,
        };
        let release = match self.order {
            By::Flow => Release::ByFlow,
            By::Arrival => Release::ByArrival,
        };
        let (hold, budget) = (span("--hold", self.hold / 1e3)?, span("--budget", self.budget / 1e3)?);
        let (on_death, on_overload) = (fail(self.on_death), fail(self.on_overload));
        Ok(InlinePolicy { on_death, on_overload, hold, budget, release, inject_limit: self.inject_limit })
    }

    /// How the ring is to be.
    pub(super) fn sharing(&self, name: &str, identity: &Identity) -> anyhow::Result<SharingOptions> {
        let (memory, block) = (size("--share-memory", &self.share_memory)?, size("--share-block", &self.share_block)?);
        if memory / block < LEAST_BLOCKS {
            return Err(usage(format!(
                "--share-memory {}: {LEAST_BLOCKS} blocks of {} are the least there can be",
                self.share_memory, self.share_block
            )));
        }
        let mut access = Access { engine: Some(self.engine.clone()), ..Access::of_owner(identity.owner()) };
        if let Some(group) = &self.share_group {
            access.groups.push(group_number(group)?);
        }
        Ok(SharingOptions {
            name: name.to_owned(),
            ring: linerate_share::Options {
                slots: u32::try_from(memory / block).unwrap_or(u32::MAX),
                slot_bytes: usize::try_from(block).unwrap_or(usize::MAX),
                ..linerate_share::Options::default()
            },
            access,
            wait_for: 0,
            patience: None,
        })
    }

    /// What was asked for, as text.
    pub(super) fn said(&self, share: &str) -> Said {
        let how = |how| match how {
            How::Open => "open",
            How::Closed => "closed",
        };
        Said {
            share: share.to_owned(),
            engine: Some(self.engine.clone()).filter(|name| !name.is_empty()),
            on_death: how(self.on_death),
            on_overload: how(self.on_overload),
            hold_us: (self.hold * 1e3) as u64,
            budget_us: (self.budget * 1e3) as u64,
            order: match self.order {
                By::Flow => "flow",
                By::Arrival => "arrival",
            },
            inject_limit: self.inject_limit,
            memory: self.share_memory.clone(),
            block: self.share_block.clone(),
        }
    }

    /// The same for people, a line each.
    pub(super) fn lines(&self) -> [String; 3] {
        let Said { engine, on_death, on_overload, order, .. } = self.said("");
        let engine = engine.map_or("any engine decides".to_owned(), |name| format!("engine {name} decides"));
        [
            format!("{engine}; on death {on_death}, on overload {on_overload}"),
            format!("a frame is looked at within {} ms, held for {} ms; order by {order}", self.budget, self.hold),
            format!("at most {} frames of its own go in a second", grouped(self.inject_limit.into())),
        ]
    }
}

/// Makes the ring, before privileges are dropped: readers believe in who began to share.
pub(super) fn share(identity: &Identity, options: SharingOptions) -> anyhow::Result<(Sharing, Vec<String>)> {
    let name = options.name.clone();
    let (blocks, bytes) = (options.ring.slots, options.ring.slot_bytes);
    let sharing = Sharing::create(options).map_err(|error| match error {
        Error::Invalid(reason) => usage(format!("cannot share {name}: {reason}")),
        error => identity.explain(anyhow::Error::new(error).context(format!("cannot share {name}"))),
    })?;
    let mut notes = vec![format!("shared as shm:{name}: {blocks} blocks of {} KiB", bytes >> 10)];
    notes.extend(sharing.notes().iter().cloned());
    Ok((sharing, notes))
}
