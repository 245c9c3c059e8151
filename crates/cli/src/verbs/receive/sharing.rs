//! `--share`: frames for another process, and the options that say how.

use crate::exit::usage;
use crate::privileges::{Identity, group_number, socket_folder};
use crate::verbs::inputs::span;
use crate::verbs::rings::ring_name;
use linerate_burst::pool::Piece;
use linerate_engine::frame_ring::{FrameSharing, FrameSharingOptions};
use linerate_receive::frames::Config;
use linerate_share::{Access, Error};
use std::os::fd::OwnedFd;

/// Options of `--share`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sharing")]
pub(super) struct ShareArgs {
    /// Share frames with another process, where they were received: linerate frames NAME takes them (a NAME with / is the path of
    /// a socket); as long as nobody does they wait
    #[arg(long, value_name = "NAME", conflicts_with_all = ["write", "check"])]
    share: Option<String>,
    /// Let members of this group take them too, beside root and the user of this program
    #[arg(long, value_name = "GROUP")]
    share_group: Option<String>,
    /// How many seconds the end waits for a reader to take the last frames and to give them back, from the last that came back
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    share_patience: f64,
    /// Use pages of ordinary size even where there are huge ones
    #[arg(long)]
    share_small_pages: bool,
}

/// Frames that are shared, before the run: with their memory, and lines about it.
pub(super) struct Shared {
    /// The ring.
    pub ring: FrameSharing,
    /// The frames.
    pub pieces: Vec<Piece>,
}

impl ShareArgs {
    /// Under which name.
    pub(super) fn name(&self) -> Option<&str> {
        self.share.as_deref()
    }

    /// Refuses what is no name of a ring.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.share.as_deref().map_or(Ok(()), |name| ring_name("--share", name).map(drop))
    }

    /// Makes the frames, if they are to be shared; before privileges are dropped, since huge memory may need them, and readers believe
    /// in who began to share. Where finished frames give way to newer ones a reader has half of them at most.
    pub(super) fn open(&self, identity: &Identity, frames: Config, gives_way: bool) -> anyhow::Result<Option<Shared>> {
        let Some(name) = &self.share else { return Ok(None) };
        let mut access = Access::of_owner(identity.owner());
        if let Some(group) = &self.share_group {
            access.groups.push(group_number(group)?);
        }
        let options = FrameSharingOptions {
            name: name.clone(),
            frames,
            access,
            huge: !self.share_small_pages,
            patience: span("--share-patience", self.share_patience)?,
            most: gives_way.then_some((frames.frames as u64 / 2).max(1)),
        };
        let (ring, pieces) = FrameSharing::create(options).map_err(|error| match error {
            Error::Invalid(reason) => usage(format!("cannot share {name}: {reason}")),
            error => identity.explain(anyhow::Error::new(error).context(format!("cannot share {name}"))),
        })?;
        Ok(Some(Shared { ring, pieces }))
    }

    /// What is asked for, by name.
    pub(super) fn asked(&self) -> Vec<(&'static str, String)> {
        vec![
            ("share", self.share.clone().unwrap_or_default()),
            ("share_group", self.share_group.clone().unwrap_or_default()),
            ("share_patience", self.share_patience.to_string()),
            ("share_small_pages", self.share_small_pages.to_string()),
        ]
    }

    /// The folder that the run removes a socket from.
    pub(super) fn folder(&self) -> anyhow::Result<Option<OwnedFd>> {
        Ok(self.share.as_deref().map(socket_folder).transpose()?.flatten())
    }
}
