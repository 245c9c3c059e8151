//! Options that say which frames to keep, and how much of them, beside the filter text.

use super::super::inputs::span;
use linerate_engine::select::{Selection, Shard, Slice, WINDOW};
use std::time::Duration;

/// Options of selection.
#[derive(Debug, clap::Args)]
pub(super) struct SelectionArgs {
    /// Keep at most this many bytes of a frame; 0 for all
    #[arg(short = 's', long = "snap", value_name = "BYTES", default_value_t = 0)]
    snap: u32,
    /// Keep this many bytes of a frame, or up to the end of a header of the outermost packet: l2 (link), l3 (IP with
    /// extensions, also AH behind IPv4), l4 (transport: of ICMP, IGMP and ESP 8 bytes, of ICMPv6 4, none of what has no
    /// header that is known, as DCCP or OSPF); l4+64 keeps 64 bytes more
    #[arg(long, value_name = "BYTES|l2|l3|l4[+BYTES]", conflicts_with = "snap")]
    slice: Option<Slice>,
    /// Keep part I of N equal parts, counted from 1: whole flows, both directions of each, fragments by their
    /// addresses, what is not IP by its MAC addresses, if it has any; others are counted as other_shard
    #[arg(long, value_name = "I/N")]
    shard: Option<Shard>,
    /// Tell flows in tunnels apart by the innermost packet
    #[arg(long)]
    shard_inner: bool,
    /// Leave out frames that equal one kept within MS milliseconds (10 unless given), as taps and mirror ports
    /// that see both sides make them. Late frames are compared with those of MS up to the latest time alone
    #[arg(long, value_name = "MS", num_args = 0..=1, require_equals = true)]
    dedup: Option<Option<f64>>,
}

impl SelectionArgs {
    /// All that was asked for.
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

    /// A shard, by the packets that are asked for.
    pub(super) fn by_packet(&self, shard: Shard) -> Shard {
        if self.shard_inner { shard.by_inner_packet() } else { shard }
    }
}

/// The window of deduplication, from milliseconds.
fn window(given: Option<f64>) -> anyhow::Result<Duration> {
    given.map_or(Ok(WINDOW), |milliseconds| span("--dedup", milliseconds / 1e3))
}
