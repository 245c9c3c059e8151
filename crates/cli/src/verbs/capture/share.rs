//! `--share` and its options: the ordered stream for other processes.

use crate::exit::usage;
use crate::privileges::{Identity, group_number, socket_folder};
use crate::verbs::rings::ring_name;
use crate::view::rates::grouped;
use linerate_engine::{Sharing, SharingOptions};
use linerate_port::spec::parse_size;
use linerate_share::{Access, Error};
use std::os::fd::OwnedFd;

/// Options of `--share`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sharing")]
pub(super) struct ShareArgs {
    /// Share the packets with other processes in memory; they read port shm:NAME (a NAME with / is the path of a
    /// socket)
    #[arg(long, value_name = "NAME")]
    share: Option<String>,
    /// Size of the ring
    #[arg(long, value_name = "SIZE", default_value = "64MiB", requires = "share")]
    share_memory: String,
    /// Size of a block: a power of two from 512KiB to 64MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", requires = "share")]
    share_block: String,
    /// Start after N readers have attached
    #[arg(long, value_name = "N", default_value_t = 0, requires = "share")]
    share_wait: usize,
    /// Let members of GROUP attach, in addition to root and the user of the run
    #[arg(long, value_name = "GROUP", requires = "share")]
    share_group: Option<String>,
    /// Let readers be lossless (shm:NAME?mode=lossless): they block the capture, up to --share-timeout
    #[arg(long, requires = "share")]
    lossless_readers: bool,
    /// Evict a lossless reader that blocks the capture for more than S seconds; its stream ends with an error
    #[arg(long, value_name = "S", default_value_t = 1.0, requires = "share")]
    share_timeout: f64,
    /// NUMA node of the ring
    #[arg(long, value_name = "NODE", requires = "share")]
    share_node: Option<u32>,
    /// Lock the ring in memory
    #[arg(long, requires = "share")]
    share_lock: bool,
    /// Do not use huge pages
    #[arg(long, requires = "share")]
    share_small_pages: bool,
}

/// Frames of 64 bytes per second on four ports of 10 Gb/s, the reference for the duration that the ring holds.
const FULL_SPEED: f64 = 59.5e6;

impl ShareArgs {
    /// Returns whether a ring is wanted.
    pub(super) fn is_wanted(&self) -> bool {
        self.share.is_some()
    }

    /// Returns the same, and checks the name.
    pub(super) fn check(&self) -> anyhow::Result<bool> {
        Ok(self.share.as_deref().map(|name| ring_name("--share", name)).transpose()?.is_some())
    }

    /// Creates the ring, if one is wanted, before privileges are dropped: huge and locked memory may need them, and
    /// readers trust the user who created it. Returns it with notes for the user.
    pub(super) fn open(&self, identity: &Identity) -> anyhow::Result<Option<(Sharing, Vec<String>)>> {
        let Some(name) = &self.share else { return Ok(None) };
        let memory = size("--share-memory", &self.share_memory)?;
        let block = size("--share-block", &self.share_block)?;
        let slots = u32::try_from(memory / block.max(1)).unwrap_or(u32::MAX);
        let mut access = Access { lossless: self.lossless_readers, ..Access::of_owner(identity.owner()) };
        if let Some(group) = &self.share_group {
            access.groups.push(group_number(group)?);
        }
        let options = SharingOptions {
            name: name.clone(),
            ring: linerate_share::Options {
                slots,
                slot_bytes: usize::try_from(block).unwrap_or(usize::MAX),
                huge: !self.share_small_pages,
                node: self.share_node,
                lock: self.share_lock,
            },
            access,
            wait_for: self.share_wait,
            patience: Some(super::super::inputs::span("--share-timeout", self.share_timeout)?),
        };
        let sharing = Sharing::create(options).map_err(|error| match error {
            Error::Invalid(reason) => usage(format!("cannot share {name}: {reason}")),
            error => identity.explain(anyhow::Error::new(error).context(format!("cannot share {name}"))),
        })?;
        let mut notes = vec![format!(
            "shared as shm:{name}: {} blocks of {} KiB, {:.0} ms at {} Mpps of 64 bytes",
            grouped(slots.into()),
            block >> 10,
            sharing.room() as f64 / FULL_SPEED * 1e3,
            FULL_SPEED / 1e6,
        )];
        notes.extend(sharing.notes().iter().cloned());
        Ok(Some((sharing, notes)))
    }

    /// Returns the directory of the socket, which the run removes at its end.
    pub(super) fn folder(&self) -> anyhow::Result<Option<OwnedFd>> {
        Ok(self.share.as_deref().map(socket_folder).transpose()?.flatten())
    }
}

fn size(option: &str, text: &str) -> anyhow::Result<u64> {
    parse_size(text).ok_or_else(|| {
        usage(format!("{option} {text}: invalid size; expected a number and a unit, such as 512KiB, 64MiB"))
    })
}
