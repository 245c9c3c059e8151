//! Options of selection: which packets to keep, and which bytes of each.

use super::super::inputs::span;
use linerate_engine::select::{Selection, Shard, Slice, WINDOW};
use std::time::Duration;

/// Options of selection.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Selection")]
pub(super) struct SelectionArgs {
    /// Keep at most BYTES of each packet; 0 for all
    #[arg(short = 's', long = "snap", value_name = "BYTES", default_value_t = 0)]
    snap: u32,
    /// Cut packets after a header of the outermost packet: l2 (link), l3 (IP with extensions), l4
    /// (transport), or BYTES; l4+64 keeps 64 bytes more
    #[arg(long, value_name = "BYTES|l2|l3|l4[+BYTES]", conflicts_with = "snap")]
    slice: Option<Slice>,
    /// Keep part I of N, counted from 1: whole flows with both directions (fragments by IP addresses, other packets by
    /// MAC addresses); the rest counts as other_shard
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Choose the part by the innermost packet of tunnels
    #[arg(long)]
    shard_inner: bool,
    /// Drop duplicates of a packet within MS milliseconds, as mirror ports produce them [default MS: 10]
    #[arg(long, value_name = "MS", num_args = 0..=1, require_equals = true)]
    dedup: Option<Option<f64>>,
}

impl SelectionArgs {
    /// Returns the selection.
    pub(super) fn with(&self, filter: String, frames: Option<u64>) -> anyhow::Result<Selection> {
        Ok(Selection {
            filter,
            also: String::new(),
            shard: self.shard.map(|shard| self.by_packet(shard)),
            dedup: self.dedup.map(window).transpose()?,
            frames,
            slice: self.slice.or((self.snap > 0).then_some(Slice::Bytes(self.snap))),
        })
    }

    /// Returns the shard, by outer or inner packets.
    pub(super) fn by_packet(&self, shard: Shard) -> Shard {
        if self.shard_inner { shard.by_inner_packet() } else { shard }
    }
}

/// Returns the window of deduplication; given in milliseconds.
fn window(given: Option<f64>) -> anyhow::Result<Duration> {
    given.map_or(Ok(WINDOW), |milliseconds| span("--dedup", milliseconds / 1e3))
}
