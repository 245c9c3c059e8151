//! What a run shows, and how often: the same options in every verb.

use super::inputs::span;
use crate::view::live::News;
use std::time::Duration;

/// Options of what is shown.
#[derive(Debug, clap::Args)]
pub struct ShowArgs {
    /// Show what happens every so many seconds; 0 for nothing until the end [default: 1]
    #[arg(long, value_name = "S")]
    interval: Option<f64>,
    /// Say nothing but errors; what count finds, and flows and streams that are written nowhere, is still shown at the end
    #[arg(short = 'q', long)]
    pub quiet: bool,
    /// The whole ledger at the end, also where nothing was lost
    #[arg(short = 'v', long, conflicts_with_all = ["quiet", "json"])]
    pub ledger: bool,
}

impl ShowArgs {
    /// How often to show what happens, if it is to be shown at all.
    pub fn interval(&self, is_silent: bool) -> anyhow::Result<Option<Duration>> {
        let interval = span("--interval", self.interval.unwrap_or(1.0))?;
        Ok(Some(interval).filter(|interval| !self.quiet && !is_silent && !interval.is_zero()))
    }

    /// Prints what happens while the run lasts, as long as the result is there, if it is to be shown at all.
    pub fn news(&self, is_silent: bool) -> News {
        News::start(!self.quiet && !is_silent)
    }

    /// Whether the user said how often.
    pub fn has_interval(&self) -> bool {
        self.interval.is_some()
    }
}
