//! What a run shows, and how often: the same options in every verb.

use super::inputs::span;
#[cfg(feature = "serve")]
use super::snapshot::{Ask, Gatherer};
use crate::view::live::News;
#[cfg(feature = "serve")]
use crate::view::metrics::{Metrics, Place, Show};
use std::time::Duration;

/// Options of what is shown.
#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {
    /// Show what happens every so many seconds; 0 for nothing until the end [default: 1]
    #[arg(long, value_name = "S")]
    interval: Option<f64>,
    /// Say nothing but errors; what count finds, and flows and streams that are written nowhere, is still shown at the end
    #[arg(short = 'q', long)]
    pub quiet: bool,
    /// The whole ledger at the end, also where nothing was lost
    #[arg(short = 'v', long, conflicts_with_all = ["quiet", "json"])]
    pub ledger: bool,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Where counters are told: also an option of verbs that show what happens in ways of their own.
#[derive(Debug, clap::Args)]
pub(super) struct MetricsArgs {
    /// Answer GET /metrics here while the run lasts, all counters in the text format of Prometheus; and linerate top --from, at
    /// the path of a socket (for its owner alone) with flows
    #[cfg(feature = "serve")]
    #[arg(long, value_name = "ADDRESS:PORT|PATH")]
    metrics: Option<Place>,
}

/// What goes on beside a run.
pub(super) struct Beside {
    _metrics: Told,
    _news: News,
}

/// Counters are told as long as this is there.
pub(super) struct Told {
    #[cfg(feature = "serve")]
    _metrics: Metrics,
}

impl MetricsArgs {
    /// Answers those who collect counters, as long as the result is there, and says where unless that is to be silent. Call it once
    /// privileges are gone.
    pub(super) fn tell(&self, is_silent: bool) -> Told {
        #[cfg(not(feature = "serve"))]
        let _ = is_silent;
        Told {
            #[cfg(feature = "serve")]
            _metrics: Metrics::start(is_silent, shows),
        }
    }

    /// Whether they are asked for.
    pub(super) fn is_given(&self) -> bool {
        #[cfg(feature = "serve")]
        return self.metrics.is_some();
        #[cfg(not(feature = "serve"))]
        false
    }
}

impl ShowArgs {
    /// How often to show what happens, if it is to be shown at all.
    pub(super) fn interval(&self, is_silent: bool) -> anyhow::Result<Option<Duration>> {
        let interval = span("--interval", self.interval.unwrap_or(1.0))?;
        Ok(Some(interval).filter(|interval| !self.quiet && !is_silent && !interval.is_zero()))
    }

    /// Prints what happens while the run lasts, if it is to be shown at all, and answers those who collect counters, as long as the
    /// result is there.
    pub(super) fn news(&self, is_silent: bool) -> Beside {
        let is_shown = !self.quiet && !is_silent;
        Beside { _metrics: self.metrics.tell(!is_shown), _news: News::start(is_shown) }
    }

    /// Whether counters are to be told.
    #[cfg(feature = "parquet")]
    pub(super) fn has_metrics(&self) -> bool {
        self.metrics.is_given()
    }

    /// Whether the user said how often.
    pub(super) fn has_interval(&self) -> bool {
        self.interval.is_some()
    }
}

/// What a verb shows to those who look on; flows at a path alone.
#[cfg(feature = "serve")]
fn shows(verb: &str, is_path: bool) -> Show {
    let reason = "flows are told at the path of a socket alone, not at an address: --metrics PATH";
    let gatherer = Gatherer::new(verb, (!is_path).then_some(reason));
    Box::new(move |query| {
        let snapshot = gatherer.snapshot(&Ask::parse(query)?).map_err(|error| error.trim_end().to_owned() + "\n")?;
        serde_json::to_string(&snapshot).map_err(|error| error.to_string())
    })
}
