//! `--share`: frames for another process, and their options.

use crate::exit::usage;
use crate::privileges::{Identity, group_number, socket_folder};
use crate::verbs::inputs::span;
use crate::verbs::rings::ring_name;
use linerate_burst::pool::OwnedBytes;
use linerate_engine::frame_ring::{FrameSharing, FrameSharingOptions};
use linerate_share::{Access, Error};
use linerate_transport::frames::Config;
use std::os::fd::OwnedFd;

/// Options of `--share`.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sharing")]
pub(super) struct ShareArgs {
    /// Share frames with another process without a copy, read by linerate frames NAME (a NAME with / is the path of a
    /// socket); frames wait until a reader attaches
    #[arg(long, value_name = "NAME", conflicts_with_all = ["write", "check"])]
    share: Option<String>,
    /// Allow members of this group to read them, in addition to root and the user of this process
    #[arg(long, value_name = "GROUP")]
    share_group: Option<String>,
    /// Timeout in seconds at the end for the reader to return the last frames, restarted by each returned frame
    #[arg(long, value_name = "S", default_value_t = 10.0)]
    share_timeout: f64,
    /// Do not use huge pages
    #[arg(long)]
    share_small_pages: bool,
}

/// Frames to share before the run, with their memory.
pub(super) struct FrameRing {
    pub ring: FrameSharing,
    /// Memory of the frames.
    pub pieces: Vec<OwnedBytes>,
}

impl ShareArgs {
    /// Returns the name of the ring.
    pub(super) fn name(&self) -> Option<&str> {
        self.share.as_deref()
    }

    /// Checks the name of the ring.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        self.share.as_deref().map_or(Ok(()), |name| ring_name("--share", name).map(drop))
    }

    /// Allocates the frames, if shared. Call it before privileges are dropped: huge pages may need them, and readers trust the
    /// user that created the ring. If newer frames replace finished ones (`gives_way`), a reader gets at most half of them.
    pub(super) fn open(
        &self,
        identity: &Identity,
        frames: Config,
        gives_way: bool,
    ) -> anyhow::Result<Option<FrameRing>> {
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
            patience: span("--share-timeout", self.share_timeout)?,
            most: gives_way.then_some((frames.frames as u64 / 2).max(1)),
        };
        let (ring, pieces) = FrameSharing::create(options).map_err(|error| match error {
            Error::Invalid(reason) => usage(format!("cannot share {name}: {reason}")),
            error => identity.explain(anyhow::Error::new(error).context(format!("cannot share {name}"))),
        })?;
        Ok(Some(FrameRing { ring, pieces }))
    }

    /// Returns the settings by name.
    pub(super) fn asked(&self) -> Vec<(&'static str, String)> {
        vec![
            ("share", self.share.clone().unwrap_or_default()),
            ("share_group", self.share_group.clone().unwrap_or_default()),
            ("share_timeout", self.share_timeout.to_string()),
            ("share_small_pages", self.share_small_pages.to_string()),
        ]
    }

    /// Returns the folder of the socket, which the run removes.
    pub(super) fn folder(&self) -> anyhow::Result<Option<OwnedFd>> {
        Ok(self.share.as_deref().map(socket_folder).transpose()?.flatten())
    }
}
