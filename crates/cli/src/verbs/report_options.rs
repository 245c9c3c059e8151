//! Options of progress, report and metrics, the same in every verb.

use super::inputs::span;
#[cfg(feature = "serve")]
use super::snapshot::{FlowQuery, Gatherer};
use crate::view::live::EventPrinter;
#[cfg(feature = "serve")]
use crate::view::metrics::{Metrics, MetricsAddress, SnapshotQuery};
use std::time::Duration;

/// Options of progress and report.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Report")]
pub(super) struct ShowArgs {
    /// Print progress every S seconds; 0 for none [default: 1]
    #[arg(long, value_name = "S")]
    interval: Option<f64>,
    /// Print errors only, and results that are not written elsewhere
    #[arg(short = 'q', long)]
    pub quiet: bool,
    /// Print more: the whole packet accounting at the end
    #[arg(short = 'v', long = "verbose")]
    pub ledger: bool,
    #[command(flatten)]
    metrics: MetricsArgs,
}

/// Option of metrics, also of verbs with their own progress options.
#[derive(Debug, clap::Args)]
pub(super) struct MetricsArgs {
    /// Serve all counters during the run at GET /metrics, in the text format of Prometheus, and to linerate top --from;
    /// flows only at the path of a socket, which is for its owner only
    #[cfg(feature = "serve")]
    #[arg(long, value_name = "ADDRESS:PORT|PATH")]
    metrics: Option<MetricsAddress>,
}

/// Metrics and news of a run, until dropped.
pub(super) struct Background {
    _metrics: MetricsServer,
    _news: EventPrinter,
}

/// Serves counters until dropped.
pub(super) struct MetricsServer {
    #[cfg(feature = "serve")]
    _metrics: Metrics,
}

impl MetricsArgs {
    /// Serves counters until the result is dropped, and prints the address unless `is_silent`. Call it after privileges
    /// are dropped.
    pub(super) fn serve(&self, is_silent: bool) -> MetricsServer {
        #[cfg(not(feature = "serve"))]
        let _ = is_silent;
        MetricsServer {
            #[cfg(feature = "serve")]
            _metrics: Metrics::start(is_silent, snapshots),
        }
    }

    /// Returns whether an address is given.
    pub(super) fn is_given(&self) -> bool {
        #[cfg(feature = "serve")]
        return self.metrics.is_some();
        #[cfg(not(feature = "serve"))]
        false
    }
}

impl ShowArgs {
    /// Returns the interval of progress lines, if any are printed.
    pub(super) fn interval(&self, is_silent: bool) -> anyhow::Result<Option<Duration>> {
        let interval = span("--interval", self.interval.unwrap_or(1.0))?;
        Ok(Some(interval).filter(|interval| !self.quiet && !is_silent && !interval.is_zero()))
    }

    /// Prints events of the run and serves counters, until the result is dropped. A silent run, such as one with
    /// `--json`, does not say where it serves them; its events are printed.
    pub(super) fn news(&self, is_silent: bool) -> Background {
        Background { _metrics: self.metrics.serve(self.quiet || is_silent), _news: EventPrinter::start(!self.quiet) }
    }

    /// Serves counters below a table on the screen, which shows events itself.
    pub(super) fn below_table(&self) -> Background {
        Background { _metrics: self.metrics.serve(true), _news: EventPrinter::start(false) }
    }

    /// Returns whether the user gave an interval.
    pub(super) fn has_interval(&self) -> bool {
        self.interval.is_some()
    }
}

/// Returns the source of snapshots of a run; with flows only at a path.
#[cfg(feature = "serve")]
fn snapshots(verb: &str, is_path: bool) -> SnapshotQuery {
    let reason = "flows are served only at the path of a socket, not at an address; use --metrics PATH";
    let gatherer = Gatherer::new(verb, (!is_path).then_some(reason));
    Box::new(move |query| {
        let snapshot =
            gatherer.snapshot(&FlowQuery::parse(query)?).map_err(|error| error.trim_end().to_owned() + "\n")?;
        serde_json::to_string(&snapshot).map_err(|error| error.to_string())
    })
}
