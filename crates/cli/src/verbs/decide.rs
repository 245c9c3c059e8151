//! Options of a ring whose reader decides on packets: its memory, and the policy without a verdict.

use super::inputs::span;
use super::units::size;
use crate::exit::usage;
use crate::privileges::{Identity, group_number};
use crate::view::rates::grouped;
use linerate_engine::{FailMode, InlinePolicy, ReleaseOrder, Sharing, SharingOptions};
use linerate_share::{Access, Error};

/// Common options of verbs with such a ring.
#[derive(Debug, clap::Args)]
pub(super) struct DecideArgs {
    /// Memory for packets that wait for the engine or for a port
    #[arg(long, value_name = "SIZE", default_value = "64MiB")]
    pub share_memory: String,
    /// Block size: a power of two from 512KiB to 64MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB")]
    pub share_block: String,
    /// Allow members of this group to attach, in addition to root and the user of this process
    #[arg(long, value_name = "GROUP")]
    pub share_group: Option<String>,
    /// Accept only an engine of this name (inspect --name NAME) [default: the first one]
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    engine: String,
    /// Policy for packets while no engine is attached, and for those undecided when it ends
    #[arg(long, value_name = "HOW", default_value = "closed")]
    on_death: PolicyMode,
    /// Policy for packets that the engine does not decide in time, and for those undecided at the end of the run
    #[arg(long, value_name = "HOW", default_value = "closed")]
    on_overload: PolicyMode,
    /// Maximum time in milliseconds that the engine may hold a packet after reading it
    #[arg(long, value_name = "MS", default_value_t = 1100.0)]
    hold: f64,
    /// Maximum time in milliseconds until the engine reads a packet
    #[arg(long, value_name = "MS", default_value_t = 50.0)]
    budget: f64,
    /// Packets that wait for a packet which the engine holds
    #[arg(long, value_name = "BY", default_value = "flow")]
    order: ReleaseMode,
    /// Maximum number of packets per second that the engine may inject, in both directions together; others are dropped
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    inject_limit: u32,
}

/// Policy for packets without a verdict.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PolicyMode {
    /// Pass them (fail-open)
    Open,
    /// Drop them (fail-closed)
    Closed,
}

/// Packets that wait for a held one.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ReleaseMode {
    /// Packets of its flow
    Flow,
    /// All later packets of its direction
    Arrival,
}

/// Settings, as reported.
#[derive(serde::Serialize)]
pub(super) struct DecideSettings {
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

/// Minimum number of blocks: half for other readers, some for the engine, one to fill.
const LEAST_BLOCKS: u64 = 8;

impl DecideArgs {
    /// Returns the policy for packets without a verdict.
    pub(super) fn policy(&self) -> anyhow::Result<InlinePolicy> {
        let fail = |how| match how {
            PolicyMode::Open => FailMode::Open,
            PolicyMode::Closed => FailMode::Closed,
        };
        let release = match self.order {
            ReleaseMode::Flow => ReleaseOrder::ByFlow,
            ReleaseMode::Arrival => ReleaseOrder::ByArrival,
        };
        let (hold, budget) = (span("--hold", self.hold / 1e3)?, span("--budget", self.budget / 1e3)?);
        let (on_death, on_overload) = (fail(self.on_death), fail(self.on_overload));
        Ok(InlinePolicy { on_death, on_overload, hold, budget, release, inject_limit: self.inject_limit })
    }

    /// Returns the settings of the ring.
    pub(super) fn sharing(&self, name: &str, identity: &Identity) -> anyhow::Result<SharingOptions> {
        let (memory, block) = (size("--share-memory", &self.share_memory)?, size("--share-block", &self.share_block)?);
        if memory / block < LEAST_BLOCKS {
            return Err(usage(format!(
                "--share-memory {}: too small; expected at least {LEAST_BLOCKS} blocks of {}",
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

    /// Returns the settings for JSON.
    pub(super) fn said(&self, share: &str) -> DecideSettings {
        let how = |how| match how {
            PolicyMode::Open => "open",
            PolicyMode::Closed => "closed",
        };
        DecideSettings {
            share: share.to_owned(),
            engine: Some(self.engine.clone()).filter(|name| !name.is_empty()),
            on_death: how(self.on_death),
            on_overload: how(self.on_overload),
            hold_us: (self.hold * 1e3) as u64,
            budget_us: (self.budget * 1e3) as u64,
            order: match self.order {
                ReleaseMode::Flow => "flow",
                ReleaseMode::Arrival => "arrival",
            },
            inject_limit: self.inject_limit,
            memory: self.share_memory.clone(),
            block: self.share_block.clone(),
        }
    }

    /// Returns the settings as lines of text.
    pub(super) fn lines(&self) -> [String; 3] {
        let DecideSettings { engine, on_death, on_overload, order, .. } = self.said("");
        let engine = engine.map_or("any engine".to_owned(), |name| format!("engine {name}"));
        [
            format!("{engine}; fail-{on_death} without an engine, fail-{on_overload} on overload"),
            format!("read timeout {} ms, hold timeout {} ms, order by {order}", self.budget, self.hold),
            format!("at most {} injected packets per second", grouped(self.inject_limit.into())),
        ]
    }
}

/// Creates the ring, before privileges are dropped: readers trust the user that created it.
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
