//! `--share`: the ordered stream for other processes, and the options that say how.

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
    /// Share the ordered stream with other processes: they read it as port shm:NAME (a NAME with / is the path of a
    /// socket)
    #[arg(long, value_name = "NAME")]
    share: Option<String>,
    /// Memory for frames that are shared; what it means in time is said at start
    #[arg(long, value_name = "SIZE", default_value = "64MiB", requires = "share")]
    share_memory: String,
    /// Memory of one block: a power of two from 512KiB to 64MiB
    #[arg(long, value_name = "SIZE", default_value = "1MiB", requires = "share")]
    share_block: String,
    /// Begin once so many readers have attached
    #[arg(long, value_name = "N", default_value_t = 0, requires = "share")]
    share_wait: usize,
    /// Let members of this group attach too, beside root and the user of this program
    #[arg(long, value_name = "GROUP", requires = "share")]
    share_group: Option<String>,
    /// Let readers ask to be waited for (shm:NAME?mode=lossless): such a one may hold everybody up, as long as
    /// --share-patience lasts
    #[arg(long, requires = "share")]
    lossless_readers: bool,
    /// Evict a lossless reader that blocks the capture for longer than this many seconds; its stream ends with an error
    #[arg(long, value_name = "S", default_value_t = 1.0, requires = "share")]
    share_patience: f64,
    /// The NUMA node to put the memory on
    #[arg(long, value_name = "NODE", requires = "share")]
    share_node: Option<u32>,
    /// Lock the memory, so that it is never paged out
    #[arg(long, requires = "share")]
    share_lock: bool,
    /// Use pages of ordinary size even where there are huge ones
    #[arg(long, requires = "share")]
    share_small_pages: bool,
}

/// Frames of 64 bytes a second on four ports of 10 Gb/s each: what the size of the memory is said for.
const FULL_SPEED: f64 = 59.5e6;

impl ShareArgs {
    /// Whether a ring is asked for.
    pub(super) fn is_wanted(&self) -> bool {
        self.share.is_some()
    }

    /// The same where its name may be what no ring is called.
    pub(super) fn check(&self) -> anyhow::Result<bool> {
        Ok(self.share.as_deref().map(|name| ring_name("--share", name)).transpose()?.is_some())
    }

    /// Makes the ring, if one is asked for; before privileges are dropped, since huge and locked memory may need them, and
    /// readers believe in who began to share. With lines about it, for people.
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
            patience: Some(super::super::inputs::span("--share-patience", self.share_patience)?),
        };
        let sharing = Sharing::create(options).map_err(|error| match error {
            Error::Invalid(reason) => usage(format!("cannot share {name}: {reason}")),
            error => identity.explain(anyhow::Error::new(error).context(format!("cannot share {name}"))),
        })?;
        let mut notes = vec![format!(
            "shared as shm:{name}: {} blocks of {} KiB, {:.0} ms at {} M frames/s of 64 bytes",
            grouped(slots.into()),
            block >> 10,
            sharing.room() as f64 / FULL_SPEED * 1e3,
            FULL_SPEED / 1e6,
        )];
        notes.extend(sharing.notes().iter().cloned());
        Ok(Some((sharing, notes)))
    }

    /// The folder that the run removes a socket from.
    pub(super) fn folder(&self) -> anyhow::Result<Option<OwnedFd>> {
        Ok(self.share.as_deref().map(socket_folder).transpose()?.flatten())
    }
}

fn size(option: &str, text: &str) -> anyhow::Result<u64> {
    parse_size(text).ok_or_else(|| usage(format!("{option} {text}: not a size (as in 65536, 512KiB, 64MiB)")))
}
